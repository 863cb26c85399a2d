//! A server of custom resources that starts anew and has forgotten what was, and the rule that a node writes its own
//! status only.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::api_server;
use super::kit::Cluster;
use super::steps::Steps;

const CRD_CHART: &str = "k8s/chart-crds";
/// The service whose interval is set.
const SERVICE: &str = "shop/gateway";
/// An object that comes when nobody can go on from what was.
const LATER: &str = "apiVersion: uview.dev/v1alpha1
kind: Lmap
metadata: {name: later, namespace: shop}
spec:
  workload: {name: gateway}
  interval: 500ms
";
/// A pod that comes then, too.
const POD: &str = "after-compaction";
/// What the rule says to who breaks it.
const REFUSAL: &str = "a host agent writes only the LmapNodeStatus that has the name of its own node";
/// Writes nothing, as the service account of the host agents.
const WRITE: &str = "curl -s --cacert $PKI/ca.crt --cert $PKI/admin.crt --key $PKI/admin.key -X PATCH \
    -H 'Content-Type: application/apply-patch+yaml' -H 'Impersonate-User: system:serviceaccount:uview:uview'";

/// After a compaction and a start anew, agents list again, and know a new pod; then the rule is installed, tried, and
/// removed.
///
/// # Errors
///
/// Not within two minutes, or a node writes what is not its own.
pub fn check(cluster: &Cluster, steps: &mut Steps) -> Result<()> {
    let has_rules = steps.run("custom resources: their history is compacted, their server starts anew", || {
        let version = "kubectl get --raw /apis/uview.dev/v1alpha1/lmaps | jq -r .metadata.resourceVersion";
        cluster.sh(&format!("etcdctl --endpoints=$ETCD compact $({version})"))?;
        // Its container joins its workload some seconds later: meanwhile the next steps are done.
        api_server::create_pod(cluster, POD)?;
        Ok(cluster.evaluate_rules())
    })?;
    if let Err(error) = has_rules {
        println!("NOT RUN: the rule that nodes write their own status only: the kit knows no such rules: {error:#}");
        return new_pod(cluster, steps);
    }
    let interval = |micros: u64| {
        let what = format!("{SERVICE} has a row every {micros} µs");
        cluster.until(&what, |status| status.lmap(SERVICE)["interval_us"] == micros)
    };
    steps.run("an Lmap of later is in effect, and gone again", || {
        Cluster::until_some("it is taken", || cluster.apply("later.yaml", LATER))?;
        interval(500_000)?;
        cluster.sh("kubectl -n shop delete lmap later")?;
        interval(100_000)
    })?;
    new_pod(cluster, steps)?;
    steps.run("a node writes its own status only (the claim of its token impersonated)", || {
        let file = rule(cluster)?;
        Cluster::until_some("the rule is taken", || cluster.sh(&format!("kubectl apply --validate=false -f {file}")))?;
        let refused = |name: &str, node: Option<&str>| -> Result<()> {
            let said = write(cluster, name, node)?;
            ensure!(said["message"].as_str().is_some_and(|text| text.contains(REFUSAL)), "{name} by {node:?}: {said}");
            Ok(())
        };
        let taken = |name: &str, node: Option<&str>| -> Result<()> {
            let said = write(cluster, name, node)?;
            ensure!(said["kind"] == "LmapNodeStatus", "{name} by {node:?}: {said}");
            Ok(())
        };
        // It takes some seconds until the rule is known.
        Cluster::until_some("another node's status is refused", || refused("other", Some("lab")))?;
        taken("lab", Some("lab"))?;
        taken("other", Some("other"))?;
        refused("lab", None)?;
        // The tokens of this API server do not name the node: its agent could write nothing any more.
        cluster.sh(&format!("kubectl delete -f {file}"))?;
        Cluster::until_some("the rule is gone", || taken("lab", None))
    })
}

/// The pod that was created after the compaction is known.
fn new_pod(cluster: &Cluster, steps: &mut Steps) -> Result<()> {
    steps.run("a pod that came after the compaction is known", || api_server::is_known(cluster, POD))
}

/// The rule as the chart has it for a server that puts nodes' names into tokens: the path of its manifest.
fn rule(cluster: &Cluster) -> Result<String> {
    let rendered = cluster.template(&format!("uview-crds {CRD_CHART} --kube-version 1.30.0"))?;
    let is_rule = |document: &&str| document.lines().any(|line| line.starts_with("kind: ValidatingAdmissionPolicy"));
    let documents: Vec<&str> = rendered.split("\n---\n").filter(is_rule).collect();
    ensure!(documents.len() == 2, "the chart has a rule and its binding: {documents:?}");
    cluster.file("rule.yaml", documents.join("\n---\n").as_bytes())
}

/// What the API server answers to a host agent that writes the status `name` with the claim of `node`, as a dry run.
fn write(cluster: &Cluster, name: &str, node: Option<&str>) -> Result<Value> {
    let object = json!({"apiVersion": "uview.dev/v1alpha1", "kind": "LmapNodeStatus", "metadata": {"name": name}});
    let file = cluster.file("status.yaml", object.to_string().as_bytes())?;
    let claim = node.map(|node| format!("-H 'Impersonate-Extra-authentication.kubernetes.io%2Fnode-name: {node}'"));
    let url = format!("$API/apis/uview.dev/v1alpha1/lmapnodestatuses/{name}?fieldManager=test&force=true&dryRun=All");
    let said = cluster.sh(&format!("{WRITE} {} --data-binary @{file} \"{url}\"", claim.unwrap_or_default()))?;
    serde_json::from_str(&said).with_context(|| said.clone())
}
