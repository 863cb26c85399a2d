//! What an answer means, and when to try again. Pure: the time comes in, and so does randomness.

use core::time::Duration;
use std::time::UNIX_EPOCH;

use hooks::time::UnixNanos;
use wire::time::Nanos;

use crate::encoding::Version;

/// What came back for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An answer.
    Answered {
        /// Its status.
        status: u16,
        /// Samples that were written, as `X-Prometheus-Remote-Write-Samples-Written` says.
        samples_written: Option<u64>,
        /// Exemplars that were written, as `X-Prometheus-Remote-Write-Exemplars-Written` says.
        exemplars_written: Option<u64>,
        /// Whether there was any of the `X-Prometheus-Remote-Write-*-Written` headers.
        any_written: bool,
        /// `Retry-After`, as it came.
        retry_after: Option<String>,
    },
    /// Of OTLP: it was taken, but for so many data points.
    Exported {
        /// Data points that were not taken, as a partial success says.
        rejected: u64,
    },
    /// Of OTLP: it was not taken.
    Failed {
        /// It may go better next time.
        again: bool,
        /// Not before so long, as the receiver says.
        after: Option<Nanos>,
    },
    /// None: no connection, or it broke, or none in time. Whether the request was taken is not known.
    None,
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// So many samples were written; the others were refused. Not to be sent again.
    Written(u64),
    /// The receiver does not know this version: the same samples in the other one.
    OtherVersion,
    /// The same samples again, not before so long.
    Again(Nanos),
}

/// How long to wait before a request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// At first; doubled each time.
    pub least: Nanos,
    /// At most.
    pub most: Nanos,
    /// At most, whatever `Retry-After` says.
    pub longest_asked: Nanos,
}

impl Default for Backoff {
    /// From 100 ms to 30 s; 10 minutes if asked to.
    fn default() -> Self {
        Self { least: Nanos::from_millis(100), most: Nanos::from_secs(30), longest_asked: Nanos::from_secs(600) }
    }
}

impl Backoff {
    /// The pause after `failures` in a row (from 1), shortened by up to a half: `random` is uniform in \[0, 1).
    #[must_use]
    pub fn pause(&self, failures: u32, random: f64) -> Nanos {
        let doubled = self.least.0.saturating_mul(1_u64.checked_shl(failures.saturating_sub(1)).unwrap_or(u64::MAX));
        let whole = doubled.min(self.most.0);
        Nanos(whole - (whole as f64 / 2.0 * random.clamp(0.0, 1.0)) as u64)
    }
}

/// How long `Retry-After` asks to wait: a number of seconds, or a date, which is held against `now`.
#[must_use]
pub fn retry_after(text: &str, now: UnixNanos) -> Option<Nanos> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Nanos::from_secs(seconds));
    }
    let date: Duration = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(UnixNanos(u64::try_from(date.as_nanos()).unwrap_or(u64::MAX)).since(now))
}

/// What is known when an answer comes.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Samples and marks of the request.
    pub points: u64,
    /// Its version.
    pub version: Version,
    /// Whether the other version may be tried: nobody chose this one.
    pub negotiable: bool,
    /// Whether this receiver has ever shown that it knows this version.
    pub confirmed: bool,
    /// How often it failed in a row, this time included, if it did.
    pub failures: u32,
}

/// Reads an answer.
///
/// - 2xx: written. With 2.0 and none of the headers it is a receiver of 1.0, which read an empty message. With 1.0 a missing header says
///   nothing; with 2.0 it says that no sample was written.
/// - 415, and 400 from a receiver that has never shown that it knows 2.0: the other version.
/// - 429 and 5xx, and no answer at all: again.
/// - Everything else: refused, but for what the header says was written (a partial write). Never again.
#[must_use]
pub fn meaning(asked: Asked, answer: &Answer, backoff: &Backoff, now: UnixNanos, random: f64) -> Meaning {
    let pause = backoff.pause(asked.failures.max(1), random);
    let (status, samples_written, any_written, asks) = match answer {
        Answer::Answered { status, samples_written, any_written, retry_after, .. } => {
            (status, samples_written, any_written, retry_after)
        }
        Answer::Exported { rejected } => return Meaning::Written(asked.points.saturating_sub(*rejected)),
        Answer::Failed { again: false, .. } => return Meaning::Written(0),
        Answer::Failed { again: true, after } => {
            return Meaning::Again(pause.max(after.unwrap_or(Nanos::ZERO).min(backoff.longest_asked)));
        }
        Answer::None => return Meaning::Again(pause),
    };
    let two = asked.version == Version::V2;
    match status {
        200..=299 if two && !any_written && asked.negotiable => Meaning::OtherVersion,
        // Somebody chose 2.0: what a receiver does not say is not known to be written.
        200..=299 if two => Meaning::Written(samples_written.unwrap_or(0).min(asked.points)),
        200..=299 => Meaning::Written(samples_written.unwrap_or(asked.points).min(asked.points)),
        415 if asked.negotiable && two => Meaning::OtherVersion,
        400 if asked.negotiable && two && !asked.confirmed && !any_written => Meaning::OtherVersion,
        429 | 500..=599 => {
            let asks = asks.as_deref().and_then(|text| retry_after(text, now)).unwrap_or(Nanos::ZERO);
            Meaning::Again(pause.max(asks.min(backoff.longest_asked)))
        }
        _ => Meaning::Written(samples_written.unwrap_or(0).min(asked.points)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixNanos = UnixNanos::from_secs(784_111_770);

    fn asked(version: Version) -> Asked {
        Asked { points: 10, version, negotiable: true, confirmed: false, failures: 0 }
    }

    fn answered(status: u16, samples_written: Option<u64>) -> Answer {
        Answer::Answered {
            status,
            samples_written,
            exemplars_written: None,
            any_written: samples_written.is_some(),
            retry_after: None,
        }
    }

    fn read(asked: Asked, answer: &Answer) -> Meaning {
        meaning(asked, answer, &Backoff::default(), NOW, 0.0)
    }

    #[test]
    fn a_receiver_of_one_is_found_out_by_its_status_or_by_what_it_does_not_say() {
        let two = asked(Version::V2);
        assert_eq!(read(two, &answered(415, None)), Meaning::OtherVersion);
        assert_eq!(read(two, &answered(204, None)), Meaning::OtherVersion);
        assert_eq!(read(two, &answered(400, None)), Meaning::OtherVersion);

        // It knows 2.0: what it says now is about the samples.
        let confirmed = Asked { confirmed: true, ..two };
        assert_eq!(read(confirmed, &answered(400, None)), Meaning::Written(0));
        assert_eq!(read(confirmed, &answered(400, Some(7))), Meaning::Written(7));
        // Somebody chose: there is no other version.
        let chosen = Asked { negotiable: false, ..two };
        assert_eq!(read(chosen, &answered(415, None)), Meaning::Written(0));
        assert_eq!(read(chosen, &answered(204, None)), Meaning::Written(0));
    }

    #[test]
    fn what_was_written_is_what_the_header_says_and_a_receiver_of_one_need_not_say_it() {
        assert_eq!(read(asked(Version::V2), &answered(204, Some(10))), Meaning::Written(10));
        assert_eq!(read(asked(Version::V2), &answered(200, Some(9))), Meaning::Written(9));
        assert_eq!(read(asked(Version::V2), &answered(204, Some(99))), Meaning::Written(10));
        assert_eq!(read(asked(Version::V1), &answered(204, None)), Meaning::Written(10));
        assert_eq!(read(asked(Version::V1), &answered(400, None)), Meaning::Written(0));
        let histograms_only = Answer::Answered {
            status: 204,
            samples_written: None,
            exemplars_written: None,
            any_written: true,
            retry_after: None,
        };
        assert_eq!(read(asked(Version::V2), &histograms_only), Meaning::Written(0));
    }

    #[test]
    fn only_what_may_pass_is_sent_again() {
        for status in [301, 400, 401, 403, 404, 408, 413, 415, 422] {
            assert_eq!(read(asked(Version::V1), &answered(status, None)), Meaning::Written(0), "{status}");
        }
        for status in [429, 500, 502, 503, 504, 599] {
            assert!(matches!(read(asked(Version::V1), &answered(status, None)), Meaning::Again(_)), "{status}");
            assert!(matches!(read(asked(Version::V2), &answered(status, Some(3))), Meaning::Again(_)), "{status}");
        }
        assert!(matches!(read(asked(Version::V2), &Answer::None), Meaning::Again(_)));
    }

    #[test]
    fn retry_after_is_a_number_or_a_date_and_nothing_makes_it_endless() {
        assert_eq!(retry_after(" 120 ", NOW), Some(Nanos::from_secs(120)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:37 GMT", NOW), Some(Nanos::from_secs(7)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:40:00 GMT", NOW), Some(Nanos::ZERO));
        for nothing in ["", "soon", "-5", "1.5"] {
            assert_eq!(retry_after(nothing, NOW), None, "{nothing}");
        }

        let asking = |text: &str| Answer::Answered {
            status: 429,
            samples_written: None,
            exemplars_written: None,
            any_written: false,
            retry_after: Some(text.to_owned()),
        };
        let one = asked(Version::V1);
        assert_eq!(read(one, &asking("7")), Meaning::Again(Nanos::from_secs(7)));
        assert_eq!(read(one, &asking("0")), Meaning::Again(Nanos::from_millis(100)));
        assert_eq!(read(one, &asking("99999999999999999")), Meaning::Again(Nanos::from_secs(600)));
    }

    #[test]
    fn pauses_double_up_to_a_bound_and_are_spread() {
        let backoff = Backoff::default();
        let millis: Vec<_> = (1..=10).map(|failures| backoff.pause(failures, 0.0).as_millis()).collect();

        assert_eq!(millis, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000]);
        assert_eq!(backoff.pause(u32::MAX, 0.0), Nanos::from_secs(30));
        assert_eq!(backoff.pause(1, 0.5), Nanos::from_millis(75));
    }
}
