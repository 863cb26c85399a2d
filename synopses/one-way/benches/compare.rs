//! The cost of collecting a packet, with each synopsis and with a list of all ids and times (Direct), and the cost of
//! one exchange of 20,000 packets of which 1 % are lost: both ends' work, and bytes.
//! `cargo bench -p one-way --bench compare`; the bytes come first, one line for each synopsis.
#![expect(clippy::panic, reason = "a bench that measures something else is of no use")]

use std::cell::RefCell;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use one_way::collector::{CollectorSettings, End};
use one_way::{
    Action, Collector, Effect, IntervalPackets, Plan, Receiver, ReceiverSettings, Report, Request, Response,
    ResponseBody, Sender, SenderSettings, Synopsis,
};
use prost::Message as _;
use synopses::digest::DigestKey;
use wire::time::{Nanos, UnixNanos};

/// Packets of an interval.
const PACKETS: u64 = 20_000;
/// One of so many is lost.
const LOST: u64 = 100;
/// Nanoseconds of an interval.
const LENGTH: u64 = 1_000_000_000;
/// From sending to arriving.
const DELAY: u64 = 100_000;
const NOW: u64 = 1_700_000_000 * LENGTH;

fn main() {
    for (name, synopsis) in synopses() {
        let mut exchange = Exchange::begin(&synopsis);
        let (mut finals, mut bytes) = (Vec::new(), 0);
        for interval in 0..3 {
            let packets = exchange.collect(interval);
            let (reports, sent) = exchange.compare(interval, packets);
            finals.extend(reports);
            bytes = sent;
        }
        let report = finals.get(1).expect("an interval is final when the next was compared");
        println!(
            "{name}: {bytes} bytes sent for an interval, {:.2} of the {} of Direct; {} lost of {}, mean delay {:?} ns",
            bytes as f64 / direct_bytes() as f64,
            direct_bytes(),
            report.lost,
            report.sent.unwrap_or(0),
            report.mean_ns,
        );
    }
    divan::main();
}

fn synopses() -> [(&'static str, Synopsis); 3] {
    [("rda", Synopsis::RDA), ("finecomb", Synopsis::finecomb(2_000, 125)), ("lda", Synopsis::lda(2_000))]
}

fn synopsis(name: &str) -> Synopsis {
    synopses().into_iter().find(|(known, _)| *known == name).expect("one of those").1
}

/// The bytes that identify a packet: as many as of a TCP segment with options.
fn packet(number: u64) -> [u8; 96] {
    let mut bytes = [7; 96];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// One packet, with its digest computed.
#[divan::bench(args = ["rda", "finecomb", "lda"], sample_count = 20, sample_size = 1)]
fn gather(bencher: Bencher<'_, '_>, name: &str) {
    let plan = plan(&synopsis(name));
    let collector = || Collector::new(plan.clone(), settings(End::Sender)).expect("possible");
    bencher.counter(ItemsCount::new(PACKETS)).with_inputs(collector).bench_local_refs(|collector| {
        for number in 0..PACKETS {
            let bytes = packet(number);
            collector.insert(plan.begins.plus(Nanos(number)), |key| key.digest(&bytes), |key| key.digest(&bytes));
        }
        collector.due()
    });
}

/// Direct: ids and times one after the other.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn gather_direct(bencher: Bencher<'_, '_>) {
    let key = DigestKey::new(1);
    let list = || Vec::with_capacity(PACKETS as usize);
    bencher.counter(ItemsCount::new(PACKETS)).with_inputs(list).bench_local_refs(|list| {
        for number in 0..PACKETS {
            list.push((key.digest(&packet(number)).0, number));
        }
        black_box(list.len())
    });
}

/// Both ends, from the interval's packets to its report, with all messages encoded and decoded.
#[divan::bench(args = ["rda", "finecomb", "lda"], sample_count = 20, sample_size = 1)]
fn exchange(bencher: Bencher<'_, '_>, name: &str) {
    let exchange = RefCell::new(Exchange::begin(&synopsis(name)));
    let mut interval = 0;
    let mut collected = || {
        interval += 1;
        (interval - 1, exchange.borrow_mut().collect(interval - 1))
    };
    bencher
        .with_inputs(&mut collected)
        .bench_local_values(|(interval, packets)| exchange.borrow_mut().compare(interval, packets));
}

/// Direct: the receiver's list as bytes, and each of the sender's packets looked up in it.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn exchange_direct(bencher: Bencher<'_, '_>) {
    let all = |end: End| -> Vec<(u64, u64)> {
        let key = DigestKey::new(1);
        passing(0, NOW, end).map(|(number, at)| (key.digest(&packet(number)).0, at)).collect()
    };
    let (sent, received) = (all(End::Sender), all(End::Receiver));
    bencher.bench_local(|| {
        let body = ResponseBody::Packets(one_way::EndCounters::default(), black_box(&received).clone());
        let response =
            Response { epoch: 1, interval: 0, clock: UnixNanos(0), clock_state: one_way::ClockState::Unknown, body };
        let bytes = response.encode().encode_to_vec();
        let response = wire::proto::one_way::Response::decode(&*bytes).map(Response::decode);
        let Ok(Ok(Response { body: ResponseBody::Packets(_, packets), .. })) = response else {
            panic!("it was encoded here")
        };
        let arrived: std::collections::HashMap<u64, u64> = packets.into_iter().collect();
        sent.iter().filter_map(|(id, at)| arrived.get(id).map(|arrived| arrived - at)).sum::<u64>()
    });
}

fn direct_bytes() -> usize {
    let body = ResponseBody::Packets(one_way::EndCounters::default(), passing(0, NOW, End::Receiver).collect());
    let response =
        Response { epoch: NOW, interval: 1, clock: UnixNanos(NOW), clock_state: one_way::ClockState::Unknown, body };
    response.encode().encoded_len()
}

fn settings(end: End) -> CollectorSettings {
    CollectorSettings { end, packets: 2 * PACKETS as usize, grace: Nanos::ZERO }
}

fn plan(synopsis: &Synopsis) -> Plan {
    let (begins, length) = (UnixNanos(NOW), Nanos(LENGTH));
    let synopsis = synopsis.clone();
    Plan { begins, length, key: 1, seed: 2, synopsis, intervals_per_key: 3_600, fingerprint: None }
}

/// Numbers and times of the packets that pass an end in an interval that begins at `begins_ns`. Some of the last
/// packets arrive in the next interval.
fn passing(interval: u64, begins_ns: u64, end: End) -> impl Iterator<Item = (u64, u64)> {
    let numbers = interval * PACKETS..(interval + 1) * PACKETS;
    let sent = move |number: u64| begins_ns + (number % PACKETS) * (LENGTH / PACKETS);
    let (is_receiver, before) = (end == End::Receiver, u64::from(interval > 0) * 2);
    let numbers = numbers.start - if is_receiver { before } else { 0 }..numbers.end - if is_receiver { 2 } else { 0 };
    numbers.filter(move |number| !is_receiver || number % LOST != 0).map(move |number| {
        let at = if number < interval * PACKETS { sent(number) - LENGTH } else { sent(number) };
        (number, at + if is_receiver { DELAY } else { 0 })
    })
}

/// Two ends during a run.
struct Exchange {
    sender: Sender,
    receiver: Receiver,
    collector: [Collector; 2],
    random: u64,
    plan: Plan,
}

impl Exchange {
    fn begin(synopsis: &Synopsis) -> Self {
        let mut sender = Sender::new(SenderSettings::new("path".to_owned(), Nanos(LENGTH), synopsis.clone()));
        let mut receiver = Receiver::new(ReceiverSettings::new(Nanos(LENGTH), synopsis.clone()));
        let Action::Send { call, request } = sender.poll(UnixNanos(NOW), &mut || 7) else { panic!("it begins") };
        let response = receiver.respond(&request, UnixNanos(NOW));
        sender.complete(call, Some(response), UnixNanos(NOW), &mut || 7);
        let Some(Effect::Collect(plan)) = sender.take_effects().next() else { panic!("a run begins") };
        let collector =
            [End::Sender, End::Receiver].map(|end| Collector::new(plan.clone(), settings(end)).expect("possible"));
        receiver.take_effects().for_each(drop);
        Self { sender, receiver, collector, random: 1, plan }
    }

    /// Both ends' packets of an interval.
    fn collect(&mut self, interval: u64) -> [IntervalPackets; 2] {
        let begins_ns = self.plan.begin_of(interval).0;
        [End::Sender, End::Receiver].map(|end| {
            let collector = &mut self.collector[usize::from(end == End::Receiver)];
            for (number, at) in passing(interval, begins_ns, end) {
                collector.insert(UnixNanos(at), |key| key.digest(&packet(number)), |key| key.digest(&packet(number)));
            }
            collector.poll(UnixNanos(begins_ns + LENGTH)).expect("it is over")
        })
    }

    /// From packets to reports: final reports, and the bytes of all messages.
    fn compare(&mut self, interval: u64, [ours, theirs]: [IntervalPackets; 2]) -> (Vec<Report>, usize) {
        let now = self.plan.begin_of(interval + 1).0 + 1;
        let seed = &mut self.random;
        let mut random = || {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *seed
        };
        self.receiver.add_interval(theirs, UnixNanos(now));
        self.sender.add_interval(ours, UnixNanos(now), &mut random);
        let mut bytes = 0;
        while let Action::Send { call, request } = self.sender.poll(UnixNanos(now), &mut random) {
            let request_bytes = request.encode().encode_to_vec();
            let request = wire::proto::one_way::Request::decode(&*request_bytes).map(Request::decode);
            let response = self.receiver.respond(&request.expect("bytes").expect("a request"), UnixNanos(now));
            let response_bytes = response.encode().encode_to_vec();
            let response = wire::proto::one_way::Response::decode(&*response_bytes).map(Response::decode);
            self.sender.complete(
                call,
                Some(response.expect("bytes").expect("a response")),
                UnixNanos(now),
                &mut random,
            );
            bytes += request_bytes.len() + response_bytes.len();
        }
        let mut reports = Vec::new();
        for effect in self.sender.take_effects() {
            match effect {
                Effect::Report(report) => reports.push(report),
                Effect::GiveBack(cache) => self.collector[0].give_back(cache),
                other => panic!("{other:?}"),
            }
        }
        for effect in self.receiver.take_effects() {
            if let Effect::GiveBack(cache) = effect {
                self.collector[1].give_back(cache);
            }
        }
        (reports, bytes)
    }
}
