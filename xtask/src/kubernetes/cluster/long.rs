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

/// Starts the shop, and does what is named, or all.
///
/// # Errors
///
/// The first check that fails.
pub fn run(
    cluster: &Cluster,
    (values, upstream, way): (&str, &Upstream, Way),
    named: &[Experiment],
    steps: &mut Steps,
) -> Result<()> {
    let is_asked = |experiment| named.is_empty() || named.contains(&experiment);
    let shop = steps.run("the shop as Deployments, unchanged pods, under load: all five services armed", || {
        let shop = Shop::start(cluster, way)?;
        shop.settle()?;
        Ok(shop)
    })?;
    if is_asked(Experiment::Faults) {
        faults::check(&shop, upstream, steps)?;
    }
    if is_asked(Experiment::Upgrade) {
        upgrade::check(&shop, values, steps)?;
    }
    if is_asked(Experiment::Overload) {
        overload::check(&shop, values, steps)?;
    }
    if is_asked(Experiment::Away) {
        away::check(&shop, upstream, steps)?;
    }
    Ok(())
}
