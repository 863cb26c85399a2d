//! Each file of values, applied server-side by an API server that keeps nothing.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use support::workspace;

use super::super::chart::CHART;
use super::kit::Cluster;
use super::steps::Steps;

/// Kinds that others define, with their groups: a cluster may have neither.
const OF_OTHERS: [(&str, &str); 2] = [("Certificate", "cert-manager.io"), ("PodMonitor", "monitoring.coreos.com")];
/// Server-side apply of this kind ends the connection, whatever the object says: Kubernetes 1.20.2. It is created.
const CREATED: [&str; 1] = ["APIService"];

/// All objects that the chart makes of each of its files of values are taken. Of kinds that the cluster does not know,
/// it is said that they were not tried.
///
/// # Errors
///
/// One is not; the error says which, and why.
pub fn check(cluster: &Cluster, steps: &mut Steps) -> Result<()> {
    let folder = workspace().join(CHART).join("ci");
    let mut files: Vec<_> = std::fs::read_dir(&folder)?.map(|file| Ok(file?.path())).collect::<Result<_>>()?;
    files.sort();
    let absent = absent(cluster)?;
    steps.run("each file of values, applied server-side as a dry run", || {
        for file in &files {
            let name = file.file_name().context("a file of values has a name")?.display().to_string();
            let arguments = format!("dry {CHART} -n uview --skip-tests -f {}", file.display());
            let taken = apply(cluster, &absent, &cluster.template(&arguments)?).with_context(|| name.clone())?;
            println!("{name}: {taken} objects are taken");
        }
        Ok(())
    })?;
    for kind in absent {
        println!("NOT RUN: objects of the kind {kind}: the cluster has no definition of it");
    }
    Ok(())
}

/// Kinds of others that the cluster does not know.
fn absent(cluster: &Cluster) -> Result<Vec<&'static str>> {
    let groups: Value = serde_json::from_str(&cluster.sh("kubectl get --raw /apis")?)?;
    let groups = groups["groups"].as_array().context("a list of groups")?;
    let is_absent = |(_, group): &(&str, &str)| !groups.iter().any(|known| known["name"] == *group);
    Ok(OF_OTHERS.into_iter().filter(is_absent).map(|(kind, _)| kind).collect())
}

/// Applies the objects of `rendered` whose kind is not `absent`, and returns how many were taken.
fn apply(cluster: &Cluster, absent: &[&str], rendered: &str) -> Result<usize> {
    let mut by_way: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for document in rendered.split("\n---\n") {
        let Some(kind) = document.lines().find_map(|line| line.strip_prefix("kind: ")) else { continue };
        if !absent.contains(&kind) {
            let way = if CREATED.contains(&kind) { "create" } else { "apply --server-side" };
            by_way.entry(way).or_default().push(document);
        }
    }
    let mut taken = 0;
    for (way, documents) in by_way {
        let file = cluster.file("dry.yaml", documents.join("\n---\n").as_bytes())?;
        let said = cluster.sh(&format!("kubectl {way} --dry-run=server --validate=false -f {file}"))?;
        let lines = said.lines().filter(|line| line.ends_with("(server dry run)")).count();
        ensure!(lines == documents.len(), "{lines} of {} objects are taken: {said}", documents.len());
        taken += lines;
    }
    Ok(taken)
}
