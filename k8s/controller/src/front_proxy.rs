//! Whom the metrics API answers: the API server's front proxy, by its certificate. Which authority signs it, and under
//! which common names, the API server itself says in a ConfigMap. A connection without such a certificate ends in its
//! handshake.

use core::time::Duration;
use std::path::PathBuf;

use agent_runtime::TlsError;
use agent_runtime::live_tls::{LiveServer, NamedClients, ServerFiles};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};

use crate::calls::within;

/// Where the API server says whom to trust.
const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "extension-apiserver-authentication";
const AUTHORITY: &str = "requestheader-client-ca-file";
const NAMES: &str = "requestheader-allowed-names";

/// The files of this server's own certificate.
#[derive(Clone, Debug)]
pub(crate) struct OwnCertificate {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Why the API cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrontProxyError {
    /// The ConfigMap cannot be read.
    #[error(
        "the ConfigMap {NAMESPACE}/{CONFIG_MAP} cannot be read: {0} (the role extension-apiserver-authentication-reader \
         lets the service account)"
    )]
    Unreadable(String),
    /// The cluster has no front proxy.
    #[error("the ConfigMap {NAMESPACE}/{CONFIG_MAP} has no {0}: does the API server have an aggregation layer?")]
    NoAuthority(&'static str),
    /// Its list of names is none.
    #[error("{NAMES} of the ConfigMap {NAMESPACE}/{CONFIG_MAP} is no list of names: {0}")]
    Names(#[source] serde_json::Error),
    /// Certificate, key or authority cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// What a handshake needs: this server's certificate, and whom to trust. Both as they are now.
///
/// # Errors
///
/// [`FrontProxyError`]: what cannot be read, and what to do.
pub(crate) async fn files(client: &Client, own: &OwnCertificate) -> Result<ServerFiles, FrontProxyError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let map = within(maps.get(CONFIG_MAP)).await.map_err(FrontProxyError::Unreadable)?;
    Ok(ServerFiles::load_for(&own.certificate, &own.key, &trusted(&map)?)?)
}

/// Whom `map` says to trust.
fn trusted(map: &ConfigMap) -> Result<NamedClients, FrontProxyError> {
    let value = |key: &str| map.data.as_ref()?.get(key).filter(|text| !text.trim().is_empty());
    let authority = value(AUTHORITY).ok_or(FrontProxyError::NoAuthority(AUTHORITY))?.clone();
    let names = value(NAMES).map_or(Ok(Vec::new()), |names| serde_json::from_str(names));
    let names = names.map_err(FrontProxyError::Names)?;
    Ok(NamedClients { source: format!("{AUTHORITY} of {CONFIG_MAP}"), authority, names })
}

/// Takes over a new certificate or authority every `every`, for ever. What cannot be used leaves what was before.
pub(crate) async fn keep_current(client: &Client, own: &OwnCertificate, live: &LiveServer, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        match files(client, own).await {
            Ok(files) => {
                if live.replace(files) {
                    tracing::info!("new certificates of the metrics API are in use");
                }
            }
            Err(error) => {
                tracing::warn!(
                    error = agent_runtime::chain(&error),
                    "certificates of the metrics API stay as they are"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_config_map_says_whom_to_trust_and_an_error_what_it_lacks() {
        let map = |data: &[(&str, &str)]| {
            let data: BTreeMap<_, _> =
                data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            trusted(&ConfigMap { data: Some(data), ..ConfigMap::default() })
        };
        let trusted = map(&[(AUTHORITY, "PEM"), (NAMES, "[\"front-proxy-client\"]")]).unwrap();
        assert_eq!((trusted.authority.as_str(), trusted.names), ("PEM", vec!["front-proxy-client".to_owned()]));
        assert_eq!(map(&[(AUTHORITY, "PEM"), (NAMES, "")]).unwrap().names, Vec::<String>::new());
        assert!(matches!(map(&[(AUTHORITY, " ")]), Err(FrontProxyError::NoAuthority(_))));
        assert!(matches!(map(&[(AUTHORITY, "PEM"), (NAMES, "any")]), Err(FrontProxyError::Names(_))));
    }
}
