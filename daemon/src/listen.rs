//! TCP ports.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

/// A TCP address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {key} can name another one, port 0 is any free one")]
pub struct BindError {
    /// Which key of the configuration.
    pub key: &'static str,
    /// The address.
    pub address: SocketAddr,
    /// Why.
    #[source]
    pub cause: io::Error,
}

/// Listens on `address`, the value of `key`. Returns the address that it really is, too: port 0 is any free one.
///
/// # Errors
///
/// [`BindError`].
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

        assert!(error.to_string().starts_with(&format!("cannot listen on {address}: metrics.listen can")), "{error}");
    }
}
