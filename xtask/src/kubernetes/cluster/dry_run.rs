//! Each file of values, applied server-side by an API server that keeps nothing.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use support::workspace;

use super::kit::Cluster;
use super::{CHART, Steps};

/// Kinds that others define: the cluster has none of them.
const ABSENT: [&str; 2] = ["Certificate", "PodMonitor"];
/// Server-side apply of this kind ends the connection, whatever the object says: Kubernetes 1.20.2. It is created.
const CREATED: [&str; 1] = ["APIService"];

/// All objects that the chart makes of each of its files of values are taken.
///
/// # Errors
///
/// One is not; the error says which, and why.
pub fn check(cluster: &Cluster, steps: &mut Steps) -> Result<()> {
    let folder = workspace().join(CHART).join("ci");
    let mut files: Vec<_> = std::fs::read_dir(&folder)?.map(|file| Ok(file?.path())).collect::<Result<_>>()?;
    files.sort();
    steps.run("each file of values, applied server-side as a dry run", || {
        for file in &files {
            let name = file.file_name().context("a file of values has a name")?.display().to_string();
            let arguments = format!("dry {CHART} -n uview --skip-tests -f {}", file.display());
            let taken = apply(cluster, &cluster.template(&arguments)?).with_context(|| name.clone())?;
            println!("{name}: {taken} objects are taken");
        }
        Ok(())
    })
}

/// Applies the objects of `rendered`, and returns how many were taken.
fn apply(cluster: &Cluster, rendered: &str) -> Result<usize> {
    let mut by_way: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for document in rendered.split("\n---\n") {
        let Some(kind) = document.lines().find_map(|line| line.strip_prefix("kind: ")) else { continue };
        if !ABSENT.contains(&kind) {
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
