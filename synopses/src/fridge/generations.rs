//! One fridge after another: how a probability is changed without spoiling what is in flight.

use super::settings::{Settings, SettingsError};
use super::single::Fridge;
use super::tally::{Report, Tally};
use crate::digest::Digest;

/// A fridge, and while it lasts the one before. Requests that wait entered with the old probability and must be weighed with it.
///
/// Takes twice the memory while the old one is drained.
#[derive(Clone, Debug)]
pub struct Generations {
    current: Fridge,
    draining: Option<(Fridge, u64)>,
}

impl Generations {
    /// The first generation.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] says what is impossible.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        Ok(Self { current: Fridge::new(settings)?, draining: None })
    }

    /// Requests enter a new, empty fridge from now on; those that wait may be answered until `until_ns` (4 × the 99th percentile from now). What is
    /// still in the fridge before the last is lost.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] says what is impossible; nothing changes then. The seed should be another one.
    pub fn replace(&mut self, settings: Settings, until_ns: u64) -> Result<(), SettingsError> {
        let next = Fridge::new(settings)?;
        self.draining = Some((core::mem::replace(&mut self.current, next), until_ns));
        Ok(())
    }

    /// A request at `now_ns`.
    pub fn insert(&mut self, digest: Digest, now_ns: u64) {
        self.current.insert(digest, now_ns);
    }

    /// A response at `now_ns`. The tally of the new fridge counts those to the old one as unmatched, too.
    pub fn answer(&mut self, digest: Digest, now_ns: u64) -> Option<Report> {
        if let Some(report) = self.current.answer(digest, now_ns) {
            return Some(report);
        }
        let (fridge, until_ns) = self.draining.as_mut()?;
        if now_ns < *until_ns {
            return fridge.answer(digest, now_ns);
        }
        self.draining = None;
        None
    }

    /// What happened in the fridge that requests enter.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.current.tally()
    }

    /// The fridge that requests enter.
    #[must_use]
    pub const fn current(&self) -> &Fridge {
        &self.current
    }

    /// Bytes of the slots of both.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.current.memory_bytes() + self.draining.as_ref().map_or(0, |(fridge, _)| fridge.memory_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_weighed_with_the_probability_it_entered_with() {
        let settings = Settings { slots: 64, ..Settings::default() };
        let mut generations = Generations::new(settings).expect("possible");
        generations.insert(Digest(1), 0);
        generations.insert(Digest(2), 0);
        generations.replace(Settings { probability: 1e-3, seed: 1, ..settings }, 1 << 30).expect("possible");

        let waited = generations.answer(Digest(1), 1 << 20).expect("it was there");

        assert_eq!(waited.delay_ns, 1 << 20);
        assert!(waited.weight() < 1.1, "{}", waited.weight());
        assert_eq!(generations.memory_bytes(), 2 * 64 * 12);
        assert_eq!(generations.answer(Digest(2), 1 << 30), None);
        assert_eq!(generations.memory_bytes(), 64 * 12);
        assert!(generations.replace(Settings { probability: 0.0, ..settings }, 0).is_err());
        assert_eq!(generations.current().settings().seed, 1);
    }
}
