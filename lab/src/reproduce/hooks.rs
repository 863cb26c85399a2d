//! `cargo lab reproduce hooks`: evaluates the trace hooks. A simulated shop with faults sends spans through the agents'
//! own code, and the traces kept by each policy are counted. All of it runs in virtual time, so that results depend on
//! the seeds only.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::Synopsis;
use support::workspace;

mod agents;
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

const SEEDS: u64 = 20;
/// Number of seeds in the reduced form.
const FEW: u64 = 2;
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

/// Runs all seeds and writes tables and plot. The reduced form writes nothing and only checks claims that held before.
///
/// # Errors
///
/// In the reduced form, a bar that is met in the stored table is missed; or a file cannot be read or written.
pub fn run(synopsis: &Synopsis) -> Result<()> {
    let folder = synopsis.out.clone().unwrap_or_else(|| workspace().join("docs/reproduction"));
    if cfg!(debug_assertions) {
        return run_optimised(&folder, synopsis.reduced);
    }
    let seeds = if synopsis.reduced { FEW } else { SEEDS };
    // Short rows take five times as long.
    let settings = SETTINGS.iter().filter(|(_, _, setting)| !synopsis.reduced || setting.interval == SECOND);
    let mut series = Vec::new();
    for &(suffix, every, setting) in settings {
        let mut outcomes = Vec::new();
        for seed in 1..=seeds {
            outcomes.push(run::run(seed, setting)?);
        }
        series.push(Series { every, suffix, scene: setting.scene, outcomes });
    }
    let bars: Vec<_> = series.iter().flat_map(Series::bars).collect();
    let count = |holds| bars.iter().filter(|row| row.holds == Some(holds)).count();
    println!("hooks: {} hold, {} fail", count(true), count(false));
    if synopsis.reduced {
        let broken = table::broken(&series, &fs::read_to_string(folder.join("hooks.json"))?)?;
        ensure!(broken.is_empty(), "no longer holds: {}", broken.join("; "));
        return Ok(());
    }
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("hooks.json"), table::json(&series)?)?;
    fs::write(folder.join("hooks.md"), table::page(&series, HEAD))?;
    fs::write(folder.join("hooks-coverage.svg"), table::svg(&series))?;
    Ok(())
}

/// Runs an optimised build of this tool.
fn run_optimised(folder: &Path, reduced: bool) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--release", "--quiet", "--package", "lab", "--", "reproduce", "hooks", "--out"]);
    cargo.arg(std::path::absolute(folder)?).args(reduced.then_some("--reduced"));
    let status = cargo.current_dir(workspace()).status()?;
    ensure!(status.success(), "the reproduction of hooks ended with {status}");
    Ok(())
}

const HEAD: &str = "The bars are our own, not those of a publication. Everything happens in virtual time and comes from 20 seeds; the agents' code is the product's \
(`otlp::SpanMetrics`, `nic_agent::Worker`, `otlp::TailSampler`) with its defaults, the shop is a model of the demo's. Each ± is half a 95 % confidence interval of the mean over the seeds. The three seconds that a verdict is about at the least were chosen on these seeds: on 20 others (101 to 120) LMAP alone covered less than 90 % in three with rows of 100 ms (mean 95.6 %, worst 85.5 %), and so less than 4.5 times head sampling; the other bars held.

- **Shop**: frontend → cart, catalogue, payment → store; five operations with paths of their own, 100 requests/s in an open loop with a wave, bursts and a drift; one \
worker and a queue for each service; callers wait 1 s. One request in a thousand fails at each callee without any fault. Spans come in the SDKs' batches (512 spans or 5 s, \
a phase for each service), so that roots often come last.
- **Faults**: kinds, amounts and lengths of `uview demo`, then three of one operation; each once, one every 2 minutes (8 % of the time is faulty), in an order drawn from the seed. A \
CPU hog makes work three times as long, a leak up to six times.
- **Truth**: the shop is run twice with the same seed. A request is hit if with the faults it fails and else does not, or takes a tenth longer, and if it fails or is above the \
99th percentile of its operation without faults. The quiet tail is what fails or is above that without being hit.
- **Coverage** counts whole traces only. *Beyond* is kept and not hit, as a share of all traces: it grows with how often there are faults. *Precision* is the hit ones' share of \
the kept. Bytes are those of encoded spans, with what is said of them where they are kept.
- **Chapter 4**: eleven services that ask each other as Online Boutique's do, six operations, a fault of 30 s every two minutes, so that a quarter of the time is faulty. The publication says near-total coverage, 5 times \
head sampling at 20 %, about 5 % beyond. Here coverage and the multiple are the same, and beyond is twice as much; the oracle, which knows the faults, keeps 6.4 %. Most of it is during CPU hogs and \
errors, which hit a part only of the requests that ask for what is faulty.
- **The oracle** keeps each trace that lasted in a second in which something that its operation asks for was faulty: what decisions by operation and second \
can be at best. It does not know which requests of these a fault hit, nor of queues that a fault left behind.
- **LMAPs** see nothing but derived durations and errors, read 6 s after requests ended; 11 minutes (at 100 ms: 5) of healthy traffic come first.
";
