//! Where clients find the server.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::{Context as _, Result};
use support::network::{Network, THERE};

use super::setting::PORT;

/// Limit for a connection, and for an answer.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// The server's address, on the link with the relay.
pub fn address() -> SocketAddr {
    (Network::address(THERE), PORT).into()
}

/// Listens there, in the server's namespace.
///
/// # Errors
///
/// The port is taken.
pub fn listen(network: &Network) -> Result<TcpListener> {
    network.run(THERE, || TcpListener::bind(address())).context("the server's port")
}
