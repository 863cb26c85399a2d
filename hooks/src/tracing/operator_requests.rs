//! What operators ask for while the node runs: the traces through one service, from now on and for a time.
//!
//! A request holds on this node only. What it selects is announced to the others as any other trace is.
//!
//! *Memory*: at most [`OperatorRequest::MAX`] requests, less than 1 KiB each.

use std::borrow::Cow;
use std::sync::Arc;

use wire::printable;
use wire::quantity::quantity;
use wire::time::Nanos;

use crate::paths::Names;
use crate::tracing::reason::Reason;

/// Bytes of who asks; more are cut.
const BY_BYTES: usize = 96;
/// Bytes of a name that an error repeats.
const SHOWN_BYTES: usize = 128;

/// An operator asks for the traces through one service, or through one operation of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorRequest {
    /// Name of the service, as in its spans.
    pub service: String,
    /// Name of the only operation, as in its spans; `None`: all of them.
    pub operation: Option<String>,
    /// For how long from now on: [`SHORTEST`](Self::SHORTEST) to [`LONGEST`](Self::LONGEST).
    pub length: Nanos,
    /// Why, for the reason of kept traces: at most [`WHY_BYTES`](Self::WHY_BYTES), with what is not printable written
    /// out. Empty: not said.
    pub why: String,
    /// Who asks, for the same; cut after 96 bytes.
    pub by: String,
}

/// Why traces are not kept for an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperatorRequestError {
    /// The service is not known: its name may be another one.
    #[error("no span of {0} has come to this node within the last hour: `uview receipt` lists its services")]
    NoService(String),
    /// The service is known, the operation is not.
    #[error(
        "no span {operation} of {service} has come to this node within the last hour: leave the operation out, or take \
         the name of one of its spans"
    )]
    NoOperation {
        /// Name of the service.
        service: String,
        /// Name of the operation.
        operation: String,
    },
    /// The time is too short or too long.
    #[error("for {length}: {} to {} are possible", OperatorRequest::SHORTEST, OperatorRequest::LONGEST)]
    Length {
        /// The time that was asked for.
        length: Nanos,
    },
    /// The reason is too long.
    #[error("the reason has {bytes} bytes as it is shown: at most {} are possible", OperatorRequest::WHY_BYTES)]
    Why {
        /// Bytes of the reason, with what is not printable written out.
        bytes: usize,
    },
    /// As many requests as possible go on.
    #[error(
        "{} requests for traces go on at this node, which is the most: the next one ends in {next}",
        OperatorRequest::MAX
    )]
    TooMany {
        /// The time until one ends.
        next: Nanos,
    },
}

impl OperatorRequest {
    /// The shortest time: 1 s.
    pub const SHORTEST: Nanos = Nanos::from_secs(1);
    /// The longest time: 10 min.
    pub const LONGEST: Nanos = Nanos::from_secs(600);
    /// Most bytes of why.
    pub const WHY_BYTES: usize = 128;
    /// Most requests that go on at a time.
    pub const MAX: usize = 8;

    /// The reason of the traces that are kept for it. Who asks comes last, so that nobody can ask in another's name.
    fn reason(&self) -> Result<Reason, OperatorRequestError> {
        let why = match printable::line(&self.why) {
            // Known, and so printable and short.
            why if why.is_empty() => {
                Cow::Owned(format!("{} of {}", quantity(self.length.as_secs_f64(), "s"), self.service))
            }
            why if why.len() <= Self::WHY_BYTES => why,
            why => return Err(OperatorRequestError::Why { bytes: why.len() }),
        };
        let by = printable::line(&self.by);
        let by = &by[..by.floor_char_boundary(BY_BYTES)];
        Ok(Reason::Trigger { text: format!("{why}, by {by}").into() })
    }

    /// Accepts it at `now`, where these names are known.
    fn accept(&self, names: &Names, now: Nanos) -> Result<AcceptedRequest, OperatorRequestError> {
        let Self { service, operation, length, .. } = self;
        if !(Self::SHORTEST..=Self::LONGEST).contains(length) {
            return Err(OperatorRequestError::Length { length: *length });
        }
        if !names.has_service(service) {
            return Err(OperatorRequestError::NoService(shown(service)));
        }
        if let Some(operation) = operation {
            let known = names.known_operation(service, operation).map(|known| names.operation_name(known));
            if known != Some(operation.as_str()) {
                let (service, operation) = (shown(service), shown(operation));
                return Err(OperatorRequestError::NoOperation { service, operation });
            }
        }
        Ok(AcceptedRequest {
            service: service.as_str().into(),
            operation: operation.as_deref().map(Into::into),
            until: now.plus(*length),
            reason: Arc::new(self.reason()?),
        })
    }
}

/// A name for an error.
fn shown(name: &str) -> String {
    printable::line(&name[..name.floor_char_boundary(SHOWN_BYTES)]).into_owned()
}

/// A request that was checked.
#[derive(Clone, Debug, PartialEq)]
struct AcceptedRequest {
    service: Box<str>,
    operation: Option<Box<str>>,
    until: Nanos,
    reason: Arc<Reason>,
}

/// The requests that go on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OperatorRequests(Vec<AcceptedRequest>);

impl OperatorRequests {
    /// Has `request` hold from `now` on. It takes the place of an earlier one about the same service and operation.
    ///
    /// # Errors
    ///
    /// [`OperatorRequestError`]; then nothing has changed.
    pub(super) fn insert(
        &mut self,
        request: &OperatorRequest,
        names: &Names,
        now: Nanos,
    ) -> Result<(), OperatorRequestError> {
        let accepted = request.accept(names, now)?;
        self.0.retain(|known| now < known.until);
        let is_same =
            |known: &AcceptedRequest| known.service == accepted.service && known.operation == accepted.operation;
        if let Some(place) = self.0.iter().position(is_same) {
            self.0[place] = accepted;
            return Ok(());
        }
        if self.0.len() >= OperatorRequest::MAX {
            let next = self.0.iter().filter_map(|known| known.until.since(now)).min().unwrap_or_default();
            return Err(OperatorRequestError::TooMany { next });
        }
        self.0.push(accepted);
        Ok(())
    }

    /// The reason that a trace has with a span of `service` and `operation` that is looked at at `now`; `None` if nobody
    /// asks for it. O(1): at most [`OperatorRequest::MAX`] comparisons, none without a request.
    pub(super) fn reason<'a>(&self, service: &str, operation: impl Fn() -> &'a str, now: Nanos) -> Option<Arc<Reason>> {
        let is_of = |wanted: &str| wanted == operation();
        let is_about = |request: &&AcceptedRequest| {
            now < request.until && *request.service == *service && request.operation.as_deref().is_none_or(is_of)
        };
        self.0.iter().find(is_about).map(|request| Arc::clone(&request.reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::NameLimits;

    /// The services `a` to `i`, each with the operation `get`.
    fn names() -> Names {
        let mut names = Names::new(NameLimits::default());
        for service in 'a'..='i' {
            let service = names.service(&service.to_string(), Nanos::ZERO);
            let _get = names.operation(service, "get", Nanos::ZERO);
        }
        names
    }

    fn request(service: &str, seconds: u64) -> OperatorRequest {
        OperatorRequest {
            service: service.to_owned(),
            operation: None,
            length: Nanos::from_secs(seconds),
            why: String::new(),
            by: "user 7".to_owned(),
        }
    }

    fn text(requests: &OperatorRequests, service: &str, operation: &'static str, second: u64) -> Option<String> {
        let reason = requests.reason(service, || operation, Nanos::from_secs(second))?;
        Some(reason.to_string())
    }

    #[test]
    fn a_request_is_about_its_service_for_its_time_and_the_same_again_takes_its_place() {
        let (mut requests, names) = (OperatorRequests::default(), names());
        requests.insert(&request("a", 30), &names, Nanos::from_secs(10)).unwrap();

        assert_eq!(text(&requests, "a", "get", 10).as_deref(), Some("asked for: 30 s of a, by user 7"));
        assert_eq!(text(&requests, "a", "get", 39).as_deref(), Some("asked for: 30 s of a, by user 7"));
        assert_eq!((text(&requests, "a", "get", 40), text(&requests, "b", "get", 10)), (None, None));
        let again = OperatorRequest { why: "it is slow".to_owned(), ..request("a", 60) };
        requests.insert(&again, &names, Nanos::from_secs(20)).unwrap();
        assert_eq!(text(&requests, "a", "get", 79).as_deref(), Some("asked for: it is slow, by user 7"));
        assert_eq!(requests.0.len(), 1);
        let of_one = OperatorRequest { operation: Some("get".to_owned()), ..request("b", 30) };
        requests.insert(&of_one, &names, Nanos::from_secs(20)).unwrap();
        assert!(text(&requests, "b", "get", 20).is_some() && text(&requests, "b", "put", 20).is_none());
    }

    #[test]
    fn the_reason_is_printable_and_bounded_and_who_asks_comes_last() {
        let reason = |why: &str, by: &str| {
            let (why, by) = (why.to_owned(), by.to_owned());
            OperatorRequest { why, by, ..request("a", 30) }.reason().map(|reason| reason.to_string())
        };

        let hostile = reason("slow\u{1b}[2J\nit is, by root", "user 7").unwrap();
        assert_eq!(hostile, "asked for: slow\\u{1b}[2J\\u{a}it is, by root, by user 7");
        assert_eq!(reason(&"é".repeat(64), &"é".repeat(99)).unwrap().len(), "asked for: ".len() + 128 + 5 + 96);
        assert_eq!(reason(&"é".repeat(65), "user 7"), Err(OperatorRequestError::Why { bytes: 130 }));
        // Six bytes each, as they are shown.
        assert_eq!(reason(&"\u{1b}".repeat(22), "user 7"), Err(OperatorRequestError::Why { bytes: 132 }));
    }

    #[test]
    fn what_is_out_of_bounds_or_unknown_is_refused_with_what_to_do_and_changes_nothing() {
        let (mut requests, names) = (OperatorRequests::default(), names());
        let mut refused = |request: &OperatorRequest, second| {
            let before = requests.clone();
            let error = requests.insert(request, &names, Nanos::from_secs(second)).unwrap_err();
            assert_eq!(requests, before);
            error.to_string()
        };

        let short = OperatorRequest { length: Nanos::from_millis(999), ..request("a", 0) };
        assert_eq!(refused(&short, 0), "for 999ms: 1s to 600s are possible");
        assert_eq!(refused(&request("a", 601), 0), "for 601s: 1s to 600s are possible");
        let unknown = refused(&request("z\u{202e}", 30), 0);
        assert!(unknown.starts_with("no span of z\\u{202e} has come to this node within the last hour"), "{unknown}");
        assert!(refused(&request(&"z".repeat(1 << 16), 30), 0).len() < 300, "it is cut");
        let other = OperatorRequest { operation: Some("put".to_owned()), ..request("a", 30) };
        assert!(refused(&other, 0).starts_with("no span put of a has come"));

        for service in 'a'..='h' {
            requests.insert(&request(&service.to_string(), 30), &names, Nanos::from_secs(10)).unwrap();
        }
        let more = requests.insert(&request("i", 30), &names, Nanos::from_secs(15));
        assert_eq!(more, Err(OperatorRequestError::TooMany { next: Nanos::from_secs(25) }));
        assert_eq!(requests.insert(&request("h", 60), &names, Nanos::from_secs(15)), Ok(()), "it is known");
        assert_eq!(requests.insert(&request("i", 30), &names, Nanos::from_secs(40)), Ok(()), "others have ended");
    }
}
