use wire::proto::operators::*;
fn main() {
    const S: u64 = 1_000_000_000;
    const B: u64 = 1_795_761_735;
    let noise = |n: u64| ((n.wrapping_mul(6_364_136_223_846_793_005) >> 40) % 100) as f32 / 400.0;
    let service = |name: &str, rank: u32, after: u64, high: f32, points: &str, metrics: Vec<Reason>| IncidentService {
        service: name.into(), rank, points_at: points.into(), began_unix_ns: (B + after) * S, ended_unix_ns: (B + 97 + after) * S, alarms: 1,
        peak: f64::from(high), peak_unix_ns: (B + 20) * S, metrics, silent_replicas: vec![], usual: 0.31, usual_maximum: 0.62, usual_seconds: 118,
        ratios_from_s: B - 120, ratio_step_s: 1,
        ratios: (0..247).map(|at: u64| if at >= 120 + after && at < 217 + after { high * (0.5 + 2.0 * noise(at + u64::from(rank))) } else { 0.2 + noise(at * 3 + u64::from(rank)) }).collect(),
    };
    let reason = |column: &str, unit: &str, seen, expected, share| Reason { column: column.into(), group: "service".into(), unit: unit.into(), share, seen, expected, since_us: 4_000_000 };
    let span = |id, parent, service: &str, name: &str, side: &str, after: u64, took: u64, failed| IncidentSpan { id, parent, service: service.into(), name: name.into(), side: side.into(), after_ns: after * 1_000_000, took_ns: took * 1_000_000, failed };
    let trace = |id: &str, took: u64| IncidentTrace {
        id: id.repeat(16), began_unix_ns: (B + 21) * S, took_ns: took * 1_000_000, policy: "lmap".into(),
        reason: "payment: score 41.2, threshold 3.3; http.server.request.duration.p99 1.18 s, expected 20 ms".into(),
        spans: vec![span(1, None, "frontend", "POST /checkout", "server", 0, took, true), span(2, Some(1), "frontend", "POST /pay", "client", 12, took - 15, true), span(3, Some(2), "payment", "POST /pay", "server", 14, took - 20, true), span(4, Some(3), "payment", "reserve", "client", took / 2, took / 4, false), span(5, Some(4), "store", "reserve", "server", took / 2 + 2, took / 4 - 5, false), span(6, Some(1), "cart", "GET /cart", "server", 2, 9, false)],
        further_spans: 0,
    };
    let mut incident = Incident {
        id: "20261127-064215-123".into(), node: "node-3".into(), began_unix_ns: B * S + 123_000_000, ended_unix_ns: (B + 100) * S,
        services: vec![
            service("payment", 1, 0, 12.5, "", vec![reason("http.server.request.duration.p99", "s", 1.18, 0.02, 0.61), reason("process.cpu.time{cpu.mode=\"user\"}", "s", 0.93, 0.11, 0.27), reason("queue.depth", "", 1_250.0, 12.0, 0.12)]),
            service("frontend", 2, 3, 6.1, "payment", vec![reason("http.client.request.duration.p99{peer=\"payment\"}", "s", 1.2, 0.03, 0.83)]),
            service("a-service-with-a-very-long-name-in-shop", 3, 3, 2.1, "payment", vec![reason("errors", "{request}", 12.0, 0.1, 0.5)]),
        ],
        further_services: 0,
        changes: vec![
            IncidentChange { at_unix_ns: (B - 95) * S, service: "cart".into(), kind: "replica".into(), text: "cart-3 joins".into(), precedes_alarm: false },
            IncidentChange { at_unix_ns: (B - 12) * S, service: "payment".into(), kind: "restart".into(), text: "payment-1 was started again (process 4711, before 4012)".into(), precedes_alarm: true },
            IncidentChange { at_unix_ns: (B - 12) * S, service: "payment".into(), kind: "version".into(), text: "the file of the program has changed: /usr/bin/payment".into(), precedes_alarm: true },
            IncidentChange { at_unix_ns: (B + 70) * S, service: "payment".into(), kind: "limit".into(), text: "payment-1: memory limit 512 MB, before 256 MB".into(), precedes_alarm: false },
        ],
        traces: vec![trace("ab", 1_240), trace("cd", 870)], kept_traces: 14, cause: String::new(), cut_short: false,
    };
    incidents::words::mark(&mut incident);
    incident.cause = incidents::words::cause(&incident);
    std::fs::write("target/incident.html", incidents::draw::page(&incident)).unwrap();
}
