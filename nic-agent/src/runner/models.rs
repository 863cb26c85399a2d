//! What the worker's detectors have learnt, for whoever asks over HTTP: `/models/SERVICE` is a model file. With those of several nodes
//! `uview model merge` makes one, and the operators' call `NewLmap` takes it.

use std::sync::mpsc::SyncSender;

use axum::Router;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tokio::sync::oneshot;
use wire::name::ServiceName;

use super::{Event, tell};

/// The page.
pub(super) fn router(events: SyncSender<Event>) -> Router {
    let give = move |Path(service): Path<String>| async move { model(&events, &service).await };
    Router::new().route("/models/{service}", get(give))
}

async fn model(events: &SyncSender<Event>, service: &str) -> Response {
    let service = match ServiceName::new(service) {
        Ok(service) => service,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    let (answer, answered) = oneshot::channel();
    let asked = tell(events, Event::Model(service.clone(), answer)).await;
    match answered.await {
        Ok(Some(model)) => ([(header::CONTENT_TYPE, "application/octet-stream")], model.encode()).into_response(),
        Ok(None) => {
            let why = "it is not armed, judges by a trained model, or is at a decomposition: then try again";
            (StatusCode::NOT_FOUND, format!("nothing to give of {service}: {why}\n")).into_response()
        }
        Err(_) => {
            let why = if asked { "does not answer" } else { "is gone" };
            (StatusCode::SERVICE_UNAVAILABLE, format!("the worker's thread {why}\n")).into_response()
        }
    }
}
