//! Configuration of the live page.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use agent_runtime::config::range;
use agent_runtime::http_client::{Client, Endpoint};
use page::older::is_label;
use serde::Deserialize;
use webhooks::message::INCIDENT;

use super::headers::HeaderSource;
use super::prometheus::{five_seconds, of_endpoint};
use super::{ConfigError, local};

/// Least bytes of history: names of 8,192 services, and some buckets of each.
const MIN_HISTORY: usize = 8 << 20;

/// What stands for the id of a trace.
pub(crate) const TRACE: &str = "{trace}";

/// The live page for viewers on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PageConfig {
    /// Whether there is a page.
    pub enabled: bool,
    /// Its address, on loopback; port 0 is any free port.
    pub listen: SocketAddr,
    /// Bytes for scores, alarms and what made them, at least 8 MiB.
    pub history_bytes: usize,
    /// Bytes of kept traces.
    pub trace_bytes: usize,
    /// Address of a trace at a tracing backend, in which `{trace}` stands for its id. `None`: there is no link.
    pub trace_link: Option<String>,
    /// Where people find an incident, in which `{node}` and `{incident}` stand for their names, for receivers of
    /// alarms. `None`: they get its address only.
    pub incident_link: Option<String>,
    /// A Prometheus that scrapes this agent. `None`: scores reach back as far as this run's history.
    pub prometheus: Option<PagePrometheus>,
}

/// A Prometheus that scrapes `/metrics/lmaps` of this agent, and is asked for scores that are older than the history.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PagePrometheus {
    /// Such as `http://prometheus:9090`; what its API's paths begin with.
    pub url: String,
    /// Labels of this agent's series there.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Headers of each request.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Files with the values of more of them. Changed ones are read again.
    #[serde(default)]
    pub header_files: BTreeMap<String, PathBuf>,
    /// Root certificates (PEM) for HTTPS; the system's if left out.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// Deadline of a request.
    #[serde(default = "five_seconds")]
    pub timeout_ms: NonZeroU32,
}

impl PagePrometheus {
    /// The headers of its requests.
    pub(crate) fn header_source(&self) -> HeaderSource<'_> {
        HeaderSource { url: &self.url, given: &self.headers, files: &self.header_files }
    }

    /// The client that asks it.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the address, a label, a header or the certificate cannot be used.
    pub(crate) fn client(&self) -> Result<Client, ConfigError> {
        for name in self.labels.keys() {
            range(is_label(name), "page.prometheus.labels", name, "must be names of labels, other than lmap")?;
        }
        let is_base = !self.url.contains(['?', '#']);
        range(is_base, "page.prometheus.url", &self.url, "must be an address such as http://prometheus:9090")?;
        let url = format!("{}/api/v1/query_range", self.url.trim_end_matches('/'));
        let headers = self.header_source().values("page.prometheus.header_files")?;
        let timeout = Duration::from_millis(u64::from(self.timeout_ms.get()));
        let client = Client::new(&Endpoint { url, headers, ca: self.ca.clone(), timeout }, "/");
        client.map_err(|cause| of_endpoint(["page.prometheus.url", "page.prometheus.ca"], cause))
    }
}

impl Default for PageConfig {
    fn default() -> Self {
        let (history_bytes, trace_bytes) = (16 << 20, 16 << 20);
        let (trace_link, incident_link, prometheus) = (None, None, None);
        let listen = local(0);
        Self { enabled: true, listen, history_bytes, trace_bytes, trace_link, incident_link, prometheus }
    }
}

impl PageConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let is_loopback = self.listen.ip().to_canonical().is_loopback();
        range(is_loopback, "page.listen", &self.listen, "must be on loopback; from elsewhere, use a tunnel (ssh -L)")?;
        let has_room = self.history_bytes >= MIN_HISTORY;
        range(has_room, "page.history_bytes", &self.history_bytes, "must be at least 8388608")?;
        self.prometheus.as_ref().map_or(Ok(()), |prometheus| prometheus.client().map(drop))?;
        let is_web = |link: &str| link.starts_with("https://") || link.starts_with("http://");
        if let Some(link) = &self.trace_link {
            let wanted = "must begin with http and have {trace} in it";
            range(is_web(link) && link.contains(TRACE), "page.trace_link", link, wanted)?;
        }
        let Some(link) = &self.incident_link else { return Ok(()) };
        let wanted = "must begin with http and have {incident} in it";
        range(is_web(link) && link.contains(INCIDENT), "page.incident_link", link, wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn the_page_is_on_loopback_or_nowhere() {
        for (text, refused) in [
            ("page: {listen: '0.0.0.0:9705'}\n", Some("page.listen is 0.0.0.0:9705: must be on loopback")),
            ("page: {listen: '[::]:9705'}\n", Some("page.listen is [::]:9705: must be on loopback")),
            ("page: {history_bytes: 1000}\n", Some("page.history_bytes is 1000: must be at least 8388608")),
            ("page: {listen: '[::1]:9705'}\n", None),
            ("page: {enabled: false}\n", None),
            ("page: {trace_link: 'https://tracing.example/trace/{trace}?tab=1'}\n", None),
            (
                "page: {trace_link: 'javascript:alert({trace})'}\n",
                Some("page.trace_link is javascript:alert({trace}): must begin"),
            ),
            (
                "page: {trace_link: 'https://tracing.example/'}\n",
                Some("page.trace_link is https://tracing.example/: must"),
            ),
            ("page: {incident_link: 'https://ops.example/{node}/#/incident/{incident}'}\n", None),
            (
                "page: {incident_link: 'https://ops.example/{node}'}\n",
                Some("page.incident_link is https://ops.example/{node}: must begin with http and have {incident}"),
            ),
            (
                "page: {prometheus: {url: 'https://prometheus.example/prom/', labels: {instance: 'node-3:9702'}}}\n",
                None,
            ),
            ("page: {prometheus: {url: 'file:///etc/passwd'}}\n", Some("page.prometheus.url")),
            (
                "page: {prometheus: {url: 'http://127.0.0.1:9090/?a'}}\n",
                Some("page.prometheus.url is http://127.0.0.1:9090/?a: must be an address"),
            ),
            (
                "page: {prometheus: {url: 'http://127.0.0.1:9090', labels: {'a-b': c}}}\n",
                Some("page.prometheus.labels is a-b: must be names of labels"),
            ),
        ] {
            let error = Config::parse(text).err().map(|error| error.to_string());
            assert_eq!(error.is_some(), refused.is_some(), "{text}");
            assert!(error.unwrap_or_default().starts_with(refused.unwrap_or_default()));
        }
    }
}
