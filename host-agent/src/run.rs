//! Startup, servers and shutdown of the host agent.

mod host;
mod limits;
mod records;
mod servers;
mod tasks;
mod telemetry;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::chain;
use agent_runtime::descriptors;
use agent_runtime::live_tls::{LiveServer, ServerFiles};
use agent_runtime::reload::{self, Hangup};
use agent_runtime::server;
use otlp::Edge;
use tokio::runtime::Handle;
use tokio::task::JoinError;
use transport::verbs::DeviceChoice;
use webhooks::message::Sender;
use wire::id::Incarnation;
use wire::rdma::TRANSPORT;

use self::host::node_name;
pub(crate) use self::limits::{CALL_BYTES, METRICS_LIMITS, OPERATOR_LIMITS, WORKER_LIMITS, page_bytes};
use self::records::Records;
use self::servers::{MonitoringSources, serve};
use self::tasks::{Tasks, spawn, until_drained};
use self::telemetry::{Servers, Telemetry, TelemetrySettings};
use crate::clock::{self, Clock};
use crate::config::{self, Config, Rdma, Transport};
use crate::custom_objects::{self, CustomObjects, WatchedKinds};
use crate::listeners::Listeners;
use crate::live_page::OlderScores;
use crate::measuring::{Counts, MeasuringThreads};
use crate::node::Node;
use crate::pod_watch::{self, PodWatch};
use crate::prometheus;
use crate::region_registration::{self, Registrations, registrar, request};
use crate::reload::{AgentFiles, LiveLists, LiveParts, text_of};
use crate::remote_monitor::{Output, RemoteMonitor};
use crate::run_error::RunError;
use crate::runtime_folder::RuntimeFolder;
use crate::stored_models::StoredModels;
use crate::telemetry_threads::TelemetryThreads;
use crate::watched_sources::WatchedSources;
use crate::webhooks::Receivers;

/// Deadline of each shutdown step.
const DRAIN_WITHIN: Duration = Duration::from_secs(3);

/// The parts that change while the agent runs. Those of OTLP and gossip go into their settings, too.
fn live_parts(config: &Config, telemetry: &mut TelemetrySettings, monitors: &[Monitor]) -> Result<LiveParts, RunError> {
    let mut live = LiveParts::new(config)?;
    if let Some(peers) = &telemetry.peers {
        live.coherence = config.coherence.tls.as_ref().map(ServerFiles::load).transpose()?.map(LiveServer::new);
        live.peers.clone_from(&peers.tls);
        telemetry.gossip_tls.clone_from(&live.coherence);
    }
    if let (Some(otlp), Some(tls)) = (&mut telemetry.otlp, &live.otlp) {
        otlp.tls = Some(tls.config()?);
    }
    if let Some(otlp) = &mut telemetry.otlp {
        live.upstream = otlp.upstream.as_ref().and_then(|upstream| upstream.tls.clone());
        otlp.senders = live.senders.clone();
    }
    live.metrics_upstream = monitors.iter().find_map(|(_, output)| output.tls().cloned());
    for (_, output) in monitors {
        let of_monitor = match output {
            Output::RemoteWrite(_) => &mut live.headers.remote_write,
            Output::Otlp(_) => &mut live.headers.metrics_upstream,
        };
        *of_monitor = Some(output.headers().clone());
    }
    Ok(live)
}

/// A remote monitor, and the client that sends to it.
type Monitor = (Arc<RemoteMonitor>, Output);

/// The configured remote monitors.
fn monitors(config: &Config, clock: Clock) -> Result<Vec<Monitor>, RunError> {
    let began = clock::unix_now();
    let by_remote_write = config.remote_write.start(&node_name(config), began)?;
    let by_remote_write = by_remote_write.map(|(shipper, client)| (shipper, Output::RemoteWrite(Box::new(client))));
    let by_otlp = config.otlp_metrics.start(&node_name(config), began)?;
    let by_otlp = by_otlp.map(|(shipper, exporter)| (shipper, Output::Otlp(exporter)));
    let monitor = |(shipper, output)| (Arc::new(RemoteMonitor::new(shipper, clock)), output);
    Ok(by_remote_write.into_iter().chain(by_otlp).map(monitor).collect())
}

/// What all messages about alarms say of this node. The page is on loopback: where people reach it, only the link says.
fn alarm_sender(config: &Config) -> Sender {
    Sender { node: node_name(config), incident_link: config.page.incident_link.clone(), ..Sender::default() }
}

/// Feeds and sends to remote monitors until the node drains.
fn spawn_monitors(
    tasks: &mut Tasks,
    threads: &Handle,
    node: &Arc<Node>,
    edge: Option<&Arc<Edge>>,
    monitors: Vec<Monitor>,
) {
    for (remote, output) in monitors {
        let (rows, of, edge) = (Arc::clone(&remote), Arc::clone(node), edge.cloned());
        let rows = async move {
            rows.take_rows(&of, edge.as_deref()).await;
            Ok(())
        };
        tasks.spawn_on(rows, threads);
        let node = Arc::clone(node);
        let samples = async move {
            remote.send(&node, output).await;
            Ok(())
        };
        tasks.spawn_on(samples, threads);
    }
}

/// Writes what is kept on disk, when every span is decided or lost. A write that does not panic has no error.
async fn write_last(node: Arc<Node>, records: Records, models: Option<Arc<StoredModels>>) {
    let write = move || {
        records.receipts.close(&node);
        records.incidents.write(&node, true);
        if let Some(models) = models {
            models.write(&node);
        }
    };
    _ = tokio::task::spawn_blocking(write).await;
}

/// Runs the host agent until `shutdown` resolves. Then it sends what is queued, closes everything and removes its
/// files. Returns early only if it cannot start or if a server fails. Raises the limit of open files (RLIMIT_NOFILE) to
/// its hard limit. Needs a tokio runtime with time and network.
///
/// # Errors
///
/// [`RunError`]. No file is left behind.
pub async fn run(config: Config, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
    run_from(config, None, shutdown).await
}

/// Like [`run`], with the `file` that `config` was read from. Changes of the file, and of certificates that it names,
/// are taken over at SIGHUP, or within seconds.
///
/// # Errors
///
/// [`RunError`], as for [`run`].
pub async fn run_from(
    config: Config,
    file: Option<PathBuf>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    // 53 bits, so that JSON readers with double-precision numbers keep every digit.
    let incarnation = Incarnation(rand::random::<u64>() >> 11);
    // Before anybody can know that the agent runs, and send it signals or change its file.
    let (hangup, clock, text) = (Hangup::catch(), Clock::start(), text_of(file.as_deref()));
    let mut settings = config.settings(incarnation)?;
    let mut telemetry = TelemetrySettings::of(&config)?;
    let monitors = monitors(&config, clock)?;
    let plans = config.sources.prometheus.planned()?;
    let webhooks = config::planned_webhooks(&config.webhooks, &alarm_sender(&config))?;
    // Each remote monitor watches the rows of every service.
    let watchers = monitors.len() * config.services.limits.connections;
    let registrations = registrations(&config, &mut settings.transports)?;
    let (requests, inbox) = request::channel();
    let transports = settings.transports.join(", ");
    let mut live = live_parts(&config, &mut telemetry, &monitors)?;
    // One for samples to remote monitors, where there is no OTLP.
    let threads = if telemetry.otlp.is_some() { config.otlp.threads } else { Some(1) };
    let threads = TelemetryThreads::start(threads).map_err(RunError::Thread)?;
    // Each service takes about ten.
    let files = descriptors::raise_limit();
    // Each region takes a descriptor; one user's must not take those of another, or of connections.
    settings.limits.regions = settings.limits.regions.min(files / 2).max(1);
    // Before everything that has files there, so that it is dropped after all of that.
    let _runtime_folder = runtime_folder(&config)?;
    let mut listeners = Listeners::open(&config).await?;
    // Two more hooks: the receipt's, and that of incidents.
    let hooks = config.operators.hooks.get() + watchers + 2;
    let node = Arc::new(Node::new(settings, hooks, clock, registrations.is_some().then_some(requests)));
    if let Some(registrations) = registrations {
        registrar::start(registrations, inbox, &node).map_err(RunError::Thread)?;
    }
    let models = stored_models(&config, &node)?;
    let counts = Counts::default();
    let (pods, objects) = watch_pods(&config, &mut telemetry, &node, threads.handle())?;
    let measuring = MeasuringThreads::start(&config, files, &node, &counts, pods.clone())?;
    let announced = listeners.announce(&config.runtime_dir.0, incarnation)?;
    listeners.log_start(&config, incarnation, &transports);
    let otlp_listeners = core::mem::take(&mut listeners.otlp).into_iter().map(|(listener, _)| listener);
    let connections = Arc::new(server::Counts::default());
    let servers = Servers { access: live.access.clone(), connections: Arc::clone(&connections) };
    let telemetry = telemetry.start(&config, &threads, &node, otlp_listeners, servers).await?;
    let edge = sampling_edge(&telemetry, objects.as_deref());
    let older = older_scores(&config, clock, &mut live)?;
    live.headers.upstream = edge.as_deref().and_then(Edge::upstream_headers).cloned();
    let records = Records::start(&config, edge.as_ref(), (pods.clone(), clock), &node, threads.handle())?;
    let remotes = monitors.iter().map(|(remote, _)| Arc::clone(remote)).collect();
    let targets = prometheus::start(plans, pods.as_ref(), &node, threads.handle(), live.senders.clone());
    let watched = WatchedSources { targets: targets.all().clone(), exports: telemetry.exports.clone(), pods, objects };
    let (on, calls) = (threads.handle().clone(), telemetry.calls());
    let sources = {
        let (otlp, records, models) = (edge.clone(), records.clone(), models.clone());
        MonitoringSources { connections, counts, otlp, remotes, records, models, watched, older, calls, on }
    };
    let (mut tasks, sockets) = serve(&config, &node, &live, listeners, sources)?;
    if let Some(models) = &models {
        models.start(&node, threads.handle());
    }
    spawn_monitors(&mut tasks, threads.handle(), &node, edge.as_ref(), monitors);
    let webhooks = Receivers::start(webhooks, alarm_sender(&config), &node);
    let lists = LiveLists { targets, cgroups: measuring.cgroup_patterns(), webhooks };
    let files = AgentFiles::new((file, text), config, (live, lists), Arc::clone(&node));
    spawn(&mut tasks, until_drained(reload::watch(files, Arc::clone(&node.reloads), hangup), Arc::clone(&node)));
    let failed = tokio::select! {
        () = shutdown => None,
        () = node.run_deadlines() => None,
        Some(ended) = tasks.join_next() => Some(ended),
    };
    tracing::info!("host agent stopping");
    drop((announced, sockets));
    if models.is_some() {
        StoredModels::gather(&node).await;
    }
    node.drain();
    Shutdown { telemetry, tasks, measuring }.end().await;
    write_last(node, records, models).await;
    failed.map_or(Ok(()), outcome)
}

/// The directory of sockets, while the result lives.
fn runtime_folder(config: &Config) -> Result<RuntimeFolder, RunError> {
    let path = &config.runtime_dir.0;
    RuntimeFolder::make(path).map_err(|cause| RunError::Runtime { path: path.clone(), cause })
}

/// What became of a task that has ended by itself.
fn outcome(ended: Result<Result<(), RunError>, JoinError>) -> Result<(), RunError> {
    ended.unwrap_or_else(|error| Err(RunError::Server("services", error.into())))
}

/// What is stopped on shutdown, in this order.
struct Shutdown {
    telemetry: Telemetry,
    tasks: Tasks,
    measuring: MeasuringThreads,
}

impl Shutdown {
    /// Waits for queued output, up to [`DRAIN_WITHIN`] per step.
    async fn end(self) {
        let Self { telemetry: Telemetry { otlp, head_sampling, coherence, spans, .. }, mut tasks, measuring } = self;
        drop(head_sampling);
        if let Some(spans) = spans {
            // Services' span rings are read to the end before the endpoint stops. A task that does not panic has no
            // error.
            _ = tokio::time::timeout(DRAIN_WITHIN, spans).await;
        }
        let ending = tokio::time::timeout(DRAIN_WITHIN, async { while tasks.join_next().await.is_some() {} });
        let sending = async {
            if let Some(coherence) = coherence {
                coherence.end().await;
            }
            if let Some(otlp) = otlp {
                otlp.end(DRAIN_WITHIN).await;
            }
        };
        let (ended, ()) = tokio::join!(ending, sending);
        if ended.is_err() {
            tracing::warn!("shutdown timed out; some messages were not sent");
        }
        tasks.shutdown().await;
        _ = tokio::task::spawn_blocking(move || measuring.end()).await;
    }
}

/// The directory of models, if there is one. `node` keeps what the previous run stored.
fn stored_models(config: &Config, node: &Node) -> Result<Option<Arc<StoredModels>>, RunError> {
    let Some(path) = &config.lmap.models_dir else { return Ok(None) };
    let models = StoredModels::open(path, config.lmap.model_bytes);
    let models = models.and_then(|models| models.restore(node).map(|()| models));
    models.map(|models| Some(Arc::new(models))).map_err(|cause| RunError::Runtime { path: path.clone(), cause })
}

/// The Prometheus that the page asks for scores of before, if there is one. Its headers are a part of `live`.
fn older_scores(config: &Config, clock: Clock, live: &mut LiveParts) -> Result<Option<OlderScores>, RunError> {
    let prometheus = config.page.prometheus.as_ref();
    let older = prometheus.map(|prometheus| OlderScores::new(prometheus, clock)).transpose()?;
    live.headers.page = older.as_ref().map(|older| older.headers().clone());
    Ok(older)
}

/// What is known of the node's pods, and of the objects that say how they are watched and sampled.
type WatchedPods = (Option<Arc<PodWatch>>, Option<Arc<CustomObjects>>);

/// Starts to watch the node's pods, if `config` wants it; otherwise the folder of objects, if there is one. The OTLP
/// endpoint of `telemetry` will know the pods' addresses.
fn watch_pods(
    config: &Config,
    telemetry: &mut TelemetrySettings,
    node: &Arc<Node>,
    threads: &Handle,
) -> Result<WatchedPods, RunError> {
    let Some(plan) = config.kubernetes.plan()? else {
        let folder = config.resources.clone();
        return Ok((None, folder.map(|folder| custom_objects::start_from_files(folder, node, threads))));
    };
    let api = kube::Config::incluster().map_err(|error| RunError::Kubernetes(error.into()))?;
    let name = plan.node.clone();
    let pods = pod_watch::start(plan, api.clone(), node, threads);
    let kinds = WatchedKinds {
        lmaps: config.kubernetes.lmaps,
        sampling_policies: config.kubernetes.sampling_policies,
        synopsis_policies: config.kubernetes.synopsis_policies,
    };
    let spread = Duration::from_millis(config.kubernetes.status_spread_ms.into());
    let objects = kinds.any().then(|| custom_objects::start((name, api), (kinds, spread), &pods, node, threads));
    if let Some(otlp) = &mut telemetry.otlp {
        otlp.pods = Some(pods.senders());
    }
    Ok((Some(pods), objects))
}

/// The OTLP endpoint of `telemetry`, which `objects` are told of: there they say what is sampled.
fn sampling_edge(telemetry: &Telemetry, objects: Option<&CustomObjects>) -> Option<Arc<Edge>> {
    let edge = telemetry.edge().cloned();
    if let Some(objects) = objects {
        objects.set_edge(edge.clone());
    }
    edge
}

/// The RDMA device that `config` names.
pub(crate) fn device_choice(config: &Config) -> DeviceChoice {
    let Rdma { device, port, gid_index } = config.rdma.clone();
    DeviceChoice { name: device, port: port.map(core::num::NonZero::get), gid_index }
}

/// Region registration for workers that read by RDMA, if `config` wants it and this machine has a device. Puts the
/// transport's name before the others in `transports`, or in their place.
fn registrations(config: &Config, transports: &mut Vec<String>) -> Result<Option<Registrations>, RunError> {
    if config.transport == Transport::Shm {
        return Ok(None);
    }
    match region_registration::device(device_choice(config)) {
        Ok(open) => {
            if config.transport == Transport::Verbs {
                transports.clear();
            }
            transports.insert(0, TRANSPORT.to_owned());
            Ok(Some(Registrations::new(open)))
        }
        Err(error) if config.transport == Transport::Auto => {
            tracing::info!(why = chain(&error), "no RDMA on this machine; only local workers can read regions");
            Ok(None)
        }
        Err(error) => Err(RunError::Rdma(chain(&error))),
    }
}
