//! Requests of the operators' API, as clients of releases of each protocol have sent them.

use std::collections::BTreeSet;

use host_agent::operators_server::translate;
use prost::Message;
use wire::proto::operators as proto;

use crate::{PROTOCOLS, recorded};

/// Each call of the API, with its request.
macro_rules! calls {
    ($($call:ident: $request:ident,)*) => {
        const CALLS: &[&str] = &[$(stringify!($call)),*];

        /// The request of a call, read and written again.
        fn written_again(call: &str, bytes: &[u8]) -> Option<Vec<u8>> {
            match call {
                $(stringify!($call) => Some(proto::$request::decode(bytes).ok()?.encode_to_vec()),)*
                _ => None,
            }
        }
    };
}

calls! {
    NewLmap: NewLmapRequest,
    ConfigLmap: ConfigLmapRequest,
    DeleteLmap: DeleteLmapRequest,
    AddMetric: AddMetricRequest,
    DeleteMetric: DeleteMetricRequest,
    RegisterHook: RegisterHookRequest,
    ResumeHook: ResumeHookRequest,
    WatchRows: WatchRowsRequest,
    FitAgain: FitAgainRequest,
    DrainWorker: DrainWorkerRequest,
    UndrainWorker: UndrainWorkerRequest,
    List: ListRequest,
    Status: StatusRequest,
    Receipt: ReceiptRequest,
    Paths: PathsRequest,
    Sources: SourcesRequest,
    SetInterval: SetIntervalRequest,
    OpenPage: OpenPageRequest,
    Incidents: IncidentsRequest,
    Incident: IncidentRequest,
    Trigger: TriggerRequest,
    SetModel: SetModelRequest,
}

#[test]
fn every_call_has_a_recorded_request_with_fields_that_are_known() {
    let api = include_str!("../../wire/proto/operators.proto");
    let declared = api.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split_once('('));
    let declared: BTreeSet<_> = declared.map(|(call, _)| call).collect();
    assert_eq!(declared, CALLS.iter().copied().collect::<BTreeSet<_>>());

    for protocol in PROTOCOLS {
        let recorded = recorded(protocol, "operators");
        for (call, bytes) in &recorded {
            assert_eq!(written_again(call, bytes).as_ref(), Some(bytes), "{call} of protocol {protocol}");
        }
        let known: BTreeSet<_> = recorded.iter().map(|(call, _)| call.as_str()).collect();
        assert_eq!(known, declared, "a call of a later release is added to the requests of its protocol");
    }
}

#[test]
fn requests_mean_what_they_meant() {
    for protocol in PROTOCOLS {
        let recorded = recorded(protocol, "operators");
        let bytes = |call: &str| recorded.iter().find(|(name, _)| name == call).map(|(_, bytes)| bytes.as_slice());

        let lmap = proto::NewLmapRequest::decode(bytes("NewLmap").unwrap()).unwrap();
        let detector = lmap.detector.unwrap();
        assert_eq!((lmap.service.as_str(), lmap.interval_us, detector.score.as_str()), ("mail", 200_000, "relative"));
        assert_eq!((detector.rank, detector.sketch_rows, detector.stride), (Some(3), Some(40), Some(2)));
        assert_eq!((detector.percentile, detector.learning_rate), (Some(99.5), Some(0.25)));
        assert_eq!((detector.margin, detector.alarms_per_day, detector.rows_kept), (Some(1.5), Some(2.0), Some(500)));

        let config = proto::ConfigLmapRequest::decode(bytes("ConfigLmap").unwrap()).unwrap();
        for metric in &config.metrics {
            assert!(translate::choice(metric).is_ok(), "{metric:?}");
        }
        let hook = proto::RegisterHookRequest::decode(bytes("RegisterHook").unwrap()).unwrap();
        assert_eq!(translate::filter(&hook).unwrap().min_share, 0.5);
        assert_eq!((hook.lmaps.as_slice(), hook.queue, hook.features, hook.follow), (&[1][..], 64, true, true));
        let interval = proto::SetIntervalRequest::decode(bytes("SetInterval").unwrap()).unwrap();
        assert_eq!((interval.interval_us, interval.fastest_us), (Some(400_000), Some(0)));
        let drain = proto::DrainWorkerRequest::decode(bytes("DrainWorker").unwrap()).unwrap();
        assert_eq!((drain.worker, drain.force), (5, true));
        let trigger = proto::TriggerRequest::decode(bytes("Trigger").unwrap()).unwrap();
        assert_eq!((trigger.service.as_str(), trigger.operation.as_str()), ("checkout", "POST /pay"));
        assert_eq!((trigger.for_ms, trigger.reason.as_str()), (45_000, "it is slow"));
        let model = proto::SetModelRequest::decode(bytes("SetModel").unwrap()).unwrap();
        assert_eq!((model.lmap, model.model.as_slice()), (1, &[7, 8, 9][..]));
    }
}
