//! Dates of the calendar, in UTC.
//!
//! Source: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days` and `days_from_civil`: years
//! begin in March, and eras of 400 years have 146,097 days.

use core::fmt;

use crate::time::UnixNanos;

const SECONDS_PER_DAY: u64 = 86_400;
/// Days from March 1 of year 0 to 1970.
const DAYS_BEFORE_1970: u64 = 719_468;
const DAYS_PER_ERA: u64 = 146_097;

/// A date of the Gregorian calendar, 1970 or later. Its text is that of ISO 8601, such as `2026-11-27`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// Year of the calendar.
    pub year: u64,
    /// Month, from 1 on.
    pub month: u64,
    /// Day of the month, from 1 on.
    pub day: u64,
}

impl Date {
    /// The date on which a moment is.
    #[must_use]
    pub fn of(at: UnixNanos) -> Self {
        Self::after(at.second() / SECONDS_PER_DAY)
    }

    /// The date so many days after 1970-01-01.
    #[must_use]
    pub fn after(days: u64) -> Self {
        let days = days.saturating_add(DAYS_BEFORE_1970);
        let (era, of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        Self { year: year_of_era + era * 400 + u64::from(month <= 2), month, day }
    }

    /// Days from 1970-01-01 on; `None` before it, and if no month has this number, or no month so many days. The 31st
    /// of June is the 1st of July.
    #[must_use]
    pub fn days(self) -> Option<u64> {
        let Self { year, month, day } = self;
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        let year = year.checked_sub(u64::from(month <= 2))?;
        let (era, of_era) = (year / 400, year % 400);
        let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
        let days = era.checked_mul(DAYS_PER_ERA)?.checked_add(of_era * 365 + of_era / 4 - of_era / 100 + of_year)?;
        days.checked_sub(DAYS_BEFORE_1970)
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, text) in [(0, "1970-01-01"), (11_016, "2000-02-29"), (19_675, "2023-11-14"), (47_541, "2100-03-01")]
        {
            let date = Date::after(days);

            assert_eq!((date.to_string().as_str(), date.days()), (text, Some(days)));
            assert_eq!(Date::of(UnixNanos::from_secs((days + 1) * SECONDS_PER_DAY - 1)), date, "{text}");
        }
    }

    #[test]
    fn what_is_no_date_has_no_day_and_no_number_of_days_is_too_large() {
        for (year, month, day) in [(1969, 12, 31), (2026, 0, 1), (2026, 13, 1), (2026, 1, 32), (u64::MAX, 3, 1)] {
            assert_eq!(Date { year, month, day }.days(), None, "{year} {month} {day}");
        }
        assert!(Date::after(u64::MAX).year > 1_000_000);
    }
}
