//! A worker of the NIC agent with a host agent that says what was recorded.

use nic_agent::{Effect, UnexpectedMessage, Worker, WorkerSettings};
use wire::id::{Incarnation, RegionId};
use wire::layout::RegionSize;
use wire::proto::control::LearntModel;
use wire::time::Nanos;

use super::*;

#[test]
fn a_worker_does_what_a_host_agent_of_each_protocol_says() {
    for protocol in PROTOCOLS {
        let mut worker = Worker::new(WorkerSettings::default(), 7);
        worker.connected(Nanos::ZERO);
        let (mut effects, mut said) = (Vec::new(), Vec::new());
        let mut streams = None;
        for (name, message) in messages::<HostMessage>(protocol, "host") {
            if let Some(FromHost::SetStreams(set)) = &message.message {
                streams = Some(set.clone());
            }
            let taken = worker.on_host(Nanos::ZERO, message);
            // The last one: the host agent does not want this worker any more.
            if name == "refusal" {
                assert!(matches!(&taken, Err(UnexpectedMessage::Refused(why)) if why == "it was fenced"), "{taken:?}");
            } else {
                assert!(taken.is_ok(), "{name} of protocol {protocol}: {taken:?}");
            }
            effects.extend(worker.take_effects());
            said.extend(worker.outbox().filter_map(|message| message.message));
        }

        let acknowledged = said.iter().filter_map(|message| match message {
            FromWorker::Acknowledgement(acknowledgement) => Some(acknowledgement.epoch),
            _ => None,
        });
        assert_eq!(acknowledged.collect::<Vec<_>>(), [1, 2, 3], "each change, once it is in effect");
        let gave = |message: &FromWorker| matches!(message, FromWorker::LearntModel(LearntModel { lmap: 1, .. }));
        assert!(said.iter().any(gave), "it was asked for what it has learnt: {said:?}");
        let attached = effects.iter().find_map(|effect| match effect {
            Effect::Attach(request) => Some((request.host, request.region, request.size)),
            _ => None,
        });
        assert_eq!(attached, Some((Incarnation(9), RegionId(1), RegionSize::ONE_PAGE)));
        let measured = effects.iter().find_map(|effect| match effect {
            Effect::SetStreams(set) => Some(set.clone()),
            _ => None,
        });
        assert!(measured.is_some() && measured == streams, "{measured:?}");
    }
}

#[test]
fn a_worker_of_this_release_offers_every_protocol_that_was_recorded() {
    let hello = Worker::new(WorkerSettings::default(), 7).hello();

    assert_eq!(PROTOCOLS, hello.oldest_protocol..=hello.protocol);
}
