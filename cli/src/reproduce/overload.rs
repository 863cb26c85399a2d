//! Transient and persistent overload (Sec. 4.8.3): the scores of a run in which replicas are added. Pure.
//!
//! There are two series of scores: that of the NIC agent during the run, and that of the paper's form with its k, l and
//! q, trained on the stationary rows and applied to the rest afterwards.

use demo::autoscale::AutoscaleRecord;
use evaluation::reproduction::{Claim, sweep};
use lmap::{Column, ColumnKind, Detector, DetectorError, Episode, Settings};

/// The chapter's k, l and q.
const RANK: usize = 12;
const SKETCH_ROWS: usize = 50;
const PERCENTILE: f64 = 99.9;
/// An overload is noticed this many seconds after its beginning, because busy workers are polled.
const BEFORE_S: f64 = 15.0;
/// Scores are averaged over this many seconds before and after a replica is added, without [`SETTLES_S`] after it.
const AROUND_S: f64 = 10.0;
const SETTLES_S: f64 = 5.0;
/// Parts of the names of columns about waiting and work in progress, like the sockets of the chapter.
const WAITING: [&str; 5] = ["queue.", "active_requests", "duration", "tasks", "descriptors"];

/// Scores over time, as multiples of γ, and when alarms were on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Pairs of time in seconds and score / γ.
    pub ratios: Vec<(f64, f64)>,
    /// Begin and end of each alarm, in seconds.
    pub alarms: Vec<(f64, f64)>,
}

impl Timeline {
    fn within(&self, from: f64, to: f64) -> impl Iterator<Item = f64> {
        self.ratios.iter().filter(move |(at, _)| *at >= from && *at < to).map(|(_, ratio)| *ratio)
    }

    fn highest(&self, from: f64, to: f64) -> f64 {
        self.within(from, to).fold(0.0, f64::max)
    }

    fn mean(&self, from: f64, to: f64) -> f64 {
        let (sum, count) = self.within(from, to).fold((0.0, 0), |(sum, count), ratio| (sum + ratio, count + 1));
        sum / f64::from(count.max(1))
    }

    fn alarm_within(&self, from: f64, to: f64) -> bool {
        self.alarms.iter().any(|(began, ended)| *began < to && *ended >= from)
    }
}

/// The scores and alarms of the NIC agent during the run.
#[must_use]
pub fn live(run: &AutoscaleRecord) -> Timeline {
    let end = run.rows.last().map_or(0.0, |row| row.at_s);
    let judged = run.rows.iter().filter(|row| row.gamma > 0.0);
    Timeline {
        ratios: judged.map(|row| (row.at_s, row.score / row.gamma)).collect(),
        alarms: run.alarms.iter().map(|alarm| (alarm.began_s, alarm.ended_s.unwrap_or(end))).collect(),
    }
}

/// The scores and alarms of the paper's form on the same rows.
///
/// # Errors
///
/// [`DetectorError`] if there are no rows to train on.
pub fn papers(run: &AutoscaleRecord) -> Result<Timeline, DetectorError> {
    let still = run.rows.iter().take_while(|row| row.at_s < run.grows_from_s).count();
    let moves = |column: &usize| {
        let mut values = run.rows.iter().take(still).filter_map(|row| row.values.get(*column));
        let first = values.next();
        values.any(|value| Some(value) != first && !value.is_nan())
    };
    let columns: Vec<usize> = (0..run.columns.len()).filter(moves).collect();
    let specs = columns.iter().map(|column| Column::new(ColumnKind::Gauge, *column as u64)).collect();
    let settings = Settings {
        provisional_rows: None,
        warm_up_rows: still.max(8),
        fit_again_rows: Vec::new(),
        ..sweep::settings(RANK, SKETCH_ROWS, PERCENTILE)
    };
    let mut detector = Detector::new(specs, settings, 1)?;
    let mut timeline = Timeline::default();
    for row in &run.rows {
        let values: Vec<f64> =
            columns.iter().map(|column| row.values.get(*column).copied().unwrap_or(f64::NAN)).collect();
        let Ok(verdict) = detector.score(&values) else { continue };
        if let Some(gamma) = verdict.gamma {
            timeline.ratios.push((row.at_s, verdict.score / gamma));
        }
        match verdict.episode {
            Episode::Began => timeline.alarms.push((row.at_s, row.at_s)),
            Episode::On | Episode::Ended => {
                if let Some(alarm) = timeline.alarms.last_mut() {
                    alarm.1 = row.at_s;
                }
            }
            Episode::Quiet => {}
        }
        if let Some(job) = detector.learn() {
            let _ = detector.install(job.run()); // run in place: never stale
        }
    }
    Ok(timeline)
}

/// The claims of the section. Without a run they are not computable.
///
/// # Errors
///
/// [`DetectorError`] if the run has no rows to train on.
pub fn claims(run: Option<&AutoscaleRecord>) -> Result<Vec<Claim>, DetectorError> {
    let timelines = match run {
        None => [None, None],
        Some(run) => [Some(live(run)), Some(papers(run)?)],
    };
    let ids = [
        ["overload-transient", "overload-falls", "overload-persistent"],
        ["overload-transient-paper", "overload-falls-paper", "overload-persistent-paper"],
    ];
    let mut claims = Vec::new();
    for (timeline, ids) in timelines.iter().zip(ids) {
        claims.extend(of_timeline(run.zip(timeline.as_ref()), ids));
    }
    claims.push(named(run));
    Ok(claims)
}

fn of_timeline(found: Option<(&AutoscaleRecord, &Timeline)>, ids: [&'static str; 3]) -> Vec<Claim> {
    let paper = ids[0].ends_with("paper");
    let text = |default: &'static str, papers: &'static str| if paper { papers } else { default };
    let missing = "run without --without-replicas";
    let [transient, falls, persistent] = [
        Claim::without(
            ids[0],
            text(
                "transient overload makes bumps below γ (our default, live)",
                "transient overload makes bumps below γ (the paper's form: k = 12, l = 50, q = 99.9)",
            ),
            "two spikes slightly below the threshold",
            "no alarm before the persistent overload",
            missing,
        ),
        Claim::without(
            ids[1],
            text("the score is lower after each added replica (our default)", "the same (the paper's form)"),
            "significantly lower than before",
            "mean of 10 s after below that of 10 s before, for each",
            missing,
        ),
        Claim::without(
            ids[2],
            text("persistent overload raises the alarm (our default)", "the same (the paper's form)"),
            "alarm",
            "an alarm from 15 s before it is noticed on",
            missing,
        ),
    ];
    let Some((run, timeline)) = found else { return vec![transient, falls, persistent] };
    let end = run.rows.last().map_or(0.0, |row| row.at_s) + 1.0;
    let overloaded = run.overloaded_from_s.map_or(end, |from| from - BEFORE_S);
    let starts = std::iter::once(run.grows_from_s).chain(run.added_s.iter().map(|at| at + SETTLES_S));
    let bumps: Vec<f64> = starts.zip(&run.added_s).map(|(from, to)| timeline.highest(from, *to)).collect();
    let early = timeline.alarm_within(run.grows_from_s, overloaded);
    let around =
        |at: &f64| (timeline.mean(at - AROUND_S, *at), timeline.mean(at + SETTLES_S, at + SETTLES_S + AROUND_S));
    let steps: Vec<(f64, f64)> = run.added_s.iter().map(around).collect();
    let list = |values: &[f64]| values.iter().map(|value| format!("{value:.2}")).collect::<Vec<_>>().join(", ");
    let fell = steps.iter().map(|(before, after)| format!("{before:.2} → {after:.2}")).collect::<Vec<_>>().join(", ");
    let alarmed = run.overloaded_from_s.is_some() && timeline.alarm_within(overloaded, end);
    let highest = timeline.highest(overloaded, end);
    let before = if early { "an alarm" } else { "no alarm" };
    vec![
        transient.found(format!("bumps of {} γ, {before}", list(&bumps)), !early && !bumps.is_empty()),
        falls.found(format!("{fell} γ"), !steps.is_empty() && steps.iter().all(|(before, after)| after < before)),
        persistent.found(format!("{highest:.1} γ, {}", if alarmed { "an alarm" } else { "no alarm" }), alarmed),
    ]
}

/// The claim about the metrics named in the bumps and in the alarm of the persistent overload.
fn named(run: Option<&AutoscaleRecord>) -> Claim {
    let claim = Claim::without(
        "overload-named",
        "the metrics named say what is the matter: open connections in the transient overload, pods that cannot start in the persistent one",
        "container_sockets, then kube_pod_status_phase",
        "the metric named most often in the alarm is one of waiting or of open work; pods are not observed here",
        "run without --without-replicas",
    );
    let Some(run) = run else { return claim };
    let late = run.overloaded_from_s.map_or(f64::MAX, |from| from - BEFORE_S);
    let alarms = run.alarms.iter().flat_map(|alarm| &alarm.named);
    let of = |late_ones: bool| {
        let all = run.named.iter().chain(alarms.clone());
        most_often(
            all.filter(|(at, ..)| *at >= run.grows_from_s && (*at >= late) == late_ones).map(|(_, name, _)| name),
        )
    };
    let (transient, persistent) = (of(false), of(true));
    let holds = persistent.as_ref().is_some_and(|name| WAITING.iter().any(|part| name.contains(part)));
    let text = |name: Option<String>| name.unwrap_or_else(|| "none".to_owned());
    claim.found(format!("{}, then {}", text(transient), text(persistent)), holds)
}

fn most_often<'a>(names: impl Iterator<Item = &'a String>) -> Option<String> {
    let mut counts = std::collections::BTreeMap::new();
    for name in names {
        *counts.entry(name).or_insert(0_u32) += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(name, _)| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use demo::autoscale::{Alarm, Row};
    use evaluation::reproduction::Verdict;

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

    #[test]
    fn a_run_as_published_holds() {
        let claims = claims(Some(&run(as_published, vec![alarm(78.5)]))).unwrap();

        let [transient, falls, persistent] = [&claims[0], &claims[1], &claims[2]];
        assert_eq!((transient.ours.as_str(), transient.verdict), ("bumps of 0.90 γ, no alarm", Verdict::Holds));
        assert_eq!((falls.ours.as_str(), falls.verdict), ("0.90 → 0.35 γ", Verdict::Holds));
        assert_eq!((persistent.ours.as_str(), persistent.verdict), ("4.5 γ, an alarm", Verdict::Holds));
        assert_eq!((claims[6].ours.as_str(), claims[6].verdict), ("none, then queue.depth", Verdict::Holds));
    }

    #[test]
    fn an_alarm_in_the_transient_overload_and_none_in_the_persistent_one_fail() {
        let mut early = alarm(50.0);
        early.ended_s = Some(55.0);
        let found = claims(Some(&run(as_published, vec![early]))).unwrap();

        assert_eq!([found[0].verdict, found[2].verdict], [Verdict::Fails, Verdict::Fails]);
        assert!(claims(None).unwrap().iter().all(|claim| claim.verdict == Verdict::NotComputable));
    }

    #[test]
    fn the_papers_form_learns_the_stationary_rows_and_judges_the_rest() {
        let timeline = papers(&run(as_published, Vec::new())).unwrap();

        assert!(
            timeline.ratios.first().is_some_and(|(at, _)| (39.0..41.0).contains(at)),
            "{:?}",
            timeline.ratios.first()
        );
        assert!(timeline.ratios.iter().all(|(_, ratio)| ratio.is_finite()));
    }
}
