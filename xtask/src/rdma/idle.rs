//! What idle services and the host agent notice of being read: nothing, but for a summary a second.
//!
//! Three services that do nothing, in one guest with both agents. Their processes are looked at while the NIC agent reads them 10,000 times,
//! then for as long without it; then one service's hundred metrics behind a Prometheus endpoint, scraped as often at the same rate. The judge is shown to
//! see something: by the rule for services, the endpoint fails.
//!
//! The kernel charges whatever process is there with the time that a busy machine keeps from the guest. So what has to hold on any machine is a
//! ratio with room: nobody uses more than a part of what the endpoint does, scraped as often beside the same neighbours. That it is nothing but a
//! few milliseconds more than alone is a finding where it does not hold.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail, ensure};

use super::Stage;
use super::usage::{MARK, Usage, Used};
use crate::proto::workspace;
use crate::scale::between_marks;

/// Scrapes, as tests/rdma-vm/agents/idle.sh asks for them.
const SCRAPES: u64 = 10_000;
const HOST: &str = "host-agent";
/// What may differ between two looks of the same length at a process that does the same: the kernel's clock is counted in 10 ms, and samples
/// who runs; a timer may fall into one look more often than into the other.
const USER_MS: u64 = 30;
const SWITCHES: u64 = 20;
/// Milliseconds a second, a thousandth of a core: the soft device's work is done in whatever process is there, and the kernel shares a process's time
/// out between its own code and the rest by samples.
const DEVICE_USER_MS: f64 = 1.0;
/// What a summary may cost the host agent: it is received, decoded, kept and acknowledged, by two threads.
const SUMMARY_USER_MS: f64 = 10.0;
const SUMMARY_SWITCHES: f64 = 6.0;
/// On any machine: of the endpoint's user time and waits, one part of so many for a service that is read (it is one in 200 on a machine that has time), and
/// likewise for the host agent (one in 90).
const SERVICE_PART: u64 = 10;
const HOST_PART: u64 = 4;
/// Where the table goes.
const PAGES: [&str; 2] = ["README.md", "docs/rdma.md"];
const TABLE: &str = "idle services";

/// The three looks.
#[derive(Clone, Debug, Default)]
struct Looks {
    scraped: Usage,
    alone: Usage,
    prometheus: Usage,
}

/// What is not as it has to be.
#[derive(Debug, Default, PartialEq)]
struct Judged {
    /// What a busy machine may explain.
    findings: Vec<String>,
    /// What nothing explains.
    wrong: Vec<String>,
}

/// Runs it, judges it, and writes the table.
///
/// # Errors
///
/// Somebody noticed more than that, or nothing was done.
pub fn run(stage: &Stage) -> Result<()> {
    let looks = Looks::read(&stage.script("idle", 2400)?)?;
    let table = looks.table();
    print!("{table}");
    let file = stage.image.folder().join("idle.md");
    fs::write(&file, &table)?;
    println!("written to {}", file.display());
    let Judged { findings, wrong } = looks.judge();
    for finding in &findings {
        stage.findings.borrow_mut().add("idle", finding);
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    for page in PAGES.iter().filter(|_| stage.write) {
        let page = workspace().join(page);
        let text = fs::read_to_string(&page)?;
        fs::write(&page, between_marks(&text, TABLE, &table)?)?;
    }
    Ok(())
}

impl Looks {
    /// From what the guest said.
    fn read(said: &str) -> Result<Self> {
        let usages: Vec<Usage> = said
            .lines()
            .filter_map(|line| line.split_once(MARK))
            .map(|(_, json)| serde_json::from_str(json).with_context(|| json.to_owned()))
            .collect::<Result<_>>()?;
        let mut looks = Self::default();
        for usage in usages {
            match usage.phase.as_str() {
                "scraped" => looks.scraped = usage,
                "alone" => looks.alone = usage,
                "prometheus" => looks.prometheus = usage,
                other => bail!("there is no phase {other}"),
            }
        }
        let Self { scraped, alone, prometheus } = &looks;
        for (name, usage) in [("scraped", scraped), ("alone", alone), ("prometheus", prometheus)] {
            ensure!(!usage.processes.is_empty(), "nothing was said of the phase {name}");
        }
        Ok(looks)
    }

    fn judge(&self) -> Judged {
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
            match exceeds(*used, part_of(endpoint, part)) {
                Some(what) => {
                    wrong.push(format!("{name} uses more than 1/{part} of what is scraped over HTTP: {what}"));
                }
                None => {
                    findings
                        .extend(exceeds(*used, allowed).map(|what| format!("{name} noticed that it is read: {what}")));
                }
            }
        }
        // The same rule, for who really has something to do: else it could not see anything.
        let idle = most(&alone.processes);
        for (name, used) in &prometheus.processes {
            if exceeds(*used, service_allowed(idle, prometheus.seconds)).is_none() {
                wrong.push(format!("the judge sees nothing: {name} is scraped, and passes with {used:?}"));
            }
        }
        Judged { findings, wrong }
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
            "| in {:.0} s (the endpoint: {:.0} s) | user time, ms | system time, ms | waited | made place |\n\
             | --- | --- | --- | --- | --- |\n",
            scraped.seconds, prometheus.seconds
        );
        for (who, Used { user_ms, system_ms, voluntary, involuntary }) in rows {
            let _ = writeln!(text, "| {who} | {user_ms} | {system_ms} | {voluntary} | {involuntary} |");
        }
        text
    }
}

/// The most that any of the services used; each figure by itself.
fn most(processes: &BTreeMap<String, Used>) -> Used {
    let services = processes.iter().filter(|(name, _)| *name != HOST).map(|(_, used)| *used);
    services.fold(Used::default(), |most, used| Used {
        user_ms: most.user_ms.max(used.user_ms),
        system_ms: most.system_ms.max(used.system_ms),
        voluntary: most.voluntary.max(used.voluntary),
        involuntary: most.involuntary.max(used.involuntary),
    })
}

/// What a service may use that is read, if it uses `alone` when it is not. System time and involuntary switches are shown and not judged: the
/// soft device's work is done by whatever process is there.
fn service_allowed(alone: Used, seconds: f64) -> Used {
    // The longer the look, the more of it is chance: a machine that is busy makes it long.
    let device_ms = (DEVICE_USER_MS * seconds) as u64;
    let (user_ms, voluntary) = (alone.user_ms + device_ms, alone.voluntary + alone.voluntary / 20);
    Used { user_ms: user_ms + USER_MS, voluntary: voluntary + SWITCHES, ..Used::default() }
}

fn host_allowed(alone: Used, seconds: f64) -> Used {
    let base = service_allowed(alone, seconds);
    Used {
        user_ms: base.user_ms + (SUMMARY_USER_MS * seconds) as u64,
        voluntary: base.voluntary + (SUMMARY_SWITCHES * seconds) as u64,
        ..base
    }
}

fn part_of(endpoint: Used, part: u64) -> Used {
    Used { user_ms: endpoint.user_ms / part, voluntary: endpoint.voluntary / part, ..Used::default() }
}

fn exceeds(used: Used, allowed: Used) -> Option<String> {
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
        let used = |user_ms, voluntary| Used { user_ms, voluntary, ..Used::default() };
        let processes = processes.iter().map(|(name, user, waits)| ((*name).to_owned(), used(*user, *waits))).collect();
        Usage { phase: phase.to_owned(), seconds: 20.0, ticks: SCRAPES, failed_regions: 0, processes }
    }

    fn looks() -> Looks {
        Looks {
            scraped: usage("scraped", &[("service-1", 20, 45), (HOST, 180, 200)]),
            alone: usage("alone", &[("service-1", 20, 40), (HOST, 60, 100)]),
            prometheus: usage("prometheus", &[("endpoint-1", 4000, 10_100)]),
        }
    }

    #[test]
    fn services_that_notice_nothing_and_a_host_agent_with_its_summaries_are_right() {
        assert_eq!(looks().judge(), Judged::default());
    }

    #[test]
    fn one_wait_for_a_hundred_scrapes_is_found_and_so_is_user_time() {
        let mut waits = looks();
        waits.scraped.processes.insert("service-1".to_owned(), Used { voluntary: 40 + 100, ..Used::default() });
        let mut time = looks();
        time.scraped.processes.insert("service-1".to_owned(), Used { user_ms: 90, ..Used::default() });
        let mut host = looks();
        host.scraped.processes.insert(HOST.to_owned(), Used { voluntary: 1_000, ..Used::default() });

        for (looks, word) in
            [(waits, "140 waits (62 allowed)"), (time, "90 ms of user time (70 allowed)"), (host, "host-agent noticed")]
        {
            let Judged { findings, wrong } = looks.judge();
            assert!(findings[0].contains(word) && wrong.is_empty(), "{findings:?} {wrong:?}");
        }
    }

    #[test]
    fn a_wait_for_every_ninth_scrape_is_wrong_on_any_machine_and_so_is_a_ninth_of_the_time() {
        for used in [Used { voluntary: 1_111, ..Used::default() }, Used { user_ms: 450, ..Used::default() }] {
            let mut looks = looks();
            looks.scraped.processes.insert("service-1".to_owned(), used);
            let Judged { findings, wrong } = looks.judge();
            assert!(
                findings.is_empty() && wrong[0].contains("service-1 uses more than 1/10"),
                "{findings:?} {wrong:?}"
            );
        }
        let mut host = looks();
        host.scraped.processes.insert(HOST.to_owned(), Used { voluntary: 10_000, ..Used::default() });
        assert!(host.judge().wrong[0].contains("host-agent uses more than 1/4"), "{:?}", host.judge());
    }

    #[test]
    fn too_few_scrapes_regions_that_were_not_read_and_a_judge_that_sees_nothing_are_wrong() {
        let mut few = looks();
        few.scraped.ticks = 9_999;
        let mut unread = looks();
        unread.scraped.failed_regions = 20_001;
        let mut blind = looks();
        blind.prometheus = usage("prometheus", &[("endpoint-1", 30, 50)]);

        for (looks, word) in [(few, "9999 scrapes"), (unread, "20001 regions"), (blind, "sees nothing")] {
            let wrong = looks.judge().wrong;
            assert!(wrong.iter().any(|wrong| wrong.contains(word)), "{wrong:?}");
        }
        let mut some = looks();
        some.scraped.failed_regions = 1_001;
        assert_eq!(some.judge().findings, ["1001 regions were not read in 10000 scrapes"]);
    }

    #[test]
    fn what_the_guest_says_is_read_and_a_phase_that_is_not_there_is_missed() {
        let line = |usage: &Usage| format!("noise {MARK}{}\n", serde_json::to_string(usage).unwrap());
        let Looks { scraped, alone, prometheus } = looks();

        let read = Looks::read(&[&scraped, &alone, &prometheus].map(line).concat()).unwrap();

        assert_eq!(read.alone, alone);
        assert!(read.table().contains("| a service, 10000 scrapes by RDMA | 20 | 0 | 45 | 0 |"), "{}", read.table());
        assert!(Looks::read(&[&scraped, &alone].map(line).concat()).is_err());
    }
}
