//! `uview metric`: how the metrics of a service are watched, and changes to that.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use wire::proto::operators::{LmapInfo, MetricConfig, MetricInfo};

use crate::agent::{self, AgentArgs, AgentError, Connection};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::figures::duration_ms;
use crate::output::{self, json};

/// The long help of `uview metric`.
pub const LONG_ABOUT: &str = "\
Show or set how the metrics of a service become columns of its LMAP

An LMAP (local metrics analysis pipeline) has one column for each metric, whatever the number of replicas on the node.
How their values become one is decided by, in this order: an operator with this command; lmap.aggregations of the host
agent's configuration; the service itself, when it registers the metric; the kind: a gauge is the mean, all else the sum.

  uview metric payment                                  how each metric is watched, and who decided that
  uview metric payment queue -a max                     the largest value of all replicas
  uview metric payment queue -a p90                     a quantile of them
  uview metric payment queue -a \"max - min\"           an expression over min, max, sum, mean, count, p0 to p100
  uview metric payment queue                            as the configuration, the service or the kind says
  uview metric payment failed --derive \"errors / requests\"    a column of its own, from other columns
  uview metric payment failed --delete                  not watched any more

Expressions have + - * / ( ), abs, sqrt, ln, exp, min(a, b) and max(a, b). In a derived column, names are those of other
columns of the row: the metric's name, with .count, .mean or .p99 for a histogram. A name that has several label sets
stands for their sum, of gauges, means and percentiles for their mean; `name{key=\"value\"}` in backquotes for one of
them. A result that is not finite is a missing value. A column that is computed in another way is learnt anew.";

/// Arguments of `uview metric`.
#[derive(Clone, Debug, clap::Args)]
pub struct MetricArgs {
    /// The service, as in `uview status`
    service: String,
    /// The metric's name, without labels; none: list all
    metric: Option<String>,
    /// How replicas become one: sum, mean, min, max, a quantile such as p90, an expression, or the name of an
    /// aggregation of the NIC agent
    #[arg(short, long, requires = "metric", conflicts_with_all = ["derive", "delete"])]
    aggregation: Option<String>,
    /// Read it in every N-th row
    #[arg(long, value_name = "N", requires = "metric", conflicts_with_all = ["derive", "delete"])]
    every: Option<std::num::NonZeroU32>,
    /// Make it a column that is computed from others by this expression
    #[arg(long, value_name = "EXPRESSION", requires = "metric", conflicts_with = "delete")]
    derive: Option<String>,
    /// Unit of the derived column
    #[arg(long, requires = "derive")]
    unit: Option<String>,
    /// Do not watch it any more
    #[arg(long, requires = "metric")]
    delete: bool,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

/// What `--json` prints of a metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Metric {
    name: String,
    labels: String,
    kind: String,
    unit: String,
    aggregation: String,
    decided_by: String,
    derived: bool,
    every: u32,
    interval_us: u64,
    /// What its values are about at present; empty: nothing in particular.
    about: String,
}

impl Metric {
    fn of(lmap: &LmapInfo, metric: &MetricInfo) -> Self {
        // Host agents of earlier releases do not say who decided.
        let decided_by = if metric.decided_by.is_empty() { "-" } else { &metric.decided_by };
        Self {
            name: metric.name.clone(),
            labels: metric.labels.clone(),
            kind: metric.kind.clone(),
            unit: metric.unit.clone(),
            aggregation: metric.aggregation.clone(),
            decided_by: decided_by.to_owned(),
            derived: metric.derived,
            every: metric.every,
            interval_us: lmap.interval_us,
            about: metric.about.clone(),
        }
    }
}

/// Sets what is asked, and prints how metrics are watched.
///
/// # Errors
///
/// [`Failure`] if the agent cannot be asked or declines, or the service has no LMAP.
pub fn run(args: &MetricArgs, from_environment: Option<PathBuf>) -> Result<Exit, Failure> {
    let what = match &args.metric {
        Some(metric) => format!("watch {metric} of {}", args.service),
        None => format!("list the metrics of {}", args.service),
    };
    let target = args.agent.clone().target(from_environment)?;
    let lmap = agent::runtime(&what)?.block_on(async {
        let failed = |error: AgentError| error.into_failure(&what);
        let mut agent = Connection::open(&target).await.map_err(failed)?;
        let before = find(&mut agent, args, &what).await?;
        let Some(metric) = &args.metric else { return Ok(before) };
        change(&mut agent, args, &before, metric).await.map_err(failed)?;
        find(&mut agent, args, &what).await
    })?;
    let asked = |metric: &&MetricInfo| args.metric.as_ref().is_none_or(|name| *name == metric.name);
    let mut metrics: Vec<_> = lmap.metrics.iter().filter(asked).map(|metric| Metric::of(&lmap, metric)).collect();
    metrics.sort_by(|one, other| (&one.name, &one.labels).cmp(&(&other.name, &other.labels)));
    output::print(&if args.json { json(&metrics)? } else { text(&metrics) })?;
    Ok(Exit::Fine)
}

async fn find(agent: &mut Connection, args: &MetricArgs, what: &str) -> Result<LmapInfo, Failure> {
    let list = agent.list().await.map_err(|error| error.into_failure(what))?;
    list.lmaps.into_iter().find(|lmap| lmap.service == args.service).ok_or_else(|| {
        Failure::to(what).because("no LMAP watches that service").advice("`uview status` lists the services")
    })
}

async fn change(agent: &mut Connection, args: &MetricArgs, lmap: &LmapInfo, name: &str) -> Result<(), AgentError> {
    if args.delete {
        for metric in lmap.metrics.iter().filter(|metric| metric.name == name) {
            agent.delete_metric(lmap.lmap, metric.metric).await?;
        }
        return Ok(());
    }
    let config = MetricConfig {
        metric: name.to_owned(),
        aggregation: args.aggregation.clone().unwrap_or_default(),
        every: args.every.map_or(0, std::num::NonZeroU32::get),
        derived: args.derive.clone().unwrap_or_default(),
        unit: args.unit.clone().unwrap_or_default(),
    };
    agent.set_metric(lmap.lmap, config).await.map(drop)
}

fn text(metrics: &[Metric]) -> String {
    if metrics.is_empty() {
        return "not watched\n".to_owned();
    }
    let rows: Vec<[String; 6]> = metrics
        .iter()
        .map(|metric| {
            let period = metric.interval_us.saturating_mul(u64::from(metric.every)) / 1000;
            let kind = if metric.derived { "derived" } else { &metric.kind };
            [
                format!("{}{}", metric.name, metric.labels),
                kind.to_owned(),
                metric.aggregation.clone(),
                metric.decided_by.clone(),
                duration_ms(period),
                metric.about.clone(),
            ]
        })
        .collect();
    // Few metrics are about somebody: without any, there is no such column.
    let about = if metrics.iter().any(|metric| !metric.about.is_empty()) { "ABOUT" } else { "" };
    let titles = ["METRIC", "KIND", "AGGREGATION", "DECIDED BY", "READ EVERY", about].map(str::to_owned);
    let all: Vec<_> = std::iter::once(&titles).chain(&rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3, 4, 5].map(width);
    let mut text = String::new();
    for row in all {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_metric_has_a_line_with_who_decided_how_it_is_aggregated() {
        let info = |name: &str, aggregation: &str, decided_by: &str, every| MetricInfo {
            name: name.to_owned(),
            kind: "gauge".to_owned(),
            aggregation: aggregation.to_owned(),
            decided_by: decided_by.to_owned(),
            derived: decided_by == "operator",
            every,
            ..MetricInfo::default()
        };
        let lmap = LmapInfo { interval_us: 500_000, ..LmapInfo::default() };
        let metrics = [info("queue", "max", "service", 4), info("ratio", "errors / requests", "operator", 1)];
        let metrics: Vec<_> = metrics.iter().map(|metric| Metric::of(&lmap, metric)).collect();

        assert_eq!(
            text(&metrics),
            "METRIC  KIND     AGGREGATION        DECIDED BY  READ EVERY\n\
             queue   gauge    max                service     2.0 s\n\
             ratio   derived  errors / requests  operator    500 ms\n"
        );
        assert_eq!(text(&[]), "not watched\n");
        let earlier = Metric::of(&lmap, &info("queue", "max", "", 1));
        assert_eq!(earlier.decided_by, "-");
    }

    #[test]
    fn a_metric_whose_values_are_about_somebody_says_whom() {
        let info = |name: &str, about: &str| MetricInfo {
            name: name.to_owned(),
            kind: "gauge".to_owned(),
            aggregation: "mean".to_owned(),
            decided_by: "kind".to_owned(),
            every: 1,
            about: about.to_owned(),
            ..MetricInfo::default()
        };
        let lmap = LmapInfo { interval_us: 1_000_000, ..LmapInfo::default() };
        let metrics = [info("network.loss", ""), info("network.top_talker.share", "10.0.0.7 (53 of 100 bytes)")];
        let metrics: Vec<_> = metrics.iter().map(|metric| Metric::of(&lmap, metric)).collect();

        assert_eq!(
            text(&metrics),
            "METRIC                    KIND   AGGREGATION  DECIDED BY  READ EVERY  ABOUT\n\
             network.loss              gauge  mean         kind        1.0 s\n\
             network.top_talker.share  gauge  mean         kind        1.0 s       10.0.0.7 (53 of 100 bytes)\n"
        );
    }
}
