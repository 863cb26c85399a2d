//! The chart on a real one-node cluster: installed, watched workloads, a fault, an upgrade, a kill, and removed again.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use support::workspace;

use super::chart::CHART;
use super::output;
use crate::clock;
use crate::release::ENTRYPOINT;
use crate::release::image::{self, Image};

const IMAGE: &str = "localhost/uview:0.1.0";
/// An image of the kit, with a shell.
const SHELL: &str = "lab.invalid/agent:1";
/// Values of the test: ten samples a second, so that an LMAP is armed after 12 s and not after two minutes; and
/// directories that no other agent of this machine uses.
const VALUES: &str = "hostAgent:
  socketDir: /run/uview-chart
  stateDir: /var/lib/uview-chart
  config: {lmap: {interval_ms: 100}, sources: {cgroup_interval_ms: 100, cgroup_scan_ms: 1000}}";
/// Two workloads that are busy in the same way all the time: a Deployment of two replicas, and a StatefulSet.
const SHOP: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: payment, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: payment}}
  template:
    metadata: {labels: {app: payment}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: app, image: IMAGE, imagePullPolicy: Never, command: [sh, -c, WORK]}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store, namespace: shop}
spec:
  serviceName: store
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: app, image: IMAGE, imagePullPolicy: Never, command: [sh, -c, WORK]}]
";
const WORK: &str = r#""while :; do i=0; while [ $i -lt 300 ]; do i=$((i+1)); done; sleep 0.02; done""#;
/// One more process in the container that takes all it can get.
const HOG: &str = "kubectl -n shop exec deploy/payment -- sh -c '(while :; do :; done) >/dev/null 2>&1 &'";
const WITHIN: Duration = Duration::from_mins(2);

/// Brings a cluster up with `kit`, runs everything on it, and takes it down.
///
/// # Errors
///
/// The first check that fails.
pub fn check(helm: &Path, uview: &Path, kit: &Path) -> Result<()> {
    let cluster = Cluster { script: kit.join("cluster.sh"), helm: helm.canonicalize().unwrap_or_else(|_| helm.into()) };
    let mut steps = Times(Vec::new());
    steps.run("cluster", || output(Command::new(&cluster.script).arg("up")))?;
    let checked = run(&cluster, uview, &mut steps);
    let logs = checked.is_err().then(|| cluster.logs());
    output(Command::new(&cluster.script).arg("down"))?;
    println!("{}", steps.0.join("\n"));
    checked.with_context(|| logs.unwrap_or_default())
}

/// What each step took.
struct Times(Vec<String>);

impl Times {
    fn run<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        let (result, took) = clock::timed(step);
        self.0.push(format!("{name:<60} {:6.1} s", took.as_secs_f64()));
        result.with_context(|| name.to_owned())
    }
}

struct Cluster {
    script: PathBuf,
    helm: PathBuf,
}

impl Cluster {
    /// Runs `command` in the cluster's namespaces, in the workspace.
    fn sh(&self, command: &str) -> Result<String> {
        let mut script = Command::new(&self.script);
        output(script.args(["sh", command]).current_dir(workspace())).with_context(|| command.to_owned())
    }

    fn helm(&self, arguments: &str) -> Result<String> {
        self.sh(&format!("{} {arguments} 2>&1", self.helm.display()))
    }

    /// Runs `uview ARGUMENTS` in the host agent's container.
    fn uview(&self, arguments: &str) -> Result<String> {
        // It ends with 2 where a service is in alarm.
        let exec = "kubectl -n uview exec ds/uview-host-agent -- uview";
        self.sh(&format!("{exec} {arguments} --runtime-dir /run/uview-chart 2>&1 || [ $? = 2 ]"))
    }

    /// The LMAPs of `uview status`.
    fn lmaps(&self) -> Result<Vec<Value>> {
        let text = self.uview("status --json")?;
        let end = text.rfind('}').context("the status is JSON")?;
        let status: Value = serde_json::from_str(text.get(..=end).unwrap_or_default())?;
        Ok(status["lmaps"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until `what` is true of the LMAPs.
    fn until(&self, what: &str, holds: impl Fn(&[Value]) -> bool) -> Result<()> {
        let deadline = clock::Deadline::after(WITHIN);
        loop {
            // The agent may be starting.
            let lmaps = self.lmaps();
            if lmaps.as_ref().is_ok_and(|lmaps| holds(lmaps)) {
                return Ok(());
            }
            ensure!(!deadline.is_over(), "not within {WITHIN:?}: {what}; {lmaps:#?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn rolled_out(&self, agent: &str) -> Result<String> {
        self.sh(&format!("kubectl -n uview rollout status ds/uview-{agent} --timeout=60s"))
    }

    fn logs(&self) -> String {
        let of = "for of in host nic; do kubectl -n uview logs --tail=30 ds/uview-$of-agent; done; kubectl get pod -A";
        self.sh(of).unwrap_or_else(|error| format!("{error:#}"))
    }
}

fn named<'a>(lmaps: &'a [Value], service: &str) -> Option<&'a Value> {
    lmaps.iter().find(|lmap| lmap["service"] == service)
}

fn is_armed(lmaps: &[Value], service: &str) -> bool {
    named(lmaps, service).is_some_and(|lmap| lmap["state"] == "armed")
}

fn run(cluster: &Cluster, uview: &Path, steps: &mut Times) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = |name: &str, bytes: &[u8]| -> Result<String> {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes)?;
        Ok(path.display().to_string())
    };
    let values = file("values.yaml", VALUES.as_bytes())?;
    let shop = file("shop.yaml", SHOP.replace("IMAGE", SHELL).replace("WORK", WORK).as_bytes())?;
    steps.run("image: packed and imported", || {
        let image = Image {
            name: IMAGE,
            architecture: "amd64",
            entrypoint: ENTRYPOINT,
            seconds: 0,
            created: "1970-01-01T00:00:00Z",
        };
        let archive = file("image.tar", &image.pack(image::program(uview, "uview", "cc")?)?)?;
        cluster.sh(&format!("$CTR images import {archive}"))
    })?;
    steps.run("helm install: both agents ready", || {
        cluster.sh("kubectl create namespace uview")?;
        cluster.helm(&format!("install uview {CHART} -n uview -f {values}"))?;
        cluster.rolled_out("host-agent")?;
        cluster.rolled_out("nic-agent")
    })?;
    steps.run("helm test", || cluster.helm("test uview -n uview --timeout 60s"))?;
    steps.run("unchanged pods are named by workload, and armed", || {
        cluster.sh(&format!("kubectl apply --validate=false -f {shop}"))?;
        cluster.until("shop/payment with two replicas and shop/store are armed", |lmaps| {
            let replicas = named(lmaps, "shop/payment").map(|lmap| lmap["replicas"] == 2);
            replicas == Some(true) && is_armed(lmaps, "shop/payment") && is_armed(lmaps, "shop/store")
        })
    })?;
    let services: Vec<_> = cluster.lmaps()?.iter().map(|lmap| lmap["service"].to_string()).collect();
    ensure!(services.len() == 2, "the agents' own pods, or containers of namespaces, are watched: {services:?}");
    println!("{}", cluster.uview("top --once")?);
    steps.run("a CPU hog in one replica: noticed, named by its workload", || {
        cluster.sh(HOG)?;
        cluster.until("shop/payment is in alarm for its CPU time", |lmaps| {
            named(lmaps, "shop/payment").is_some_and(|lmap| {
                lmap["alarm"] == true
                    && lmap["reasons"]
                        .as_array()
                        .is_some_and(|reasons| reasons.iter().any(|reason| reason["group"] == "cpu"))
            })
        })
    })?;
    println!("{}", cluster.uview("status")?);
    learnt_survives(cluster, &values, steps)?;
    steps.run("helm uninstall: no pod and no LMAP is left", || {
        cluster.helm("uninstall uview -n uview")?;
        cluster.sh("kubectl -n uview wait --for=delete pod -l app.kubernetes.io/name=uview --timeout=60s")?;
        let left = cluster
            .sh("ls -A /run/uview-chart; kubectl get clusterrole,clusterrolebinding -o name | grep uview || true")?;
        ensure!(left.trim().is_empty(), "after uninstalling there is {left}");
        // Learnt models and the receipt's ledger outlive the agent on purpose: docs/kubernetes.md.
        cluster.sh("rm -rf /run/uview-chart /var/lib/uview-chart")
    })?;
    Ok(())
}

/// What an LMAP has learnt survives a new configuration of the host agent, and a killed NIC agent.
fn learnt_survives(cluster: &Cluster, values: &str, steps: &mut Times) -> Result<()> {
    // Learning anew takes 12 s, in which it would be seen with some of its 120 rows.
    let anew = Cell::new(false);
    let is_armed = |lmaps: &[Value]| {
        let learning = named(lmaps, "shop/store").filter(|lmap| lmap["state"] == "learning");
        anew.set(anew.get() || learning.is_some_and(|lmap| lmap["rows"].as_u64() >= Some(20)));
        is_armed(lmaps, "shop/store")
    };
    steps.run("helm upgrade: a new host agent, nothing is learnt anew", || {
        let set = "--set hostAgent.config.log.level=debug";
        cluster.helm(&format!("upgrade uview {CHART} -n uview -f {values} {set}"))?;
        cluster.rolled_out("host-agent")?;
        cluster.until("shop/store is armed", is_armed)
    })?;
    steps.run("NIC agent killed: restarted, nothing is learnt anew", || {
        let pod = "kubectl -n uview get pod -l app.kubernetes.io/component=nic-agent -o";
        let id = format!("{pod} jsonpath='{{.items[0].status.containerStatuses[0].containerID}}'");
        cluster.sh(&format!("$CTR tasks kill -s KILL $({id} | sed 's#.*://##')"))?;
        let restarts = format!("{pod} jsonpath='{{.items[0].status.containerStatuses[0].restartCount}}'");
        cluster.sh(&format!("for _ in $(seq 100); do [ \"$({restarts})\" = 1 ] && exit 0; sleep 0.2; done; exit 1"))?;
        cluster.rolled_out("nic-agent")?;
        cluster.until("shop/store is armed", is_armed)
    })?;
    ensure!(!anew.get(), "shop/store learnt anew");
    Ok(())
}
