//! Packets of pods, by a `SynopsisPolicy`: without an agent that captures, with it, and gone again.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::super::chart::CHART;
use super::kit::Cluster;
use super::steps::Steps;

/// Who asks one workload, and how long it takes to answer.
const POLICY: &str = "apiVersion: uview.dev/v1alpha1
kind: SynopsisPolicy
metadata: {name: front, namespace: shop}
spec:
  selector: {matchLabels: {app: gateway}}
  delay: Handshake
  heavyHitters: {weight: Packets}
  cardinality: {}
  interval: 500ms
";
/// Two ends would have to agree.
const TWO_ENDED: &str = "apiVersion: uview.dev/v1alpha1
kind: SynopsisPolicy
metadata: {name: bad, namespace: shop}
spec:
  workload: {name: gateway}
  oneWay: Rda
  delay: Handshake
";
/// The service of the stream.
const SERVICE: &str = "network.shop.gateway";

/// A policy is refused with what to do where nobody captures; with the DaemonSet that does, its stream is a service;
/// and none is left without the policy. The definitions are installed.
///
/// # Errors
///
/// Not within two minutes.
pub fn check(cluster: &Cluster, values: &str, steps: &mut Steps) -> Result<()> {
    steps.run(
        "a SynopsisPolicy of two ends is refused by its definition; another, where nobody captures, by the node",
        || {
            let file = cluster.file("bad.yaml", TWO_ENDED.as_bytes())?;
            let refused = cluster.sh(&format!("! kubectl create --validate=false -f {file} 2>&1"))?;
            ensure!(refused.contains("the same stream at both ends at once"), "{refused}");
            cluster.apply("front.yaml", POLICY)?;
            says(cluster, |status, message| status == "False" && message.contains("capture.policyInterfaces"))
        },
    )?;
    steps.run("with an agent that captures, the packets of the policy's pods are a service", || {
        cluster.helm(&format!("upgrade uview {CHART} -n uview -f {values} --set capture.enabled=true"))?;
        cluster.rolled_out("host-agent")?;
        cluster.rolled_out("capture")?;
        says(cluster, |status, _| status == "True")?;
        let what = format!("{SERVICE} has an LMAP with columns");
        cluster.until(&what, |status| status.lmap(SERVICE)["columns"].as_u64() >= Some(8))?;
        // Nobody listens there: the answer is a packet, too.
        let gateway = cluster.address("shop", "app=gateway")?;
        cluster.sh(&format!("for _ in $(seq 20); do curl -s -m 1 http://{gateway}:9 || true; done"))?;
        Cluster::until_some("frames of the pods' interface are read", || {
            let capture = cluster.address("uview", "app.kubernetes.io/component=capture")?;
            let text = cluster.sh(&format!("curl -sf -m 5 http://{capture}:9706/metrics"))?;
            let line = text.lines().find(|line| line.starts_with("uview_nic_frames_total{"));
            let line = line.with_context(|| text.clone())?;
            let frames: f64 = line.rsplit(' ').next().unwrap_or_default().parse()?;
            println!("{line}");
            ensure!(frames >= 40.0, "{line}");
            Ok(())
        })?;
        println!("{}", cluster.sh("kubectl -n shop get synopsispolicies")?);
        Ok(())
    })?;
    steps.run("the policy is deleted, and nobody captures: the stream's service is gone", || {
        cluster.sh("kubectl -n shop delete synopsispolicy front")?;
        cluster.until(&format!("{SERVICE} is gone"), |status| status.lmap(SERVICE).is_null())?;
        cluster.helm(&format!("upgrade uview {CHART} -n uview -f {values}"))?;
        cluster.sh("kubectl -n uview wait --for=delete pod -l app.kubernetes.io/component=capture --timeout=150s")?;
        cluster.rolled_out("host-agent")?;
        cluster.until("shop/store is armed", |status| status.is_armed("shop/store"))
    })
}

/// Waits until the node says of the policy's condition `Applied` what `holds` of its status and message.
fn says(cluster: &Cluster, holds: impl Fn(&str, &str) -> bool) -> Result<()> {
    Cluster::until_some("the node's status tells of the policy", || {
        let report: Value = serde_json::from_str(&cluster.sh("kubectl get lmapnodestatus lab -o json")?)?;
        let mut policies = report["synopsisPolicies"].as_array().context("it has policies")?.iter();
        let of = policies.find(|of| of["name"] == "front").with_context(|| report.to_string())?;
        let conditions = of["conditions"].as_array().context("it has conditions")?;
        let applied = conditions.iter().find(|of| of["type"] == "Applied").with_context(|| of.to_string())?;
        let text = |key: &str| applied[key].as_str().unwrap_or_default();
        ensure!(holds(text("status"), text("message")), "{applied}");
        Ok(())
    })
}
