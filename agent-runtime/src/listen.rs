//! TCP listeners whose errors name the configuration key, and how long any listener rests after an error.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;

/// Pause after an error of `accept`, usually for lack of file descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A TCP address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: set {key} to another address, or to port 0 for any free port")]
pub struct BindError {
    /// The configuration key that has the address.
    pub key: &'static str,
    /// The address as configured.
    pub address: SocketAddr,
    /// What the operating system reported.
    #[source]
    pub cause: io::Error,
}

/// Listens on `address`, the value of `key`. Also returns the address that was bound: port 0 takes any free port.
///
/// # Errors
///
/// [`BindError`] if the address is in use, is not local, or needs privileges.
pub async fn tcp(key: &'static str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), BindError> {
    let failed = |cause| BindError { key, address, cause };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_that_is_taken_is_named_with_the_key_to_change() {
        let (_taken, address) = tcp("metrics.listen", SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();

        let error = tcp("metrics.listen", address).await.unwrap_err();

        assert!(error.to_string().starts_with(&format!("cannot listen on {address}: set metrics.listen")), "{error}");
    }
}
