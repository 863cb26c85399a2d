//! Whether alarms are right: which there were, by a hook, and which there should have been, by marks of whoever made the faults.
//!
//! Both are lines of one file. An alarm's begins with the seconds since the guest's start:
//!
//! ```text
//! 41.20 mark fault payment
//! 42.61 began payment 1732212345678 shop.errors
//! 55.02 ended payment 1732212358678
//! 56.30 mark over
//! ```

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::runtime;
use tonic::transport::Channel;
use wire::proto::operators::operators_client::OperatorsClient;
use wire::proto::operators::{HookEvent, RegisterHookRequest};

/// After a fault's end: what follows from it has to be over, and whoever waited for the service catches up.
const GRACE_S: f64 = 15.0;
/// Another service's alarm may come so much before that of the fault's own service. Both count the same errors, each in its own tick of 200 ms,
/// and an alarm takes two of three ticks in which there were any: three ticks, and their jitter, and one more where a request fell between. It is
/// also what an abrupt fault may take to be noticed at all; which service is named as the cause does not go by who was first.
const TIE_MS: u64 = 1_000;
/// Alarms outside of any fault in one guest's life. Services alarm by themselves, too: once in ten minutes of one of them is the bar, and a guest has five
/// for two minutes. What a loss or a recovery makes of rows hits more than one.
const MOST_BY_CHANCE: usize = 1;
/// A fault that hits no service of which an alarm is expected.
const NOBODY: &str = "-";
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Prints alarms for ever.
///
/// # Errors
///
/// The system has no resources.
pub fn watch(operators: SocketAddr) -> Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    loop {
        // The host agent is killed, and comes back.
        if let Err(error) = runtime.block_on(events(operators)) {
            println!("{} # not watching: {error:#}", uptime()?.replace('\n', " "));
        }
        std::thread::sleep(AGAIN_AFTER);
    }
}

async fn events(operators: SocketAddr) -> Result<()> {
    let channel = Channel::from_shared(format!("http://{operators}"))?.connect().await?;
    let mut client = OperatorsClient::new(channel);
    let mut events = client.register_hook(RegisterHookRequest::default()).await?.into_inner();
    println!("{} # watching", uptime()?);
    while let Some(event) = events.message().await? {
        if let Some(line) = line(&event) {
            println!("{} {line}", uptime()?);
        }
        ensure!(event.lost == 0, "{} verdicts were lost", event.lost);
    }
    Ok(())
}

fn line(event: &HookEvent) -> Option<String> {
    let HookEvent { episode, service, at_unix_ns, reasons, .. } = event;
    let reason = reasons.first().map_or("", |reason| reason.column.as_str());
    matches!(episode.as_str(), "began" | "ended")
        .then(|| format!("{episode} {service} {} {reason}", at_unix_ns / 1_000_000))
}

/// Seconds since the guest's start.
fn uptime() -> Result<String> {
    let text = fs::read_to_string("/proc/uptime")?;
    Ok(text.split_whitespace().next().context("/proc/uptime is empty")?.to_owned())
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq)]
enum Line {
    /// From now on `service` has a fault.
    Fault { at_s: f64, service: String },
    /// It is over.
    Over { at_s: f64 },
    /// An alarm began, by a verdict of `tick_ms`.
    Began { at_s: f64, service: String, tick_ms: u64, reason: String },
    /// Anything else.
    Other,
}

fn parse(text: &str) -> Result<Line> {
    let mut words = text.split_whitespace();
    let at_s: f64 = words.next().and_then(|word| word.parse().ok()).with_context(|| format!("no time in {text:?}"))?;
    let what = words.next().unwrap_or_default();
    let next = words.next().unwrap_or_default().to_owned();
    Ok(match (what, next.as_str()) {
        ("mark", "fault") => Line::Fault { at_s, service: words.next().unwrap_or(NOBODY).to_owned() },
        ("mark", "over") => Line::Over { at_s },
        ("began", _) => {
            let tick_ms =
                words.next().and_then(|word| word.parse().ok()).with_context(|| format!("no tick in {text:?}"))?;
            Line::Began { at_s, service: next, tick_ms, reason: words.collect::<Vec<_>>().join(" ") }
        }
        ("ended" | "#", _) => Line::Other,
        _ => bail!("what is {text:?}?"),
    })
}

/// One fault, and the alarms that may be its.
#[derive(Clone, Debug)]
struct Fault {
    service: String,
    from_s: f64,
    until_s: f64,
    alarms: Vec<(u64, String)>,
}

/// What is right in a file.
#[derive(Debug, Default, PartialEq)]
struct Judged {
    alarms: usize,
    faults: usize,
    /// Alarms outside of any fault, few enough.
    by_chance: Vec<String>,
}

/// How many alarms there were and how many faults; or everything that is wrong.
fn judge(lines: &[Line]) -> Result<Judged, Vec<String>> {
    let (mut faults, mut outside, mut alarms) = (Vec::<Fault>::new(), Vec::new(), 0);
    for line in lines {
        match line {
            Line::Fault { at_s, service } => {
                faults.push(Fault {
                    service: service.clone(),
                    from_s: *at_s,
                    until_s: f64::INFINITY,
                    alarms: Vec::new(),
                });
            }
            Line::Over { at_s } => {
                if let Some(last) = faults.last_mut() {
                    last.until_s = at_s + GRACE_S;
                }
            }
            Line::Began { at_s, service, tick_ms, reason } => {
                alarms += 1;
                match faults.iter_mut().rfind(|fault| (fault.from_s..fault.until_s).contains(at_s)) {
                    Some(fault) => fault.alarms.push((*tick_ms, service.clone())),
                    None => outside.push(format!("an alarm of {service} at {at_s} s outside of any fault: {reason}")),
                }
            }
            Line::Other => {}
        }
    }
    let (by_chance, mut wrong) = if outside.len() <= MOST_BY_CHANCE { (outside, vec![]) } else { (vec![], outside) };
    for Fault { service, from_s, alarms, .. } in faults.iter().filter(|fault| fault.service != NOBODY) {
        let own = alarms.iter().filter(|(_, of)| of == service).map(|(tick, _)| *tick).min();
        let first = alarms.iter().min();
        match (own, first) {
            (None, _) => wrong.push(format!("the fault in {service} at {from_s} s was not noticed in it")),
            (Some(own), Some((first, other))) if first + TIE_MS < own => {
                wrong.push(format!("of the fault in {service}, {other} was in alarm {} ms earlier", own - first));
            }
            _ => {}
        }
    }
    if wrong.is_empty() { Ok(Judged { alarms, faults: faults.len(), by_chance }) } else { Err(wrong) }
}

/// Judges a file of [`watch`].
///
/// # Errors
///
/// Something is wrong, or nobody watched.
pub fn judge_file(file: &Path) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    ensure!(text.contains("# watching"), "nobody watched");
    // A line that is being written now says nothing yet.
    let lines = text.lines().filter(|line| !line.trim().is_empty()).map(parse).collect::<Result<Vec<_>>>()?;
    match judge(&lines) {
        Ok(Judged { alarms, faults, by_chance }) => {
            println!("no verdict is wrong: {alarms} alarms, {faults} faults");
            for alarm in by_chance {
                println!("but for one that may be chance: {alarm}");
            }
        }
        Err(wrong) => bail!("{}", wrong.join("; ")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str) -> Result<Judged, Vec<String>> {
        judge(&text.lines().map(|line| parse(line.trim()).unwrap()).collect::<Vec<_>>())
    }

    #[test]
    fn alarms_of_a_fault_and_its_grace_are_right() {
        let text = "1.0 # watching
            10.0 mark fault payment
            11.0 began frontend 1000 shop.errors
            11.2 began payment 1200 shop.errors
            20.0 ended payment 3000
            21.0 mark over
            35.9 began cart 9000 latency
            40.0 mark fault -
            41.0 began frontend 9500 errors";

        assert_eq!(judged(text), Ok(Judged { alarms: 4, faults: 2, by_chance: vec![] }));
    }

    #[test]
    fn one_alarm_without_a_fault_may_be_chance_and_two_are_wrong() {
        let one = "10.0 mark fault -\n11.0 mark over\n26.1 began cart 9000 latency.p99";
        let said = "an alarm of cart at 26.1 s outside of any fault: latency.p99";

        assert_eq!(judged(one).unwrap().by_chance, [said]);
        let two = judged(&format!("{one}\n27.0 began store 9900 memory")).unwrap_err();
        assert_eq!(two, [said, "an alarm of store at 27 s outside of any fault: memory"]);
    }

    #[test]
    fn a_fault_that_is_not_noticed_in_its_own_service_is_wrong_and_so_is_another_one_earlier() {
        let late = "10.0 mark fault payment\n11.0 began frontend 1000 a\n12.0 began payment 2001 a";

        assert_eq!(judged(late).unwrap_err(), ["of the fault in payment, frontend was in alarm 1001 ms earlier"]);
        assert!(judged("10.0 mark fault payment\n11.0 began frontend 1000 a").unwrap_err()[0].contains("not noticed"));
    }

    #[test]
    fn lines_that_nobody_wrote_are_refused() {
        for text in ["", "x mark fault a", "1.0 begun a 1", "1.0 began a b"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
