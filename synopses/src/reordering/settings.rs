//! Settings of reordering by prefix, and their checks.

use thiserror::Error;

use super::segment::Definition;
use crate::rap::Admission;

/// Maximum number of buckets (512 MiB).
pub const MAX_BUCKETS: usize = 1 << 24;
/// Ticks from which on a difference means that the clock went back.
pub(super) const BACKWARDS: u32 = 1 << 31;

/// How the buckets are divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Split {
    /// All are samples of flows: best with few buckets.
    SamplingOnly,
    /// All hold heavy flows: the baseline.
    HeavyOnly,
    /// This share x, above 0 and below 1, holds heavy flows, the rest samples the other flows. The best share depends
    /// on the traffic.
    Hybrid(f64),
}

/// Which evicted records are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reports {
    /// Those with enough events.
    Suspicious,
    /// All that had a packet checked: fewer false positives, and a hundred times as many reports.
    Always,
}

/// Settings of a [`super::Reordering`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// B, number of buckets, from 1 to [`MAX_BUCKETS`].
    pub buckets: usize,
    /// How buckets are divided.
    pub split: Split,
    /// When a packet is out of order.
    pub definition: Definition,
    /// T, nanoseconds of silence after which another flow takes a sampling record. Judge it against the distance of a
    /// bucket's packets, B divided by the packet rate. At most 2³¹ ticks: records of finished flows would stay.
    pub timeout_ns: u64,
    /// C: a sampling record with more packets than this is replaced. No limit with 65,535.
    pub most_packets: u16,
    /// R: a sampling record with this number of events is replaced and reported. At least 1.
    pub least_events: u16,
    /// d, stages of the part for heavy flows, at least 1.
    pub stages: usize,
    /// A heavy flow is reported with a share of events above this, from 0 to 1.
    pub heavy_share: f64,
    /// With which probability a new flow replaces a heavy one.
    pub admission: Admission,
    /// Which evicted records are reported.
    pub reports: Reports,
    /// A tick is 2^`tick_shift` nanoseconds, at most 2³². T should be at least eight ticks.
    pub tick_shift: u32,
    /// Seed of places and coins. Keep it secret, and change it with each interval ([`super::Boundary::Reseed`]).
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            buckets: 1 << 8,
            split: Split::SamplingOnly,
            definition: Definition::BelowPredecessor,
            timeout_ns: 30_518,
            most_packets: 16,
            least_events: 1,
            stages: 2,
            heavy_share: 0.01,
            admission: Admission::InverseOfNext,
            reports: Reports::Suspicious,
            tick_shift: 10,
            seed: 0,
        }
    }
}

/// Invalid settings of reordering by prefix.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Invalid number of buckets.
    #[error("{0} buckets, from 1 to {MAX_BUCKETS} are possible")]
    Buckets(usize),
    /// Not a share, or one that leaves a part without buckets.
    #[error("a share of {share} of {buckets} buckets for {stages} stages of heavy flows: each part needs a bucket")]
    Share {
        /// The share x.
        share: f64,
        /// Number of buckets.
        buckets: usize,
        /// Number of stages.
        stages: usize,
    },
    /// The timeout is longer than the clock's range.
    #[error("a timeout of {timeout_ns} ns, less than 2^31 ticks of 2^{tick_shift} ns are possible")]
    Timeout {
        /// The timeout asked for.
        timeout_ns: u64,
        /// The tick's logarithm.
        tick_shift: u32,
    },
    /// With 0 every record would be replaced at each collision.
    #[error("records with 0 events are to be reported, at least 1 is possible")]
    Events,
    /// Not a share of events.
    #[error("heavy flows with a share of {0} events, from 0 to 1 is possible")]
    HeavyShare(f64),
    /// A tick of more than four seconds.
    #[error("a tick of 2^{0} ns, at most 2^32 is possible")]
    Tick(u32),
    /// Invalid number of prefixes of a tally.
    #[error("a tally of {0} prefixes, from 1 to {MAX_BUCKETS} are possible")]
    Prefixes(usize),
}

impl Settings {
    /// Buckets for samples, and rows of each stage for heavy flows.
    pub(super) fn parts(&self) -> Result<(usize, usize), SettingsError> {
        let Self { buckets, stages, .. } = *self;
        if !(1..=MAX_BUCKETS).contains(&buckets) {
            return Err(SettingsError::Buckets(buckets));
        }
        let (share, heavy) = match self.split {
            Split::SamplingOnly => return Ok((buckets, 0)),
            Split::HeavyOnly => (1.0, buckets),
            Split::Hybrid(share) => (share, (share * buckets as f64) as usize),
        };
        let rows = heavy.checked_div(stages).unwrap_or_default();
        let hybrid = self.split != Split::HeavyOnly;
        // The comparison is false for a NaN, too.
        if rows == 0 || hybrid && !(share > 0.0 && share < 1.0) {
            return Err(SettingsError::Share { share, buckets, stages });
        }
        Ok((if hybrid { buckets - rows * stages } else { 0 }, rows))
    }

    /// The timeout in ticks.
    pub(super) fn checked(&self) -> Result<u32, SettingsError> {
        let Self { timeout_ns, tick_shift, .. } = *self;
        if tick_shift > 32 {
            return Err(SettingsError::Tick(tick_shift));
        }
        if self.least_events == 0 {
            return Err(SettingsError::Events);
        }
        if !(0.0..=1.0).contains(&self.heavy_share) {
            return Err(SettingsError::HeavyShare(self.heavy_share));
        }
        let ticks = timeout_ns >> tick_shift;
        if ticks >= u64::from(BACKWARDS) {
            return Err(SettingsError::Timeout { timeout_ns, tick_shift });
        }
        Ok(ticks as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn invalid_settings_are_refused_with_what_to_do() {
        let of = |settings: Settings| {
            settings.parts().map(drop).and_then(|()| settings.checked().map(drop)).map_err(|error| error.to_string())
        };
        let valid = Settings::default();

        assert_eq!(of(valid), Ok(()));
        for invalid in [
            Settings { buckets: 0, ..valid },
            Settings { buckets: MAX_BUCKETS + 1, ..valid },
            Settings { split: Split::Hybrid(0.0), ..valid },
            Settings { split: Split::Hybrid(1.0), ..valid },
            Settings { split: Split::Hybrid(-0.5), ..valid },
            Settings { split: Split::Hybrid(f64::NAN), ..valid },
            Settings { split: Split::HeavyOnly, stages: 0, ..valid },
            Settings { split: Split::HeavyOnly, stages: 257, ..valid },
            Settings { least_events: 0, ..valid },
            Settings { heavy_share: f64::NAN, ..valid },
            Settings { heavy_share: 1.5, ..valid },
            Settings { timeout_ns: u64::MAX, ..valid },
            Settings { tick_shift: 33, ..valid },
        ] {
            assert!(of(invalid).is_err(), "{invalid:?}");
        }
        let endless = of(Settings { timeout_ns: 1 << 41, ..valid });
        let expected = "a timeout of 2199023255552 ns, less than 2^31 ticks of 2^10 ns are possible";
        assert_eq!(endless, Err(expected.to_string()));
    }

    #[test]
    fn buckets_are_divided_without_a_rest() {
        let parts = |split, stages| Settings { split, stages, ..Settings::default() }.parts();

        assert_eq!(parts(Split::SamplingOnly, 0), Ok((256, 0)));
        assert_eq!(parts(Split::HeavyOnly, 2), Ok((0, 128)));
        // 76 buckets for heavy flows make 25 rows of three stages.
        assert_eq!(parts(Split::Hybrid(0.3), 3), Ok((181, 25)));
    }
}
