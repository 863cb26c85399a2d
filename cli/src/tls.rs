//! TLS to the operators' port: whom to trust, who this operator is.

mod diagnosis;

use core::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub use daemon::TlsError;
use daemon::{ClientConfigs, ClientTls};
use tokio_rustls::rustls::ClientConfig;
use tonic::transport::ClientTlsConfig;

pub(crate) use diagnosis::diagnose;
pub use diagnosis::{Refusal, Trouble};

/// What operators' ports speak, inside TLS.
const PROTOCOL: &[u8] = b"h2";

/// Files with certificates in PEM, and a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct TlsArgs {
    /// Speak TLS, and trust an agent whose certificate this authority signed (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Your own certificate, if the agent asks for one (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    pub tls_cert: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_cert"])]
    pub tls_key: Option<PathBuf>,
    /// The name in the agent's certificate [default: the host of the address]
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    pub tls_name: Option<String>,
}

/// How to speak TLS with an agent: all of it read, and known to fit together.
#[derive(Clone)]
pub struct Tls {
    args: TlsArgs,
    ca: PathBuf,
    client: ClientTlsConfig,
    // The same for the library below, which tells what is wrong.
    config: Arc<ClientConfig>,
}

// Without the key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("args", &self.args).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files; `None` if the arguments name no authority.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if a file cannot be read or has something else in it, certificate and key are no pair, or the name is none.
    pub fn load(args: &TlsArgs) -> Result<Option<Self>, TlsError> {
        let TlsArgs { tls_ca: Some(ca), tls_cert, tls_key, tls_name } = args.clone() else { return Ok(None) };
        let files = ClientTls { ca: ca.clone(), domain: tls_name, certificate: tls_cert, key: tls_key };
        let ClientConfigs { channel, mut library } = files.load()?;
        library.alpn_protocols.push(PROTOCOL.to_vec());
        let client = channel.timeout(diagnosis::WITHIN);
        Ok(Some(Self { args: args.clone(), ca, client, config: Arc::new(library) }))
    }

    /// What a client needs.
    pub(crate) fn client(&self) -> ClientTlsConfig {
        self.client.clone()
    }
}
