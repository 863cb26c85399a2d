//! `uview lmap`: LMAPs over several services, for anomalies that no service shows alone.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::Serialize;
use wire::proto::operators::{LmapInfo, LmapMember, MetricConfig, NewLmapRequest, ServiceMetrics};

use crate::agent::{self, AgentArgs, AgentError, Connection, Target};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::figures::duration_ms;
use crate::output::{self, json};

/// The long help of `uview lmap`.
pub const LONG_ABOUT: &str = "\
Show or set LMAPs that watch metrics of several services

Each service has an LMAP (local metrics analysis pipeline) of its own. One over several services learns how their metrics
move together, and alarms when they do not any more: as many payments as ever, but twice as many requests for each.

  uview lmap                                         which there are, their services, and what is missing
  uview lmap shop payment/requests cart/requests     an LMAP by the name of shop over these two metrics
  uview lmap shop payment cart/errors                all metrics of payment, and one of cart
  uview lmap shop bank/payment//requests             a service whose name has a slash
  uview lmap shop                                    its services and metrics
  uview lmap shop --delete                           not watched any more

The name is one that no service has. A service may come later: its columns are watched from then on. While it is gone they
have no values, and the others go on. `uview metric shop` sets how its metrics become columns, or adds derived ones, with
names in backquotes: --derive '`payment/requests` / `cart/requests`'. The host agent forgets these LMAPs when it ends, but
for what they have learnt, if lmap.models_dir is set: that is used when one of the same name is made again.";

/// Arguments of `uview lmap`.
#[derive(Clone, Debug, clap::Args)]
pub struct LmapArgs {
    /// Name of the LMAP; none: list all over several services
    name: Option<String>,
    /// What it watches: SERVICE/METRIC, or SERVICE for all of its metrics; none: show the LMAP
    #[arg(value_name = "METRIC", requires = "name")]
    metrics: Vec<String>,
    /// Time between two rows of a new LMAP, in milliseconds [default: as lmap.interval_ms of the host agent]
    #[arg(long, value_name = "MS", requires = "metrics")]
    interval_ms: Option<NonZeroU32>,
    /// Do not watch these services together any more
    #[arg(long, requires = "name", conflicts_with = "metrics")]
    delete: bool,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

/// What `--json` prints of an LMAP.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct View {
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
    fn of(lmap: &LmapInfo) -> Self {
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

/// Sets what is asked, and prints LMAPs over several services.
///
/// # Errors
///
/// [`Failure`] if the agent cannot be asked or declines, or there is no LMAP of that name.
pub fn run(args: &LmapArgs, from_environment: Option<PathBuf>) -> Result<Exit, Failure> {
    let what = match &args.name {
        Some(name) if args.delete => format!("delete the LMAP {name}"),
        Some(name) if args.metrics.is_empty() => format!("show the LMAP {name}"),
        Some(name) => format!("watch several services by the LMAP {name}"),
        None => "list LMAPs over several services".to_owned(),
    };
    let target = args.agent.clone().target(from_environment)?;
    let lmaps = agent::runtime(&what)?.block_on(carry_out(args, &target, &what))?;
    let views: Vec<_> = lmaps.iter().map(View::of).collect();
    output::print(&if args.json { json(&views)? } else { text(&views, args.name.is_some()) })?;
    Ok(Exit::Fine)
}

/// Does what is asked. Returns the LMAPs to print.
async fn carry_out(args: &LmapArgs, target: &Target, what: &str) -> Result<Vec<LmapInfo>, Failure> {
    let failed = |error: AgentError| error.into_failure(what);
    let mut agent = Connection::open(target).await.map_err(failed)?;
    let known = over_several(&mut agent).await.map_err(failed)?;
    let Some(name) = &args.name else { return Ok(known) };
    let known = known.into_iter().find(|lmap| lmap.service == *name);
    if args.metrics.is_empty() {
        let none = || {
            Failure::to(what)
                .because("no LMAP over several services has that name")
                .advice("`uview lmap` lists them; name metrics to make one")
        };
        let known = known.ok_or_else(none)?;
        if !args.delete {
            return Ok(vec![known]);
        }
        agent.delete_lmap(known.lmap).await.map_err(failed)?;
    } else {
        set(&mut agent, args, name, known.as_ref()).await.map_err(failed)?;
    }
    let now = over_several(&mut agent).await.map_err(failed)?;
    Ok(now.into_iter().filter(|lmap| lmap.service == *name).collect())
}

async fn over_several(agent: &mut Connection) -> Result<Vec<LmapInfo>, AgentError> {
    Ok(agent.list().await?.lmaps.into_iter().filter(|lmap| !lmap.members.is_empty()).collect())
}

/// Makes the LMAP, or lets the one that is `known` watch these metrics.
async fn set(agent: &mut Connection, args: &LmapArgs, name: &str, known: Option<&LmapInfo>) -> Result<(), AgentError> {
    let services = services(&args.metrics);
    let Some(known) = known.filter(|_| args.interval_ms.is_none()) else {
        // With an interval, one that is known is refused in the agent's words.
        let interval_us = args.interval_ms.map_or(0, |millis| u64::from(millis.get()) * 1_000);
        let service = name.to_owned();
        return agent.new_lmap(NewLmapRequest { service, interval_us, services, ..NewLmapRequest::default() }).await;
    };
    agent.config_lmap(known.lmap, services).await
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

fn text(lmaps: &[View], is_one: bool) -> String {
    if lmaps.is_empty() {
        return if is_one { "not watched\n" } else { "no LMAP watches several services\n" }.to_owned();
    }
    let mut text = String::new();
    for lmap in lmaps {
        let worker = lmap.worker.map_or_else(|| "on no worker".to_owned(), |worker| format!("on worker {worker}"));
        let every = duration_ms(lmap.interval_us / 1_000);
        let _ = writeln!(text, "{} (LMAP {}): every {every}, {worker}", lmap.name, lmap.lmap);
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
            "shop (LMAP 7): every 1.0 s, on no worker\n  cart: replicas 1, series 1\n  payment: replicas 1, series 1, \
             MISSING for 1 min 1 s\n  payment/requests: registered by nobody for 1 min 1 s\n  watches cart/errors\n"
        );
        assert_eq!(text(&[], false), "no LMAP watches several services\n");
    }
}
