//! The OTLP endpoint's part of the configuration.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use daemon::config::range;
use daemon::{ClientConfigs, OutwardTls, ServerTls, TlsError};
use hooks::tracing::{BudgetRule, Limits, OrderKey, Switches, Threshold};
use otlp::tenants::{NetworkError, Tenants};
use otlp::{DerivedSettings, Protocol, Settings, TailSettings, Tenant, TenantSettings, UpstreamSettings, UpstreamTls};
use serde::Deserialize;
use wire::time::Nanos;

use super::{ConfigError, at_least_one, local};

/// Spans, metrics and logs that services send here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OtlpConfig {
    /// Where everything goes on to; without it, no OTLP is taken.
    pub upstream: Option<UpstreamConfig>,
    /// Where OTLP is taken, usually by gRPC.
    pub listen_grpc: SocketAddr,
    /// Where OTLP is taken, usually by HTTP.
    pub listen_http: SocketAddr,
    /// Certificates that clients see, and have to show; without, they speak openly.
    pub tls: Option<ServerTls>,
    /// Headers of clients that go on to the upstream with what they sent.
    pub pass_headers: Vec<String>,
    /// Bytes of one request, unpacked.
    pub request_bytes: usize,
    /// Bytes of all requests that are being read.
    pub reading_bytes: usize,
    /// Bytes of each signal that wait for the upstream.
    pub queue_bytes: usize,
    /// Which spans go on.
    pub traces: TracesConfig,
    /// What LMAPs see of spans.
    pub derived: DerivedConfig,
    /// Keys of attributes whose values nobody is to have.
    pub redact: Vec<String>,
    /// Who sends, beside everyone else.
    pub tenants: Vec<TenantConfig>,
}

impl Default for OtlpConfig {
    fn default() -> Self {
        Self {
            upstream: None,
            listen_grpc: local(4317),
            listen_http: local(4318),
            tls: None,
            pass_headers: otlp::USUAL_HEADERS.map(str::to_owned).to_vec(),
            request_bytes: 16 << 20,
            reading_bytes: 64 << 20,
            queue_bytes: 64 << 20,
            traces: TracesConfig::default(),
            derived: DerivedConfig::default(),
            redact: Vec::new(),
            tenants: Vec::new(),
        }
    }
}

/// A tenant, known by the addresses that it sends from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// As in labels, and before the names of its services that are not its own.
    pub name: String,
    /// Networks, such as 10.1.0.0/16, and addresses.
    pub peers: Vec<String>,
    /// Services that are its own; what ends with `*` is the beginning of names.
    #[serde(default)]
    pub services: Vec<String>,
    /// Memory for its waiting spans; as `traces.memory_bytes` if left out.
    #[serde(default)]
    pub memory_bytes: Option<usize>,
    /// Bytes kept of it per second; as `traces.budget_bytes_per_s` if left out.
    #[serde(default)]
    pub budget_bytes_per_s: Option<u64>,
}

impl TenantConfig {
    fn settings(&self) -> Result<TenantSettings, ConfigError> {
        let peers = self.peers.iter().map(|peer| peer.parse()).collect::<Result<_, _>>();
        let peers = peers.map_err(|cause: NetworkError| ConfigError::value("otlp.tenants", cause))?;
        let who = Tenant { name: self.name.clone(), peers, services: self.services.clone() };
        let (memory_bytes, budget_bytes_per_s) = (self.memory_bytes, self.budget_bytes_per_s);
        Ok(TenantSettings { who, memory_bytes, budget_bytes_per_s })
    }
}

/// Errors and durations of every service's operations, counted from its spans, for its LMAP.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DerivedConfig {
    /// Whether anything is.
    pub enabled: bool,
    /// Operations of one service that are told apart.
    pub operations: usize,
    /// Services.
    pub services: usize,
    /// A request is counted so long after it ended.
    pub delay_ms: u32,
    /// What no span came from for so long is watched no more.
    pub forget_ms: NonZeroU32,
}

impl Default for DerivedConfig {
    fn default() -> Self {
        let DerivedSettings { operations, services, delay, forget } = DerivedSettings::default();
        let (delay_ms, forget_ms) = (delay.as_millis() as u32, at_least_one(forget.as_millis() as u32));
        Self { enabled: true, operations, services, delay_ms, forget_ms }
    }
}

impl DerivedConfig {
    fn settings(&self) -> Result<Option<DerivedSettings>, ConfigError> {
        let (operations, services) = (self.operations, self.services);
        range((1..=200).contains(&operations), "otlp.derived.operations", &operations, "1 to 200 are possible")?;
        range((1..=1_000).contains(&services), "otlp.derived.services", &services, "1 to 1000 are possible")?;
        let delay = Nanos::from_millis(u64::from(self.delay_ms));
        let longest = delay <= DerivedSettings::LONGEST_DELAY;
        range(longest, "otlp.derived.delay_ms", &self.delay_ms, "at most 300000 are possible")?;
        let forget = Nanos::from_millis(u64::from(self.forget_ms.get()));
        Ok(self.enabled.then_some(DerivedSettings { operations, services, delay, forget }))
    }
}

/// Where everything goes on to.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamConfig {
    /// Such as `http://collector:4317`.
    pub endpoint: String,
    /// How it is spoken to.
    #[serde(default)]
    pub protocol: UpstreamProtocol,
    /// Sent with every request.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Certificates, for an endpoint of https; if left out, whom the system trusts is trusted.
    #[serde(default)]
    pub tls: Option<OutwardTls>,
    /// How bodies are packed.
    #[serde(default)]
    pub compression: Compression,
    /// An answer has to come within this.
    #[serde(default = "ten_seconds")]
    pub timeout_ms: NonZeroU32,
}

fn ten_seconds() -> NonZeroU32 {
    at_least_one(10_000)
}

/// How an upstream is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamProtocol {
    /// OTLP/gRPC.
    #[default]
    Grpc,
    /// OTLP/HTTP with Protocol Buffers.
    Http,
}

/// How bodies are packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// With gzip.
    Gzip,
}

/// Whether spans pass through, or wait for a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// Byte by byte, all of them.
    #[default]
    All,
    /// Whole traces that some policy wants.
    Tail,
}

/// Which spans go on.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, as in the file")]
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TracesConfig {
    /// All, or traces that a policy wants.
    pub keep: Keep,
    /// Memory for waiting spans.
    pub memory_bytes: usize,
    /// How long traces wait.
    pub wait_ms: NonZeroU32,
    /// The share of traces that is kept whatever happens; 0 for none.
    pub floor: f64,
    /// Whether traces with an error are kept.
    pub error: bool,
    /// Whether traces are kept that go through a service in alarm.
    pub lmap: bool,
    /// Whether traces are kept that take longer than is usual.
    pub latency: bool,
    /// Whether traces are kept for which a service asks.
    pub code: bool,
    /// Bytes kept per second.
    pub budget_bytes_per_s: u64,
    /// Services with which requests enter the system; if empty they are recognised.
    pub frontends: Vec<String>,
    /// 32 hexadecimal digits, the same on all nodes; drawn at random if left out.
    pub order_key: Option<String>,
    /// How this node is called in incomplete traces; the host's name if left out.
    pub node: Option<String>,
}

impl Default for TracesConfig {
    fn default() -> Self {
        Self {
            keep: Keep::All,
            memory_bytes: 256 << 20,
            wait_ms: at_least_one(60_000),
            floor: 0.01,
            error: true,
            lmap: true,
            latency: true,
            code: true,
            budget_bytes_per_s: 1_000_000,
            frontends: Vec::new(),
            order_key: None,
            node: None,
        }
    }
}

impl OtlpConfig {
    /// What the endpoint is told; `None` without an upstream. `drawn` is the order of eviction if none is configured, `host` the host's name.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if something is out of range, or a certificate cannot be read.
    pub fn settings(&self, drawn: u128, host: &str) -> Result<Option<Settings>, ConfigError> {
        let Some(upstream) = &self.upstream else { return Ok(None) };
        let least = "at least 4096 is needed";
        range(self.request_bytes >= 4_096, "otlp.request_bytes", &self.request_bytes, least)?;
        let (reading, queue) = (self.reading_bytes, self.queue_bytes);
        let wanted = "at least twice otlp.request_bytes is needed: a request is packed before it is unpacked";
        range(reading / 2 >= self.request_bytes, "otlp.reading_bytes", &reading, wanted)?;
        let wanted = "at least otlp.request_bytes and 4096 more are needed";
        range(queue.saturating_sub(4_096) >= self.request_bytes, "otlp.queue_bytes", &queue, wanted)?;
        let mut settings = Settings::new(upstream.settings()?);
        let tls = self.tls.as_ref().map(ServerTls::library).transpose();
        settings.tls = tls.map_err(|cause| ConfigError::value("otlp.tls", cause))?;
        settings.passed_headers.clone_from(&self.pass_headers);
        settings.request_bytes = self.request_bytes;
        settings.reading_bytes = reading;
        settings.queue_bytes = queue;
        settings.derived = self.derived.settings()?;
        settings.redacted.clone_from(&self.redact);
        settings.tenants = self.tenants.iter().map(TenantConfig::settings).collect::<Result<_, _>>()?;
        let table: Vec<_> = settings.tenants.iter().map(|tenant| tenant.who.clone()).collect();
        Tenants::new(&table).map_err(|cause| ConfigError::value("otlp.tenants", cause))?;
        if self.traces.keep == Keep::Tail {
            settings.tail = Some(self.traces.settings(drawn, host)?);
        }
        Ok(Some(settings))
    }
}

impl UpstreamConfig {
    pub(super) fn settings(&self) -> Result<UpstreamSettings, ConfigError> {
        let secure = self.endpoint.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"));
        let usual = secure.then(OutwardTls::default);
        let tls = self.tls.as_ref().or(usual.as_ref()).map(|tls| {
            let ClientConfigs { channel, library } = tls.load()?;
            Ok::<_, TlsError>(UpstreamTls { channel, library, domain: tls.domain.clone() })
        });
        Ok(UpstreamSettings {
            endpoint: self.endpoint.clone(),
            protocol: match self.protocol {
                UpstreamProtocol::Grpc => Protocol::Grpc,
                UpstreamProtocol::Http => Protocol::Http,
            },
            headers: self.headers.clone().into_iter().collect(),
            tls: tls.transpose().map_err(|cause| ConfigError::value("otlp.upstream.tls", cause))?,
            gzip: self.compression == Compression::Gzip,
            timeout: Duration::from_millis(u64::from(self.timeout_ms.get())),
        })
    }
}

impl TracesConfig {
    fn settings(&self, drawn: u128, host: &str) -> Result<TailSettings, ConfigError> {
        let floor = if self.floor == 0.0 { None } else { Some(self.floor) };
        let floor = floor.map(Threshold::keeping).transpose();
        let secret = self.order_key.as_deref().map(secret).transpose()?;
        let age = Nanos::from_millis(u64::from(self.wait_ms.get()));
        let defaults = Limits::default();
        Ok(TailSettings {
            limits: Limits { bytes: self.memory_bytes, age, hold: age.plus(age).max(defaults.hold), ..defaults },
            key: OrderKey::new(secret.unwrap_or(drawn)),
            switches: Switches {
                floor: floor.map_err(|cause| ConfigError::value("otlp.traces.floor", cause))?,
                error: self.error,
                lmap: self.lmap,
                latency: self.latency,
                code: self.code,
            },
            budget: BudgetRule { bytes_per_s: self.budget_bytes_per_s, ..BudgetRule::default() },
            frontends: self.frontends.clone(),
            node: self.node.as_deref().unwrap_or(host).to_owned(),
        })
    }
}

fn secret(digits: &str) -> Result<u128, ConfigError> {
    let read = u128::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 32 && !digits.starts_with('+'));
    let wanted = "32 hexadecimal digits are needed";
    // Not shown: who knows it can choose which traces are never evicted.
    range(read.is_some(), "otlp.traces.order_key", &"something else", wanted)?;
    Ok(read.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn settings(text: &str) -> Option<Settings> {
        Config::parse(text).unwrap().otlp.settings(7, "host-3").unwrap()
    }

    #[test]
    fn without_an_upstream_there_is_no_endpoint_and_spans_pass_through_unless_they_are_to_wait() {
        let upstream =
            "otlp:\n  upstream: {endpoint: 'http://c:4318', protocol: http, headers: {a: b}, timeout_ms: 50}\n";

        assert!(settings("").is_none());
        let passing = settings(upstream).unwrap();
        assert!(passing.tail.is_none());
        assert_eq!((passing.upstream.protocol, passing.upstream.timeout), (Protocol::Http, Duration::from_millis(50)));
        assert_eq!(passing.upstream.headers, [("a".to_owned(), "b".to_owned())]);
        assert!(!passing.upstream.gzip);
        assert!(settings(&upstream.replace("timeout_ms", "compression: gzip, timeout_ms")).unwrap().upstream.gzip);
        let waiting = settings(&format!("{upstream}  traces: {{keep: tail, wait_ms: 90000, floor: 0}}\n")).unwrap();
        let tail = waiting.tail.unwrap();
        assert_eq!((tail.node.as_str(), tail.switches.floor), ("host-3", None));
        assert_eq!((tail.limits.age, tail.limits.hold), (Nanos::from_secs(90), Nanos::from_secs(180)));
    }

    #[test]
    fn what_is_out_of_range_is_refused_with_its_key() {
        let upstream = "otlp:\n  upstream: {endpoint: 'http://c:4318'}\n";
        for (text, key) in [
            ("  request_bytes: 100\n", "otlp.request_bytes is 100"),
            ("  reading_bytes: 20000000\n", "otlp.reading_bytes is 20000000"),
            ("  queue_bytes: 16777216\n", "otlp.queue_bytes is 16777216"),
            ("  derived: {operations: 201}\n", "otlp.derived.operations is 201"),
            ("  derived: {services: 0}\n", "otlp.derived.services is 0"),
            ("  tenants: [{name: a, peers: [b]}]\n", "\"b\" is no network"),
            ("  tenants: [{name: a, peers: [::1]}, {name: a, peers: []}]\n", "two tenants are called \"a\""),
            ("  derived: {delay_ms: 300001}\n", "otlp.derived.delay_ms is 300001"),
            ("  traces: {keep: tail, floor: 2}\n", "otlp.traces.floor"),
            ("  traces: {keep: tail, order_key: abc}\n", "otlp.traces.order_key is something else"),
        ] {
            let error = Config::parse(&format!("{upstream}{text}")).unwrap_err();
            let causes: Vec<String> = std::iter::successors(Some(&error as &dyn std::error::Error), |e| e.source())
                .map(ToString::to_string)
                .collect();
            assert!(causes.iter().any(|cause| cause.contains(key)), "{text}: {causes:?}");
        }
    }

    /// On a system that trusts nobody that is said, with what can be done.
    #[test]
    fn an_upstream_of_https_is_trusted_if_the_system_trusts_it() {
        let text = |endpoint: &str| format!("otlp: {{upstream: {{endpoint: \"{endpoint}\"}}}}");
        match Config::parse(&text("HTTPS://collector:4317")) {
            Ok(config) => {
                let settings = config.otlp.settings(7, "host-3").unwrap().unwrap();
                assert!(settings.upstream.tls.is_some());
            }
            Err(error) => {
                let error = format!("{error:?}");
                assert!(error.contains("NoSystemRoots") && error.contains("otlp.upstream.tls"), "{error}");
            }
        }
        assert!(settings(&text("http://collector:4317")).unwrap().upstream.tls.is_none());
        let wrong = "otlp: {upstream: {endpoint: \"https://x\", tls: {ca: /nowhere.pem}}}";
        let wrong = Config::parse(wrong).unwrap_err();
        assert!(format!("{wrong:?}").contains("/nowhere.pem"), "{wrong:?}");
    }
}
