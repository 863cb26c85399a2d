//! `uview sources`: Prometheus endpoints that the host agent scrapes, exporters of OTLP metrics, and which of their
//! series are watched, and why.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use wire::proto::operators::{SourceFamily, SourceTarget};

use crate::agent::{self, AgentArgs, Connection};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::figures::duration_ms;
use crate::output::{self, json};

const WHAT: &str = "ask the host agent for its sources";

/// Rows until an LMAP is armed after its series were chosen, unless its worker is configured otherwise.
const LEARNT_ROWS: u64 = 140;
/// Time between exports from which on it is said how long learning takes.
const SLOW_US: u64 = 10_000_000;

/// Arguments of `uview sources`.
#[derive(Clone, Debug, clap::Args)]
pub struct SourcesArgs {
    /// Only sources of this service
    #[arg(value_name = "SERVICE")]
    service: Option<String>,
    /// Only totals, without a line for each metric
    #[arg(long)]
    brief: bool,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
    /// The host agent to ask.
    #[command(flatten)]
    agent: AgentArgs,
}

/// What `--json` prints of an endpoint.
#[derive(Clone, Debug, Serialize)]
struct Target {
    service: String,
    url: String,
    state: String,
    problem: String,
    format: String,
    interval_us: u64,
    took_us: u64,
    scrapes: u64,
    failed_scrapes: u64,
    restarts: u64,
    learned: u32,
    needed: u32,
    samples: u64,
    bytes: u64,
    refused_samples: u64,
    exposed: u64,
    watched: u64,
    summed: u64,
    columns: u64,
    families: Vec<Family>,
}

/// What `--json` prints of a metric family.
#[derive(Clone, Debug, Serialize)]
struct Family {
    name: String,
    kind: String,
    exposed: u64,
    watched: u64,
    why: String,
}

impl From<SourceTarget> for Target {
    fn from(target: SourceTarget) -> Self {
        let family = |family: SourceFamily| Family {
            name: family.name,
            kind: family.kind,
            exposed: family.exposed,
            watched: family.watched,
            why: family.why,
        };
        Self {
            service: target.service,
            url: target.url,
            state: target.state,
            problem: target.problem,
            format: target.format,
            interval_us: target.interval_us,
            took_us: target.took_us,
            scrapes: target.scrapes,
            failed_scrapes: target.failed_scrapes,
            restarts: target.restarts,
            learned: target.learned,
            needed: target.needed,
            samples: target.samples,
            bytes: target.bytes,
            refused_samples: target.refused_samples,
            exposed: target.exposed,
            watched: target.watched,
            summed: target.summed,
            columns: target.columns,
            families: target.families.into_iter().map(family).collect(),
        }
    }
}

impl Target {
    /// Whether it exports OTLP metrics, and is not scraped.
    fn is_pushed(&self) -> bool {
        self.url.starts_with("otlp:")
    }
}

/// Asks the agent for its sources, and prints them. Returns [`Exit::Attention`] if one of them is down.
///
/// # Errors
///
/// [`Failure`] if the agent cannot be asked, or stdout cannot be written.
pub fn run(args: &SourcesArgs, from_environment: Option<PathBuf>) -> Result<Exit, Failure> {
    let target = args.agent.clone().target(from_environment)?;
    let request = async { Connection::open(&target).await?.sources().await };
    let reply = agent::runtime(WHAT)?.block_on(request).map_err(|error| error.into_failure(WHAT))?;
    let is_asked = |target: &SourceTarget| args.service.as_ref().is_none_or(|service| *service == target.service);
    let targets: Vec<Target> = reply.targets.into_iter().filter(is_asked).map(Target::from).collect();
    output::print(&if args.json { json(&targets)? } else { text(&targets, args.brief) })?;
    let is_down = targets.iter().any(|target| !target.problem.is_empty());
    Ok(if is_down { Exit::Attention } else { Exit::Fine })
}

fn text(targets: &[Target], brief: bool) -> String {
    if targets.is_empty() {
        return "no endpoint is scraped, and no service exports OTLP metrics: set sources.prometheus.targets, or \
                otlp.upstream or otlp.watch_only of the host agent\n"
            .to_owned();
    }
    let mut text = String::new();
    for target in targets {
        let Target { service, url, state, .. } = target;
        let is_pushed = target.is_pushed();
        let what = if is_pushed { "exports" } else { "scrapes" };
        let state = if state == "learning" {
            format!("learning, {} of {} {what}", target.learned, target.needed)
        } else {
            state.clone()
        };
        let _ = writeln!(text, "{service}  {url}  {state}");
        if !target.problem.is_empty() {
            let _ = writeln!(text, "  {}", target.problem);
        }
        let every = duration_ms(target.interval_us / 1_000);
        let (took, bytes) = (target.took_us as f64 / 1_000.0, target.bytes);
        if is_pushed {
            let _ = writeln!(text, "  every {every}; exports: {}", target.scrapes);
            let _ = writeln!(text, "  {} samples, {bytes} bytes ({})", target.samples, target.format);
            slow(&mut text, target);
        } else {
            let restarts = if target.restarts > 0 { format!("; restarts: {}", target.restarts) } else { String::new() };
            let (scrapes, failed) = (target.scrapes, target.failed_scrapes);
            let _ = writeln!(text, "  every {every}; scrapes: {scrapes}, failed: {failed}{restarts}");
            if target.scrapes == target.failed_scrapes {
                continue;
            }
            let (samples, format) = (target.samples, &target.format);
            let _ = writeln!(text, "  {samples} samples, {bytes} bytes ({format}), last in {took:.1} ms");
        }
        let _ = writeln!(
            text,
            "  {} series: {} watched, {} summed up; {} columns",
            target.exposed, target.watched, target.summed, target.columns
        );
        if target.refused_samples > 0 {
            let key = if is_pushed { "otlp.metrics.max_series" } else { "max_samples" };
            let _ = writeln!(text, "  {} samples not looked at: raise {key}", target.refused_samples);
        }
        if !brief {
            families(&mut text, &target.families);
        }
    }
    text
}

/// While an exporter that exports seldom is learnt: how long that takes, and what makes it minutes.
fn slow(text: &mut String, Target { state, interval_us, learned, needed, .. }: &Target) {
    if state != "learning" || *interval_us < SLOW_US {
        return;
    }
    let exports = |count: u64| duration_ms(count.saturating_mul(interval_us / 1_000));
    let (left, all) = (needed.saturating_sub(*learned), u64::from(*needed) + LEARNT_ROWS);
    let _ = writeln!(
        text,
        "  series are chosen in {}, and an LMAP of these alone is armed {} later; with OTEL_METRIC_EXPORT_INTERVAL=1000 \
         in the service's environment that takes {} in all",
        exports(left.into()),
        exports(LEARNT_ROWS),
        duration_ms(all * 1_000)
    );
}

fn families(text: &mut String, families: &[Family]) {
    let width = families.iter().map(|family| family.name.chars().count()).max().unwrap_or(0);
    for Family { name, kind, exposed, watched, why } in families {
        let _ = writeln!(text, "  {name:width$}  {kind:9}  {watched:>4} of {exposed:<5} {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        let family = SourceFamily {
            name: "queue".into(),
            kind: "gauge".into(),
            exposed: 2,
            watched: 1,
            why: "1 constant, 1 watched".into(),
        };
        Target::from(SourceTarget {
            service: "shop".into(),
            url: "http://a/metrics".into(),
            state: "watching".into(),
            format: "text 0.0.4".into(),
            interval_us: 2_000_000,
            took_us: 3_400,
            scrapes: 70,
            samples: 9,
            bytes: 400,
            exposed: 5,
            watched: 3,
            columns: 5,
            families: vec![family],
            ..SourceTarget::default()
        })
    }

    #[test]
    fn each_metric_says_why_it_is_watched_or_not() {
        let expected = "\
shop  http://a/metrics  watching
  every 2.0 s; scrapes: 70, failed: 0
  9 samples, 400 bytes (text 0.0.4), last in 3.4 ms
  5 series: 3 watched, 0 summed up; 5 columns
  queue  gauge         1 of 2     1 constant, 1 watched
";

        assert_eq!(text(&[target()], false), expected);
        assert!(!text(&[target()], true).contains("queue"));
        let restarted = Target { restarts: 2, ..target() };
        assert!(text(&[restarted], true).contains("scrapes: 70, failed: 0; restarts: 2\n"));
        let pushed = Target { url: "otlp:shop-1".into(), format: "OTLP".into(), ..target() };
        let expected = "\
shop  otlp:shop-1  watching
  every 2.0 s; exports: 70
  9 samples, 400 bytes (OTLP)
";
        assert!(text(&[pushed], true).starts_with(expected));
        assert!(text(&[], false).contains("sources.prometheus.targets"));
    }

    #[test]
    fn an_exporter_that_exports_seldom_says_how_long_it_is_learnt_and_what_makes_it_minutes() {
        let of = |interval_us: u64, state: &str| Target {
            url: "otlp:shop-1".into(),
            state: state.into(),
            interval_us,
            learned: 3,
            needed: 20,
            ..target()
        };

        let slow = text(&[of(60_000_000, "learning")], true);
        assert!(slow.starts_with("shop  otlp:shop-1  learning, 3 of 20 exports\n"), "{slow}");
        assert!(slow.contains("chosen in 17 min 0 s, and an LMAP of these alone is armed 2 h 20 min later"), "{slow}");
        assert!(slow.contains("OTEL_METRIC_EXPORT_INTERVAL=1000") && slow.contains("2 min 40 s in all"), "{slow}");
        for fine in [of(60_000_000, "watching"), of(9_000_000, "learning"), of(0, "learning")] {
            assert!(!text(&[fine], true).contains("OTEL_METRIC_EXPORT_INTERVAL"));
        }
    }

    #[test]
    fn a_target_that_is_down_says_what_to_do() {
        let down = Target { problem: "no connection; does the program run?".into(), state: "down".into(), ..target() };

        assert!(
            text(&[down], true).starts_with("shop  http://a/metrics  down\n  no connection; does the program run?\n")
        );
    }
}
