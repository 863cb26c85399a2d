//! What takes long, and is run by hand: the demo's shop on a cluster, under load all the time. Its services have
//! faults, both agents are replaced, the load is more than it can do, and the API server is away.

mod away;
mod faults;
mod gaps;
mod ledger;
mod overload;
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
use shop::Shop;

/// What is tried on the shop, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Experiment {
    /// Each of its services has a fault: it is noticed and named, and a trace is kept.
    Faults,
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
/// The first check that fails.
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
    let mut failed = Vec::new();
    for experiment in Experiment::value_variants() {
        if !(named.is_empty() || named.contains(experiment)) {
            continue;
        }
        let done = match experiment {
            Experiment::Faults => faults::check(&shop, upstream, steps),
            Experiment::Upgrade => upgrade::check(&shop, values, steps),
            Experiment::Overload => overload::check(&shop, values, steps),
            Experiment::Away => away::check(&shop, upstream, steps),
        };
        if let Err(error) = done {
            println!("FAILED: {experiment:?}: {error:#}");
            failed.push(error);
            // The next one begins with a shop that is as it should be.
            shop.take_as_normal(&Shop::services())?;
        }
    }
    failed.into_iter().next().map_or(Ok(()), Err)
}
