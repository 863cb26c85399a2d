//! `uview`, the command: one binary with the demo, both agents, and what people look at them with.
//!
//! | module | what |
//! | --- | --- |
//! | [`check`] | what this machine offers and what is missing |
//! | [`status`] | agents, workers, LMAPs, problems, once |
//! | [`top`] | the same, live |
//! | [`paths`] | operations and the services that their requests pass |
//! | [`receipt`] | what was seen, kept and lost, per day and service |
//! | [`record`] | rows of running LMAPs into files, labels into those |
//! | [`train`] | rows → a model, and how sure one may be of it |
//! | [`model`] | what is in a model |
//! | [`replay`] | a file of metrics through an LMAP, or through several |
//! | [`canary`] | a new version of a service against the old one |
//! | [`eval`] | detectors side by side on labelled data |
//! | [`synopsis`] | delay and loss of all packets of a capture or an interface |
//! | [`reproduce`] | published claims and what becomes of them |
//! | [`demonstration`], [`agents`] | the demo and the agents, which are crates of their own |
//! | [`exit`], [`failure`], [`figures`], [`output`] | exit codes, errors as prose, numbers as people read them, printing |
//! | [`input`] | CSV, Parquet and recordings |
//! | [`agent`], [`tls`], [`clock`] | finding and asking the host agent; certificates; the clock |

pub mod agent;
pub mod agents;
pub mod canary;
pub mod check;
pub mod clock;
pub mod demonstration;
pub mod eval;
pub mod exit;
pub mod failure;
pub mod figures;
pub mod input;
pub mod model;
pub mod output;
pub mod paths;
pub mod receipt;
pub mod record;
pub mod replay;
pub mod reproduce;
pub mod status;
pub mod synopsis;
pub mod tls;
pub mod top;
pub mod train;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use exit::Exit;
use failure::Failure;

/// What the environment says. Read once, in `main.rs`.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `UVIEW_RUNTIME_DIR`.
    pub runtime_dir: Option<PathBuf>,
    /// `NO_COLOR` is set and not empty.
    pub no_color: bool,
    /// Where this binary is, if the system says so.
    pub program: Option<PathBuf>,
}

/// Watches the services of a node with one small detector each, from beside them.
#[derive(Debug, Parser)]
#[command(name = "uview", version, after_help = exit::HELP, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch a small real shop, break it, and see what is noticed
    Demo(demo::DemoArgs),
    /// Be the host agent: services register with it, it places their LMAPs and passes verdicts on
    HostAgent(daemon::program::ConfigArgs),
    /// Be the NIC agent: it fetches metrics, judges them, and tells the host agent
    NicAgent(daemon::program::ConfigArgs),
    /// Record the rows of running LMAPs, one compact file per service
    Record(record::RecordArgs),
    /// Say which spans of time of a recording had a fault
    Label(record::LabelArgs),
    /// Learn a model from recordings, CSV or Parquet, and say how good it is
    Train(train::TrainArgs),
    /// Look into a model
    Model(model::ModelArgs),
    /// Put a file of metrics through an LMAP: scores, episodes, top metrics, a plot
    Replay(replay::ReplayArgs),
    /// Say whether a new version of a service behaves unlike the old one, and in which metrics
    Canary(canary::CanaryArgs),
    /// Compare detectors on labelled data: how well they find, how often they are wrong, what they name
    Eval(eval::EvalArgs),
    /// Measure delay and loss of all packets of a capture or an interface
    Synopsis(synopsis::SynopsisArgs),
    /// Show services, states, scores and top metrics, live
    Top(top::TopArgs),
    /// Say what this machine offers, what is missing, and what to do about it
    Check(check::CheckArgs),
    /// Print or draw operations and the services that their requests pass
    Paths(paths::PathsArgs),
    /// Print what was seen, kept, dropped and lost, per day and service
    Receipt(receipt::ReceiptArgs),
    /// Print agents, workers, LMAPs and problems
    Status(status::StatusArgs),
    /// Hold what the publication claims against what happens here
    #[command(hide = true)]
    Reproduce(reproduce::ReproduceArgs),
    /// Become another of these commands, and end with the demo
    #[command(hide = true)]
    Child(demo::child::ChildArgs),
    /// Be one service of the demo's shop
    #[command(hide = true)]
    Shop(demo::shop::ShopArgs),
    /// Be the visitors of the demo's shop
    #[command(hide = true)]
    Load(demo::load::LoadArgs),
    /// Be the way between two services of the demo's shop
    #[command(hide = true)]
    Way(demo::way::WayArgs),
}

/// Carries out what the arguments say.
///
/// # Errors
///
/// [`Failure`] as prose, with the code to end with.
pub fn run(arguments: Arguments, environment: Environment) -> Result<Exit, Failure> {
    match arguments.command {
        Command::Demo(args) => demonstration::run(&args, environment.program),
        Command::HostAgent(args) => agents::host(&args),
        Command::NicAgent(args) => agents::nic(&args),
        Command::Check(args) => check::run(args, environment.runtime_dir),
        Command::Record(args) => record::run(&args, environment.runtime_dir),
        Command::Label(args) => record::label(&args),
        Command::Train(args) => train::run(&args),
        Command::Model(args) => model::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Canary(args) => canary::run(&args),
        Command::Reproduce(args) => reproduce::run(&args, environment.program),
        Command::Eval(args) => eval::run(&args),
        Command::Synopsis(args) => synopsis::run(&args),
        Command::Paths(args) => paths::run(&args, environment.runtime_dir),
        Command::Receipt(args) => receipt::run(&args, environment.runtime_dir),
        Command::Status(args) => status::run(args, environment.runtime_dir),
        Command::Top(args) => top::run(args, environment),
        Command::Child(args) => demonstration::become_child(&args, environment.program),
        Command::Shop(args) => demonstration::serve(&args),
        Command::Load(args) => demonstration::visit(&args),
        Command::Way(args) => demonstration::relay(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
