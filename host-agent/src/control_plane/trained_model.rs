//! A trained model that an operator brings.

use lmap::ModelError;
use wire::metric::fingerprint;
use wire::time::{Interval, Nanos};

/// A trained model as bytes; empty: there is none. What is not empty decodes as a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrainedModel {
    bytes: Vec<u8>,
    /// The columns that it knows, ascending.
    fingerprints: Vec<u64>,
    /// Time between the rows that were learnt; `None`: the file does not say.
    interval: Option<Interval>,
}

impl TrainedModel {
    /// The model in `bytes`. Decodes them, which takes milliseconds for a large one: not for a thread that others wait
    /// for.
    ///
    /// # Errors
    ///
    /// [`ModelError`] unless they are empty or a model file.
    pub fn new(bytes: Vec<u8>) -> Result<Self, ModelError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let model = lmap::Model::decode(&bytes)?;
        let mut fingerprints: Vec<u64> = model.fingerprints().collect();
        fingerprints.sort_unstable();
        let interval = model.interval_ms().map(|millis| Nanos::from_millis(u64::from(millis)));
        let interval = interval.and_then(|length| Interval::new(length).ok());
        Ok(Self { bytes, fingerprints, interval })
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Its bytes, for a worker.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes.clone()
    }

    /// Whether it knows the column of this title.
    #[must_use]
    pub fn knows(&self, title: &str) -> bool {
        self.fingerprints.binary_search(&fingerprint(title)).is_ok()
    }

    /// Time between the rows that were learnt; `None`: not known.
    #[must_use]
    pub fn interval(&self) -> Option<Interval> {
        self.interval
    }

    /// Whether it is of rows every `interval`, to the millisecond, as far as is known.
    #[must_use]
    pub fn is_of(&self, interval: Interval) -> bool {
        let millis = |of: Interval| (of.length().0 + 500_000) / 1_000_000;
        self.interval.is_none_or(|own| millis(own) == millis(interval))
    }

    /// The same model; if it does not say of which rows it is, of those every `interval`.
    #[must_use]
    pub fn taken_for(self, interval: Interval) -> Self {
        Self { interval: self.interval.or(Some(interval)), ..self }
    }
}
