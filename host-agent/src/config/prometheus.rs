//! Configuration of Prometheus endpoints as a source.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use agent_runtime::ConfigError;
use agent_runtime::config::range;
use agent_runtime::http_client::{Client, Endpoint, EndpointError};
use exposition::TargetSettings;
use exposition::choice::ChoiceSettings;
use serde::Deserialize;
use wire::name::{InstanceName, Labels, ServiceName};
use wire::time::{Interval, Nanos};

use super::at_least_one;
use super::headers::HeaderSource;
use crate::prometheus::TargetPlan;

/// Default path of a URL without one.
const PATH: &str = "/metrics";
/// Most targets of one agent.
pub(crate) const MAX_TARGETS: usize = 256;
/// Bytes kept for a sample that a target exposes: its name four times, its place.
const SAMPLE_BYTES: u64 = 2_000;
/// Bytes of a sample in a window.
const WINDOW_BYTES: u64 = 4;

/// Endpoints that are scraped.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PrometheusConfig {
    /// One entry for each endpoint.
    pub targets: Vec<PrometheusTarget>,
}

/// One endpoint to scrape.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrometheusTarget {
    /// The service whose LMAP watches it.
    pub service: String,
    /// Such as `http://127.0.0.1:9121/metrics`.
    pub url: String,
    /// Name of the replica; host and port of the URL if left out.
    #[serde(default)]
    pub instance: Option<String>,
    /// Time between two scrapes in milliseconds, 100 to 60000; `None`: as `cpu_share` allows.
    #[serde(default)]
    pub interval_ms: Option<NonZeroU32>,
    /// Most of a processor that scrapes may cost the target, which sets the interval: 0.0001 to 1. How long a scrape
    /// takes is taken for its cost, which is less.
    #[serde(default = "five_percent")]
    pub cpu_share: f64,
    /// Deadline of a scrape.
    #[serde(default = "five_seconds")]
    pub timeout_ms: NonZeroU32,
    /// Labels that are added to all series.
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
    /// Names of metrics that may be watched, with `*`. Empty: all.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Names of metrics that are not watched.
    #[serde(default)]
    pub deny: Vec<String>,
    /// Columns for all of its series.
    #[serde(default = "usual_columns")]
    pub max_columns: NonZeroUsize,
    /// Series of one name that get columns of their own.
    #[serde(default = "usual_label_sets")]
    pub label_sets: NonZeroUsize,
    /// Scrapes that are learnt before series are chosen, 10 to 600.
    #[serde(default = "usual_window")]
    pub learn_scrapes: NonZeroU32,
    /// Samples that are looked at.
    #[serde(default = "usual_samples")]
    pub max_samples: NonZeroUsize,
    /// Bytes of an answer, as sent and unpacked.
    #[serde(default = "usual_bytes")]
    pub max_bytes: NonZeroUsize,
}

const fn five_percent() -> f64 {
    0.05
}

pub(super) fn five_seconds() -> NonZeroU32 {
    at_least_one(5_000)
}

pub(super) fn size(size: usize) -> NonZeroUsize {
    NonZeroUsize::new(size).unwrap_or(NonZeroUsize::MIN)
}

fn usual_columns() -> NonZeroUsize {
    size(150)
}

fn usual_label_sets() -> NonZeroUsize {
    size(8)
}

fn usual_window() -> NonZeroU32 {
    at_least_one(60)
}

fn usual_samples() -> NonZeroUsize {
    size(20_000)
}

fn usual_bytes() -> NonZeroUsize {
    size(4 << 20)
}

/// The place of a key of target number `at`, for errors.
fn key(name: &'static str) -> &'static str {
    match name {
        "service" => "sources.prometheus.targets.service",
        "instance" => "sources.prometheus.targets.instance",
        "labels" => "sources.prometheus.targets.labels",
        "ca" => "sources.prometheus.targets.ca",
        "header_files" => "sources.prometheus.targets.header_files",
        _ => "sources.prometheus.targets.url",
    }
}

/// The error of an endpoint, with the key of its URL or that of its authority.
pub(super) fn of_endpoint([url, ca]: [&'static str; 2], cause: EndpointError) -> ConfigError {
    match cause {
        EndpointError::Tls(cause) => ConfigError::value(ca, cause),
        cause => ConfigError::value(url, cause),
    }
}

impl PrometheusTarget {
    /// The endpoint `url` of `service`, with all defaults.
    pub(crate) fn new(service: String, url: String) -> Self {
        Self {
            service,
            url,
            instance: None,
            interval_ms: None,
            cpu_share: five_percent(),
            timeout_ms: five_seconds(),
            labels: BTreeMap::new(),
            headers: BTreeMap::new(),
            header_files: BTreeMap::new(),
            ca: None,
            allow: Vec::new(),
            deny: Vec::new(),
            max_columns: usual_columns(),
            label_sets: usual_label_sets(),
            learn_scrapes: usual_window(),
            max_samples: usual_samples(),
            max_bytes: usual_bytes(),
        }
    }

    /// Whether it differs in nothing but headers from one that was configured `before`.
    pub(crate) fn goes_on_from(&self, before: &Self) -> bool {
        let headless = |of: &Self| Self { headers: BTreeMap::new(), header_files: BTreeMap::new(), ..of.clone() };
        // Most differ in these, and nothing is copied.
        let is_near = self.service == before.service && self.url == before.url;
        is_near && headless(self) == headless(before)
    }

    /// The headers of its requests.
    pub(crate) fn header_source(&self) -> HeaderSource<'_> {
        HeaderSource { url: &self.url, given: &self.headers, files: &self.header_files }
    }

    /// What a scraper needs.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a value is out of range, or a certificate or a file with a header cannot be read.
    pub(crate) fn plan(&self) -> Result<TargetPlan, ConfigError> {
        self.check()?;
        let timeout = Duration::from_millis(u64::from(self.timeout_ms.get()));
        let headers = self.header_source().values(key("header_files"))?;
        let endpoint = Endpoint { url: self.url.clone(), headers, ca: self.ca.clone(), timeout };
        let client = Client::new(&endpoint, PATH).map_err(|cause| of_endpoint([key("url"), key("ca")], cause))?;
        let client = client.asking_who_listens();
        let labels: Vec<_> = self.labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        Ok(TargetPlan {
            service: ServiceName::new(&self.service).map_err(|cause| ConfigError::value(key("service"), cause))?,
            instance: self.instance_name()?,
            url: self.url.clone(),
            client,
            interval: self.interval_ms.map(|millis| Nanos::from_millis(u64::from(millis.get()))),
            cpu_share: self.cpu_share,
            max_bytes: self.max_bytes.get(),
            settings: TargetSettings {
                choice: ChoiceSettings {
                    allow: self.allow.clone(),
                    deny: self.deny.clone(),
                    columns: self.max_columns.get(),
                    label_sets: self.label_sets.get(),
                },
                labels,
                window: self.learn_scrapes.get(),
                samples: self.max_samples.get(),
                hold: 0,
            },
        })
    }

    fn instance_name(&self) -> Result<InstanceName, ConfigError> {
        let host = || self.url.split("://").nth(1).unwrap_or_default().split('/').next().unwrap_or_default();
        let name = self.instance.as_deref().unwrap_or_else(host);
        InstanceName::new(name).map_err(|cause| ConfigError::value(key("instance"), cause))
    }

    fn check(&self) -> Result<(), ConfigError> {
        if let Some(interval) = self.interval_ms {
            let fits = (100..=60_000).contains(&interval.get());
            range(fits, "sources.prometheus.targets.interval_ms", &interval, "must be from 100 to 60000")?;
        }
        let share = self.cpu_share;
        let fits = (0.0001..=1.0).contains(&share);
        range(fits, "sources.prometheus.targets.cpu_share", &share, "must be a share of a processor from 0.0001 to 1")?;
        let window = self.learn_scrapes.get();
        let fits = (10..=600).contains(&window);
        range(fits, "sources.prometheus.targets.learn_scrapes", &window, "must be from 10 to 600")?;
        let columns = self.max_columns.get();
        let fits = columns <= 2_000;
        range(fits, "sources.prometheus.targets.max_columns", &columns, "must be at most 2000")?;
        let pairs = self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Labels::new(pairs).map(drop).map_err(|cause| ConfigError::value(key("labels"), cause))
    }

    /// What it may keep in memory at most.
    pub(crate) fn bytes(&self) -> u64 {
        let each = SAMPLE_BYTES + u64::from(self.learn_scrapes.get()) * WINDOW_BYTES;
        2 * self.max_bytes.get() as u64 + self.max_samples.get() as u64 * each
    }
}

impl PrometheusConfig {
    /// What the scrapers need, in the order of the file.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] of the first target that cannot be used.
    pub(crate) fn plans(&self) -> Result<Vec<TargetPlan>, ConfigError> {
        let targets = self.targets.len();
        let what = "must be at most 256 on one node";
        range(targets <= MAX_TARGETS, "sources.prometheus.targets", &targets, what)?;
        let plans: Vec<TargetPlan> = self.targets.iter().map(PrometheusTarget::plan).collect::<Result<_, _>>()?;
        let mut names = std::collections::BTreeSet::new();
        for plan in &plans {
            let is_new = names.insert((plan.service.clone(), plan.instance.clone()));
            range(is_new, key("instance"), &plan.instance, "is there twice for this service: give another name")?;
        }
        Ok(plans)
    }

    /// All targets, each with what its scraper needs.
    ///
    /// # Errors
    ///
    /// Those of [`plans`](Self::plans).
    pub(crate) fn planned(&self) -> Result<Vec<(PrometheusTarget, TargetPlan)>, ConfigError> {
        Ok(self.targets.iter().cloned().zip(self.plans()?).collect())
    }

    /// What all targets may keep in memory at most.
    pub(crate) fn bytes(&self) -> u64 {
        self.targets.iter().map(PrometheusTarget::bytes).sum()
    }
}

/// The interval of rows for values that change every `period`.
pub(crate) fn changes_every(period: Nanos) -> Option<Interval> {
    Interval::new(period).ok()
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn error(target: &str) -> String {
        let text = format!("sources: {{prometheus: {{targets: [{{service: shop, {target}}}]}}}}");
        Config::parse(&text).map_or_else(|error| agent_runtime::chain(&error), |_| String::new())
    }

    #[test]
    fn a_target_needs_a_service_and_a_url_and_nothing_else() {
        let text = "sources: {prometheus: {targets: [{service: redis, url: 'http://127.0.0.1:9121'}]}}";
        let config = Config::parse(text).unwrap();

        let plan = config.sources.prometheus.plans().unwrap().remove(0);

        assert_eq!((plan.service.as_str(), plan.instance.as_str()), ("redis", "127.0.0.1:9121"));
        assert_eq!((plan.interval, plan.settings.window), (None, 60));
    }

    #[test]
    fn a_target_goes_on_with_other_headers_and_with_nothing_else() {
        let target = |more: &str| {
            let text = format!("sources: {{prometheus: {{targets: [{{service: redis, url: 'http://a', {more}}}]}}}}");
            let config: Config = agent_runtime::config::parse_unchecked(&text).unwrap();
            config.sources.prometheus.targets[0].clone()
        };
        let before = target("headers: {a: b}, max_columns: 10");

        for same in ["max_columns: 10", "max_columns: 10, headers: {a: c}, header_files: {d: /e}"] {
            assert!(target(same).goes_on_from(&before), "{same}");
        }
        for other in ["headers: {a: b}", "headers: {a: b}, max_columns: 10, ca: /c.pem", "max_columns: 10, deny: [a]"] {
            assert!(!target(other).goes_on_from(&before), "{other}");
        }
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        for (target, expected) in [
            ("url: nowhere", "invalid URL `nowhere`"),
            ("url: 'http://a', interval_ms: 50", "interval_ms is 50: must be from 100 to 60000"),
            ("url: 'http://a', cpu_share: 2", "cpu_share is 2"),
            ("url: 'http://a', learn_scrapes: 3", "learn_scrapes is 3"),
            ("url: 'http://a', max_columns: 5000", "max_columns is 5000"),
            ("url: 'http://a', labels: {a b: c}", "label name"),
            ("url: 'http://a'}, {service: shop, url: 'http://a/x'", "is there twice"),
        ] {
            assert!(error(target).contains(expected), "{target}: {}", error(target));
        }
    }
}
