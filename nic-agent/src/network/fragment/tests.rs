//! Two fragments in one process: their rings are fed with frames, and their states exchange messages as agents do.

use std::collections::BTreeMap;
use std::f64::consts::E;
use std::net::Ipv4Addr;

use etherparse::PacketBuilder;
use packets::{Frame, Link, parse};
use wire::proto::fragments as proto;

use super::*;
use crate::config::Config;

const SECOND: u64 = 1_000_000_000;
/// The epoch in which the agents start.
const FIRST: u32 = 1_700_000_000;
const COUNTERS: u32 = 256;
const WHOLE: FrameInfo = FrameInfo { merged: false };

/// Addresses of the nodes with fragments 1 and 2, and of what has none.
const NODES: [Ipv4Addr; 3] = [Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(10, 2, 0, 1), Ipv4Addr::new(10, 9, 0, 1)];

struct Agent {
    stream: FragmentStream,
    state: Arc<Mutex<FragmentState>>,
}

impl Agent {
    /// The agent with fragment 1 or 2, which starts in `epoch`.
    fn new(id: u32, epoch: u32) -> Self {
        let other = 3 - id;
        let text = format!(
            "network:\n  peers: {{listen: '[::]:1', insecure: true, peers_insecure: true}}\n  fragment: {{id: {id}, interface: lo, counters: {COUNTERS}, \
             epoch_ms: 1000, error_packets: 1, peers: [{{id: {other}, at: 'b:1', addresses: ['10.{other}.0.0/16']}}]}}\n"
        );
        let config = Config::parse(&text).unwrap().network.fragment.unwrap();
        let key = DigestKey::new(u128::from(id) << 70 | u128::from(epoch));
        let state = Arc::new(Mutex::new(FragmentState::new(&config, key.clone(), u64::from(epoch), epoch)));
        let (sender, _) = watch::channel(0);
        let stream = FragmentStream::new(&config, key, id.into(), Arc::clone(&state), sender).unwrap();
        Self { stream, state }
    }

    fn insert(&mut self, bytes: &[u8], time_ns: u64) {
        let frame = Frame { bytes, length: bytes.len() as u32, time_ns, link: Link::Ethernet };
        self.stream.insert(&parse(&frame, View::Outer), WHOLE);
    }

    fn ends(&mut self, epoch: u32) -> EpochResult {
        let ended = UnixNanos::from_secs(u64::from(epoch) + 1);
        assert!(!self.stream.is_due(ended), "packets of the epoch may be in the ring");
        self.stream.poll(ended.plus(GRACE));
        locked(&self.state).result(epoch).unwrap()
    }
}

fn datagram(from: Ipv4Addr, to: Ipv4Addr, port: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [3; 6]).ipv4(from.octets(), to.octets(), 64).udp(port, 53);
    builder.write(&mut bytes, &[7; 20]).unwrap();
    bytes
}

/// Packets of a flow of the usual traffic between both nodes.
fn size(port: u16) -> u32 {
    1 + 300 / u32::from(port)
}

const FLOWS: u16 = 200;

/// The usual traffic of an epoch between both nodes, which both see, and `alone` packets that only the first one sees.
/// Returns the number of packets between both.
fn traffic([one, two]: &mut [Agent; 2], epoch: u32, alone: u16) -> u64 {
    let (mut time_ns, mut sent) = (u64::from(epoch) * SECOND, 0);
    for port in 1..=FLOWS {
        let bytes = datagram(NODES[0], NODES[1], port);
        for _ in 0..size(port) {
            one.insert(&bytes, time_ns);
            two.insert(&bytes, time_ns);
            (time_ns, sent) = (time_ns + 1_000, sent + 1);
        }
    }
    for port in 0..alone {
        one.insert(&datagram(NODES[0], NODES[2], port), time_ns);
    }
    sent
}

/// The messages after the end of `epoch`, of which the first `arrive` arrive: questions both ways, then the table.
fn exchange([one, two]: &mut [Agent; 2], epoch: u32, arrive: u32) {
    for (number, asks, replies) in [(1, &one.state, &two.state), (2, &two.state, &one.state)] {
        let question = locked(asks).question(0, epoch);
        if number <= arrive {
            let reply = locked(replies).reply(&question, epoch + 1).unwrap();
            assert!(locked(asks).take_reply(0, &question, reply));
        }
    }
    assert!(locked(&two.state).table_to_send(0, epoch + 1, 1).is_none(), "the first node owns the path");
    let Some(request) = locked(&one.state).table_to_send(0, epoch + 1, epoch.into()) else { return };
    if arrive >= 3 {
        let reply = locked(&two.state).reply(&request, epoch + 1).unwrap();
        assert!(reply.taken, "{}", reply.refused);
        if arrive >= 4 {
            locked(&one.state).acknowledged(0, epoch + 1, epoch + 1);
        }
    }
}

/// Errors of all flows between both nodes at one end, in packets.
fn errors(agent: &Agent) -> Vec<u32> {
    let state = locked(&agent.state);
    let fragment = &state.ended.back().unwrap().fragment;
    let error = |port| {
        let bytes = datagram(NODES[0], NODES[1], port);
        let frame = Frame { bytes: &bytes, length: bytes.len() as u32, time_ns: 0, link: Link::Ethernet };
        let key = FlowKey::of(&parse(&frame, View::Outer).unwrap());
        fragment.estimate(key.digest(&state.key)).checked_sub(size(port)).expect("at least the truth")
    };
    (1..=FLOWS).map(error).collect()
}

/// The true sizes of flows by their names.
fn truth() -> BTreeMap<String, u64> {
    let name = |port| format!("udp {}:{port} to {}:53", NODES[0], NODES[1]);
    (1..=FLOWS).map(|port| (name(port), u64::from(size(port)))).collect()
}

/// Checks the heaviest flows between both nodes against the truth, and returns their number.
fn check(found: &EpochResult) -> usize {
    let truth = truth();
    let known = found.heaviest.iter().filter_map(|(flow, estimate)| Some((truth.get(&flow.to_string())?, estimate)));
    known.inspect(|(size, estimate)| assert!(estimate.count >= **size, "{estimate:?}, {size}")).count()
}

#[test]
fn the_less_loaded_of_two_ends_counts_and_its_estimates_meet_the_bound() {
    let mut agents = [Agent::new(1, FIRST), Agent::new(2, FIRST)];
    for epoch in FIRST..FIRST + 6 {
        let between = traffic(&mut agents, epoch, 5_000);
        let [one, two] = [0, 1].map(|place: usize| agents[place].ends(epoch));
        assert_eq!((one.passed, two.passed), (between + 5_000, between));
        if epoch >= FIRST + 2 {
            assert_eq!((one.counted, two.counted), (5_000, between), "epoch {}", epoch - FIRST);
            assert_eq!((two.agreed, two.unknown, check(&one)), (1, 0, 0), "{one:?}");
            assert!(check(&two) > 10, "{two:?}");
            let bound = E * between as f64 / f64::from(COUNTERS);
            let errors = errors(&agents[1]);
            let above = errors.iter().filter(|error| f64::from(**error) > bound).count();
            assert!(above as f64 <= f64::from(FLOWS) / E, "{above} of {FLOWS} flows are above {bound}");
        } else {
            assert_eq!((one.counted, two.counted), (one.passed, two.passed), "no table yet");
        }
        exchange(&mut agents, epoch, 4);
    }
}

#[test]
fn whichever_messages_are_lost_heavy_flows_have_estimates_of_at_least_their_size() {
    let mut agents = [Agent::new(1, FIRST), Agent::new(2, FIRST)];
    for (epoch, arrive) in (FIRST..).zip([4, 4, 3, 0, 1, 4, 2, 4, 3, 3, 4, 4]) {
        traffic(&mut agents, epoch, 2_000);
        let counted = agents.each_mut().map(|agent| agent.ends(epoch));
        exchange(&mut agents, epoch, arrive);
        if epoch == FIRST {
            continue;
        }
        let results = agents.each_mut().map(|agent| locked(&agent.state).result(epoch).unwrap());
        for (found, before) in results.iter().zip(&counted) {
            check(found);
            // An end that counted a flow knows by itself that it did.
            assert!(found.whole && found.unknown == 0, "{arrive}: {found:?}");
            assert_eq!(found.counted, before.counted);
        }
        assert!(results.iter().any(|found| check(found) > 10), "{results:?}");
    }
}

#[test]
fn an_epoch_that_was_not_read_from_its_begin_or_lost_frames_is_nobodys_estimate() {
    let mut agents = [Agent::new(1, FIRST), Agent::new(2, FIRST)];
    traffic(&mut agents, FIRST, 0);
    let first = agents[1].ends(FIRST);
    assert!(!first.whole && first.heaviest.is_empty() && first.unknown > 0, "{first:?}");
    agents[0].ends(FIRST);

    traffic(&mut agents, FIRST + 1, 0);
    agents[1].stream.add_dropped(3, UnixNanos::from_secs((FIRST + 1).into()));
    let [one, two] = [0, 1].map(|place: usize| agents[place].ends(FIRST + 1));
    assert!(one.whole && !two.whole && two.heaviest.is_empty());
    exchange(&mut agents, FIRST + 1, 2);
    // The other end counted everything, too.
    let found = locked(&agents[1].state).result(FIRST + 1).unwrap();
    assert!(check(&found) > 10 && found.unknown == 0, "{found:?}");

    // A clock that jumps ahead, then back.
    for epoch in [FIRST + 9, FIRST + 4] {
        agents[0].insert(&datagram(NODES[0], NODES[1], 1), u64::from(epoch) * SECOND);
        agents[0].stream.poll(UnixNanos::from_secs(epoch.into()));
        assert!(!agents[0].ends(epoch).whole);
    }
}

#[test]
fn what_is_dropped_after_an_epochs_end_is_missing_in_it_and_in_all_until_that_was_noticed() {
    for (noticed_ms, expected) in [
        (500, [false, true, false, true, true, true]),
        (1_001, [false, true, false, false, true, true]),
        // Whoever reads the interface was held up.
        (2_500, [false, true, false, false, false, true]),
    ] {
        let mut agent = Agent::new(2, FIRST);
        let whole = (FIRST..FIRST + 6).map(|epoch| {
            let begins = UnixNanos::from_secs(epoch.into());
            agent.insert(&datagram(NODES[0], NODES[1], 1), begins.plus(GRACE).0);
            if epoch == FIRST + 2 {
                agent.stream.add_dropped(1, begins.plus(Nanos::from_millis(noticed_ms)));
            }
            agent.ends(epoch).whole
        });
        assert_eq!(whole.collect::<Vec<_>>(), expected, "noticed after {noticed_ms} ms");
    }
}

#[test]
fn merged_frames_flag_the_epoch_in_which_each_counts_as_one_packet() {
    let mut agent = Agent::new(2, FIRST);
    let text = "network:\n  fragment: {id: 2, interface: lo}\n";
    let config = Config::parse(text).unwrap().network.fragment.unwrap();
    let metrics = FragmentMetrics::new(&config, std::path::Path::new("/nowhere/services.sock"));
    let bytes = datagram(NODES[0], NODES[1], 1);
    for (epoch, merged) in [(FIRST, false), (FIRST + 1, true), (FIRST + 2, false)] {
        let time_ns = u64::from(epoch) * SECOND;
        let frame = Frame { bytes: &bytes, length: bytes.len() as u32, time_ns, link: Link::Ethernet };
        for _ in 0..3 {
            agent.stream.insert(&parse(&frame, View::Outer), FrameInfo { merged });
        }
        let found = agent.ends(epoch);
        metrics.write(&found);

        let (number, flag) = if merged { (3, 1.0) } else { (0, 0.0) };
        assert_eq!((found.passed, found.oversized, metrics.merged_flag.get()), (3, number, flag));
    }
}

#[test]
fn a_question_that_is_none_for_this_end_is_refused_and_so_is_a_table_of_the_wrong_end() {
    let mut agents = [Agent::new(1, FIRST), Agent::new(2, FIRST)];
    for epoch in [FIRST, FIRST + 1] {
        traffic(&mut agents, epoch, 0);
        for agent in &mut agents {
            agent.ends(epoch);
        }
    }
    let good = locked(&agents[1].state).question(0, FIRST + 1);
    let mut state = locked(&agents[0].state);
    for (bad, why) in [
        (proto::FragmentRequest { from: 3, ..good.clone() }, "no fragment 3 is in network.fragment.peers"),
        (proto::FragmentRequest { to: 3, ..good.clone() }, "this is fragment 1, not 3"),
        (proto::FragmentRequest { epoch_ms: 2_000, ..good.clone() }, "epochs have 1000 ms here, and 2000 ms there"),
        (proto::FragmentRequest { flows: vec![vec![0; 36]], ..good.clone() }, "at most 16 of 37 bytes"),
        (proto::FragmentRequest { flows: vec![vec![0; 37]; 17], ..good.clone() }, "17 flows"),
    ] {
        assert!(state.reply(&bad, FIRST + 2).unwrap_err().contains(why), "{bad:?}");
    }
    let reply = state.reply(&proto::FragmentRequest { table: vec![1, 2, 3], ..good.clone() }, FIRST + 2).unwrap();
    assert_eq!((reply.taken, &*reply.refused), (false, "fragment 1 makes the tables of this path"));
    assert!(reply.report.is_some_and(|report| report.whole && report.counts.len() == good.flows.len()));
    let unknown = state.reply(&proto::FragmentRequest { epoch: FIRST + 7, ..good }, FIRST + 2).unwrap();
    assert_eq!(unknown.report, None);
    let asked = state.question(0, FIRST + 1);
    drop(state);
    let mut other = locked(&agents[1].state);
    let reply = other.reply(&proto::FragmentRequest { table: vec![1, 2, 3], ..asked.clone() }, FIRST + 2).unwrap();
    assert!(!reply.taken && !reply.refused.is_empty());
    assert_eq!((other.host(1), other.host(2)), (Some("b"), None));
    // Of a liar's report only counts are used that it says to have of a table which is known, or of all flows.
    let lie = proto::EndReport { epoch: FIRST + 1, passed: u64::MAX, whole: true, run: Some(9), ..Default::default() };
    let reply = proto::FragmentReply { report: Some(lie), taken: true, refused: String::new() };
    drop(other);
    let mut state = locked(&agents[0].state);
    assert!(state.take_reply(0, &asked, reply));
    assert!(state.table_to_send(0, FIRST + 2, 1).is_some());
    assert_eq!(check(&state.result(FIRST + 1).unwrap()), state.result(FIRST + 1).unwrap().heaviest.len());
}
