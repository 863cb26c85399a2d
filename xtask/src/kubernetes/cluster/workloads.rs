//! Workloads that are busy in the same way all the time, and the faults that are injected into them.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::kit::{Cluster, SHELL, Status};
use super::steps::Steps;

/// Busy for a while, then waits, and so on; ends with an error as soon as there is a file `/state/crash`.
const WORK: &str = "while [ ! -e /state/crash ]; do i=0; while [ $i -lt 300 ]; do i=$((i+1)); done; sleep 0.05; done; \
                    exit 1";
/// The same with sixty times as much to do: six times were within what a busy machine does to it.
const SLOWER: &str = "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.05; done";
/// Grows by 1 MB each tenth of a second, to 60 MB of the 128 that it may have.
const LEAK: &str = "awk 'BEGIN {for (i = 0; i < 600; i++) {a[i] = sprintf(\"%100000s\", \"\"); \
                    if (i % 10 == 0) system(\"sleep 0.1\")} system(\"sleep 3600\")}'";
/// How long a service has to stay quiet after its new pod has joined.
const QUIET: Duration = Duration::from_secs(8);

/// Kind, name and replicas of all workloads, in namespace `shop`.
const WORKLOADS: [(&str, &str, u32); 6] = [
    ("Deployment", "payment", 2),
    ("StatefulSet", "store", 1),
    ("Deployment", "cart", 1),
    ("Deployment", "search", 1),
    ("Deployment", "mail", 1),
    ("Deployment", "gateway", 1),
];

/// The manifest of a workload.
fn workload(kind: &str, name: &str, replicas: u32, version: &str, work: &str) -> String {
    let service = if kind == "StatefulSet" { format!("  serviceName: {name}\n") } else { String::new() };
    format!(
        "apiVersion: apps/v1
kind: {kind}
metadata: {{name: {name}, namespace: shop}}
spec:
{service}  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}, app.kubernetes.io/version: \"{version}\"}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: app
        image: {SHELL}
        imagePullPolicy: Never
        command: [sh, -c, \"{work}\"]
        resources: {{limits: {{memory: 128Mi}}}}
        volumeMounts: [{{name: state, mountPath: /state}}]
      volumes: [{{name: state, emptyDir: {{}}}}]
---
"
    )
}

/// Creates all workloads.
///
/// # Errors
///
/// The API server refuses one.
pub fn create(cluster: &Cluster) -> Result<()> {
    let mut manifest = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n".to_owned();
    manifest.extend(WORKLOADS.map(|(kind, name, replicas)| workload(kind, name, replicas, "1", WORK)));
    cluster.apply("shop.yaml", &manifest).map(drop)
}

/// Names of the services that the workloads are, in order.
pub fn services() -> Vec<String> {
    let mut all: Vec<_> = WORKLOADS.iter().map(|(_, name, _)| format!("shop/{name}")).collect();
    all.sort();
    all
}

/// Whether all workloads are watched, with all replicas, and known.
pub fn are_armed(status: &Status) -> bool {
    WORKLOADS.iter().all(|(_, name, replicas)| {
        let service = format!("shop/{name}");
        status.lmap(&service)["replicas"] == *replicas && status.is_armed(&service)
    })
}

/// Injects one fault after the other; each has to be noticed, and named by its workload.
///
/// # Errors
///
/// One is not noticed within two minutes.
pub fn faults(cluster: &Cluster, steps: &mut Steps) -> Result<()> {
    let noticed = |service: &str, groups: &[&str]| -> Result<()> {
        let what = format!("{service} is in alarm for {groups:?}");
        cluster.until(&what, |status| status.is_in_alarm_for(service, groups))?;
        println!("{}", cluster.status()?.reasons(service));
        Ok(())
    };
    steps.run("a CPU hog in one of two replicas: noticed, named by its workload and its pod", || {
        let first = "jsonpath={.items[0].metadata.name}";
        let pod = cluster.sh(&format!("kubectl -n shop get pods -l app=payment -o '{first}'"))?;
        // For a minute: later steps do not need a machine that is busy.
        let hog = "timeout 60 sh -c \"while :; do :; done\" >/dev/null 2>&1 &";
        cluster.sh(&format!("kubectl -n shop exec {} -- sh -c '{hog}'", pod.trim()))?;
        let what = format!("shop/payment is in alarm for the CPU time of {}", pod.trim());
        cluster.until(&what, |status| status.names_replica("shop/payment", "cpu", pod.trim()))?;
        println!("{}", cluster.status()?.reasons("shop/payment"));
        Ok(())
    })?;
    let cart = cluster.container("shop", "app=cart")?;
    steps.run("SIGSTOP of a container's processes: noticed, named by its workload", || {
        cluster.signal("STOP", &cart)?;
        noticed("shop/cart", &["health"])
    })?;
    cluster.signal("CONT", &cart)?;
    steps.run("memory grows, within its limit: noticed, named by its workload", || {
        cluster.sh(&format!("kubectl -n shop exec deploy/search -- sh -c '({}) >/dev/null 2>&1 &'", quoted(LEAK)))?;
        noticed("shop/search", &["memory"])
    })?;
    steps.run("a crash loop: noticed, named by its workload, which stays", || {
        cluster.sh("kubectl -n shop exec deploy/mail -- sh -c ': >/state/crash'")?;
        noticed("shop/mail", &["health"])
    })?;
    println!("{}", cluster.uview("status")?);
    cluster.sh("kubectl -n shop delete deploy mail search --wait=false")?;
    Ok(())
}

/// For a text that stands between single quotes.
fn quoted(text: &str) -> String {
    text.replace('\'', "'\\''")
}

/// A rollout that changes nothing but the version is no anomaly; one that needs sixty times as much is.
///
/// # Errors
///
/// The other way round.
pub fn rollouts(cluster: &Cluster, steps: &mut Steps) -> Result<()> {
    const SERVICE: &str = "shop/gateway";
    let roll_out = |version: &str, work: &str| {
        cluster.apply("gateway.yaml", &workload("Deployment", "gateway", 1, version, work))?;
        cluster.sh("kubectl -n shop rollout status deploy/gateway --timeout=150s")
    };
    steps.run("a good rollout: a change of version, no alarm, nothing learnt anew", || {
        // What others do to this machine is an alarm of its own: three in a row are not theirs. Nothing else has a
        // second try.
        for version in ["2", "2.1", "2.2"] {
            if good_rollout(cluster, || roll_out(version, WORK))? {
                return Ok(());
            }
            println!("{} after rollout {version}", cluster.status()?.reasons(SERVICE));
        }
        bail!("shop/gateway was in alarm in each of three rollouts")
    })?;
    steps.run("a bad rollout: noticed as soon as its pod has joined", || {
        roll_out("3", SLOWER)?;
        cluster
            .until("shop/gateway is in alarm for its CPU time", |status| status.is_in_alarm_for(SERVICE, &["cpu"]))?;
        println!("{}", cluster.status()?.reasons(SERVICE));
        Ok(())
    })
}

/// Rolls out what changes nothing; `roll_out` waits until Kubernetes is done. False if there was an alarm.
fn good_rollout(cluster: &Cluster, roll_out: impl FnOnce() -> Result<String>) -> Result<bool> {
    const SERVICE: &str = "shop/gateway";
    cluster.until("shop/gateway is not in alarm", |status| !status.is_in_alarm(SERVICE))?;
    let before = cluster.metric("uview_host_rollouts")?;
    roll_out()?;
    // Its only pod has gone, and the new one has not joined.
    cluster.until("shop/gateway has no replica", |status| status.lmap(SERVICE).is_null())?;
    let (alarm, anew) = (Cell::new(false), Cell::new(false));
    let is_armed = |status: &Status| {
        alarm.set(alarm.get() || status.is_in_alarm(SERVICE));
        anew.set(anew.get() || status.learns_anew(SERVICE));
        status.is_armed(SERVICE)
    };
    cluster.until("shop/gateway is armed again", is_armed)?;
    cluster.stays(QUIET, "shop/gateway is armed", is_armed)?;
    ensure!(!anew.get(), "shop/gateway learnt anew");
    let counted = cluster.metric("uview_host_rollouts")?;
    ensure!(counted > before, "{counted} rollouts were counted, {before} before");
    Ok(!alarm.get())
}
