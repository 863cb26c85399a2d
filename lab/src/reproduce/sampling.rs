//! Dynamic sampling of Redis, live and recorded: the loss if only a part of the samples is sent, selected by score, by
//! dead band, or by either.

mod redis;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use evaluation::reproduction::Verdict;
use serde_json::{Value, json};
use support::clock::Stopwatch;

use self::redis::Redis;
use crate::clients::shop::{Process, ending_with_us};
use support::workspace;

/// The publication's claim: half of the data costs less than this share of accuracy.
const HALF: f64 = 0.5;
const LOSS: f64 = 0.05;
/// The seed of the load.
const SEED: u64 = 7;
/// Limit for an agent to start.
const START: Duration = Duration::from_secs(30);

/// Arguments of `cargo lab reproduce sampling`.
#[derive(Clone, Debug, clap::Args)]
pub struct SamplingArgs {
    /// Minutes of recording the live Redis; the first two are for learning
    #[arg(long, value_name = "MIN", default_value_t = 16, value_parser = clap::value_parser!(u64).range(3..=600))]
    minutes: u64,
    /// The uview program [default: a release build]
    #[arg(long, value_name = "FILE")]
    uview: Option<PathBuf>,
    /// Folder of labelled data with the set `redis` [default: UVIEW_DATA]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Records, samples, and writes `sampling.md`, `sampling.json` and two pictures into the folder of reproductions.
///
/// # Errors
///
/// Redis or an agent does not start, or a claim cannot be computed.
pub fn run(args: &SamplingArgs, data: Option<PathBuf>) -> Result<()> {
    let program = args.uview.clone().map_or_else(release, Ok)?;
    let folder = workspace().join("target/sampling");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let out = workspace().join("docs/reproduction");
    let live = live(&program, &folder, Duration::from_secs(60 * args.minutes))?;
    let mut found = vec![replayed("live", &program, &[live.as_os_str()], &out)?];
    let data = args.data.clone().or(data);
    match &data {
        Some(data) => found.insert(0, recorded(&program, &folder, &data.join("redis"), &out)?),
        None => println!("UVIEW_DATA names no folder of labelled data: the recorded Redis is left out"),
    }
    write(&found, args.minutes, &out)
}

fn release() -> Result<PathBuf> {
    let status =
        Command::new("cargo").args(["build", "--release", "-p", "uview-cli"]).current_dir(workspace()).status()?;
    ensure!(status.success(), "uview is not built");
    Ok(workspace().join("target/release/uview"))
}

/// Records a Redis by both agents for `length`. Returns the path of the recording.
fn live(program: &Path, folder: &Path, length: Duration) -> Result<PathBuf> {
    let redis = Redis::start(folder)?;
    let _agents = agents(program, folder)?;
    let end = Arc::new(AtomicBool::new(false));
    let services = folder.join("services.sock");
    std::thread::scope(|scope| {
        let (stop, redis, services) = (&end, &redis, &services);
        let load = scope.spawn(move || redis::load(redis, SEED, stop));
        let watch = scope.spawn(move || redis::watch(redis, services, stop));
        println!("a Redis is watched for {} min", length.as_secs() / 60);
        let status = Command::new(program)
            .args(["record", "redis", "--for-s", &length.as_secs().to_string(), "--runtime-dir"])
            .arg(folder)
            .arg("--out")
            .arg(folder)
            .status();
        end.store(true, Ordering::Relaxed);
        for thread in [load, watch] {
            thread.join().map_err(|_| anyhow::anyhow!("a thread of the load panicked"))??;
        }
        let status = status?;
        ensure!(status.success(), "uview record ended with {status}");
        Ok(folder.join("redis.uvrec"))
    })
}

/// Starts both agents, with an interval of a second.
fn agents(program: &Path, folder: &Path) -> Result<[Process; 2]> {
    let dir = folder.display();
    let any = "127.0.0.1:0";
    let host = format!("runtime_dir: {dir}\ntransport: shm\nmetrics: {{listen: '{any}'}}\n");
    let nic = format!(
        "control: {{address: 'unix:{dir}/control.sock'}}\ntransport: shm\nregions_socket: {dir}/regions.sock\nmetrics: {{listen: '{any}'}}\n"
    );
    let start = |name: &str, text: String| {
        let config = folder.join(format!("{name}.yaml"));
        fs::write(&config, text)?;
        let mut command = ending_with_us(program);
        command.arg(name).arg("--config").arg(config);
        Process::start(&mut command, &folder.join(format!("{name}.log")))
    };
    let agents = [start("host-agent", host)?, start("nic-agent", nic)?];
    let clock = Stopwatch::start();
    while !folder.join("host-agent.json").exists() || !folder.join("services.sock").exists() {
        ensure!(clock.elapsed() < START, "the host agent does not start, see {dir}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(agents)
}

/// Results for one recording.
#[derive(Debug)]
struct SamplingResult {
    name: &'static str,
    rows: u64,
    metrics: u64,
    curves: Vec<(String, Vec<Point>)>,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    threshold: f64,
    sent: f64,
    loss: f64,
}

/// The labelled recording: training rows for learning, test rows for sampling.
fn recorded(program: &Path, folder: &Path, data: &Path, out: &Path) -> Result<SamplingResult> {
    let (model, columns) = (folder.join("redis.model"), data.join("columns.csv"));
    let known = ["--interval-ms", "1000", "--columns"];
    let status = Command::new(program)
        .arg("train")
        .arg(data.join("redis.train.csv.gz"))
        .args(known)
        .arg(&columns)
        .arg("--out")
        .arg(&model)
        .status()?;
    ensure!(status.success(), "uview train ended with {status}");
    let test = data.join("redis.test.csv.gz");
    let known = known.map(std::ffi::OsStr::new);
    let arguments =
        [&[test.as_os_str()], &known[..], &[columns.as_os_str(), "--model".as_ref(), model.as_os_str()]].concat();
    replayed("recorded", program, &arguments, out)
}

fn replayed(name: &'static str, program: &Path, arguments: &[&std::ffi::OsStr], out: &Path) -> Result<SamplingResult> {
    let picture = out.join(format!("sampling-{name}.svg"));
    let output = Command::new(program)
        .arg("replay")
        .args(arguments)
        .args(["--json", "-", "--sampling-plot"])
        .arg(picture)
        .output()?;
    ensure!(output.status.success(), "uview replay: {}", String::from_utf8_lossy(&output.stderr));
    found(name, &serde_json::from_slice(&output.stdout)?).context("uview replay says nothing of sampling")
}

fn found(name: &'static str, replay: &Value) -> Option<SamplingResult> {
    let point = |point: &Value| {
        let number = |name: &str| point.get(name)?.as_f64();
        Some(Point { threshold: number("threshold")?, sent: number("sent")?, loss: number("loss")? })
    };
    let curve = |curve: &Value| {
        let points = curve.get("points")?.as_array()?.iter().map(point).collect::<Option<_>>()?;
        Some((curve.get("by")?.as_str()?.to_owned(), points))
    };
    let armed = replay.get("armed_row")?.as_u64()?;
    Some(SamplingResult {
        name,
        rows: replay.get("rows")?.as_u64()? + 1 - armed,
        metrics: replay.get("metrics")?.as_u64()?,
        curves: replay.get("sampling")?.as_array()?.iter().map(curve).collect::<Option<_>>()?,
    })
}

/// The only method that is the publication's, if by another score.
const PUBLISHED: &str = "score";

impl SamplingResult {
    fn claims(&self) -> impl Iterator<Item = Value> {
        self.curves.iter().map(|(by, points)| {
            let fitting = points.iter().filter(|point| point.sent <= HALF);
            let at = fitting.max_by(|a, b| a.sent.total_cmp(&b.sent));
            let is_published = by == PUBLISHED;
            let ours = at.map_or_else(
                || "no threshold sends so little".to_owned(),
                |at| format!("{:.1} % lost with {:.0} % sent (threshold {:.2})", 100.0 * at.loss, 100.0 * at.sent, at.threshold),
            );
            json!({
                "id": format!("{}-half-{}", self.name, by.replace(' ', "-")),
                "claim": format!("Redis, {}: at half of the samples, chosen by {by}, little accuracy is lost", self.name),
                "published": if is_published { "50 % less data, < 5 % loss" } else { "–" },
                "ours": ours,
                "tolerance": "at most half sent, loss below 5 %",
                // The score is of our default detector, and the threshold is not the published one.
                "verdict": Verdict::by_own_bar(at.is_some_and(|at| at.loss < LOSS)).to_string(),
            })
        })
    }

    /// Loss by the share of samples sent, for each policy.
    fn table(&self) -> String {
        let mut text = format!(
            "## {}\n\n{} rows of {} metrics, judged by the default LMAP.\n\n| sent at most | {} |\n| --- |{}\n",
            if self.name == "live" { "Live" } else { "Recorded" },
            self.rows,
            self.metrics,
            self.curves.iter().map(|(by, _)| by.as_str()).collect::<Vec<_>>().join(" | "),
            " --- |".repeat(self.curves.len())
        );
        for budget in [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7] {
            let cell = |points: &[Point]| {
                let fitting = points.iter().filter(|point| point.sent <= budget);
                let at = fitting.max_by(|a, b| a.sent.total_cmp(&b.sent));
                at.map_or_else(String::new, |at| format!("{:.1} % (threshold {:.2})", 100.0 * at.loss, at.threshold))
            };
            let cells: Vec<_> = self.curves.iter().map(|(_, points)| cell(points)).collect();
            let _ = writeln!(text, "| {:.0} % | {} |", 100.0 * budget, cells.join(" | "));
        }
        let name = self.name;
        text + &format!("\n![Loss of accuracy by share of samples sent, {name}](sampling-{name}.svg)\n\n")
    }
}

fn write(found: &[SamplingResult], minutes: u64, out: &Path) -> Result<()> {
    let claims: Vec<Value> = found.iter().flat_map(SamplingResult::claims).collect();
    let field = |claim: &Value, name: &str| claim.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let names = ["id", "claim", "published", "ours", "tolerance", "verdict"];
    let mut text = format!(
        "# Dynamic sampling of Redis\n\nMade by `cargo lab reproduce sampling --minutes {minutes}`. How it is measured: [below](#how-it-is-measured).\n\n| {} |\n|{}\n",
        names.join(" | "),
        " --- |".repeat(names.len())
    );
    let measured = format!(
        "\n## How it is measured\n\n{}\n\nThe data are not the publication's, \
         the scores are of our default detector and thresholds are chosen afterwards, so that all bars are ours. The sampler is the host agent's; a baseline of 30 s is beside it. Loss is |1 − NCC| at lag 0 \
         of what was there (x) and of the value that was sent last (h), with NCC = Σ x h / Σ x², mean over the metrics that vary. \
         [uview.md](uview.md) has the same definition, for the paper's form of the score. *Score*: rows above θ, in units of γ, and nothing else, as \
         published. *Dead band*: what moved by more than δ of its deviations. *Either*: the default, both steered to half of a budget each, with 30 \
         rows from before an alarm and 5 from after it; its threshold is the budget.\n",
        Verdict::MEANING,
    );
    for claim in &claims {
        let cells = names.map(|name| match field(claim, name) {
            verdict if name == "verdict" && !verdict.starts_with("holds") => format!("**{verdict}**"),
            text => text,
        });
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text.push_str(&measured);
    text.push('\n');
    for found in found {
        text.push_str(&found.table());
    }
    fs::write(out.join("sampling.md"), text.trim_end().to_owned() + "\n")?;
    fs::write(out.join("sampling.json"), serde_json::to_string_pretty(&claims)? + "\n")?;
    print!("{text}");
    Ok(())
}
