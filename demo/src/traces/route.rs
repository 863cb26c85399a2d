//! The way of spans in the demo: services → host agent → receiver. Its addresses are needed before anybody is there.

use core::net::{Ipv4Addr, SocketAddr};
use std::io;

use tokio::net::TcpSocket;
use wire::time::Nanos;

use super::receiver::Receiver;
use crate::clock::Clock;

/// How long a trace waits at the agent for a reason to be kept; the agent's default.
pub(crate) const WAIT: Nanos = Nanos::from_secs(60);

/// Where services send spans, and where those go that the agent keeps.
#[derive(Debug)]
pub(crate) struct Route {
    /// A port that is nobody else's until the agent takes it. Nobody listens there: services without an agent are refused, as anywhere.
    reserved: Option<TcpSocket>,
    /// Where the agent will take spans.
    pub(crate) agent: SocketAddr,
    /// Where the kept ones come to.
    pub(crate) receiver: Receiver,
}

impl Route {
    /// Opens the receiver, and finds a port for the agent. Times of spans become those of `clock`.
    ///
    /// # Errors
    ///
    /// The system gives no sockets.
    pub(crate) async fn open(clock: Clock) -> io::Result<Self> {
        let receiver = Receiver::open(clock).await?;
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self { agent: socket.local_addr()?, reserved: Some(socket), receiver })
    }

    /// The agent's part of its configuration file, and its port is free from now on. What is derived of spans is off: it comes six seconds late,
    /// and the shop's own metrics say the same at once.
    pub(crate) fn hand_over(&mut self) -> String {
        self.reserved = None;
        let (agent, receiver, wait_ms) = (self.agent, self.receiver.address, WAIT.as_millis());
        format!(
            "otlp:\n  upstream: {{endpoint: \"http://{receiver}\", protocol: http}}\n  listen_grpc: {agent}\n  listen_http: 127.0.0.1:0\n  \
             traces: {{keep: tail, wait_ms: {wait_ms}}}\n  derived: {{enabled: false}}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn until_the_agent_takes_its_port_nobody_else_has_it_and_nobody_is_there() {
        let mut route = Route::open(Clock::start()).await.unwrap();

        let refused = TcpStream::connect(route.agent).await.map(|_| ()).map_err(|error| error.kind());
        assert_eq!(refused, Err(io::ErrorKind::ConnectionRefused));
        assert!(TcpListener::bind(route.agent).await.is_err());

        let text = route.hand_over();

        assert!(TcpListener::bind(route.agent).await.is_ok());
        assert!(text.contains(&format!("listen_grpc: {}\n", route.agent)), "{text}");
    }
}
