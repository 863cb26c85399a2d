//! LMAPs over several services, for anomalies that no service shows alone.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use wire::proto::operators::{LmapInfo, LmapMember, MetricConfig, NewLmapRequest, ServiceMetrics};

use crate::agent::{AgentError, Connection};
use crate::figures::duration_ms;

/// What `--json` prints of an LMAP.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View {
    name: String,
    lmap: u32,
    interval_us: u64,
    /// Null: none runs it.
    worker: Option<u32>,
    services: Vec<MemberView>,
    metrics: Vec<String>,
    /// Chosen metrics that nobody has registered, and for how long.
    pending_ms: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct MemberView {
    service: String,
    replicas: u32,
    series: u32,
    /// Null: it is there.
    missing_for_ms: Option<u64>,
}

impl View {
    /// What `List` says of an LMAP.
    #[must_use]
    pub fn of(lmap: &LmapInfo) -> Self {
        let member = |of: &LmapMember| MemberView {
            service: of.service.clone(),
            replicas: of.replicas,
            series: of.metrics,
            missing_for_ms: of.missing_for_ms,
        };
        let mut metrics: Vec<_> = lmap.metrics.iter().map(|of| format!("{}{}", of.name, of.labels)).collect();
        metrics.sort();
        Self {
            name: lmap.service.clone(),
            lmap: lmap.lmap,
            interval_us: lmap.interval_us,
            worker: Some(lmap.worker).filter(|worker| *worker != u32::MAX),
            services: lmap.members.iter().map(member).collect(),
            metrics,
            pending_ms: lmap.pending.iter().map(|of| (of.metric.clone(), of.for_ms)).collect(),
        }
    }
}

/// Lets the LMAP that is `known` watch these metrics, or makes it, with rows every `interval_us`; 0: as configured.
///
/// # Errors
///
/// [`AgentError`] if the agent cannot be asked or declines.
pub async fn set(
    agent: &mut Connection,
    name: &str,
    known: Option<&LmapInfo>,
    metrics: &[String],
    interval_us: u64,
) -> Result<(), AgentError> {
    let services = services(metrics);
    if let Some(known) = known {
        return agent.config_lmap(known.lmap, services).await;
    }
    let service = name.to_owned();
    agent.new_lmap(NewLmapRequest { service, services, interval_us, ..NewLmapRequest::default() }).await
}

/// The service of a metric, and the metric; `None`: all of them.
fn parts(metric: &str) -> (&str, Option<&str>) {
    let parts = metric.split_once("//").or_else(|| metric.split_once('/'));
    parts.map_or((metric, None), |(service, metric)| (service, Some(metric).filter(|metric| !metric.is_empty())))
}

/// Metrics by service; no metrics: all.
fn services(metrics: &[String]) -> Vec<ServiceMetrics> {
    let mut services: BTreeMap<&str, Vec<Option<&str>>> = BTreeMap::new();
    for (service, metric) in metrics.iter().map(|metric| parts(metric)) {
        services.entry(service).or_default().push(metric);
    }
    let config = |metric: &str| MetricConfig { metric: metric.to_owned(), ..MetricConfig::default() };
    let of = |(service, metrics): (&str, Vec<Option<&str>>)| {
        let all: Option<Vec<_>> = metrics.into_iter().map(|metric| metric.map(config)).collect();
        ServiceMetrics { service: service.to_owned(), metrics: all.unwrap_or_default() }
    };
    services.into_iter().map(of).collect()
}

/// LMAPs in words; `is_one`: with what it watches.
#[must_use]
pub fn text(lmaps: &[View], is_one: bool) -> String {
    if lmaps.is_empty() {
        return if is_one { "not watched\n" } else { "no LMAP watches several services\n" }.to_owned();
    }
    let mut text = String::new();
    for lmap in lmaps {
        let worker = lmap.worker.map_or_else(|| "on no worker".to_owned(), |worker| format!("on worker {worker}"));
        // Of one, its interval is said with all that is about it.
        let every = if is_one { String::new() } else { format!("every {}, ", duration_ms(lmap.interval_us / 1_000)) };
        let _ = writeln!(text, "{} (LMAP {}): {every}{worker}", lmap.name, lmap.lmap);
        for MemberView { service, replicas, series, missing_for_ms } in &lmap.services {
            let missing = missing_for_ms.map_or_else(String::new, |ms| format!(", MISSING for {}", duration_ms(ms)));
            let _ = writeln!(text, "  {service}: replicas {replicas}, series {series}{missing}");
        }
        for (metric, ms) in &lmap.pending_ms {
            let _ = writeln!(text, "  {metric}: registered by nobody for {}", duration_ms(*ms));
        }
        for metric in lmap.metrics.iter().filter(|_| is_one) {
            let _ = writeln!(text, "  watches {metric}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use wire::proto::operators::{MetricInfo, PendingMetric};

    use super::*;

    #[test]
    fn metrics_are_named_with_their_service_and_a_service_alone_means_all() {
        let given = ["payment/requests", "cart", "bank/pay//a/b", "bank/pay//c", "cart/errors"].map(str::to_owned);

        let services: Vec<_> = services(&given)
            .into_iter()
            .map(|of| (of.service, of.metrics.into_iter().map(|metric| metric.metric).collect::<Vec<_>>().join(" ")))
            .collect();

        let of = |service: &str, metrics: &str| (service.to_owned(), metrics.to_owned());
        assert_eq!(services, [of("bank/pay", "a/b c"), of("cart", ""), of("payment", "requests")]);
    }

    #[test]
    fn a_service_that_is_missing_is_said_with_since_when() {
        let metric = MetricInfo { name: "cart/errors".to_owned(), ..MetricInfo::default() };
        let member = |service: &str, missing_for_ms| LmapMember {
            service: service.to_owned(),
            replicas: 1,
            metrics: 1,
            missing_for_ms,
        };
        let pending = PendingMetric { metric: "payment/requests".to_owned(), for_ms: 61_000 };
        let lmap = LmapInfo {
            service: "shop".to_owned(),
            lmap: 7,
            interval_us: 1_000_000,
            worker: u32::MAX,
            members: vec![member("cart", None), member("payment", Some(61_000))],
            metrics: vec![metric],
            pending: vec![pending],
            ..LmapInfo::default()
        };

        assert_eq!(
            text(&[View::of(&lmap)], true),
            "shop (LMAP 7): on no worker\n  cart: replicas 1, series 1\n  payment: replicas 1, series 1, \
             MISSING for 1 min 1 s\n  payment/requests: registered by nobody for 1 min 1 s\n  watches cart/errors\n"
        );
        assert!(text(&[View::of(&lmap)], false).starts_with("shop (LMAP 7): every 1.0 s, on no worker\n"));
        assert_eq!(text(&[], false), "no LMAP watches several services\n");
    }
}
