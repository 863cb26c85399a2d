//! The route of spans: services → host agent → receiver. Its addresses are needed before the agent starts.

use core::net::{Ipv4Addr, SocketAddr};
use std::io;

use tokio::net::TcpSocket;
use wire::time::Nanos;

use super::receiver::Receiver;
use crate::clock::Clock;

/// How long the agent buffers a trace for a decision; the agent's default.
pub(crate) const WAIT: Nanos = Nanos::from_secs(60);

/// The addresses of the agent and the receiver.
#[derive(Debug)]
pub(crate) struct Route {
    /// Reserves the agent's port until the agent starts. It does not listen: connections are refused until then.
    reserved: Option<TcpSocket>,
    /// Address at which the agent will receive spans.
    pub(crate) agent: SocketAddr,
    /// The receiver of kept spans.
    pub(crate) receiver: Receiver,
}

impl Route {
    /// Starts the receiver, and reserves a port for the agent. Times of spans are converted to those of `clock`.
    ///
    /// # Errors
    ///
    /// No socket can be created.
    pub(crate) async fn open(clock: Clock) -> io::Result<Self> {
        let receiver = Receiver::open(clock).await?;
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self { agent: socket.local_addr()?, reserved: Some(socket), receiver })
    }

    /// Releases the reserved port. Returns the part of the agent's configuration for spans. Metrics derived from spans
    /// are for the map, and no columns: they are six seconds late, and the shop's own metrics show the same at once.
    pub(crate) fn hand_over(&mut self) -> String {
        self.reserved = None;
        let (agent, receiver, wait_ms) = (self.agent, self.receiver.address, WAIT.as_millis());
        format!(
            "otlp:\n  upstream: {{endpoint: \"http://{receiver}\", protocol: http}}\n  listen_grpc: {agent}\n  listen_http: 127.0.0.1:0\n  \
             traces: {{keep: tail, decision_wait_ms: {wait_ms}}}\n  derived: {{columns: false}}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn until_the_agent_starts_its_port_is_reserved_and_connections_are_refused() {
        let mut route = Route::open(Clock::start()).await.unwrap();

        let refused = TcpStream::connect(route.agent).await.map(|_| ()).map_err(|error| error.kind());
        assert_eq!(refused, Err(io::ErrorKind::ConnectionRefused));
        assert!(TcpListener::bind(route.agent).await.is_err());

        let text = route.hand_over();

        assert!(TcpListener::bind(route.agent).await.is_ok());
        assert!(text.contains(&format!("listen_grpc: {}\n", route.agent)), "{text}");
    }
}
