//! The shop: services in three languages that call each other, each with its language's SDK, configured only by
//! environment variables.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use support::clock::Stopwatch;

use super::load;
use super::tools::Tools;

/// Limit for the services to start: interpreters load a hundred modules, perhaps on a busy machine.
const START: Duration = Duration::from_mins(1);

/// The services on the path of each request.
pub const PATHS: [(&str, [&str; 3]); 2] =
    [("/pay", ["frontend", "payment", "shipping"]), ("/list", ["frontend", "catalog", "stock"])];

/// A running process. Dropping it kills the process.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts it with output to `log`.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let out = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
        let program = command.get_program().display().to_string();
        let command = command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        Ok(Self(command.spawn().with_context(|| format!("{program} does not start"))?))
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Kills it (SIGKILL).
    pub fn kill(mut self) {
        self.end();
    }

    /// Asks it to end (SIGTERM), and waits until it has.
    ///
    /// # Errors
    ///
    /// It cannot be waited for.
    pub fn finish(mut self) -> Result<()> {
        // Fails only if it has ended already.
        _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        self.0.wait()?;
        Ok(())
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    fn end(&mut self) {
        // Fails only if it has ended already.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// A command for `program`, which the kernel kills when this process ends.
pub fn ending_with_us(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// OTLP addresses to which clients send.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    pub grpc: SocketAddr,
    pub http: SocketAddr,
}

/// All services of the shop.
#[derive(Debug)]
pub struct Shop {
    services: Vec<(&'static str, Process)>,
    /// Address of the frontend, for requests.
    pub frontend: SocketAddr,
    /// Address of payment, which can be made slow.
    pub payment: SocketAddr,
}

/// `N` free addresses.
///
/// # Errors
///
/// There are not enough.
pub fn free<const N: usize>() -> Result<[SocketAddr; N]> {
    let mut held = Vec::new();
    for _ in 0..N {
        held.push(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
    }
    let addresses = held.iter().map(TcpListener::local_addr).collect::<Result<Vec<_>, _>>()?;
    addresses.try_into().map_err(|_| anyhow::anyhow!("not as many addresses as asked for"))
}

impl Shop {
    /// Starts all services, and waits until each responds.
    ///
    /// # Errors
    ///
    /// A service does not start, or does not respond.
    pub async fn open(tools: &Tools, endpoint: Endpoint, logs: &Path) -> Result<Self> {
        let [frontend, payment, catalog, stock, shipping] = free()?;
        let url = |address: SocketAddr, path: &str| format!("http://{address}{path}");
        let (grpc, http) = (("grpc", endpoint.grpc), ("http/protobuf", endpoint.http));
        let services = [
            (
                "frontend",
                python(tools, frontend, [("/pay", url(payment, "/charge")), ("/list", url(catalog, "/goods"))]),
                grpc,
            ),
            ("catalog", python(tools, catalog, [("/goods", url(stock, "/count"))]), http),
            ("payment", node(tools, payment, [("/charge", url(shipping, "/ship"))]), http),
            ("stock", node(tools, stock, [("/count", String::new())]), grpc),
            ("shipping", rust(shipping)?, grpc),
        ];
        let mut shop = Self { services: Vec::new(), frontend, payment };
        for (name, mut command, (protocol, endpoint)) in services {
            command
                .env("OTEL_SERVICE_NAME", name)
                .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{endpoint}"))
                .env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
                .env("OTEL_TRACES_EXPORTER", "otlp")
                .env("OTEL_METRICS_EXPORTER", "otlp")
                .env("OTEL_LOGS_EXPORTER", "otlp")
                // The default of a minute is as long as the whole test.
                .env("OTEL_METRIC_EXPORT_INTERVAL", "5000");
            shop.services.push((name, Process::start(&mut command, &logs.join(format!("{name}.log")))?));
        }
        let clock = Stopwatch::start();
        for (route, _) in PATHS {
            while let Err(error) = load::get(frontend, route).await {
                ensure!(clock.elapsed() < START, "{route} gets no response, see {}: {error:#}", logs.display());
                shop.runs()?;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        Ok(shop)
    }

    /// Checks that all services are running.
    ///
    /// # Errors
    ///
    /// Names a service that has ended.
    pub fn runs(&mut self) -> Result<()> {
        for (name, process) in &mut self.services {
            ensure!(process.runs(), "{name} ended");
        }
        Ok(())
    }

    /// Number of services.
    pub fn services() -> usize {
        PATHS.iter().flat_map(|(_, path)| path).collect::<BTreeSet<_>>().len()
    }
}

fn routes<const N: usize>(port: u16, routes: [(&str, String); N]) -> Vec<String> {
    let route = |(path, url): (&str, String)| if url.is_empty() { path.to_owned() } else { format!("{path}={url}") };
    core::iter::once(port.to_string()).chain(routes.into_iter().map(route)).collect()
}

fn python<const N: usize>(tools: &Tools, address: SocketAddr, calls: [(&str, String); N]) -> Command {
    let mut command = ending_with_us(tools.python.join("bin/opentelemetry-instrument"));
    command.arg(tools.python.join("bin/python"));
    command.arg(support::workspace().join("tests/clients/service.py")).args(routes(address.port(), calls));
    command.env("OTEL_PYTHON_LOGGING_AUTO_INSTRUMENTATION_ENABLED", "true");
    command
}

fn node<const N: usize>(tools: &Tools, address: SocketAddr, calls: [(&str, String); N]) -> Command {
    let mut command = ending_with_us("node");
    command.args(["--require", "@opentelemetry/auto-instrumentations-node/register", "service.cjs"]);
    command.args(routes(address.port(), calls)).current_dir(&tools.node);
    command
}

fn rust(address: SocketAddr) -> Result<Command> {
    let mut command = ending_with_us(std::env::current_exe()?);
    command.args(["clients", "--service", &address.port().to_string()]);
    Ok(command)
}
