//! `uview lmap`: the LMAPs of a node, their intervals, and those that watch several services.

pub mod interval;
pub mod over_several;

use std::path::PathBuf;

use wire::proto::operators::{LmapInfo, LmapStatus};

use crate::agent::{self, AgentArgs, AgentError, Connection, Target};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, json};
use interval::IntervalArgs;
use over_several::View;

/// The long help of `uview lmap`.
pub const LONG_ABOUT: &str = "\
Show or set how services are watched: the intervals of their LMAPs, and LMAPs over several services

Each service has an LMAP (local metrics analysis pipeline) of its own, by its name:

  uview lmap payment                                 how often a row is taken
  uview lmap payment --interval 200ms                a row every 200 ms from now on
  uview lmap payment --interval default              as its metrics and the configuration say
  uview lmap payment --adaptive 50ms                 fetched every 50 ms while something seems wrong
  uview lmap payment --adaptive off                  fetched for its rows only
  uview lmap payment --normal-now                    what it does now is normal

What is normal is learnt for each interval by itself, from 120 rows. The former interval goes on judging until the new one
is learnt, and what was learnt at an earlier interval is known when it comes back. An alarm that is on goes on. Intervals
are within lmap.fastest_ms and lmap.slowest_ms of the host agent's configuration.

With --normal-now it learns anew from 120 rows, whatever their score. It goes on judging by what was normal meanwhile, so
that an alarm ends once they are learnt.

An LMAP over several services learns how their metrics move together, and alarms when they do not any more: as many
payments as ever, but twice as many requests for each.

  uview lmap                                         which there are, their services, and what is missing
  uview lmap shop payment/requests cart/requests     an LMAP by the name of shop over these two metrics
  uview lmap shop payment cart/errors                all metrics of payment, and one of cart
  uview lmap shop bank/payment//requests             a service whose name has a slash
  uview lmap shop                                    its services and metrics
  uview lmap shop --delete                           not watched any more

The name is one that no service has. A service may come later: its columns are watched from then on. While it is gone they
have no values, and the others go on. `uview metric shop` sets how its metrics become columns, or adds derived ones, with
names in backquotes: --derive '`payment/requests` / `cart/requests`'.

A restart of the host agent ends what was set. What was learnt is used again, if lmap.models_dir is set.";

/// Arguments of `uview lmap`.
#[derive(Clone, Debug, clap::Args)]
pub struct LmapArgs {
    /// Name of a service or of an LMAP over several; none: list all over several services
    name: Option<String>,
    /// What it watches: SERVICE/METRIC, or SERVICE for all of its metrics; none: show the LMAP
    #[arg(value_name = "METRIC", requires = "name")]
    metrics: Vec<String>,
    #[command(flatten)]
    interval: IntervalArgs,
    /// What it does now is normal: learn that from its next rows
    #[arg(long, requires = "name", conflicts_with_all = ["metrics", "interval", "adaptive", "delete"])]
    normal_now: bool,
    /// Do not watch these services together any more
    #[arg(long, requires = "name", conflicts_with_all = ["metrics", "interval", "adaptive"])]
    delete: bool,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Sets what is asked, and prints what is in effect.
///
/// # Errors
///
/// [`Failure`] if the agent cannot be asked or declines, or there is no LMAP of that name.
pub fn run(args: &LmapArgs, from_environment: Option<PathBuf>) -> Result<Exit, Failure> {
    let what = match &args.name {
        Some(name) if args.delete => format!("delete the LMAP {name}"),
        Some(name) if args.normal_now => format!("learn anew what is normal of {name}"),
        Some(name) if !args.metrics.is_empty() => format!("watch several services by the LMAP {name}"),
        Some(name) if args.interval.asks() => format!("set the interval of {name}"),
        Some(name) => format!("show the LMAP {name}"),
        None => "list LMAPs over several services".to_owned(),
    };
    let target = args.agent.clone().target(from_environment)?;
    let text = agent::runtime(&what)?.block_on(carry_out(args, &target, &what))?;
    output::print(&text)?;
    Ok(Exit::Fine)
}

/// Does what is asked. Returns what to print.
async fn carry_out(args: &LmapArgs, target: &Target, what: &str) -> Result<String, Failure> {
    let failed = |error: AgentError| error.into_failure(what);
    let mut agent = Connection::open(target).await.map_err(failed)?;
    let Some(name) = &args.name else {
        return show(args, &over_several(&mut agent).await.map_err(failed)?, None);
    };
    if args.delete {
        let known = over_several(&mut agent).await.map_err(failed)?.into_iter().find(|lmap| lmap.service == *name);
        let none = || {
            Failure::to(what).because("no LMAP over several services has that name").advice("`uview lmap` lists them")
        };
        agent.delete_lmap(known.ok_or_else(none)?.lmap).await.map_err(failed)?;
        return show(args, &[], Some(name));
    }
    if !args.metrics.is_empty() {
        let known = over_several(&mut agent).await.map_err(failed)?.into_iter().find(|lmap| lmap.service == *name);
        over_several::set(&mut agent, name, known.as_ref(), &args.metrics, args.interval.micros())
            .await
            .map_err(failed)?;
    }
    let mut said = None;
    if args.normal_now {
        let lmap = find(&mut agent, name, what).await?;
        agent.fit_again(lmap.lmap).await.map_err(failed)?;
        said = Some(format!(
            "{name}: what it does now is learnt as normal, from 120 rows; until then it is judged as before\n"
        ));
    }
    if args.interval.asks() {
        let lmap = find(&mut agent, name, what).await?;
        let reply = agent.set_interval(args.interval.request(lmap.lmap)).await.map_err(failed)?;
        said = Some(interval::changed(name, &reply));
    }
    match said {
        Some(said) if args.metrics.is_empty() && !args.json => Ok(said),
        _ => {
            let status = find(&mut agent, name, what).await?;
            let lmaps = agent.list().await.map_err(failed)?.lmaps;
            let of: Vec<_> = lmaps.into_iter().filter(|lmap| lmap.service == *name).collect();
            Ok(show(args, &of, Some(name))? + &if args.json { String::new() } else { interval::in_effect(&status) })
        }
    }
}

/// The status of the LMAP by that name.
async fn find(agent: &mut Connection, name: &str, what: &str) -> Result<LmapStatus, Failure> {
    let status = agent.status().await.map_err(|error| error.into_failure(what))?;
    status.lmaps.into_iter().find(|lmap| lmap.service == name).ok_or_else(|| {
        let advice = "`uview status` lists the services; name metrics to watch several of them together";
        Failure::to(what).because("no LMAP has that name").advice(advice)
    })
}

async fn over_several(agent: &mut Connection) -> Result<Vec<LmapInfo>, AgentError> {
    Ok(agent.list().await?.lmaps.into_iter().filter(|lmap| !lmap.members.is_empty()).collect())
}

fn show(args: &LmapArgs, lmaps: &[LmapInfo], name: Option<&str>) -> Result<String, Failure> {
    let views: Vec<_> = lmaps.iter().map(View::of).collect();
    if args.json { json(&views) } else { Ok(over_several::text(&views, name.is_some())) }
}
