//! Streams of packets that the host agent asks for.

use super::*;

#[test]
fn streams_that_are_asked_for_are_passed_on_and_what_came_of_them_is_said() {
    let mut node = Node::new(WorkerSettings { stream_interfaces: 2, ..WorkerSettings::default() });
    let hello = node.worker.hello();
    assert_eq!((hello.takes_streams, hello.stream_interfaces), (true, 2));
    let stream =
        |addresses: usize| proto::Stream { addresses: vec![vec![1; 4]; addresses], ..proto::Stream::default() };
    let set = |revision, streams| proto::SetStreams { revision, streams };

    // They are no change of an LMAP: they have no epoch of their own.
    node.receive(node.epoch, FromHost::SetStreams(set(1, vec![stream(256)]))).unwrap();
    assert_eq!(node.streams, [set(1, vec![stream(256)])]);
    for refused in [set(2, vec![stream(257)]), set(2, vec![stream(0); 65])] {
        let error = node.receive(node.epoch, FromHost::SetStreams(refused)).unwrap_err();
        assert!(error.to_string().contains("exceed the limit of 64 of 256: those before stay"), "{error}");
    }
    assert_eq!(node.streams.len(), 1);

    node.take_messages();
    let states = |revision| proto::StreamStates { revision, streams: vec![proto::StreamState::default()] };
    node.worker.streams_changed(states(1));
    node.act();
    assert_eq!(node.take_messages(), [ToHost::StreamStates(states(1))]);
    node.worker.disconnected(node.now);
    node.worker.streams_changed(states(1));
    node.welcome(1);
    assert!(!node.take_messages().iter().any(|of| matches!(of, ToHost::StreamStates(_))), "it is asked anew");
}
