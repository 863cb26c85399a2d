//! Why series have no column.

use core::fmt;
use std::sync::Arc;

/// Why a series is not watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// It is not in `allow`.
    NotAllowed,
    /// It is in `deny`.
    Denied,
    /// It never changed.
    Constant,
    /// It tells when something was, and always rises.
    TimeOfDay,
    /// It is about the process of an exporter, or its requests.
    Exporter,
    /// A series of this name, which is watched, says the same.
    Redundant(Arc<str>),
    /// There was no room.
    NoRoom,
    /// It has a name or labels that no column may have, and its name has no rest.
    Labels,
    /// It came after series were chosen, and its name has no rest.
    CameLater,
    /// It was not exposed for a whole window, and had to make room.
    Gone,
}

impl Exclusion {
    /// Values of the metric label `reason`, in the order of [`ExcludedSeries::counts`]. The last one is of samples that
    /// are no series: facts, states, gauge histograms and times of creation.
    pub const REASONS: [&'static str; 11] = [
        "not_allowed",
        "denied",
        "constant",
        "time_of_day",
        "exporter",
        "redundant",
        "no_room",
        "labels",
        "came_later",
        "gone",
        "type",
    ];

    /// The one of this place, without the name of a series that says the same.
    pub(crate) fn at(place: usize) -> Self {
        match place {
            0 => Self::NotAllowed,
            1 => Self::Denied,
            2 => Self::Constant,
            3 => Self::TimeOfDay,
            4 => Self::Exporter,
            5 => Self::Redundant("another".into()),
            6 => Self::NoRoom,
            7 => Self::Labels,
            9 => Self::Gone,
            _ => Self::CameLater,
        }
    }

    /// Its place in [`Self::REASONS`].
    pub(crate) const fn place(&self) -> usize {
        match self {
            Self::NotAllowed => 0,
            Self::Denied => 1,
            Self::Constant => 2,
            Self::TimeOfDay => 3,
            Self::Exporter => 4,
            Self::Redundant(_) => 5,
            Self::NoRoom => 6,
            Self::Labels => 7,
            Self::CameLater => 8,
            Self::Gone => 9,
        }
    }
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAllowed => "not in allow",
            Self::Denied => "in deny",
            Self::Constant => "constant",
            Self::TimeOfDay => "a time of day",
            Self::Exporter => "of the exporter itself",
            Self::Redundant(same) => return write!(f, "as {same}"),
            Self::NoRoom => "no room",
            Self::Labels => "labels that no column may have",
            Self::CameLater => "came later",
            Self::Gone => "gone",
        })
    }
}

/// How many series of a target are not watched, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExcludedSeries([usize; Exclusion::REASONS.len()]);

impl ExcludedSeries {
    /// The number of each of [`Exclusion::REASONS`].
    #[must_use]
    pub const fn counts(self) -> [usize; Exclusion::REASONS.len()] {
        self.0
    }

    /// These and those of another target.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let mut sum = self;
        for (count, more) in sum.0.iter_mut().zip(other.0) {
            *count += more;
        }
        sum
    }

    /// Adds a series.
    pub(crate) fn add(&mut self, why: &Exclusion) {
        if let Some(count) = self.0.get_mut(why.place()) {
            *count += 1;
        }
    }

    /// Adds `samples` samples that are no series.
    pub(crate) fn add_ignored(&mut self, samples: usize) {
        if let Some(count) = self.0.last_mut() {
            *count += samples;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_place_of_its_own() {
        let all = [
            Exclusion::NotAllowed,
            Exclusion::Denied,
            Exclusion::Constant,
            Exclusion::TimeOfDay,
            Exclusion::Exporter,
            Exclusion::Redundant("another".into()),
            Exclusion::NoRoom,
            Exclusion::Labels,
            Exclusion::CameLater,
            Exclusion::Gone,
        ];
        let mut counted = ExcludedSeries::default();

        for why in &all {
            counted.add(why);
        }
        counted.add_ignored(1);

        assert!(all.iter().all(|why| Exclusion::at(why.place()) == *why));
        assert_eq!(counted.counts(), [1; Exclusion::REASONS.len()]);
        assert_eq!(counted.and(counted).counts(), [2; Exclusion::REASONS.len()]);
    }
}
