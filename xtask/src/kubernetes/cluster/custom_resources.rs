//! Custom resources of a namespace, and what an operator sees of them: by kubectl, its plugin, and the controller.

use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::super::chart::CHART;
use super::kit::Cluster;
use super::steps::Steps;
use super::upstream::Upstream;
use super::{definitions, traces};

const CRD_CHART: &str = "k8s/chart-crds";
/// Rows of a service that has them every 100 ms otherwise.
const SLOWER: &str = "apiVersion: uview.dev/v1alpha1
kind: Lmap
metadata: {name: slower, namespace: shop}
spec:
  selector: {matchLabels: {app: gateway}}
  interval: 200ms
";
/// `$1`: the folder of the plugin, `$2`: words of a training. It is killed while its recorder runs in the container.
/// The container's processes are seen here, too.
const KILL_TRAINING: &str = r#"PATH=$1:$PATH
recorders() { for of in /proc/[0-9]*/cmdline; do tr '\0' ' ' 2>/dev/null <$of | grep '^uview record '; done 2>/dev/null; }
kubectl uview $2 >/dev/null 2>&1 & train=$!
for _ in $(seq 100); do [ -n "$(recorders)" ] && break; sleep 0.2; done
[ -n "$(recorders)" ] || { kill -9 $train; echo 'nothing is recorded'; exit; }
kill -9 $train
for _ in $(seq 100); do [ -n "$(recorders)" ] || { echo 'the recorder has ended'; exit; }; sleep 0.2; done
echo "it goes on: $(recorders)""#;
/// A younger one for the same service.
const SECOND: &str = "apiVersion: uview.dev/v1alpha1
kind: Lmap
metadata: {name: second, namespace: shop}
spec:
  workload: {name: gateway}
  interval: 500ms
";
/// Half of the traces through one of the workloads that send spans.
const POLICY: &str = "apiVersion: uview.dev/v1alpha1
kind: SamplingPolicy
metadata: {name: half, namespace: market}
spec:
  workload: {name: payment}
  share: 0.5
  reasons: [error]
";

/// Makes the kinds known.
///
/// # Errors
///
/// The kit refuses one.
pub fn define(cluster: &Cluster) -> Result<()> {
    // helm asks the core for its version, which is too old; custom resources are those of a current server.
    let crds = cluster.template(&format!("uview-crds {CRD_CHART} --kube-version 1.25.0"))?;
    cluster.crd(&cluster.file("crds.yaml", crds.as_bytes())?).map(drop)
}

/// The kinds come when the agents have been running for long; an `Lmap` sets an interval, and its removal sets it back.
///
/// # Errors
///
/// Not within two minutes.
pub fn check(cluster: &Cluster, (values, upstream): (&str, &Upstream), steps: &mut Steps) -> Result<()> {
    const SERVICE: &str = "shop/gateway";
    steps.run("custom resources: their chart, while the agents run", || define(cluster))?;
    definitions::check(cluster, steps)?;
    let interval = |micros: u64| {
        let what = format!("{SERVICE} has a row every {micros} µs");
        cluster.until(&what, |status| status.lmap(SERVICE)["interval_us"] == micros)
    };
    steps.run("an Lmap sets the interval of its workload; the node says so", || {
        // Both at once: the node tells of changes every 30 s.
        cluster.apply("slower.yaml", SLOWER)?;
        cluster.apply("half.yaml", POLICY)?;
        interval(200_000)?;
        says(cluster, ("lmaps", "slower"), |conditions| conditions["Applied"] == "True")
    })?;
    steps.run("a SamplingPolicy is in effect; the node says so", || {
        says(cluster, ("samplingPolicies", "half"), |conditions| conditions["Applied"] == "True")
    })?;
    traces::share(cluster, upstream, steps)?;
    steps.run("the controller, turned on: the status of both on all nodes, and events", || {
        cluster.helm(&format!("upgrade uview {CHART} -n uview -f {values} --set controller.enabled=true"))?;
        cluster.sh("kubectl -n uview rollout status deploy/uview-controller --timeout=150s")?;
        has_status(cluster, "shop", "lmap/slower")?;
        has_status(cluster, "market", "samplingpolicy/half")?;
        // The report of a node that is gone is deleted after five minutes: whether it may is all that is seen here.
        let may =
            "kubectl auth can-i delete lmapnodestatuses.uview.dev --as system:serviceaccount:uview:uview-controller";
        cluster.sh(may).map(drop)
    })?;
    steps.run("a second Lmap for the same workload: the first stays, the node says why", || {
        cluster.apply("second.yaml", SECOND)?;
        says(cluster, ("lmaps", "second"), |conditions| {
            conditions["Applied"] == "False" && conditions["Conflicted"] == "True"
        })?;
        let status = cluster.status()?;
        ensure!(status.lmap(SERVICE)["interval_us"] == 200_000, "{status}");
        println!("{}{}", cluster.sh("kubectl -n shop get lmaps")?, cluster.sh("kubectl get lmapnodestatuses")?);
        Ok(())
    })?;
    steps.run("the first is deleted: the second is in effect; then both are, and nothing is", || {
        cluster.sh("kubectl -n shop delete lmap slower")?;
        interval(500_000)?;
        cluster.sh("kubectl -n shop delete lmap second")?;
        interval(100_000)
    })
}

/// Waits until an object is in effect on the one node, by its own status, and an event says so.
fn has_status(cluster: &Cluster, namespace: &str, object: &str) -> Result<()> {
    Cluster::until_some(&format!("{object} has a status"), || {
        let of: Value = serde_json::from_str(&cluster.sh(&format!("kubectl -n {namespace} get {object} -o json"))?)?;
        let status = &of["status"];
        ensure!(states(&status["conditions"])?["Applied"] == "True" && status["nodesApplied"] == 1, "{status}");
        let events = cluster.sh(&format!("kubectl -n {namespace} get events.events.k8s.io"))?;
        let told = events.lines().find(|line| line.contains(object)).with_context(|| events.clone())?;
        println!("{}{told}", cluster.sh(&format!("kubectl -n {namespace} get {object}"))?);
        Ok(())
    })
}

/// Waits until the node's object says of an object of one kind what `holds` of its conditions.
fn says(cluster: &Cluster, (kind, name): (&str, &str), holds: impl Fn(&Value) -> bool) -> Result<()> {
    Cluster::until_some(&format!("the node's status tells of {name}"), || {
        let report: Value = serde_json::from_str(&cluster.sh("kubectl get lmapnodestatus lab -o json")?)?;
        let mut objects = report[kind].as_array().context("it has objects")?.iter();
        let of = objects.find(|of| of["name"] == name).with_context(|| format!("nothing of {name}: {report}"))?;
        ensure!(holds(&states(&of["conditions"])?), "{of}");
        Ok(())
    })
}

/// The status of each condition, by its type.
fn states(conditions: &Value) -> Result<Value> {
    let conditions = conditions.as_array().context("it has conditions")?.iter();
    let states = conditions.filter_map(|of| Some((of["type"].as_str()?.to_owned(), of["status"].clone())));
    Ok(Value::Object(states.collect()))
}

/// kubectl finds the plugin by the name of its file, and the plugin finds the agent of the node.
///
/// # Errors
///
/// A command fails, or prints something else than the agent.
pub fn plugin(cluster: &Cluster, uview: &Path, steps: &mut Steps) -> Result<()> {
    steps.run("kubectl uview: status and lmap, of the only node and by its name; an unknown node is refused", || {
        let folder = tempfile::tempdir()?;
        symlink(uview.canonicalize()?, folder.path().join("kubectl-uview"))?;
        // 2: a service is in alarm.
        let run = |arguments: &str| {
            cluster.sh(&format!("PATH={}:$PATH kubectl uview {arguments} 2>&1 || [ $? = 2 ]", folder.path().display()))
        };
        let socket = super::kit::SOCKETS;
        let status = run(&format!("status --runtime-dir {socket}"))?;
        ensure!(status.contains("shop/store"), "{status}");
        let lmap = run(&format!("--node lab lmap shop/store --runtime-dir {socket}"))?;
        ensure!(lmap.contains("a row every 100 ms"), "{lmap}");
        let refused =
            cluster.sh(&format!("PATH={}:$PATH; ! kubectl uview --node other status 2>&1", folder.path().display()))?;
        ensure!(refused.contains("no host agent runs on other, but on lab"), "{refused}");
        println!("{lmap}");
        Ok(())
    })
}

/// The plugin trains a model on rows of the node, gives it to the agent there, and takes it back. When a training is
/// killed, the container's runtime ends the recorder's input.
///
/// # Errors
///
/// There is no model, the agent does not take it, or the recorder goes on.
pub fn training(cluster: &Cluster, uview: &Path, steps: &mut Steps) -> Result<()> {
    steps.run("kubectl uview train, model set, model unset; a killed training leaves no recorder", || {
        let folder = tempfile::tempdir()?;
        symlink(uview.canonicalize()?, folder.path().join("kubectl-uview"))?;
        // It has visitors: of what does not move nothing can be learnt.
        let (path, model) = (folder.path().display(), folder.path().join("payment.model"));
        let words = format!("train market/payment --out {} --runtime-dir {}", model.display(), super::kit::SOCKETS);
        let trained = cluster.sh(&format!("PATH={path}:$PATH kubectl uview {words} --for-s 10 2>&1"))?;
        ensure!(trained.contains("market/payment: ") && model.is_file(), "{trained}");
        let change = |words: &str| {
            let words = format!("{words} --runtime-dir {}", super::kit::SOCKETS);
            cluster.sh(&format!("PATH={path}:$PATH kubectl uview model {words} 2>&1"))
        };
        let given = change(&format!("set market/payment {}", model.display()))?;
        ensure!(given.contains("market/payment: judged by this model from its next row on"), "{given}");
        let back = change("unset market/payment")?;
        ensure!(back.contains("market/payment: learns by itself again"), "{back}");
        let killed = cluster.sh(&format!("set -- {path} '{words}'; {KILL_TRAINING}"))?;
        ensure!(killed.contains("the recorder has ended"), "{killed}");
        println!("{trained}{given}");
        Ok(())
    })
}
