//! Pods that send OTLP to their node: two services of the demo's shop, of which one calls the other. Their kept traces
//! arrive at an upstream in the cluster's network, and say which pods they are from.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::kit::{Cluster, IMAGE, SHELL, SOCKETS};
use super::steps::Steps;
use super::upstream::{Span, Upstream};

/// Where the agent sends what it keeps: an address of the node that pods reach.
pub const UPSTREAM: &str = "10.77.0.1:14318";

/// Whether the kit's network can be given host ports, and addresses of services: both take iptables(8).
pub fn has_iptables() -> bool {
    Command::new("iptables").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// How pods send to the agent of their node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the node's address, as docs/kubernetes.md says.
    HostPort,
    /// To the address of the agent's pod.
    PodAddress,
}

impl Way {
    /// By host port, where there are any.
    ///
    /// # Errors
    ///
    /// The kit has another network than expected.
    pub fn prepare(cluster: &Cluster) -> Result<Self> {
        if !has_iptables() {
            return Ok(Self::PodAddress);
        }
        // The plugin of all usual networks. Senders keep their address, as with Calico and Cilium.
        let plugin = r#",{"type":"portmap","capabilities":{"portMappings":true},"snat":false}]}"#;
        cluster.sh(&format!("sed -i 's#\\]}}$#{plugin}#' $N/cni/*.conflist && grep -q portmap $N/cni/*.conflist"))?;
        Ok(Self::HostPort)
    }

    /// What a pod's environment has to say: one variable, and in the usual case the one that it refers to.
    pub fn environment(self, cluster: &Cluster) -> String {
        match self {
            Self::HostPort => "
        - {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
        - {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: \"http://$(HOST_IP):4317\"}"
                .to_owned(),
            Self::PodAddress => {
                format!("\n        - {{name: OTEL_EXPORTER_OTLP_ENDPOINT, value: \"http://{}:4317\"}}", cluster.agent())
            }
        }
    }
}

/// Listens for kept traces in the cluster's network.
///
/// # Errors
///
/// It cannot.
pub fn listen(cluster: &Cluster) -> Result<Upstream> {
    Upstream::listen(&cluster.network()?, UPSTREAM)
}

/// Creates both services, and visitors of the first.
///
/// # Errors
///
/// A pod does not come up.
pub fn create(cluster: &Cluster, way: Way) -> Result<()> {
    let environment = way.environment(cluster);
    let service = |name: &str, next: &str| {
        format!(
            "apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: market}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: {name}
        image: {IMAGE}
        imagePullPolicy: Never
        args: [shop, --service, {name}, --listen, '0.0.0.0:8080', --admin, '0.0.0.0:8081', {next}
               --socket, {SOCKETS}/services.sock, --otlp, $(OTEL_EXPORTER_OTLP_ENDPOINT)]
        env: {environment}
        volumeMounts: [{{name: uview, mountPath: {SOCKETS}}}]
      volumes: [{{name: uview, hostPath: {{path: {SOCKETS}, type: Directory}}}}]
---
"
        )
    };
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: market}\n---\n";
    cluster.apply("store.yaml", &format!("{namespace}{}", service("store", "")))?;
    let store = cluster.address("market", "app=store")?;
    cluster.apply("payment.yaml", &service("payment", &format!("--next, 'store={store}:8080',")))?;
    let payment = cluster.address("market", "app=payment")?;
    let visit = format!("while :; do wget -q -O /dev/null http://{payment}:8080/quote?key=7; sleep 0.1; done");
    cluster.apply(
        "visitors.yaml",
        &format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: visitors, namespace: market}}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{{name: app, image: {SHELL}, imagePullPolicy: Never, command: [sh, -c, '{visit}']}}]
"
        ),
    )?;
    cluster.sh("kubectl -n market rollout status deploy/payment --timeout=150s").map(drop)
}

/// Requests to `store` fail: the trace of one arrives with names of both pods, and the reason why it was kept.
///
/// # Errors
///
/// None arrives, or it lacks something.
pub fn check(cluster: &Cluster, upstream: &Upstream, steps: &mut Steps) -> Result<()> {
    let inject = || {
        let store = cluster.address("market", "app=store")?;
        cluster.sh(&format!("curl -sf -X POST 'http://{store}:8081/fault?kind=errors&ms=6000&amount=1000'"))
    };
    steps.run("processes that registered are their pods' workloads, whatever they call themselves", || {
        // Of its container alone it would have 57.
        cluster.until("market/store and market/payment have more columns than those of a container", |status| {
            ["market/store", "market/payment"].iter().all(|service| status.lmap(service)["columns"].as_u64() > Some(80))
        })?;
        let status = cluster.status()?;
        let others: Vec<_> = status.services().into_iter().filter(|service| !service.contains('/')).collect();
        ensure!(others.is_empty(), "services of pods without a namespace: {others:?}");
        Ok(())
    })?;
    let trace = steps.run("a kept trace arrives with both pods and its reason", || {
        upstream.clear();
        inject()?;
        Cluster::until_some("the whole trace of a failed request arrives", || {
            let mut traces = upstream.traces().into_values();
            traces.find(|trace| policy(trace) == Some("error") && names(trace).len() == 2).with_context(|| {
                let seen: Vec<_> = upstream.traces().into_values().take(3).collect();
                format!("only these arrived: {seen:#?}")
            })
        })
    })?;
    let reason = trace.iter().find_map(|span| span.attributes.get("uview.reason")).context("no reason")?;
    println!("a trace of {} spans, kept because: {reason}", trace.len());
    for (pod, span) in names(&trace) {
        let of = |key: &str| span.resource.get(key).map(String::as_str);
        let (namespace, workload) = (of("k8s.namespace.name"), of("k8s.deployment.name"));
        let workload = workload.context("a span has no k8s.deployment.name")?;
        println!("  {workload}: pod {pod}, node {}", of("k8s.node.name").unwrap_or("unknown"));
        let is_right = namespace == Some("market") && pod.starts_with(workload) && of("k8s.node.name") == Some("lab");
        ensure!(is_right, "it says of itself {:?}", span.resource);
    }
    Ok(())
}

/// Of the traces that nothing else keeps, the `SamplingPolicy` `half`, which is in effect, keeps half.
///
/// # Errors
///
/// It keeps another share, or none within two minutes.
pub fn share(cluster: &Cluster, upstream: &Upstream, steps: &mut Steps) -> Result<()> {
    let spans = |traces: &[Vec<Span>]| traces.iter().map(Vec::len).sum::<usize>();
    steps.run("the SamplingPolicy keeps half of the traces that nothing else keeps", || {
        upstream.clear();
        // So that what came before it is decided.
        Cluster::until_some("it keeps traces", || {
            let (kept, _) = by_policy(upstream);
            ensure!(kept.len() >= 20, "{} traces", kept.len());
            Ok(())
        })?;
        let before = Decided::of(cluster)?;
        upstream.clear();
        let (kept, of) = Cluster::until_some("enough traces are decided, and those that are kept are there", || {
            let decided = Decided::of(cluster)?.since(before);
            let (kept, others) = by_policy(upstream);
            let there = spans(&kept) + spans(&others);
            // Traces are counted when they are decided, and sent later.
            ensure!(there >= decided.kept, "{there} of {} kept spans are there", decided.kept);
            let left = (decided.kept + decided.dropped).saturating_sub(spans(&others));
            let each = spans(&kept).checked_div(kept.len()).context("it keeps no trace")?;
            // The standard deviation of the share is 5 % then.
            ensure!(left >= 100 * each, "{left} spans that nothing else keeps, {each} a trace");
            Ok((spans(&kept), left))
        })?;
        println!("{kept} of {of} spans are kept by the policy");
        ensure!((30..=70).contains(&(100 * kept / of)), "{kept} of {of} spans are no half");
        Ok(())
    })
}

/// Traces that arrived because the policy asks for a share, and the others.
fn by_policy(upstream: &Upstream) -> (Vec<Vec<Span>>, Vec<Vec<Span>>) {
    let is_asked_for =
        |trace: &Vec<Span>| reason(trace).is_some_and(|of| of.ends_with("by SamplingPolicy market/half"));
    upstream.traces().into_values().partition(is_asked_for)
}

/// Spans that were kept and dropped so far, by the receipt.
#[derive(Clone, Copy)]
struct Decided {
    kept: usize,
    dropped: usize,
}

impl Decided {
    fn of(cluster: &Cluster) -> Result<Self> {
        let receipt = cluster.json("receipt")?;
        let days = receipt["days"].as_array().context("the receipt has days")?;
        let kept = |day: &Value| day["total"]["kept_spans"].as_u64().unwrap_or_default();
        let dropped = |day: &Value| {
            let reasons = day["total"]["dropped_spans"].as_object().into_iter().flat_map(|by| by.values());
            reasons.filter_map(Value::as_u64).sum::<u64>()
        };
        Ok(Self {
            kept: usize::try_from(days.iter().map(kept).sum::<u64>())?,
            dropped: usize::try_from(days.iter().map(dropped).sum::<u64>())?,
        })
    }

    fn since(self, before: Self) -> Self {
        Self { kept: self.kept.saturating_sub(before.kept), dropped: self.dropped.saturating_sub(before.dropped) }
    }
}

/// Why a trace was kept, in words.
pub fn reason(trace: &[Span]) -> Option<&str> {
    trace.iter().find_map(|span| span.attributes.get("uview.reason")).map(String::as_str)
}

/// The policy that kept a trace.
pub fn policy(trace: &[Span]) -> Option<&str> {
    trace.iter().find_map(|span| span.attributes.get("uview.policy")).map(String::as_str)
}

/// One span of each pod.
fn names(trace: &[Span]) -> BTreeMap<String, &Span> {
    trace.iter().filter_map(|span| Some((span.resource.get("k8s.pod.name")?.clone(), span))).collect()
}
