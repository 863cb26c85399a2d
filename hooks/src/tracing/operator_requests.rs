//! What operators ask for while the node runs: the traces through one service, from now on and for a time.
//!
//! A request holds on this node only. What it selects is announced to the others as any other trace is.
//!
//! *Memory*: at most [`OperatorRequest::MAX`] requests of a tenant, less than 1 KiB each.

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
    /// Its name without that of its tenant before it, where spans may have either of them; `None`: they may not.
    pub short_name: Option<String>,
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
        "{} requests for the traces of one tenant go on at this node, which is the most: the next one ends in {next}",
        OperatorRequest::MAX
    )]
    TooMany {
        /// The time until one ends.
        next: Nanos,
    },
    /// As many requests go on as one who asks may have.
    #[error(
        "{} requests for traces by {by} go on, which is the most of one who asks: the next one ends in {next}",
        OperatorRequest::MAX_BY_ONE
    )]
    TooManyByOne {
        /// Who asks, as it is shown.
        by: String,
        /// The time until one of them ends.
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
    /// Most requests that go on at a time, of each tenant.
    pub const MAX: usize = 8;
    /// Most of them by one who asks: others have room beside whoever asks for much.
    pub const MAX_BY_ONE: usize = Self::MAX / 2;

    /// Who asks, as it is shown.
    fn shown_by(&self) -> Box<str> {
        let by = printable::line(&self.by);
        by[..by.floor_char_boundary(BY_BYTES)].into()
    }

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
        Ok(Reason::Trigger { text: format!("{why}, by {}", self.shown_by()).into() })
    }

    /// Whether spans of this node have one of its names, and the `operation` if one is given.
    fn has_spans(&self, names: &Names, operation: Option<&str>) -> bool {
        let short = self.short_name.as_deref();
        names.has_spans(&self.service, operation) || short.is_some_and(|short| names.has_spans(short, operation))
    }

    /// Accepts it at `now`, where spans have these names.
    fn accept(&self, names: &Names, now: Nanos) -> Result<AcceptedRequest, OperatorRequestError> {
        let Self { service, short_name, operation, length, .. } = self;
        if !(Self::SHORTEST..=Self::LONGEST).contains(length) {
            return Err(OperatorRequestError::Length { length: *length });
        }
        if !self.has_spans(names, None) {
            return Err(OperatorRequestError::NoService(shown(service)));
        }
        if let Some(operation) = operation
            && !self.has_spans(names, Some(operation))
        {
            let (service, operation) = (shown(service), shown(operation));
            return Err(OperatorRequestError::NoOperation { service, operation });
        }
        Ok(AcceptedRequest {
            service: service.as_str().into(),
            short_name: short_name.as_deref().map(Into::into),
            operation: operation.as_deref().map(Into::into),
            until: now.plus(*length),
            by: self.shown_by(),
            reason: Arc::new(self.reason()?),
            is_searched: false,
            awaits_search: true,
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
    short_name: Option<Box<str>>,
    operation: Option<Box<str>>,
    until: Nanos,
    by: Box<str>,
    reason: Arc<Reason>,
    /// The pass through the buffer that goes on looks for it.
    is_searched: bool,
    /// The next pass does.
    awaits_search: bool,
}

impl AcceptedRequest {
    /// Whether it is about the same service and operation.
    fn is_same(&self, other: &Self) -> bool {
        (&self.service, &self.operation) == (&other.service, &other.operation)
    }

    /// Whether it has its place at `now`: its time is not over, or its traces are not all looked at.
    fn goes_on(&self, now: Nanos) -> bool {
        now < self.until || self.is_searched || self.awaits_search
    }

    /// Whether it asks for a span of this service and operation.
    fn is_about<'a>(&self, service: &str, operation: impl Fn() -> &'a str) -> bool {
        let is_named = *self.service == *service || self.short_name.as_deref() == Some(service);
        is_named && self.operation.as_deref().is_none_or(|wanted| wanted == operation())
    }
}

/// The requests that go on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OperatorRequests(Vec<AcceptedRequest>);

impl OperatorRequests {
    /// Has `request` hold from `now` on. It takes the place of an earlier one about the same service and operation. The
    /// buffer is searched for it, unless it only shortens the earlier one.
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
        let mut accepted = request.accept(names, now)?;
        self.0.retain(|known| known.goes_on(now));
        let place = self.0.iter().position(|known| known.is_same(&accepted));
        self.check_room(place, &accepted.by, now)?;
        let Some(earlier) = place.and_then(|place| self.0.get_mut(place)) else {
            self.0.push(accepted);
            return Ok(());
        };
        accepted.is_searched = earlier.is_searched;
        accepted.awaits_search = earlier.awaits_search || earlier.until < accepted.until;
        *earlier = accepted;
        Ok(())
    }

    /// Whether `by` may have one more at `now`, beside those that are not at `place`.
    fn check_room(&self, place: Option<usize>, by: &str, now: Nanos) -> Result<(), OperatorRequestError> {
        let others = || self.0.iter().enumerate().filter(move |(at, _)| Some(*at) != place).map(|(_, known)| known);
        let by_one = || others().filter(move |known| *known.by == *by);
        if by_one().count() >= OperatorRequest::MAX_BY_ONE {
            return Err(OperatorRequestError::TooManyByOne { by: by.to_owned(), next: first_end(by_one(), now) });
        }
        if others().count() >= OperatorRequest::MAX {
            return Err(OperatorRequestError::TooMany { next: first_end(others(), now) });
        }
        Ok(())
    }

    /// The reason that a trace has with a span of `service` and `operation` that comes at `now`; `None` if nobody asks
    /// for it. O(1): at most [`OperatorRequest::MAX`] comparisons, none without a request.
    pub(super) fn reason<'a>(&self, service: &str, operation: impl Fn() -> &'a str, now: Nanos) -> Option<Arc<Reason>> {
        let mut going_on = self.0.iter().filter(|request| now < request.until);
        going_on.find(|request| request.is_about(service, &operation)).map(|request| Arc::clone(&request.reason))
    }

    /// Like [`reason`](Self::reason), for what the pass through the buffer looks at: a trace that arrived at `arrived`,
    /// before the request's time was over, whenever it is looked at.
    pub(super) fn reason_in_pass<'a>(
        &self,
        service: &str,
        operation: impl Fn() -> &'a str,
        arrived: Nanos,
    ) -> Option<Arc<Reason>> {
        let mut searched = self.0.iter().filter(|request| request.is_searched && arrived < request.until);
        searched.find(|request| request.is_about(service, &operation)).map(|request| Arc::clone(&request.reason))
    }

    /// Begins a pass through the buffer, for all requests that wait for one. `false`: none does.
    pub(super) fn begin_pass(&mut self) -> bool {
        for request in &mut self.0 {
            request.is_searched = core::mem::take(&mut request.awaits_search);
        }
        self.0.iter().any(|request| request.is_searched)
    }

    /// The pass has come to the end of the buffer.
    pub(super) fn end_pass(&mut self) {
        self.0.iter_mut().for_each(|request| request.is_searched = false);
    }
}

/// The time from `now` until the first of `requests` ends.
fn first_end<'a>(requests: impl Iterator<Item = &'a AcceptedRequest>, now: Nanos) -> Nanos {
    requests.filter_map(|request| request.until.since(now)).min().unwrap_or_default()
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
            short_name: None,
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
    fn spans_may_have_the_short_name_or_the_whole_one_and_one_of_them_has_to_be_known() {
        let (mut requests, names) = (OperatorRequests::default(), names());
        let either = |service: &str, short: &str| OperatorRequest {
            short_name: Some(short.to_owned()),
            operation: Some("get".to_owned()),
            ..request(service, 30)
        };

        requests.insert(&either("default/a", "a"), &names, Nanos::ZERO).unwrap();
        requests.insert(&either("b", "default/b"), &names, Nanos::ZERO).unwrap();
        let neither = requests.insert(&either("default/z", "z"), &names, Nanos::ZERO);

        assert_eq!(neither, Err(OperatorRequestError::NoService("default/z".to_owned())));
        for service in ["a", "default/a", "b", "default/b"] {
            assert!(text(&requests, service, "get", 1).is_some(), "{service}");
            assert!(text(&requests, service, "put", 1).is_none(), "{service}");
        }
        assert_eq!(text(&requests, "a", "get", 1).unwrap(), "asked for: 30 s of default/a, by user 7");
    }

    #[test]
    fn a_pass_through_the_buffer_is_for_what_waits_for_it_and_ends_before_the_next_one() {
        let (mut requests, names) = (OperatorRequests::default(), names());
        let ask = |requests: &mut OperatorRequests, service: &str, seconds: u64, second: u64| {
            requests.insert(&request(service, seconds), &names, Nanos::from_secs(second)).unwrap();
        };
        let found = |requests: &OperatorRequests, service: &str, arrived: u64| {
            requests.reason_in_pass(service, || "get", Nanos::from_secs(arrived)).is_some()
        };
        assert!(!requests.begin_pass(), "nobody asks");

        ask(&mut requests, "a", 1, 10);
        assert!(!found(&requests, "a", 9));
        assert!(requests.begin_pass());
        // What arrived before its time was over, whenever that is looked at.
        assert!(found(&requests, "a", 10) && !found(&requests, "a", 11) && !found(&requests, "b", 10));
        ask(&mut requests, "b", 30, 20);
        assert!(found(&requests, "a", 9) && !found(&requests, "b", 9), "b waits for the next pass");
        requests.end_pass();
        assert!(requests.begin_pass());
        assert!(!found(&requests, "a", 9) && found(&requests, "b", 9));
        requests.end_pass();

        assert!(!requests.begin_pass());
        ask(&mut requests, "b", 5, 21);
        assert!(!requests.begin_pass(), "it is only shortened");
        ask(&mut requests, "b", 60, 22);
        assert!(requests.begin_pass());
        // Longer while it is searched for: this pass goes on for it, and another one follows.
        ask(&mut requests, "b", 120, 22);
        assert!(found(&requests, "b", 9));
        requests.end_pass();
        assert!(requests.begin_pass());
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
    }

    #[test]
    fn eight_requests_go_on_and_four_by_one_who_asks() {
        let (mut requests, names) = (OperatorRequests::default(), names());
        let mut ask = |service: char, by: &str, seconds: u64, second: u64| {
            let request = OperatorRequest { by: by.to_owned(), ..request(&service.to_string(), seconds) };
            let asked = requests.insert(&request, &names, Nanos::from_secs(second));
            // All that is buffered is looked at.
            requests.begin_pass();
            requests.end_pass();
            asked
        };

        for service in 'a'..='d' {
            ask(service, "user 7", 30, 10).unwrap();
        }
        let (by, next) = ("user 7".to_owned(), Nanos::from_secs(25));
        assert_eq!(ask('e', "user 7", 30, 15), Err(OperatorRequestError::TooManyByOne { by, next }));
        for service in 'e'..='h' {
            ask(service, "user 8", 30, 10).unwrap();
        }
        assert_eq!(ask('i', "user 9", 30, 15), Err(OperatorRequestError::TooMany { next }));
        assert!(ask('a', "user 8", 60, 15).is_err(), "nor in the place of another's");
        assert_eq!(ask('h', "user 8", 60, 15), Ok(()), "it is known");
        assert_eq!(ask('h', "user 9", 60, 15), Ok(()), "the place is another's then");
        assert_eq!(ask('i', "user 7", 30, 40), Ok(()), "others have ended");
    }
}
