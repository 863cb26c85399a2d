//! Checks whether alarms are right: compares the alarms of a hook with the marks of the scripts that inject faults.
//!
//! Both are lines of one file. Each begins with the seconds since the guest's start. A fault's mark names its service
//! and strings, one of which the first reasons have to contain:
//!
//! ```text
//! 41.20 mark fault payment http.server.errors status="5xx"
//! 42.61 began payment 1732212345678 http.server.errors; work.busy_time
//! 42.82 on payment 1732212345878 http.server.requests{status="5xx"}
//! 55.02 ended payment 1732212358678
//! 56.30 mark over
//! ```
//!
//! Required on any machine, however slow the guest is: a fault causes an alarm of its own service, for its own reason.
//! The number of alarms without a fault, and which service comes first, depend on the machine and are reported as
//! findings.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::runtime;
use tonic::transport::Endpoint;
use wire::proto::operators::operators_client::OperatorsClient;
use wire::proto::operators::{HookEvent, RegisterHookRequest};

use super::findings;

/// Grace period after a fault, for its effects to end and for callers to catch up.
const GRACE_S: f64 = 15.0;
/// How much earlier another service's alarm may come than that of the faulty service. Both count the same errors, each
/// in its own tick of 200 ms, and an alarm takes errors in two of three ticks: three ticks, their jitter, and one more
/// where a request fell between. It is also the limit for noticing an abrupt fault. The ranking of causes does not
/// depend on the order of alarms.
const TIE_MS: u64 = 1_000;
/// Allowed alarms outside faults per guest. The bar for false alarms is one in ten service-minutes, and a guest has
/// five services for two minutes. Losses and recoveries affect the rows of more than one service.
const MAX_BY_CHANCE: usize = 1;
/// Number of top reasons that count, as in the demo.
const REASONS: usize = 3;
/// Name for a fault without a faulty service: no alarm is required.
const NO_SERVICE: &str = "-";
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Prints alarms forever.
///
/// # Errors
///
/// The runtime cannot be created.
pub fn watch(operators: &str) -> Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let mut reported = ReportedReasons::default();
    loop {
        // The host agent is killed and restarted.
        if let Err(error) = runtime.block_on(events(operators, &mut reported)) {
            println!("{} # not watching: {error:#}", uptime()?.replace('\n', " "));
        }
        std::thread::sleep(AGAIN_AFTER);
    }
}

async fn events(operators: &str, reported: &mut ReportedReasons) -> Result<()> {
    let channel = Endpoint::from_shared(operators.to_owned())?.connect().await?;
    let mut client = OperatorsClient::new(channel);
    let mut events = client.register_hook(RegisterHookRequest::default()).await?.into_inner();
    println!("{} # watching", uptime()?);
    while let Some(event) = events.message().await? {
        if let Some(line) = reported.line(&event) {
            println!("{} {line}", uptime()?);
        }
        ensure!(event.lost == 0, "{} verdicts were lost", event.lost);
    }
    Ok(())
}

/// The last printed reasons of each service in alarm, so that a continuing alarm is printed again only when its reasons
/// change.
#[derive(Debug, Default)]
struct ReportedReasons(BTreeMap<String, String>);

impl ReportedReasons {
    fn line(&mut self, event: &HookEvent) -> Option<String> {
        let HookEvent { episode, service, at_unix_ns, reasons, .. } = event;
        let reasons: Vec<_> = reasons.iter().take(REASONS).map(|reason| reason.column.as_str()).collect();
        let reasons = reasons.join("; ");
        let is_new = match episode.as_str() {
            "began" => {
                self.0.insert(service.clone(), reasons.clone());
                true
            }
            "on" => !reasons.is_empty() && self.0.insert(service.clone(), reasons.clone()).as_ref() != Some(&reasons),
            "ended" => {
                self.0.remove(service);
                true
            }
            _ => false,
        };
        is_new.then(|| format!("{episode} {service} {} {reasons}", at_unix_ns / 1_000_000))
    }
}

/// Seconds since the guest's start.
fn uptime() -> Result<String> {
    let text = fs::read_to_string("/proc/uptime")?;
    Ok(text.split_whitespace().next().context("/proc/uptime is empty")?.to_owned())
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq)]
enum Line {
    /// `service` has a fault from now on; each string of `tells` indicates it.
    Fault { at_s: f64, service: String, tells: Vec<String> },
    /// The fault is over.
    Over { at_s: f64 },
    /// An alarm began or continues, by a verdict of `tick_ms`.
    Alarm { at_s: f64, began: bool, service: String, tick_ms: u64, reasons: String },
    /// Any other line.
    Other,
}

fn parse(text: &str) -> Result<Line> {
    let mut words = text.split_whitespace();
    let at_s: f64 = words.next().and_then(|word| word.parse().ok()).with_context(|| format!("no time in {text:?}"))?;
    let what = words.next().unwrap_or_default();
    let next = words.next().unwrap_or_default().to_owned();
    Ok(match (what, next.as_str()) {
        ("mark", "fault") => {
            let service = words.next().unwrap_or(NO_SERVICE).to_owned();
            Line::Fault { at_s, service, tells: words.map(ToOwned::to_owned).collect() }
        }
        ("mark", "over") => Line::Over { at_s },
        ("began" | "on", _) => {
            let tick_ms =
                words.next().and_then(|word| word.parse().ok()).with_context(|| format!("no tick in {text:?}"))?;
            let reasons = words.collect::<Vec<_>>().join(" ");
            Line::Alarm { at_s, began: what == "began", service: next, tick_ms, reasons }
        }
        ("ended" | "#", _) => Line::Other,
        _ => bail!("unknown line {text:?}"),
    })
}

/// One fault, with the alarms that may belong to it.
#[derive(Clone, Debug)]
struct Fault {
    service: String,
    tells: Vec<String>,
    from_s: f64,
    until_s: f64,
    /// Alarms that began: tick and service.
    began: Vec<(u64, String)>,
    /// Reasons of its own service's alarm, even if that began earlier.
    own: Vec<String>,
}

impl Fault {
    /// A violation of a requirement that holds on any machine.
    fn wrong(&self) -> Option<String> {
        let Self { service, tells, from_s, own, .. } = self;
        if own.is_empty() {
            return Some(format!("the fault in {service} at {from_s} s was not noticed in it"));
        }
        let named = own.iter().any(|reasons| tells.iter().any(|tells| reasons.contains(tells.as_str())));
        (!named).then(|| {
            format!(
                "the alarm of {service} gave none of {tells:?} as a reason for the fault at {from_s} s, but {own:?}"
            )
        })
    }

    /// A violation of a requirement that holds on an idle machine.
    fn finding(&self) -> Option<String> {
        let own = self.began.iter().filter(|(_, of)| *of == self.service).map(|(tick, _)| *tick).min();
        match (own, self.began.iter().min()) {
            (None, _) => Some(format!("{} was in alarm before its fault at {} s", self.service, self.from_s)),
            (Some(own), Some((first, other))) if first + TIE_MS < own => {
                let earlier = own - first;
                Some(format!("of the fault in {}, {other} was in alarm {earlier} ms earlier", self.service))
            }
            _ => None,
        }
    }
}

/// Evaluation of a file of alarms and marks.
#[derive(Debug, Default, PartialEq)]
struct AlarmEvaluation {
    alarms: usize,
    faults: usize,
    /// Alarms outside faults that are few enough to be allowed.
    by_chance: Vec<String>,
    /// Findings that a busy machine may explain.
    findings: Vec<String>,
    /// Violations on any machine.
    wrong: Vec<String>,
}

fn judge(lines: &[Line]) -> AlarmEvaluation {
    let (mut faults, mut outside, mut alarms) = (Vec::<Fault>::new(), Vec::new(), 0);
    for line in lines {
        match line {
            Line::Fault { at_s, service, tells } => faults.push(Fault {
                service: service.clone(),
                tells: tells.clone(),
                from_s: *at_s,
                until_s: f64::INFINITY,
                began: Vec::new(),
                own: Vec::new(),
            }),
            Line::Over { at_s } => {
                if let Some(last) = faults.last_mut() {
                    last.until_s = at_s + GRACE_S;
                }
            }
            Line::Alarm { at_s, began, service, tick_ms, reasons } => {
                alarms += usize::from(*began);
                let fault = faults.iter_mut().rfind(|fault| (fault.from_s..fault.until_s).contains(at_s));
                match fault {
                    Some(fault) => {
                        fault.began.extend(began.then(|| (*tick_ms, service.clone())));
                        fault.own.extend((*service == fault.service).then(|| reasons.clone()));
                    }
                    None if *began => {
                        outside.push(format!("an alarm of {service} at {at_s} s outside of any fault: {reasons}"));
                    }
                    None => {}
                }
            }
            Line::Other => {}
        }
    }
    let (by_chance, mut findings) = if outside.len() <= MAX_BY_CHANCE { (outside, vec![]) } else { (vec![], outside) };
    let mut wrong = Vec::new();
    for fault in faults.iter().filter(|fault| fault.service != NO_SERVICE) {
        match fault.wrong() {
            Some(what) => wrong.push(what),
            None => findings.extend(fault.finding()),
        }
    }
    AlarmEvaluation { alarms, faults: faults.len(), by_chance, findings, wrong }
}

/// Evaluates a file of [`watch`], and prints each finding as a line.
///
/// # Errors
///
/// A violation that a busy machine does not explain, or [`watch`] never ran.
pub fn judge_file(file: &Path) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    ensure!(text.contains("# watching"), "there are no alarms of a hook in the file");
    // Ignores an incomplete last line.
    let lines = text.lines().filter(|line| !line.trim().is_empty()).map(parse).collect::<Result<Vec<_>>>()?;
    let AlarmEvaluation { alarms, faults, by_chance, findings, wrong } = judge(&lines);
    println!("{alarms} alarms, {faults} faults, {} findings, {} wrong", findings.len(), wrong.len());
    for alarm in by_chance {
        println!("allowed alarm: {alarm}");
    }
    for finding in findings {
        println!("{}{finding}", findings::MARK);
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use wire::proto::operators::Reason;

    use super::*;

    fn judged(text: &str) -> AlarmEvaluation {
        judge(&text.lines().map(|line| parse(line.trim()).unwrap()).collect::<Vec<_>>())
    }

    #[test]
    fn alarms_of_a_fault_and_its_grace_are_right() {
        let text = "1.0 # watching
            10.0 mark fault payment server.errors
            11.0 began frontend 1000 client.requests
            11.2 began payment 1200 work.busy_time; http.server.errors
            20.0 ended payment 3000
            21.0 mark over
            35.9 began cart 9000 latency
            40.0 mark fault -
            41.0 began frontend 9500 errors";

        assert_eq!(judged(text), AlarmEvaluation { alarms: 4, faults: 2, ..AlarmEvaluation::default() });
    }

    #[test]
    fn one_alarm_without_a_fault_may_be_chance_and_two_are_a_finding() {
        let one = "10.0 mark fault -\n11.0 mark over\n26.1 began cart 9000 latency.p99\n26.5 on cart 9400 latency.mean";
        let output = "an alarm of cart at 26.1 s outside of any fault: latency.p99";

        assert_eq!(judged(one).by_chance, [output]);
        let two = judged(&format!("{one}\n27.0 began store 9900 memory"));
        assert_eq!(two.findings, [output, "an alarm of store at 27 s outside of any fault: memory"]);
        assert!(two.wrong.is_empty() && judged(one).findings.is_empty());
    }

    #[test]
    fn another_service_that_is_earlier_is_a_finding() {
        let late = judged("10.0 mark fault payment a\n11.0 began frontend 1000 a\n12.0 began payment 2001 a");

        assert_eq!(late.findings, ["of the fault in payment, frontend was in alarm 1001 ms earlier"]);
        assert!(late.wrong.is_empty());
    }

    #[test]
    fn a_fault_that_is_not_noticed_in_its_own_service_or_not_for_its_own_reason_is_wrong_on_any_machine() {
        let other = judged("10.0 mark fault payment a\n11.0 began frontend 1000 a");
        let before =
            judged("9.0 began payment 900 a\n10.0 mark fault payment a\n11.0 mark over\n27.0 on payment 1000 a");
        let reason =
            judged("10.0 mark fault payment errors 5xx\n11.0 began payment 1000 memory; cpu\n12.0 on payment 1200 cpu");

        assert_eq!(other.wrong, ["the fault in payment at 10 s was not noticed in it"]);
        assert_eq!(before.wrong, other.wrong);
        assert!(reason.wrong[0].contains("gave none of [\"errors\", \"5xx\"] as a reason"), "{reason:?}");
    }

    #[test]
    fn a_service_that_is_in_alarm_before_its_fault_has_to_say_so_and_is_a_finding() {
        let text = "9.0 began payment 900 latency\n10.0 mark fault payment 5xx errors\n11.0 on payment 1000 latency; shop.errors";

        let judged = judged(text);

        assert!(judged.wrong.is_empty(), "{judged:?}");
        assert_eq!(judged.findings, ["payment was in alarm before its fault at 10 s"]);
    }

    #[test]
    fn an_alarm_that_goes_on_is_told_again_when_its_reasons_change() {
        let event = |episode: &str, columns: &[&str]| HookEvent {
            episode: episode.to_owned(),
            service: "cart".to_owned(),
            at_unix_ns: 5_000_000,
            reasons: columns
                .iter()
                .map(|column| Reason { column: (*column).to_owned(), ..Reason::default() })
                .collect(),
            ..HookEvent::default()
        };
        let mut reported = ReportedReasons::default();

        assert_eq!(reported.line(&event("quiet", &["a"])), None);
        assert_eq!(reported.line(&event("began", &["a", "b", "c", "d"])).as_deref(), Some("began cart 5 a; b; c"));
        assert_eq!(reported.line(&event("on", &["a", "b", "c", "e"])), None);
        assert_eq!(reported.line(&event("on", &["b"])).as_deref(), Some("on cart 5 b"));
        assert_eq!(reported.line(&event("on", &[])), None);
        assert_eq!(reported.line(&event("ended", &[])).as_deref(), Some("ended cart 5 "));
        assert!(parse("1.0 on cart 5 b").is_ok() && parse("1.0 ended cart 5 ").is_ok());
    }

    #[test]
    fn unknown_lines_are_refused() {
        for text in ["", "x mark fault a", "1.0 begun a 1", "1.0 began a b", "1.0 on a b"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
