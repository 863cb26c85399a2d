//! Grafana's dashboards, Prometheus's rules and the runbook, from the table of metrics in docs/metrics.md, which a test
//! compares with what the agents export. CI compares the files.

mod alerts;
mod dashboards;
mod table;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use support::workspace;

use table::Table;

/// Writes all files; with `check` only compares.
///
/// # Errors
///
/// A query that names a metric or a label that no agent exports, a file that cannot be written, or with `check` a file
/// that differs.
pub fn generate(check: bool) -> Result<()> {
    for (path, text) in files()? {
        if check {
            let on_disk = fs::read_to_string(&path).with_context(|| format!("{} is missing", path.display()))?;
            ensure!(on_disk == text, "{} differs: run `cargo xtask monitoring`", path.display());
        } else {
            fs::create_dir_all(path.parent().context("a folder")?)?;
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

/// All files with their text.
fn files() -> Result<Vec<(PathBuf, String)>> {
    let table = Table::read(&fs::read_to_string(workspace().join("docs/metrics.md"))?)?;
    let file = |path: &str, text| (workspace().join(path), text);
    let mut files: Vec<_> = dashboards::all(&table)?
        .into_iter()
        .map(|(name, dashboard)| {
            Ok(file(&format!("deploy/grafana/{name}.json"), serde_json::to_string_pretty(&dashboard)? + "\n"))
        })
        .collect::<Result<_>>()?;
    files.push(file("deploy/prometheus/uview-alerts.yaml", alerts::rules(&table)?));
    files.push(file("docs/runbook.md", alerts::runbook()));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_those_that_the_table_of_metrics_gives() {
        generate(true).unwrap();
    }

    #[test]
    fn each_query_of_the_files_names_metrics_and_labels_that_the_agents_export() {
        let table = Table::read(&fs::read_to_string(workspace().join("docs/metrics.md")).unwrap()).unwrap();
        let mut queries = 0;
        for (path, _) in files().unwrap() {
            let text = fs::read_to_string(&path).unwrap();
            let of_file: Vec<String> = match path.extension().and_then(|extension| extension.to_str()) {
                Some("json") => {
                    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
                    let targets =
                        dashboard["panels"].as_array().unwrap().iter().filter_map(|panel| panel["targets"].as_array());
                    targets.flatten().map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
                }
                Some("yaml") => {
                    text.lines().filter_map(|line| line.trim().strip_prefix("expr: ").map(Into::into)).collect()
                }
                _ => continue,
            };
            for query in &of_file {
                table.check(query).unwrap();
            }
            assert!(of_file.len() > 10, "{}: {}", path.display(), of_file.len());
            queries += of_file.len();
        }
        // Each row of the table has a panel.
        assert!(queries > table.len(), "{queries}");
    }
}
