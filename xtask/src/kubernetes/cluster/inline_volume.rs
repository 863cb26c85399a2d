//! The CSI driver by kubelet itself: an inline volume brings the sockets to a pod without rights and without hostPath, a
//! volume that may be written is refused in the pod's events, and both go with their pods.

use anyhow::{Result, ensure};

use super::kit::{Cluster, SOCKETS};
use super::{CHART, IMAGE, Steps};

/// Mounts of the driver's volumes, on the node.
const MOUNTS: &str = "grep -c 'volumes/kubernetes.io~csi/sockets/mount' /proc/self/mountinfo || true";

/// A pod of the level *restricted* that registers a service by the sockets in an inline volume.
fn pod(name: &str, is_read_only: bool) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: shop, labels: {{app: {name}}}}}
spec:
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  securityContext: {{runAsNonRoot: true, runAsUser: 4321, runAsGroup: 4321}}
  containers:
  - name: app
    image: {IMAGE}
    imagePullPolicy: Never
    args: [shop, --service, {name}, --listen, '0.0.0.0:8080', --admin, '0.0.0.0:8081', --socket, {SOCKETS}/services.sock]
    securityContext:
      allowPrivilegeEscalation: false
      capabilities: {{drop: [ALL]}}
    volumeMounts: [{{name: sockets, mountPath: {SOCKETS}}}]
  volumes: [{{name: sockets, csi: {{driver: sockets.uview.dev, readOnly: {is_read_only}}}}}]
"
    )
}

/// Turns the driver on, has a pod use it, and turns it off again.
///
/// # Errors
///
/// The first check that fails.
pub fn check(cluster: &Cluster, values: &str, steps: &mut Steps) -> Result<()> {
    let upgrade = |set: &str| {
        cluster.helm(&format!("upgrade uview {CHART} -n uview -f {values} {set}"))?;
        cluster.rolled_out("host-agent")
    };
    steps.run("CSI driver, turned on: kubelet knows it", || {
        upgrade("--set csi.enabled=true,csi.kubeletDir=$N/kubelet")?;
        Cluster::until_some("the node has the driver", || {
            let drivers = cluster.sh("kubectl get csinode lab -o jsonpath={.spec.drivers[*].name}")?;
            ensure!(drivers.contains("sockets.uview.dev"), "{drivers:?}");
            Ok(())
        })
    })?;
    steps.run("an inline volume: a pod without any right registers its service", || {
        cluster.apply("inline.yaml", &pod("inline", true))?;
        cluster.until("shop/inline has columns of its own", |status| {
            status.lmap("shop/inline")["columns"].as_u64() > Some(80)
        })?;
        let pid = "$($CTR tasks ps $(kubectl -n shop get pod inline \
                   -o jsonpath='{.status.containerStatuses[0].containerID}' | sed 's,.*//,,') | awk 'NR==2 {print $1}')";
        let mount = cluster.sh(&format!("grep ' {SOCKETS} ' /proc/{pid}/mountinfo"))?;
        let options = mount.split(' ').nth(5).unwrap_or_default();
        ensure!(["ro", "nosuid", "nodev", "noexec"].iter().all(|of| options.split(',').any(|is| is == *of)), "{mount}");
        println!("{mount}");
        Ok(())
    })?;
    steps.run("a volume that may be written: refused, and the pod's events say why", || {
        cluster.apply("writable.yaml", &pod("writable", false))?;
        Cluster::until_some("an event says why", || {
            let events = cluster.sh("kubectl -n shop describe pod writable")?;
            ensure!(events.contains("readOnly: true"), "{events}");
            Ok(())
        })
    })?;
    steps.run("the pods go: nothing is mounted any more; the driver, turned off", || {
        cluster.sh("kubectl -n shop delete pod inline writable --timeout=60s")?;
        let left = cluster.sh(MOUNTS)?;
        ensure!(left.trim() == "0", "{left} volumes are mounted");
        upgrade("")?;
        Cluster::until_some("the node has no driver", || {
            let drivers = cluster.sh("kubectl get csinode lab -o jsonpath={.spec.drivers[*].name}")?;
            ensure!(!drivers.contains("sockets.uview.dev"), "{drivers:?}");
            Ok(())
        })
    })
}
