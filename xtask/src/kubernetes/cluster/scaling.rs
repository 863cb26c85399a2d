//! A HorizontalPodAutoscaler that reads what an LMAP says: the controller's metrics by way of the API server, and a
//! Deployment that grows with its load and shrinks again.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::super::chart::CHART;
use super::kit::{Cluster, SHELL};
use super::steps::Steps;
use super::traces::has_iptables;

/// Most replicas that the autoscaler may ask for.
const MOST: u64 = 3;
/// Busy for a while, then waits, and so on, from when there is a file `/state/work`. Replicas that come later have
/// none: as behind any frontend, the load of all together is the same however many they are.
const WORK: &str = "while [ ! -e /state/work ]; do sleep 1; done; \
    while :; do i=0; while [ $i -lt 300 ]; do i=$((i+1)); done; sleep 0.05; done";
/// What the autoscaler reads.
const ASK: &str =
    "kubectl get --raw /apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/deployments.apps/elastic/uview_score_ratio";
/// Without a pause, as long as the file `/state/busy` has something in it.
const LOAD: &str = "echo 1 >/state/busy; (while [ -s /state/busy ]; do :; done) >/dev/null 2>&1 &";
/// A certificate for the controller's service, signed by the cluster's own authority.
const CERTIFICATE: &str = "set -e; cd $N; \
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=uview-controller -keyout hpa.key -out hpa.csr; \
    printf 'extendedKeyUsage=serverAuth\\nsubjectAltName=DNS:uview-controller.uview.svc\\n' >hpa.ext; \
    openssl x509 -req -in hpa.csr -CA $PKI/ca.crt -CAkey $PKI/ca.key -CAcreateserial -days 1 -extfile hpa.ext -out hpa.crt; \
    kubectl -n uview create secret tls controller-tls --cert=hpa.crt --key=hpa.key";
/// What kube-proxy does for a service: the kit has none.
const WAY: &str = "set -e; service=$(kubectl -n uview get service uview-controller -o jsonpath={.spec.clusterIP}); \
    pod=$(kubectl -n uview get endpoints uview-controller -o jsonpath={.subsets[0].addresses[0].ip}); \
    iptables -t nat -A OUTPUT -d $service/32 -p tcp --dport 443 -j DNAT --to-destination $pod:9711";

/// The load, and the autoscaler as docs/kubernetes.md has it.
fn manifest(version: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: elastic, namespace: shop}}
spec:
  replicas: 1
  selector: {{matchLabels: {{app: elastic}}}}
  template:
    metadata: {{labels: {{app: elastic}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: app
        image: {SHELL}
        imagePullPolicy: Never
        command: [sh, -c, '{WORK}']
        volumeMounts: [{{name: state, mountPath: /state}}]
      volumes: [{{name: state, emptyDir: {{}}}}]
---
apiVersion: autoscaling/{version}
kind: HorizontalPodAutoscaler
metadata: {{name: elastic, namespace: shop}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: elastic}}
  minReplicas: 1
  maxReplicas: {MOST}
  metrics:
  - type: Object
    object:
      describedObject: {{apiVersion: apps/v1, kind: Deployment, name: elastic}}
      metric: {{name: uview_score_ratio}}
      target: {{type: Value, value: '1'}}
  behavior: {{scaleDown: {{stabilizationWindowSeconds: 0}}}}
"
    )
}

/// The controller with its metrics, which the API server asks for by its Service.
///
/// # Errors
///
/// Not within two minutes.
pub fn turn_on(cluster: &Cluster, values: &str) -> Result<()> {
    cluster.sh(CERTIFICATE)?;
    let authority = cluster.sh("base64 -w0 $PKI/ca.crt")?;
    let of = "controller.customMetrics";
    let set = format!(",{of}.enabled=true,{of}.secretName=controller-tls,{of}.caBundle={}", authority.trim());
    upgrade(cluster, values, &set)?;
    cluster.sh(WAY)?;
    let versions = "apiservice/v1beta1.custom.metrics.k8s.io apiservice/v1beta2.custom.metrics.k8s.io";
    cluster.sh(&format!("kubectl wait --for=condition=Available {versions} --timeout=150s")).map(drop)
}

/// The controller without metrics: a group that nobody serves would keep namespaces from going.
///
/// # Errors
///
/// helm fails, or the controller does not start.
pub fn turn_off(cluster: &Cluster, values: &str) -> Result<()> {
    upgrade(cluster, values, "")
}

fn upgrade(cluster: &Cluster, values: &str, set: &str) -> Result<()> {
    let set = format!("--set controller.enabled=true{set}");
    cluster.helm(&format!("upgrade uview {CHART} -n uview -f {values} {set}"))?;
    cluster.sh("kubectl -n uview rollout status deploy/uview-controller --timeout=150s").map(drop)
}

/// The version of the API of autoscalers that the cluster has.
///
/// # Errors
///
/// The API server does not answer.
pub fn version(cluster: &Cluster) -> Result<&'static str> {
    let has_v2 = cluster.sh("kubectl api-versions")?.lines().any(|version| version == "autoscaling/v2");
    Ok(if has_v2 { "v2" } else { "v2beta2" })
}

/// The controller's metrics reach the API server, and an autoscaler scales by them.
///
/// # Errors
///
/// Not within two minutes each.
pub fn check(cluster: &Cluster, values: &str, steps: &mut Steps) -> Result<()> {
    if !has_iptables() {
        return Ok(());
    }
    steps.run("custom.metrics.k8s.io, turned on: the API server asks the controller", || turn_on(cluster, values))?;
    steps.run("OpenAPI of the API server: what the controller serves is in it", || {
        // The API server gathers it from all that serve groups, once a minute or so.
        Cluster::until_some("the paths are there", || {
            let known =
                cluster.sh("kubectl get --raw /openapi/v2 | grep -o '/apis/custom.metrics.k8s.io/[^\"]*' | sort -u")?;
            ensure!(known.contains("/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/"), "{known:?}");
            println!("{known}");
            Ok(())
        })
    })?;
    cluster.apply("elastic.yaml", &manifest(version(cluster)?))?;
    let find = "kubectl -n shop get pod -l app=elastic -o jsonpath={.items[0].metadata.name}";
    let first = Cluster::until_some("there is a pod", || cluster.sh(find))?;
    let in_pod = |command: &str| cluster.sh(&format!("kubectl -n shop exec {first} -- sh -c '{command}'"));
    steps.run("kubectl get --raw: a Deployment's score over γ, once its LMAP judges", || {
        Cluster::until_some("the first replica works", || in_pod(": >/state/work"))?;
        cluster.until("shop/elastic is armed", |status| status.is_armed("shop/elastic"))?;
        let value = Cluster::until_some("there is a value", || cluster.sh(ASK))?;
        ensure!(value.contains("\"value\":\""), "{value}");
        println!("{value}");
        Ok(())
    })?;
    steps.run("a HorizontalPodAutoscaler: more replicas under load, by the score", || {
        in_pod(LOAD)?;
        until_replicas(cluster, "all replicas that are allowed", |replicas| replicas == MOST)
    })?;
    println!("{}", cluster.sh("kubectl -n shop describe hpa elastic")?);
    steps.run("the load is over: fewer replicas", || {
        in_pod(": >/state/busy")?;
        until_replicas(cluster, "fewer replicas", |replicas| replicas < MOST)
    })?;
    cluster.sh("kubectl -n shop delete hpa,deploy elastic --wait=false")?;
    turn_off(cluster, values)
}

/// Waits until the Deployment has as many ready replicas as `holds` wants.
fn until_replicas(cluster: &Cluster, what: &str, holds: impl Fn(u64) -> bool) -> Result<()> {
    Cluster::until_some(what, || {
        let found: Value = serde_json::from_str(&cluster.sh("kubectl -n shop get hpa,deploy elastic -o json")?)?;
        let ready = found["items"][1]["status"]["readyReplicas"].as_u64().unwrap_or_default();
        let scaler = &found["items"][0]["status"];
        ensure!(ready > 0 && holds(ready), "{ready} replicas are ready; {scaler}; {:?}", cluster.sh(ASK));
        Ok(())
    })
}
