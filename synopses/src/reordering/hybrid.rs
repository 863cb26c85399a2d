//! Both parts together.

use super::heavy::HeavyFlows;
use super::report::{Boundary, Counters, Report, Visit};
use super::sampling::SamplingArray;
use super::segment::{Control, Segment};
use super::settings::{Settings, SettingsError};

/// Finds prefixes with reordering: heavy flows are watched for long, the others sampled. See the [module](super).
#[derive(Clone, Debug)]
pub struct Reordering {
    pub(super) settings: Settings,
    pub(super) heavy: Option<HeavyFlows>,
    pub(super) samples: Option<SamplingArray>,
    pub(super) counters: Counters,
}

/// Numbers that follow from the settings, for a data plane that does the same (`p4/`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// Buckets that sample flows.
    pub buckets: usize,
    /// Rows of each stage of heavy flows.
    pub rows: usize,
    /// T in ticks.
    pub timeout: u32,
    /// The numbers that the seed became: for buckets, rows and coins. 0 if that part is not there.
    pub mixers: [u64; 3],
}

impl Reordering {
    /// Empty buckets.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if a setting is invalid.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        settings.checked()?;
        let (buckets, rows) = settings.parts()?;
        let heavy = (rows > 0).then(|| HeavyFlows::new(&settings, rows));
        let samples = (buckets > 0).then(|| SamplingArray::new(&settings, buckets)).transpose()?;
        Ok(Self { settings, heavy, samples, counters: Counters::default() })
    }

    /// Adds a segment that came at `now_ns`. Returns the report of a record that it evicted, if that is to be sent. A
    /// clock that goes back is counted, and makes no record stale. A record that idles for 2³¹ to 2³² ticks cannot be
    /// told from that: where no interval ends for so long, begin anew before ([`Boundary::Reseed`]).
    #[inline]
    pub fn insert(&mut self, segment: &Segment, now_ns: u64) -> Option<Report> {
        self.counters.segments += 1;
        if !segment.is_watched() {
            self.ignore(segment);
            return None;
        }
        let mut visit = Visit::PassedBy;
        if let Some(heavy) = &mut self.heavy {
            visit = heavy.visit(segment, &mut self.counters);
        }
        if visit == Visit::PassedBy
            && let Some(samples) = &mut self.samples
        {
            visit = samples.visit(segment, (now_ns >> self.settings.tick_shift) as u32, &mut self.counters);
        }
        let Visit::Monitored(report) = visit else { return None };
        self.counters.monitored += 1;
        self.counters.reports += u64::from(report.is_some());
        report
    }

    #[cold]
    fn ignore(&mut self, segment: &Segment) {
        self.counters.ignored += 1;
        if segment.control == Control::Syn {
            if let Some(heavy) = &mut self.heavy {
                heavy.restart(segment);
            }
            if let Some(samples) = &mut self.samples {
                samples.restart(segment);
            }
        }
    }

    /// Ends an interval: sends the reports of all records, whose counts begin anew. O(B).
    pub fn close(&mut self, boundary: Boundary, mut send: impl FnMut(Report)) {
        let mut reports = 0;
        let mut count = |report| {
            reports += 1;
            send(report);
        };
        if let Some(heavy) = &mut self.heavy {
            heavy.drain(&mut count);
        }
        if let Some(samples) = &mut self.samples {
            samples.drain(&mut count);
        }
        self.counters.reports += reports;
        if let Boundary::Reseed(seed) = boundary {
            self.settings.seed = seed;
            if let Some(heavy) = &mut self.heavy {
                heavy.reseed(seed);
            }
            if let Some(samples) = &mut self.samples {
                samples.reseed(seed);
            }
        }
    }

    /// What a data plane needs beside the settings to do the same.
    #[must_use]
    pub fn constants(&self) -> Constants {
        let samples = self.samples.as_ref().map(|samples| (samples.records.len(), samples.mixer(), samples.timeout()));
        let (buckets, bucket, timeout) = samples.unwrap_or_default();
        let heavy = self.heavy.as_ref().map(|heavy| (heavy.rows(), heavy.mixer(), heavy.coins.constant()));
        let (rows, row, coin) = heavy.unwrap_or_default();
        Constants { buckets, rows, timeout, mixers: [bucket, row, coin] }
    }

    /// The settings, with the seed in use.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Counts of events so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Bytes of all records.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.heavy.as_ref().map_or(0, |heavy| size_of_val(&*heavy.records))
            + self.samples.as_ref().map_or(0, |samples| size_of_val(&*samples.records))
    }
}
