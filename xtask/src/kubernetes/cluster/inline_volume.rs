//! The CSI driver in its container: its mounts reach the node and go again, and its socket is where kubelet looks.
//!
//! A kubelet before 1.26 sends a socket's path as HTTP/2's authority, which is none, and the driver's library refuses
//! it as the standard asks (kubernetes/kubernetes#112597). Where the kit's is so old, a test plays its part, on the
//! node.

use anyhow::{Context as _, Result, ensure};
use support::programs::Programs;

use super::super::chart::CHART;
use super::kit::Cluster;
use super::steps::Steps;

/// The driver's socket for kubelet.
const SOCKET: &str = "$N/kubelet/plugins_registry/sockets.uview.dev-reg.sock";

/// Turns the driver on, mounts by it, and turns it off again.
///
/// # Errors
///
/// The first check that fails.
pub fn check(cluster: &Cluster, values: &str, steps: &mut Steps) -> Result<()> {
    let upgrade = |set: &str| {
        cluster.helm(&format!("upgrade uview {CHART} -n uview -f {values} {set}"))?;
        cluster.rolled_out("host-agent")
    };
    let test = Programs::of_tests()?.path("csi")?.display().to_string();
    steps.run("CSI driver, turned on: it listens where kubelet looks", || {
        upgrade("--set csi.enabled=true,csi.kubeletDir=$N/kubelet")?;
        Cluster::until_some("the driver's socket is there", || cluster.sh(&format!("test -S {SOCKET}")))
    })?;
    let said = steps.run("an inline volume, by a test in kubelet's place: on the node, and taken away", || {
        let arguments = "--ignored --exact --nocapture tests::\
                         a_driver_in_its_container_mounts_on_the_node_and_takes_the_mount_away";
        cluster.sh(&format!("UVIEW_KUBELET_DIR=$N/kubelet {test} {arguments} 2>&1"))
    })?;
    ensure!(said.contains("1 passed"), "{said}");
    println!("{}", said.lines().find(|line| line.contains("nosuid")).context("no mount is named")?);
    steps.run("CSI driver, turned off: its sockets are gone", || {
        upgrade("")?;
        cluster.sh(&format!("test ! -e {SOCKET}")).map(drop)
    })
}
