//! Requests of the operators' API as clients of earlier releases have sent them (`tests/protocol/recorded`): a real
//! agent replies to each of them.

use std::fs;

use prost::Message as _;
use support::recorded::recorded;
use tonic::Code;
use wire::control::{OLDEST_PROTOCOL, PROTOCOL};
use wire::proto::operators as proto;

use crate::operator_calls::Operators;
use crate::{ANY, Agent, addresses};

/// What comes of some calls, in their order: the agent has no service and no worker.
const EXPECTED: [(&str, Code); 10] = [
    ("NewLmap", Code::Ok),
    ("List", Code::Ok),
    ("Status", Code::Ok),
    ("Receipt", Code::Ok),
    ("RegisterHook", Code::Ok),
    ("ResumeHook", Code::NotFound),
    ("WatchRows", Code::Ok),
    ("DrainWorker", Code::NotFound),
    ("UndrainWorker", Code::NotFound),
    ("DeleteLmap", Code::Ok),
];

macro_rules! calls {
    ($($call:ident: $method:ident($request:ident),)*) => {
        /// Sends a request that was recorded. Returns what comes of it; `None` if there is no such call.
        fn reply(operators: &mut Operators, call: &str, bytes: &[u8]) -> Option<Code> {
            let Operators { runtime, client } = operators;
            let outcome = match call {
                $(stringify!($call) => {
                    runtime.block_on(client.$method(proto::$request::decode(bytes).unwrap())).map(drop)
                })*
                _ => return None,
            };
            Some(outcome.map_or_else(|status| status.code(), |()| Code::Ok))
        }
    };
}

calls! {
    NewLmap: new_lmap(NewLmapRequest),
    ConfigLmap: config_lmap(ConfigLmapRequest),
    DeleteLmap: delete_lmap(DeleteLmapRequest),
    AddMetric: add_metric(AddMetricRequest),
    DeleteMetric: delete_metric(DeleteMetricRequest),
    RegisterHook: register_hook(RegisterHookRequest),
    ResumeHook: resume_hook(ResumeHookRequest),
    WatchRows: watch_rows(WatchRowsRequest),
    FitAgain: fit_again(FitAgainRequest),
    DrainWorker: drain_worker(DrainWorkerRequest),
    UndrainWorker: undrain_worker(UndrainWorkerRequest),
    List: list(ListRequest),
    Status: status(StatusRequest),
    Receipt: receipt(ReceiptRequest),
    Paths: paths(PathsRequest),
    Sources: sources(SourcesRequest),
    SetInterval: set_interval(SetIntervalRequest),
    OpenPage: open_page(OpenPageRequest),
    Incidents: incidents(IncidentsRequest),
    Incident: incident(IncidentRequest),
    Trigger: trigger(TriggerRequest),
    SetModel: set_model(SetModelRequest),
}

#[test]
fn an_agent_replies_to_each_request_that_a_client_of_an_earlier_release_has_sent() {
    for protocol in OLDEST_PROTOCOL..=PROTOCOL {
        let directory = tempfile::tempdir().unwrap();
        let runtime_dir = directory.path().join("run");
        let config = directory.path().join("host.yaml");
        fs::write(&config, format!("runtime_dir: {}\nmetrics: {ANY}\n", runtime_dir.display())).unwrap();
        let _host = Agent::start("host-agent", &config);
        let mut operators = Operators::connect(addresses(&runtime_dir)["operators"].as_str().unwrap());
        let requests = recorded(protocol, "operators");

        let mut answered = |(call, bytes): &(String, Vec<u8>)| reply(&mut operators, call, bytes).unwrap();
        let replies: Vec<_> = requests.iter().map(|request| (request.0.as_str(), answered(request))).collect();

        let expected = EXPECTED.map(|(call, _)| call);
        let known: Vec<_> = replies.iter().copied().filter(|(call, _)| expected.contains(call)).collect();
        assert_eq!(known, EXPECTED, "protocol {protocol}");
        // What it does not know, cannot read, or breaks at. Others may be refused: there is no such metric here.
        let broken = [Code::Unimplemented, Code::Internal, Code::Unknown, Code::Unavailable];
        assert!(!replies.iter().any(|(_, code)| broken.contains(code)), "protocol {protocol}: {replies:?}");
    }
}
