//! Who called, for the log.
//!
//! | call | logged | level |
//! | --- | --- | --- |
//! | each, with its outcome | once it has one | debug |
//! | one that changes something | where it is done, with what it changed | info |
//! | one that changes something, and failed | once it has failed | info |
//! | one that reads | the first of a caller, and then one in ten minutes, with how many there were | info |
//! | one that is refused | likewise | warn |

use std::sync::Arc;

use agent_runtime::repeated_events::RepeatedEvents;
use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use tonic::{Code, Status};
use wire::time::Nanos;

use super::calls::AllowedCall;
use crate::clock::Clock;

/// Logs the calls to `router` whose senders were let in.
pub(super) fn with_logged_calls(router: Router, clock: Clock) -> Router {
    let reading = Arc::new(RepeatedEvents::default());
    router.layer(from_fn(move |request: Request, next: Next| {
        let reading = Arc::clone(&reading);
        async move {
            let allowed = request.extensions().get::<AllowedCall>().cloned();
            let response = next.run(request).await;
            if let Some(allowed) = allowed {
                log(&allowed, &response, &reading, clock.now());
            }
            response
        }
    }))
}

fn log(AllowedCall { by, call }: &AllowedCall, response: &Response, reading: &RepeatedEvents, now: Nanos) {
    let failed = Status::from_header_map(response.headers()).filter(|status| status.code() != Code::Ok);
    let code = failed.as_ref().map_or(Code::Ok, Status::code);
    tracing::debug!(%by, call = call.name, ?code, "call");
    if call.reads() {
        if let Some(calls) = reading.count(now, (by, call.name)) {
            tracing::info!(%by, call = call.name, calls, "reading call");
        }
    } else if let Some(status) = failed {
        tracing::info!(%by, call = call.name, ?code, why = status.message(), "call failed");
    }
}
