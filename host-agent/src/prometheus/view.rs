//! What operators see of a target.

use std::sync::{Mutex, MutexGuard};

use agent_runtime::{Count, lock};
use exposition::{RefusedSamples, Target};
use tokio::sync::Notify;
use wire::proto::operators as proto;
use wire::time::Nanos;

use super::plan::TargetPlan;

/// Why scrapes fail, as labels of a metric.
pub(super) const REASONS: [&str; 9] =
    ["connect", "http", "deadline", "status", "too_long", "encoding", "no_metrics", "format", FOREIGN];
/// Whoever answers may not use the service's name.
pub(super) const FOREIGN: &str = "foreign";

/// A failed scrape: its kind, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScrapeFailure {
    pub(super) reason: &'static str,
    pub(super) text: String,
}

/// The last scrape, and what came of all.
#[derive(Debug, Default)]
pub(super) struct ScrapeState {
    /// While it is down: the last failure, and since when.
    pub(super) down: Option<(ScrapeFailure, Nanos)>,
    pub(super) format: &'static str,
    pub(super) interval: Nanos,
    pub(super) took: Nanos,
    pub(super) bytes: usize,
}

/// Counters of one target since the agent's start.
#[derive(Debug, Default)]
pub(super) struct ScrapeCounts {
    pub(super) scrapes: Count,
    /// In the order of [`REASONS`].
    pub(super) failed: [Count; REASONS.len()],
    pub(super) took_us: Count,
    pub(super) bytes: Count,
    /// In the order of [`RefusedSamples::REASONS`].
    pub(super) refused: [Count; RefusedSamples::REASONS.len()],
    pub(super) late: Count,
    /// Starts of the program behind it, other than the first.
    pub(super) restarts: Count,
}

impl ScrapeCounts {
    /// Adds what `other` has counted.
    pub(super) fn add_all(&self, other: &Self) {
        for (counter, of) in [
            (&self.scrapes, &other.scrapes),
            (&self.took_us, &other.took_us),
            (&self.bytes, &other.bytes),
            (&self.late, &other.late),
            (&self.restarts, &other.restarts),
        ] {
            counter.add(of.get());
        }
        let reasons = self.failed.iter().zip(&other.failed).chain(self.refused.iter().zip(&other.refused));
        reasons.for_each(|(counter, of)| counter.add(of.get()));
    }
}

/// A target as its task and operators share it.
#[derive(Debug)]
pub(crate) struct TargetView {
    service: String,
    url: String,
    target: Mutex<Target>,
    state: Mutex<ScrapeState>,
    end: Notify,
    pub(super) counts: ScrapeCounts,
}

impl TargetView {
    pub(super) fn new(plan: &TargetPlan) -> Self {
        Self {
            service: plan.service.to_string(),
            url: plan.url.clone(),
            target: Mutex::new(Target::new(plan.settings.clone())),
            state: Mutex::new(ScrapeState::default()),
            end: Notify::new(),
            counts: ScrapeCounts::default(),
        }
    }

    /// Tells its task that it is to be scraped no more.
    pub(super) fn end(&self) {
        self.end.notify_one();
    }

    /// Resolves once it is to be scraped no more. Only its task waits for that.
    pub(super) async fn ended(&self) {
        self.end.notified().await;
    }

    /// What is known of its series. Held while a scrape is taken in, for milliseconds.
    pub(super) fn target(&self) -> MutexGuard<'_, Target> {
        lock(&self.target)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ScrapeState> {
        lock(&self.state)
    }

    /// The service's name, for labels.
    pub(super) fn service(&self) -> &str {
        &self.service
    }

    /// The URL as configured.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Failed scrapes, of all reasons.
    fn failed(&self) -> u64 {
        self.counts.failed.iter().map(Count::get).sum()
    }

    /// What is wrong now, for the status.
    pub(crate) fn problem(&self, now: Nanos) -> Option<String> {
        let state = self.state();
        let (failure, since) = state.down.as_ref()?;
        let seconds = now.since(*since).unwrap_or(Nanos::ZERO).0 / 1_000_000_000;
        Some(format!("{}: {} is down since {seconds} s: {}", self.service, self.url, failure.text))
    }

    /// Everything, for `uview sources`. Waits for a scrape that is being taken in.
    pub(crate) fn reply(&self) -> proto::SourceTarget {
        let report = self.target().report();
        let (learned, needed) = report.learned;
        let families = report.families.into_iter().map(|family| proto::SourceFamily {
            name: family.name,
            kind: family.kind.to_owned(),
            exposed: family.exposed as u64,
            watched: family.watched as u64,
            why: family.why,
        });
        let state = self.state();
        let problem = state.down.as_ref().map(|(failure, _)| failure.text.clone()).unwrap_or_default();
        let name = match (&state.down, learned < needed) {
            (Some(_), _) => "down",
            (None, true) => "learning",
            (None, false) => "watching",
        };
        proto::SourceTarget {
            service: self.service.clone(),
            url: self.url.clone(),
            state: name.to_owned(),
            problem,
            format: state.format.to_owned(),
            interval_us: state.interval.0 / 1_000,
            took_us: state.took.0 / 1_000,
            scrapes: self.counts.scrapes.get(),
            failed_scrapes: self.failed(),
            learned,
            needed,
            samples: report.samples as u64,
            bytes: state.bytes as u64,
            refused_samples: report.refused as u64,
            exposed: report.exposed as u64,
            watched: report.watched as u64,
            summed: report.summed as u64,
            columns: report.columns as u64,
            families: families.collect(),
            restarts: self.counts.restarts.get(),
        }
    }
}
