//! The chart on a real one-node cluster: installed, watched workloads, faults, rollouts, traces, an upgrade, kills, and
//! removed again.

mod api_server;
mod custom_resources;
mod dry_run;
mod inline_volume;
mod kit;
mod packets;
mod quick_start;
mod scaling;
mod scraping;
mod tokens;
mod traces;
mod upstream;
mod workloads;

use std::cell::Cell;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::chart::CHART;
use crate::clock;
use crate::release::ENTRYPOINT;
use crate::release::image::{self, Image};
use kit::{Cluster, SOCKETS, STATE, Status};
pub use traces::has_iptables;
use traces::{UPSTREAM, Way};

const IMAGE: &str = "localhost/uview:0.1.0";

/// What the kit cannot show, and why.
pub const CANNOT: [(&str, &str); 7] = [
    ("cgroup v2, CRI-O and systemd's driver", "no kit has them; pure tests have recorded paths only"),
    ("several nodes, a DPU cluster", "the kit has one node"),
    ("Pod Security admission", "Kubernetes 1.20 has none"),
    ("DNS and kube-proxy", "the kit has neither: pods speak by addresses, services by rules of iptables"),
    ("300 running pods", "the kubelet runs 110: most of the 300 wait for a volume, or are refused"),
    ("Kata and gVisor", "the kit has runc only"),
    ("a CSI volume by kubelet itself", "the kit's kubelet is older than 1.26; a test plays its part"),
];

/// Values of the test: ten samples a second, so that an LMAP is armed after 12 s and not after two minutes; and traces
/// that are decided after two seconds and not after a minute.
fn values() -> String {
    format!(
        "hostAgent:
  socketDir: {SOCKETS}
  stateDir: {STATE}
  config:
    lmap: {{interval_ms: 100}}
    sources: {{cgroup_interval_ms: 100, cgroup_scan_ms: 1000}}
    otlp: {{traces: {{decision_wait_ms: 2000}}}}
otlp: {{upstream: {{endpoint: 'http://{UPSTREAM}', protocol: http}}}}
"
    )
}

/// Brings a cluster up with `kit`, runs everything on it, and takes it down.
///
/// # Errors
///
/// The first check that fails.
pub fn check(helm: &Path, uview: &Path, kit: &Path) -> Result<()> {
    let cluster = Cluster::new(kit, helm, uview)?;
    let mut steps = Steps(Vec::new());
    steps.run("cluster", || cluster.up())?;
    let checked =
        run(&cluster, uview, &mut steps).and_then(|()| quick_start::check(&cluster, (helm, uview), &mut steps));
    let logs = checked.is_err().then(|| cluster.logs());
    cluster.down()?;
    println!("{}", steps.0.join("\n"));
    checked.with_context(|| logs.unwrap_or_default())
}

/// What each step took.
struct Steps(Vec<String>);

impl Steps {
    fn run<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        let (result, took) = clock::timed(step);
        self.0.push(format!("{name:<86} {:6.1} s", took.as_secs_f64()));
        result.with_context(|| name.to_owned())
    }
}

fn run(cluster: &Cluster, uview: &Path, steps: &mut Steps) -> Result<()> {
    let values = cluster.file("values.yaml", values().as_bytes())?;
    let upstream = traces::listen(cluster)?;
    let way = Way::prepare(cluster)?;
    steps.run("image: packed and imported", || {
        let image = Image {
            name: IMAGE,
            architecture: "amd64",
            entrypoint: ENTRYPOINT,
            seconds: 0,
            created: "1970-01-01T00:00:00Z",
        };
        let archive = cluster.file("image.tar", &image.pack(image::program(uview, "uview", "cc")?)?)?;
        cluster.sh(&format!("$CTR images import {archive}"))
    })?;
    steps.run("helm install: both agents ready", || {
        cluster.sh("kubectl create namespace uview")?;
        cluster.helm(&format!("install uview {CHART} -n uview -f {values}"))?;
        cluster.rolled_out("host-agent")?;
        cluster.rolled_out("nic-agent")
    })?;
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
    custom_resources::check(cluster, &values, steps)?;
    packets::check(cluster, &values, steps)?;
    scaling::check(cluster, &values, steps)?;
    api_server::rights(cluster, steps)?;
    api_server::outages(cluster, steps)?;
    scraping::check(cluster, steps)?;
    learnt_survives(cluster, &values, steps)?;
    tokens::check(cluster, &values, steps)?;
    inline_volume::check(cluster, &values, steps)?;
    api_server::many_pods(cluster, steps)?;
    for agent in ["host-agent", "nic-agent"] {
        println!("{agent}: {} MiB resident", cluster.resident(agent)?);
    }
    steps.run("helm uninstall: no pod and no LMAP is left", || {
        cluster.helm("uninstall uview -n uview")?;
        cluster.sh("kubectl -n uview wait --for=delete pod -l app.kubernetes.io/name=uview --timeout=120s")?;
        let left = cluster
            .sh(&format!("ls -A {SOCKETS}; kubectl get clusterrole,clusterrolebinding -o name | grep uview || true"))?;
        ensure!(left.trim().is_empty(), "after uninstalling there is {left}");
        // Learnt models and the receipt's ledger outlive the agent on purpose: docs/kubernetes.md.
        cluster.sh(&format!("rm -rf {SOCKETS} {STATE}"))
    })?;
    Ok(())
}

/// What an LMAP has learnt survives a new configuration of the host agent, and a killed NIC agent.
fn learnt_survives(cluster: &Cluster, values: &str, steps: &mut Steps) -> Result<()> {
    let anew = Cell::new(false);
    let is_armed = |status: &Status| {
        anew.set(anew.get() || status.learns_anew("shop/store"));
        status.is_armed("shop/store")
    };
    steps.run("helm upgrade: a new host agent, nothing is learnt anew", || {
        let set = "--set hostAgent.config.log.level=debug";
        cluster.helm(&format!("upgrade uview {CHART} -n uview -f {values} {set}"))?;
        cluster.rolled_out("host-agent")?;
        cluster.until("shop/store is armed", is_armed)
    })?;
    steps.run("NIC agent killed: restarted, nothing is learnt anew", || {
        let pod = "kubectl -n uview get pod -l app.kubernetes.io/component=nic-agent -o";
        cluster.signal("KILL", &cluster.container("uview", "app.kubernetes.io/component=nic-agent")?)?;
        let restarts = format!("{pod} jsonpath='{{.items[0].status.containerStatuses[0].restartCount}}'");
        cluster.sh(&format!("for _ in $(seq 100); do [ \"$({restarts})\" = 1 ] && exit 0; sleep 0.2; done; exit 1"))?;
        cluster.rolled_out("nic-agent")?;
        cluster.until("shop/store is armed", is_armed)
    })?;
    ensure!(!anew.get(), "shop/store learnt anew");
    Ok(())
}
