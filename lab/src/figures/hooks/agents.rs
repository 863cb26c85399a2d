//! Processor time of all hooks, in real agents with real services.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use support::sink;

use super::super::agents::{Agents, Case, build, shares};
use super::super::figure::{Figure, Goal};
use super::super::pair::{Pair, median};

const LENGTH: Duration = Duration::from_mins(1);
/// Measurements, one after the other.
const TURNS: usize = 3;
/// LMAPs are armed after 120 rows of a second, in both.
const ARMED_WITHIN: Duration = Duration::from_mins(4);
/// Of a core, in per cent.
const MAX: f64 = 1.0;

/// Both agents with all hooks connected, against two agents without hooks at the same time.
pub fn hundred(name: &str) -> Result<Figure> {
    let case = Case { services: 100, interval_ms: 1_000, busy: true };
    let folder = tempfile::Builder::new().prefix("uview-figures-").tempdir()?;
    let program = build(folder.path())?;
    let sink = sink::serve(|| |_: &[u8]| ())?;
    let free = "127.0.0.1:0";
    let hooks = format!(
        "otlp: {{upstream: {{endpoint: 'http://{sink}', protocol: http}}, listen_grpc: '{free}', listen_http: '{free}', traces: {{keep: tail}}}}\n\
         remote_write: {{url: 'http://{sink}/api/v1/write'}}\nwebhooks: [{{name: sink, url: 'http://{sink}/'}}]\n"
    );
    let start = |called: &str, more: &str| {
        let folder = folder.path().join(called);
        fs::create_dir(&folder)?;
        Agents::start(case, program.clone(), &folder, more)
    };
    let (with, without) = (start("with", &hooks)?, start("without", "")?);
    with.all_armed(case, ARMED_WITHIN)?;
    without.all_armed(case, ARMED_WITHIN)?;
    let processes = [with.host, with.nic, without.host, without.nic];
    let turns = (0..TURNS).map(|_| shares(processes, LENGTH)).collect::<Result<Vec<_>>>()?;
    let both = |[host, nic, bare_host, bare_nic]: [f64; 4]| (host + nic, bare_host + bare_nic);
    let pairs: Vec<_> = turns.iter().copied().map(both).collect();
    let measured = Pair::of(&pairs).context("there are turns")?;
    let more = median(pairs.iter().map(|(ours, peer)| ours - peer));
    let what = "both agents without hooks, at the same time, with as many services";
    let host = |at: usize| median(turns.iter().map(|turn| turn[at]));
    let note = format!(
        "{more:.2} % more, the median of {TURNS} minutes; host agent {:.2} % against {:.2} %",
        host(0),
        host(2)
    );
    let figure = Figure::new(name, "% of a core", what, measured, Goal::Stated);
    Ok(figure.judged("≤ 1 % of a core more", more <= MAX, note))
}
