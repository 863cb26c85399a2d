//! Configuration of the OTLP endpoint.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use agent_runtime::config::range;
use agent_runtime::reload::Reloadable;
use agent_runtime::{OutwardTls, ServerTls};
use hooks::tracing::{BudgetRule, Limits, OrderKey, Switches, Threshold};
use otlp::tenants::{NetworkError, Tenants};
use otlp::{
    MetricsExporter, Protocol, Settings, SpanMetricsSettings, TailSettings, Tenant, TenantSettings, UpstreamSettings,
};
use serde::Deserialize;
use wire::time::Nanos;

use super::headers::HeaderSource;
use super::{ConfigError, KeepMode, LogsConfig, WatchedMetricsConfig, at_least_one, local};

/// What is said of an endpoint without an upstream.
pub(crate) const WATCH_ONLY: &str =
    "what services send is watched, and passed on to nobody: otlp.upstream names who gets it";

/// The OTLP endpoint: spans, metrics and logs of services.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OtlpConfig {
    /// Where everything is forwarded to. `None`: OTLP is off, unless it is to watch only.
    pub upstream: Option<UpstreamConfig>,
    /// Whether, without an upstream, what services send is watched and forwarded to nobody.
    pub watch_only: bool,
    /// Address for OTLP, usually by gRPC.
    pub listen_grpc: SocketAddr,
    /// Address for OTLP, usually by HTTP.
    pub listen_http: SocketAddr,
    /// Server TLS. Without it, clients connect without TLS.
    pub tls: Option<ServerTls>,
    /// Client headers that are forwarded to the upstream.
    pub pass_headers: Vec<String>,
    /// Threads for OTLP, 1 to 256; `None`: half of the processors, from 2 to 8. The control plane has its own.
    pub threads: Option<usize>,
    /// Limit of one request, in bytes after decompression.
    pub request_bytes: usize,
    /// Memory budget of all requests while they are received, in bytes.
    pub receive_memory_bytes: usize,
    /// Queue to the upstream, in bytes for each signal.
    pub queue_bytes: usize,
    /// Which spans are forwarded.
    pub traces: TracesConfig,
    /// Which log records are forwarded.
    pub logs: LogsConfig,
    /// Which metrics are watched. All are forwarded.
    pub metrics: WatchedMetricsConfig,
    /// Metrics derived from spans, for LMAPs.
    pub derived: DerivedConfig,
    /// Attribute keys whose values are masked.
    pub redact: Vec<String>,
    /// Tenants; everyone else is the tenant `default`.
    pub tenants: Vec<TenantConfig>,
}

impl Default for OtlpConfig {
    fn default() -> Self {
        Self {
            upstream: None,
            watch_only: false,
            listen_grpc: local(4317),
            listen_http: local(4318),
            tls: None,
            pass_headers: otlp::DEFAULT_FORWARDED_HEADERS.map(str::to_owned).to_vec(),
            threads: None,
            request_bytes: 16 << 20,
            receive_memory_bytes: 64 << 20,
            queue_bytes: 64 << 20,
            traces: TracesConfig::default(),
            logs: LogsConfig::default(),
            metrics: WatchedMetricsConfig::default(),
            derived: DerivedConfig::default(),
            redact: Vec::new(),
            tenants: Vec::new(),
        }
    }
}

/// A tenant, identified by the addresses that it sends from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// Name in labels, and prefix of services that it may not call its own.
    pub name: String,
    /// Networks (10.1.0.0/16) and addresses.
    pub peers: Vec<String>,
    /// Services of this tenant; a trailing `*` matches any name with that beginning.
    #[serde(default)]
    pub services: Vec<String>,
    /// Memory for buffered spans; `traces.memory_bytes` if left out.
    #[serde(default)]
    pub memory_bytes: Option<usize>,
    /// Bytes kept per second; `traces.budget_bytes_per_s` if left out.
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

/// Errors and durations per operation, counted from spans: for `/metrics`, the map, and the services' LMAPs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DerivedConfig {
    /// Whether spans are counted.
    pub enabled: bool,
    /// Whether what is counted becomes columns of the services' LMAPs.
    pub columns: bool,
    /// Operations of one service that are counted separately, 1 to 200.
    pub operations: usize,
    /// Services that are counted, 1 to 1000.
    pub services: usize,
    /// Delay between the end of a request and its count, in milliseconds; at most 300000.
    pub delay_ms: u32,
    /// A service or operation without a span for this long is dropped.
    pub expire_ms: NonZeroU32,
}

impl Default for DerivedConfig {
    fn default() -> Self {
        let SpanMetricsSettings { operations, services, delay, forget } = SpanMetricsSettings::default();
        let (delay_ms, expire_ms) = (delay.as_millis() as u32, at_least_one(forget.as_millis() as u32));
        Self { enabled: true, columns: true, operations, services, delay_ms, expire_ms }
    }
}

impl DerivedConfig {
    fn settings(&self) -> Result<Option<SpanMetricsSettings>, ConfigError> {
        let (operations, services) = (self.operations, self.services);
        range((1..=200).contains(&operations), "otlp.derived.operations", &operations, "must be 1 to 200")?;
        range((1..=1_000).contains(&services), "otlp.derived.services", &services, "must be 1 to 1000")?;
        let delay = Nanos::from_millis(u64::from(self.delay_ms));
        let longest = delay <= SpanMetricsSettings::LONGEST_DELAY;
        range(longest, "otlp.derived.delay_ms", &self.delay_ms, "must be at most 300000")?;
        let forget = Nanos::from_millis(u64::from(self.expire_ms.get()));
        Ok(self.enabled.then_some(SpanMetricsSettings { operations, services, delay, forget }))
    }
}

/// Where everything is forwarded to.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamConfig {
    /// URL, such as `http://collector:4317`.
    pub endpoint: String,
    /// Protocol towards the upstream.
    #[serde(default)]
    pub protocol: UpstreamProtocol,
    /// Headers sent with every request.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Files with the values of more of them. Changed ones are read again.
    #[serde(default)]
    pub header_files: BTreeMap<String, PathBuf>,
    /// Client TLS for an https endpoint. If left out, the system's roots are trusted.
    #[serde(default)]
    pub tls: Option<OutwardTls>,
    /// Compression of request bodies.
    #[serde(default)]
    pub compression: Compression,
    /// Deadline of a request.
    #[serde(default = "ten_seconds")]
    pub timeout_ms: NonZeroU32,
}

fn ten_seconds() -> NonZeroU32 {
    at_least_one(10_000)
}

/// Protocol towards an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamProtocol {
    /// OTLP over gRPC.
    #[default]
    Grpc,
    /// OTLP/HTTP with Protocol Buffers.
    Http,
}

/// Compression of request bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Bodies are not compressed.
    #[default]
    None,
    /// Bodies are compressed with gzip.
    Gzip,
}

/// Which spans are forwarded, and the policies that select traces.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, as in the file")]
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TracesConfig {
    /// All spans, or selected traces only.
    pub keep: KeepMode,
    /// Memory for buffered spans and decisions, in bytes.
    pub memory_bytes: usize,
    /// How long a trace waits for a decision.
    pub decision_wait_ms: NonZeroU32,
    /// Share of traces that is always kept, 0 to 1; 0 keeps none.
    pub floor: f64,
    /// Keep traces with an error.
    pub error: bool,
    /// Keep traces through a service in alarm.
    pub lmap: bool,
    /// Of these, the share that is kept of those that look as their operation usually does, 0 to 1.
    pub unremarkable: f64,
    /// Keep traces that take longer than usual.
    pub latency: bool,
    /// Keep traces that a service asks for (`uview.trigger`).
    pub trigger: bool,
    /// Budget of kept bytes per second, without the floor.
    pub budget_bytes_per_s: u64,
    /// Services at which requests enter the system. Empty: those that are called without a parent span.
    pub frontends: Vec<String>,
    /// Order of eviction: 32 hexadecimal digits, the same on all nodes. Random if left out.
    pub order_key: Option<String>,
    /// This node's name in gossip and in incomplete traces. `None`: as `--gossip-name` says, else the node's or the
    /// host's name.
    pub node: Option<String>,
}

impl Default for TracesConfig {
    fn default() -> Self {
        Self {
            keep: KeepMode::All,
            memory_bytes: 256 << 20,
            decision_wait_ms: at_least_one(60_000),
            floor: 0.01,
            error: true,
            lmap: true,
            unremarkable: 1.0,
            latency: true,
            trigger: true,
            budget_bytes_per_s: 1_000_000,
            frontends: Vec::new(),
            order_key: None,
            node: None,
        }
    }
}

impl OtlpConfig {
    /// Whether there is an endpoint: it forwards to an upstream, or watches only.
    pub(crate) const fn is_on(&self) -> bool {
        self.upstream.is_some() || self.watch_only
    }

    /// Settings of the endpoint; `None` if it is off. `drawn` is the eviction order if none is configured,
    /// `host` the host's name.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a value is out of range, or a certificate cannot be read.
    pub fn settings(&self, drawn: u128, host: &str) -> Result<Option<Settings>, ConfigError> {
        if !self.is_on() {
            return Ok(None);
        }
        let wanted = "must be false with otlp.upstream, to which everything is passed on";
        range(!self.watch_only || self.upstream.is_none(), "otlp.watch_only", &true, wanted)?;
        let threads = self.threads.unwrap_or(1);
        range((1..=256).contains(&threads), "otlp.threads", &threads, "must be 1 to 256")?;
        let least = "must be at least 4096";
        range(self.request_bytes >= 4_096, "otlp.request_bytes", &self.request_bytes, least)?;
        let (reading, queue) = (self.receive_memory_bytes, self.queue_bytes);
        let wanted = "must be at least twice otlp.request_bytes: a request is in memory compressed and decompressed";
        range(reading / 2 >= self.request_bytes, "otlp.receive_memory_bytes", &reading, wanted)?;
        let wanted = "must be at least 4/3 of otlp.request_bytes + 4096: one sender gets three quarters";
        range((queue / 4 * 3).saturating_sub(4_096) >= self.request_bytes, "otlp.queue_bytes", &queue, wanted)?;
        let mut settings = match &self.upstream {
            Some(upstream) => Settings::new(upstream.settings()?),
            None => Settings::watch_only(),
        };
        let tls = self.tls.as_ref().map(ServerTls::library).transpose();
        settings.tls = tls.map_err(|cause| ConfigError::value("otlp.tls", cause))?;
        settings.forwarded_headers.clone_from(&self.pass_headers);
        settings.request_bytes = self.request_bytes;
        settings.receive_memory_bytes = reading;
        settings.queue_bytes = queue;
        settings.span_metrics = self.derived.settings()?;
        settings.watched_metrics = self.metrics.settings(self.request_bytes)?.map(|watched| watched.queue_bytes);
        settings.redacted.clone_from(&self.redact);
        settings.tenants = self.tenants.iter().map(TenantConfig::settings).collect::<Result<_, _>>()?;
        let table: Vec<_> = settings.tenants.iter().map(|tenant| tenant.who.clone()).collect();
        Tenants::new(&table).map_err(|cause| ConfigError::value("otlp.tenants", cause))?;
        settings.logs = self.logs.settings(self.traces.keep)?;
        if self.traces.keep == KeepMode::Tail {
            settings.tail = Some(self.traces.settings(drawn, host)?);
        } else {
            settings.observed_key = self.traces.order_key.as_deref().map(secret).transpose()?;
        }
        Ok(Some(settings))
    }
}

impl UpstreamConfig {
    /// Checks endpoint, headers and certificates, without a call. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the upstream cannot be called so.
    pub fn check(&self) -> Result<(), ConfigError> {
        let made = MetricsExporter::new(&self.settings()?);
        made.map(drop).map_err(|cause| ConfigError::value("endpoint", cause))
    }

    /// The certificates of its client: as configured, or those that the system trusts for an https endpoint.
    pub(crate) fn client_tls(&self) -> Option<OutwardTls> {
        let secure = self.endpoint.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"));
        self.tls.clone().or_else(|| secure.then(OutwardTls::default))
    }

    /// The headers of its requests.
    pub(crate) fn header_source(&self) -> HeaderSource<'_> {
        HeaderSource { url: &self.endpoint, given: &self.headers, files: &self.header_files }
    }

    pub(super) fn settings(&self) -> Result<UpstreamSettings, ConfigError> {
        let tls = self.client_tls().map(|tls| tls.load().map(Reloadable::new)).transpose();
        Ok(UpstreamSettings {
            endpoint: self.endpoint.clone(),
            protocol: match self.protocol {
                UpstreamProtocol::Grpc => Protocol::Grpc,
                UpstreamProtocol::Http => Protocol::Http,
            },
            headers: self.header_source().values("otlp.upstream.header_files")?,
            tls: tls.map_err(|cause| ConfigError::value("otlp.upstream.tls", cause))?,
            gzip: self.compression == Compression::Gzip,
            timeout: Duration::from_millis(u64::from(self.timeout_ms.get())),
        })
    }
}

impl TracesConfig {
    fn settings(&self, drawn: u128, host: &str) -> Result<TailSettings, ConfigError> {
        let share = |of: f64| (of != 0.0).then(|| Threshold::keeping(of)).transpose();
        let (floor, unremarkable) = (share(self.floor), share(self.unremarkable));
        let secret = self.order_key.as_deref().map(secret).transpose()?;
        let age = Nanos::from_millis(u64::from(self.decision_wait_ms.get()));
        let defaults = Limits::default();
        Ok(TailSettings {
            limits: Limits { bytes: self.memory_bytes, age, hold: age.plus(age).max(defaults.hold), ..defaults },
            key: OrderKey::new(secret.unwrap_or(drawn)),
            switches: Switches {
                floor: floor.map_err(|cause| ConfigError::value("otlp.traces.floor", cause))?,
                error: self.error,
                lmap: self.lmap,
                unremarkable: unremarkable.map_err(|cause| ConfigError::value("otlp.traces.unremarkable", cause))?,
                latency: self.latency,
                trigger: self.trigger,
            },
            budget: BudgetRule { bytes_per_s: self.budget_bytes_per_s, ..BudgetRule::default() },
            frontends: self.frontends.clone(),
            node: self.node.as_deref().unwrap_or(host).to_owned(),
        })
    }
}

fn secret(digits: &str) -> Result<u128, ConfigError> {
    let read = u128::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 32 && !digits.starts_with('+'));
    let wanted = "must be 32 hexadecimal digits";
    // The key is not printed: it tells which traces are never evicted.
    range(read.is_some(), "otlp.traces.order_key", &"invalid", wanted)?;
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
        let to = passing.upstream.unwrap();
        assert_eq!((to.protocol, to.timeout), (Protocol::Http, Duration::from_millis(50)));
        assert_eq!(to.headers, [("a".to_owned(), "b".to_owned())]);
        assert!(!to.gzip);
        let gzip = settings(&upstream.replace("timeout_ms", "compression: gzip, timeout_ms")).unwrap();
        assert!(gzip.upstream.unwrap().gzip);
        let waiting =
            settings(&format!("{upstream}  traces: {{keep: tail, decision_wait_ms: 90000, floor: 0}}\n")).unwrap();
        let tail = waiting.tail.unwrap();
        assert_eq!((tail.node.as_str(), tail.switches.floor), ("host-3", None));
        assert_eq!(tail.switches.unremarkable, Some(Threshold::ALL));
        let fewer = settings(&format!("{upstream}  traces: {{keep: tail, unremarkable: 0}}\n")).unwrap();
        assert_eq!(fewer.tail.unwrap().switches.unremarkable, None);
        assert_eq!((tail.limits.age, tail.limits.hold), (Nanos::from_secs(90), Nanos::from_secs(180)));
    }

    #[test]
    fn an_endpoint_that_watches_only_has_no_upstream_and_one_that_has_does_not_watch_only() {
        let watching = settings("otlp: {watch_only: true, traces: {keep: tail}, logs: {keep: tail}}").unwrap();
        assert!(watching.upstream.is_none() && watching.tail.is_some() && watching.logs.is_some());
        assert!(watching.span_metrics.is_some() && watching.watched_metrics.is_some());
        assert!(settings("otlp: {watch_only: false}").is_none());

        let both = Config::parse("otlp: {watch_only: true, upstream: {endpoint: 'http://c:4317'}}").unwrap_err();
        let said = both.to_string();
        assert!(said.starts_with("otlp.watch_only is true: must be false with otlp.upstream"), "{said}");
        let wrong = Config::parse("otlp: {watch_only: true, request_bytes: 100}").unwrap_err().to_string();
        assert!(wrong.starts_with("otlp.request_bytes is 100"), "{wrong}");
    }

    #[test]
    fn what_is_out_of_range_is_refused_with_its_key() {
        let upstream = "otlp:\n  upstream: {endpoint: 'http://c:4318'}\n";
        for (text, key) in [
            ("  request_bytes: 100\n", "otlp.request_bytes is 100"),
            ("  receive_memory_bytes: 20000000\n", "otlp.receive_memory_bytes is 20000000"),
            ("  threads: 0\n", "otlp.threads is 0"),
            ("  queue_bytes: 22369621\n", "otlp.queue_bytes is 22369621"),
            ("  derived: {operations: 201}\n", "otlp.derived.operations is 201"),
            ("  derived: {services: 0}\n", "otlp.derived.services is 0"),
            ("  tenants: [{name: a, peers: [b]}]\n", "\"b\" is not a network"),
            ("  tenants: [{name: a, peers: [::1]}, {name: a, peers: []}]\n", "two tenants are called \"a\""),
            ("  derived: {delay_ms: 300001}\n", "otlp.derived.delay_ms is 300001"),
            ("  traces: {keep: tail, floor: 2}\n", "otlp.traces.floor"),
            ("  traces: {keep: tail, unremarkable: 1.5}\n", "otlp.traces.unremarkable"),
            ("  traces: {keep: tail, order_key: abc}\n", "otlp.traces.order_key is invalid"),
        ] {
            let error = Config::parse(&format!("{upstream}{text}")).unwrap_err();
            let causes = agent_runtime::chain(&error);
            assert!(causes.contains(key), "{text}: {causes}");
        }
    }

    /// On a system without root certificates, the error says so and what to do.
    #[test]
    fn an_upstream_of_https_is_trusted_if_the_system_trusts_it() {
        let text = |endpoint: &str| format!("otlp: {{upstream: {{endpoint: \"{endpoint}\"}}}}");
        match Config::parse(&text("HTTPS://collector:4317")) {
            Ok(config) => {
                let settings = config.otlp.settings(7, "host-3").unwrap().unwrap();
                assert!(settings.upstream.unwrap().tls.is_some());
            }
            Err(error) => {
                let error = format!("{error:?}");
                assert!(error.contains("NoSystemRoots") && error.contains("otlp.upstream.tls"), "{error}");
            }
        }
        assert!(settings(&text("http://collector:4317")).unwrap().upstream.unwrap().tls.is_none());
        let wrong = "otlp: {upstream: {endpoint: \"https://x\", tls: {ca: /nowhere.pem}}}";
        let wrong = Config::parse(wrong).unwrap_err();
        assert!(format!("{wrong:?}").contains("/nowhere.pem"), "{wrong:?}");
    }
}
