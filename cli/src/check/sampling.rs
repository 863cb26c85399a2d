//! Check for head sampling in services: the requests that a service counts against its entry spans that arrive.
//!
//! uview decides which traces to keep from the spans that it receives. If an SDK samples at the head, most traces that
//! should be kept never arrive.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::JoinSet;
use wire::metric::Statistic;
use wire::proto::operators::{LmapInfo, MetricInfo, RowEvent};

use super::Finding;
use crate::agent::{self, AgentError, Connection, Target};
use crate::columns::Titles;
use crate::output;

const NAME: &str = "head sampling";
/// How long requests and spans are counted. Spans are counted some seconds after their requests, so that the result
/// holds for a steady rate.
pub(super) const WATCH_TIME: Duration = Duration::from_secs(10);
/// Services with fewer requests are not judged.
const MIN_REQUESTS: f64 = 50.0;
/// Below this share of requests with an entry span, the service samples. Requests at the ends of [`WATCH_TIME`] explain
/// a smaller difference.
const MIN_SHARE: f64 = 0.8;
/// The most services that are watched.
const MAX_SERVICES: usize = 64;
/// The most services that the finding names.
const MAX_NAMED: usize = 3;

/// The metric of entry spans of a service, one column for each operation.
const SPANS: &str = "traces.span.metrics.duration";
/// Metrics that count the requests of a service: OpenTelemetry's conventions, old and new, and common names. Metrics of
/// one line count the same requests, so that only the largest of them is taken.
const REQUEST_METRICS: [&[&str]; 3] = [
    &["http.server.request.duration", "http.server.duration", "http.server.requests", "http.server.request.count"],
    &["rpc.server.duration", "rpc.server.call.duration", "rpc.server.requests"],
    &["messaging.process.duration", "messaging.process.messages"],
];

/// Requests of one service within [`WATCH_TIME`].
#[derive(Clone, Debug, Default, PartialEq)]
struct Requests {
    /// Requests by the metric that counts them.
    counted: BTreeMap<&'static str, f64>,
    /// Entry spans that arrived.
    spans: f64,
}

/// The meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnRole {
    EntrySpans,
    Requests(&'static str),
    Other,
}

impl ColumnRole {
    fn known(metric: &MetricInfo, _title: &str, statistic: Statistic) -> Self {
        if statistic.is_of_a_distribution() {
            return Self::Other;
        }
        match REQUEST_METRICS.iter().copied().flatten().find(|name| **name == metric.name) {
            Some(name) => Self::Requests(name),
            None if metric.name == SPANS && statistic == Statistic::Count && !metric.labels.is_empty() => {
                Self::EntrySpans
            }
            None => Self::Other,
        }
    }
}

impl Requests {
    /// Adds a row. Missing values add nothing.
    fn add(&mut self, columns: &[ColumnRole], values: &[f64]) {
        for (role, value) in columns.iter().zip(values).filter(|(_, value)| value.is_finite()) {
            match role {
                ColumnRole::EntrySpans => self.spans += value,
                ColumnRole::Requests(name) => *self.counted.entry(name).or_default() += value,
                ColumnRole::Other => {}
            }
        }
    }

    /// Requests that the service counted.
    fn total(&self) -> f64 {
        let largest =
            |same: &&[&str]| same.iter().filter_map(|name| self.counted.get(name)).fold(0.0, |a: f64, b| a.max(*b));
        REQUEST_METRICS.iter().map(largest).sum()
    }

    /// The share of requests with an entry span; `None` below [`MIN_REQUESTS`].
    fn share(&self) -> Option<f64> {
        let total = self.total();
        (total >= MIN_REQUESTS).then(|| self.spans / total)
    }
}

/// Watches the services of the agent that both count requests and send spans; `None` if there is none.
pub(super) fn check(target: &Target) -> Option<Finding> {
    let runtime = agent::runtime("watch requests").ok()?;
    let services = runtime.block_on(watch(target));
    match services {
        Ok(services) if services.is_empty() => None,
        Ok(services) => Some(judge(&services)),
        Err(error) => Some(Finding::missing(NAME, format!("requests cannot be watched: {error}"), "`uview status`")),
    }
}

async fn watch(target: &Target) -> Result<BTreeMap<String, Requests>, AgentError> {
    let lmaps = Connection::open(target).await?.list().await?.lmaps;
    let counting: Vec<_> = lmaps.into_iter().filter(counts_both).take(MAX_SERVICES).collect();
    if counting.is_empty() {
        return Ok(BTreeMap::new());
    }
    output::print_stderr(&format!(
        "watching the requests of {} services for {} s",
        counting.len(),
        WATCH_TIME.as_secs()
    ));
    let mut following = JoinSet::new();
    for lmap in counting {
        let mut connection = Connection::open(target).await?;
        following.spawn(async move {
            let mut requests = Requests::default();
            // The timeout is the normal end.
            _ = tokio::time::timeout(WATCH_TIME, follow(&mut connection, &lmap, &mut requests)).await;
            (lmap.service, requests)
        });
    }
    Ok(following.join_all().await.into_iter().collect())
}

/// Whether a service has request metrics and entry spans.
fn counts_both(lmap: &LmapInfo) -> bool {
    let has = |name: &str| lmap.metrics.iter().any(|metric| metric.name == name);
    has(SPANS) && REQUEST_METRICS.iter().copied().flatten().any(|metric| has(metric))
}

async fn follow(connection: &mut Connection, lmap: &LmapInfo, requests: &mut Requests) -> Result<(), AgentError> {
    let (mut rows, mut columns) = (connection.watch_rows(lmap.lmap, 1).await?, Vec::new());
    let mut roles = Titles::of(lmap, ColumnRole::known);
    while let Ok(Some(RowEvent { columns: titles, values, change: None, .. })) = rows.next().await {
        if !titles.is_empty() {
            // Titles of metrics that are newer than the list: of operations that were requested just now.
            if !roles.know(&titles)
                && let Some(newer) = connection.list().await?.lmaps.iter().find(|newer| newer.lmap == lmap.lmap)
            {
                roles = Titles::of(newer, ColumnRole::known);
            }
            columns = roles.columns(&titles, |_| ColumnRole::Other);
        }
        requests.add(&columns, &values);
    }
    Ok(())
}

/// The finding for the counts of each service.
fn judge(services: &BTreeMap<String, Requests>) -> Finding {
    let mut shares: Vec<_> =
        services.iter().filter_map(|(name, requests)| Some((requests.share()?, name, requests))).collect();
    shares.sort_by(|a, b| a.0.total_cmp(&b.0));
    let seconds = WATCH_TIME.as_secs();
    if shares.is_empty() {
        return Finding::fine(NAME, format!("not judged: no service had {MIN_REQUESTS} requests within {seconds} s"));
    }
    let poor: Vec<_> = shares.iter().filter(|(share, ..)| *share < MIN_SHARE).collect();
    if poor.is_empty() {
        return Finding::fine(NAME, format!("the requests of {} services have entry spans", shares.len()));
    }
    let describe = |(share, name, requests): &&(f64, &String, &Requests)| {
        let (total, spans) = (requests.total(), requests.spans);
        format!("{name}: {spans:.0} entry spans for {total:.0} requests, the SDK samples {}", about(*share, total))
    };
    let more = (poor.len() > MAX_NAMED).then(|| format!("and {} more", poor.len().saturating_sub(MAX_NAMED)));
    let text = poor.iter().take(MAX_NAMED).map(describe).chain(more).collect::<Vec<_>>().join("; ");
    let fix = "set OTEL_TRACES_SAMPLER=parentbased_always_on in these services and their callers: uview selects traces from those \
               that it receives. Or set otlp.traces.keep: all, and head_sampling for SDKs with a remote sampler";
    Finding::missing(NAME, text, fix)
}

/// `share` of `requests` as text with one significant digit.
fn about(share: f64, requests: f64) -> String {
    if share <= 0.0 {
        return format!("less than {:.1} %", 100.0 / requests);
    }
    let percent = share * 100.0;
    let digit = 10_f64.powf(percent.log10().floor());
    let rounded = (percent / digit).round() * digit;
    if rounded >= 1.0 { format!("about {rounded:.0} %") } else { format!("about {rounded:.2} %") }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn columns_are_recognized_by_metric_and_statistic() {
        let metric = |name: &str, labels: &str, kind: &str| {
            let [name, labels, kind] = [name, labels, kind].map(str::to_owned);
            MetricInfo { name, labels, kind, ..MetricInfo::default() }
        };
        let metrics = vec![
            metric("http.server.requests", "{route=\"/pay\"}", "counter"),
            metric("http.server.request.duration", "", "histogram"),
            metric("traces.span.metrics.duration", "{span.name=\"GET\"}", "histogram"),
            metric("http.client.requests", "", "counter"),
            metric("http.server.duration.count", "", "counter"),
        ];
        let roles = Titles::of(&LmapInfo { metrics, ..LmapInfo::default() }, ColumnRole::known);
        let titles = [
            "http.server.requests{route=\"/pay\"}",
            "http.server.request.duration.count",
            "http.server.request.duration.p99",
            "traces.span.metrics.duration.count{span.name=\"GET\"}",
            "traces.span.metrics.duration.mean{span.name=\"GET\"}",
            "http.client.requests",
            "http.server.duration.count",
        ];
        let titles = titles.map(str::to_owned);

        let columns = roles.columns(&titles, |_| ColumnRole::Other);

        let requests = ColumnRole::Requests;
        let expected = [
            requests("http.server.requests"),
            requests("http.server.request.duration"),
            ColumnRole::Other,
            ColumnRole::EntrySpans,
            ColumnRole::Other,
            ColumnRole::Other,
            ColumnRole::Other,
        ];
        assert_eq!(columns, expected, "a counter that is only named like a histogram's count is none");
        let newer = "http.server.requests{route=\"/new\"}".to_owned();
        assert!(roles.know(&titles) && !roles.know(core::slice::from_ref(&newer)));
        assert_eq!(
            roles.columns(&[newer], |_| ColumnRole::Other),
            [ColumnRole::Other],
            "titles are looked up, not read"
        );
    }

    /// A service that counted `total` requests, in two metrics, and sent `spans` entry spans.
    fn service(total: f64, spans: f64) -> Requests {
        let columns = [
            ColumnRole::Requests("http.server.requests"),
            ColumnRole::Requests("http.server.request.duration"),
            ColumnRole::EntrySpans,
        ];
        let mut requests = Requests::default();
        requests.add(&columns, &[total / 2.0, total / 2.0, f64::NAN]);
        requests.add(&columns, &[total / 2.0, total / 2.0, spans]);
        requests
    }

    fn judged(services: &[(&str, Requests)]) -> Finding {
        judge(&services.iter().map(|(name, requests)| ((*name).to_owned(), requests.clone())).collect())
    }

    #[test]
    fn a_service_that_samples_at_the_head_is_named_with_its_share() {
        let found = judged(&[("cart", service(1_000.0, 985.0)), ("payment", service(3_000.0, 29.0))]);

        assert_eq!(found.level, Level::Missing);
        assert_eq!(found.found, "payment: 29 entry spans for 3000 requests, the SDK samples about 1 %");
        assert!(judged(&[("a", service(100.0, 0.0))]).found.ends_with("samples less than 1.0 %"));
        assert!(judged(&[("a", service(10_000.0, 12.0))]).found.ends_with("samples about 0.10 %"));
        assert!(judged(&[("a", service(1_000.0, 512.0))]).found.ends_with("samples about 50 %"));
    }

    #[test]
    fn a_service_that_records_everything_is_fine_and_few_requests_are_not_judged() {
        assert_eq!(judged(&[("cart", service(1_000.0, 900.0))]).level, Level::Fine);
        let few = judged(&[("cart", service(40.0, 0.0))]);
        assert_eq!(few.level, Level::Fine);
        assert!(few.found.contains("not judged"), "{}", few.found);
    }
}
