//! The chart is removed: without `keepState` nothing of it is left on the node.

use anyhow::{Result, ensure};

use super::super::chart::CHART;
use super::kit::{Cluster, SOCKETS, STATE};
use super::steps::Steps;

/// The pod of the host agent, by the number of its folder.
const POD: &str =
    "kubectl -n uview get pod -l app.kubernetes.io/component=host-agent -o jsonpath='{.items[0].metadata.uid}'";

/// Learnt models go with the pod; then all of the chart does.
///
/// # Errors
///
/// Something is left.
pub fn check(cluster: &Cluster, values: &str, steps: &mut Steps) -> Result<()> {
    let mut own = String::new();
    steps.run("helm upgrade, without keepState: what is learnt is the pod's own", || {
        cluster.helm(&format!("upgrade uview {CHART} -n uview -f {values} --set hostAgent.keepState=false"))?;
        cluster.rolled_out("host-agent")?;
        // Pods of the tests' shops have volumes of that name, too.
        own = format!("$N/kubelet/pods/{}/volumes/kubernetes.io~empty-dir/state", cluster.sh(POD)?.trim());
        // What earlier pods kept outlives them on purpose: docs/kubernetes.md.
        cluster.sh(&format!("rm -rf {STATE}"))?;
        Cluster::until_some("the agent keeps something", || {
            let kept = cluster.sh(&format!("ls -A {own}"))?;
            ensure!(!kept.trim().is_empty(), "nothing is kept");
            println!("kept by the pod: {}", kept.split_whitespace().collect::<Vec<_>>().join(", "));
            Ok(())
        })
    })?;
    steps.run("helm uninstall: no pod, socket, role or state is left", || {
        cluster.helm("uninstall uview -n uview")?;
        cluster.sh("kubectl -n uview wait --for=delete pod -l app.kubernetes.io/name=uview --timeout=120s")?;
        let look = format!(
            "ls -A {SOCKETS}; ls -d {STATE} {own} 2>/dev/null; \
             kubectl get clusterrole,clusterrolebinding -o name | grep uview || true"
        );
        // The kubelet removes a pod's folder a moment after the pod.
        Cluster::until_some("nothing is left", || {
            let left = cluster.sh(&look)?;
            ensure!(left.trim().is_empty(), "after uninstalling there is {left}");
            Ok(())
        })?;
        cluster.sh(&format!("rm -rf {SOCKETS}"))
    })?;
    Ok(())
}
