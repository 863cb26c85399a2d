//! `cargo lab reproduce hooks`: evaluates the trace hooks. A simulated shop with faults sends spans through the agents'
//! own code, and the traces kept by each policy are counted. All of it runs in virtual time, so that results depend on
//! the seeds only.

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::Synopsis;
use support::workspace;

mod agents;
mod bars;
mod faults;
mod plot;
mod run;
mod scenes;
mod sdk;
mod shop;
mod table;

use run::RunConfig;
use scenes::{CHAPTER, DEMO};
use shop::{MILLI, SECOND};
use table::Series;

/// The seeds that verdicts are about. Nothing was chosen on them, nor had anybody seen them before.
const SEEDS: RangeInclusive<u64> = 201..=220;
/// The same in the reduced form.
const REDUCED_SEEDS: RangeInclusive<u64> = 201..=201;
/// The seeds on which the agents' constants were chosen, above all the three seconds that a verdict is about at the
/// least.
const CHOSEN_SEEDS: RangeInclusive<u64> = 1..=20;
/// The series: part of ids, name, interval, and healthy traffic, which is long enough for the second fit at 600 rows.
const SETTINGS: [(&str, &str, RunConfig); 3] = [
    ("", "rows of 1 s (the agents' default)", RunConfig { scene: &DEMO, interval: SECOND, healthy: 660 * SECOND }),
    (
        "-100ms",
        "rows of 100 ms (as in the demo)",
        RunConfig { scene: &DEMO, interval: 100 * MILLI, healthy: 300 * SECOND },
    ),
    (
        "-chapter-4",
        "eleven services, a fault of 30 s every two minutes, rows of 1 s",
        RunConfig { scene: &CHAPTER, interval: SECOND, healthy: 660 * SECOND },
    ),
];

/// Runs all seeds and writes tables and plot. The reduced form writes nothing: it computes every row for few seeds and
/// compares the verdicts with the stored ones.
///
/// # Errors
///
/// In the reduced form, a verdict of the stored table is not confirmed; or a file cannot be read or written.
pub fn run(synopsis: &Synopsis) -> Result<()> {
    let folder = synopsis.out.clone().unwrap_or_else(|| workspace().join("docs/reproduction"));
    // The reduced form takes few seeds: a build of tests has the time.
    if cfg!(debug_assertions) && !synopsis.reduced {
        return run_optimised(&folder);
    }
    let (seeds, chosen) = if synopsis.reduced { (REDUCED_SEEDS, None) } else { (SEEDS, Some(CHOSEN_SEEDS)) };
    let mut series = Vec::new();
    for (suffix, every, setting) in SETTINGS {
        let outcomes = |seeds: RangeInclusive<u64>| seeds.map(|seed| run::run(seed, setting)).collect::<Result<_>>();
        let (outcomes, chosen) = (outcomes(seeds.clone())?, chosen.clone().map_or(Ok(Vec::new()), outcomes)?);
        series.push(Series { every, suffix, scene: setting.scene, outcomes, chosen });
    }
    println!("hooks: {}", table::summary(&series));
    if synopsis.reduced {
        let broken = table::broken(&series, &fs::read_to_string(folder.join("hooks.json"))?)?;
        ensure!(broken.is_empty(), "not confirmed: {}", broken.join("; "));
        return Ok(());
    }
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("hooks.json"), table::json(&series)?)?;
    fs::write(folder.join("hooks.md"), table::page(&series, HEAD))?;
    fs::write(folder.join("hooks-coverage.svg"), table::svg(&series))?;
    Ok(())
}

/// Runs an optimised build of this tool.
fn run_optimised(folder: &Path) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--release", "--quiet", "--package", "lab", "--", "reproduce", "hooks", "--out"]);
    cargo.arg(std::path::absolute(folder)?);
    let status = cargo.current_dir(workspace()).status()?;
    ensure!(status.success(), "the reproduction of hooks ended with {status}");
    Ok(())
}

const HEAD: &str = "Rows `published-…` are of the publication's definition: a trace is *symptomatic* if any of its calls has an error, or if it took longer than the 99th \
percentile of its operation before the first fault; *overhead* is the share of the other traces that were kept. Rows `lmap-…` and `together-…` are of ours, which \
asks for the cause as well (*truth*, below). The publication's figures are of Online Boutique; the shop with the suffix `-chapter-4` stands for it, and the column \
*published* is empty elsewhere. Everything happens in virtual time; the agents' code is the product's (`otlp::SpanMetrics`, `nic_agent::Worker`, `otlp::TailSampler`) \
with its defaults, the shop is a model of the demo's. Each ± is half a 95 % confidence interval of the mean over 20 seeds. The three seconds that a verdict is about at \
the least were chosen on seeds 1 to 20, so verdicts are about seeds 201 to 220, and so are the tables below the first. Bars of our own were set when results of other seeds (1 to 20, 101 to 120) were known. \
The publication's *70 % performance boost* is read as percentage points.

- **Shop**: frontend → cart, catalogue, payment → store; five operations with paths of their own, 100 requests/s in an open loop with a wave, bursts and a drift; one \
worker and a queue for each service; callers wait 1 s. One request in a thousand fails at each callee without any fault. Spans come in the SDKs' batches (512 spans or 5 s, \
a phase for each service), so that roots often come last.
- **Faults**: kinds, amounts and lengths of `uview demo`, then three of one operation; each once, one every 2 minutes (8 % of the time is faulty), in an order drawn from the seed. A \
CPU hog makes work three times as long, a leak up to six times.
- **Truth**: the shop is run twice with the same seed. A request is hit if with the faults it fails and else does not, or takes a tenth longer, and if it fails or is above the \
99th percentile of its operation without faults. The quiet tail is what fails or is above that without being hit.
- **Coverage** counts whole traces only: *symptomatic* by the publication's definition, *hit* by ours. *Beyond* is kept and not hit, as a share of all traces: it grows with how \
often there are faults. *Precision* is the hit ones' share of the kept. Bytes are those of encoded spans, with what is said of them where they are kept.
- **Chapter 4**: eleven services that ask each other as Online Boutique's do, six operations, a fault of 30 s every two minutes, so that a quarter of the time is faulty.
- **The publication's oracle** keeps each trace that lasted while there was a fault, wherever. The other one keeps each that lasted in a second in which something that its \
operation asks for was faulty: what decisions by operation and second can be at best. It does not know which requests of these a fault hit, nor of queues that a fault left behind. \
[dsbhotel.md](dsbhotel.md) has both for real traces.
- **What looks as usual**: no span in error, and from its first span's start to its last span's end no longer than nine of ten requests for its operation, of which the endpoint \
learns that. Rows `remarkable-…` keep one in twenty of these, by the trace's id; the bars were set before any seed was seen with it.
- **LMAPs** see nothing but derived durations and errors, read 6 s after requests ended; 11 minutes (at 100 ms: 5) of healthy traffic come first.
";
