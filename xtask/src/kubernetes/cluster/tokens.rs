//! Callers with tokens of the cluster: a service account that no role lets, the commands that its refusals print, and
//! what it may then: first as a viewer, then as an operator.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::super::chart::CHART;
use super::kit::Cluster;
use super::steps::Steps;
use super::traces::{self, has_iptables};
use super::upstream::Upstream;

/// The name of the Service of the agents.
const NAME: &str = "uview-host-agent.uview.svc";
/// The bindings that refusals name: of a viewer, and of an operator.
const BINDINGS: [&str; 2] = ["uview-viewer-shop-dashboard", "uview-operator-shop-dashboard"];
/// A service whose spans come, and why its traces are asked for.
const ASKED_FOR: [&str; 2] = ["market/payment", "payment is slow"];
/// A certificate for that name, signed by the cluster's own authority.
const CERTIFICATE: &str = "set -e; cd $N; \
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=uview-operators -keyout ops.key -out ops.csr; \
    printf 'extendedKeyUsage=serverAuth\\nsubjectAltName=DNS:uview-host-agent.uview.svc\\n' >ops.ext; \
    openssl x509 -req -in ops.csr -CA $PKI/ca.crt -CAkey $PKI/ca.key -CAcreateserial -days 1 -extfile ops.ext -out ops.crt; \
    kubectl -n uview create secret tls operators-tls --cert=ops.crt --key=ops.key; \
    kubectl -n shop create serviceaccount dashboard";

/// The path of a file with a token of `shop/dashboard` for `audience`.
fn token(cluster: &Cluster, audience: &str) -> Result<String> {
    // `kubectl create token` is newer than the API server may be.
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": [audience], "expirationSeconds": 3600}});
    let file = cluster.file(&format!("token-{audience}.json"), request.to_string().as_bytes())?;
    let path = "/api/v1/namespaces/shop/serviceaccounts/dashboard/token";
    let answer: Value = serde_json::from_str(&cluster.sh(&format!("kubectl create --raw {path} -f {file}"))?)?;
    let token = answer["status"]["token"].as_str().context("the API server issues no token")?;
    cluster.file(&format!("token-{audience}"), token.as_bytes())
}

/// What `uview ARGUMENTS` prints, which shows the token in the file `token` to the agent's address.
fn uview(cluster: &Cluster, token: &str, arguments: &str) -> Result<String> {
    let (program, agent) = (cluster.program(), cluster.agent());
    let connection = format!("--operators https://{agent}:9701 --tls-ca $PKI/ca.crt --tls-name {NAME}");
    cluster.sh(&format!("{program} {arguments} {connection} --token-file {token} 2>&1 || true"))
}

/// Grants what the refusal `refused` says, by the command that it names, which makes `binding`.
fn grant(cluster: &Cluster, refused: &str, binding: &str) -> Result<()> {
    let grant = refused.split("To grant it: ").nth(1).and_then(|text| text.lines().next());
    let grant = grant.with_context(|| format!("no command in {refused}"))?;
    ensure!(grant.starts_with(&format!("kubectl create clusterrolebinding {binding} ")), "{grant}");
    cluster.sh(grant).map(drop)
}

/// A service account is refused, is let by the command of the refusal, and may no more than that: as a viewer it reads,
/// as an operator it has traces kept, which go to `upstream`.
///
/// # Errors
///
/// The first check that fails.
pub fn check(cluster: &Cluster, (values, upstream): (&str, &Upstream), steps: &mut Steps) -> Result<()> {
    let [viewer, operator] = BINDINGS;
    steps.run("operators' API for tokens of the cluster, turned on", || {
        cluster.sh(CERTIFICATE)?;
        let set = "hostAgent.operatorsApi.enabled=true,hostAgent.operatorsApi.secretName=operators-tls";
        cluster.helm(&format!("upgrade uview {CHART} -n uview -f {values} --set {set}"))?;
        cluster.rolled_out("host-agent")
    })?;
    let (own, other) = (token(cluster, "uview")?, token(cluster, "vault")?);
    steps.run("a service account is refused, and let by the command that it is told", || {
        grant(cluster, &uview(cluster, &own, "status")?, viewer)?;
        // The refusal is kept for five seconds.
        Cluster::until_some("it may read the status", || {
            let status = uview(cluster, &own, "status")?;
            ensure!(status.contains("shop/store"), "{status}");
            Ok(())
        })
    })?;
    let drain = uview(cluster, &own, "drain 0")?;
    ensure!(drain.contains("the verb update on agents/workers of uview.dev"), "a viewer drains: {drain}");
    let refused = uview(cluster, &own, &format!("trigger {}", ASKED_FOR[0]))?;
    ensure!(refused.contains("the verb create on agents/traces of uview.dev"), "a viewer asks for traces: {refused}");
    let foreign = uview(cluster, &other, "status")?;
    ensure!(foreign.contains("the API server does not accept the token"), "another audience: {foreign}");
    println!("{drain}{foreign}");
    // Otherwise spans go to the address of an agent's pod that is gone.
    if has_iptables() {
        steps.run("bound as an operator it has traces kept, which say whose token it was", || {
            grant(cluster, &refused, operator)?;
            asks_for_traces(cluster, &own, upstream)
        })?;
    }
    cluster.sh(&format!("kubectl delete clusterrolebinding --ignore-not-found {viewer} {operator}"))?;
    cluster.sh("kubectl -n shop delete serviceaccount dashboard")?;
    steps.run("turned off again", || {
        cluster.helm(&format!("upgrade uview {CHART} -n uview -f {values}"))?;
        cluster.rolled_out("host-agent")
    })?;
    // Only now: a kubelet waits with the end of a pod whose secret is gone.
    cluster.sh("kubectl -n uview delete secret operators-tls --wait=false").map(drop)
}

/// Who holds the token in the file `token` asks for traces: the request is counted, and a trace arrives that says why
/// it was kept and who asked.
fn asks_for_traces(cluster: &Cluster, token: &str, upstream: &Upstream) -> Result<()> {
    let [service, why] = ASKED_FOR;
    upstream.clear();
    // The refusal is kept for five seconds, and the agent has no span of the service as long as it is new.
    let said = Cluster::until_some("it may ask for traces", || {
        let said = uview(cluster, token, &format!("trigger {service} --for 1m --reason '{why}'"))?;
        ensure!(said.contains("are kept on this node"), "{said}");
        Ok(said)
    })?;
    let asked = cluster.metric("uview_host_operator_triggers")?;
    ensure!((asked - 1.0).abs() < 0.5, "{asked} requests were carried out");
    let reason = format!("asked for: {why}, by account system:serviceaccount:shop:dashboard");
    Cluster::until_some("a trace that was asked for arrives", || {
        let reasons: Vec<String> =
            upstream.traces().values().filter_map(|trace| traces::reason(trace)).map(str::to_owned).collect();
        ensure!(reasons.contains(&reason), "only these reasons arrived: {reasons:?}");
        Ok(())
    })?;
    // That ends it.
    uview(cluster, token, &format!("trigger {service} --for 1s"))?;
    println!("{said}{reason}");
    Ok(())
}
