//! An end-to-end check: `uview demo --quick` on real processes. Bars that depend on the load of the machine are printed
//! but not checked; for traces, half of the strict bar is required (`cargo lab reproduce hooks` has that, in virtual
//! time). The fault on the network needs root; without, the check prints that it was skipped.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use support::programs::Programs;
use support::workspace;

/// Exit code of a demo that ran but missed a bar.
const BAR_MISSED: i32 = 3;
/// Faults of a run, including the one on the link, which needs root.
const FAULTS: usize = 6;
/// Faults that may pass unnoticed on any machine.
const MAX_MISSED: usize = 1;
/// Name of the fault on the network.
const SLOW_LINK: &str = "slow-link";
/// Share of the requests hit by faults, 0 to 1, whose traces have to be kept whole on any machine; also more than head
/// sampling keeps in as many bytes.
const MIN_KEPT: f64 = 0.5;

#[derive(Debug, Deserialize)]
struct Facts {
    faults: Vec<Fault>,
    skipped: Vec<Skipped>,
    false_alarms_per_service_minute: f64,
    agent_cpu_share: f64,
    missed_ticks: u64,
    ticks: u64,
    traces: Traces,
}

#[derive(Debug, Deserialize)]
struct Traces {
    hit: u64,
    hit_kept_whole: u64,
    head_share: f64,
    lost_spans: u64,
}

impl Traces {
    /// Whether enough traces of hit requests were kept.
    fn enough(&self) -> bool {
        let share = self.hit_kept_whole as f64 / self.hit.max(1) as f64;
        share >= MIN_KEPT && share > self.head_share
    }
}

#[derive(Debug, Deserialize)]
struct Fault {
    service: String,
    kind: String,
    noticed_ms: Option<f64>,
    explained: bool,
}

#[derive(Debug, Deserialize)]
struct Skipped {
    kind: String,
    why: String,
}

/// Runs the demo and checks its report. A machine that stalls for seconds hides faults, so a run that noticed or kept
/// too little is repeated once with another seed.
///
/// # Errors
///
/// The demo fails, leaves out a fault, or twice notices too few faults or keeps too few of their traces.
pub fn check(programs: &Programs) -> Result<()> {
    let Err(few) = enough(&run(programs, "1")?) else { return Ok(()) };
    println!("!! {few:#} with seed 1: once more with seed 2");
    enough(&run(programs, "2")?).context("twice")
}

/// Checks the requirements that hold on any machine.
fn enough(facts: &Facts) -> Result<()> {
    let noticed = facts.faults.iter().filter(|fault| fault.noticed_ms.is_some()).count();
    let all = facts.faults.len();
    ensure!(noticed + MAX_MISSED >= all, "only {noticed} of {all} faults were noticed");
    if let Some(link) = facts.faults.iter().find(|fault| fault.kind == SLOW_LINK) {
        let detected = link.noticed_ms.is_some() && link.explained;
        ensure!(detected, "the fault on the network was not noticed and explained by network metrics");
    }
    let Traces { hit, hit_kept_whole, head_share, .. } = &facts.traces;
    let head = head_share * 100.0;
    ensure!(
        facts.traces.enough(),
        "of {hit} requests that faults hit only {hit_kept_whole} are kept whole; head sampling in as many bytes: {head:.1} %"
    );
    Ok(())
}

/// Runs the demo once and reads its report.
fn run(programs: &Programs, seed: &str) -> Result<Facts> {
    let folder = workspace().join("target/demo");
    fs::create_dir_all(&folder)?;
    let json = folder.join("demo.json");
    let mut demo = programs.command("uview", ".")?;
    demo.args(["demo", "--quick", "--seed", seed, "--json"]).arg(&json).arg("--report").arg(&folder);
    let status = demo.status()?;
    ensure!(status.success() || status.code() == Some(BAR_MISSED), "the demo failed: {status}");

    let facts: Facts = serde_json::from_str(&fs::read_to_string(&json)?).context("the demo's JSON")?;
    for Fault { service, kind, noticed_ms, explained } in &facts.faults {
        let noticed = noticed_ms.map_or("never noticed".to_owned(), |after| format!("noticed after {after:.0} ms"));
        println!("{kind} in {service}: {noticed}{}", if *explained { ", explained" } else { "" });
    }
    for Skipped { kind, why } in &facts.skipped {
        println!("NOT JUDGED: {kind} is skipped: {why}");
    }
    let Facts { false_alarms_per_service_minute: alarms, agent_cpu_share: share, missed_ticks, ticks, .. } = &facts;
    println!(
        "{alarms:.2} false alarms per service-minute, agents {:.2} % of a core, {missed_ticks} of {ticks} ticks missed",
        share * 100.0
    );
    let Traces { hit, hit_kept_whole, head_share, lost_spans } = &facts.traces;
    println!(
        "{hit_kept_whole} of {hit} requests that faults hit are kept whole, head sampling in as many bytes: {:.1} %; {lost_spans} spans lost",
        head_share * 100.0
    );
    let skipped = facts.skipped.iter().filter(|skipped| skipped.kind == SLOW_LINK).count();
    let (count, all) = (facts.faults.len(), FAULTS - skipped);
    ensure!(count == all, "{count} faults instead of {all}");
    ensure!(folder.join("index.html").exists(), "there is no report");
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_what_faults_hit_is_enough_if_chance_would_have_kept_less() {
        let traces = |hit_kept_whole, head_share| Traces { hit: 100, hit_kept_whole, head_share, lost_spans: 0 };

        assert!(traces(50, 0.2).enough() && traces(100, 0.99).enough());
        assert!(!traces(49, 0.2).enough() && !traces(60, 0.6).enough());
        assert!(!Traces { hit: 0, ..traces(0, 0.0) }.enough());
    }

    #[test]
    fn one_fault_may_pass_unnoticed_but_not_the_one_on_the_network() {
        let facts = |missed: &[&str]| {
            let fault = |kind: &str| {
                let noticed = if missed.contains(&kind) { "null" } else { "300" };
                format!("{{\"service\": \"a\", \"kind\": \"{kind}\", \"noticed_ms\": {noticed}, \"explained\": true}}")
            };
            let faults = ["cpu-hog", "latency", "errors", "leak", "hang", SLOW_LINK].map(fault).join(",");
            let traces = "{\"hit\": 9, \"hit_kept_whole\": 9, \"head_share\": 0.1, \"lost_spans\": 0}";
            let text = format!(
                "{{\"faults\": [{faults}], \"skipped\": [], \"false_alarms_per_service_minute\": 0, \"agent_cpu_share\": 0, \
                 \"missed_ticks\": 0, \"ticks\": 9, \"traces\": {traces}}}"
            );
            serde_json::from_str::<Facts>(&text).unwrap()
        };

        assert!(enough(&facts(&[])).is_ok() && enough(&facts(&["leak"])).is_ok());
        assert!(enough(&facts(&["leak", "hang"])).is_err());
        assert!(enough(&facts(&[SLOW_LINK])).unwrap_err().to_string().contains("on the network"));
    }
}
