//! The baselines: registers that are all reset at the end of each window (time binning).

use alloc::boxed::Box;
use alloc::vec;
use core::marker::PhantomData;

use super::distinct::{Cardinality, Estimate, EstimateError, MergeError, Tally, alike};
use super::hash::Splitter;
use super::ranges::{Count, hyper_log_log, log_log, probabilistic};
use super::settings::{Settings, SettingsError};
use crate::digest::Digest;

/// What a register keeps of its items' ranks, and what the registers say together.
pub trait Registers: Copy {
    /// A register. Its default is the empty one.
    type Register: Copy + Default + PartialEq;

    /// Adds a rank, from 1.
    fn insert(register: &mut Self::Register, rank: u8);

    /// Adds another register of the same number.
    fn merge(register: &mut Self::Register, other: Self::Register);

    /// Whether items with ranks up to `most` can leave this behind.
    fn is_possible(register: Self::Register, most: u8) -> bool;
}

/// The registers' joint estimate. Apart from [`Registers`], since a count is of this module only.
pub(super) trait Estimator: Registers {
    fn count(registers: &[Self::Register], settings: &Settings) -> Count;
}

/// The largest rank, and the harmonic mean.
#[derive(Clone, Copy, Debug)]
pub enum HyperLogLog {}

/// The largest rank, and the geometric mean.
#[derive(Clone, Copy, Debug)]
pub enum LogLogMean {}

/// All ranks as a set of bits, and the geometric mean of the runs of ones.
#[derive(Clone, Copy, Debug)]
pub enum ProbabilisticCounting {}

/// HyperLogLog with time binning.
pub type Hll = Bins<HyperLogLog>;
/// LogLog with time binning.
pub type LogLog = Bins<LogLogMean>;
/// PCSA (Flajolet and Martin) with time binning.
pub type Pcsa = Bins<ProbabilisticCounting>;

macro_rules! largest_rank {
    ($estimator:ty) => {
        impl Registers for $estimator {
            type Register = u8;

            #[inline]
            fn insert(register: &mut u8, rank: u8) {
                *register = rank.max(*register);
            }

            fn merge(register: &mut u8, other: u8) {
                *register = other.max(*register);
            }

            fn is_possible(register: u8, most: u8) -> bool {
                register <= most
            }
        }
    };
}

largest_rank!(HyperLogLog);
largest_rank!(LogLogMean);

impl Registers for ProbabilisticCounting {
    type Register = u64;

    #[inline]
    fn insert(register: &mut u64, rank: u8) {
        *register |= 1 << (rank - 1);
    }

    fn merge(register: &mut u64, other: u64) {
        *register |= other;
    }

    fn is_possible(register: u64, most: u8) -> bool {
        register >> most == 0
    }
}

impl Estimator for HyperLogLog {
    fn count(registers: &[u8], settings: &Settings) -> Count {
        hyper_log_log(registers.iter().copied(), settings)
    }
}

impl Estimator for LogLogMean {
    fn count(registers: &[u8], settings: &Settings) -> Count {
        let empty = registers.iter().map(|rank| usize::from(*rank == 0)).sum();
        let sum = registers.iter().map(|rank| u64::from(*rank)).sum();
        log_log(sum, settings.registers, empty)
    }
}

impl Estimator for ProbabilisticCounting {
    fn count(registers: &[u64], settings: &Settings) -> Count {
        let empty = registers.iter().filter(|bits| **bits == 0).count();
        let runs = registers.iter().map(|bits| u64::from(bits.trailing_ones())).sum();
        probabilistic(runs, settings.registers, empty)
    }
}

/// Registers that are all reset at each multiple of the window. See the [module](super).
#[derive(Clone, Debug)]
pub struct Bins<R: Registers> {
    pub(super) settings: Settings,
    splitter: Splitter,
    pub(super) registers: Box<[R::Register]>,
    /// The latest time.
    pub(super) latest_ns: u64,
    /// First time after the bin.
    end_ns: u64,
    pub(super) tally: Tally,
    kind: PhantomData<R>,
}

impl<R: Registers> Bins<R> {
    /// An empty synopsis.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if registers or window are impossible.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        let settings = settings.checked()?;
        let mut bins = Self {
            splitter: Splitter::new(&settings),
            registers: vec![R::Register::default(); settings.registers].into_boxed_slice(),
            latest_ns: 0,
            end_ns: 0,
            tally: Tally::default(),
            kind: PhantomData,
            settings,
        };
        bins.begin(settings.start_ns);
        Ok(bins)
    }

    /// The beginning of the bin with this time.
    const fn beginning(&self, now_ns: u64) -> u64 {
        now_ns - now_ns % self.settings.window_ns
    }

    /// Goes to a time without touching the registers.
    pub(super) const fn begin(&mut self, now_ns: u64) {
        self.latest_ns = now_ns;
        self.end_ns = self.beginning(now_ns).saturating_add(self.settings.window_ns);
    }

    /// Begins the bin of this time, which is after the current one.
    #[cold]
    fn next(&mut self, now_ns: u64) {
        self.registers.fill(R::Register::default());
        self.begin(now_ns);
    }

    /// The largest rank, for checks of decoded registers.
    pub(super) const fn most(&self) -> u8 {
        self.splitter.most()
    }
}

impl<R: Estimator> Cardinality for Bins<R> {
    #[inline]
    fn insert(&mut self, digest: Digest, now_ns: u64) {
        if now_ns >= self.end_ns {
            self.next(now_ns);
        }
        if now_ns < self.latest_ns {
            if now_ns < self.beginning(self.latest_ns).max(self.settings.start_ns) {
                self.tally.dropped = self.tally.dropped.saturating_add(1);
                return;
            }
            self.tally.late = self.tally.late.saturating_add(1);
        } else {
            self.latest_ns = now_ns;
        }
        self.tally.inserted = self.tally.inserted.saturating_add(1);
        let (register, rank) = self.splitter.split(digest);
        R::insert(&mut self.registers[register], rank);
    }

    /// The count since the bin began, its rate by the time since then, and [`Estimate::warm`] only at the bin's end.
    fn estimate(&self, now_ns: u64, window_ns: u64) -> Result<Estimate, EstimateError> {
        if window_ns != self.settings.window_ns {
            return Err(EstimateError::FixedWindow { asked_ns: window_ns, only_ns: self.settings.window_ns });
        }
        let now_ns = now_ns.max(self.latest_ns);
        let began_ns = self.beginning(now_ns).max(self.settings.start_ns);
        let count = if now_ns < self.end_ns { R::count(&self.registers, &self.settings) } else { Count::NONE };
        // At the very beginning there is no rate.
        let rate = if now_ns > began_ns { count.items * 1e9 / (now_ns - began_ns) as f64 } else { 0.0 };
        Ok(Estimate {
            count: count.items,
            rate,
            range: count.range,
            saturated: count.saturated,
            warm: now_ns - began_ns >= window_ns - 1,
        })
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    fn reset(&mut self, now_ns: u64) {
        self.settings.start_ns = now_ns;
        self.tally = Tally::default();
        self.next(now_ns);
    }

    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        alike(&self.settings, &other.settings)?;
        if other.latest_ns >= self.end_ns {
            self.next(other.latest_ns);
        }
        // Of an earlier bin nothing is left.
        if other.end_ns == self.end_ns {
            for (register, theirs) in self.registers.iter_mut().zip(&other.registers) {
                R::merge(register, *theirs);
            }
            self.latest_ns = self.latest_ns.max(other.latest_ns);
        }
        self.settings.start_ns = self.settings.start_ns.max(other.settings.start_ns);
        self.tally.add(other.tally);
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&*self.registers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cardinality::{Hash, Range};

    fn settings(window_ns: u64) -> Settings {
        Settings { registers: 64, window_ns, start_ns: 0, hash: Hash::Seeded(3) }
    }

    #[test]
    fn a_bin_forgets_all_at_its_end() {
        let mut hll = Hll::new(settings(1_000)).expect("possible");
        (0..500).for_each(|number| hll.insert(Digest(number), number));
        let of = |hll: &Hll, now| hll.estimate(now, 1_000).expect("the only window");

        assert!((of(&hll, 999).count - 500.0).abs() < 250.0);
        assert_eq!((of(&hll, 1_000).count, of(&hll, 1_000).rate), (0.0, 0.0));
        hll.insert(Digest(7), 1_000);
        assert!((of(&hll, 1_500).count - 1.0).abs() < 0.1 && of(&hll, 1_500).range == Range::Small);
        // One item in half a microsecond.
        assert!((of(&hll, 1_500).rate - 2e6).abs() < 2e5);
        hll.insert(Digest(8), 999);
        assert_eq!(hll.tally(), Tally { inserted: 501, dropped: 1, ..Tally::default() });
    }

    #[test]
    fn other_windows_are_refused() {
        let pcsa = Pcsa::new(settings(1_000)).expect("possible");

        let refused = EstimateError::FixedWindow { asked_ns: 999, only_ns: 1_000 };
        assert_eq!(pcsa.estimate(0, 999), Err(refused));
    }

    #[test]
    fn an_empty_synopsis_says_0() {
        let none = |estimate: Estimate| assert_eq!((estimate.count, estimate.rate), (0.0, 0.0));

        none(Hll::new(settings(9)).expect("possible").estimate(5, 9).expect("the only window"));
        none(LogLog::new(settings(9)).expect("possible").estimate(5, 9).expect("the only window"));
        none(Pcsa::new(settings(9)).expect("possible").estimate(5, 9).expect("the only window"));
    }

    #[test]
    fn more_items_than_hashes_are_said_to_be_too_many() {
        let ready = Settings { hash: Hash::Ready32, ..settings(1_000) };
        let mut hll = Hll::new(ready).expect("possible");
        hll.registers.fill(24);
        let large = hll.estimate(0, 1_000).expect("the only window");
        hll.registers.fill(27);
        let too_many = hll.estimate(0, 1_000).expect("the only window");

        let raw = 0.709 * 64.0 * f64::from(1 << 24);
        assert!(large.range == Range::Large && large.count > 1.05 * raw && !large.saturated);
        assert!(too_many.saturated && too_many.count.is_finite());
    }
}
