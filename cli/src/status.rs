//! `uview status`: the host agent, its workers, LMAPs and problems, printed once as text or JSON.

mod view;

use std::fmt::Write as _;
use std::path::PathBuf;

use wire::control::NOISY_THRESHOLD;
use wire::proto::operators::{Detector, LmapMember, LmapStatus, Reason, StatusReply, WorkerStatus};
use wire::quantity::quantity;
use wire::rdma::TRANSPORT;

use crate::agent::{self, AgentArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::figures::{duration_ms, score, threshold};
use crate::lmaps::interval;
use crate::output::{self, json};
use view::View;

/// Arguments of `uview status`.
#[derive(Clone, Debug, clap::Args)]
pub struct StatusArgs {
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Asks the agent and prints its status. Returns [`Exit::Attention`] if there is a problem.
///
/// # Errors
///
/// [`Failure`] if the agent cannot be asked, or stdout cannot be written.
pub fn run(args: StatusArgs, from_environment: Option<PathBuf>) -> Result<Exit, Failure> {
    let target = args.agent.target(from_environment)?;
    let reply = agent::status_once(&target, "ask the host agent for its status")?;
    let problems = problems(&reply);
    let text = if args.json { json(&View::new(&reply, &problems))? } else { text(&reply, &problems) };
    output::print(&text)?;
    Ok(if problems.is_empty() { Exit::Fine } else { Exit::Attention })
}

/// Everything in `reply` that needs attention, one line of text each.
#[must_use]
pub fn problems(reply: &StatusReply) -> Vec<String> {
    let mut problems = reply.problems.clone();
    if !reply.workers.iter().any(|worker| worker.connected) {
        problems.push("no NIC worker is connected, nothing is watched; `uview nic-agent` starts one".to_owned());
    }
    for worker in reply.workers.iter().filter(|worker| !worker.connected) {
        let drained = worker.drained_by.as_ref().map_or_else(String::new, |by| format!(" ({by} has drained it)"));
        problems.push(format!("worker {} is not connected{drained}", worker.worker));
    }
    // Before its first report, after a second, a worker has no ticks.
    let is_blind =
        |worker: &&WorkerStatus| worker.transport == TRANSPORT && worker.ticks > 0 && worker.connections == 0;
    for worker in reply.workers.iter().filter(is_blind) {
        let problem = "is not connected to this host's memory by RDMA, nothing is read; see the logs of both agents";
        problems.push(format!("worker {} {problem}", worker.worker));
    }
    for lmap in &reply.lmaps {
        if !lmap.silent_replicas.is_empty() {
            problems.push(format!("{}: silent replicas: {}", lmap.service, lmap.silent_replicas.join(", ")));
        }
        if lmap.alarm {
            let score = format!("score {}, γ {}", last_score(lmap), threshold(lmap.gamma));
            problems.push(format!("{}: alarm, {score}{}", lmap.service, suspicion(lmap)));
        }
    }
    problems
}

/// The rank of a service in alarm, and the service that its metrics point at, as text.
fn suspicion(lmap: &LmapStatus) -> String {
    match (lmap.rank, lmap.points_at.as_str()) {
        (0, _) => String::new(),
        (1, "") => ", suspected cause".to_owned(),
        (1, peer) => format!(", suspected cause, points at {peer}"),
        (rank, "") => format!(", suspect number {rank}"),
        (rank, peer) => format!(", suspect number {rank}, points at {peer}"),
    }
}

/// The detector settings that an operator has set for an LMAP, as `name value`.
fn settings(detector: &Detector) -> String {
    let Detector { score, rank, sketch_rows, stride, rows_kept, .. } = detector;
    let Detector { percentile, learning_rate, margin, alarms_per_day, .. } = detector;
    let mut all: Vec<String> = Vec::new();
    if !score.is_empty() {
        all.push(format!("score {score}"));
    }
    let counts = [("rank", rank), ("sketch_rows", sketch_rows), ("stride", stride), ("rows_kept", rows_kept)];
    all.extend(counts.iter().filter_map(|(name, value)| value.map(|value| format!("{name} {value}"))));
    let numbers = [
        ("percentile", percentile),
        ("learning_rate", learning_rate),
        ("margin", margin),
        ("alarms_per_day", alarms_per_day),
    ];
    all.extend(numbers.iter().filter_map(|(name, value)| value.map(|value| format!("{name} {value}"))));
    all.join(", ")
}

/// The alarm budget that adjusts γ of an LMAP, to be printed after γ; empty without a budget.
#[must_use]
pub fn budget(lmap: &LmapStatus) -> String {
    if lmap.alarms_per_day > 0.0 {
        return format!(
            ", budget {} alarms a day (γ is {:.2} times its first value)",
            quantity(lmap.alarms_per_day, ""),
            lmap.gamma_factor
        );
    }
    String::new()
}

/// A remark on a threshold that was learnt from unusually noisy rows.
fn noise(lmap: &LmapStatus) -> String {
    format!(
        "{}: threshold learnt in noise: γ {} is {:.1} times the usual score (quiet: below {NOISY_THRESHOLD}); small faults \
         may pass until the LMAP has learnt again, after 600 and 2,000 rows",
        lmap.service,
        threshold(lmap.gamma),
        lmap.threshold_noise
    )
}

/// The services of an LMAP over several, and since when one is missing.
fn members(lmap: &LmapStatus) -> String {
    let member = |member: &LmapMember| match member.missing_for_ms {
        None => member.service.clone(),
        Some(ms) => format!("{} (MISSING for {})", member.service, duration_ms(ms)),
    };
    format!("{}: watches {}", lmap.service, lmap.members.iter().map(member).collect::<Vec<_>>().join(", "))
}

fn last_score(lmap: &LmapStatus) -> String {
    lmap.scores.last().map_or_else(|| "–".to_owned(), |&last| score(f64::from(last)))
}

fn text(reply: &StatusReply, problems: &[String]) -> String {
    let mut text = String::new();
    let up = duration_ms(reply.uptime_ms);
    let _ = writeln!(text, "host agent {}, up {up}, incarnation {}", reply.version, reply.incarnation);
    for worker in &reply.workers {
        let _ = writeln!(text, "{}", worker_line(worker));
    }
    if reply.lmaps.is_empty() {
        let _ = writeln!(text, "\nno service is registered");
    } else {
        let _ = writeln!(
            text,
            "\n{:<20} {:<18} {:>9} {:>9} {:>8} {:>8} {:>7}  top metric",
            "service", "state", "score", "γ", "replicas", "columns", "alarms"
        );
    }
    for lmap in &reply.lmaps {
        let _ = writeln!(text, "{}", lmap_line(lmap));
    }
    // A provisional threshold is of few rows, and soon replaced.
    let learnt = |lmap: &&LmapStatus| lmap.state != "learning" && lmap.threshold_noise > NOISY_THRESHOLD;
    for lmap in reply.lmaps.iter().filter(learnt) {
        let _ = writeln!(text, "\n{}", noise(lmap));
    }
    for lmap in reply.lmaps.iter().filter(|lmap| !lmap.members.is_empty()) {
        let _ = writeln!(text, "\n{}", members(lmap));
    }
    for lmap in reply.lmaps.iter().filter(|lmap| lmap.alarms_per_day > 0.0) {
        let _ = writeln!(text, "\n{}: γ {}{}", lmap.service, threshold(lmap.gamma), budget(lmap));
    }
    for (service, remark) in reply.lmaps.iter().filter_map(|lmap| Some((&lmap.service, interval::remark(lmap)?))) {
        let _ = writeln!(text, "\n{service}: {remark}");
    }
    let own = reply.lmaps.iter().filter_map(|lmap| Some((&lmap.service, lmap.detector.as_ref()?)));
    for (service, detector) in own {
        let _ = writeln!(text, "\n{service}: detector: {}", settings(detector));
    }
    for warning in &reply.warnings {
        let _ = writeln!(text, "\nINSECURE: {warning}");
    }
    for note in &reply.notes {
        let _ = writeln!(text, "\nnote: {note}");
    }
    if !problems.is_empty() {
        let _ = writeln!(text, "\nproblems");
    }
    for problem in problems {
        let _ = writeln!(text, "  {problem}");
    }
    text
}

fn worker_line(worker: &WorkerStatus) -> String {
    let state = if worker.connected { "connected" } else { "NOT connected" };
    let epoch = if worker.epoch == worker.acknowledged_epoch {
        format!("epoch {}", worker.epoch)
    } else {
        format!("epoch {} ({} acknowledged)", worker.epoch, worker.acknowledged_epoch)
    };
    let drained = match (&worker.drained_by, worker.lmaps) {
        (None, _) => String::new(),
        (Some(by), 0) => format!(", DRAINED by {by}"),
        (Some(by), left) => format!(", DRAINED by {by}, {left} LMAPs left"),
    };
    let line = format!(
        "worker {} {state}{drained}, {}, {epoch}, {} ticks, {} late, {} failed regions, {} lost verdicts",
        worker.worker, worker.transport, worker.ticks, worker.late_ticks, worker.failed_regions, worker.lost_verdicts
    );
    if worker.transport != TRANSPORT {
        return line;
    }
    format!(
        "{line}, {} failed batches, {} RDMA connections, {} revoked regions",
        worker.failed_batches, worker.connections, worker.revoked_regions
    )
}

fn lmap_line(lmap: &LmapStatus) -> String {
    let top = lmap.reasons.first().map(reason).unwrap_or_default();
    format!(
        "{:<20} {:<18} {:>9} {:>9} {:>8} {:>8} {:>7}  {top}",
        lmap.service,
        state(lmap),
        last_score(lmap),
        threshold(lmap.gamma),
        lmap.replicas,
        lmap.columns,
        lmap.alarms
    )
    .trim_end()
    .to_owned()
}

/// The state of an LMAP as text. Silence comes before an alarm, and that before all other states.
#[must_use]
pub fn state(lmap: &LmapStatus) -> String {
    if lmap.alarm && lmap.state != "silent" {
        return "ALARM".to_owned();
    }
    match lmap.state.as_str() {
        "learning" => format!("learning {}/{}", lmap.rows, lmap.rows_needed),
        "" => "no report yet".to_owned(),
        state => state.to_owned(),
    }
}

/// A top metric as text: its name, the value seen, the value expected, its share of the score, its replica, and whom
/// it is about.
#[must_use]
pub fn reason(reason: &Reason) -> String {
    let (seen, expected) = (quantity(reason.seen, &reason.unit), quantity(reason.expected, &reason.unit));
    let (share, replica, about) = (100.0 * reason.share, replica_of(reason), about_of(reason));
    format!("{} {seen}, expected {expected} ({share:.0} %){replica}{about}", reason.column)
}

/// The replica that stands out, as the end of a text; empty if none does.
#[must_use]
pub fn replica_of(reason: &Reason) -> String {
    if reason.replica.is_empty() { String::new() } else { format!(", replica {}", reason.replica) }
}

/// Whom the value is about, as the end of a text: a client, a prefix, a port; empty if it is about nobody.
#[must_use]
pub fn about_of(reason: &Reason) -> String {
    if reason.about.is_empty() { String::new() } else { format!(": {}", reason.about) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use wire::proto::operators::{GroupShare, Label};

    use super::*;

    fn reply() -> StatusReply {
        let reason = Reason {
            column: "queue.depth{shard=\"7\"}".to_owned(),
            metric: "queue.depth".to_owned(),
            labels: vec![Label { key: "shard".to_owned(), value: "7".to_owned() }],
            unit: "{job}".to_owned(),
            share: 0.62,
            seen: 1200.0,
            expected: 3.25,
            ..Reason::default()
        };
        let armed = LmapStatus {
            service: "cart".to_owned(),
            state: "armed".to_owned(),
            gamma: 12.5,
            scores: vec![1.0, 80.25],
            reasons: vec![reason],
            groups: vec![GroupShare { group: "cpu".to_owned(), share: 0.75 }],
            replicas: 1,
            ..LmapStatus::default()
        };
        let learning = LmapStatus {
            service: "store".to_owned(),
            state: "learning".to_owned(),
            rows: 40,
            rows_needed: 120,
            gamma: f64::NAN,
            ..LmapStatus::default()
        };
        let worker =
            WorkerStatus { worker: 0, connected: true, transport: "shm".to_owned(), ..WorkerStatus::default() };
        StatusReply {
            version: "0.1.0".to_owned(),
            uptime_ms: 61_000,
            workers: vec![worker],
            lmaps: vec![armed, learning],
            ..StatusReply::default()
        }
    }

    #[test]
    fn a_threshold_that_was_learnt_in_noise_is_named_once_it_is_in_force() {
        let mut reply = reply();
        assert!(!text(&reply, &[]).contains("learnt in noise"));

        (reply.lmaps[0].threshold_noise, reply.lmaps[1].threshold_noise) = (6.25, 9.0);

        let text = text(&reply, &[]);
        assert!(text.contains("cart: threshold learnt in noise: γ 12.5 is 6.2 times the usual score"), "{text}");
        assert!(!text.contains("store: threshold"), "{text}");
    }

    #[test]
    fn an_lmap_over_several_services_is_shown_with_them_and_since_when_one_is_missing() {
        let mut reply = reply();
        let member = |service: &str, missing_for_ms| LmapMember {
            service: service.to_owned(),
            missing_for_ms,
            ..LmapMember::default()
        };
        reply.lmaps[0].members = vec![member("payment", None), member("stock", Some(90_000))];

        let text = text(&reply, &[]);

        assert!(text.contains("\ncart: watches payment, stock (MISSING for 1 min 30 s)\n"), "{text}");
        assert!(!text.contains("store: watches"), "{text}");
    }

    #[test]
    fn a_healthy_node_reports_no_problem() {
        assert_eq!(problems(&reply()), Vec::<String>::new());
    }

    #[test]
    fn a_worker_with_rdma_has_counts_of_connections_and_failed_batches() {
        let mut reply = reply();
        let worker = &mut reply.workers[0];
        (worker.transport, worker.ticks) = (TRANSPORT.to_owned(), 10);
        (worker.failed_batches, worker.connections, worker.revoked_regions) = (7, 2, 1);
        let text = worker_line(worker);
        assert!(text.ends_with("7 failed batches, 2 RDMA connections, 1 revoked regions"), "{text}");
        assert!(!problems(&reply).iter().any(|line| line.contains("by RDMA")));

        reply.workers[0].connections = 0;

        assert!(problems(&reply).iter().any(|line| line.contains("not connected to this host's memory by RDMA")));
    }

    #[test]
    fn a_drained_worker_is_shown_with_who_drains_it_and_what_is_left() {
        let mut reply = reply();
        reply.workers[0].drained_by = Some("user 1000".to_owned());
        reply.workers[0].lmaps = 2;
        assert!(
            text(&reply, &[]).contains("worker 0 connected, DRAINED by user 1000, 2 LMAPs left, "),
            "{}",
            text(&reply, &[])
        );

        (reply.workers[0].lmaps, reply.workers[0].connected) = (0, false);
        assert!(text(&reply, &[]).contains("worker 0 NOT connected, DRAINED by user 1000, "));
        assert!(problems(&reply).contains(&"worker 0 is not connected (user 1000 has drained it)".to_owned()));
        let json = json(&View::new(&reply, &[])).unwrap();
        assert!(json.contains(r#""drained_by": "user 1000""#), "{json}");
    }

    #[test]
    fn alarms_silence_and_missing_workers_are_problems() {
        let mut reply = reply();
        reply.lmaps[0].alarm = true;
        reply.lmaps[1].silent_replicas = vec!["store-1".to_owned()];
        reply.workers[0].connected = false;

        let problems = problems(&reply).join("\n");

        for expected in
            ["no NIC worker", "worker 0 is not", "cart: alarm, score 80.2, γ 12.5", "silent replicas: store-1"]
        {
            assert!(problems.contains(expected), "{expected}: {problems}");
        }
    }

    #[test]
    fn an_alarm_names_the_suspected_cause_and_the_service_it_points_at() {
        let mut reply = reply();
        (reply.lmaps[0].alarm, reply.lmaps[0].rank) = (true, 1);
        (reply.lmaps[1].alarm, reply.lmaps[1].rank, reply.lmaps[1].points_at) = (true, 2, "cart".to_owned());

        let problems = problems(&reply);

        assert!(problems[0].ends_with(", γ 12.5, suspected cause"), "{problems:?}");
        assert!(problems[1].ends_with(", suspect number 2, points at cart"), "{problems:?}");
    }

    #[test]
    fn settings_of_an_operator_are_shown() {
        let mut reply = reply();
        let detector =
            Detector { score: "relative".to_owned(), rank: Some(3), margin: Some(1.2), ..Detector::default() };
        let detector = Detector { alarms_per_day: Some(0.0), rows_kept: Some(500), ..detector };
        reply.lmaps[0].detector = Some(detector);

        let shown = text(&reply, &[]);
        let value: serde_json::Value = serde_json::from_str(&json(&View::new(&reply, &[])).unwrap()).unwrap();

        assert!(
            shown.contains("\ncart: detector: score relative, rank 3, rows_kept 500, margin 1.2, alarms_per_day 0\n"),
            "{shown}"
        );
        assert_eq!(value["lmaps"][0]["detector"]["rank"], 3);
        assert_eq!(value["lmaps"][0]["detector"]["stride"], serde_json::Value::Null);
        assert_eq!(value["lmaps"][0]["detector"]["rows_kept"], 500);
        assert_eq!(value["lmaps"][1]["detector"], serde_json::Value::Null);
    }

    #[test]
    fn an_alarm_budget_is_shown_with_its_effect_on_gamma() {
        let mut reply = reply();
        assert!(!text(&reply, &[]).contains("budget"));

        (reply.lmaps[0].alarms_per_day, reply.lmaps[0].gamma_factor) = (3.0, 1.1);

        let text = text(&reply, &[]);
        assert!(text.contains("cart: γ 12.5, budget 3 alarms a day (γ is 1.10 times its first value)"), "{text}");
    }

    #[test]
    fn the_text_names_state_score_and_top_metric() {
        let text = text(&reply(), &[]);

        assert!(text.contains("up 1 min 1 s"), "{text}");
        assert!(text.contains("learning 40/120"), "{text}");
        assert!(text.contains("queue.depth{shard=\"7\"} 1200, expected 3.25 (62 %)"), "{text}");
    }

    #[test]
    fn what_is_left_open_is_said_in_both_forms_and_is_no_problem() {
        let reply = StatusReply { warnings: vec!["metrics.listen 10.0.0.1:9702 has no TLS".to_owned()], ..reply() };

        let value: serde_json::Value = serde_json::from_str(&json(&View::new(&reply, &[])).unwrap()).unwrap();

        assert!(text(&reply, &[]).contains("\nINSECURE: metrics.listen 10.0.0.1:9702 has no TLS\n"));
        assert_eq!(value["warnings"][0], reply.warnings[0].as_str());
        assert_eq!(problems(&reply), Vec::<String>::new());
    }

    #[test]
    fn what_is_to_be_known_is_said_in_both_forms_and_is_no_problem() {
        let reply = StatusReply { notes: vec!["otlp.watch_only: passed on to nobody".to_owned()], ..reply() };

        let value: serde_json::Value = serde_json::from_str(&json(&View::new(&reply, &[])).unwrap()).unwrap();

        assert!(text(&reply, &[]).contains("\nnote: otlp.watch_only: passed on to nobody\n"));
        assert_eq!(value["notes"][0], reply.notes[0].as_str());
        assert_eq!(problems(&reply), Vec::<String>::new());
    }

    #[test]
    fn nan_is_null_in_json() {
        let reply = reply();

        let value: serde_json::Value = serde_json::from_str(&json(&View::new(&reply, &[])).unwrap()).unwrap();

        assert_eq!(value["lmaps"][1]["gamma"], serde_json::Value::Null);
        let reason = &value["lmaps"][0]["reasons"][0];
        assert_eq!((&reason["column"], &reason["metric"]), (&json!("queue.depth{shard=\"7\"}"), &json!("queue.depth")));
        assert_eq!((&reason["statistic"], &reason["labels"]), (&json!(""), &json!({"shard": "7"})));
        assert_eq!(value["lmaps"][0]["groups"]["cpu"], 0.75);
    }
}
