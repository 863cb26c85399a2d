//! The API server: hundreds of pods at once, a kill, a cut network, and what the agent may ask.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use sha2::{Digest as _, Sha256};

use super::kit::{Cluster, SHELL};
use super::steps::Steps;

/// Pods that are created at once, and then deleted by half.
const PODS: u32 = 300;
/// Of the order in which pods come and go.
const SEED: u32 = 7;
/// How long the network between the agent and the API server is cut.
const CUT: Duration = Duration::from_secs(8);
/// What the agent's status says while the API server is away.
pub const PROBLEM: &str = "kubernetes: the pods of this node cannot be watched";
/// Keeps the command line, and kills it.
const KILL: &str = "cp /proc/$(<$N/kas.pid)/cmdline $N/kas.args; kill -9 $(<$N/kas.pid)";
/// The same command line with which the kit started it.
const RESTART: &str = "mapfile -t -d '' A <$N/kas.args; \"${A[@]}\" </dev/null >>$N/kas.log 2>&1 & echo $! >$N/kas.pid; \
                       for _ in $(seq 300); do kubectl get --raw /readyz >/dev/null 2>&1 && exit 0; sleep 0.1; done; exit 1";

/// Hundreds of pods come in any order, and half of them go: the agent knows as many as the API server.
///
/// # Errors
///
/// It knows others.
pub fn many_pods(cluster: &Cluster, steps: &mut Steps) -> Result<()> {
    let before = cluster.metric("uview_host_pods")?;
    let rss = cluster.resident("host-agent")?;
    let known = |count: f64| -> Result<()> {
        Cluster::until_some(&format!("the agent knows {count} pods"), || {
            let pods = cluster.metric("uview_host_pods")?;
            ensure!((pods - count).abs() < 0.5, "it knows {pods}");
            Ok(())
        })
    };
    steps.run("300 pods in random order: the agent knows all", || {
        let mut manifest = "apiVersion: v1\nkind: Namespace\nmetadata: {name: many}\n".to_owned();
        for number in shuffled("create") {
            // Bound to the node, they wait for a volume for ever; the kubelet refuses those over its limit of 110.
            writeln!(
                manifest,
                "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p{number}, namespace: many}}\nspec: {{nodeName: lab, \
                 automountServiceAccountToken: false, terminationGracePeriodSeconds: 0, volumes: [{{name: v, configMap: \
                 {{name: missing}}}}], containers: [{{name: c, image: '{SHELL}', imagePullPolicy: Never}}]}}"
            )?;
        }
        let file = cluster.file("many.yaml", manifest.as_bytes())?;
        cluster.sh(&format!("kubectl create --validate=false -f {file}"))?;
        known(before + f64::from(PODS))
    })?;
    let phases = "kubectl -n many get pod --no-headers | awk '{print $3}' | sort | uniq -c | tr -s ' \\n' ' '";
    let (phases, with) = (cluster.sh(phases)?, cluster.resident("host-agent")?);
    println!("300 pods:{phases}; the host agent has {with} MiB, and had {rss} before");
    steps.run("half of them deleted in random order: the agent knows the rest", || {
        let half = shuffled("delete").into_iter().take(PODS as usize / 2).map(|number| format!(" p{number}"));
        let names: String = half.collect();
        cluster.sh(&format!("kubectl -n many delete pod --force --grace-period=0 --wait=false{names} 2>&1"))?;
        known(before + f64::from(PODS / 2))
    })?;
    // The rest goes while other steps run.
    cluster.sh("kubectl delete namespace many --wait=false").map(drop)
}

/// Numbers of pods in an order that is the same in each run.
fn shuffled(what: &str) -> Vec<u32> {
    let mut numbers: Vec<_> = (1..=PODS).collect();
    numbers.sort_by_key(|number| Sha256::digest(format!("{SEED} {what} {number}")).to_vec());
    numbers
}

/// The API server is killed: what is watched stays watched, a fault is noticed, and pods are known again afterwards.
///
/// # Errors
///
/// Not so.
pub fn outages(cluster: &Cluster, steps: &mut Steps) -> Result<()> {
    let errors = cluster.metric("uview_host_pod_watch_errors")?;
    let cart = cluster.container("shop", "app=cart")?;
    steps.run("API server killed: a fault is noticed meanwhile, the status says what is amiss", || {
        kill(cluster)?;
        cluster.until("the agent says that pods cannot be watched", |status| status.has_problem(PROBLEM))?;
        let samples = cluster.metric("uview_host_cgroup_samples")?;
        cluster.signal("STOP", &cart)?;
        cluster.until("shop/cart is in alarm", |status| status.is_in_alarm_for("shop/cart", &["health"]))?;
        let counted = cluster.metric("uview_host_cgroup_samples")?;
        ensure!(counted > samples, "{counted} samples of cgroups, {samples} before");
        cluster.signal("CONT", &cart)
    })?;
    steps.run("API server restarted: the problem is gone, a new pod is known", || {
        restart(cluster)?;
        cluster.until("pods are watched", |status| !status.has_problem(PROBLEM))?;
        new_pod(cluster, "after-kill")
    })?;
    let counted = cluster.metric("uview_host_pod_watch_errors")?;
    ensure!(counted > errors, "{counted} errors of the watch, {errors} before");
    steps.run("network to the API server cut for 8 s: all stays watched, then a new pod is known", || {
        let agent = cluster.agent();
        // Nothing that the node says reaches the agent's pod.
        cluster.sh(&format!("ip route add blackhole {agent}/32"))?;
        let create = cluster.sh(&pod("during-cut"));
        let armed = cluster.stays(CUT, "shop/store is armed", |status| status.is_armed("shop/store"));
        cluster.sh(&format!("ip route del blackhole {agent}/32"))?;
        create?;
        armed?;
        is_known(cluster, "during-cut")
    })
}

/// Kills the API server.
///
/// # Errors
///
/// It does not run.
pub fn kill(cluster: &Cluster) -> Result<()> {
    cluster.sh(KILL).map(drop)
}

/// Starts the API server that was killed, and waits until it is ready.
///
/// # Errors
///
/// It is not within half a minute.
pub fn restart(cluster: &Cluster) -> Result<()> {
    cluster.sh(RESTART).map(drop)
}

/// The command that creates a pod.
fn pod(name: &str) -> String {
    let wait = "--restart=Never --image-pull-policy=Never --command -- sleep 3600";
    format!("kubectl run {name} --image={SHELL} {wait}")
}

/// A pod that is created is known.
///
/// # Errors
///
/// It is not within two minutes.
pub fn new_pod(cluster: &Cluster, name: &str) -> Result<()> {
    create_pod(cluster, name)?;
    is_known(cluster, name)
}

/// Creates a pod, which does nothing.
///
/// # Errors
///
/// The API server refuses it.
pub fn create_pod(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.sh(&pod(name)).map(drop)
}

/// Waits until the agent reads a pod, under its name. The number of pods says less: others may go meanwhile.
///
/// # Errors
///
/// It does not within two minutes.
pub fn is_known(cluster: &Cluster, name: &str) -> Result<()> {
    let service = format!("default/{name}");
    cluster.until("the new pod is known", |status| status.services().contains(&service.as_str()))
}

/// The host agent's service account may list and watch pods, `PodMonitor`s, `Lmap`s and both kinds of policies, and
/// write the status of a node; the NIC agent has none.
///
/// # Errors
///
/// More is allowed, or less.
pub fn rights(cluster: &Cluster, steps: &mut Steps) -> Result<()> {
    steps.run("rights: the agent's service account lists and watches, and nothing else", || {
        let can = |what: &str| {
            let asked = format!("kubectl auth can-i {what} -A --as=system:serviceaccount:uview:uview || true");
            Ok::<_, anyhow::Error>(cluster.sh(&asked)?.contains("yes"))
        };
        for (what, is_allowed) in [
            ("list pods", true),
            ("watch pods", true),
            ("watch podmonitors.monitoring.coreos.com", true),
            ("get pods", false),
            ("delete pods", false),
            ("create pods/exec", false),
            ("list secrets", false),
            ("list nodes", false),
            ("patch podmonitors.monitoring.coreos.com", false),
            ("watch lmaps.uview.dev", true),
            ("patch lmaps.uview.dev", false),
            ("watch synopsispolicies.uview.dev", true),
            ("patch synopsispolicies.uview.dev", false),
            ("patch lmapnodestatuses.uview.dev", true),
            ("delete lmapnodestatuses.uview.dev", false),
        ] {
            ensure!(can(what)? == is_allowed, "`{what}` is {}", if is_allowed { "not allowed" } else { "allowed" });
        }
        let of_nic = "kubectl -n uview get pod -l app.kubernetes.io/component=nic-agent -o json";
        let has_token = cluster.sh(of_nic)?.contains("/var/run/secrets/kubernetes.io/serviceaccount");
        ensure!(!has_token, "the NIC agent's pod has a token");
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_each_pod_once_and_is_the_same_again() {
        let order = shuffled("create");
        let mut sorted = order.clone();
        sorted.sort_unstable();

        assert_eq!(sorted, (1..=PODS).collect::<Vec<_>>());
        assert_eq!(order, shuffled("create"));
        assert!(order != sorted && order != shuffled("delete"));
    }
}
