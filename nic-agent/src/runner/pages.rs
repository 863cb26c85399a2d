//! What the agent serves over HTTP: `/metrics` and health over TCP, models on a Unix socket.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use agent_runtime::access::Access;
use agent_runtime::clock::Clock;
use agent_runtime::listen::tcp;
use agent_runtime::reload::Reloadable;
use agent_runtime::repeated_events::RepeatedEvents;
use agent_runtime::server::{Counts, Limits, Listener, ReplyShares, Server, Traffic, with_page_shares};
use agent_runtime::socket_file::{ListenError, SocketFile};
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use super::error::RunError;
use super::event::Event;
use super::models;
use crate::config::Config;
use crate::metrics::Board;

/// Connections to `/metrics` and health, and to the models.
pub(crate) const LIMITS: Limits = Limits { connections: 128, connections_per_peer: 64, traffic: Traffic::Pages };
/// Bytes of pages that have been asked for and not read.
pub(crate) const PAGE_BYTES: u64 = 16 << 20;
/// Bytes of models that have been asked for and not read: one has 16 MiB at most.
pub(crate) const MODEL_BYTES: u64 = 32 << 20;

/// The listeners, and the socket's file, which is removed on drop.
pub(super) struct Pages {
    metrics: (Listener, std::net::SocketAddr),
    models: Option<(Listener, SocketFile)>,
}

impl Pages {
    /// Opens the listeners that `config` names.
    ///
    /// # Errors
    ///
    /// [`RunError`] if an address or socket is in use or cannot be created.
    pub(super) async fn open(config: &Config) -> Result<Self, RunError> {
        let (listener, address) = tcp("metrics.listen", config.metrics.listen).await?;
        let models = config.models.socket.as_ref().map(|path| {
            // Everybody may connect, to be refused with the reason.
            let (listener, file) = SocketFile::bind(path, 0o666)?;
            let failed = |cause| ListenError::System { path: path.clone(), cause };
            Ok::<_, ListenError>((Listener::Unix(UnixListener::from_std(listener).map_err(failed)?), file))
        });
        Ok(Self { metrics: (Listener::Tcp(listener), address), models: models.transpose()? })
    }

    /// Where `/metrics` is.
    pub(super) const fn metrics(&self) -> std::net::SocketAddr {
        self.metrics.1
    }

    /// Serves until the returned tasks are dropped. The socket's file lives as long as the second value.
    pub(super) fn serve(
        self,
        board: &Board,
        access: Reloadable<Access>,
        events: SyncSender<Event>,
    ) -> (JoinSet<()>, Option<SocketFile>) {
        let counts = board.connections();
        let server = |name, router| Server { name, router, limits: LIMITS, counts: counts.clone() };
        let mut tasks = JoinSet::new();
        let metrics = server("metrics", board.clone().router(&held(PAGE_BYTES, &counts)));
        tasks.spawn(metrics.serve(vec![self.metrics.0], None, core::future::pending()));
        let file = self.models.map(|(listener, file)| {
            let models = models::router(events, access, board.clone());
            let models = server("models", with_page_shares(models, &held(MODEL_BYTES, &counts)));
            tasks.spawn(models.serve(vec![listener], None, core::future::pending()));
            file
        });
        (tasks, file)
    }
}

/// Room for `bytes` of replies that are not read.
fn held(bytes: u64, counts: &Arc<Counts>) -> Arc<ReplyShares> {
    let (counts, refused, clock) = (Arc::clone(counts), RepeatedEvents::default(), Clock::start());
    ReplyShares::new(bytes, move |error| {
        counts.refused_pages.one_more();
        if let Some(times) = refused.count(clock.now(), &error.owner) {
            tracing::warn!(%error, times, "page refused");
        }
    })
}
