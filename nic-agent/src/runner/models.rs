//! Learned models over HTTP: `/models/SERVICE` is a model file. `uview model merge` merges those of several nodes, and
//! the operators' call `NewLmap` takes the result.

use std::sync::mpsc::SyncSender;

use axum::Router;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tokio::sync::oneshot;
use wire::name::ServiceName;

use super::{Event, send_event};

/// The route of the models.
pub(super) fn router(events: SyncSender<Event>) -> Router {
    let give = move |Path(service): Path<String>| async move { model(&events, &service).await };
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
