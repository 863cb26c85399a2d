//! Learned models over HTTP on a Unix socket, for viewers: `/models/SERVICE` is a model file. `uview model fetch` gets
//! it, `uview model merge` merges those of several nodes, and the operators' call `NewLmap` takes the result.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use agent_runtime::access::{Access, Identity, Role};
use agent_runtime::clock::Clock;
use agent_runtime::reload::Reloadable;
use agent_runtime::repeated_events::RefusedCalls;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Extension, Router};
use tokio::sync::{Semaphore, oneshot};
use wire::name::ServiceName;

use super::event::{Event, send_event};
use crate::metrics::Board;

/// Models that are encoded at a time.
const AT_A_TIME: usize = 4;

/// The route of the models. Counts on the `board` who may not read them.
pub(super) fn router(events: SyncSender<Event>, access: Reloadable<Access>, board: Board) -> Router {
    let (refused, clock, slots) =
        (Arc::new(RefusedCalls::default()), Clock::start(), Arc::new(Semaphore::new(AT_A_TIME)));
    let give = move |Extension(who): Extension<Identity>, Path(service): Path<String>| async move {
        if let Err(denied) = access.load().require(&who, Role::Viewer, "read models") {
            board.count_denied_call();
            let denied = denied.to_string();
            refused.log("models", &denied, clock.now());
            return (StatusCode::FORBIDDEN, format!("{denied}\n")).into_response();
        }
        // Nobody closes it.
        let _slot = slots.acquire().await;
        model(&events, &service).await
    };
    Router::new().route("/models/{service}", get(give))
}

async fn model(events: &SyncSender<Event>, service: &str) -> Response {
    let service = match ServiceName::new(service) {
        Ok(service) => service,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    let (sender, response) = oneshot::channel();
    let sent = send_event(events, Event::Model(service.clone(), sender)).await;
    match response.await {
        Ok(Some(model)) => ([(header::CONTENT_TYPE, "application/octet-stream")], model.encode()).into_response(),
        Ok(None) => {
            let why = "it is not armed, uses a trained model, or is decomposing its sketch (then try again)";
            (StatusCode::NOT_FOUND, format!("no model of {service}: {why}\n")).into_response()
        }
        Err(_) => {
            let why = if sent { "does not respond" } else { "is gone" };
            (StatusCode::SERVICE_UNAVAILABLE, format!("the worker's thread {why}\n")).into_response()
        }
    }
}
