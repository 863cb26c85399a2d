use proptest::prelude::*;

use super::*;
use crate::config::Config;

/// A fridge takes 128 KiB, reordering 40 KiB.
fn network(more: &str) -> NetworkConfig {
    Config::parse(&format!("network: {{{more}}}")).unwrap().network
}

fn wanted(name: &str, interface: &str, measured: &str) -> WantedStream {
    let text = format!(
        "network: {{memory_bytes: 1000000000, streams: [{{name: '{name}', interface: {interface}, {measured}}}]}}"
    );
    let config = Config::parse(&text).unwrap().network.streams.remove(0);
    WantedStream { name: name.to_owned(), by: format!("SynopsisPolicy of {name}"), config: Ok(config) }
}

fn problems(streams: &PolicyStreams, wanted: &[WantedStream]) -> Vec<(String, bool)> {
    streams.states(wanted, |_| String::new()).into_iter().map(|state| (state.problem, state.waits)).collect()
}

#[test]
fn what_does_not_fit_is_refused_with_what_is_full_and_by_whom() {
    let text = "memory_bytes: 300000, policy_interfaces: 1, streams: [{name: own, interface: eth0, synopses: {reordering: {}}}]";
    let mut streams = PolicyStreams::new(network(text));
    let list = [
        wanted("a", "eth0", "pair: handshake"),
        wanted("b", "eth0", "pair: handshake"),
        wanted("c", "cni0", "synopses: {heavy_hitters: {}}"),
        wanted("d", "cni1", "synopses: {reordering: {}}"),
        wanted("own", "eth0", "synopses: {reordering: {}}"),
        WantedStream { config: Err("no route".to_owned()), ..wanted("e", "eth0", "pair: dns") },
    ];

    let steps = streams.plan(&list);
    let started = |step: &Step| matches!(step, Step::Start(config) if ["a", "c"].contains(&&*config.name));
    assert!(steps.len() == 2 && steps.iter().all(started), "{steps:?}");
    let found = problems(&streams, &list);
    let parts = [
        "",
        "131072 bytes are needed, and 127968 of network.memory_bytes (300000) are free: configured streams have 40960, \
         earlier policies 131072, 131072 of them a (SynopsisPolicy of a)",
        "",
        "cni1 cannot be read, too: network.policy_interfaces is 1, and cni0 is read for SynopsisPolicy of c",
        "network.streams.name is \"own\": another stream has this name",
        "no route",
    ];
    for ((problem, waits), part) in found.iter().zip(parts) {
        assert!(!waits && (problem.is_empty() == part.is_empty()) && problem.contains(part), "{problem}");
    }

    let mut none = PolicyStreams::new(network("policy_interfaces: 0"));
    assert_eq!(none.plan(&list), []);
    assert!(problems(&none, &list)[0].0.contains("set network.policy_interfaces"));
}

#[test]
fn a_stream_that_changes_ends_before_it_begins_anew_and_another_filter_is_no_change() {
    let mut streams = PolicyStreams::new(network("policy_interfaces: 1"));
    let first = [wanted("a", "eth0", "pair: handshake")];
    assert!(matches!(&streams.plan(&first)[..], [Step::Start(_)]));
    assert_eq!(streams.plan(&first), []);

    let moved = [wanted("a", "eth0", "pair: handshake, filter: dst port 80")];
    assert_eq!(streams.plan(&moved), [Step::Filter("a".to_owned(), "dst port 80".to_owned())]);

    let slower = [wanted("a", "eth0", "pair: handshake, interval_ms: 5000")];
    assert_eq!(streams.plan(&slower), [Step::End("a".to_owned())]);
    assert_eq!(streams.plan(&slower), []);
    assert!(problems(&streams, &slower)[0].1 && streams.is_changing());
    streams.ended("a");
    assert!(matches!(&streams.plan(&slower)[..], [Step::Start(config)] if config.interval_ms.get() == 5000));
    assert_eq!(problems(&streams, &slower), [(String::new(), false)]);
}

#[test]
fn memory_and_interfaces_of_a_stream_are_free_when_it_has_ended() {
    let mut streams = PolicyStreams::new(network("memory_bytes: 140000, policy_interfaces: 1"));
    drop(streams.plan(&[wanted("a", "eth0", "pair: handshake")]));
    let next = [wanted("b", "eth1", "pair: handshake")];

    assert_eq!(streams.plan(&next), [Step::End("a".to_owned())]);
    let [(problem, waits)] = &problems(&streams, &next)[..] else { panic!("one stream") };
    assert!(*waits && problem.contains("is free when an earlier stream has ended"), "{problem}");
    assert_eq!(streams.interfaces(), BTreeSet::from(["eth0"]));
    streams.ended("a");
    assert!(matches!(&streams.plan(&next)[..], [Step::Start(_)]));
}

#[test]
fn an_interface_that_cannot_be_read_is_said() {
    let mut streams = PolicyStreams::new(network("policy_interfaces: 1"));
    let list = [wanted("a", "eth9", "pair: handshake")];
    drop(streams.plan(&list));

    let states = streams.states(&list, |interface| format!("there is no {interface}"));
    assert_eq!((&*states[0].problem, states[0].waits), ("eth9 cannot be read: there is no eth9", true));
    assert_eq!(states[0].interface, "eth9");
}

/// What streams may be: few, so that they meet.
fn stream() -> impl Strategy<Value = WantedStream> {
    let measured = ["pair: handshake", "synopses: {reordering: {}}", "pair: dns, synopses: {heavy_hitters: {}}"];
    let filter = ["", "dst port 80", "host 10.0.0.1,10.0.0.2"];
    let (measured, filter) = (prop::sample::select(measured.to_vec()), prop::sample::select(filter.to_vec()));
    ("[a-d]", "eth[0-2]", measured, filter).prop_map(|(name, interface, measured, filter)| {
        wanted(&name, &interface, &format!("{measured}, filter: '{filter}'"))
    })
}

/// The streams that are measured.
fn measured(streams: &PolicyStreams) -> Vec<StreamConfig> {
    streams.running.values().filter(|running| !running.is_ending).map(|running| running.config.clone()).collect()
}

proptest! {
    /// However streams come and go, and whenever they end, memory and interfaces suffice, and the last list decides.
    #[test]
    fn any_order_of_lists_ends_in_the_streams_of_the_last_one(
        lists in prop::collection::vec((prop::collection::vec(stream(), 0..5), any::<bool>()), 1..8),
    ) {
        let text = "memory_bytes: 400000, policy_interfaces: 2, streams: [{name: d, interface: eth0, pair: dns}]";
        let mut streams = PolicyStreams::new(network(text));
        // What the rings would measure.
        let mut on_rings: BTreeMap<String, StreamConfig> = BTreeMap::new();
        let mut ending = BTreeSet::new();
        let last = lists.last().unwrap().0.clone();
        for (list, ends) in lists.into_iter().chain((0..3).map(|_| (last.clone(), true))) {
            for step in streams.plan(&list) {
                match step {
                    Step::End(name) => prop_assert!(on_rings.contains_key(&name) && ending.insert(name)),
                    Step::Filter(name, filter) => on_rings.get_mut(&name).unwrap().filter = filter,
                    Step::Start(config) => prop_assert!(on_rings.insert(config.name.clone(), config).is_none()),
                }
            }
            let bytes: u64 = on_rings.values().map(StreamConfig::all_bytes).sum();
            prop_assert!(bytes + (128 << 10) <= 400_000, "{bytes}");
            let read: BTreeSet<_> = on_rings.values().map(|of| &of.interface).filter(|of| *of != "eth0").collect();
            prop_assert!(read.len() <= 2);
            if ends {
                for name in core::mem::take(&mut ending) {
                    on_rings.remove(&name);
                    streams.ended(&name);
                }
            }
        }
        let mut anew = PolicyStreams::new(network(text));
        drop(anew.plan(&last));
        prop_assert_eq!(measured(&streams), measured(&anew));
        prop_assert_eq!(on_rings.into_values().collect::<Vec<_>>(), measured(&anew));
        prop_assert!(!streams.is_changing());
    }
}
