//! The cost of being read for idle services and the host agent: none, except for one summary per second.
//!
//! Three idle services in one guest with both agents. Their processes are measured while the NIC agent reads them
//! 10,000 times, then for as long without it; then a Prometheus endpoint with one service's hundred metrics, scraped as
//! often at the same rate. The endpoint must fail the rule for services, which shows that the measurement detects a
//! cost.
//!
//! When the guest does not get the processor, the kernel charges the lost time to the running process. The requirement
//! for any machine is therefore a ratio with a margin: no process uses more than a fraction of what the endpoint uses
//! under the same conditions. More than a few milliseconds above the measurement without reads is a finding.
//!
//! The ratio is of user and system time together. The guest's kernel divides them by looking at each timer tick, every
//! 4 ms, and the endpoint is scraped every 4 ms: the same work was once 4.7 s and 5.0 s, once 0.45 s and 9.4 s.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail, ensure};

use super::TestContext;
use super::usage::{CpuUsage, MARK, Usage};
use crate::scale::between_marks;
use support::workspace;

/// Number of scrapes, as in tests/rdma/vm/agents/idle.sh.
const SCRAPES: u64 = 10_000;
const HOST: &str = "host-agent";
/// Allowed difference between two measurements of the same length with the same work: the kernel samples time in steps
/// of 10 ms, and a timer may fire once more in one of them.
const USER_MS: u64 = 30;
const SWITCHES: u64 = 20;
/// Allowed user time in milliseconds per second, a thousandth of a core: the soft device's work runs in the context of
/// any process, and the kernel divides a process's time into user and system time by sampling.
const DEVICE_USER_MS: f64 = 1.0;
/// Allowed cost of a summary in the host agent: two threads receive, decode, store and acknowledge it.
const SUMMARY_USER_MS: f64 = 10.0;
const SUMMARY_SWITCHES: f64 = 6.0;
/// Requirement on any machine: a service may use at most 1 / `SERVICE_PART` of the endpoint's processor time and
/// context switches (1 / 300 on an idle machine), and the host agent 1 / `HOST_PART` (1 / 120).
const SERVICE_PART: u64 = 10;
const HOST_PART: u64 = 4;
/// Pages that contain the table.
const PAGES: [&str; 1] = ["docs/rdma.md"];
const TABLE: &str = "idle services";

/// The measurements of the three phases.
#[derive(Clone, Debug, Default)]
struct Measurements {
    scraped: Usage,
    alone: Usage,
    prometheus: Usage,
}

/// Violations of the rules.
#[derive(Debug, Default, PartialEq)]
struct IdleEvaluation {
    /// Violations that a busy machine may explain.
    findings: Vec<String>,
    /// Violations on any machine.
    wrong: Vec<String>,
}

/// Runs the measurements, evaluates them, and writes the table.
///
/// # Errors
///
/// A process used more than allowed, or there were too few scrapes.
pub fn run(context: &TestContext) -> Result<()> {
    let measurements = Measurements::read(&context.script("idle", 2400)?)?;
    let table = measurements.table();
    print!("{table}");
    let file = context.image.folder().join("idle.md");
    fs::write(&file, &table)?;
    println!("written to {}", file.display());
    let IdleEvaluation { findings, wrong } = measurements.judge();
    for finding in &findings {
        context.findings.borrow_mut().add("idle", finding);
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    for page in PAGES.iter().filter(|_| context.write) {
        let page = workspace().join(page);
        let text = fs::read_to_string(&page)?;
        fs::write(&page, between_marks(&text, TABLE, &table)?)?;
    }
    Ok(())
}

impl Measurements {
    /// Reads the measurements from the guest's output.
    fn read(output: &str) -> Result<Self> {
        let usages: Vec<Usage> = output
            .lines()
            .filter_map(|line| line.split_once(MARK))
            .map(|(_, json)| serde_json::from_str(json).with_context(|| json.to_owned()))
            .collect::<Result<_>>()?;
        let mut measurements = Self::default();
        for usage in usages {
            match usage.phase.as_str() {
                "scraped" => measurements.scraped = usage,
                "alone" => measurements.alone = usage,
                "prometheus" => measurements.prometheus = usage,
                other => bail!("there is no phase {other}"),
            }
        }
        let Self { scraped, alone, prometheus } = &measurements;
        for (name, usage) in [("scraped", scraped), ("alone", alone), ("prometheus", prometheus)] {
            ensure!(!usage.processes.is_empty(), "nothing was printed of the phase {name}");
        }
        Ok(measurements)
    }

    fn judge(&self) -> IdleEvaluation {
        let (mut findings, mut wrong) = (Vec::new(), Vec::new());
        let Self { scraped, alone, prometheus } = self;
        if scraped.ticks < SCRAPES || scraped.failed_regions > 2 * scraped.ticks {
            wrong.push(format!("{} scrapes, and {} regions not read", scraped.ticks, scraped.failed_regions));
        } else if scraped.failed_regions * 10 > scraped.ticks {
            findings.push(format!("{} regions were not read in {} scrapes", scraped.failed_regions, scraped.ticks));
        }
        if alone.seconds < 0.9 * scraped.seconds {
            wrong.push(format!("{:.1} s alone, {:.1} s scraped", alone.seconds, scraped.seconds));
        }
        let endpoint = most(&prometheus.processes);
        for (name, used) in &scraped.processes {
            let base = alone.processes.get(name).copied().unwrap_or_default();
            let (allowed, part) = if name == HOST {
                (host_allowed(base, scraped.seconds), HOST_PART)
            } else {
                (service_allowed(base, scraped.seconds), SERVICE_PART)
            };
            match exceeds_part(*used, endpoint, part) {
                Some(what) => {
                    wrong.push(format!("{name} uses more than 1/{part} of what is scraped over HTTP: {what}"));
                }
                None => {
                    findings
                        .extend(exceeds(*used, allowed).map(|what| format!("{name} noticed that it is read: {what}")));
                }
            }
        }
        // The endpoint must fail the same rule: otherwise the measurement would detect nothing.
        let idle = most(&alone.processes);
        for (name, used) in &prometheus.processes {
            if exceeds(*used, service_allowed(idle, prometheus.seconds)).is_none() {
                wrong.push(format!("the judge sees nothing: {name} is scraped, and passes with {used:?}"));
            }
        }
        IdleEvaluation { findings, wrong }
    }

    fn table(&self) -> String {
        let Self { scraped, alone, prometheus } = self;
        let services = |usage: &Usage| most(&usage.processes);
        let host = |usage: &Usage| usage.processes.get(HOST).copied().unwrap_or_default();
        let rows = [
            ("a service, read by nobody".to_owned(), services(alone)),
            (format!("a service, {} scrapes by RDMA", scraped.ticks), services(scraped)),
            (format!("a Prometheus endpoint of the same metrics, {SCRAPES} scrapes"), services(prometheus)),
            ("the host agent, without a NIC agent".to_owned(), host(alone)),
            (format!("the host agent, {} scrapes by RDMA", scraped.ticks), host(scraped)),
        ];
        let mut text = format!(
            "| in {:.0} s (the endpoint: {:.0} s) | user time, ms | system time, ms | voluntary switches | involuntary switches |\n\
             | --- | --- | --- | --- | --- |\n",
            scraped.seconds, prometheus.seconds
        );
        for (who, CpuUsage { user_ms, system_ms, voluntary, involuntary }) in rows {
            let _ = writeln!(text, "| {who} | {user_ms} | {system_ms} | {voluntary} | {involuntary} |");
        }
        text
    }
}

/// The maximum over the services, for each figure separately.
fn most(processes: &BTreeMap<String, CpuUsage>) -> CpuUsage {
    let services = processes.iter().filter(|(name, _)| *name != HOST).map(|(_, used)| *used);
    services.fold(CpuUsage::default(), |most, used| CpuUsage {
        user_ms: most.user_ms.max(used.user_ms),
        system_ms: most.system_ms.max(used.system_ms),
        voluntary: most.voluntary.max(used.voluntary),
        involuntary: most.involuntary.max(used.involuntary),
    })
}

/// Allowed usage of a service that is read, if it uses `alone` without reads. System time and involuntary switches are
/// not limited here, since the soft device's work runs in the context of any process.
fn service_allowed(alone: CpuUsage, seconds: f64) -> CpuUsage {
    // A longer measurement has more noise; a busy machine makes it longer.
    let device_ms = (DEVICE_USER_MS * seconds) as u64;
    let (user_ms, voluntary) = (alone.user_ms + device_ms, alone.voluntary + alone.voluntary / 20);
    CpuUsage { user_ms: user_ms + USER_MS, voluntary: voluntary + SWITCHES, ..CpuUsage::default() }
}

fn host_allowed(alone: CpuUsage, seconds: f64) -> CpuUsage {
    let base = service_allowed(alone, seconds);
    CpuUsage {
        user_ms: base.user_ms + (SUMMARY_USER_MS * seconds) as u64,
        voluntary: base.voluntary + (SUMMARY_SWITCHES * seconds) as u64,
        ..base
    }
}

/// Whether `used` is more than 1 / `part` of what the endpoint used.
fn exceeds_part(used: CpuUsage, endpoint: CpuUsage, part: u64) -> Option<String> {
    let (used_ms, allowed_ms) = (used.user_ms + used.system_ms, (endpoint.user_ms + endpoint.system_ms) / part);
    let switches = endpoint.voluntary / part;
    (used_ms > allowed_ms || used.voluntary > switches).then(|| {
        format!(
            "{used_ms} ms of user and system time ({allowed_ms} allowed), {} waits ({switches} allowed)",
            used.voluntary
        )
    })
}

fn exceeds(used: CpuUsage, allowed: CpuUsage) -> Option<String> {
    let (user, switches) = (used.user_ms > allowed.user_ms, used.voluntary > allowed.voluntary);
    (user || switches).then(|| {
        format!(
            "{} ms of user time ({} allowed), {} waits ({} allowed)",
            used.user_ms, allowed.user_ms, used.voluntary, allowed.voluntary
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(phase: &str, processes: &[(&str, u64, u64)]) -> Usage {
        let used = |user_ms, voluntary| CpuUsage { user_ms, voluntary, ..CpuUsage::default() };
        let processes = processes.iter().map(|(name, user, waits)| ((*name).to_owned(), used(*user, *waits))).collect();
        Usage { phase: phase.to_owned(), seconds: 20.0, ticks: SCRAPES, failed_regions: 0, processes }
    }

    fn measurements() -> Measurements {
        Measurements {
            scraped: usage("scraped", &[("service-1", 20, 45), (HOST, 180, 200)]),
            alone: usage("alone", &[("service-1", 20, 40), (HOST, 60, 100)]),
            prometheus: usage("prometheus", &[("endpoint-1", 4000, 10_100)]),
        }
    }

    #[test]
    fn services_that_notice_nothing_and_a_host_agent_with_its_summaries_are_right() {
        assert_eq!(measurements().judge(), IdleEvaluation::default());
    }

    #[test]
    fn one_wait_for_a_hundred_scrapes_is_found_and_so_is_user_time() {
        let mut waits = measurements();
        waits.scraped.processes.insert("service-1".to_owned(), CpuUsage { voluntary: 40 + 100, ..CpuUsage::default() });
        let mut time = measurements();
        time.scraped.processes.insert("service-1".to_owned(), CpuUsage { user_ms: 90, ..CpuUsage::default() });
        let mut host = measurements();
        host.scraped.processes.insert(HOST.to_owned(), CpuUsage { voluntary: 1_000, ..CpuUsage::default() });

        for (measurements, word) in
            [(waits, "140 waits (62 allowed)"), (time, "90 ms of user time (70 allowed)"), (host, "host-agent noticed")]
        {
            let IdleEvaluation { findings, wrong } = measurements.judge();
            assert!(findings[0].contains(word) && wrong.is_empty(), "{findings:?} {wrong:?}");
        }
    }

    #[test]
    fn a_wait_for_every_ninth_scrape_is_wrong_on_any_machine_and_so_is_a_ninth_of_the_time() {
        for used in [
            CpuUsage { voluntary: 1_111, ..CpuUsage::default() },
            CpuUsage { user_ms: 450, ..CpuUsage::default() },
            CpuUsage { system_ms: 450, ..CpuUsage::default() },
        ] {
            let mut measurements = measurements();
            measurements.scraped.processes.insert("service-1".to_owned(), used);
            let IdleEvaluation { findings, wrong } = measurements.judge();
            assert!(
                findings.is_empty() && wrong[0].contains("service-1 uses more than 1/10"),
                "{findings:?} {wrong:?}"
            );
        }
        let mut host = measurements();
        host.scraped.processes.insert(HOST.to_owned(), CpuUsage { voluntary: 10_000, ..CpuUsage::default() });
        assert!(host.judge().wrong[0].contains("host-agent uses more than 1/4"), "{:?}", host.judge());
    }

    #[test]
    fn how_the_kernel_divides_the_time_does_not_matter() {
        let mut divided = measurements();
        divided
            .scraped
            .processes
            .insert(HOST.to_owned(), CpuUsage { user_ms: 120, voluntary: 200, ..CpuUsage::default() });
        let endpoint = CpuUsage { user_ms: 450, system_ms: 9410, voluntary: 9987, ..CpuUsage::default() };
        divided.prometheus.processes.insert("endpoint-1".to_owned(), endpoint);

        assert_eq!(divided.judge(), IdleEvaluation::default());
    }

    #[test]
    fn too_few_scrapes_regions_that_were_not_read_and_a_judge_that_sees_nothing_are_wrong() {
        let mut few = measurements();
        few.scraped.ticks = 9_999;
        let mut unread = measurements();
        unread.scraped.failed_regions = 20_001;
        let mut blind = measurements();
        blind.prometheus = usage("prometheus", &[("endpoint-1", 30, 50)]);

        for (measurements, word) in [(few, "9999 scrapes"), (unread, "20001 regions"), (blind, "sees nothing")] {
            let wrong = measurements.judge().wrong;
            assert!(wrong.iter().any(|wrong| wrong.contains(word)), "{wrong:?}");
        }
        let mut some = measurements();
        some.scraped.failed_regions = 1_001;
        assert_eq!(some.judge().findings, ["1001 regions were not read in 10000 scrapes"]);
    }

    #[test]
    fn what_the_guest_says_is_read_and_a_phase_that_is_not_there_is_missed() {
        let line = |usage: &Usage| format!("noise {MARK}{}\n", serde_json::to_string(usage).unwrap());
        let Measurements { scraped, alone, prometheus } = measurements();

        let read = Measurements::read(&[&scraped, &alone, &prometheus].map(line).concat()).unwrap();

        assert_eq!(read.alone, alone);
        assert!(read.table().contains("| a service, 10000 scrapes by RDMA | 20 | 0 | 45 | 0 |"), "{}", read.table());
        assert!(Measurements::read(&[&scraped, &alone].map(line).concat()).is_err());
    }
}
