//! Messages that releases of each protocol between the agents have sent, as bytes: this release knows all of their
//! fields, means the same by them, and its agents answer them. `recorded/PROTOCOL` has a line for each kind of message:
//! its name, and its bytes in hexadecimal digits.
//!
//! A message of a new kind is a new line. A release with a new protocol adds its folder. No line is ever changed, and a
//! folder goes when [`wire::control::OLDEST_PROTOCOL`] has left it behind.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

mod host_agent_answers;
mod nic_agent_answers;
mod requests;

use prost::Message;
use support::recorded::recorded;
use wire::control::{OLDEST_PROTOCOL, PROTOCOL};
use wire::proto::control::host_message::Message as FromHost;
use wire::proto::control::worker_message::Message as FromWorker;
use wire::proto::control::{HostMessage, WorkerMessage};

/// The protocols that this release speaks.
const PROTOCOLS: std::ops::RangeInclusive<u32> = OLDEST_PROTOCOL..=PROTOCOL;

/// The recorded messages to workers or from them, with their names.
fn messages<M: Message + Default>(protocol: u32, file: &str) -> Vec<(String, M)> {
    let decoded = |(name, bytes): (String, Vec<u8>)| (name, M::decode(bytes.as_slice()).unwrap());
    recorded(protocol, file).into_iter().map(decoded).collect()
}

/// A message of a worker, by its name in a file of recorded ones.
const fn name_from_worker(message: &FromWorker) -> &'static str {
    match message {
        FromWorker::Hello(_) => "hello",
        FromWorker::Acknowledgement(_) => "acknowledgement",
        FromWorker::Verdicts(_) => "verdicts",
        FromWorker::Summary(_) => "summary",
        FromWorker::Rows(_) => "rows",
        FromWorker::RegionProblem(_) => "region_problem",
        FromWorker::ConnectQueuePair(_) => "connect_queue_pair",
        FromWorker::LmapProblem(_) => "lmap_problem",
        FromWorker::LearntModel(_) => "learnt_model",
        FromWorker::Leaving(_) => "leaving",
        FromWorker::Retained(_) => "retained",
        FromWorker::StreamStates(_) => "stream_states",
    }
}

/// A message of a host agent, by its name in a file of recorded ones.
const fn name_from_host(message: &FromHost) -> &'static str {
    match message {
        FromHost::Welcome(_) => "welcome",
        FromHost::SetLmap(_) => "set_lmap",
        FromHost::RemoveLmap(_) => "remove_lmap",
        FromHost::SubscribeRows(_) => "subscribe_rows",
        FromHost::FitAgain(_) => "fit_again",
        FromHost::Refusal(_) => "refusal",
        FromHost::QueuePair(_) => "queue_pair",
        FromHost::SetLowestShare(_) => "set_lowest_share",
        FromHost::GiveModel(_) => "give_model",
        FromHost::Goodbye(_) => "goodbye",
        FromHost::SetStreams(_) => "set_streams",
    }
}

#[test]
fn every_kind_of_message_is_known_with_all_of_its_fields() {
    for protocol in PROTOCOLS {
        for (name, bytes) in recorded(protocol, "worker") {
            let message = WorkerMessage::decode(bytes.as_slice()).unwrap();
            assert_eq!(message.message.as_ref().map(name_from_worker), Some(name.as_str()), "protocol {protocol}");
            // A field that is not known, or is of another type, is lost.
            assert_eq!(message.encode_to_vec(), bytes, "{name} of protocol {protocol}");
        }
        for (name, bytes) in recorded(protocol, "host") {
            let message = HostMessage::decode(bytes.as_slice()).unwrap();
            assert_eq!(message.message.as_ref().map(name_from_host), Some(name.as_str()), "protocol {protocol}");
            assert_eq!(message.encode_to_vec(), bytes, "{name} of protocol {protocol}");
        }
    }
}
