//! Pods with Prometheus endpoints: one that its annotations name, and one that a `PodMonitor` selects.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::kit::{Cluster, SHELL};
use super::steps::Steps;

/// The part of the kind `PodMonitor` that the API server has to know, for the kit has no operator of Prometheus.
const KIND: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: podmonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: PodMonitor, plural: podmonitors, singular: podmonitor, listKind: PodMonitorList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";
const MONITOR: &str = "apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata: {name: monitored, namespace: meters}
spec:
  selector: {matchLabels: {app: monitored}}
  podMetricsEndpoints: [{port: web, path: /cgi-bin/metrics}]
";
/// Two metrics that move.
const METRICS: &str = "#!/bin/sh
    echo 'Content-Type: text/plain; version=0.0.4'
    echo
    up=$(cut -d. -f1 /proc/uptime)
    echo '# TYPE jobs counter'
    echo \"jobs_total $((up * 3 + $$ % 7))\"
    echo '# TYPE queue gauge'
    echo \"queue $(($$ % 11))\"";

/// Creates both pods, and the kind `PodMonitor`.
///
/// # Errors
///
/// The API server refuses something.
pub fn create(cluster: &Cluster) -> Result<()> {
    let pod = |name: &str, annotations: &str| {
        format!(
            "---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: meters, labels: {{app: {name}}}, annotations: {{{annotations}}}}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: app
    image: {SHELL}
    imagePullPolicy: Never
    command: [busybox, httpd, -f, -p, '8000', -h, /www]
    ports: [{{name: web, containerPort: 8000}}]
    volumeMounts: [{{name: www, mountPath: /www/cgi-bin}}]
  volumes: [{{name: www, configMap: {{name: www, defaultMode: 0755}}}}]
"
        )
    };
    let annotations = "prometheus.io/scrape: 'true', prometheus.io/port: '8000', prometheus.io/path: /cgi-bin/metrics";
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: meters}\n---\n";
    let file = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: www, namespace: meters}\ndata:\n  metrics: |\n    ";
    let pods = [pod("annotated", annotations), pod("monitored", "")].concat();
    cluster.apply("meters.yaml", &format!("{namespace}{file}{METRICS}\n{pods}"))?;
    let kind = cluster.file("podmonitors.yaml", KIND.as_bytes())?;
    cluster.crd(&kind)?;
    Cluster::until_some("a PodMonitor is accepted", || cluster.apply("monitor.yaml", MONITOR))?;
    Ok(())
}

/// Both pods are scraped, and their series are columns of their services.
///
/// # Errors
///
/// They are not within two minutes.
pub fn check(cluster: &Cluster, steps: &mut Steps) -> Result<()> {
    steps.run("pods with annotations and of a PodMonitor are scraped into their services", || {
        let targets = Cluster::until_some("both endpoints are watched", || {
            let targets = cluster.json("sources")?;
            let targets = targets.as_array().context("sources are a list")?;
            let scraped: Vec<_> = targets.iter().filter(|target| is_scraped(target)).cloned().collect();
            ensure!(scraped.len() == 2, "the sources are {targets:#?}");
            Ok(scraped)
        })?;
        for target in targets {
            println!(
                "{}: {} of {}, {} columns",
                target["service"], target["watched"], target["exposed"], target["columns"]
            );
        }
        Ok(())
    })
}

fn is_scraped(target: &Value) -> bool {
    let is_one = ["meters/annotated", "meters/monitored"].iter().any(|service| target["service"] == *service);
    is_one && target["state"] == "watching" && target["columns"].as_u64() >= Some(2)
}
