//! The driver's two sockets: one for volumes, one by which kubelet learns of it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_runtime::chain;
use agent_runtime::server::{Limits, Listener, Server, Traffic};
use agent_runtime::socket_file::{ListenError, SocketFile};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tonic::service::Routes;

use crate::CsiArgs;
use crate::proto::csi::identity_server::IdentityServer;
use crate::proto::csi::node_server::NodeServer;
use crate::proto::registration::registration_server::RegistrationServer;
use crate::publisher::Publisher;
use crate::services::Driver;

/// Connections of kubelet.
const LIMITS: Limits = Limits { connections: 16, connections_per_peer: 16, traffic: Traffic::Streams };
/// Longest message that is read.
const MAX_MESSAGE: usize = 64 << 10;

/// Why the driver does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A directory of kubelet is not there, and cannot be made.
    #[error("cannot make {}", .path.display())]
    Directory {
        /// The directory that is missing.
        path: PathBuf,
        /// The cause, from the operating system.
        #[source]
        cause: io::Error,
    },
    /// A socket cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A socket cannot be waited for.
    #[error("no event queue is left")]
    Events(#[source] io::Error),
}

/// Runs the driver until `stop` resolves. Then its sockets are gone, and kubelet knows it no more. Volumes stay.
///
/// # Errors
///
/// [`RunError`] if one of its sockets cannot be listened on.
pub async fn run(args: CsiArgs, stop: impl Future<Output = ()>) -> Result<(), RunError> {
    let publisher = Arc::new(Publisher::new(args.source.clone(), args.stage()));
    let driver = Driver {
        node: args.node.clone(),
        socket: args.socket(),
        pods: args.pods(),
        publisher: Arc::clone(&publisher),
        own_uid: rustix::process::geteuid().as_raw(),
    };
    let node = NodeServer::new(driver.clone()).max_decoding_message_size(MAX_MESSAGE);
    let volumes = Routes::new(IdentityServer::new(driver.clone())).add_service(node);
    let registration = Routes::new(RegistrationServer::new(driver).max_decoding_message_size(MAX_MESSAGE));
    let (volumes, own) = listen(&args.socket(), "csi", volumes)?;
    // Once this one is there, kubelet calls the other.
    let (registration, known) = listen(&args.registration(), "registration", registration)?;
    tracing::info!(socket = %own.path().display(), source = %args.source.display(), "the driver runs");
    let end = watch::Sender::new(false);
    let ended = || {
        let mut over = end.subscribe();
        async move { drop(over.wait_for(|is_over| *is_over).await) }
    };
    let stopping = async {
        stop.await;
        // Kubelet forgets the driver before it stops to answer.
        drop(known);
        end.send_replace(true);
    };
    tokio::join!(volumes.serve(ended()), registration.serve(ended()), stopping);
    drop(own);
    if let Err(error) = publisher.end() {
        tracing::warn!(error = chain(&error), "a mount of the driver's own is left");
    }
    Ok(())
}

/// A server, and the socket on which it listens.
struct Listening {
    server: Server,
    listener: Listener,
}

impl Listening {
    /// Serves until `stop` resolves.
    async fn serve(self, stop: impl Future<Output = ()>) {
        self.server.serve(vec![self.listener], None, stop).await;
    }
}

/// Listens on `path` for what `routes` answer.
fn listen(path: &Path, name: &'static str, routes: Routes) -> Result<(Listening, SocketFile), RunError> {
    let folder = path.parent().unwrap_or(path);
    let directory = |cause| RunError::Directory { path: folder.to_owned(), cause };
    std::fs::create_dir_all(folder).map_err(directory)?;
    let (listener, file) = SocketFile::bind(path, 0o600)?;
    let listener = Listener::Unix(UnixListener::from_std(listener).map_err(RunError::Events)?);
    let server = Server { name, router: routes.into_axum_router(), limits: LIMITS, counts: Arc::default() };
    Ok((Listening { server, listener }, file))
}
