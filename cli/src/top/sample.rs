//! A status for tests: one service in alarm, one healthy, one learning.

use wire::proto::operators::{GroupShare, LmapStatus, Reason, StatusReply, WorkerStatus};

pub(super) fn lmap(id: u32, service: &str) -> LmapStatus {
    LmapStatus {
        lmap: id,
        service: service.to_owned(),
        state: "armed".to_owned(),
        gamma: 10.0,
        scores: vec![4.0, 5.0],
        samples: 100,
        columns: 42,
        replicas: 1,
        at_unix_ns: 1,
        ..LmapStatus::default()
    }
}

fn reason(column: &str, unit: &str, share: f64, seen: f64, expected: f64) -> Reason {
    let (column, group, unit) = (column.to_owned(), "service".to_owned(), unit.to_owned());
    Reason { column, group, unit, share, seen, expected, since_us: 4_200_000, ..Reason::default() }
}

pub(super) fn reply() -> StatusReply {
    let cart = LmapStatus { reasons: vec![reason("queue.depth", "{job}", 0.4, 4.0, 3.5)], ..lmap(1, "cart") };
    let payment = LmapStatus {
        alarm: true,
        alarms: 2,
        scores: vec![3.0, 9.0, 85.0],
        reasons: vec![
            reason("http.server.errors", "{request}", 0.81, 37.0, 0.125),
            reason("http.server.request.duration.p99", "s", 0.1, 0.25, 0.02),
        ],
        groups: [("service", 0.92), ("cpu", 0.08)]
            .map(|(group, share)| GroupShare { group: group.to_owned(), share })
            .to_vec(),
        ..lmap(2, "payment")
    };
    let store = LmapStatus {
        state: "learning".to_owned(),
        rows: 40,
        rows_needed: 120,
        gamma: f64::NAN,
        scores: vec![],
        ..lmap(3, "store")
    };
    let worker = WorkerStatus {
        worker: 0,
        connected: true,
        transport: "shm".to_owned(),
        ticks: 1000,
        late_ticks: 3,
        cpu_ns: 5_000_000,
        ..WorkerStatus::default()
    };
    StatusReply {
        version: "0.1.0".to_owned(),
        uptime_ms: 65_000,
        workers: vec![worker],
        lmaps: vec![cart, payment, store],
        ..StatusReply::default()
    }
}
