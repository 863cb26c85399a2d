//! Callers with tokens of the cluster: a service account that no role lets, the command that its refusal prints, and
//! what it may then.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::super::chart::CHART;
use super::kit::Cluster;
use super::steps::Steps;

/// The name of the Service of the agents.
const NAME: &str = "uview-host-agent.uview.svc";
/// The binding that a refusal names.
const BINDING: &str = "uview-viewer-shop-dashboard";
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

/// A service account is refused, is let by the command of the refusal, and may no more than that.
///
/// # Errors
///
/// The first check that fails.
pub fn check(cluster: &Cluster, values: &str, steps: &mut Steps) -> Result<()> {
    steps.run("operators' API for tokens of the cluster, turned on", || {
        cluster.sh(CERTIFICATE)?;
        let set = "hostAgent.operatorsApi.enabled=true,hostAgent.operatorsApi.secretName=operators-tls";
        cluster.helm(&format!("upgrade uview {CHART} -n uview -f {values} --set {set}"))?;
        cluster.rolled_out("host-agent")
    })?;
    let (own, other) = (token(cluster, "uview")?, token(cluster, "vault")?);
    steps.run("a service account is refused, and let by the command that it is told", || {
        let refused = uview(cluster, &own, "status")?;
        let grant = refused.split("To grant it: ").nth(1).and_then(|text| text.lines().next());
        let grant = grant.with_context(|| format!("no command in {refused}"))?;
        ensure!(grant.starts_with(&format!("kubectl create clusterrolebinding {BINDING} ")), "{grant}");
        cluster.sh(grant)?;
        // The refusal is kept for five seconds.
        Cluster::until_some("it may read the status", || {
            let status = uview(cluster, &own, "status")?;
            ensure!(status.contains("shop/store"), "{status}");
            Ok(())
        })
    })?;
    let drain = uview(cluster, &own, "drain 0")?;
    ensure!(drain.contains("the verb update on agents/workers of uview.dev"), "a viewer drains: {drain}");
    let trigger = uview(cluster, &own, "trigger shop/store")?;
    ensure!(trigger.contains("the verb create on agents/traces of uview.dev"), "a viewer asks for traces: {trigger}");
    let foreign = uview(cluster, &other, "status")?;
    ensure!(foreign.contains("the API server does not accept the token"), "another audience: {foreign}");
    println!("{drain}{foreign}");
    cluster.sh(&format!("kubectl delete clusterrolebinding {BINDING}"))?;
    cluster.sh("kubectl -n shop delete serviceaccount dashboard")?;
    steps.run("turned off again", || {
        cluster.helm(&format!("upgrade uview {CHART} -n uview -f {values}"))?;
        cluster.rolled_out("host-agent")
    })?;
    // Only now: a kubelet waits with the end of a pod whose secret is gone.
    cluster.sh("kubectl -n uview delete secret operators-tls --wait=false").map(drop)
}
