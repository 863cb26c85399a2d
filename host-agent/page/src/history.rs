//! Scores of each service at falling resolution, and its episodes, within a budget of bytes.
//!
//! A service has three resolutions, [`STEPS`]: buckets of a second for five minutes, of ten seconds for an hour, of two
//! minutes for a day. Each keeps the largest score of its time, so that no peak is lost. If there are so many services
//! that the budget is short, all reach back equally less.
//!
//! *Memory*: 16 bytes a bucket, [`SERVICE_BYTES`] a service beside them, and episodes. [`History::bytes`] counts it.

use std::collections::{BTreeMap, VecDeque};

/// Seconds of a bucket, and buckets at most, of each resolution.
pub const STEPS: [(u32, usize); 3] = [(1, 300), (10, 360), (120, 720)];

/// Bytes of a service beside its buckets and episodes: its entry, its name.
pub const SERVICE_BYTES: usize = 512;
/// Episodes of one service: the newest.
pub const MAX_EPISODES: usize = 32;
/// Share of the budget that episodes may take: a quarter.
const EPISODES_SHARE: usize = 4;
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
    /// Its first second, since 1970.
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

/// An alarm from its begin to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Episode {
    /// Second in which it began, since 1970.
    pub from: u32,
    /// Second in which it ended; `None`: it goes on.
    pub to: Option<u32>,
    /// The largest score in it.
    pub peak: f32,
    /// Rank in its incident, the best; 0: none.
    pub rank: u32,
    /// The service at which it pointed; empty: none.
    pub points_at: String,
    /// Metrics of the largest score, at most five.
    pub metrics: Vec<Metric>,
}

impl Episode {
    /// Bytes of memory, texts included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let metric =
            |metric: &Metric| size_of::<Metric>() + metric.title.len() + metric.seen.len() + metric.expected.len();
        size_of::<Self>() + self.points_at.len() + self.metrics.iter().map(metric).sum::<usize>()
    }
}

/// What a service said for one summary.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation<'a> {
    /// Name of the service.
    pub service: &'a str,
    /// Second of the summary, since 1970.
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
}

/// Buckets of one resolution, oldest first.
#[derive(Clone, Debug, Default)]
struct Track(VecDeque<Bucket>);

impl Track {
    /// Adds what happened in `bucket.second` to the bucket of `step` seconds that has it. What is older than the newest
    /// bucket is added to that one: clocks are set back.
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
    /// Second of the last sweep.
    swept: u32,
    /// Until this second no newcomer is admitted.
    full_until: u32,
}

impl History {
    /// An empty history of at most `budget` bytes. Below [`SERVICE_BYTES`] for each service nothing is remembered.
    #[must_use]
    pub const fn new(budget: usize) -> Self {
        Self { budget, services: BTreeMap::new(), room: 0, episode_bytes: 0, swept: 0, full_until: 0 }
    }

    /// Buckets of each resolution that each of so many services as there is room for may have.
    fn depth(&self) -> [usize; STEPS.len()] {
        let whole: usize = STEPS.iter().map(|(_, most)| most).sum();
        let share = (self.budget - self.budget / EPISODES_SHARE) / self.room.max(1);
        let buckets = share.saturating_sub(SERVICE_BYTES) / size_of::<Bucket>();
        STEPS.map(|(_, most)| most.min(most * buckets / whole))
    }

    /// Remembers `observed`. `metrics` are asked for if it is the largest score of an alarm by now.
    pub fn record(&mut self, observed: &Observation<'_>, metrics: impl FnOnce() -> Vec<Metric>) {
        if !self.services.contains_key(observed.service) {
            self.admit(observed);
        }
        let depth = self.depth();
        let Some(record) = self.services.get_mut(observed.service) else { return };
        record.last = record.last.max(observed.second);
        let &Observation { second, highest, gamma, alarm, .. } = observed;
        if !highest.is_nan() {
            for ((track, (step, _)), most) in record.tracks.iter_mut().zip(STEPS).zip(depth) {
                track.add(Bucket { second, highest, gamma, alarm }, step, most);
            }
        }
        let before: usize = record.episodes.iter().map(Episode::bytes).sum();
        record.follow(observed, metrics);
        let after: usize = record.episodes.iter().map(Episode::bytes).sum();
        self.episode_bytes = self.episode_bytes - before + after;
        self.evict_episodes();
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
        let episodes = self.services.remove(&name).map(|record| record.episodes).unwrap_or_default();
        self.episode_bytes -= episodes.iter().map(Episode::bytes).sum::<usize>();
        true
    }

    /// Drops the oldest episodes of all while they take more than their share.
    fn evict_episodes(&mut self) {
        while self.episode_bytes > self.budget / EPISODES_SHARE {
            let with = self.services.values_mut().filter(|record| !record.episodes.is_empty());
            let oldest = with.min_by_key(|record| record.episodes.front().map(|episode| episode.from));
            let Some(episode) = oldest.and_then(|record| record.episodes.pop_front()) else { return };
            self.episode_bytes -= episode.bytes();
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

    /// The largest scores of the last `most` seconds that have one, oldest first.
    pub fn recent(&self, service: &str, most: usize) -> impl Iterator<Item = f32> {
        let finest = self.services.get(service).map(|record| &record.tracks[0].0);
        let scores = finest.into_iter().flatten();
        let skipped = finest.map_or(0, |buckets| buckets.len().saturating_sub(most));
        scores.skip(skipped).map(|bucket| bucket.highest)
    }

    /// Episodes of `service`, oldest first.
    pub fn episodes(&self, service: &str) -> impl Iterator<Item = &Episode> {
        self.services.get(service).into_iter().flat_map(|record| &record.episodes)
    }

    /// Bytes that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let tracks = self.services.values().flat_map(|record| &record.tracks);
        let buckets: usize = tracks.map(|track| track.0.len()).sum();
        buckets * size_of::<Bucket>() + self.services.len() * SERVICE_BYTES + self.episode_bytes
    }
}

impl Record {
    /// Begins, goes on with, or ends an episode.
    fn follow(&mut self, observed: &Observation<'_>, metrics: impl FnOnce() -> Vec<Metric>) {
        let open = self.episodes.back_mut().filter(|episode| episode.to.is_none());
        match (open, observed.alarm) {
            (None, Alarm::Quiet) => {}
            (Some(episode), Alarm::Quiet) => episode.to = Some(observed.second.max(episode.from)),
            (None, Alarm::On) => {
                if self.episodes.len() >= MAX_EPISODES {
                    self.episodes.pop_front();
                }
                self.episodes.push_back(Episode {
                    from: observed.second,
                    to: None,
                    peak: observed.highest,
                    rank: observed.rank,
                    points_at: observed.points_at.to_owned(),
                    metrics: metrics(),
                });
            }
            (Some(episode), Alarm::On) => {
                if episode.rank == 0 || (0 < observed.rank && observed.rank < episode.rank) {
                    episode.rank = observed.rank;
                    observed.points_at.clone_into(&mut episode.points_at);
                }
                if episode.peak.is_nan() || observed.highest > episode.peak {
                    episode.peak = observed.highest;
                    let metrics = metrics();
                    if !metrics.is_empty() {
                        episode.metrics = metrics;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
