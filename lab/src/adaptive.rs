//! `cargo lab adaptive`: how much sooner a fault is noticed, and its end, if an LMAP is fetched faster while something
//! seems wrong, and how many READs that takes. In virtual time, on a simulated service: two workers see the same
//! memory, one of them fetches faster. The load of the machine does not matter.

mod agents;
mod service;

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use support::workspace;
use wire::control::LmapSpec;
use wire::time::{Interval, Nanos};

use self::agents::Agent;
use self::service::{Dice, Fault, STEP, Service};
use crate::scale::between_marks;

/// The interval of rows, and that of fetches while something seems wrong.
const INTERVAL: Nanos = Nanos::from_secs(1);
const FASTEST: Nanos = Nanos::from_millis(100);
/// Rows before the first fault: learning, and a healthy stretch for false alarms and READs.
const LEARNING_S: u64 = 700;
const HEALTHY_S: u64 = 1_200;
/// Length of a fault, and least time from the end of one to the beginning of the next.
const FAULT_S: u64 = 15;
const PAUSE_S: u64 = 45;

/// Arguments of `cargo lab adaptive`.
#[derive(Clone, Debug, clap::Args)]
pub struct AdaptiveArgs {
    /// Seeds, each with every fault once
    #[arg(long, default_value_t = 40)]
    seeds: u64,
    /// Write the table into docs/aggregation.md
    #[arg(long)]
    write: bool,
}

/// What one worker did.
#[derive(Clone, Debug, Default)]
struct Outcome {
    /// By fault: time to notice its beginning, and its end, in seconds; infinite if it was not noticed.
    begins: Vec<Vec<f64>>,
    ends: Vec<Vec<f64>>,
    /// By fault: those with more than one alarm.
    again: Vec<usize>,
    /// Alarms outside of faults, after learning.
    false_alarms: usize,
    /// READs per second in the healthy stretch, and while there were faults.
    healthy_reads: f64,
    fault_reads: f64,
}

/// Runs all seeds, and prints the table.
///
/// # Errors
///
/// A worker does not arm itself, or the page cannot be written.
pub fn run(args: &AdaptiveArgs) -> Result<()> {
    let mut all = [Outcome::new(), Outcome::new()];
    for seed in 0..args.seeds {
        one(seed, &mut all)?;
    }
    let table = table(&all, args.seeds);
    println!("{table}");
    if args.write {
        let file = workspace().join("docs/aggregation.md");
        let page = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        fs::write(&file, between_marks(&page, "adaptive", &table)?)?;
    }
    Ok(())
}

impl Outcome {
    fn new() -> Self {
        let of_each = vec![Vec::new(); Fault::ALL.len()];
        Self { begins: of_each.clone(), ends: of_each, again: vec![0; Fault::ALL.len()], ..Self::default() }
    }
}

/// A fault, and when it begins and ends.
struct Injected {
    index: usize,
    fault: Fault,
    from: Nanos,
    to: Nanos,
}

/// Every fault once, in an order of the seed's.
fn schedule(seed: u64) -> Vec<Injected> {
    let mut dice = Dice::new(seed ^ 0xfa01);
    let mut order: Vec<usize> = (0..Fault::ALL.len()).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, (dice.unit() * (at + 1) as f64) as usize);
    }
    let mut from = Nanos::from_secs(LEARNING_S + HEALTHY_S);
    let inject = |index: usize| {
        // At any time within an interval, in steps.
        let begins = from.plus(Nanos(STEP.0 * (dice.unit() * 500.0) as u64));
        let to = begins.plus(Nanos::from_secs(FAULT_S));
        from = to.plus(Nanos::from_secs(PAUSE_S));
        Injected { index, fault: Fault::ALL[index].0, from: begins, to }
    };
    order.into_iter().map(inject).collect()
}

fn one(seed: u64, all: &mut [Outcome; 2]) -> Result<()> {
    let mut service = Service::new(seed, Interval::new(INTERVAL)?)?;
    let spec = service.spec.clone();
    let faster = LmapSpec { fastest: Some(Interval::new(FASTEST)?), ..spec.clone() };
    let mut agents = [Agent::new(seed, &service, &spec)?, Agent::new(seed, &service, &faster)?];
    let faults = schedule(seed);
    let end = faults.last().map_or(Nanos::ZERO, |last| last.to.plus(Nanos::from_secs(PAUSE_S)));
    let learnt = Nanos::from_secs(LEARNING_S);
    let healthy = Nanos::from_secs(LEARNING_S + HEALTHY_S);
    let mut marks = [[0; 2]; 2];
    for step in 1..=end.0 / STEP.0 {
        let now = Nanos(STEP.0 * step);
        let fault = faults.iter().find(|of| of.from <= now && now < of.to).map(|of| of.fault);
        service.step(fault)?;
        for (agent, marks) in agents.iter_mut().zip(&mut marks) {
            agent.step(now)?;
            if now == learnt {
                ensure!(agent.is_armed(), "seed {seed}: the LMAP is not armed after {LEARNING_S} rows");
                marks[0] = agent.reads().0;
            } else if now == healthy {
                marks[1] = agent.reads().0;
            }
        }
    }
    for ((agent, outcome), marks) in agents.iter().zip(all).zip(marks) {
        judge(agent, &faults, end, outcome);
        outcome.healthy_reads += (marks[1] - marks[0]) as f64 / HEALTHY_S as f64;
        let faulty = end.since(healthy).unwrap_or(Nanos::ZERO).as_secs_f64();
        outcome.fault_reads += (agent.reads().0 - marks[1]) as f64 / faulty;
    }
    Ok(())
}

/// Compares the alarms of `agent` with the faults.
fn judge(agent: &Agent, faults: &[Injected], end: Nanos, outcome: &mut Outcome) {
    let seconds = |to: Nanos, from: Nanos| to.since(from).map_or(0.0, Nanos::as_secs_f64);
    let learnt = Nanos::from_secs(LEARNING_S);
    let mut counted = 0;
    for (at, of) in faults.iter().enumerate() {
        let next = faults.get(at + 1).map_or(end, |next| next.from);
        let own: Vec<_> = agent.alarms.iter().filter(|(began, _)| of.from <= *began && *began < next).collect();
        let during = own.iter().filter(|(began, _)| *began < of.to.plus(INTERVAL)).count();
        let first = own.first().filter(|(began, _)| *began < of.to.plus(INTERVAL));
        outcome.begins[of.index].push(first.map_or(f64::INFINITY, |(began, _)| seconds(*began, of.from)));
        let last = own.iter().rfind(|(began, _)| *began < of.to.plus(INTERVAL));
        let ended = last.and_then(|(_, ended)| *ended);
        if let Some(ended) = ended.filter(|_| first.is_some()) {
            outcome.ends[of.index].push(seconds(ended, of.to));
        }
        outcome.again[of.index] += usize::from(during > 1);
        counted += during;
    }
    let after = agent.alarms.iter().filter(|(began, _)| *began >= learnt).count();
    outcome.false_alarms += after.saturating_sub(counted);
}

/// The value at `share` of the sorted values.
fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

fn table(all: &[Outcome; 2], seeds: u64) -> String {
    let mut text = String::from(
        "| fault of 15 s | noticed: begin, rows only | with faster fetches | its end, rows only | with faster fetches |\n\
         | --- | --- | --- | --- | --- |\n",
    );
    let cell = |values: &[f64]| {
        let noticed = values.iter().filter(|value| value.is_finite()).count();
        let missed = if noticed == values.len() { String::new() } else { format!(", {noticed} of {}", values.len()) };
        let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        format!("{:.1} s, 90 %: {:.1}{missed}", percentile(&finite, 0.5), percentile(&finite, 0.9))
    };
    let [rows, faster] = all;
    for (index, (_, name)) in Fault::ALL.iter().enumerate() {
        let of = [&rows.begins, &faster.begins, &rows.ends, &faster.ends].map(|of| cell(&of[index]));
        let _ = writeln!(text, "| {name} | {} | {} | {} | {} |", of[0], of[1], of[2], of[3]);
    }
    let hours = seeds as f64 * (HEALTHY_S + 5 * PAUSE_S) as f64 / 3600.0;
    let per_seed = |of: f64| of / seeds as f64;
    let reads = |of: &Outcome| {
        format!("{:.3} healthy, {:.2} while there are faults", per_seed(of.healthy_reads), per_seed(of.fault_reads))
    };
    let again = |of: &Outcome| {
        let named = of.again.iter().zip(Fault::ALL).filter(|(count, _)| **count > 0);
        let named: Vec<String> = named.map(|(count, (_, name))| format!("{name}: {count}")).collect();
        if named.is_empty() { "0".to_owned() } else { named.join(", ") }
    };
    let _ = write!(
        text,
        "\n| over {seeds} seeds | rows only | with faster fetches |\n| --- | --- | --- |\n\
         | READs per second | {} | {} |\n\
         | false alarms in {hours:.1} hours | {} | {} |\n\
         | faults with more than one alarm | {} | {} |\n",
        reads(rows),
        reads(faster),
        rows.false_alarms,
        faster.false_alarms,
        again(rows),
        again(faster),
    );
    text
}
