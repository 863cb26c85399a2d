use demo::autoscale::{Alarm, AutoscaleRecord, Row};
use evaluation::reproduction::{Claim, Verdict};

use super::{OverloadRun, claims};

/// Ten rows a second for 100 s. The load grows from 40 s on, a replica is added at 60 s, the overload is noticed at
/// 80 s.
fn run(score: impl Fn(f64) -> f64, alarms: Vec<Alarm>) -> AutoscaleRecord {
    let row = |number: u32| {
        let at_s = f64::from(number) / 10.0;
        let noise = f64::from(number.wrapping_mul(2_654_435_761) >> 16) / 65_536.0;
        Row { at_s, score: score(at_s), gamma: 2.0, values: vec![noise + score(at_s), 2.0 * noise, 5.0] }
    };
    AutoscaleRecord {
        columns: ["queue.depth", "b", "c"].map(str::to_owned).to_vec(),
        rows: (0..1_000).map(row).collect(),
        grows_from_s: 40.0,
        added_s: vec![60.0],
        overloaded_from_s: Some(80.0),
        alarms,
        ..AutoscaleRecord::default()
    }
}

fn alarm(began_s: f64) -> Alarm {
    Alarm { began_s, ended_s: None, named: vec![(began_s, "queue.depth".to_owned(), 0.9)] }
}

fn as_published(at: f64) -> f64 {
    match at {
        ..40.0 => 0.5,
        ..60.0 => 1.8,
        ..78.0 => 0.7,
        _ => 9.0,
    }
}

fn of(record: AutoscaleRecord) -> Vec<Claim> {
    claims(&[OverloadRun::new(record).unwrap()])
}

fn found<'a>(claims: &'a [Claim], id: &str) -> (&'a str, Verdict) {
    let claim = claims.iter().find(|claim| claim.id == id).unwrap();
    (claim.ours.as_str(), claim.verdict)
}

#[test]
fn a_run_as_published_holds_by_our_own_bar_with_our_detector() {
    let mut run = run(as_published, vec![alarm(78.5)]);
    run.named = vec![(50.0, "http.server.active_requests".to_owned(), 0.8)];

    let claims = of(run);

    let holds = |id, ours| assert_eq!(found(&claims, id), (ours, Verdict::HoldsByOwnBar));
    holds("overload-transient", "0.90 γ");
    holds("overload-quiet", "no alarm");
    holds("overload-falls", "0.90 → 0.35 γ");
    holds("overload-persistent", "4.50 γ, an alarm");
    holds("overload-named-transient", "`http.server.active_requests`");
    holds("overload-named-persistent", "`queue.depth`");
}

#[test]
fn a_spike_over_the_threshold_fails_without_an_alarm_too() {
    let run = run(|at| if (50.0..50.1).contains(&at) { 2.01 } else { as_published(at) }, vec![alarm(78.5)]);

    let claims = of(run);

    assert_eq!(found(&claims, "overload-transient").1, Verdict::Fails);
    assert_eq!(found(&claims, "overload-quiet").1, Verdict::HoldsByOwnBar);
}

#[test]
fn a_score_that_falls_a_little_has_not_fallen_significantly() {
    let claims = of(run(|at| if at < 60.0 { 1.0 } else { 0.9 }, Vec::new()));

    assert_eq!(found(&claims, "overload-falls"), ("0.50 → 0.45 γ", Verdict::Fails));
}

#[test]
fn an_alarm_in_the_transient_overload_and_none_in_the_persistent_one_fail() {
    let mut early = alarm(50.0);
    early.ended_s = Some(55.0);
    let claims = of(run(as_published, vec![early]));

    let failed = ["overload-quiet", "overload-persistent", "overload-named-transient", "overload-named-persistent"];
    assert!(failed.iter().all(|id| found(&claims, id).1 == Verdict::Fails));
}

#[test]
fn one_run_that_misses_the_bar_fails_the_claim_and_no_run_computes_none() {
    let (good, bad) = (run(as_published, vec![alarm(78.5)]), run(|_| 0.5, Vec::new()));
    let runs = [OverloadRun::new(good).unwrap(), OverloadRun::new(bad).unwrap()];

    let both = claims(&runs);

    assert_eq!(found(&both, "overload-transient"), ("0.90 γ; 0.25 γ", Verdict::Fails));
    assert!(claims(&[]).iter().all(|claim| claim.verdict == Verdict::NotComputable));
    assert_eq!(claims(&[]).len(), both.len());
}

#[test]
fn the_papers_form_learns_the_stationary_rows_and_judges_the_rest() {
    let run = OverloadRun::new(run(as_published, Vec::new())).unwrap();

    let first = run.paper.ratios.first();
    assert!(first.is_some_and(|(at, _)| (39.0..41.0).contains(at)), "{first:?}");
    assert!(run.paper.ratios.iter().all(|(_, ratio)| ratio.is_finite()));
    // The third column stands still.
    assert!(run.paper.named.iter().all(|(_, name)| name != "c"));
}
