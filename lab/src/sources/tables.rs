//! The page of all runs: a table of faults, one of reasons, false alarms, processor time. Pure.

use core::fmt::Write as _;

use demo::judge::{Outcome, false_alarms_in};
use serde::{Deserialize, Serialize};
use wire::time::Nanos;

use super::judge::{FaultJudgement, RestartNotice, RunJudgement, Way};
use super::schedule::{Fault, Program};

/// `uview watch` is to notice a fault, and to tell a restart, within so long.
const WATCH_WITHIN: Nanos = Nanos::from_secs(5);
/// An endpoint within so many scrapes, and the interval until the NIC agent reads the row.
const SCRAPES: u64 = 3;
/// It is said of how many faults were noticed within so many seconds.
const WITHIN_S: [u64; 3] = [3, 4, 5];

/// Processor time while nothing was wrong, as shares of one core.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Host agent and NIC agent behind `uview watch`.
    pub watch_agents: f64,
    /// All `uview watch`.
    pub watch_commands: f64,
    /// Host agent and NIC agent that scrape.
    pub endpoint_agents: f64,
    /// Prometheus; `None` where it is not installed.
    pub prometheus: Option<f64>,
    /// All exporters, which serve both.
    pub exporters: f64,
}

/// One run of a seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub seed: u64,
    #[serde(flatten)]
    pub judgement: RunJudgement,
    pub cost: Cost,
    /// Processes ready to run besides this run's own use of the machine, as the mean load before it began.
    pub load_before: f64,
}

/// All runs, as they are written down.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub quick: bool,
    pub interval_ms: u32,
    pub cores: usize,
    /// Whether processor time was counted in nanoseconds, and without recorders: the first runs have ticks of 10 ms.
    #[serde(default)]
    pub cost_in_ns: bool,
    pub programs: Vec<Program>,
    /// What was not run, with the reason.
    pub not_run: Vec<String>,
    pub runs: Vec<Run>,
}

impl Report {
    /// [`limit`] with the interval of these runs.
    pub fn limit(&self, way: Way) -> Nanos {
        limit(way, self.interval_ms)
    }

    /// [`limit`](Self::limit) in words.
    fn asked(&self, way: Way) -> String {
        let limit = self.limit(way).as_secs_f64();
        match way {
            Way::Watch => format!("{limit} s"),
            Way::Endpoint => format!("{limit} s: {SCRAPES} scrapes, and the interval until the row is read"),
        }
    }

    fn faults(&self, program: Program, fault: Fault, way: Way) -> Vec<&FaultJudgement> {
        let all = self.runs.iter().flat_map(|run| &run.judgement.faults);
        all.filter(|one| (one.program, one.fault, one.way) == (program, fault, way)).collect()
    }

    /// Whether all bars are met; for each one a line that says so.
    pub fn bars(&self) -> (bool, Vec<String>) {
        let mut met = true;
        let mut lines = Vec::new();
        for way in Way::ALL {
            let (all, more) = self.bars_on_faults(way);
            met &= all;
            lines.extend(more);
            let alarms = self.runs.iter().flat_map(|run| &run.judgement.false_alarms).filter(|one| one.way == way);
            let felt = alarms.clone().filter(|one| one.effect.is_felt()).count();
            let (alarms, minutes) = (alarms.count(), self.service_minutes(way));
            let outcome = false_alarms_in(alarms, minutes);
            met &= outcome != Outcome::Missed;
            let short = if outcome == Outcome::TooShort { "; too short to tell" } else { "" };
            lines.push(format!(
                "{} {}: false alarms: {alarms} in {minutes:.1} service-minutes (asked: at most 1 in 10{short}); before {felt} of them clients felt something",
                outcome.mark(),
                name(way)
            ));
        }
        (met, lines)
    }

    /// Those on faults and restarts by `way`, and what is said of other faults.
    fn bars_on_faults(&self, way: Way) -> (bool, Vec<String>) {
        let limit = self.limit(way);
        let all = self.runs.iter().flat_map(|run| &run.judgement.faults).filter(|one| one.way == way);
        let (restarts, others): (Vec<_>, Vec<_>) = all.partition(|one| one.fault == Fault::Restart);
        let (felt, unfelt): (Vec<_>, Vec<_>) = others.into_iter().partition(|one| one.effect.is_felt());
        let whether_or_not = noticed_within(way, &felt);
        let (felt, unseen): (Vec<_>, Vec<_>) = felt.into_iter().partition(|one| one.shows);
        let right = |of: &[&FaultJudgement]| of.iter().filter(|one| one.is_right(limit)).count();
        let known = felt.iter().copied().filter(|one| one.shows_in_time.is_some());
        let (early, late): (Vec<_>, Vec<_>) = known.partition(|one| one.shows_in_time == Some(true));
        let of_early = format!(
            "  {}: of these, {} of {} that show within {} s, and {} of {} that show only later",
            name(way),
            right(&early),
            early.len(),
            limit.as_secs_f64(),
            right(&late),
            late.len()
        );
        let aside = format!(
            "  {}: of {} more that clients felt, and that show in nothing that it reads, {} were noticed; of {} that \
             no client felt, {}",
            name(way),
            unseen.len(),
            right(&unseen),
            unfelt.len(),
            right(&unfelt)
        );
        let told: Vec<RestartNotice> = restarts.iter().filter_map(|one| one.told).collect();
        let in_time_asked = format!("all within {}", self.asked(way));
        let mut met = true;
        let mut lines = Vec::new();
        for (what, asked, right, all) in [
            ("faults that clients felt and that show: noticed in time", &*in_time_asked, right(&felt), felt.len()),
            ("restarts without an alarm", "all", right(&restarts), restarts.len()),
            ("restarts that were told in time", &*in_time_asked, in_time(&told, limit), told.len()),
        ] {
            met &= right == all;
            let mark = match (all, right == all) {
                (0, _) => '–',
                (_, true) => '✓',
                (_, false) => '✗',
            };
            lines.push(format!("{mark} {}: {what}: {right} of {all} (asked: {asked})", name(way)));
        }
        if early.len() + late.len() > 0 {
            lines.push(of_early);
        }
        lines.extend([whether_or_not, aside]);
        (met, lines)
    }

    fn service_minutes(&self, way: Way) -> f64 {
        self.runs.iter().filter_map(|run| run.judgement.service_minutes.get(&way)).sum()
    }

    /// The tables, as Markdown.
    pub fn tables(&self) -> String {
        let mut text = String::from(
            "| program | fault | clients feel, ms (90th percentile) | `uview watch` | endpoint |\n\
                                     | --- | --- | --- | --- | --- |\n",
        );
        for &program in &self.programs {
            for fault in Fault::ALL {
                let cells = Way::ALL.map(|way| self.cell(&self.faults(program, fault, way), fault, way));
                if cells.iter().any(|cell| !cell.is_empty()) {
                    let effect = self.effect(program, fault);
                    _ = writeln!(text, "| {program} | {fault} | {effect} | {} |", cells.join(" | "));
                }
            }
        }
        text.push_str("\n| fault | what is done |\n| --- | --- |\n");
        for fault in Fault::ALL {
            _ = writeln!(text, "| {fault} | {} |", fault.story());
        }
        text.push('\n');
        for line in self.bars().1 {
            _ = writeln!(text, "- {line}");
        }
        text.push_str("\nFalse alarms:\n\n");
        for run in &self.runs {
            for alarm in &run.judgement.false_alarms {
                let way = name(alarm.way);
                _ = writeln!(
                    text,
                    "- seed {}, {way}, {}, {:.0} s: `{}`; clients {:.2} → {:.2} ms",
                    run.seed, alarm.program, alarm.at_s, alarm.reason, alarm.effect.usual_ms, alarm.effect.during_ms
                );
            }
        }
        text.push('\n');
        text.push_str(&self.costs());
        for line in &self.not_run {
            _ = writeln!(text, "\nNOT RUN: {line}");
        }
        text
    }

    /// What clients felt, the medians of all runs.
    fn effect(&self, program: Program, fault: Fault) -> String {
        let faults = self.faults(program, fault, Way::Watch);
        let median = |of: fn(&FaultJudgement) -> f64| {
            let mut all: Vec<f64> = faults.iter().map(|one| of(one)).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied().unwrap_or_default()
        };
        let felt = faults.iter().filter(|one| one.effect.is_felt()).count();
        format!(
            "{:.2} → {:.2}, {:.0} % failed; felt in {felt} of {}",
            median(|one| one.effect.usual_ms),
            median(|one| one.effect.during_ms),
            100.0 * median(|one| one.effect.failed),
            faults.len()
        )
    }

    fn cell(&self, faults: &[&FaultJudgement], fault: Fault, way: Way) -> String {
        if faults.is_empty() {
            return String::new();
        }
        let limit = self.limit(way);
        let right = faults.iter().filter(|one| one.is_right(limit)).count();
        let range = range(faults.iter().filter_map(|one| one.noticed_s));
        let told: Vec<RestartNotice> = faults.iter().filter_map(|one| one.told).collect();
        let some = |many: usize, what| if many > 0 { format!("; {many} {what}") } else { String::new() };
        let hidden = some(faults.iter().filter(|one| one.hidden).count(), "began in an alarm")
            + &some(faults.iter().filter(|one| !one.shows).count(), "do not show");
        let what = if fault == Fault::Restart { "without an alarm" } else { "in time" };
        let mut cell = format!("{right} of {} {what}{range}{hidden}", faults.len());
        if !told.is_empty() {
            let after = self::range(told.iter().filter_map(|told| told.said_s));
            _ = write!(cell, "; told in time: {} of {}{after}", in_time(&told, limit), told.len());
        }
        cell
    }

    fn costs(&self) -> String {
        let mean = |of: fn(&Cost) -> f64| {
            let all: f64 = self.runs.iter().map(|run| of(&run.cost)).sum();
            let mean = 100.0 * all / self.runs.len().max(1) as f64;
            if mean.is_finite() { format!("{mean:.2} %") } else { "not run".to_owned() }
        };
        let mut text = String::from("| processor time, of one core, mean of the runs | |\n| --- | --- |\n");
        for (what, of) in [
            ("both agents behind `uview watch`", (|cost| cost.watch_agents) as fn(&Cost) -> f64),
            ("the `uview watch` commands", |cost| cost.watch_commands),
            ("**`uview watch`: agents and commands**", |cost| cost.watch_agents + cost.watch_commands),
            ("**endpoints: both agents that scrape exporters**", |cost| cost.endpoint_agents),
            ("Prometheus, scraping the same exporters as often", |cost| cost.prometheus.unwrap_or(f64::NAN)),
            ("the exporters, scraped by both", |cost| cost.exporters),
            ("**Prometheus and the exporters**", |cost| cost.prometheus.unwrap_or(f64::NAN) + cost.exporters),
        ] {
            _ = writeln!(text, "| {what} | {} |", mean(of));
        }
        let counted = if self.cost_in_ns {
            "by the scheduler, in nanoseconds, of threads that lived at the end; those that ended before are missing"
        } else {
            "in ticks of 10 ms, 0.02 % of the time each; recordings of all rows, which only the judge needs, were \
             being made meanwhile"
        };
        _ = writeln!(text, "\nCounted {counted}.");
        text
    }
}

/// The longest time in which a fault has to be noticed, and a restart to be told: 5 s by `uview watch`; by endpoints
/// three scrapes, the last of which begins three intervals after the fault at the latest, and the interval until the
/// NIC agent reads the row. A target that hangs counts as failed after an interval, too.
pub fn limit(way: Way, interval_ms: u32) -> Nanos {
    match way {
        Way::Watch => WATCH_WITHIN,
        Way::Endpoint => Nanos::from_millis(u64::from(interval_ms) * (SCRAPES + 1)),
    }
}

/// How many of `felt`, which are all faults that clients felt, were noticed within so many seconds.
fn noticed_within(way: Way, felt: &[&FaultJudgement]) -> String {
    let within = |limit: Nanos| felt.iter().filter(|one| one.is_noticed(limit)).count();
    let counts = WITHIN_S.map(|seconds| format!("{} within {seconds} s", within(Nanos::from_secs(seconds))));
    let at_all = felt.iter().filter(|one| one.noticed_s.is_some()).count();
    format!(
        "  {}: of all {} faults that clients felt, whether they show or not, noticed: {}, {at_all} at all",
        name(way),
        felt.len(),
        counts.join(", ")
    )
}

fn in_time(told: &[RestartNotice], limit: Nanos) -> usize {
    told.iter().filter(|told| told.said_s.is_some_and(|after| after <= limit.as_secs_f64())).count()
}

/// The shortest and the longest of `times`, in seconds; empty without any.
fn range(times: impl Iterator<Item = f64>) -> String {
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    match (times.first(), times.last()) {
        (Some(first), Some(last)) => format!(", after {first:.1} to {last:.1} s"),
        _ => String::new(),
    }
}

const fn name(way: Way) -> &'static str {
    match way {
        Way::Watch => "`uview watch`",
        Way::Endpoint => "endpoint",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::judge::Effect;

    fn report(noticed_s: Option<f64>) -> Report {
        let fault = FaultJudgement {
            program: Program::Redis,
            fault: Fault::Hang,
            way: Way::Watch,
            noticed_s,
            reason: String::new(),
            hidden: noticed_s.is_none(),
            effect: Effect { usual_ms: 1.0, during_ms: 5.0, failed: 0.0 },
            shows: true,
            shows_in_time: None,
            told: None,
            began: Nanos::ZERO,
            ended: Nanos::ZERO,
        };
        let judgement = RunJudgement {
            faults: vec![fault],
            false_alarms: Vec::new(),
            service_minutes: [(Way::Watch, 3.0), (Way::Endpoint, 3.0)].into(),
        };
        let run = Run { seed: 1, judgement, cost: Cost::default(), load_before: 0.0 };
        let (programs, not_run) = (vec![Program::Redis], vec!["nginx: not installed: wrk".to_owned()]);
        Report { quick: false, interval_ms: 1000, cores: 2, cost_in_ns: true, programs, not_run, runs: vec![run] }
    }

    #[test]
    fn a_fault_that_shows_in_nothing_is_counted_apart() {
        let mut report = report(None);
        assert!(!report.bars().0);
        report.runs[0].judgement.faults[0].shows = false;

        let text = report.tables();

        assert!(report.bars().0, "{text}");
        assert!(text.contains("0 of 1 in time; 1 began in an alarm; 1 do not show"), "{text}");
        assert!(text.contains("of 1 more that clients felt, and that show in nothing that it reads, 0 were"), "{text}");
    }

    #[test]
    fn of_felt_faults_those_that_show_only_later_are_told_and_miss_the_bar_like_any_other() {
        let mut report = report(None);
        assert!(!report.tables().contains("of these"), "not judged in earlier runs");
        report.runs[0].judgement.faults[0].shows_in_time = Some(false);

        let text = report.tables();

        assert!(text.contains("of these, 0 of 0 that show within 5 s, and 0 of 1 that show only later"), "{text}");
        assert!(!report.bars().0);
    }

    #[test]
    fn a_row_says_how_many_were_noticed_in_time_and_when() {
        let text = report(Some(2.5)).tables();

        assert!(text.contains("| redis | SIGSTOP | 1.00 → 5.00, 0 % failed; felt in 1 of 1 | 1 of 1 in time, after 2.5 to 2.5 s |  |\n"), "{text}");
        assert!(
            text.contains(
                "✓ `uview watch`: faults that clients felt and that show: noticed in time: 1 of 1 (asked: all within "
            ),
            "{text}"
        );
        assert!(text.contains("– endpoint: false alarms: 0 in 3.0 service-minutes"), "{text}");
        assert!(text.contains("NOT RUN: nginx: not installed: wrk"), "{text}");
        assert!(report(Some(2.5)).bars().0);
    }

    #[test]
    fn a_fault_that_is_missed_or_late_misses_the_bar() {
        let text = report(None).tables();

        assert!(text.contains("0 of 1 in time; 1 began in an alarm"), "{text}");
        assert!(!report(None).bars().0 && !report(Some(5.1)).bars().0);
    }

    #[test]
    fn an_endpoint_has_three_scrapes_and_the_interval_until_they_are_read() {
        let of = |interval_ms| Report { interval_ms, ..report(None) };

        assert_eq!((of(1000).limit(Way::Watch), of(1000).limit(Way::Endpoint)), (WATCH_WITHIN, Nanos::from_secs(4)));
        assert_eq!(of(200).limit(Way::Endpoint), Nanos::from_millis(800));
        assert!(of(1000).tables().contains("all within 4 s: 3 scrapes, and the interval until the row is read"));
    }

    #[test]
    fn what_was_noticed_within_some_seconds_is_said_of_all_felt_faults_also_of_those_that_do_not_show() {
        let mut report = report(Some(3.5));
        report.runs[0].judgement.faults[0].shows = false;

        let text = report.tables();

        let all = "of all 1 faults that clients felt, whether they show or not, noticed: 0 within 3 s, 1 within 4 s, \
                   1 within 5 s, 1 at all";
        assert!(text.contains(all), "{text}");
    }

    #[test]
    fn a_restart_that_is_not_told_in_time_misses_the_bar_and_one_that_was_not_judged_does_not() {
        let with = |told| {
            let mut report = report(None);
            let fault = &mut report.runs[0].judgement.faults[0];
            (fault.fault, fault.told) = (Fault::Restart, told);
            report
        };

        let unjudged = with(None);
        assert!(unjudged.bars().0, "{}", unjudged.tables());
        assert!(unjudged.tables().contains("– `uview watch`: restarts that were told in time: 0 of 0"));
        let text = with(Some(RestartNotice { said_s: Some(0.7) })).tables();
        assert!(
            text.contains("1 of 1 without an alarm; 1 began in an alarm; told in time: 1 of 1, after 0.7 to"),
            "{text}"
        );
        for late in [Some(5.2), None] {
            assert!(!with(Some(RestartNotice { said_s: late })).bars().0);
        }
    }

    #[test]
    fn runs_that_were_written_before_restarts_were_judged_are_read() {
        let mut json = serde_json::to_value(report(Some(1.5))).unwrap();
        json.as_object_mut().unwrap().remove("cost_in_ns");

        let read: Report = serde_json::from_value(json).unwrap();

        assert_eq!((read.cost_in_ns, read.runs), (false, report(Some(1.5)).runs));
    }
}
