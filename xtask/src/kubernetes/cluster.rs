//! The chart on a real one-node cluster: installed, watched workloads, faults, rollouts, traces, an upgrade, kills, and
//! removed again.

mod api_server;
mod custom_resources;
mod definitions;
mod dry_run;
mod inline_volume;
mod kit;
mod live_page;
mod long;
mod own_status;
mod packets;
mod quick_start;
mod scaling;
mod scraping;
mod steps;
mod tokens;
mod traces;
mod uninstall;
mod upstream;
mod watched_only;
mod workloads;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::chart::CHART;
use crate::release::{self, ReleasedImage};
use kit::{Cluster, IMAGE, SOCKETS, STATE, Status};
use steps::Steps;
use traces::{UPSTREAM, Way};

pub use long::Experiment;
pub use traces::has_iptables;

/// What the kit cannot show, and why.
pub const CANNOT: [(&str, &str); 10] = [
    ("cgroup v2, CRI-O and systemd's driver", "no kit has them; pure tests have recorded paths only"),
    ("several nodes, a DPU cluster", "the kit has one node"),
    ("Pod Security admission", "Kubernetes 1.20 has none"),
    (
        "DNS and kube-proxy, and so the name uview-otlp, and that its Service leads to the sender's own node",
        "the kit has neither: pods speak by addresses, services by rules of iptables; nor does its Kubernetes, 1.20.2, \
         know Services of one's own node",
    ),
    ("300 running pods", "the kubelet runs 110: most of the 300 wait for a volume, or are refused"),
    ("Kata and gVisor", "the kit has runc only"),
    (
        "objects of cert-manager, and a PodMonitor by the definition of Prometheus' operator",
        "the kit has neither: certificates are rendered only, a PodMonitor is read by a definition of the test's own",
    ),
    (
        "certificates of gossip by cert-manager's CSI driver, or of the node",
        "the kit has no such driver, and one node: pods are a dry run, certificates with these names are a test's own",
    ),
    (
        "an `Instrumentation` of the OpenTelemetry Operator",
        "the kit has no such operator: k8s/examples/instrumentation.yaml is an example only",
    ),
    ("a CSI volume by kubelet itself", "the kit's kubelet is older than 1.26; a test plays its part"),
];

/// What runs by hand only, and why.
pub const LONG: (&str, &str) = (
    "all services of the shop with faults, good rollouts of three replicas, a rolling upgrade under load, overload on a \
     HorizontalPodAutoscaler, ten minutes without an API server",
    "they take half an hour or so, by hand: cargo xtask kubernetes --long",
);

/// Values of the test: ten samples a second, so that an LMAP is armed after 12 s and not after two minutes; and traces
/// that are decided after so many milliseconds and not after a minute.
fn values(decision_wait_ms: u32) -> String {
    format!(
        "hostAgent:
  socketDir: {SOCKETS}
  stateDir: {STATE}
  config:
    lmap: {{interval_ms: 100}}
    sources: {{cgroup_interval_ms: 100, cgroup_scan_ms: 1000}}
    kubernetes: {{status_spread_ms: 2000}}
    otlp: {{traces: {{decision_wait_ms: {decision_wait_ms}}}}}
otlp: {{upstream: {{endpoint: 'http://{UPSTREAM}', protocol: http}}}}
"
    )
}

/// Brings a cluster up with `kit`, runs everything that CI does on it, and takes it down.
///
/// # Errors
///
/// The first check that fails.
pub fn check(helm: &Path, uview: &Path, kit: &Path) -> Result<()> {
    on_a_cluster((helm, uview), kit, |cluster, steps| {
        run(cluster, uview, steps)?;
        quick_start::check(cluster, (helm, uview), steps)
    })
}

/// The same with what takes long: all of it, unless some are named.
///
/// # Errors
///
/// The first check that fails.
pub fn check_long(helm: &Path, uview: &Path, kit: &Path, named: &[Experiment]) -> Result<()> {
    on_a_cluster((helm, uview), kit, |cluster, steps| {
        // The SDK's batches of one trace arrive within five seconds.
        let values = cluster.file("values.yaml", values(10_000).as_bytes())?;
        let upstream = traces::listen(cluster)?;
        let way = Way::prepare(cluster)?;
        import(cluster, uview, steps)?;
        long::run(cluster, (&values, &upstream, way), |steps| install(cluster, &values, steps), named, steps)
    })
}

/// Does `work` on a cluster, and says how long its steps took.
fn on_a_cluster(
    (helm, uview): (&Path, &Path),
    kit: &Path,
    work: impl FnOnce(&Cluster, &mut Steps) -> Result<()>,
) -> Result<()> {
    let cluster = Cluster::new(kit, helm, uview)?;
    let mut steps = Steps::default();
    steps.run("cluster", || cluster.up())?;
    let checked = work(&cluster, &mut steps);
    let logs = checked.is_err().then(|| cluster.logs());
    cluster.down()?;
    println!("{steps}");
    checked.with_context(|| logs.unwrap_or_default())
}

/// The image as a release has it, but for the program, which is `uview`: containerd knows it by the name that the
/// chart's values have.
fn import(cluster: &Cluster, uview: &Path, steps: &mut Steps) -> Result<()> {
    steps.run("image as a release has it: packed, imported, known to containerd", || {
        let ReleasedImage { name, archive: (file, bytes) } = release::image_of(uview)?;
        ensure!(name == IMAGE, "a release calls its image {name}, and these steps {IMAGE}");
        let archive = cluster.file(&file, &bytes)?;
        cluster.sh(&format!("$CTR images import {archive}"))?;
        let known = cluster.sh("$CTR images ls -q")?;
        ensure!(known.lines().any(|known| known == IMAGE), "containerd knows {known}");
        println!("{file}: {} MB", bytes.len() >> 20);
        Ok(())
    })
}

/// Both agents, by the chart.
fn install(cluster: &Cluster, values: &str, steps: &mut Steps) -> Result<()> {
    steps.run("helm install: both agents ready", || {
        cluster.sh("kubectl create namespace uview")?;
        cluster.helm(&format!("install uview {CHART} -n uview -f {values}"))?;
        cluster.rolled_out("host-agent")?;
        cluster.rolled_out("nic-agent")
    })
}

fn run(cluster: &Cluster, uview: &Path, steps: &mut Steps) -> Result<()> {
    let values = cluster.file("values.yaml", values(2_000).as_bytes())?;
    let upstream = traces::listen(cluster)?;
    let way = Way::prepare(cluster)?;
    import(cluster, uview, steps)?;
    install(cluster, &values, steps)?;
    dry_run::check(cluster, steps)?;
    steps.run("helm test", || cluster.helm("test uview -n uview --timeout 150s"))?;
    steps.run("unchanged pods are named by workload, and armed", || {
        workloads::create(cluster)?;
        cluster.until("all workloads are armed", workloads::are_armed)
    })?;
    let mut services: Vec<_> = cluster.status()?.services().into_iter().map(str::to_owned).collect();
    services.sort();
    ensure!(services == workloads::services(), "the agents' own pods, or others, are watched: {services:?}");
    println!("{}", cluster.uview("top --once")?);
    // They start and learn while faults are injected into the others.
    traces::create(cluster, way)?;
    scraping::create(cluster)?;
    workloads::faults(cluster, steps)?;
    workloads::rollouts(cluster, steps)?;
    traces::check(cluster, &upstream, steps)?;
    custom_resources::plugin(cluster, uview, steps)?;
    custom_resources::training(cluster, uview, steps)?;
    live_page::check(cluster, uview, steps)?;
    custom_resources::check(cluster, (&values, &upstream), steps)?;
    own_status::check(cluster, steps)?;
    packets::check(cluster, &values, steps)?;
    scaling::check(cluster, &values, steps)?;
    api_server::rights(cluster, steps)?;
    api_server::outages(cluster, steps)?;
    scraping::check(cluster, steps)?;
    learnt_survives(cluster, &values, steps)?;
    tokens::check(cluster, (&values, &upstream), steps)?;
    inline_volume::check(cluster, &values, steps)?;
    api_server::many_pods(cluster, steps)?;
    for agent in ["host-agent", "nic-agent"] {
        println!("{agent}: {} MiB resident", cluster.resident(agent)?);
    }
    uninstall::check(cluster, &values, steps)
}

/// What LMAPs have learnt survives a new configuration of the host agent, and a killed NIC agent: of a service that
/// works by itself, and of one with visitors, whose process registered and whose spans come.
fn learnt_survives(cluster: &Cluster, values: &str, steps: &mut Steps) -> Result<()> {
    // Without host ports, spans go on to the address of an agent's pod that is gone.
    let services: &[&str] = if traces::has_iptables() { &["shop/store", "market/payment"] } else { &["shop/store"] };
    let anew = RefCell::new(BTreeSet::<&str>::new());
    let judge = |status: &Status| {
        anew.borrow_mut().extend(services.iter().copied().filter(|service| status.learns_anew(service)));
        services.iter().all(|service| status.is_judged(service))
    };
    let what = format!("{} judge", services.join(" and "));
    // What they do at the beginning is not looked at.
    cluster.until(&what, |status| services.iter().all(|service| status.is_judged(service)))?;
    steps.run("helm upgrade: a new host agent, nothing is learnt anew, with visitors either", || {
        let set = "--set hostAgent.config.log.level=debug";
        cluster.helm(&format!("upgrade uview {CHART} -n uview -f {values} {set}"))?;
        cluster.rolled_out("host-agent")?;
        cluster.until(&what, judge)
    })?;
    steps.run("NIC agent killed: restarted, nothing is learnt anew", || {
        let pod = "kubectl -n uview get pod -l app.kubernetes.io/component=nic-agent -o";
        cluster.signal("KILL", &cluster.container("uview", "app.kubernetes.io/component=nic-agent")?)?;
        let restarts = format!("{pod} jsonpath='{{.items[0].status.containerStatuses[0].restartCount}}'");
        cluster.sh(&format!("for _ in $(seq 100); do [ \"$({restarts})\" = 1 ] && exit 0; sleep 0.2; done; exit 1"))?;
        cluster.rolled_out("nic-agent")?;
        cluster.until(&what, judge)
    })?;
    let anew = anew.into_inner();
    ensure!(anew.is_empty(), "they learnt anew: {anew:?}");
    Ok(())
}
