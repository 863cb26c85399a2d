//! OTLP as the chart has it by default: without an upstream it is watched, and passed on to nobody. No port of the node
//! is open for it.

use anyhow::{Context as _, Result, ensure};

use super::super::chart::CHART;
use super::kit::{Cluster, IMAGE, SHELL};
use super::steps::Steps;
use super::traces::has_iptables;

/// Directory of the sockets of an installation whose values name no other.
const SOCKETS: &str = "/run/uview";
/// The workload that sends. Its containers are services of their own: what this one has is made of its spans.
const SERVICE: &str = "quick/sender";
/// How names of columns begin that are made of spans.
const OF_SPANS: &str = "traces.span.metrics.";
/// What counts its spans that were passed on to nobody.
const UNFORWARDED: &str = r#"uview_host_unforwarded_otlp_items_total{signal="traces"}"#;
/// The Service, as the chart has it for a Kubernetes that knows Services of one's own node. The kit's API server takes
/// it without that: there is one node.
const RENDERED_FOR: &str = "1.30.0";
/// What kube-proxy does for the Service, which the kit has not: its address leads to the agent's pod, and who sends
/// keeps its own. Prints that address.
const WAY: &str = "set -e; service=$(kubectl -n uview get service uview-otlp -o jsonpath={.spec.clusterIP}); \
    pod=$(kubectl -n uview get endpoints uview-otlp -o jsonpath={.subsets[0].addresses[0].ip}); \
    [ -n \"$pod\" ]; \
    iptables -t nat -A PREROUTING -d $service/32 -p tcp --dport 4317 -j DNAT --to-destination $pod:4317; echo $service";

/// A service of the shop with an SDK, which knows one variable and nothing of uview, and its visitors.
fn manifest(endpoint: &str) -> String {
    let visit = "while :; do wget -q -O /dev/null http://127.0.0.1:8080/view?key=7; sleep 0.1; done";
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: sender, namespace: quick}}
spec:
  selector: {{matchLabels: {{app: sender}}}}
  template:
    metadata: {{labels: {{app: sender}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: cart
        image: {IMAGE}
        imagePullPolicy: Never
        args: [shop, --service, cart, --listen, '0.0.0.0:8080', --admin, '0.0.0.0:8081', --socket,
               /nowhere/services.sock, --otlp, $(OTEL_EXPORTER_OTLP_ENDPOINT)]
        env: [{{name: OTEL_EXPORTER_OTLP_ENDPOINT, value: '{endpoint}'}}]
      - {{name: visitors, image: '{SHELL}', imagePullPolicy: Never, command: [sh, -c, '{visit}']}}
"
    )
}

/// Where pods send: to the Service, where there is iptables(8) for what kube-proxy would do, else to the agent's pod.
///
/// # Errors
///
/// The Service does not lead to the agent within two minutes.
fn endpoint(cluster: &Cluster) -> Result<String> {
    if !has_iptables() {
        return Ok(format!("http://{}:4317", cluster.agent()));
    }
    let arguments = format!("uview {CHART} -n uview --kube-version {RENDERED_FOR} --show-only templates/otlp.yaml");
    cluster.apply("otlp.yaml", &cluster.template(&arguments)?)?;
    let address = Cluster::until_some("the Service leads to the agent", || cluster.sh(WAY))?;
    Ok(format!("http://{}:4317", address.trim()))
}

/// A workload sends spans to the installation of default values that is there: they are columns of its LMAP, and are
/// counted as passed on to nobody, which the status says.
///
/// # Errors
///
/// Not within two minutes each.
pub fn check(cluster: &Cluster, steps: &mut Steps) -> Result<()> {
    let way =
        if has_iptables() { "the Service's address, by a rule in kube-proxy's place" } else { "its pod's address" };
    steps.run(&format!("OTLP without an upstream, to {way}: columns, and on to nobody"), || {
        cluster.rolled_out("host-agent")?;
        let agents = cluster.sh("kubectl -n uview get ds uview-host-agent -o json")?;
        ensure!(!agents.contains("\"hostPort\""), "a port of the node is open: {agents}");
        cluster.apply("sender.yaml", &manifest(&endpoint(cluster)?))?;
        let columns = Cluster::until_some("its LMAP has columns of spans", || {
            let metrics = cluster.json_at(SOCKETS, &format!("metric {SERVICE}"))?;
            let metrics = metrics.as_array().context("metrics are a list")?.iter();
            let names: Vec<_> = metrics.filter_map(|metric| metric["name"].as_str()).map(str::to_owned).collect();
            let status = cluster.status_at(SOCKETS)?;
            let columns = status.lmap(SERVICE)["columns"].as_u64().unwrap_or_default();
            let are_of_spans = !names.is_empty() && names.iter().all(|name| name.starts_with(OF_SPANS));
            ensure!(are_of_spans && columns >= 3, "{columns} columns of {names:?}; {status}");
            Ok(columns)
        })?;
        let spans = Cluster::until_some("spans are counted that went to nobody", || {
            let spans = cluster.metric(UNFORWARDED)?;
            ensure!(spans >= 1.0, "{spans} spans");
            Ok(spans)
        })?;
        let status = cluster.status_at(SOCKETS)?;
        ensure!(status.has_note("otlp.watch_only: "), "the status does not say so: {status}");
        ensure!(!status.has_problem("otlp: "), "the sender is not known by its address: {status}");
        println!("{SERVICE}: {columns} columns, all of spans; {spans} spans were passed on to nobody");
        // What undoes the page is to find what the page has made. Without it there is nothing to remove.
        cluster.sh("kubectl -n uview delete service uview-otlp --ignore-not-found").map(drop)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_sender_knows_one_variable_and_nothing_of_uview() {
        let manifest: Value = serde_saphyr::from_str(&manifest("http://10.96.0.7:4317")).unwrap();

        let pod = &manifest["spec"]["template"]["spec"];
        let [sender, visitors] = &pod["containers"].as_array().unwrap()[..] else { unreachable!("{pod}") };
        assert_eq!(sender["env"][0]["value"], "http://10.96.0.7:4317");
        let arguments: Vec<_> = sender["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(arguments.ends_with(&["--otlp", "$(OTEL_EXPORTER_OTLP_ENDPOINT)"]), "{arguments:?}");
        assert!(pod["volumes"].is_null() && pod["hostNetwork"].is_null());
        assert!(visitors["command"][2].as_str().unwrap().contains("/view?key=7"), "{visitors}");
    }
}
