//! The chart without a cluster: helm's own checks, the manifests that are rendered from it, and its memory limits
//! against what the agents say they need.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use support::workspace;

use super::{peers, pod_monitor};
use crate::command::output;

/// The chart, and what is rendered from it for those without helm.
pub const CHART: &str = "k8s/chart";
const MANIFESTS: &str = "k8s/manifests/uview.yaml";
/// The chart of custom resources, and their definitions, which the agent prints.
const CRD_CHART: &str = "k8s/chart-crds";
const CRDS: &str = "k8s/chart-crds/files/crds.yaml";
/// Kubernetes that the chart is rendered for, whichever one this release of helm would assume: the Service for OTLP
/// takes 1.22.
const KUBERNETES: &str = "1.30.0";
/// One without that Service, which the chart takes, too.
const EARLIER_KUBERNETES: &str = "1.21.0";
/// Values as `helm upgrade --reuse-values` keeps them of an earlier release: its defaults, and nothing that came later.
const REUSED: &str = "otlp.hostPort=true,otlp.watchOnly=null,hostAgent.peers=null,hostAgent.extraVolumes=null,\
                      hostAgent.extraVolumeMounts=null,priorityClass=null";
/// Values without which nodes do not gossip.
const UPSTREAM: &str = "otlp.upstream.endpoint=http://collector:4317";
const ORDER: &str = "hostAgent.peers.orderKey=8d0f3a5b6c7e9f1a2b3c4d5e6f708192";
/// The subcommand of the CSI driver.
const CSI: &str = "csi";
/// The subcommand of the controller.
const CONTROLLER: &str = "controller";
/// Where the chart mounts headers of outputs.
const HEADERS: &str = "/etc/uview-headers/";
/// A limit is at least this many times the budget. What is reserved is the request, not the limit.
const ROOM: f64 = 1.05;
/// Services of a node, and columns of each: the kubelet runs 110 pods by default.
const LOAD: [&str; 4] = ["--services", "110", "--columns", "100"];

/// Checks each file of values, and the rendered manifests; with `write`, writes these instead.
///
/// # Errors
///
/// The first check that fails.
pub fn check(helm: &Path, uview: &Path, write: bool) -> Result<()> {
    let folder = workspace().join(CHART).join("ci");
    let mut values: Vec<_> = fs::read_dir(&folder)?.map(|file| Ok(file?.path())).collect::<Result<_>>()?;
    values.sort();
    for file in &values {
        let name = file.file_name().context("a file of values has a name")?.display();
        output(helm_in(helm, "lint").arg("--strict").arg("--values").arg(file)).with_context(|| name.to_string())?;
        let rendered = render(helm, &["--values".as_ref(), file.as_os_str()])?;
        let limits = limits(&rendered, uview).with_context(|| name.to_string())?;
        peers::check(&rendered, uview).with_context(|| name.to_string())?;
        pod_monitor::check(&rendered).with_context(|| name.to_string())?;
        println!("{name}: {} objects; {}", objects(&rendered)?.len(), limits.join(", "));
    }
    refused(helm)?;
    otlp(helm)?;
    services(helm)?;
    priority(helm)?;
    reused(helm)?;
    definitions(helm, uview, write)?;
    manifests(helm, write)
}

/// Compares the definitions of custom resources with those of the Rust types, or writes them; and renders their chart.
fn definitions(helm: &Path, uview: &Path, write: bool) -> Result<()> {
    let printed = output(Command::new(uview).args(["host-agent", "--print-custom-resources"]))?;
    let text = format!(
        "# Printed by `uview host-agent --print-custom-resources`. kubectl apply --server-side -f FILE\n{printed}"
    );
    written(CRDS, &text, write)?;
    // The API server names the node in the tokens of its pods, by default, since 1.30.
    for (version, has_policy) in [("1.29.0", false), ("1.30.0", true)] {
        let mut template = Command::new(helm);
        template.args(["template", "uview-crds", CRD_CHART, "--kube-version", version]).current_dir(workspace());
        let rendered = output(&mut template)?;
        let objects = objects(&rendered)?;
        let count = |kind: &str| objects.iter().filter(|object| object.kind == kind).count();
        let (definitions, policies) = (count("CustomResourceDefinition"), count("ValidatingAdmissionPolicy"));
        let wanted = (printed.matches("kind: CustomResourceDefinition").count(), usize::from(has_policy));
        ensure!(
            (definitions, policies) == wanted,
            "{CRD_CHART}, {version}: {definitions} definitions, {policies} policies"
        );
    }
    output(Command::new(helm).args(["lint", "--strict", CRD_CHART]).current_dir(workspace())).map(drop)
}

/// Compares the file at `path` with `text`, or writes it.
fn written(path: &str, text: &str, write: bool) -> Result<()> {
    let file = workspace().join(path);
    if write {
        fs::create_dir_all(file.parent().context("a file is in a folder")?)?;
        return fs::write(&file, text).with_context(|| path.to_owned());
    }
    let there = fs::read_to_string(&file).with_context(|| path.to_owned())?;
    ensure!(there == text, "{path} differs from what it is made of: run `cargo xtask kubernetes --write`");
    Ok(())
}

/// Values of gossip between nodes, with `more` of them.
fn gossip(more: &str) -> String {
    format!("hostAgent.peers.enabled=true,{UPSTREAM},{ORDER},hostAgent.peers.{more}")
}

/// Values that the schema or a template has to refuse.
fn refused(helm: &Path) -> Result<()> {
    for wrong in [
        "otlp.keep=some",
        // Log records follow decisions about traces.
        "otlp.keep=all,otlp.logs=tail",
        "hostAgent.profiles.seccomp.type=None",
        "otlp.upstream.endpoint=collector:4317",
        "otlp.watchOnly=maybe",
        "otlp.hostPort=4317",
        "hostAgent.socketdir=/run",
        "capture.enabled=x",
        // A listener of the network without certificates, and a certificate without a name.
        "hostAgent.dpu.enabled=true",
        "hostAgent.dpu.enabled=true,hostAgent.dpu.issuer.name=fabric",
        // Tokens that would travel without a certificate, and for nobody in particular.
        "hostAgent.operatorsApi.enabled=true",
        "hostAgent.operatorsApi.enabled=true,hostAgent.operatorsApi.secretName=tls,hostAgent.operatorsApi.audience=",
        "csi.enabled=true,csi.kubeletDir=kubelet",
        // Higher classes are the cluster's own.
        "priorityClass.create=true,priorityClass.value=2000000000",
        // Gossip without spans, without an order that all nodes have, and without certificates, or with two of them.
        &gossip("issuer.name=peers").replace(UPSTREAM, "otlp.upstream=null,otlp.watchOnly=false"),
        &gossip("issuer.name=peers").replace(ORDER, "hostAgent.peers.orderKey="),
        &gossip("issuer.name=peers").replace(ORDER, "hostAgent.peers.orderKey=abc"),
        &gossip("nodeDir="),
        &gossip("issuer.name=peers,hostAgent.peers.nodeDir=/etc/uview-peers"),
        // Metrics without a certificate, and a certificate whose authority nobody knows.
        "controller.enabled=true,controller.customMetrics.enabled=true",
        "controller.enabled=true,controller.customMetrics.enabled=true,controller.customMetrics.secretName=tls",
    ] {
        let mut template = helm_in(helm, "template");
        let status = template.args(["--set", wrong]).output()?.status;
        ensure!(!status.success(), "the chart accepts {wrong}");
    }
    Ok(())
}

/// What becomes of OTLP by the values: it is watched only, passed on, or not taken. A port of the node is opened where
/// it is passed on, and where that is said.
fn otlp(helm: &Path) -> Result<()> {
    let (on, on_node, service) = ("containerPort: 4317", "hostPort: 4317", "name: uview-otlp");
    let (watched, forwarded, gossips) = ("watch_only: true", "upstream:", "coherence:");
    // Log records are chosen where they go nowhere and traces are chosen: else nobody would look at them.
    let (all_logs, some_logs) = ("logs:\n        keep: all", "logs:\n        keep: tail");
    let watching_peers = gossip("issuer.name=peers").replace(UPSTREAM, "otlp.upstream=null");
    let cases: [(&str, &[&str], &[&str]); 11] = [
        ("otlp.keep=tail", &[watched, on, service, some_logs], &[on_node, forwarded]),
        ("otlp.keep=all", &[watched, on, service, all_logs], &[on_node, forwarded]),
        ("otlp.hostPort=true", &[watched, on_node, service], &[forwarded]),
        // Nobody knows whose pod an address is: that takes a word.
        ("pods.enabled=false", &[], &[watched, on, service]),
        ("pods.enabled=false,otlp.hostPort=true", &[watched, on_node, service], &[forwarded]),
        (watching_peers.as_str(), &[watched, gossips, service], &[forwarded]),
        ("otlp.watchOnly=false", &[], &[watched, on, service]),
        ("otlp.upstream.endpoint=http://c:4317", &[forwarded, on_node, service, all_logs], &[watched]),
        ("otlp.upstream.endpoint=http://c:4317,otlp.hostPort=false", &[forwarded, on, service], &[on_node, watched]),
        // On the node's own network every port is one of the node.
        ("hostAgent.dpu.enabled=true,hostAgent.dpu.secretName=tls", &[], &[watched, on, service]),
        // Spans of rings go on, as before; nobody is listened to.
        ("hostAgent.config.otlp.upstream.endpoint=http://c:4317", &[forwarded], &[watched, on, service]),
    ];
    for (set, there, absent) in cases {
        has(&render(helm, &["--set".as_ref(), set.as_ref()])?, set, (there, absent))?;
    }
    let before = render(helm, &["--kube-version".as_ref(), "1.21.0".as_ref()])?;
    ensure!(before.contains(watched) && !before.contains(service), "1.21: a Service leads to any node's agent");
    Ok(())
}

/// From Kubernetes 1.22 on a Service leads to the agent of the sender's own node. Before, any node's would answer: OTLP
/// has no Service, though its ports are there, and that of the operators' API says nothing about nodes.
fn services(helm: &Path) -> Result<()> {
    let set = format!("{UPSTREAM},hostAgent.operatorsApi.enabled=true,hostAgent.operatorsApi.secretName=tls");
    for (version, is_local) in [(EARLIER_KUBERNETES, false), (KUBERNETES, true)] {
        let rendered = render_for(version, helm, &["--set".as_ref(), set.as_ref()])?;
        ensure!(rendered.contains("containerPort: 4317"), "Kubernetes {version}: the chart renders no port for OTLP");
        for text in ["name: uview-otlp", "internalTrafficPolicy: Local"] {
            let is_there = rendered.contains(text);
            ensure!(is_there == is_local, "Kubernetes {version}: that the chart renders `{text}` is {is_there}");
        }
    }
    Ok(())
}

/// Which class the agents' pods have, by the values. Helm has numbers with a point: a large one would be written as a
/// power.
fn priority(helm: &Path) -> Result<()> {
    let own = "\nvalue: 1000000000\n";
    let cases: [(&str, &[&str], &[&str]); 4] = [
        ("otlp.keep=tail", &["priorityClassName: system-node-critical\n"], &["kind: PriorityClass"]),
        ("priorityClassName=", &[], &["priorityClassName", "kind: PriorityClass"]),
        ("priorityClass.create=true", &["priorityClassName: uview\n", own], &["ClassName: system-node-critical"]),
        ("priorityClass.create=true,priorityClassName=", &["priorityClassName: uview\n", own], &[]),
    ];
    for (set, there, absent) in cases {
        has(&render(helm, &["--set".as_ref(), set.as_ref()])?, set, (there, absent))?;
    }
    Ok(())
}

/// Checks that `rendered` with the values `set` has the texts `there`, and none of `absent`.
fn has(rendered: &str, set: &str, (there, absent): (&[&str], &[&str])) -> Result<()> {
    for text in there {
        ensure!(rendered.contains(text), "{set}: the chart renders no `{text}`");
    }
    for text in absent {
        ensure!(!rendered.contains(text), "{set}: the chart renders `{text}`");
    }
    Ok(())
}

/// With values of an earlier release the chart does what it did: no OTLP without an upstream, and no gossip.
fn reused(helm: &Path) -> Result<()> {
    let rendered = render(helm, &["--set".as_ref(), REUSED.as_ref()]).context("values of an earlier release")?;
    for text in ["watch_only: true", "containerPort: 4317", "name: gossip", "--gossip-name", "kind: PriorityClass"] {
        ensure!(!rendered.contains(text), "with values of an earlier release the chart renders `{text}`");
    }
    Ok(())
}

/// `helm COMMAND CHART`.
fn helm_in(helm: &Path, command: &str) -> Command {
    let mut helm = Command::new(helm);
    helm.arg(command);
    if command == "template" {
        helm.arg("uview");
    }
    helm.arg(CHART).args(["--namespace", "uview"]).current_dir(workspace());
    helm
}

/// The chart's objects for a cluster of [`KUBERNETES`].
fn render(helm: &Path, arguments: &[&OsStr]) -> Result<String> {
    render_for(KUBERNETES, helm, arguments)
}

/// The chart's objects for a cluster of this version of Kubernetes.
fn render_for(version: &str, helm: &Path, arguments: &[&OsStr]) -> Result<String> {
    output(helm_in(helm, "template").args(["--kube-version", version]).args(arguments))
}

/// Compares the manifests, or writes them.
fn manifests(helm: &Path, write: bool) -> Result<()> {
    let rendered = render(helm, &["--skip-tests".as_ref()])?;
    let text = format!(
        "# Rendered from k8s/chart by `cargo xtask kubernetes --write`. kubectl apply -f FILE\n\
         # Before Kubernetes 1.22 the Service uview-otlp has to be taken out.\n\
         apiVersion: v1\nkind: Namespace\nmetadata:\n  name: uview\n  labels:\n    \
         # The agents mount directories of the node and see its processes.\n    \
         pod-security.kubernetes.io/enforce: privileged\n{rendered}"
    );
    written(MANIFESTS, &text, write)
}

/// What is read of an object.
#[derive(Debug, Deserialize)]
struct Object {
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    data: BTreeMap<String, String>,
    #[serde(default)]
    spec: Spec,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
struct Spec {
    #[serde(default)]
    template: Option<Template>,
}

#[derive(Debug, Deserialize)]
struct Template {
    spec: PodSpec,
}

#[derive(Debug, Deserialize)]
struct PodSpec {
    containers: Vec<Container>,
    #[serde(default)]
    volumes: Vec<Volume>,
}

#[derive(Debug, Deserialize)]
struct Container {
    name: String,
    args: Vec<String>,
    #[serde(default)]
    resources: Resources,
}

#[derive(Debug, Default, Deserialize)]
struct Resources {
    #[serde(default)]
    limits: BTreeMap<String, serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct Volume {
    #[serde(default, rename = "configMap")]
    config_map: Option<Metadata>,
}

fn objects(rendered: &str) -> Result<Vec<Object>> {
    let documents = rendered.split("\n---\n").filter(|text| text.lines().any(|line| line.starts_with("kind:")));
    let read = |text| serde_saphyr::from_str(text).with_context(|| format!("helm rendered no object:\n{text}"));
    documents.map(read).collect()
}

/// For each container, its limit and its agent's budget in MiB. The agent also has to accept its configuration.
fn limits(rendered: &str, uview: &Path) -> Result<Vec<String>> {
    let objects = objects(rendered)?;
    let folder = tempfile::tempdir()?;
    let mut lines = Vec::new();
    for template in objects.iter().filter_map(|object| object.spec.template.as_ref()) {
        if let [container] = template.spec.containers.as_slice()
            && container.args.first().is_some_and(|arg| arg == CONTROLLER)
        {
            // It has no configuration: its arguments say what it serves.
            let text = output(Command::new(uview).args(&container.args).arg("--budget"))?;
            lines.push(limit(container, &text)?);
            continue;
        }
        let mut names = template.spec.volumes.iter().filter_map(|volume| volume.config_map.as_ref());
        let config_map = &names.next().context("an agent has a configuration")?.name;
        // The CSI driver keeps nothing.
        let is_agent = |container: &&Container| container.args.first().is_none_or(|arg| arg != CSI);
        for container in template.spec.containers.iter().filter(is_agent) {
            let [agent, _, file, ..] = container.args.as_slice() else {
                bail!("{} has other arguments", container.name)
            };
            let file = Path::new(file).file_name().and_then(|name| name.to_str()).context("--config names a file")?;
            let mut of_name = objects.iter().filter(|object| object.kind == "ConfigMap");
            let data =
                of_name.find(|object| object.metadata.name == *config_map).context("a ConfigMap of that name")?;
            let path = folder.path().join(file);
            let text = data.data.get(file).with_context(|| format!("{config_map} has no {file}"))?;
            let text = with_secret(text, folder.path())?;
            fs::write(&path, peers::with_certificates(&text, &["node-1"], folder.path())?)?;
            let text = output(Command::new(uview).args([agent, "--budget", "--config"]).arg(&path).args(LOAD))?;
            lines.push(limit(container, &text)?);
        }
    }
    Ok(lines)
}

/// The configuration `text` with a file in `folder` for each header that the chart mounts from a Secret.
fn with_secret(text: &str, folder: &Path) -> Result<String> {
    for name in text.split(HEADERS).skip(1).map(|rest| rest.split(|c: char| !is_of_a_file(c)).next()) {
        fs::write(folder.join(name.unwrap_or_default()), "Bearer of-a-check\n")?;
    }
    Ok(text.replace(HEADERS, &format!("{}/", folder.display())))
}

/// Whether a key of a Secret may have this character.
const fn is_of_a_file(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// The limit of `container`, which has room for its budget, as `text` has it.
fn limit(container: &Container, text: &str) -> Result<String> {
    let budget = sum(text).context("--budget prints no sum")?;
    let limit = container.resources.limits.get("memory").and_then(|limit| limit.as_str()).context("no limit")?;
    let limit = mebibytes(limit).with_context(|| format!("{limit} is no memory"))?;
    let name = &container.name;
    ensure!(limit >= ROOM * budget, "{name}: limit {limit} MiB, its budget is {budget} MiB");
    Ok(format!("{name} {limit} of {budget} MiB"))
}

/// The last line of `--budget` before what is on disk: `1884 MiB  all`.
fn sum(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.trim_end().ends_with(" all"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn mebibytes(quantity: &str) -> Option<f64> {
    let known = [("Gi", 1024.0), ("Mi", 1.0)];
    known.iter().find_map(|(unit, factor)| Some(quantity.strip_suffix(unit)?.parse::<f64>().ok()? * factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_its_last_sum_and_a_limit_a_quantity() {
        assert_eq!(sum("     48 MiB  program: fixed\n   1884 MiB  all\n\nOn disk:\n"), Some(1884.0));
        assert_eq!((mebibytes("2Gi"), mebibytes("1216Mi"), mebibytes("5G")), (Some(2048.0), Some(1216.0), None));
    }

    #[test]
    fn objects_are_read_from_what_helm_renders() {
        let text = "---\n# Source: a\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: y}\n---\n# Source: nothing\n";
        let objects = objects(text).unwrap();
        assert_eq!((objects.len(), objects[0].data["x"].as_str()), (1, "y"));
    }
}
