//! The `uview` command: one binary with the demo, both agents, and the tools of an operator.
//!
//! | module | what |
//! | --- | --- |
//! | [`check`] | whether uview can run on this machine, and what to fix |
//! | [`status`] | agent, workers, LMAPs (local metrics analysis pipelines) and problems, printed once |
//! | [`top`] | the same as a live view |
//! | [`open`] | an address of the live page |
//! | [`incidents`] | incidents that are kept, one of them in words, or as a file of HTML |
//! | [`drain`] | takes all LMAPs off a worker, and lets it have some again |
//! | [`trigger`] | has the traces through a service kept for a time |
//! | [`metric`] | how the metrics of a service become columns |
//! | [`lmaps`] | LMAPs: their intervals, and those over several services |
//! | [`kubectl`] | the same on the nodes of a Kubernetes cluster |
//! | [`p4`] | constants of programs for switches |
//! | [`paths`] | operations and the services on the path of their requests |
//! | [`receipt`] | spans seen, kept, dropped and lost, per day and service |
//! | [`sources`] | Prometheus endpoints, and which of their series are watched |
//! | [`watch`] | watches a program that nobody changed, by what the system tells about it |
//! | [`record`] | records rows of running LMAPs into files, and labels them |
//! | [`train`] | trains a model on recorded rows, and reports its quality |
//! | [`model`] | shows, fetches and merges models, and gives them to running agents |
//! | [`replay`] | runs a file of metrics through an LMAP, or through several |
//! | [`canary`] | compares a new version of a service with the old one |
//! | `eval` | compares detectors on labelled data (feature `lab`) |
//! | [`synopsis`] | delay and loss of all packets of a capture or an interface |
//! | `reproduce` | checks the claims of the publication (feature `lab`) |
//! | [`demonstration`], [`agents`] | subcommands of the demo and the agents, which are crates of their own |
//! | [`exit`], [`failure`], [`figures`], [`output`] | exit codes, error messages, number formats, printing |
//! | [`shell`] | completions and manual pages |
//! | [`input`] | reads CSV, Parquet and recordings |
//! | [`discovery`] | finds the host agents that run on this machine |
//! | [`agent`], [`tls`] | client of the operators' API; certificates |

pub mod agent;
pub mod agents;
pub mod canary;
pub mod check;
mod columns;
pub mod demonstration;
pub mod discovery;
pub mod drain;
mod environment;
#[cfg(feature = "lab")]
pub mod eval;
pub mod exit;
pub mod failure;
pub mod figures;
pub mod incidents;
pub mod input;
pub mod kubectl;
pub mod lmaps;
pub mod metric;
pub mod model;
pub mod open;
pub mod output;
pub mod p4;
pub mod paths;
pub mod receipt;
pub mod record;
pub mod replay;
pub mod replies;
#[cfg(feature = "lab")]
pub mod reproduce;
pub mod shell;
pub mod sources;
pub mod status;
pub mod synopsis;
pub mod tls;
pub mod top;
pub mod train;
pub mod trigger;
pub mod watch;

use clap::{Parser, Subcommand};

use exit::Exit;
use failure::Failure;

pub use environment::{Display, Environment};

/// Detect anomalies in the services of a node, with one small detector per service, outside of its process
#[derive(Debug, Parser)]
#[command(name = "uview", version, after_help = exit::HELP, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a small shop, inject faults, and report which ones uview detects
    Demo(demo::DemoArgs),
    /// Run the host agent: it registers services and forwards verdicts to operators and hooks
    HostAgent(host_agent::HostAgentArgs),
    /// Run the NIC agent: it reads metrics, scores them, and reports verdicts to the host agent
    NicAgent(agent_runtime::program::ConfigArgs),
    /// Run the controller of a Kubernetes cluster: statuses of Lmaps over all nodes, metrics for autoscalers
    Controller(controller::ControllerArgs),
    /// Run the CSI driver of a Kubernetes node: pods get the directory of the agents' sockets, read-only
    Csi(csi::CsiArgs),
    /// Show services, states, scores and top metrics, live
    Top(top::TopArgs),
    /// Open the live page in a browser: services, what stands out, kept traces
    #[command(long_about = open::LONG_ABOUT)]
    Open(open::OpenArgs),
    /// List incidents: alarms that belong together, with the suspected cause
    Incidents(incidents::IncidentsArgs),
    /// Print an incident: services, metrics, traces, what was changed; or write it as a page
    #[command(long_about = incidents::LONG_ABOUT)]
    Incident(incidents::IncidentArgs),
    /// Watch a program as it is, by its process id, name, command line or systemd unit
    #[command(long_about = watch::LONG_ABOUT)]
    Watch(watch::WatchArgs),
    /// Print agents, workers, LMAPs and problems
    Status(status::StatusArgs),
    /// Move all LMAPs off a NIC worker, and place none on it until `uview undrain`
    #[command(long_about = drain::LONG_ABOUT)]
    Drain(drain::DrainArgs),
    /// Let a NIC worker have LMAPs again
    Undrain(drain::UndrainArgs),
    /// Keep the traces through a service for a time, with your reason in each of them
    #[command(long_about = trigger::LONG_ABOUT)]
    Trigger(trigger::TriggerArgs),
    /// Print how many spans and requests were seen, kept, dropped and lost, per day and service
    Receipt(receipt::ReceiptArgs),
    /// Print or draw operations and the services on the path of their requests
    Paths(paths::PathsArgs),
    /// Print which Prometheus endpoints are scraped, which of their series are watched, and why
    Sources(sources::SourcesArgs),
    /// Show or set how the metrics of a service become columns: aggregation over replicas, derived columns
    #[command(long_about = metric::LONG_ABOUT)]
    Metric(metric::MetricArgs),
    /// Show or set how services are watched: intervals of their LMAPs, and LMAPs over several services
    #[command(long_about = lmaps::LONG_ABOUT)]
    Lmap(lmaps::LmapArgs),
    /// Run a command of an operator in the agent of a Kubernetes node; as `kubectl-uview`, a plugin of kubectl
    #[command(long_about = kubectl::LONG_ABOUT)]
    Kubectl(kubectl::KubectlArgs),
    /// Check whether uview can run on this machine, and say what to fix
    Check(check::CheckArgs),
    /// Record the metrics of running services, one compact file per service
    Record(record::RecordArgs),
    /// Label the time ranges of a recording that had a fault
    Label(record::LabelArgs),
    /// Train a model on recordings, CSV or Parquet, and report how good it is
    #[command(long_about = train::LONG_ABOUT)]
    Train(train::TrainArgs),
    /// Show, fetch or merge models, or give one to a running agent
    Model(model::ModelArgs),
    /// Run a file of metrics through the detector: scores, episodes, top metrics, a plot
    #[command(long_about = replay::LONG_ABOUT)]
    Replay(replay::ReplayArgs),
    /// Compare a new version of a service with the old one, and name the metrics that differ
    #[command(long_about = canary::LONG_ABOUT)]
    Canary(canary::CanaryArgs),
    /// Measure delay and loss of all packets of a capture or an interface
    #[command(long_about = synopsis::LONG_ABOUT)]
    Synopsis(synopsis::SynopsisArgs),
    /// Programs that measure streams in a switch: what they have to know
    P4(p4::P4Args),
    /// Compare detectors on labelled data: precision, recall, false alarms, named metrics
    #[cfg(feature = "lab")]
    #[command(long_about = eval::LONG_ABOUT)]
    Eval(eval::EvalArgs),
    /// Check the claims of the publication on this machine
    #[cfg(feature = "lab")]
    #[command(hide = true)]
    Reproduce(reproduce::ReproduceArgs),
    /// Print completions for a shell
    #[command(after_help = shell::COMPLETIONS_HELP)]
    Completions(shell::CompletionsArgs),
    /// Write manual pages
    Man(shell::ManArgs),
    /// Run another subcommand that ends with the demo
    #[command(hide = true)]
    Child(demo::child::ChildArgs),
    /// Run one service of the demo's shop
    #[command(hide = true)]
    Shop(demo::shop::ShopArgs),
    /// Run the load generator of the demo's shop
    #[command(hide = true)]
    Load(demo::load::LoadArgs),
    /// Run the link between two services of the demo's shop
    #[command(hide = true)]
    Link(demo::link::LinkArgs),
}

/// Runs the subcommand.
///
/// # Errors
///
/// [`Failure`] with the error message and the exit code.
pub fn run(arguments: Arguments, environment: Environment) -> Result<Exit, Failure> {
    match arguments.command {
        Command::Demo(args) => demonstration::run(&args, environment.program),
        Command::HostAgent(args) => agents::host(&args),
        Command::NicAgent(args) => agents::nic(&args),
        Command::Controller(args) => agents::controller(args),
        Command::Csi(args) => agents::csi(args),
        Command::Check(args) => check::run(args, environment.runtime_dir),
        Command::Record(args) => record::run(&args, environment.runtime_dir),
        Command::Label(args) => record::label(&args),
        Command::Train(args) => train::run(&args),
        Command::Model(args) => model::run(&args, environment.runtime_dir),
        Command::Replay(args) => replay::run(&args),
        Command::Canary(args) => canary::run(&args),
        #[cfg(feature = "lab")]
        Command::Reproduce(args) => reproduce::run(&args, environment.program),
        #[cfg(feature = "lab")]
        Command::Eval(args) => eval::run(&args),
        Command::Synopsis(args) => synopsis::run(&args),
        Command::P4(args) => p4::run(&args),
        Command::Paths(args) => paths::run(&args, environment.runtime_dir),
        Command::Receipt(args) => receipt::run(&args, environment.runtime_dir),
        Command::Completions(args) => shell::completions(&args),
        Command::Man(args) => shell::man(&args),
        Command::Sources(args) => sources::run(&args, environment.runtime_dir),
        Command::Status(args) => status::run(args, environment.runtime_dir),
        Command::Metric(args) => metric::run(&args, environment.runtime_dir),
        Command::Kubectl(args) => kubectl::run(&args, environment.display),
        Command::Lmap(args) => lmaps::run(&args, environment.runtime_dir),
        Command::Drain(args) => drain::run(args, environment.runtime_dir),
        Command::Undrain(args) => drain::undo(args, environment.runtime_dir),
        Command::Trigger(args) => trigger::run(args, environment.runtime_dir),
        Command::Top(args) => top::run(args, environment),
        Command::Open(args) => open::run(args, environment),
        Command::Incidents(args) => incidents::list(&args, environment.runtime_dir),
        Command::Incident(args) => incidents::show(&args, environment.runtime_dir),
        Command::Watch(args) => watch::run(args, environment),
        Command::Child(args) => demonstration::become_child(&args, environment.program),
        Command::Shop(args) => demonstration::serve(&args),
        Command::Load(args) => demonstration::visit(&args),
        Command::Link(args) => demonstration::relay(&args),
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

    #[test]
    fn the_long_help_of_a_subcommand_is_shown() {
        let mut command = Arguments::command();

        let help = command.find_subcommand_mut("replay").unwrap().render_long_help().to_string();

        assert!(help.contains("a step of more than 1.5 intervals is a gap"), "{help}");
    }
}
