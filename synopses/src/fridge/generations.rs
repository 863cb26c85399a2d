//! Successive fridges: changes the probability without affecting pending requests.

use super::settings::{Settings, SettingsError};
use super::single::Fridge;
use super::tally::{Report, Tally};
use crate::digest::Digest;

/// The current fridge and, for some time, its predecessor. Requests that are pending there entered with the old
/// probability and must be weighted with it.
///
/// Takes twice the memory while the predecessor is drained.
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
    /// [`SettingsError`] if a setting is invalid.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        Ok(Self { current: Fridge::new(settings)?, draining: None })
    }

    /// Starts a new, empty fridge for requests, which should have another seed. Responses to pending requests match
    /// until `until_ns` (4 × the 99th percentile from now). Drops a predecessor that is still being drained.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if a setting is invalid. Nothing changes then.
    pub fn replace(&mut self, settings: Settings, until_ns: u64) -> Result<(), SettingsError> {
        let next = Fridge::new(settings)?;
        self.draining = Some((core::mem::replace(&mut self.current, next), until_ns));
        Ok(())
    }

    /// Adds a request at `now_ns`.
    pub fn insert(&mut self, digest: Digest, now_ns: u64) {
        self.current.insert(digest, now_ns);
    }

    /// Matches a response at `now_ns`. The tally of the new fridge counts responses to the old one's requests as
    /// unmatched.
    pub fn match_response(&mut self, digest: Digest, now_ns: u64) -> Option<Report> {
        if let Some(report) = self.current.match_response(digest, now_ns) {
            return Some(report);
        }
        let (fridge, until_ns) = self.draining.as_mut()?;
        if now_ns < *until_ns {
            return fridge.match_response(digest, now_ns);
        }
        self.draining = None;
        None
    }

    /// Counts of the current fridge.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.current.tally()
    }

    /// The current fridge, which requests enter.
    #[must_use]
    pub const fn current(&self) -> &Fridge {
        &self.current
    }

    /// Bytes of the slots of both fridges.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.current.memory_bytes() + self.draining.as_ref().map_or(0, |(fridge, _)| fridge.memory_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pending_request_is_weighted_with_the_probability_it_entered_with() {
        let settings = Settings { slots: 64, ..Settings::default() };
        let mut generations = Generations::new(settings).expect("possible");
        generations.insert(Digest(1), 0);
        generations.insert(Digest(2), 0);
        generations.replace(Settings { probability: 1e-3, seed: 1, ..settings }, 1 << 30).expect("possible");

        let report = generations.match_response(Digest(1), 1 << 20).expect("it was there");

        assert_eq!(report.delay_ns, 1 << 20);
        assert!(report.weight() < 1.1, "{}", report.weight());
        assert_eq!(generations.memory_bytes(), 2 * 64 * 12);
        assert_eq!(generations.match_response(Digest(2), 1 << 30), None);
        assert_eq!(generations.memory_bytes(), 64 * 12);
        assert!(generations.replace(Settings { probability: 0.0, ..settings }, 0).is_err());
        assert_eq!(generations.current().settings().seed, 1);
    }
}
