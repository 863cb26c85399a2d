//! Transient and persistent overload (Sec. 4.8.3): the scores of runs in which replicas are added. Pure.
//!
//! There are two series of scores: that of the NIC agent during the run, and that of the paper's form with its k, l and
//! q, trained on the stationary rows and applied to the rest afterwards. Both are judged by γ itself, as published;
//! what our episode rule makes of them are rows of their own.

pub mod timeline;

use demo::autoscale::AutoscaleRecord;
use evaluation::reproduction::{Claim, Verdict};
use lmap::DetectorError;

use self::timeline::{MIN_SPIKE, Timeline};

/// An overload is noticed this many seconds after its beginning, because busy workers are polled.
const BEFORE_S: f64 = 15.0;
/// Scores are averaged over this many seconds before and after a replica is added, without [`SETTLES_S`] after it.
const AROUND_S: f64 = 10.0;
const SETTLES_S: f64 = 5.0;
/// "Significantly lower" is at most this share of the score before.
const MAX_SHARE: f64 = 0.75;
/// Parts of the names of columns about open connections. A connection of the shop carries one request at a time.
const CONNECTIONS: [&str; 2] = ["http.server.active_requests", "open_file_descriptor"];
/// Parts of the names of columns about work that waits or is open.
const WAITING: [&str; 2] = ["queue.", "http.server.active_requests"];

/// The scores that a claim is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scores {
    /// Of our default detector, by the NIC agent during the run.
    Live,
    /// Of the paper's form.
    Paper,
}

/// One run with both series of scores.
#[derive(Debug)]
pub struct OverloadRun {
    /// The data of the run.
    pub record: AutoscaleRecord,
    /// Scores and alarms of the NIC agent.
    pub live: Timeline,
    /// Scores of the paper's form, and alarms that our episode rule would raise.
    pub paper: Timeline,
}

impl OverloadRun {
    /// Scores the rows of `record` by the paper's form.
    ///
    /// # Errors
    ///
    /// [`DetectorError`] if the run has no rows to train on.
    pub fn new(record: AutoscaleRecord) -> Result<Self, DetectorError> {
        let (live, paper) = (timeline::live(&record), timeline::paper(&record)?);
        Ok(Self { record, live, paper })
    }

    fn scores(&self, which: Scores) -> &Timeline {
        match which {
            Scores::Live => &self.live,
            Scores::Paper => &self.paper,
        }
    }

    fn end_s(&self) -> f64 {
        self.record.rows.last().map_or(0.0, |row| row.at_s) + 1.0
    }

    /// Begin of the persistent overload; the end of the run if there is none.
    fn overloaded_s(&self) -> f64 {
        self.record.overloaded_from_s.map_or(self.end_s(), |from| from - BEFORE_S)
    }

    /// Begin and end of each transient overload, which the next replica ends.
    fn transients(&self) -> impl Iterator<Item = (f64, f64)> {
        let added = &self.record.added_s;
        let starts = std::iter::once(self.record.grows_from_s).chain(added.iter().map(|at| at + SETTLES_S));
        starts.zip(added.iter().copied())
    }

    /// The highest score of each transient overload: at least half of γ, and below it.
    fn spikes(&self, which: Scores) -> Figure {
        let spikes: Vec<f64> = self.transients().map(|(from, to)| self.scores(which).highest(from, to)).collect();
        let text = spikes.iter().map(|spike| format!("{spike:.2}")).collect::<Vec<_>>().join(", ");
        let below = spikes.iter().all(|spike| (MIN_SPIKE..1.0).contains(spike));
        (format!("{text} γ"), below && !spikes.is_empty())
    }

    /// No alarm by our episode rule before the persistent overload.
    fn quiet(&self, which: Scores) -> Figure {
        let early = self.scores(which).alarm_within(self.record.grows_from_s, self.overloaded_s());
        (if early { "an alarm" } else { "no alarm" }.to_owned(), !early)
    }

    /// The mean score before and after each added replica.
    fn falls(&self, which: Scores) -> Figure {
        let scores = self.scores(which);
        let around = |at: &f64| {
            let after = scores.mean(at + SETTLES_S, at + SETTLES_S + AROUND_S);
            (scores.mean(at - AROUND_S, *at), after)
        };
        let steps: Vec<(f64, f64)> = self.record.added_s.iter().map(around).collect();
        let text = steps.iter().map(|(before, after)| format!("{before:.2} → {after:.2}")).collect::<Vec<_>>();
        let fell = steps.iter().all(|(before, after)| *after <= MAX_SHARE * before);
        (format!("{} γ", text.join(", ")), fell && !steps.is_empty())
    }

    /// The alarm of the persistent overload: by γ in the paper's form, by our episode rule in our default.
    fn alarm(&self, which: Scores) -> Figure {
        let (from, to, scores) = (self.overloaded_s(), self.end_s(), self.scores(which));
        let highest = scores.highest(from, to);
        let alarmed = match which {
            Scores::Live => scores.alarm_within(from, to),
            Scores::Paper => highest >= 1.0,
        };
        let text = format!("{highest:.2} γ, {}", if alarmed { "an alarm" } else { "no alarm" });
        (text, alarmed && self.record.overloaded_from_s.is_some())
    }

    /// Whether the metric named most often before the first replica is added is one of open connections.
    fn named_in_transient(&self, which: Scores) -> Figure {
        let to = self.record.added_s.first().copied().unwrap_or_else(|| self.overloaded_s());
        named(self.scores(which), (self.record.grows_from_s, to), &CONNECTIONS)
    }

    /// Whether the metric named most often in the persistent overload is one of waiting or open work.
    fn named_in_persistent(&self, which: Scores) -> Figure {
        named(self.scores(which), (self.overloaded_s(), self.end_s()), &WAITING)
    }
}

fn named(scores: &Timeline, (from, to): (f64, f64), parts: &[&str]) -> Figure {
    match scores.most_named(from, to) {
        None => ("none".to_owned(), false),
        Some(name) => (format!("`{name}`"), parts.iter().any(|part| name.contains(part))),
    }
}

/// Our figure of one run in words, and whether it meets the bar.
type Figure = (String, bool);

/// A claim about both series of scores.
struct OverloadClaim {
    /// Ids of our default's scores and of those of the paper's form.
    ids: [&'static str; 2],
    text: &'static str,
    published: &'static str,
    tolerance: &'static str,
    figure: fn(&OverloadRun, Scores) -> Figure,
    /// Whether the bar is ours for the paper's form, too. For our default it always is: that detector is not the
    /// paper's.
    own_bar: bool,
}

const CLAIMS: [OverloadClaim; 6] = [
    OverloadClaim {
        ids: ["overload-transient", "overload-transient-paper"],
        text: "the transient overload makes spikes below γ",
        published: "two spikes slightly below the threshold",
        tolerance: "highest score before each replica at least 0.5 γ and below γ",
        figure: OverloadRun::spikes,
        own_bar: false,
    },
    OverloadClaim {
        ids: ["overload-quiet", "overload-quiet-paper"],
        text: "the transient overload raises no alarm by our episode rule, which the publication does not have: 2 of 3 rows over γ, with \
               scores capped at 2 γ",
        published: "no alarm",
        tolerance: "none up to 15 s before the persistent overload is noticed",
        figure: OverloadRun::quiet,
        own_bar: true,
    },
    OverloadClaim {
        ids: ["overload-falls", "overload-falls-paper"],
        text: "the score is lower after each added replica",
        published: "significantly lower than before; no figure",
        tolerance: "mean of 10 s after at most 0.75 of that of 10 s before, for each",
        figure: OverloadRun::falls,
        own_bar: true,
    },
    OverloadClaim {
        ids: ["overload-persistent", "overload-persistent-paper"],
        text: "the persistent overload raises the alarm",
        published: "alarm",
        tolerance: "from 15 s before it is noticed on: a score from γ on (paper's form), an alarm by our episode rule (default)",
        figure: OverloadRun::alarm,
        own_bar: false,
    },
    OverloadClaim {
        ids: ["overload-named-transient", "overload-named-transient-paper"],
        text: "before the first added replica, the metrics named are about the number of open connections",
        published: "`container_sockets`",
        tolerance: "named most often: open requests or file descriptors",
        figure: OverloadRun::named_in_transient,
        own_bar: false,
    },
    OverloadClaim {
        ids: ["overload-named-persistent", "overload-named-persistent-paper"],
        text: "in the persistent overload, the metrics named say what is the matter: in the publication, pods that cannot start, \
               which are not observed here",
        published: "`kube_pod_status_phase`",
        tolerance: "named most often: queued or open requests",
        figure: OverloadRun::named_in_persistent,
        own_bar: true,
    },
];

/// The claims of the section: of our default's scores, then of those of the paper's form. A claim holds if its bar is
/// met in every run; without a run it is not computable.
#[must_use]
pub fn claims(runs: &[OverloadRun]) -> Vec<Claim> {
    let of = |which: Scores| CLAIMS.iter().map(move |claim| claim.judged(runs, which));
    of(Scores::Live).chain(of(Scores::Paper)).collect()
}

impl OverloadClaim {
    fn judged(&self, runs: &[OverloadRun], which: Scores) -> Claim {
        let Self { ids: [live, paper], text, published, tolerance, .. } = *self;
        let id = if which == Scores::Paper { paper } else { live };
        let claim = Claim::without(id, text, published, tolerance, "a run without --without-replicas");
        let figures: Vec<Figure> = runs.iter().map(|run| (self.figure)(run, which)).collect();
        if figures.is_empty() {
            return claim;
        }
        let met = figures.iter().all(|(_, met)| *met);
        let own_bar = self.own_bar || which == Scores::Live;
        let verdict = if own_bar { Verdict::by_own_bar(met) } else { Verdict::on_stand_in(met) };
        claim.with(figures.into_iter().map(|(text, _)| text).collect::<Vec<_>>().join("; "), verdict)
    }
}

#[cfg(test)]
mod tests;
