//! Ten minutes without an API server: services are watched, verdicts go on, traces are kept. Then all is as the
//! cluster says.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use support::clock::Stopwatch;

use super::super::api_server;
use super::super::kit::Cluster;
use super::super::steps::Steps;
use super::super::traces;
use super::super::upstream::Upstream;
use super::shop::{NAMESPACE, Shop, of, samples};

/// How long the API server is away.
const AWAY: Duration = Duration::from_mins(10);
/// A row of the table.
const ROW: Duration = Duration::from_mins(1);
/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Of the rows that an LMAP has in a minute, one each tenth of a second, so many are there on a busy machine.
const ROWS: u64 = 540;
/// The service that stands still in the sixth minute.
const STOPPED: &str = "catalogue";
const STOPPED_IN: usize = 6;
/// A pod that comes and goes afterwards.
const LATER: &str = "after-ten-minutes";

/// Both agents' containers, and what their processes are called by the node.
type Processes = BTreeMap<&'static str, (String, String)>;

/// Kills the API server, looks on for ten minutes, and starts it again.
///
/// # Errors
///
/// Anything is not as it was, or not as it should be afterwards.
pub fn check(shop: &Shop<'_>, upstream: &Upstream, steps: &mut Steps) -> Result<()> {
    let cluster = shop.cluster;
    shop.settle()?;
    let before = processes(cluster)?;
    let resident = |agent| cluster.resident(agent);
    let memory = (resident("host-agent")?, resident("nic-agent")?);
    // Its name is known by the API server only.
    let stopped = cluster.container(NAMESPACE, &format!("app={STOPPED}"))?;
    let away =
        steps.run("ten minutes without an API server: all LMAPs judge, a fault is noticed, its trace is kept", || {
            api_server::kill(cluster)?;
            cluster.until("the agent says so", |status| status.has_problem(api_server::PROBLEM))?;
            let clock = Stopwatch::start();
            for minute in 1.. {
                if clock.elapsed() >= AWAY {
                    break;
                }
                let stopped = (minute == STOPPED_IN).then_some(stopped.as_str());
                one_minute(shop, upstream, (minute, stopped))?;
            }
            Ok(())
        });
    // Also after a failure: the logs are read by the API server.
    let restarted = steps.run("API server restarted: the problem is gone", || {
        api_server::restart(cluster)?;
        cluster.until("pods are watched", |status| !status.has_problem(api_server::PROBLEM))
    });
    away.and(restarted)?;
    steps.run("reconciled: a new pod is known, and forgotten when it is deleted", || {
        api_server::new_pod(cluster, LATER)?;
        cluster.sh(&format!("kubectl delete pod {LATER} --force --grace-period=0 2>&1"))?;
        let service = format!("default/{LATER}");
        cluster.until("the pod is gone", |status| !status.services().contains(&service.as_str()))
    })?;
    let after = processes(cluster)?;
    ensure!(after == before, "other processes are the agents': {after:?}, before {before:?}");
    println!(
        "host agent: {} → {} MiB, NIC agent: {} → {} MiB",
        memory.0,
        resident("host-agent")?,
        memory.1,
        resident("nic-agent")?
    );
    // A node of which nothing was heard may be taken for lost at first, and its pods for not ready.
    Cluster::until_some("a frontend is ready", || {
        ensure!(shop.follow()? > 0, "none is");
        Ok(())
    })?;
    shop.settle()
}

/// Looks on for a minute. In one of them a container is stopped until its service is in alarm, and a trace is kept.
fn one_minute(shop: &Shop<'_>, upstream: &Upstream, (minute, stopped): (usize, Option<&str>)) -> Result<()> {
    let cluster = shop.cluster;
    let look = || Cluster::until_some("the status is said", || cluster.status());
    let (clock, before) = (Stopwatch::start(), samples(&look()?));
    shop.visitors.window();
    if let Some(container) = stopped {
        upstream.clear();
        cluster.signal("STOP", container)?;
        let noticed = is_noticed(shop, upstream);
        cluster.signal("CONT", container)?;
        let (took, reason) = noticed?;
        println!("  {STOPPED} stood still: noticed after {:.1} s, a trace is kept: {reason}", took.as_secs_f64());
    }
    // Visitors whom it has kept waiting leave within this row, too.
    let end = if stopped.is_some() { clock.elapsed() + ROW } else { ROW };
    let mut alarms = 0_usize;
    let mut status = look()?;
    while clock.elapsed() < end {
        std::thread::sleep(LOOK_EVERY);
        status = look()?;
        for service in Shop::services() {
            ensure!(!status.learns_anew(&service) && !status.lmap(&service).is_null(), "{service}: {status}");
            alarms += usize::from(status.is_in_alarm(&service));
        }
    }
    let (after, window) = (samples(&status), shop.visitors.window());
    // For a moment before each attempt it does not.
    cluster
        .until("the agent still says that pods cannot be watched", |status| status.has_problem(api_server::PROBLEM))?;
    let rows =
        before.iter().map(|(service, count)| after.get(service).copied().unwrap_or_default().saturating_sub(*count));
    let fewest = rows.min().context("the shop has services")?;
    println!(
        "  minute {minute:2}: {fewest} rows of each LMAP or more, {alarms} looks at one in alarm, {} visits, {} failed",
        window.ended, window.failed
    );
    ensure!(fewest >= ROWS, "an LMAP has {fewest} rows in a minute");
    ensure!(stopped.is_some() || window.failed * 100 <= window.ended, "visitors notice: {window:?}");
    Ok(())
}

/// Waits until what stands still is in alarm, and a trace is kept of a request that needed it. Returns how long the
/// alarm took, and the reason of the trace.
fn is_noticed(shop: &Shop<'_>, upstream: &Upstream) -> Result<(Duration, String)> {
    let (clock, service) = (Stopwatch::start(), of(STOPPED));
    shop.cluster.until("what stands still is in alarm", |status| status.is_in_alarm_for(&service, &["health"]))?;
    let took = clock.elapsed();
    let reason = Cluster::until_some("a trace of a failed request is kept", || {
        let traces = upstream.traces();
        let failed = traces.values().find(|trace| traces::policy(trace) == Some("error"));
        failed.and_then(|trace| traces::reason(trace)).map(str::to_owned).context("none has arrived")
    })?;
    Ok((took, reason))
}

fn processes(cluster: &Cluster) -> Result<Processes> {
    let of = |agent| {
        let container = cluster.container("uview", &format!("app.kubernetes.io/component={agent}"))?;
        let process = cluster.sh(&format!("$CTR tasks ps {container} | awk 'NR==2 {{print $1}}'"))?;
        anyhow::Ok((agent, (container, process)))
    };
    ["host-agent", "nic-agent"].into_iter().map(of).collect()
}
