//! Connections to the upstream. Each begins with the certificates that are current then; those that stand keep theirs.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::ClientConfigs;
use agent_runtime::reload::Reloadable;
use hyper::Uri;
use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{Connection as _, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tower_service::Service;

use super::Protocol;

type BoxError = Box<dyn core::error::Error + Send + Sync>;
/// A TCP connection, with or without TLS.
type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// The certificates allow a connection on which gRPC is not spoken.
#[derive(Debug, thiserror::Error)]
#[error("the upstream does not speak HTTP/2, which gRPC needs: set protocol: http, or name its port for gRPC")]
struct NoHttp2;

/// Connects to the upstream, with TLS if there are certificates.
#[derive(Clone)]
pub(super) struct UpstreamConnector {
    http: HttpConnector,
    endpoint: Uri,
    protocol: Protocol,
    tls: Option<Reloadable<ClientConfigs>>,
}

// Does not print keys.
impl fmt::Debug for UpstreamConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamConnector").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl UpstreamConnector {
    /// Connects to `endpoint` within `time_limit` for TCP. With `tls`, whoever answers needs a certificate of the
    /// configured authority with the configured name, or that of the endpoint's host.
    pub(super) fn new(
        endpoint: Uri,
        protocol: Protocol,
        tls: Option<Reloadable<ClientConfigs>>,
        time_limit: Duration,
    ) -> Self {
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(time_limit));
        http.set_nodelay(true);
        // The layer around it handles https.
        http.enforce_http(false);
        Self { http, endpoint, protocol, tls }
    }

    /// A connector with the certificates as they are now.
    fn secure(&self, tls: &ClientConfigs) -> Result<HttpsConnector<HttpConnector>, BoxError> {
        let mut config = tls.library.clone();
        if self.protocol == Protocol::Grpc {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        Ok(match &tls.domain {
            None => {
                let resolver = Arc::new(DefaultServerNameResolver::default());
                HttpsConnector::new(self.http.clone(), config, true, resolver)
            }
            Some(domain) => {
                let resolver = Arc::new(FixedServerNameResolver::new(ServerName::try_from(domain.clone())?));
                HttpsConnector::new(self.http.clone(), config, true, resolver)
            }
        })
    }

    async fn connect(mut self) -> Result<Stream, BoxError> {
        let Some(tls) = self.tls.as_ref().map(Reloadable::load) else {
            return Ok(MaybeHttpsStream::Http(self.http.call(self.endpoint).await?));
        };
        let stream = self.secure(&tls)?.call(self.endpoint).await?;
        if self.protocol == Protocol::Grpc && !stream.connected().is_negotiated_h2() {
            return Err(NoHttp2.into());
        }
        Ok(stream)
    }
}

impl Service<Uri> for UpstreamConnector {
    type Response = Stream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(context).map_err(Into::into)
    }

    /// Connects to the endpoint, whatever the URI.
    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}
