//! Verdicts of an LMAP, for the host agent and its hooks.

use super::state::State;
use crate::id::{Epoch, LmapId, MetricId, ReplicaId};
use crate::metric::{Group, Statistic};
use crate::proto::control as proto;
use crate::registration;
use crate::time::Nanos;

/// Position of a row in an alarm. An alarm is an episode of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Episode {
    /// No alarm is on.
    Quiet,
    /// The first row of an alarm. While one is on: of another one, by what is new.
    Began,
    /// A later row of an alarm.
    On,
    /// The first row after an alarm.
    Ended,
}

impl Episode {
    /// Its name in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Began => "began",
            Self::On => "on",
            Self::Ended => "ended",
        }
    }
}

/// A column that explains the score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reason {
    /// Id of the series.
    pub metric: MetricId,
    /// Which column of the series.
    pub statistic: Statistic,
    /// Its share of the squared score, 0 to 1.
    pub share: f64,
    /// Observed value, in the metric's unit.
    pub seen: f64,
    /// Expected value, in the metric's unit.
    pub expected: f64,
    /// How long it has stood out; zero: since this row, or not by itself.
    pub since: Nanos,
    /// The replica whose value explains the deviation; `None` if none stands out among them.
    pub replica: Option<ReplicaId>,
}

/// Share of the squared score of one group of metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupShare {
    /// The group of metrics.
    pub group: Group,
    /// Share of the squared score, 0 to 1.
    pub share: f64,
}

/// Share of a row's squared score of one metric, over all of its columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricShare {
    /// Id of the metric.
    pub metric: MetricId,
    /// Share of the row's squared score, 0 to 1.
    pub share: f64,
}

/// One row's own score. A smoothed score stays high for some rows after its cause.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowScore {
    /// The score, not smoothed; finite and not negative.
    pub score: f64,
    /// Shares of its square. Each omitted metric makes less than a hundredth of γ², unless [`cut`](Self::cut).
    pub shares: Vec<MetricShare>,
    /// There are more than [`RowScore::MAX`] such metrics.
    pub cut: bool,
}

/// What an LMAP says about one row.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "an unhandled verdict is a missed anomaly"]
pub struct Verdict {
    /// Id of the LMAP.
    pub lmap: LmapId,
    /// The epoch in which the LMAP was last changed: a verdict about an earlier configuration is recognised by it.
    pub epoch: Epoch,
    /// The smoothed score; finite and not negative.
    pub score: f64,
    /// The threshold γ, if the LMAP has one.
    pub gamma: Option<f64>,
    /// State of the LMAP.
    pub state: State,
    /// Position of the row in an alarm.
    pub episode: Episode,
    /// Columns that explain the score, the heaviest first.
    pub reasons: Vec<Reason>,
    /// Shares of the score by group, the largest first; empty unless the score is above γ.
    pub groups: Vec<GroupShare>,
    /// The newest row's own score; `None` unless the score is above γ.
    pub row: Option<RowScore>,
    /// Replicas whose heartbeat or data stopped.
    pub silent: Vec<ReplicaId>,
    /// The row that was judged; `None` unless somebody asked for it, and without a new row.
    pub features: Option<Features>,
}

/// The row of a verdict, one entry per column of its LMAP.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Features {
    /// The values, in units of the columns; NaN is missing.
    pub values: Vec<f64>,
    /// α = x − U Uᵀ x of the standardised row x (μView, Eq. 4.1), in deviations of training; NaN: not judged. Empty
    /// while learning.
    pub residuals: Vec<f32>,
}

impl Features {
    /// Memory of values and residuals, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&self.values[..]) + size_of_val(&self.residuals[..])
    }

    /// Whether the row has `columns` columns, with a residual for each or none.
    #[must_use]
    pub fn has(&self, columns: usize) -> bool {
        self.values.len() == columns && (self.residuals.is_empty() || self.residuals.len() == columns)
    }
}

impl From<&Features> for proto::Features {
    fn from(features: &Features) -> Self {
        Self { values: features.values.clone(), residuals: features.residuals.clone() }
    }
}

impl From<&proto::Features> for Features {
    fn from(message: &proto::Features) -> Self {
        Self { values: message.values.clone(), residuals: message.residuals.clone() }
    }
}

impl From<Statistic> for proto::Statistic {
    fn from(statistic: Statistic) -> Self {
        match statistic {
            Statistic::Value => Self::Value,
            Statistic::Increment => Self::Increment,
            Statistic::Count => Self::Count,
            Statistic::Mean => Self::Mean,
            Statistic::P99 => Self::P99,
        }
    }
}

fn statistic(message: proto::Statistic) -> Option<Statistic> {
    Some(match message {
        proto::Statistic::Unspecified => return None,
        proto::Statistic::Value => Statistic::Value,
        proto::Statistic::Increment => Statistic::Increment,
        proto::Statistic::Count => Statistic::Count,
        proto::Statistic::Mean => Statistic::Mean,
        proto::Statistic::P99 => Statistic::P99,
    })
}

impl From<Episode> for proto::Episode {
    fn from(episode: Episode) -> Self {
        match episode {
            Episode::Quiet => Self::Quiet,
            Episode::Began => Self::Began,
            Episode::On => Self::On,
            Episode::Ended => Self::Ended,
        }
    }
}

impl From<proto::Episode> for Episode {
    fn from(episode: proto::Episode) -> Self {
        match episode {
            proto::Episode::Quiet => Self::Quiet,
            proto::Episode::Began => Self::Began,
            proto::Episode::On => Self::On,
            proto::Episode::Ended => Self::Ended,
        }
    }
}

impl From<&Reason> for proto::Reason {
    fn from(reason: &Reason) -> Self {
        Self {
            metric: reason.metric.0,
            statistic: proto::Statistic::from(reason.statistic).into(),
            share: reason.share,
            seen: reason.seen,
            expected: reason.expected,
            since_us: reason.since.0 / 1000,
            replica: reason.replica.map(|replica| replica.0),
        }
    }
}

impl Reason {
    /// Decodes a reason; `None` if its statistic is of a later release.
    #[must_use]
    pub fn decode(message: &proto::Reason) -> Option<Self> {
        Some(Self {
            metric: MetricId(message.metric),
            statistic: statistic(message.statistic())?,
            share: message.share,
            seen: message.seen,
            expected: message.expected,
            since: Nanos(message.since_us.saturating_mul(1000)),
            replica: message.replica.map(ReplicaId),
        })
    }
}

impl From<&GroupShare> for proto::GroupShare {
    fn from(share: &GroupShare) -> Self {
        Self { group: share.group as u32, share: share.share }
    }
}

impl GroupShare {
    /// Decodes shares, the largest first: no group twice, no share of 0. Values outside 0 to 1 are ignored.
    #[must_use]
    pub fn decode_all(message: &[proto::GroupShare]) -> Vec<Self> {
        let mut out: Vec<Self> = Vec::with_capacity(Group::ALL.len());
        for proto::GroupShare { group, share } in message {
            let group = registration::group(*group);
            if *share > 0.0 && *share <= 1.0 && out.iter().all(|known| known.group != group) {
                let place = out.partition_point(|known| known.share >= *share);
                out.insert(place, Self { group, share: *share });
            }
        }
        out
    }
}

impl From<&RowScore> for proto::RowScore {
    fn from(row: &RowScore) -> Self {
        let share = |of: &MetricShare| proto::MetricShare { metric: of.metric.0, share: of.share as f32 };
        Self { score: row.score, metrics: row.shares.iter().map(share).collect(), cut: row.cut }
    }
}

impl RowScore {
    /// Largest number of metrics with shares.
    pub const MAX: usize = 64;

    /// Decodes a row's score; `None` if it is not finite, or negative. Shares outside 0 to 1 are ignored.
    #[must_use]
    pub fn decode(message: &proto::RowScore) -> Option<Self> {
        let share = |of: &proto::MetricShare| MetricShare { metric: MetricId(of.metric), share: f64::from(of.share) };
        let shares = message.metrics.iter().take(Self::MAX).map(share);
        (message.score.is_finite() && message.score >= 0.0).then(|| Self {
            score: message.score,
            shares: shares.filter(|of| of.share > 0.0 && of.share <= 1.0).collect(),
            cut: message.cut || message.metrics.len() > Self::MAX,
        })
    }
}

impl From<&Verdict> for proto::Verdict {
    fn from(verdict: &Verdict) -> Self {
        Self {
            lmap: verdict.lmap.0,
            epoch: verdict.epoch.0,
            score: verdict.score,
            gamma: verdict.gamma.unwrap_or(0.0),
            state: proto::State::from(verdict.state).into(),
            episode: proto::Episode::from(verdict.episode).into(),
            reasons: verdict.reasons.iter().map(proto::Reason::from).collect(),
            groups: verdict.groups.iter().map(proto::GroupShare::from).collect(),
            row: verdict.row.as_ref().map(proto::RowScore::from),
            silent_replicas: verdict.silent.iter().map(|replica| replica.0).collect(),
            features: verdict.features.as_ref().map(proto::Features::from),
        }
    }
}

impl Verdict {
    /// Decodes a verdict; `None` if its score is not finite, or negative.
    #[must_use]
    pub fn decode(message: &proto::Verdict) -> Option<Self> {
        (message.score.is_finite() && message.score >= 0.0).then(|| Self {
            lmap: LmapId(message.lmap),
            epoch: Epoch(message.epoch),
            score: message.score,
            gamma: (message.gamma.is_finite() && message.gamma > 0.0).then_some(message.gamma),
            state: message.state().into(),
            episode: message.episode().into(),
            reasons: message.reasons.iter().filter_map(Reason::decode).collect(),
            groups: GroupShare::decode_all(&message.groups),
            row: message.row.as_ref().and_then(RowScore::decode),
            silent: message.silent_replicas.iter().copied().map(ReplicaId).collect(),
            features: message.features.as_ref().map(Features::from),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict() -> Verdict {
        let since = Nanos::from_millis(4200);
        let (share, seen, expected) = (0.5, 0.18, 0.02);
        let reason = |metric, statistic, replica: Option<u32>| {
            let (metric, replica) = (MetricId(metric), replica.map(ReplicaId));
            Reason { metric, statistic, share, seen, expected, since, replica }
        };
        Verdict {
            lmap: LmapId(1),
            epoch: Epoch(7),
            score: 12.5,
            gamma: Some(4.0),
            state: State::Armed,
            episode: Episode::Began,
            reasons: vec![reason(3, Statistic::P99, Some(2)), reason(4, Statistic::Value, None)],
            groups: vec![of(Group::Io, 0.75), of(Group::Service, 0.25)],
            row: Some(RowScore {
                score: 20.0,
                shares: vec![MetricShare { metric: MetricId(3), share: 0.75 }],
                cut: true,
            }),
            silent: vec![ReplicaId(2)],
            features: Some(Features { values: vec![1.0, 2.0], residuals: vec![0.5, -0.5] }),
        }
    }

    #[test]
    fn a_rows_shares_are_bounded_and_one_that_is_none_is_left_out() {
        let said = |shares: &[f32]| {
            let metrics = (0..).zip(shares).map(|(metric, share)| proto::MetricShare { metric, share: *share });
            proto::RowScore { score: 3.0, metrics: metrics.collect(), cut: false }
        };

        let row = RowScore::decode(&said(&[0.5, f32::NAN, -0.5, 1.5, 0.25])).unwrap();
        assert_eq!(row.shares.iter().map(|of| (of.metric.0, of.share)).collect::<Vec<_>>(), [(0, 0.5), (4, 0.25)]);
        assert!(!row.cut);
        let many = RowScore::decode(&said(&[0.01; RowScore::MAX + 1])).unwrap();
        assert_eq!((many.shares.len(), many.cut), (RowScore::MAX, true));
        assert_eq!(RowScore::decode(&proto::RowScore { score: f64::NAN, ..said(&[]) }), None);
    }

    fn of(group: Group, share: f64) -> GroupShare {
        GroupShare { group, share }
    }

    #[test]
    fn shares_that_are_none_are_left_out_and_the_largest_comes_first() {
        let said = [(0, 0.1), (1, f64::NAN), (2, -0.5), (3, 0.6), (3, 0.7), (4, 1.5), (77, 0.2)];
        let message = said.map(|(group, share)| proto::GroupShare { group, share });

        assert_eq!(GroupShare::decode_all(&message), [of(Group::Io, 0.6), of(Group::Service, 0.1)]);
    }

    #[test]
    fn a_verdict_survives_encoding() {
        assert_eq!(Verdict::decode(&proto::Verdict::from(&verdict())), Some(verdict()));
    }

    #[test]
    fn a_length_of_time_that_no_clock_shows_is_bounded_and_none_is_zero() {
        let message = proto::Reason::from(&verdict().reasons[0]);

        let ages = [u64::MAX, 0].map(|since_us| Reason::decode(&proto::Reason { since_us, ..message }).unwrap().since);

        assert_eq!(ages, [Nanos(u64::MAX), Nanos::ZERO]);
    }

    #[test]
    fn a_score_that_is_no_score_is_no_verdict() {
        for score in [f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(Verdict::decode(&proto::Verdict { score, ..proto::Verdict::from(&verdict()) }), None);
        }
    }
}
