//! The summary of an LMAP, and scores and reasons as the host agent gets them.

use std::collections::BTreeMap;

use wire::control::{MetricShare, Reason as WireReason, RowScore, State};
use wire::metric::Statistic;
use wire::proto::control as proto;
use wire::time::Nanos;

use super::{LmapRuntime, SharedState};
use crate::detector_slot::{Detectors, Reason};

/// A metric is listed in a row's score from this share of γ² on.
const MIN_SQUARE_SHARE: f64 = 0.01;
/// Columns in a summary: with as many LMAPs as may be looked at, a message stays below its limit.
const MAX_EACH: usize = 1_000;

impl LmapRuntime {
    /// The score of the last row alone, by metric, the largest share first; `of_columns` has what each column adds.
    pub(super) fn row_score(&self, verdict: lmap::Verdict, of_columns: &[(usize, f64)]) -> Option<RowScore> {
        let gamma = verdict.gamma?;
        let infos = self.columns.infos();
        let share = |&(column, share): &(usize, f64)| Some(MetricShare { metric: infos.get(column)?.metric, share });
        let mut shares: Vec<MetricShare> = of_columns.iter().filter_map(share).collect();
        // Columns of a metric are neighbours then, in the order in which they were.
        shares.sort_by_key(|of| of.metric);
        shares.dedup_by(|next, of| {
            let is_same = next.metric == of.metric;
            if is_same {
                of.share += next.share;
            }
            is_same
        });
        let least = MIN_SQUARE_SHARE * (gamma / verdict.raw).powi(2);
        shares.retain(|of| of.share >= least);
        shares.sort_by(|one, other| other.share.total_cmp(&one.share));
        let cut = shares.len() > RowScore::MAX;
        shares.truncate(RowScore::MAX);
        Some(RowScore { score: verdict.raw, shares, cut })
    }

    /// Converts reasons of a row that is `ago` old. A column that has stood out since then has done so for that much
    /// longer.
    pub(super) fn wire_reasons(&self, reasons: &[Reason], ago: Nanos) -> Vec<WireReason> {
        let convert = |reason: &Reason| {
            let info = self.columns.infos().get(reason.column)?;
            let Reason { share, mut seen, mut expected, since_rows, replica, .. } = *reason;
            let since = match u64::from(since_rows) {
                0 => Nanos::ZERO,
                rows => Nanos(self.interval.length().0.saturating_mul(rows)).plus(ago),
            };
            // The reconstruction of a count or a duration may be negative, which is impossible and would confuse
            // readers. A column without a value is reported as if it had the expected one.
            if info.statistic != Statistic::Value {
                seen = seen.max(0.0);
                expected = if expected < 0.0 { 0.0 } else { expected };
            }
            Some(WireReason { metric: info.metric, statistic: info.statistic, share, seen, expected, since, replica })
        };
        reasons.iter().filter_map(convert).collect()
    }

    /// Each column with a value in the row that was scored last, if the host agent wants them.
    fn each_column(&self) -> Vec<proto::Reason> {
        if !self.gives.columns {
            return Vec::new();
        }
        let (mut scratch, mut judged) = (Vec::new(), Vec::new());
        if let Some(detectors) = &self.detectors {
            detectors.explain_each(&mut scratch, &mut judged);
        }
        let known: BTreeMap<usize, Reason> = judged.into_iter().map(|reason| (reason.column, reason)).collect();
        let of = |(column, value): (usize, &f64)| {
            let expected = f64::NAN;
            let unjudged = Reason { column, share: 0.0, seen: *value, expected, since_rows: 0, replica: None };
            known.get(&column).copied().or_else(|| (!value.is_nan()).then_some(unjudged))
        };
        let each: Vec<Reason> = self.columns.row().iter().enumerate().filter_map(of).take(MAX_EACH).collect();
        self.wire_reasons(&each, Nanos::ZERO).iter().map(proto::Reason::from).collect()
    }

    /// The summary since the last one. Starts the next period.
    pub(crate) fn summarise(&mut self, now: Nanos, period: Nanos, shared: &mut SharedState) -> proto::LmapSummary {
        let (rows, needed) = match self.detectors.as_ref().map(Detectors::state) {
            Some(lmap::State::Learning { rows, needed } | lmap::State::Provisional { rows, needed }) => (rows, needed),
            _ => (0, 0),
        };
        let learnt = self.successor.as_ref().map(|successor| match successor.detectors.state() {
            lmap::State::Learning { rows, needed } | lmap::State::Provisional { rows, needed } => {
                (successor.interval, rows, needed)
            }
            lmap::State::Armed | lmap::State::Drifted { .. } => (successor.interval, 0, 0),
        });
        if let Some(detectors) = self.detectors.as_ref().filter(|_| self.digest.reasons().is_empty()) {
            shared.explain(detectors);
            self.digest.over(now, 0.0, &shared.explained, &shared.groups);
        }
        let columns = self.columns.infos().len();
        let never = self.columns.infos().iter().filter(|info| !info.column.watched).count() as u32;
        let silent: Vec<u32> = self.regions.silent().map(|replica| replica.0).collect();
        let state = if self.regions.are_silent() { State::Silent } else { self.state() };
        let discarded = self.regions.discarded;
        let budget = self.detectors.as_ref().and_then(|detectors| detectors.budget(self.interval));
        let summary = proto::LmapSummary {
            lmap: self.id.0,
            epoch: self.epoch.0,
            state: proto::State::from(state).into(),
            rows: rows as u32,
            rows_needed: needed as u32,
            gamma: self.detectors.as_ref().and_then(Detectors::gamma).unwrap_or(0.0),
            scores: self.digest.scores(),
            samples: self.samples,
            discarded_generation: discarded.generation,
            discarded_header: discarded.header,
            discarded_unread: discarded.unread,
            columns: columns as u32,
            unwatched: (self.detectors.as_ref().map_or(columns, |detectors| detectors.unwatched(columns)) as u32)
                .saturating_sub(never),
            alarms_per_day: budget.map_or(0.0, |(alarms, _)| alarms),
            gamma_factor: budget.map_or(0.0, |(_, factor)| factor),
            threshold_noise: self.detectors.as_ref().and_then(Detectors::threshold_noise).unwrap_or(0.0),
            silent_replicas: silent,
            reasons: self
                .wire_reasons(self.digest.reasons(), self.digest.age(now))
                .iter()
                .map(proto::Reason::from)
                .collect(),
            groups: self.digest.groups().iter().map(proto::GroupShare::from).collect(),
            interval_us: self.interval.length().0 / 1000,
            fetch_us: self.fetch_interval().length().0 / 1000,
            learning_us: learnt.map_or(0, |(interval, ..)| interval.length().0 / 1000),
            learning_rows: learnt.map_or(0, |(_, rows, _)| rows as u32),
            learning_needed: learnt.map_or(0, |(.., needed)| needed as u32),
            pending_regions: self.regions.pending() as u32,
            each: self.each_column(),
        };
        self.digest.restart(now, period);
        summary
    }
}
