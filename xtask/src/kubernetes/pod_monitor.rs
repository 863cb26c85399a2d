//! The PodMonitor of the agents themselves: whether each of their ports with metrics is scraped.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::rendered::objects;

/// How the chart's names of ports with metrics begin.
const METRICS: &str = "metrics";

/// Checks that the PodMonitor of `rendered`, if it has one, names the ports with metrics of all pods that it selects,
/// and no others.
///
/// # Errors
///
/// It does not; the error says both.
pub fn check(rendered: &str) -> Result<()> {
    let objects = objects(rendered)?;
    let Some(monitor) = objects.iter().find(|object| object["kind"] == "PodMonitor") else { return Ok(()) };
    let selector = monitor["spec"]["selector"]["matchLabels"].as_object().context("a PodMonitor selects by labels")?;
    let is_selected =
        |template: &&Value| selector.iter().all(|(label, value)| template["metadata"]["labels"][label] == *value);
    let templates = objects.iter().map(|object| &object["spec"]["template"]).filter(is_selected);
    let containers = templates.flat_map(|template| template["spec"]["containers"].as_array().into_iter().flatten());
    let ports: BTreeSet<&str> = containers
        .flat_map(|container| texts(&container["ports"], "name"))
        .filter(|name| name.starts_with(METRICS))
        .collect();
    let endpoints: BTreeSet<&str> = texts(&monitor["spec"]["podMetricsEndpoints"], "port").collect();
    ensure!(endpoints == ports, "the PodMonitor scrapes {endpoints:?}, and pods have {ports:?}");
    Ok(())
}

/// The texts `key` of the objects in `list`.
fn texts<'a>(list: &'a Value, key: &'static str) -> impl Iterator<Item = &'a str> {
    list.as_array().into_iter().flatten().filter_map(move |of| of[key].as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A PodMonitor of these endpoints, a DaemonSet with two workers, and another one's.
    fn rendered(endpoints: &str) -> String {
        let pods = |name: &str, first: &str| {
            format!(
                "\n---\nkind: DaemonSet\nspec:\n  template:\n    metadata: {{labels: {{name: {name}}}}}\n    spec:\n      \
                 containers:\n      - ports: [{{name: {first}}}, {{name: otlp-grpc}}]\n      - ports: [{{name: \
                 metrics-1}}]\n      - name: none\n"
            )
        };
        let monitor = "kind: PodMonitor\nspec:\n  selector: {matchLabels: {name: uview}}\n  podMetricsEndpoints:";
        format!("{monitor} {endpoints}{}{}", pods("uview", "metrics"), pods("other", "metrics-2"))
    }

    #[test]
    fn each_port_with_metrics_is_scraped_and_no_other() {
        assert!(check(&rendered("[{port: metrics}, {port: metrics-1}]")).is_ok());
        for (endpoints, why) in [
            ("[{port: metrics}]", "the second worker is not scraped"),
            ("[{port: metrics}, {port: metrics-1}, {port: metrics-2}]", "no pod of uview has the port"),
        ] {
            assert!(check(&rendered(endpoints)).is_err(), "{why}");
        }
        assert!(check("kind: Service\n").is_ok(), "there need be none");
    }
}
