//! TLS to the operators' API: the trusted authority, and the operator's own certificate.

mod diagnosis;

use core::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub use agent_runtime::TlsError;
use agent_runtime::{ClientConfigs, ClientTls};
use tokio_rustls::rustls::ClientConfig;
use tonic::transport::ClientTlsConfig;

pub(crate) use diagnosis::diagnose;
pub use diagnosis::{Refusal, TlsProblem};

/// ALPN protocol of the operators' API: HTTP/2.
const PROTOCOL: &[u8] = b"h2";

/// Command line arguments for TLS: PEM files and a server name.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct TlsArgs {
    /// Use TLS, and trust an agent whose certificate this authority signed (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Your own certificate, if the agent requires one (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    pub tls_cert: Option<PathBuf>,
    /// The private key of your certificate (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_cert"])]
    pub tls_key: Option<PathBuf>,
    /// Name in the agent's certificate [default: the host of the address]
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    pub tls_name: Option<String>,
    /// A token of the agent's cluster in place of a certificate, such as a pod's projected service account token
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    pub token_file: Option<PathBuf>,
}

/// The TLS configuration for an agent. All files are read and checked.
#[derive(Clone)]
pub struct Tls {
    args: TlsArgs,
    ca: PathBuf,
    client: ClientTlsConfig,
    // The same for rustls, whose errors name the cause.
    config: Arc<ClientConfig>,
}

// Does not print the key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("args", &self.args).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads and checks the files; `None` if the arguments name no authority.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if a file cannot be read or has something else in it, certificate and key do not match, or the name
    /// is not valid.
    pub fn load(args: &TlsArgs) -> Result<Option<Self>, TlsError> {
        let TlsArgs { tls_ca: Some(ca), tls_cert, tls_key, tls_name, .. } = args.clone() else { return Ok(None) };
        let files = ClientTls { ca: ca.clone(), domain: tls_name, certificate: tls_cert, key: tls_key };
        let ClientConfigs { channel, mut library, .. } = files.load()?;
        library.alpn_protocols.push(PROTOCOL.to_vec());
        let client = channel.timeout(diagnosis::HANDSHAKE_TIMEOUT);
        Ok(Some(Self { args: args.clone(), ca, client, config: Arc::new(library) }))
    }

    /// The file with the token that calls show.
    pub(crate) const fn token_file(&self) -> Option<&PathBuf> {
        self.args.token_file.as_ref()
    }

    /// The configuration of a tonic channel.
    pub(crate) fn client(&self) -> ClientTlsConfig {
        self.client.clone()
    }
}
