//! The address of an incident: when its first alarm began.

use core::fmt;
use core::str::FromStr;

use crate::date::Date;
use crate::time::UnixNanos;

const MS_PER_DAY: u64 = 86_400_000;

/// Names an incident of a node: the begin of its first alarm, in milliseconds since 1970.
///
/// As text `20261127-064215-123`, in UTC: it sorts by time, needs no counter that has to survive a restart, and can
/// stand in an address, in the name of a file and in an attribute of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IncidentId(u64);

impl IncidentId {
    /// The incident whose first alarm `began` then.
    #[must_use]
    pub const fn of(began: UnixNanos) -> Self {
        Self(began.millis())
    }

    /// When its first alarm began, in whole milliseconds.
    #[must_use]
    pub const fn began(self) -> UnixNanos {
        UnixNanos::from_millis(self.0)
    }

    /// Its address among those of all nodes: the node's name, a slash, and the id.
    #[must_use]
    pub fn at(self, node: &str) -> String {
        format!("{node}/{self}")
    }
}

/// A text that is no id of an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an incident is named by its begin in UTC, such as 20261127-064215-123")]
pub struct IncidentIdError;

impl fmt::Display for IncidentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Date { year, month, day }, ms) = (Date::after(self.0 / MS_PER_DAY), self.0 % MS_PER_DAY);
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
        write!(f, "{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}-{:03}", ms % 1_000)
    }
}

impl FromStr for IncidentId {
    type Err = IncidentIdError;

    /// Reads what [`Display`](fmt::Display) writes, and nothing else.
    fn from_str(text: &str) -> Result<Self, IncidentIdError> {
        let mut parts = text.split('-');
        let mut number = |digits: usize| {
            let part = parts.next()?;
            let fits = part.len() >= digits && part.len() <= 12 && part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse::<u64>().ok().filter(|_| fits)
        };
        let (day, time, ms) = (number(8), number(6), number(3));
        let (Some(day), Some(time), Some(ms), None) = (day, time, ms, parts.next()) else {
            return Err(IncidentIdError);
        };
        let date = Date { year: day / 10_000, month: day / 100 % 100, day: day % 100 };
        let days = date.days().ok_or(IncidentIdError)?;
        let seconds = time / 10_000 * 3_600 + time / 100 % 100 * 60 + time % 100;
        let all = days.checked_mul(MS_PER_DAY).and_then(|all| all.checked_add(seconds * 1_000 + ms));
        let id = all.map(Self).ok_or(IncidentIdError)?;
        // 25 hours, or the 31st of June, have another way to be written.
        if id.to_string() == text { Ok(id) } else { Err(IncidentIdError) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_id_says_when_its_incident_began() {
        let id = IncidentId::of(UnixNanos(1_795_761_735_123_456_789));

        assert_eq!((id.to_string(), id.at("node-3")), ("20261127-064215-123".to_owned(), format!("node-3/{id}")));
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(IncidentId::of(UnixNanos(0)).to_string(), "19700101-000000-000");
        assert_eq!(IncidentId::of(UnixNanos(951_782_400_000_000_000)).to_string(), "20000229-000000-000");
    }

    #[test]
    fn what_is_no_begin_names_no_incident() {
        for text in [
            "",
            "1",
            "20261127",
            "20261127-064215",
            "20261127-064215-123-4",
            "20261327-064215-123",
            "20260631-064215-123",
            "20261127-254215-123",
            "20261127-064260-123",
            "19691231-235959-999",
            "+0261127-064215-123",
            "20261127-064215-12x",
            "../../etc/passwd",
        ] {
            assert_eq!(text.parse::<IncidentId>(), Err(IncidentIdError), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_id_is_read_as_it_is_written_and_sorts_by_time(one in 0..253_402_300_800_000_u64, other in 0..253_402_300_800_000_u64) {
            let (one, other) = (IncidentId(one), IncidentId(other));
            prop_assert_eq!(one.to_string().parse(), Ok(one));
            prop_assert_eq!(one.to_string().cmp(&other.to_string()), one.cmp(&other));
        }

        #[test]
        fn any_text_is_an_id_or_none(text in ".*") {
            _ = text.parse::<IncidentId>();
        }
    }
}
