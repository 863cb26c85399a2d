//! What takes long, and is run by hand: the demo's shop on a cluster, under load all the time. Its services have
//! faults, replicas of one are rolled out, both agents are replaced, the load is more than it can do, and the API
//! server is away.

mod agent_log;
mod away;
mod failed;
mod faults;
mod gaps;
mod ledger;
mod overload;
mod quiet_watch;
mod rollout;
mod shop;
mod timeline;
mod upgrade;
mod visitors;

use anyhow::Result;
use clap::ValueEnum as _;

use super::kit::Cluster;
use super::steps::Steps;
use super::traces::Way;
use super::upstream::Upstream;
use failed::Failed;
use shop::Shop;

/// What is tried on the shop, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Experiment {
    /// Each of its services has a fault: it is noticed and named, and a trace is kept.
    Faults,
    /// Three replicas of one are rolled out, which is no alarm; then one of them has a fault, which is one.
    Rollout,
    /// Both agents are replaced: gaps of each LMAP, and what is kept.
    Upgrade,
    /// Load beyond what it can do, and a HorizontalPodAutoscaler that reads its score.
    Overload,
    /// Ten minutes without an API server.
    Away,
}

/// Starts the shop, installs the chart by `install`, and does what is named, or all, whatever becomes of what was
/// before.
///
/// # Errors
///
/// The shop or the chart does not start, or all that failed of what was done.
pub fn run(
    cluster: &Cluster,
    (values, upstream, way): (&str, &Upstream, Way),
    install: impl Fn(&mut Steps) -> Result<()>,
    named: &[Experiment],
    steps: &mut Steps,
) -> Result<()> {
    // The shop comes first, so that the agents see each service under load from the beginning: what was idle while it
    // was learnt is in alarm as soon as somebody comes, and stays so. Without host ports its pods have to be told the
    // address of the agent's.
    let comes_second = way == Way::PodAddress;
    if comes_second {
        install(steps)?;
    }
    let shop = steps.run("the shop as Deployments, unchanged pods, under load", || Shop::start(cluster, way))?;
    if !comes_second {
        install(steps)?;
    }
    steps.run("all five services armed, none in alarm", || {
        shop.learn()?;
        if comes_second {
            shop.take_as_normal(&Shop::services())?;
        }
        shop.settle()
    })?;
    let is_named = |experiment: &&Experiment| named.is_empty() || named.contains(experiment);
    let chosen: Vec<_> = Experiment::value_variants().iter().filter(is_named).collect();
    let mut failed = Failed::default();
    for (number, experiment) in (1..).zip(&chosen) {
        let done = match experiment {
            Experiment::Faults => faults::check(&shop, upstream, steps),
            Experiment::Rollout => rollout::check(&shop, upstream, steps),
            Experiment::Upgrade => upgrade::check(&shop, values, steps),
            Experiment::Overload => overload::check(&shop, values, steps),
            Experiment::Away => away::check(&shop, upstream, steps),
        };
        let what = format!("{experiment:?}");
        if !failed.note(&what, done) && number < chosen.len() {
            // The next one begins with a shop that is as it should be.
            failed.note(&format!("{what}, what comes after it"), shop.take_as_normal(&Shop::services()));
        }
    }
    failed.into_result()
}
