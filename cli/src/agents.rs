//! The two agents as subcommands, with the same arguments as their own binaries; and the controller and the CSI driver
//! of a cluster.

use core::error::Error;
use std::time::Duration;

use agent_runtime::budget::Budget;
use agent_runtime::check::{Inspection, Level};
use agent_runtime::program::ConfigArgs;
use agent_runtime::{ConfigError, Settings, logs, stop};
use controller::{ControllerArgs, RunError as ControllerError};
use csi::CsiArgs;
use host_agent::HostAgentArgs;
use tokio::runtime::Runtime;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;

/// How long the threads of the runtime may take to end.
const END_WITHIN: Duration = Duration::from_secs(1);

/// Runs the host agent until SIGTERM or SIGINT.
///
/// # Errors
///
/// [`Failure`] if the configuration is not valid, the agent cannot start, or one of its servers fails.
pub fn host(of: &HostAgentArgs) -> Result<Exit, Failure> {
    use host_agent::RunError;
    use host_agent::config::{Config, DEFAULT};

    const WHAT: &str = "run the host agent";
    let args = &of.config;
    if args.print_default_config {
        return output::print(DEFAULT).map(|()| Exit::Fine);
    }
    if of.print_custom_resources {
        let text = host_agent::custom_resources().map_err(|error| Failure::to(WHAT).caused_by(&error))?;
        return output::print(&text).map(|()| Exit::Fine);
    }
    if args.check_config {
        return inspected(&host_agent::check_config(args));
    }
    if args.budget {
        return budget(args, host_agent::budget_of(args));
    }
    let config: Config = of.named(load(args)?);
    logs::init(&config.log).map_err(|error| configuration(args, &error))?;
    let runtime_dir = config.runtime_dir.0.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let ended =
        run_until_signal(WHAT, runtime, async |stop| host_agent::run_from(config, args.config.clone(), stop).await)?;
    let Err(error) = ended else { return Ok(Exit::Fine) };
    let failure = Failure::to(WHAT).caused_by(&error);
    Err(match error {
        RunError::Config(_) | RunError::Tls(_) => failure.advice(SEE_CONFIG),
        RunError::Bind(_) => failure.advice("`uview check` shows which ports are in use"),
        RunError::Runtime { .. } | RunError::Listen(_) => failure
            .advice(format!("`sudo install -d -o $USER {}`", runtime_dir.display()))
            .advice("set runtime_dir in the configuration to a directory that you can write"),
        _ => failure,
    })
}

/// Runs the NIC agent until SIGTERM or SIGINT. It waits for a host agent that is not there yet.
///
/// # Errors
///
/// [`Failure`] if the configuration is not valid or the agent cannot start.
pub fn nic(args: &ConfigArgs) -> Result<Exit, Failure> {
    use nic_agent::config::{Config, DEFAULT};

    const WHAT: &str = "run the NIC agent";
    if args.print_default_config {
        return output::print(DEFAULT).map(|()| Exit::Fine);
    }
    if args.check_config {
        return inspected(&nic_agent::check_config(args));
    }
    if args.budget {
        return budget(args, nic_agent::budget_of(args));
    }
    let config: Config = load(args)?;
    logs::init(&config.log).map_err(|error| configuration(args, &error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended =
        run_until_signal(WHAT, runtime, async |stop| nic_agent::run_from(config, args.config.clone(), stop).await)?;
    ended.map(|()| Exit::Fine).map_err(|error| Failure::to(WHAT).caused_by(&error).advice(SEE_CONFIG))
}

/// Runs the controller of a Kubernetes cluster until SIGTERM or SIGINT.
///
/// # Errors
///
/// [`Failure`] if this is no pod with a service account, an address cannot be listened on, or a certificate cannot be
/// used.
pub fn controller(args: ControllerArgs) -> Result<Exit, Failure> {
    const WHAT: &str = "run the controller";
    if args.budget {
        let budget = controller::budget(args.metrics_api.is_some());
        return output::print(&budget.to_string()).map(|()| Exit::Fine);
    }
    logs::init(&args.log()).map_err(|error| Failure::to(WHAT).caused_by(&error).exit_with(Exit::Usage))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let ended = run_until_signal(WHAT, runtime, async |stop| controller::run(args, stop).await)?;
    ended.map(|()| Exit::Fine).map_err(|error| {
        let failure = Failure::to(WHAT).caused_by(&error);
        match error {
            ControllerError::NoCluster(_) => failure.advice("controller.enabled of the chart runs it"),
            _ => failure,
        }
    })
}

/// Runs the CSI driver of a Kubernetes node until SIGTERM or SIGINT.
///
/// # Errors
///
/// [`Failure`] if one of its sockets cannot be listened on.
pub fn csi(args: CsiArgs) -> Result<Exit, Failure> {
    const WHAT: &str = "run the CSI driver";
    logs::init(&args.log()).map_err(|error| Failure::to(WHAT).caused_by(&error).exit_with(Exit::Usage))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = run_until_signal(WHAT, runtime, async |stop| csi::run(args, stop).await)?;
    ended.map(|()| Exit::Fine).map_err(|error| {
        let advice = "run it by the chart (csi.enabled), as root with kubelet's directory; or --kubelet DIR";
        Failure::to(WHAT).caused_by(&error).advice(advice)
    })
}

/// Prints what `--check-config` found.
fn inspected(inspection: &Inspection) -> Result<Exit, Failure> {
    output::print(&inspection.to_string())?;
    Ok(if inspection.worst() == Level::Error { Exit::Failed } else { Exit::Fine })
}

/// Prints what an agent may keep in memory.
fn budget(args: &ConfigArgs, computed: Result<Budget, ConfigError>) -> Result<Exit, Failure> {
    let budget = computed.map_err(|error| configuration(args, &error))?;
    output::print(&budget.to_string()).map(|()| Exit::Fine)
}

const SEE_CONFIG: &str = "--print-default-config shows every key with its default and what it is for";

fn load<S: Settings>(args: &ConfigArgs) -> Result<S, Failure> {
    args.settings().map_err(|error: ConfigError| configuration(args, &error))
}

fn configuration(args: &ConfigArgs, error: &(dyn Error + 'static)) -> Failure {
    let what = match &args.config {
        Some(path) => format!("use the configuration {}", path.display()),
        None => "use the default configuration".to_owned(),
    };
    Failure::to(what).caused_by(error).advice(SEE_CONFIG)
}

/// Runs an agent until SIGTERM or SIGINT.
fn run_until_signal<T>(
    what: &str,
    runtime: std::io::Result<Runtime>,
    agent: impl AsyncFnOnce(std::pin::Pin<Box<dyn Future<Output = ()> + Send>>) -> T,
) -> Result<T, Failure> {
    let refused = |error| {
        Failure::to(what).because("the system has no event queue, thread or signal handler left").caused_by(&error)
    };
    let runtime = runtime.map_err(refused)?;
    let ended = runtime.block_on(async {
        let stop = stop::requested().map_err(refused)?;
        Ok(agent(Box::pin(stop)).await)
    });
    runtime.shutdown_timeout(END_WITHIN);
    ended
}
