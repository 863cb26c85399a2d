//! The receiver for the host agent's kept traces: OTLP/HTTP, stored in memory.

use core::net::{Ipv4Addr, SocketAddr};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::Store;
use crate::clock::Clock;

/// Maximal request length in bytes; the agent's are shorter.
const LONGEST_REQUEST: usize = 64 << 20;

/// A receiver at an address of its own. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    store: Arc<Mutex<Store>>,
    serving: JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Receiver {
    /// Starts listening. Times of spans are converted to those of `clock`.
    ///
    /// # Errors
    ///
    /// No socket can be created.
    pub(crate) async fn open(clock: Clock) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let store = Arc::new(Mutex::new(Store::new(clock)));
        let routes = Router::new().route("/v1/traces", post(take)).layer(DefaultBodyLimit::max(LONGEST_REQUEST));
        let serve = axum::serve(listener, routes.with_state(Arc::clone(&store))).into_future();
        let serving = tokio::spawn(async move {
            let _ = serve.await; // runs until aborted
        });
        Ok(Self { address, store, serving })
    }

    /// Calls `look` with the store.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Store) -> T) -> T {
        look(&mut self.store.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn take(State(store): State<Arc<Mutex<Store>>>, request: Bytes) -> impl IntoResponse {
    let stored = store.lock().unwrap_or_else(PoisonError::into_inner).take(&request);
    let status = if stored.is_ok() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    // An empty message means full success.
    (status, [(header::CONTENT_TYPE, "application/x-protobuf")])
}
