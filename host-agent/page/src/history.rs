//! Scores of each service at falling resolution, and its episodes, within a budget of bytes.
//!
//! A service has three resolutions, [`STEPS`]: buckets of a second for five minutes, of ten seconds for an hour, of two
//! minutes for a day. Each keeps the largest score of its time, so that no peak is lost. If there are so many services
//! that the budget is short, all reach back equally less. Of scores above γ the columns that made them are kept, too,
//! for ten minutes by the second, or less if the budget is short. An episode names the columns that made most of its
//! rows above γ, of each summary the highest one.
//!
//! Its seconds are steady ones ([`crate::dates`]): nobody sets their clock, and all services share it.
//!
//! *Memory*: 16 bytes a bucket, [`SERVICE_BYTES`] a service beside them, episodes, and columns above γ, each of which
//! take an eighth of the budget at most. [`History::bytes`] counts it.

mod heat;

use std::collections::{BTreeMap, VecDeque};

use wire::proto::operators::Reason;
use wire::quantity::quantity;

use self::heat::{Heat, REACH};
pub use self::heat::{HeatCell, HeatRow};
use crate::alarm_metrics::AlarmMetrics;

/// Seconds of a bucket, and buckets at most, of each resolution.
pub const STEPS: [(u32, usize); 3] = [(1, 300), (10, 360), (120, 720)];

/// Bytes of a service beside its buckets and episodes: its entry, its name.
pub const SERVICE_BYTES: usize = 512;
/// Episodes of one service: the newest.
pub const MAX_EPISODES: usize = 32;
/// Share of the budget that episodes may take: an eighth.
const EPISODES_SHARE: usize = 8;
/// Metrics that an episode names.
const EPISODE_METRICS: usize = 5;
/// Bytes of the columns of an episode that goes on: half of what episodes may take, for as many services as there is
/// room for, but not less and not more.
const FOLLOWED: (usize, usize) = (2 << 10, 16 << 10);
/// Share of the budget that columns above γ may take: an eighth.
const HEAT_SHARE: usize = 8;
/// Part of what they reach back that is forgotten at once, where that is too much: each time, all are looked through.
const HEAT_STEP: u32 = 8;
/// Services that are not there any more are forgotten after so many seconds: a day.
const FORGET_AFTER: u32 = 86_400;
/// Seconds between two looks for such services, unless there is no room.
const SWEEP_EVERY: u32 = 600;
/// Seconds after which a service gives way to a newcomer, where there are as many as there can be.
const GONE_AFTER: u32 = 60;
/// Services at most, those that are gone included.
const MAX_SERVICES: usize = 8_192;

/// A largest score in some seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// Its first second, a steady one.
    pub second: u32,
    /// The largest score in it.
    pub highest: f32,
    /// The last threshold γ in it; NaN while there was none.
    pub gamma: f32,
    /// Whether there was an alarm in it.
    pub alarm: Alarm,
}

/// Whether a service is in alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// It is in none.
    Quiet,
    /// It is in alarm.
    On,
}

/// A metric that explains a score, in words.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Metric {
    /// Title of the column.
    pub title: String,
    /// Value seen, with its unit.
    pub seen: String,
    /// Value expected, with its unit.
    pub expected: String,
    /// Share of the squared score, 0 to 1.
    pub share: f64,
}

impl From<&Reason> for Metric {
    fn from(reason: &Reason) -> Self {
        Self {
            title: reason.column.clone(),
            seen: quantity(reason.seen, &reason.unit),
            expected: quantity(reason.expected, &reason.unit),
            share: reason.share,
        }
    }
}

/// An alarm from its begin to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Episode {
    /// Steady second in which it began.
    pub from: u32,
    /// Second in which it ended; `None`: it goes on.
    pub to: Option<u32>,
    /// The largest score in it.
    pub peak: f32,
    /// Rank in its incident, the best; 0: none.
    pub rank: u32,
    /// The service at which it pointed; empty: none.
    pub points_at: String,
    /// Columns that made it, while it goes on.
    made_by: AlarmMetrics,
    /// The metrics that it names, once it is over.
    metrics: Vec<Metric>,
}

impl Episode {
    /// Metrics that made most of it by now, at most five, the largest share of all its rows first. Each is as it was
    /// in the row of which it made most.
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        if self.to.is_some() { self.metrics.clone() } else { named(&self.made_by) }
    }

    /// Takes a summary: its largest score, and the columns that made it, if that is above γ. What is followed may take
    /// `most` bytes.
    fn add(&mut self, observed: &Observation<'_>, most: usize) {
        if self.peak.is_nan() || observed.highest > self.peak {
            self.peak = observed.highest;
        }
        if let Some(ratio) = observed.above() {
            self.made_by.add(ratio, observed.reasons, most);
        }
    }

    fn end(&mut self, second: u32) {
        self.to = Some(second.max(self.from));
        self.metrics = named(&core::mem::take(&mut self.made_by));
    }

    /// Bytes of memory, texts included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let metric =
            |metric: &Metric| size_of::<Metric>() + metric.title.len() + metric.seen.len() + metric.expected.len();
        let metrics = self.metrics.iter().map(metric).sum::<usize>() + self.made_by.bytes();
        size_of::<Self>() + self.points_at.len() + metrics
    }
}

fn named(made_by: &AlarmMetrics) -> Vec<Metric> {
    made_by.top(EPISODE_METRICS).iter().map(Metric::from).collect()
}

/// What a service said for one summary.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation<'a> {
    /// Name of the service.
    pub service: &'a str,
    /// Steady second in which the summary was seen.
    pub second: u32,
    /// The largest score of the summary; NaN: there was none.
    pub highest: f32,
    /// The threshold γ; NaN: there is none.
    pub gamma: f32,
    /// Whether it is in alarm.
    pub alarm: Alarm,
    /// Rank in its incident; 0: none.
    pub rank: u32,
    /// The service at which it points; empty: none.
    pub points_at: &'a str,
    /// Metrics that explain the largest score, the largest share first. If that is below γ, they may be of another row.
    pub reasons: &'a [Reason],
}

impl Observation<'_> {
    /// The largest score as a multiple of γ, if it is not below γ.
    fn above(&self) -> Option<f64> {
        let ratio = f64::from(self.highest) / f64::from(self.gamma);
        (self.gamma > 0.0 && ratio >= 1.0).then_some(ratio)
    }
}

/// Buckets of one resolution, oldest first.
#[derive(Clone, Debug, Default)]
struct Track(VecDeque<Bucket>);

impl Track {
    /// Adds what happened in `bucket.second` to the bucket of `step` seconds that has it. What is older than the newest
    /// bucket is added to that one; steady seconds are not.
    fn add(&mut self, bucket: Bucket, step: u32, most: usize) {
        let second = bucket.second - bucket.second % step;
        match self.0.back_mut() {
            Some(last) if last.second >= second => {
                last.highest = last.highest.max(bucket.highest);
                last.gamma = if bucket.gamma.is_nan() { last.gamma } else { bucket.gamma };
                last.alarm = last.alarm.max(bucket.alarm);
            }
            _ => self.0.push_back(Bucket { second, ..bucket }),
        }
        self.cut(most);
    }

    fn cut(&mut self, most: usize) {
        self.0.drain(..self.0.len().saturating_sub(most));
    }
}

/// What is remembered of one service.
#[derive(Clone, Debug, Default)]
struct Record {
    tracks: [Track; STEPS.len()],
    episodes: VecDeque<Episode>,
    heat: Heat,
    last: u32,
}

/// What is remembered of all services.
#[derive(Clone, Debug)]
pub struct History {
    budget: usize,
    services: BTreeMap<Box<str>, Record>,
    /// Services among which the budget is shared: as many as there are, or a few more.
    room: usize,
    episode_bytes: usize,
    heat_bytes: usize,
    /// Second of the last sweep.
    swept: u32,
    /// Until this second no newcomer is admitted.
    full_until: u32,
}

impl History {
    /// An empty history of at most `budget` bytes. Below [`SERVICE_BYTES`] for each service nothing is remembered.
    #[must_use]
    pub const fn new(budget: usize) -> Self {
        Self { budget, services: BTreeMap::new(), room: 0, episode_bytes: 0, heat_bytes: 0, swept: 0, full_until: 0 }
    }

    /// Buckets of each resolution that each of so many services as there is room for may have.
    fn depth(&self) -> [usize; STEPS.len()] {
        let whole: usize = STEPS.iter().map(|(_, most)| most).sum();
        let scores = self.budget - self.budget / EPISODES_SHARE - self.budget / HEAT_SHARE;
        let share = scores / self.room.max(1);
        let buckets = share.saturating_sub(SERVICE_BYTES) / size_of::<Bucket>();
        STEPS.map(|(_, most)| most.min(most * buckets / whole))
    }

    /// Bytes of the columns of each episode that goes on.
    fn followed(&self) -> usize {
        let (least, most) = FOLLOWED;
        (self.budget / EPISODES_SHARE / 2 / self.room.max(1)).clamp(least, most)
    }

    /// Remembers what was `observed`.
    pub fn record(&mut self, observed: &Observation<'_>) {
        if !self.services.contains_key(observed.service) {
            self.admit(observed);
        }
        let (depth, followed) = (self.depth(), self.followed());
        let Some(record) = self.services.get_mut(observed.service) else { return };
        record.last = record.last.max(observed.second);
        let &Observation { second, highest, gamma, alarm, .. } = observed;
        if !highest.is_nan() {
            for ((track, (step, _)), most) in record.tracks.iter_mut().zip(STEPS).zip(depth) {
                track.add(Bucket { second, highest, gamma, alarm }, step, most);
            }
        }
        let before = record.heat.bytes();
        record.heat.forget(second.saturating_sub(REACH));
        self.heat_bytes = self.heat_bytes - before + record.heat.bytes();
        let before: usize = record.episodes.iter().map(Episode::bytes).sum();
        record.follow(observed, followed);
        let after: usize = record.episodes.iter().map(Episode::bytes).sum();
        self.episode_bytes = self.episode_bytes - before + after;
        self.evict_episodes();
    }

    /// Remembers what made a score of `service` above γ in the steady `second`: titles of columns with their parts of
    /// the squared score in units of γ², the largest first. Of a service without a [record](Self::record), nothing.
    pub fn explain<'a>(&mut self, service: &str, second: u32, parts: impl Iterator<Item = (&'a str, f32)>) {
        let Some(record) = self.services.get_mut(service) else { return };
        let before = record.heat.bytes();
        record.heat.add(second, parts);
        self.heat_bytes = self.heat_bytes - before + record.heat.bytes();
        self.evict_heat(second);
    }

    /// Makes room for one more service, if there can be any. O(log services), but for one newcomer in sixteen.
    fn admit(&mut self, observed: &Observation<'_>) {
        let now = observed.second;
        if now >= self.swept.saturating_add(SWEEP_EVERY) || self.services.len() >= self.room {
            self.sweep(now);
        }
        if self.services.len() >= MAX_SERVICES && !self.replaces_one(now) {
            return;
        }
        self.services.insert(observed.service.into(), Record::default());
    }

    /// Forgets services that have long been gone, and lets the others reach back as far as there is room for them and a
    /// sixteenth more.
    fn sweep(&mut self, now: u32) {
        self.swept = now;
        self.services.retain(|_, record| now.saturating_sub(record.last) < FORGET_AFTER);
        self.room = (self.services.len() + self.services.len() / 16 + 8).min(MAX_SERVICES);
        let depth = self.depth();
        for record in self.services.values_mut() {
            record.tracks.iter_mut().zip(depth).for_each(|(track, most)| track.cut(most));
        }
        let episodes = self.services.values().flat_map(|record| &record.episodes);
        self.episode_bytes = episodes.map(Episode::bytes).sum();
        self.heat_bytes = self.services.values().map(|record| record.heat.bytes()).sum();
    }

    /// Forgets the service that was heard of least recently, unless all are there still: then newcomers have no
    /// history, or all would forget each other with each look.
    fn replaces_one(&mut self, now: u32) -> bool {
        if self.full_until > now {
            return false;
        }
        let oldest = self.services.iter().min_by_key(|(_, record)| record.last);
        let Some((name, last)) = oldest.map(|(name, record)| (name.clone(), record.last)) else { return false };
        if now.saturating_sub(last) < GONE_AFTER {
            self.full_until = last.saturating_add(GONE_AFTER);
            return false;
        }
        if let Some(record) = self.services.remove(&name) {
            self.episode_bytes -= record.episodes.iter().map(Episode::bytes).sum::<usize>();
            self.heat_bytes -= record.heat.bytes();
        }
        true
    }

    /// Drops the oldest episodes of all while they take more than their share: those that are over first.
    fn evict_episodes(&mut self) {
        while self.episode_bytes > self.budget / EPISODES_SHARE {
            let with = self.services.values_mut().filter(|record| !record.episodes.is_empty());
            let oldest =
                with.min_by_key(|record| record.episodes.front().map(|episode| (episode.to.is_none(), episode.from)));
            let Some(episode) = oldest.and_then(|record| record.episodes.pop_front()) else { return };
            self.episode_bytes -= episode.bytes();
        }
    }

    /// Lets what made scores above γ reach back less, of all services alike, while it takes more than its share.
    fn evict_heat(&mut self, now: u32) {
        while self.heat_bytes > self.budget / HEAT_SHARE {
            let Some(oldest) = self.services.values().filter_map(|record| record.heat.oldest()).min() else { return };
            let before = oldest.saturating_add(1 + now.saturating_sub(oldest) / HEAT_STEP);
            self.services.values_mut().for_each(|record| record.heat.forget(before));
            self.heat_bytes = self.services.values().map(|record| record.heat.bytes()).sum();
        }
    }

    /// Buckets of `service`, oldest first, each at the finest resolution that reaches so far back: no second is in two.
    #[must_use]
    pub fn buckets(&self, service: &str) -> Vec<(u32, Bucket)> {
        let Some(record) = self.services.get(service) else { return Vec::new() };
        let mut buckets = Vec::new();
        let mut until = u32::MAX;
        for (track, (step, _)) in record.tracks.iter().zip(STEPS) {
            let coarser = track.0.iter().rev().skip_while(|bucket| bucket.second.saturating_add(step) > until);
            buckets.extend(coarser.map(|bucket| (step, *bucket)));
            until = buckets.last().map_or(u32::MAX, |(_, bucket)| bucket.second);
        }
        buckets.reverse();
        buckets
    }

    /// The largest scores of the last `most` seconds that have one, oldest first. NaN where no γ was learnt yet: such a
    /// score is no multiple of anything.
    pub fn recent(&self, service: &str, most: usize) -> impl Iterator<Item = f32> {
        let finest = self.services.get(service).map(|record| &record.tracks[0].0);
        let scores = finest.into_iter().flatten();
        let skipped = finest.map_or(0, |buckets| buckets.len().saturating_sub(most));
        scores.skip(skipped).map(|bucket| if bucket.gamma.is_nan() { f32::NAN } else { bucket.highest })
    }

    /// Episodes of `service`, oldest first.
    pub fn episodes(&self, service: &str) -> impl Iterator<Item = &Episode> {
        self.services.get(service).into_iter().flat_map(|record| &record.episodes)
    }

    /// What made scores of `service` above γ, in no order of columns.
    pub fn heat(&self, service: &str) -> impl Iterator<Item = &HeatRow> {
        self.services.get(service).into_iter().flat_map(|record| record.heat.rows())
    }

    /// Bytes that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let tracks = self.services.values().flat_map(|record| &record.tracks);
        let buckets: usize = tracks.map(|track| track.0.len()).sum();
        buckets * size_of::<Bucket>() + self.services.len() * SERVICE_BYTES + self.episode_bytes + self.heat_bytes
    }
}

impl Record {
    /// Begins, goes on with, or ends an episode. The columns of one that goes on may take `most` bytes.
    fn follow(&mut self, observed: &Observation<'_>, most: usize) {
        let open = self.episodes.back_mut().filter(|episode| episode.to.is_none());
        match (open, observed.alarm) {
            (None, Alarm::Quiet) => {}
            (Some(episode), Alarm::Quiet) => {
                // Its last rows are in the summary with which it is seen to be over.
                if observed.above().is_some() {
                    episode.add(observed, most);
                }
                episode.end(observed.second);
            }
            (None, Alarm::On) => {
                if self.episodes.len() >= MAX_EPISODES {
                    self.episodes.pop_front();
                }
                let mut episode = Episode {
                    from: observed.second,
                    to: None,
                    peak: f32::NAN,
                    rank: observed.rank,
                    points_at: observed.points_at.to_owned(),
                    made_by: AlarmMetrics::default(),
                    metrics: Vec::new(),
                };
                episode.add(observed, most);
                self.episodes.push_back(episode);
            }
            (Some(episode), Alarm::On) => {
                if episode.rank == 0 || (0 < observed.rank && observed.rank < episode.rank) {
                    episode.rank = observed.rank;
                    observed.points_at.clone_into(&mut episode.points_at);
                }
                episode.add(observed, most);
            }
        }
    }
}

#[cfg(test)]
mod tests;
