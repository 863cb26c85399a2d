//! Configuration of the live page.

use std::net::SocketAddr;

use agent_runtime::config::range;
use serde::Deserialize;

use super::{ConfigError, local};

/// Least bytes of history: names of 8,192 services, and some buckets of each.
const LEAST_HISTORY: usize = 8 << 20;

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
    /// Bytes for scores and alarms, at least 8 MiB.
    pub history_bytes: usize,
    /// Bytes of kept traces.
    pub trace_bytes: usize,
    /// Address of a trace at a tracing backend, in which `{trace}` stands for its id. `None`: there is no link.
    pub trace_link: Option<String>,
}

impl Default for PageConfig {
    fn default() -> Self {
        Self { enabled: true, listen: local(0), history_bytes: 16 << 20, trace_bytes: 16 << 20, trace_link: None }
    }
}

impl PageConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let is_loopback = self.listen.ip().to_canonical().is_loopback();
        range(is_loopback, "page.listen", &self.listen, "must be on loopback; from elsewhere, use a tunnel (ssh -L)")?;
        let has_room = self.history_bytes >= LEAST_HISTORY;
        range(has_room, "page.history_bytes", &self.history_bytes, "must be at least 8388608")?;
        let Some(link) = &self.trace_link else { return Ok(()) };
        let is_web = link.starts_with("https://") || link.starts_with("http://");
        range(is_web && link.contains(TRACE), "page.trace_link", link, "must begin with http and have {trace} in it")
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
        ] {
            let error = Config::parse(text).err().map(|error| error.to_string());
            assert_eq!(error.is_some(), refused.is_some(), "{text}");
            assert!(error.unwrap_or_default().starts_with(refused.unwrap_or_default()));
        }
    }
}
