//! What the agent serves over HTTP: `/metrics` and health over TCP, models on a Unix socket.

use std::sync::mpsc::SyncSender;

use agent_runtime::access::Access;
use agent_runtime::listen::tcp;
use agent_runtime::reload::Reloadable;
use agent_runtime::server::{Limits, Listener, Server};
use agent_runtime::socket_file::{ListenError, SocketFile};
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use super::{Event, RunError, models};
use crate::config::Config;
use crate::metrics::Board;

/// Connections to `/metrics` and health, and to the models.
pub(crate) const LIMITS: Limits = Limits { connections: 128, connections_per_peer: 64 };

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
        let metrics = server("metrics", board.clone().router());
        tasks.spawn(metrics.serve(vec![self.metrics.0], None, core::future::pending()));
        let file = self.models.map(|(listener, file)| {
            let models = server("models", models::router(events, access, board.clone()));
            tasks.spawn(models.serve(vec![listener], None, core::future::pending()));
            file
        });
        (tasks, file)
    }
}
