//! Interprets a receiver's replies, and says when to send again. Pure: time and randomness are arguments.

use agent_runtime::http_client::retry_after;
use wire::backoff::RetryRule;
use wire::time::{Nanos, UnixNanos};

use crate::encoding::Version;

/// Reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// An HTTP response of remote write.
    Http {
        /// HTTP status code.
        status: u16,
        /// Header `X-Prometheus-Remote-Write-Samples-Written`: samples that were written.
        samples_written: Option<u64>,
        /// Header `X-Prometheus-Remote-Write-Exemplars-Written`: exemplars that were written.
        exemplars_written: Option<u64>,
        /// Whether any `X-Prometheus-Remote-Write-*-Written` header was present.
        any_written: bool,
        /// Header `Retry-After`, unparsed.
        retry_after: Option<String>,
    },
    /// OTLP: the request was accepted, except for some data points.
    OtlpAccepted {
        /// Rejected data points, from a partial success.
        rejected: u64,
    },
    /// OTLP: the request failed.
    OtlpFailed {
        /// A retry may succeed.
        retryable: bool,
        /// Pause that the receiver asks for.
        retry_after: Option<Nanos>,
    },
    /// No reply: no connection, a broken one, or a timeout. Whether the request was accepted is unknown.
    None,
}

/// What to do after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyAction {
    /// This many samples were written, the others were refused. Do not send again.
    Written(u64),
    /// The receiver does not know this version: send the same samples in the other one.
    OtherVersion,
    /// Send the same samples again, after this pause.
    Retry(Nanos),
}

/// The request that a reply belongs to.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext {
    /// Samples and stale markers in the request.
    pub points: u64,
    /// Version of its message.
    pub version: Version,
    /// Whether the other version may be tried: none was configured.
    pub negotiable: bool,
    /// Whether this receiver is known to support the version.
    pub confirmed: bool,
    /// Failures in a row, this one included.
    pub failures: u32,
}

/// Interprets a reply.
///
/// - 2xx: written. With 2.0 and none of the headers it is a receiver of 1.0, which read an empty message. With 1.0 a
///   missing header means nothing; with 2.0 it means that no sample was written.
/// - 415, and 400 from a receiver that is not known to support 2.0: the other version.
/// - 429, 5xx and no reply: retry.
/// - Everything else: refused, except for what the header says was written (a partial write). No retry.
#[must_use]
pub fn interpret(context: RequestContext, reply: &Reply, rule: &RetryRule, now: UnixNanos, random: f64) -> ReplyAction {
    let retry = |asked| ReplyAction::Retry(rule.pause(context.failures, asked, random));
    let (status, samples_written, any_written, asks) = match reply {
        Reply::Http { status, samples_written, any_written, retry_after, .. } => {
            (status, samples_written, any_written, retry_after)
        }
        Reply::OtlpAccepted { rejected } => return ReplyAction::Written(context.points.saturating_sub(*rejected)),
        Reply::OtlpFailed { retryable: false, .. } => return ReplyAction::Written(0),
        Reply::OtlpFailed { retryable: true, retry_after: asked } => return retry(*asked),
        Reply::None => return retry(None),
    };
    let two = context.version == Version::V2;
    match status {
        200..=299 if two && !any_written && context.negotiable => ReplyAction::OtherVersion,
        // 2.0 was configured: samples that the receiver does not confirm count as not written.
        200..=299 if two => ReplyAction::Written(samples_written.unwrap_or(0).min(context.points)),
        200..=299 => ReplyAction::Written(samples_written.unwrap_or(context.points).min(context.points)),
        415 if context.negotiable && two => ReplyAction::OtherVersion,
        400 if context.negotiable && two && !context.confirmed && !any_written => ReplyAction::OtherVersion,
        429 | 500..=599 => retry(asks.as_deref().and_then(|text| retry_after(text, now))),
        _ => ReplyAction::Written(samples_written.unwrap_or(0).min(context.points)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixNanos = UnixNanos::from_secs(784_111_770);

    fn context(version: Version) -> RequestContext {
        RequestContext { points: 10, version, negotiable: true, confirmed: false, failures: 0 }
    }

    fn http(status: u16, samples_written: Option<u64>) -> Reply {
        Reply::Http {
            status,
            samples_written,
            exemplars_written: None,
            any_written: samples_written.is_some(),
            retry_after: None,
        }
    }

    fn read(context: RequestContext, reply: &Reply) -> ReplyAction {
        interpret(context, reply, &RetryRule::default(), NOW, 0.0)
    }

    #[test]
    fn a_receiver_of_one_is_found_out_by_its_status_or_by_what_it_does_not_say() {
        let two = context(Version::V2);
        assert_eq!(read(two, &http(415, None)), ReplyAction::OtherVersion);
        assert_eq!(read(two, &http(204, None)), ReplyAction::OtherVersion);
        assert_eq!(read(two, &http(400, None)), ReplyAction::OtherVersion);

        // It supports 2.0: the reply is about the samples.
        let confirmed = RequestContext { confirmed: true, ..two };
        assert_eq!(read(confirmed, &http(400, None)), ReplyAction::Written(0));
        assert_eq!(read(confirmed, &http(400, Some(7))), ReplyAction::Written(7));
        // The version was configured: there is no other one.
        let chosen = RequestContext { negotiable: false, ..two };
        assert_eq!(read(chosen, &http(415, None)), ReplyAction::Written(0));
        assert_eq!(read(chosen, &http(204, None)), ReplyAction::Written(0));
    }

    #[test]
    fn what_was_written_is_what_the_header_says_and_a_receiver_of_one_need_not_say_it() {
        assert_eq!(read(context(Version::V2), &http(204, Some(10))), ReplyAction::Written(10));
        assert_eq!(read(context(Version::V2), &http(200, Some(9))), ReplyAction::Written(9));
        assert_eq!(read(context(Version::V2), &http(204, Some(99))), ReplyAction::Written(10));
        assert_eq!(read(context(Version::V1), &http(204, None)), ReplyAction::Written(10));
        assert_eq!(read(context(Version::V1), &http(400, None)), ReplyAction::Written(0));
        let histograms_only = Reply::Http {
            status: 204,
            samples_written: None,
            exemplars_written: None,
            any_written: true,
            retry_after: None,
        };
        assert_eq!(read(context(Version::V2), &histograms_only), ReplyAction::Written(0));
    }

    #[test]
    fn only_what_may_pass_is_sent_again() {
        for status in [301, 400, 401, 403, 404, 408, 413, 415, 422] {
            assert_eq!(read(context(Version::V1), &http(status, None)), ReplyAction::Written(0), "{status}");
        }
        for status in [429, 500, 502, 503, 504, 599] {
            assert!(matches!(read(context(Version::V1), &http(status, None)), ReplyAction::Retry(_)), "{status}");
            assert!(matches!(read(context(Version::V2), &http(status, Some(3))), ReplyAction::Retry(_)), "{status}");
        }
        assert!(matches!(read(context(Version::V2), &Reply::None), ReplyAction::Retry(_)));
    }

    #[test]
    fn what_a_receiver_asks_for_is_waited_for_and_nothing_makes_it_endless() {
        let asking = |text: &str| Reply::Http {
            status: 429,
            samples_written: None,
            exemplars_written: None,
            any_written: false,
            retry_after: Some(text.to_owned()),
        };
        let one = context(Version::V1);
        assert_eq!(read(one, &asking("7")), ReplyAction::Retry(Nanos::from_secs(7)));
        assert_eq!(read(one, &asking("Sun, 06 Nov 1994 08:49:37 GMT")), ReplyAction::Retry(Nanos::from_secs(7)));
        assert_eq!(read(one, &asking("0")), ReplyAction::Retry(Nanos::from_millis(100)));
        assert_eq!(read(one, &asking("soon")), ReplyAction::Retry(Nanos::from_millis(100)));
        assert_eq!(read(one, &asking("99999999999999999")), ReplyAction::Retry(Nanos::from_secs(600)));
    }
}
