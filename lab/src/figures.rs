//! `cargo lab figures`: measures every figure of the documentation, as a ratio against a named peer in the same run.
//!
//! The two sides of a figure alternate, so that other load on the machine affects both; the ratio is the median of the
//! pairs' ratios. Results go to `docs/figures.json` and, as a table, to `docs/figures.md`. A run of some figures keeps
//! the others.

mod agents;
mod cgroups;
mod figure;
mod forest;
mod helpers;
mod hooks;
mod instructions;
mod instrumentation;
mod latency;
mod lmap;
mod metric_set;
mod numpy;
mod obvious;
mod packets;
mod pair;
mod prometheus;
mod rdma;
mod rounds;
mod scrape;
mod sharded;
mod synopses;
mod viewers;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use remote_write::encoding::Version;

use crate::unavailable::Unavailable;

use agents::Case;
use figure::Figure;
use numpy::Decomposition;
use support::workspace;

pub use helpers::{Helper, run as run_helper};

/// Measures the figure of this name.
type Measure = fn(&str) -> Result<Figure>;

/// Every figure by name.
const FIGURES: &[(&str, Measure)] = &[
    ("counter-add", |name| Ok(instrumentation::counter_add(name))),
    ("counter-sharded-1", |name| sharded::counter(name, 1)),
    ("counter-sharded-2", |name| sharded::counter(name, 2)),
    ("gauge-set", |name| Ok(instrumentation::gauge_set(name))),
    ("histogram-observe", |name| Ok(instrumentation::histogram_observe(name))),
    ("span", instrumentation::span),
    ("scrape", scrape::unjudged),
    ("scrape-and-judge", scrape::judged),
    ("lmap-score", |name| lmap::score::<f64>(name, "f64")),
    ("lmap-score-f32", |name| lmap::score::<f32>(name, "f32")),
    ("lmap-learn", |name| lmap::learn::<f64>(name, "f64")),
    ("lmap-learn-f32", |name| lmap::learn::<f32>(name, "f32")),
    ("lmap-memory", lmap::memory),
    ("lmap-numpy-score", numpy::score),
    ("lmap-numpy-row-wise", |name| numpy::row_wise(name, Decomposition::Svd)),
    ("lmap-numpy-row-wise-gram", |name| numpy::row_wise(name, Decomposition::Gram)),
    ("lmap-numpy-buffered", |name| numpy::buffered(name, Decomposition::Svd)),
    ("lmap-numpy-buffered-gram", |name| numpy::buffered(name, Decomposition::Gram)),
    ("lmap-numpy-buffered-row-wise", |name| numpy::buffered_against_row_wise(name, Decomposition::Svd)),
    ("lmap-numpy-buffered-row-wise-gram", |name| numpy::buffered_against_row_wise(name, Decomposition::Gram)),
    ("lmap-forest", forest::forest),
    ("rounds-256-lmaps", |name| rounds::rounds(name, 256, 64, 5000.0)),
    ("rounds-100-lmaps", |name| rounds::rounds(name, 100, 1000, 750.0)),
    ("ticks-in-time", agents::in_time),
    ("agents-cpu-5-100ms-idle", |name| agents::cpu(name, Case { services: 5, interval_ms: 100, busy: false })),
    ("agents-cpu-5-100ms-busy", |name| agents::cpu(name, Case { services: 5, interval_ms: 100, busy: true })),
    ("agents-cpu-5-10ms-idle", |name| agents::cpu(name, Case { services: 5, interval_ms: 10, busy: false })),
    ("agents-cpu-5-10ms-busy", |name| agents::cpu(name, Case { services: 5, interval_ms: 10, busy: true })),
    ("agents-cpu-100-100ms-idle", |name| agents::cpu(name, Case { services: 100, interval_ms: 100, busy: false })),
    ("agents-cpu-100-100ms-busy", |name| agents::cpu(name, Case { services: 100, interval_ms: 100, busy: true })),
    ("agents-cpu-100-10ms-idle", |name| agents::cpu(name, Case { services: 100, interval_ms: 10, busy: false })),
    ("agents-cpu-100-10ms-busy", |name| agents::cpu(name, Case { services: 100, interval_ms: 10, busy: true })),
    ("cgroups-100", cgroups::hundred),
    ("page-viewer-1", |name| viewers::cost(name, 1)),
    ("page-viewer-10", |name| viewers::cost(name, 10)),
    ("write-to-hook", latency::write_to_hook),
    ("hooks-after-framing", hooks::tail::after_framing),
    ("hooks-sockets", hooks::sockets::over_sockets),
    ("hooks-release", hooks::tail::release),
    ("hooks-memory-alone-short", |name| hooks::memory::memory(name, 1, false)),
    ("hooks-memory-alone-2-blocks", |name| hooks::memory::shortest(name, 2)),
    ("hooks-memory-alone-3-blocks", |name| hooks::memory::shortest(name, 3)),
    ("hooks-memory-alone-4-blocks", |name| hooks::memory::shortest(name, 4)),
    ("hooks-memory-alone", |name| hooks::memory::memory(name, 1, true)),
    ("hooks-memory-eight", |name| hooks::memory::memory(name, 8, true)),
    ("hooks-verdict", |name| Ok(hooks::verdict::taken(name))),
    ("hooks-operation", |name| Ok(hooks::verdict::operation(name))),
    ("hooks-write-1.0", |name| hooks::writing::encode(name, Version::V1)),
    ("hooks-write-2.0", |name| hooks::writing::encode(name, Version::V2)),
    ("hooks-write-bytes", hooks::writing::bytes),
    ("hooks-path-cpu", hooks::path::whole),
    ("hooks-agents-100", hooks::agents::hundred),
    ("packets-file", packets::capture::file),
    ("packets-file-delays", packets::capture::delays),
    ("packets-file-all", packets::capture::everything),
    ("packets-veth", packets::veth::path),
    ("synopses-fridge", synopses::fridge::events),
    ("synopses-st-hll-add", synopses::cardinality::st_hll_add),
    ("synopses-ts-pcsa-add", synopses::cardinality::ts_pcsa_add),
    ("synopses-st-hll-query", synopses::cardinality::st_hll_query),
    ("synopses-st-hll-query-published", synopses::cardinality::st_hll_query_published),
    ("synopses-ts-pcsa-query", synopses::cardinality::ts_pcsa_query),
    ("synopses-rap", synopses::heavy_hitters::rap),
    ("synopses-reordering", synopses::reordering::samples),
    ("synopses-fragment", synopses::fragment::update),
    ("rdma-read", rdma::one_read),
    ("rdma-linked-64", rdma::linked),
    ("rdma-post-64", rdma::post),
    ("rdma-fetch-64", rdma::fetch),
    ("region-overhead", rdma::overhead),
];

/// Whether the argument `wanted` selects the figure `name`. A prefix such as `agents-cpu` selects all figures that
/// begin with it.
fn is_meant(wanted: &str, name: &str) -> bool {
    let known = FIGURES.iter().any(|(name, _)| *name == wanted);
    name == wanted || (!known && name.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('-')))
}

/// Measures the figures in `names`, or all if there is none, and writes `docs/figures.json` and `docs/figures.md`.
///
/// # Errors
///
/// An unknown name, a figure that could not be measured, or files that cannot be written. A missed bar is recorded, and
/// is no error.
pub fn run(names: &[String]) -> Result<()> {
    if let Some(unknown) = names.iter().find(|wanted| !FIGURES.iter().any(|(name, _)| is_meant(wanted, name))) {
        let known: Vec<_> = FIGURES.iter().map(|(name, _)| *name).collect();
        bail!("no figure is called {unknown:?}; there are: {}", known.join(", "));
    }
    if cfg!(debug_assertions) {
        return run_optimised(names);
    }
    for (name, measure) in FIGURES {
        if names.is_empty() || names.iter().any(|wanted| is_meant(wanted, name)) {
            println!("measuring {name}");
            match measure(name) {
                // Written one by one, so that a later failure loses nothing.
                Ok(figure) => write(figure)?,
                Err(error) if error.is::<Unavailable>() => {
                    println!("!! {name} WAS NOT MEASURED, what is written down is from before: {error}.");
                }
                Err(error) => return Err(error.context(format!("{name} was not measured"))),
            }
        }
    }
    print!("{}", table(&read()?));
    Ok(())
}

/// Runs an optimised build of this tool, since releases are optimised.
fn run_optimised(names: &[String]) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--release", "--quiet", "--package", "lab", "--", "figures"]).args(names);
    ensure!(cargo.current_dir(workspace()).status()?.success(), "the figures were not measured");
    Ok(())
}

/// The previous figures in the order of [`FIGURES`], without those that no longer exist.
fn read() -> Result<Vec<Figure>> {
    let file = workspace().join("docs/figures.json");
    let Ok(text) = fs::read_to_string(&file) else { return Ok(Vec::new()) };
    let found: Vec<Figure> = serde_json::from_str(&text).with_context(|| file.display().to_string())?;
    let mut found: BTreeMap<String, Figure> = found.into_iter().map(|figure| (figure.name.clone(), figure)).collect();
    Ok(FIGURES.iter().filter_map(|(name, _)| found.remove(*name)).collect())
}

/// Adds `figure` to both files, or replaces its previous value.
fn write(figure: Figure) -> Result<()> {
    let mut figures = read()?;
    figures.retain(|other| other.name != figure.name);
    figures.push(figure);
    figures.sort_by_key(|figure| FIGURES.iter().position(|(name, _)| *name == figure.name));
    fs::write(workspace().join("docs/figures.json"), serde_json::to_string_pretty(&figures)? + "\n")?;
    fs::write(workspace().join("docs/figures.md"), format!("{HEAD}{}", table(&figures)))?;
    Ok(())
}

const HEAD: &str = "# What it costs

| you want to know | look at |
| --- | --- |
| processor time of both agents on a node | `agents-cpu-SERVICES-INTERVAL` below |
| processor time of the host agent for each viewer of the live page | `page-viewer-*` |
| what one judged scrape of 100 metrics takes | `scrape-and-judge` |
| what a service pays for a count; for one of many threads; for a span | `counter-add`; `counter-sharded-*`; `span` |
| processor time of both agents for 100 containers | `cgroups-100` |
| memory: of an LMAP; of both agents at most | `lmap-memory`; [bounds](bounds.md), or `--budget` of each agent |

Measured by `cargo lab figures`, which writes this page and `figures.json`; `cargo lab figures page-viewer-1 page-viewer-10` measures two of them. What
is told about here and has no row below is not measured yet. Each is a ratio against a named peer in the same run: the two
sides alternate, or run at the same time; both values are medians of as many pairs as the column *pairs* says, the ratio is the median of the pairs' ratios.
A single pair is a count, or one run. *met* is – where nothing is required. Where it is **no**,
[What limits it](cost-model.md) says of most why, and how far it can go. Times are processor time, but for reading by RDMA and `write-to-hook`. Absolute values are of the
machine that ran it last.

- `span` is a span of `tracing` without fields, less what `tracing` and its registry take by themselves: the record in the ring of shared memory, which
  no agent reads meanwhile. Only of one thread.
- `scrape` and `scrape-and-judge` are one service of 80 counters, 16 gauges and 4 histograms, written once before each scrape on both
  sides: the worker's own tick over shared memory. In `scrape` the LMAP only keeps the row, to learn from it; in `scrape-and-judge` it is
  armed, scores the row, and learns by the default stride of longer rows, every fifth: at 10 ms, agents learn every fiftieth
  ([D73](decisions/D73-short-rows-are-learnt-by-time.md)).
- `lmap-score` and `lmap-learn` are one row of 141 columns, against a peer in f64 and one in f32. `lmap-numpy-*` and `lmap-forest` are, too, with every
  row learnt and decompositions counted; the peers get rows that are standardised already. The sketch is decomposed at every row on both sides
  (`lmap-numpy-row-wise*`), in blocks of l + 1 rows on both sides (`lmap-numpy-buffered`, `-gram`), or in blocks by ours alone
  (`lmap-numpy-buffered-row-wise*`: another algorithm than the peer's). `-gram` is the peer that takes the Gram matrix, as ours does.
  `lmap-memory` is a detector that has learnt: until its fit at 2,000 rows it keeps them, too, 16 kB a column in the end.
- `counter-sharded-*` is one counter that so many threads add to at once, a million times each, in turns with the same of `prometheus`, of the facade
  `metrics` with its exporter, and of the OpenTelemetry SDK, handles kept: adds in a second of processor time of each thread. The others' are below the table.
- `rounds-*` is one core that fetches, judges and learns every fifth row, decompositions included, all metrics being counters.
- `ticks-in-time` is the NIC agent at 1 ms with 64 services that were started together, one process each, every metric written 125 times a second:
  the share of ticks that were not late, over 20 s from when all metrics are known, so that all fits are in it; each pair with new processes.
- `agents-cpu-SERVICES-INTERVAL` is the share of one core of both agents together, read from /proc over 20 s, then the same of the peer; each
  pair with new processes. Where *pairs* is 1, this and `ticks-in-time` are one run. Services are one process each (two threads) with the same
  hundred metrics, process metrics are on, every other setting is the default.
  *idle*: heartbeats only; *busy*: every metric is written 125 times a second. LMAPs are armed and no fit falls into the 20 s.
- `cgroups-100` is a hundred cgroups, each with a sleeping process in a network namespace of its own: both agents with every setting at its default, a
  sample and a row each second, LMAPs armed. Its peer reads the same files as often, at the same time. Read from `/proc/PID/task/*/schedstat` over 20 s.
- `page-viewer-*` is what the host agent takes in addition for each of so many viewers, read from /proc over 15 s, in turns with none: the live page's
  events, and for every other one each metric of a service once a second. 100 services of 100 metrics at 100 ms, every metric written 125 times a second.
- `hooks-*` (`cargo lab figures hooks`) are of spans of about 300 bytes, in requests of 512 as eight services send them, one span of a trace each.
  `hooks-after-framing` begins with a request's body, with a third more spans than there is room for; `hooks-sockets` with the socket, on one thread, all
  that waits being half of what comes. `hooks-release` is from a verdict to the requests with 10,000 traces. `hooks-memory-*` are traces of one span
  (*short*: without attributes; *blocks*: the shortest that take so many blocks of memory, the worst sizes) and of eight, without the table of traces,
  whose size is fixed. `hooks-verdict` is one of 100 services every second; `hooks-operation` is asking for one of 1,000 operations that pass 100
  services each. `hooks-write-*` are samples of remote write. `hooks-path-cpu` is one process with a service whose SDK records every span, endpoint and
  buffer; its note has the same SDK with its export alone, to a receiver that answers and decodes nothing. `hooks-agents-100` is what both agents take with all hooks on, less what two others take beside them without, over three minutes one after the
  other, each with 100 services of a hundred metrics, rows of a second, no spans.
- `write-to-hook` is one service of ten gauges with rows of a millisecond, both agents and a hook, over shared memory: from the write of a value far out
  to the receipt of the first verdict above γ, by one monotonic clock; 4,000 writes, each at another point between two rows. Elapsed time.
- `packets-file` is one capture that a generator wrote: TCP connections with losses, DNS and NTP, of each frame 96 bytes. Processor time on both sides, the
  kernel's for reading the file among it. Its peer, tshark, dissects every protocol; that of `packets-file-delays` does the work of a fridge and no more.
  `packets-file-all` is every synopsis on the same file: those of `packets-file`, reordering, RAP, ST-HLL+, TS-PCSA+ and a fragment.
- `packets-veth` is a NIC agent that watches one end of a pair of interfaces between two namespaces, at the other end of which a generator's TCP traffic is sent from
  one core; there the kernel also copies frames into the ring, so that this is no part of the reader's time, ours or the peer's.
- `synopses-*` are digests that are in memory, on one core. `synopses-fridge` is requests, of which two of five are answered 30,000 requests later, and as many
  responses; each turn begins with an empty table. `-add` and `-query` are of 1,024 registers with 64 items of the window each, every item new;
  a query follows each item there. `synopses-st-hll-query` is by maximum likelihood, the default, `-published` by the harmonic mean and linear counting.
  `synopses-rap`, `synopses-reordering` and `synopses-fragment` are of 100,000 keys by Zipf's law with skew 1.
- `rdma-read` and `rdma-linked-64` are 31 pairs in a guest with a soft device (`cargo lab rdma` says where there can be none); ours copies what it
  has read to the caller, the peers do not. `rdma-post-64` and `rdma-fetch-64` are on a stand-in for the device that does nothing: our own
  part alone. `region-overhead` is a tick of a worker with 64 regions of one gauge each, less reading them.
- Gauges, histograms and further counters beside other libraries, on one thread and two, are with the [client](../client/README.md#what-it-costs)
  (`cargo bench -p uview --all-features --bench compared`).

";

fn table(figures: &[Figure]) -> String {
    let mut text = String::from(
        "| figure | ours | peer | theirs | ratio | pairs | goal | met |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for figure in figures {
        let Figure { name, value, unit, peer, peer_value, ratio, pairs, goal, met, .. } = figure;
        let met = match met {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "–",
        };
        let _ = writeln!(
            text,
            "| {name} | {value:.3} {unit} | {peer} | {peer_value:.3} {unit} | {ratio:.3} | {pairs} | {goal} | {met} |"
        );
    }
    for figure in figures.iter().filter(|figure| !figure.note.is_empty()) {
        let _ = write!(text, "\n`{}`: {}.\n", figure.name, figure.note);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::figure::Goal;
    use super::*;

    #[test]
    fn a_figure_without_a_requirement_is_neither_met_nor_missed() {
        let figure = |goal| Figure::new("name", "ns", "peer", pair::Pair::once(3.0, 2.0), goal);
        let all = [figure(Goal::Stated), figure(Goal::AtMost(1.6)), figure(Goal::AtMost(1.4))];

        assert_eq!(all.each_ref().map(|figure| figure.met), [None, Some(true), Some(false)]);
        let text = table(&all);
        let ends: Vec<_> = text.lines().skip(2).filter_map(|line| line.rsplit(" | ").next()).collect();
        assert_eq!(ends, ["– |", "yes |", "**no** |"]);
    }

    #[test]
    fn the_page_tells_of_all_figures_also_of_those_that_were_added_since_one_was_measured() {
        let page = fs::read_to_string(workspace().join("docs/figures.md")).unwrap();

        assert!(page.starts_with(HEAD), "HEAD of lab/src/figures.rs has changed: write it into docs/figures.md");
    }

    #[test]
    fn the_pages_table_is_of_the_file_and_a_ratio_is_judged_by_the_goal_beside_it() {
        let (page, figures) = (fs::read_to_string(workspace().join("docs/figures.md")).unwrap(), read().unwrap());
        let bar = |goal: &str| {
            let at_most = goal.strip_prefix("ratio ≤ ").map(|bar| bar.parse::<f64>().unwrap());
            let ahead = goal.strip_prefix("≥ ").and_then(|rest| rest.strip_suffix(" times as fast"));
            at_most.or_else(|| ahead.map(|ahead| 1.0 / ahead.parse::<f64>().unwrap()))
        };

        assert!(page.ends_with(&table(&figures)), "docs/figures.md is not what docs/figures.json says");
        for figure in figures {
            if let Some(bar) = bar(&figure.goal) {
                assert_eq!(figure.met, Some(figure.ratio <= bar), "{}: {}, {}", figure.name, figure.ratio, figure.goal);
            }
        }
    }
}
