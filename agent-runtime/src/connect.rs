//! Connections to another agent that know who answered: what a tonic channel connects with.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tower_service::Service;

use crate::access::{Denied, Identity};
use crate::reload::Reloadable;
use crate::server::certified;
use crate::tls::{ClientConfigs, TlsError};

/// Time limit for TCP and TLS together.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// A connection, with or without TLS.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Whether who answered is the one to talk to.
type Admission = dyn Fn(&Identity) -> Result<(), Denied> + Send + Sync;

/// Connects to one TCP address, with TLS if there are certificates. Each connection begins with the current ones.
/// Clones share what they learn.
#[derive(Clone)]
pub struct Connector {
    address: String,
    host: String,
    tls: Option<Reloadable<ClientConfigs>>,
    admission: Option<Arc<Admission>>,
    answered: Arc<Mutex<Option<Identity>>>,
}

// Does not print keys.
impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Connector {
    /// Connects to `address`, a host name or IP address with a port. With `tls`, whoever answers needs a certificate of
    /// the configured authority with the name `host`, or the configured domain; without, it is [`Identity::Anyone`].
    ///
    /// # Errors
    ///
    /// [`TlsError::Name`] if `host` is neither a host name nor an IP address.
    pub fn new(address: String, host: &str, tls: Option<Reloadable<ClientConfigs>>) -> Result<Self, TlsError> {
        let connector = Self { address, host: host.to_owned(), tls, admission: None, answered: Arc::default() };
        connector.tls().map(|_| connector)
    }

    /// Closes each connection for which `admission` refuses who answered, before anything is sent.
    #[must_use]
    pub fn admitting(mut self, admission: impl Fn(&Identity) -> Result<(), Denied> + Send + Sync + 'static) -> Self {
        self.admission = Some(Arc::new(admission));
        self
    }

    /// The current certificates, and the name that whoever answers must have.
    fn tls(&self) -> Result<Option<(TlsConnector, ServerName<'static>)>, TlsError> {
        let Some(tls) = self.tls.as_ref().map(Reloadable::load) else { return Ok(None) };
        let host = tls.domain.as_ref().unwrap_or(&self.host);
        let name = ServerName::try_from(host.clone()).map_err(|_| TlsError::Name(host.clone()))?;
        let mut config = tls.library.clone();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Some((TlsConnector::from(Arc::new(config)), name)))
    }

    /// Who answered at the latest connection; `None` before the first one.
    #[must_use]
    pub fn answered(&self) -> Option<Identity> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn connect(self) -> io::Result<TokioIo<Box<dyn Connection>>> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let (stream, identity): (Box<dyn Connection>, _) = match self.tls().map_err(io::Error::other)? {
            None => (Box::new(stream), Identity::Anyone),
            Some((tls, name)) => {
                let stream = tls.connect(name, stream).await?;
                let identity = certified(stream.get_ref().1.peer_certificates());
                (Box::new(stream), identity)
            }
        };
        if let Some(admission) = &self.admission {
            admission(&identity).map_err(|denied| io::Error::new(io::ErrorKind::PermissionDenied, denied))?;
        }
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner) = Some(identity);
        Ok(TokioIo::new(stream))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Connection>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Connects to the address of this value, whatever the URI.
    fn call(&mut self, _: Uri) -> Self::Future {
        let connecting = tokio::time::timeout(CONNECT_WITHIN, self.clone().connect());
        Box::pin(async {
            connecting
                .await
                .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no connection within 2 s")))
        })
    }
}
