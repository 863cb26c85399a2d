//! Configuration of the operators' API.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use agent_runtime::config::range;
use serde::Deserialize;

use super::{Config, ConfigError, ServerTls, check_listener};

/// The operators' API and hooks.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OperatorsConfig {
    /// Address for operators, viewers and hooks of other machines; port 0 is any free port. Those of this machine
    /// connect to `operators.sock`.
    pub listen: Option<SocketAddr>,
    /// Whether `listen` takes everybody who connects for an operator.
    pub insecure: bool,
    /// Verdicts queued for a slow hook before its oldest are lost.
    pub hook_queue: NonZeroUsize,
    /// Limit of hooks and watchers.
    pub hooks: NonZeroUsize,
    /// Server TLS, as for `control`.
    pub tls: Option<ServerTls>,
}

impl Default for OperatorsConfig {
    fn default() -> Self {
        let size = |size| NonZeroUsize::new(size).unwrap_or(NonZeroUsize::MIN);
        Self { listen: None, insecure: false, hook_queue: size(1024), hooks: size(256), tls: None }
    }
}

impl Config {
    /// Refuses an operators' API that is open to everybody, and tokens that nobody can show, or everybody can read.
    pub(super) fn check_operators(&self) -> Result<(), ConfigError> {
        let Self { operators, kubernetes, .. } = self;
        if !kubernetes.tokens {
            return check_listener("operators", operators.listen, operators.tls.as_ref(), operators.insecure);
        }
        let wanted = "must be false with kubernetes.tokens: who shows no token would be an operator";
        range(!operators.insecure, "operators.insecure", &true, wanted)?;
        let wanted = "is the address for callers with tokens (kubernetes.tokens), such as 0.0.0.0:9701";
        range(operators.listen.is_some(), "operators.listen", &"missing", wanted)?;
        let wanted = "names certificate and key: with kubernetes.tokens, tokens travel encrypted only";
        range(operators.tls.is_some(), "operators.tls", &"missing", wanted)
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    const TLS: &str = "operators: {listen: 127.0.0.1:0, tls: {certificate: a, key: b}}\n";

    #[test]
    fn tokens_need_an_address_with_tls_and_no_authority_of_clients() {
        assert!(Config::parse(&format!("{TLS}kubernetes: {{tokens: true}}\n")).is_ok());
        for (wrong, expected) in [
            (TLS.to_owned(), "operators.tls.client_ca is missing"),
            ("kubernetes: {tokens: true}".to_owned(), "operators.listen is missing: is the address for callers"),
            (
                "kubernetes: {tokens: true}\noperators: {listen: 127.0.0.1:0}".to_owned(),
                "operators.tls is missing: names certificate and key",
            ),
            (
                "kubernetes: {tokens: true}\noperators: {listen: 127.0.0.1:0, insecure: true}".to_owned(),
                "operators.insecure is true: must be false",
            ),
            (format!("{TLS}kubernetes: {{tokens: true, audience: ''}}"), "kubernetes.audience is : must be"),
            (format!("{TLS}kubernetes: {{tokens: true, audience: a b}}"), "kubernetes.audience is a b: must be"),
        ] {
            let error = Config::parse(&wrong).unwrap_err().to_string();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }

    #[test]
    fn tokens_are_off_by_default() {
        assert!(Config::default().kubernetes.tokens().is_none());
        let plan = Config::parse(&format!("{TLS}kubernetes: {{tokens: true, node: node-1}}")).unwrap();
        let plan = plan.kubernetes.tokens().unwrap();
        assert_eq!((plan.audience.as_str(), plan.node.as_deref()), ("uview", Some("node-1")));
    }
}
