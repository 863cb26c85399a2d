//! One walk over a request's spans, for all who want to see them.

use std::borrow::Cow;

use hooks::id::ServiceId;
use hooks::otlp::{Group, WireError, scan};

use crate::derived::Derived;
use crate::passed::Passed;
use crate::tail::{Found, Moment, Source, Tail};

/// What was worked out for one group holds for all of its spans.
struct Known<'a> {
    group: Group<'a>,
    derived: Option<ServiceId>,
    source: Option<Source>,
}

/// Shows the spans of `request` to `derived`, which knows services by other names, and to `tail`, with what came beside them. Without a tail nothing is taken, and nothing is found.
///
/// # Errors
///
/// [`WireError`] if it is no request; nobody saw anything of it then.
pub(crate) fn walk<N: Fn(&str) -> Cow<'_, str>>(
    request: &[u8],
    mut derived: Option<(&mut Derived, N)>,
    mut tail: Option<(&mut Tail, &Passed)>,
    now: Moment,
) -> Result<Found, WireError> {
    let mut found = Found::default();
    let mut last: Option<Known<'_>> = None;
    scan(request, |group, span| {
        let known = last.take().filter(|known| known.group.is(group)).unwrap_or_else(|| {
            let service = group.service_name().unwrap_or(UNKNOWN);
            Known {
                group: *group,
                derived: derived.as_mut().and_then(|(derived, name)| derived.service(&name(service), now.own)),
                source: tail.as_mut().map(|(tail, passed)| tail.source(group, passed, now.own)),
            }
        });
        if let (Some((derived, _)), Ok(span)) = (&mut derived, &span) {
            derived.see(known.derived, span, now);
        }
        if let (Some((tail, _)), Some(source)) = (tail.as_mut(), known.source) {
            tail.see(&span, source, &mut found, now);
        }
        last = Some(known);
    })?;
    Ok(found)
}

/// What OpenTelemetry calls a service that does not say its name.
pub(crate) const UNKNOWN: &str = "unknown_service";
