//! Whether services record all of their requests: what they count themselves against the entry spans that came. Which traces are kept is decided
//! from what is recorded; where an SDK drops most requests at their beginning, most of what should have been kept is gone before.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::JoinSet;
use wire::proto::operators::{LmapInfo, RowEvent};

use super::Finding;
use crate::agent::{self, AgentError, Connection, Place};
use crate::output;

const NAME: &str = "head sampling";
/// For so long rows are looked at: spans are counted some seconds after their requests, so that it is about a steady rate.
pub(super) const WATCH: Duration = Duration::from_secs(10);
/// So few requests say nothing.
const LEAST: f64 = 50.0;
/// With less than this share of entry spans requests are not recorded on purpose: what is on its way at the ends of the time makes less.
const ALL: f64 = 0.8;
/// Services that are watched.
const SERVICES: usize = 64;
/// Services that are named.
const NAMED: usize = 3;

/// Entry spans of a service, one column for each operation.
const SPANS: &str = "traces.span.metrics.duration";
/// Where services count requests that they serve, by OpenTelemetry's conventions, old and new, and by what is common. Of those of one line the
/// largest counts: they are the same requests.
const OWN: [&[&str]; 3] = [
    &["http.server.request.duration", "http.server.duration", "http.server.requests", "http.server.request.count"],
    &["rpc.server.duration", "rpc.server.call.duration", "rpc.server.requests"],
    &["messaging.process.duration", "messaging.process.messages"],
];

/// Requests of one service within some time.
#[derive(Clone, Debug, Default, PartialEq)]
struct Requests {
    /// By what counts them.
    own: BTreeMap<&'static str, f64>,
    /// With an entry span.
    spans: f64,
}

/// What a column counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    Spans,
    Own(&'static str),
    Other,
}

impl Counts {
    fn of(title: &str) -> Self {
        let (name, labels) = title.split_once('{').map_or((title, ""), |(name, labels)| (name, labels));
        let name = name.strip_suffix(".count").unwrap_or(name);
        // A statistic of a histogram that is no count has a suffix of its own.
        match OWN.iter().copied().flatten().find(|own| **own == name) {
            Some(own) => Self::Own(own),
            None if name == SPANS && title.contains(".count") && !labels.is_empty() => Self::Spans,
            None => Self::Other,
        }
    }
}

impl Requests {
    /// Adds a row of columns that count this. What is missing in it counts nothing.
    fn add(&mut self, columns: &[Counts], values: &[f64]) {
        for (counts, value) in columns.iter().zip(values).filter(|(_, value)| value.is_finite()) {
            match counts {
                Counts::Spans => self.spans += value,
                Counts::Own(name) => *self.own.entry(name).or_default() += value,
                Counts::Other => {}
            }
        }
    }

    /// How many it counted itself.
    fn own(&self) -> f64 {
        let largest =
            |same: &&[&str]| same.iter().filter_map(|name| self.own.get(name)).fold(0.0, |a: f64, b| a.max(*b));
        OWN.iter().map(largest).sum()
    }

    /// The share with an entry span; `None` if there were too few to say.
    fn share(&self) -> Option<f64> {
        let own = self.own();
        (own >= LEAST).then(|| self.spans / own)
    }
}

/// Watches the services of the agent at `place` that both count requests and send spans; `None` if there is none.
pub(super) fn look(place: &Place) -> Option<Finding> {
    let runtime = agent::runtime("watch requests").ok()?;
    let watched = runtime.block_on(watch(place));
    match watched {
        Ok(watched) if watched.is_empty() => None,
        Ok(watched) => Some(judge(&watched)),
        Err(error) => Some(Finding::missing(NAME, format!("requests cannot be watched: {error}"), "`uview status`")),
    }
}

async fn watch(place: &Place) -> Result<BTreeMap<String, Requests>, AgentError> {
    let lmaps = Connection::open(place).await?.list().await?.lmaps;
    let counting: Vec<_> = lmaps.into_iter().filter(counts_both).take(SERVICES).collect();
    if counting.is_empty() {
        return Ok(BTreeMap::new());
    }
    output::tell(&format!("watching requests of {} services for {} s", counting.len(), WATCH.as_secs()));
    let mut following = JoinSet::new();
    for lmap in counting {
        let mut connection = Connection::open(place).await?;
        following.spawn(async move {
            let mut requests = Requests::default();
            // What came until then is what there is.
            _ = tokio::time::timeout(WATCH, follow(&mut connection, lmap.lmap, &mut requests)).await;
            (lmap.service, requests)
        });
    }
    Ok(following.join_all().await.into_iter().collect())
}

/// Whether a service has metrics of both kinds.
fn counts_both(lmap: &LmapInfo) -> bool {
    let has = |name: &str| lmap.metrics.iter().any(|metric| metric.name == name);
    has(SPANS) && OWN.iter().copied().flatten().any(|own| has(own))
}

async fn follow(connection: &mut Connection, lmap: u32, requests: &mut Requests) -> Result<(), AgentError> {
    let (mut rows, mut columns) = (connection.watch_rows(lmap, 1).await?, Vec::new());
    while let Ok(Some(RowEvent { columns: titles, values, .. })) = rows.message().await {
        if !titles.is_empty() {
            columns = titles.iter().map(|title| Counts::of(title)).collect();
        }
        requests.add(&columns, &values);
    }
    Ok(())
}

/// What the counts of each service mean.
fn judge(watched: &BTreeMap<String, Requests>) -> Finding {
    let mut shares: Vec<_> =
        watched.iter().filter_map(|(name, requests)| Some((requests.share()?, name, requests))).collect();
    shares.sort_by(|a, b| a.0.total_cmp(&b.0));
    let seconds = WATCH.as_secs();
    if shares.is_empty() {
        return Finding::fine(NAME, format!("not judged: no service served {LEAST} requests within {seconds} s"));
    }
    let poor: Vec<_> = shares.iter().filter(|(share, ..)| *share < ALL).collect();
    if poor.is_empty() {
        return Finding::fine(NAME, format!("the requests of {} services have entry spans", shares.len()));
    }
    let tell = |(share, name, requests): &&(f64, &String, &Requests)| {
        let (own, spans) = (requests.own(), requests.spans);
        format!("{name}: {spans:.0} entry spans of {own:.0} requests, upstream head-samples at {}", about(*share, own))
    };
    let more = (poor.len() > NAMED).then(|| format!("and {} more", poor.len().saturating_sub(NAMED)));
    let text = poor.iter().take(NAMED).map(tell).chain(more).collect::<Vec<_>>().join("; ");
    let fix = "OTEL_TRACES_SAMPLER=parentbased_always_on for these services and whoever calls them: traces are chosen here, from those that are \
               recorded. Or otlp.traces.keep: all, and `head_sampling` for SDKs that ask";
    Finding::missing(NAME, text, fix)
}

/// `share` of `requests` in words: with one digit, which is what some seconds of requests tell.
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
    fn columns_are_told_apart() {
        let own = |name| Counts::Own(name);

        assert_eq!(Counts::of("http.server.requests{route=\"/pay\"}"), own("http.server.requests"));
        assert_eq!(Counts::of("http.server.request.duration.count"), own("http.server.request.duration"));
        assert_eq!(Counts::of("http.server.request.duration.p99"), Counts::Other);
        assert_eq!(Counts::of("traces.span.metrics.duration.count{span.name=\"GET\"}"), Counts::Spans);
        assert_eq!(Counts::of("traces.span.metrics.duration.mean{span.name=\"GET\"}"), Counts::Other);
        assert_eq!(Counts::of("http.client.requests"), Counts::Other);
    }

    /// A service that counted so many requests, twice, of which so many have spans.
    fn service(own: f64, spans: f64) -> Requests {
        let columns = [Counts::Own("http.server.requests"), Counts::Own("http.server.request.duration"), Counts::Spans];
        let mut requests = Requests::default();
        requests.add(&columns, &[own / 2.0, own / 2.0, f64::NAN]);
        requests.add(&columns, &[own / 2.0, own / 2.0, spans]);
        requests
    }

    fn judged(services: &[(&str, Requests)]) -> Finding {
        judge(&services.iter().map(|(name, requests)| ((*name).to_owned(), requests.clone())).collect())
    }

    #[test]
    fn a_service_that_drops_most_requests_at_their_beginning_is_named_with_its_share() {
        let found = judged(&[("cart", service(1_000.0, 985.0)), ("payment", service(3_000.0, 29.0))]);

        assert_eq!(found.level, Level::Missing);
        assert_eq!(found.found, "payment: 29 entry spans of 3000 requests, upstream head-samples at about 1 %");
        assert!(judged(&[("a", service(100.0, 0.0))]).found.ends_with("at less than 1.0 %"));
        assert!(judged(&[("a", service(10_000.0, 12.0))]).found.ends_with("at about 0.10 %"));
        assert!(judged(&[("a", service(1_000.0, 512.0))]).found.ends_with("at about 50 %"));
    }

    #[test]
    fn who_records_everything_is_fine_and_few_requests_say_nothing() {
        assert_eq!(judged(&[("cart", service(1_000.0, 900.0))]).level, Level::Fine);
        let few = judged(&[("cart", service(40.0, 0.0))]);
        assert_eq!(few.level, Level::Fine);
        assert!(few.found.contains("not judged"), "{}", few.found);
    }
}
