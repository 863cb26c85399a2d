//! What a configuration leaves open, in words: for the log, the status and `/metrics`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use agent_runtime::reach::{PAGE_ADVICE, is_this_machine, open_listener};

use super::Config;

/// Headers whose names have one of these are taken for secrets.
const SECRET: [&str; 8] = ["authorization", "token", "key", "secret", "password", "cookie", "dsn", "credential"];

impl Config {
    /// What is open to anybody, and what goes out where anybody on the way can read it.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.open_addresses().chain(self.open_secrets()).collect()
    }

    /// Listeners that are open to anybody.
    pub(crate) fn open_addresses(&self) -> impl Iterator<Item = String> {
        self.unauthenticated().chain(self.unencrypted())
    }

    /// Listeners that take everybody for somebody.
    fn unauthenticated(&self) -> impl Iterator<Item = String> {
        let open = |section, listen: Option<SocketAddr>, insecure: bool, who| {
            let address = listen.filter(|_| insecure)?;
            Some(format!("{section}.listen {address} takes whoever connects for {who} ({section}.insecure)"))
        };
        let Self { control, operators, .. } = self;
        let control = open("control", control.listen, control.insecure, "a worker");
        let operators = open("operators", operators.listen, operators.insecure, "an operator");
        control.into_iter().chain(operators).chain(self.coherence.warning(&self.otlp))
    }

    /// Listeners for other machines without TLS.
    fn unencrypted(&self) -> impl Iterator<Item = String> {
        let Self { otlp, metrics, head_sampling, .. } = self;
        let plain_otlp = otlp.is_on() && otlp.tls.is_none();
        let advice = "set otlp.tls, or listen on loopback";
        [
            ("otlp.listen_grpc", Some(otlp.listen_grpc).filter(|_| plain_otlp), "send spans, metrics and logs", advice),
            ("otlp.listen_http", Some(otlp.listen_http).filter(|_| plain_otlp), "send spans, metrics and logs", advice),
            ("metrics.listen", Some(metrics.listen), "read names of services and operations", PAGE_ADVICE),
            ("head_sampling.listen", head_sampling.listen, "read names of services and operations", PAGE_ADVICE),
        ]
        .into_iter()
        .filter_map(|(key, listen, what, advice)| open_listener(key, listen?, what, advice))
    }

    /// Secrets that are sent without TLS.
    fn open_secrets(&self) -> impl Iterator<Item = String> {
        let Self { otlp, otlp_metrics, remote_write, webhooks, page, .. } = self;
        let upstream = otlp.upstream.iter();
        let upstream =
            upstream.map(|to| ("otlp.upstream", to.endpoint.as_str(), secret(&to.headers, &to.header_files)));
        let metrics = otlp_metrics.upstream.iter();
        let metrics =
            metrics.map(|to| ("otlp_metrics.upstream", to.endpoint.as_str(), secret(&to.headers, &to.header_files)));
        let samples = secret(&remote_write.headers, &remote_write.header_files);
        let samples = remote_write.url.iter().map(move |url| ("remote_write", url.as_str(), samples));
        let webhooks = webhooks.iter().map(|to| ("webhooks", to.url.as_str(), secret(&to.headers, &to.header_files)));
        let scores = page.prometheus.iter();
        let scores =
            scores.map(|from| ("page.prometheus", from.url.as_str(), secret(&from.headers, &from.header_files)));
        let targets = self.sources.prometheus.targets.iter();
        let targets = targets
            .map(|from| ("sources.prometheus.targets", from.url.as_str(), secret(&from.headers, &from.header_files)));
        let all = upstream.chain(metrics).chain(samples).chain(webhooks).chain(scores).chain(targets);
        all.filter_map(|(key, url, header)| {
            let (header, host) = (header?, plain_host(url)?);
            Some(format!(
                "{key}: the header {header} goes to {host} over http, where anybody on the way can read it; use https"
            ))
        })
    }
}

/// The name of the first header that looks like a secret, or whose value is in a file: that is for secrets.
fn secret<'a>(headers: &'a BTreeMap<String, String>, files: &'a BTreeMap<String, PathBuf>) -> Option<&'a str> {
    named(headers).or_else(|| files.keys().next().map(String::as_str))
}

/// The name of the first header that looks like a secret.
fn named(headers: &BTreeMap<String, String>) -> Option<&str> {
    let is_secret = |name: &&String| {
        let name = name.to_ascii_lowercase();
        SECRET.iter().any(|part| name.contains(part))
    };
    headers.keys().find(is_secret).map(String::as_str)
}

/// The host of a URL without TLS, unless it is this machine.
fn plain_host(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next()?,
        None => authority.split(':').next()?,
    };
    (scheme.eq_ignore_ascii_case("http") && !is_this_machine(host)).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(text: &str) -> Vec<String> {
        Config::parse(text).unwrap().warnings()
    }

    #[test]
    fn the_default_leaves_nothing_open() {
        assert_eq!(warnings(""), [""; 0]);
        let here = "otlp: {upstream: {endpoint: 'http://127.0.0.1:4317', headers: {authorization: x}}}\n\
                    remote_write: {url: 'http://[::1]:9090/w', headers: {authorization: x}}\n\
                    head_sampling: {listen: '[::1]:5778'}\n";
        assert_eq!(warnings(here), [""; 0]);
    }

    #[test]
    fn an_address_for_other_machines_without_tls_is_named() {
        let open = warnings(
            "otlp: {upstream: {endpoint: 'http://c:4317'}, listen_grpc: 0.0.0.0:4317, listen_http: '[::]:4318'}\n\
             metrics: {listen: 10.0.0.1:9702}\nhead_sampling: {listen: 0.0.0.0:5778}\n",
        );

        let keys = [
            "otlp.listen_grpc 0.0.0.0:4317",
            "otlp.listen_http [::]:4318",
            "metrics.listen 10.0.0.1:9702",
            "head_sampling.listen",
        ];
        assert_eq!(open.len(), keys.len(), "{open:?}");
        for (warning, key) in open.iter().zip(keys) {
            assert!(warning.starts_with(key) && warning.contains("has no TLS"), "{warning}");
        }
        let watching = warnings("otlp: {watch_only: true, listen_grpc: 0.0.0.0:4317}");
        assert!(matches!(&watching[..], [one] if one.starts_with("otlp.listen_grpc 0.0.0.0:4317")), "{watching:?}");
        // Off: nobody listens.
        assert_eq!(warnings("otlp: {listen_grpc: 0.0.0.0:4317}"), [""; 0]);
    }

    #[test]
    fn a_secret_over_http_is_named_without_its_value() {
        let open = warnings(
            "otlp: {upstream: {endpoint: 'http://collector:4317', headers: {X-Api-Key: s3cret}}}\n\
             otlp_metrics: {upstream: {endpoint: 'HTTP://10.0.0.1:4317', headers: {x-token: s3cret}}}\n\
             remote_write: {url: 'http://p:9090/w', headers: {x-scope-orgid: shop, authorization: s3cret}}\n\
             webhooks: [{name: a, url: 'http://[fd00::1]/x', headers: {Cookie: s3cret}}, {name: b, url: 'http://a/'}]\n\
             page: {prometheus: {url: 'http://q:9090', headers: {Authorization: s3cret}}}\n",
        );
        let in_file = warnings("remote_write: {url: 'http://p:9090/w', header_files: {x-org: /nowhere/s3cret}}");
        assert!(in_file[0].starts_with("remote_write: the header x-org goes to p "), "{in_file:?}");

        let expected = [
            "otlp.upstream: the header X-Api-Key goes to collector ",
            "otlp_metrics.upstream: the header x-token goes to 10.0.0.1 ",
            "remote_write: the header authorization goes to p ",
            "webhooks: the header Cookie goes to fd00::1 ",
            "page.prometheus: the header Authorization goes to q ",
        ];
        assert_eq!(open.len(), expected.len(), "{open:?}");
        for (warning, expected) in open.iter().zip(expected) {
            assert!(warning.starts_with(expected) && !warning.contains("s3cret"), "{warning}");
        }
    }
}
