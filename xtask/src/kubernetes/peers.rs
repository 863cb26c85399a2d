//! Gossip of the host agents in the chart: whether each pod asks for a certificate with which its agent is heard.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use support::certificates::{Authority, Subject};

use super::rendered::objects;

/// Where the chart mounts certificates of gossip.
const MOUNT: &str = "/etc/uview-peers-tls/";
/// What cert-manager's CSI driver replaces by the pod's name in the names of a certificate.
const POD: &str = "${POD_NAME}";
/// Name of a pod in the checks, and of its node.
const NAMES: [&str; 2] = ["uview-host-agent-x7k2p", "node-1"];
/// The URI by which a certificate has the role.
const ROLE: &str = "uview:peer";

/// The configuration `text`, if it has gossip with certificates of `names` in `folder` in place of those that the
/// chart mounts.
///
/// # Errors
///
/// A file cannot be written.
pub fn with_certificates(text: &str, names: &[&str], folder: &Path) -> Result<String> {
    if !text.contains(MOUNT) {
        return Ok(text.to_owned());
    }
    let authority = Authority::new("peers");
    authority.write(folder, "ca");
    Subject::new(names).signed_by(&authority).write(folder, "tls");
    for name in ["ca", "tls"] {
        fs::rename(folder.join(format!("{name}.pem")), folder.join(format!("{name}.crt")))?;
    }
    Ok(text.replace(MOUNT, &format!("{}/", folder.display())))
}

/// Checks the certificates of gossip, if agents of `rendered` gossip: they have the agent's name, the one by which the
/// others call it, and the role; and `uview` finds no fault with them.
///
/// # Errors
///
/// The first of these that is not so.
pub fn check(rendered: &str, uview: &Path) -> Result<()> {
    let objects = objects(rendered)?;
    let config = objects.iter().find_map(|object| object["data"]["host-agent.yaml"].as_str());
    let Some(text) = config.filter(|text| text.contains(MOUNT)) else { return Ok(()) };
    let config: Value = serde_saphyr::from_str(text)?;
    let address = config["coherence"]["peers"][0].as_str().context("coherence.peers has an address")?;
    let (host, port) = address.rsplit_once(':').context("an address has a port")?;
    ensure!(headless(&objects, host), "no Service without an address of its own is called {host}");
    let listen = config["coherence"]["listen"].as_str().unwrap_or_default();
    ensure!(listen.ends_with(&format!(":{port}")), "agents listen at {listen}, and call {address}");

    let agent = objects.iter().find(|object| is_host_agent(object)).context("a DaemonSet with the host agent")?;
    let names = names(&agent["spec"]["template"]["spec"], host)?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for name in [host, ROLE] {
        ensure!(names.contains(&name), "the certificate of a pod lacks {name}: {names:?}");
    }
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("host-agent.yaml");
    fs::write(&file, with_certificates(text, &names, folder.path())?)?;
    let checked = Command::new(uview).args(["host-agent", "--check-config", "--config"]).arg(&file).output()?;
    // Directories of a node are not here: the program may find fault with other keys.
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    let of_gossip: Vec<_> = text.lines().filter(|line| is_of_certificates(line)).collect();
    ensure!(!of_gossip.is_empty() && of_gossip.iter().all(|line| line.starts_with("ok ")), "{of_gossip:#?}\n{text}");
    Ok(())
}

/// The names in the certificate of a pod of the host agent, as the driver is asked for, or as nodes have to have them,
/// whose agents are called as `host`.
fn names(pod: &Value, host: &str) -> Result<Vec<String>> {
    let [pod_name, node_name] = NAMES;
    let args = strings(&pod["containers"][0]["args"]);
    let by_pod = args.windows(2).any(|pair| pair == ["--gossip-name", "$(POD_NAME)"]);
    let volumes = pod["volumes"].as_array().context("a pod has volumes")?;
    let volume = volumes.iter().find(|volume| volume["name"] == "peers-tls").context("a volume of certificates")?;
    if volume["hostPath"]["path"].is_string() {
        ensure!(!by_pod, "certificates of the node have its name, and the agent that of its pod");
        return Ok([node_name, host, ROLE].map(str::to_owned).into());
    }
    ensure!(by_pod, "the agent has no name that its certificate has: {args:?}");
    let variables = pod["containers"][0]["env"].as_array().context("the agent has variables")?;
    let is_known = |of: &Value| of["name"] == "POD_NAME" && of["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name";
    ensure!(variables.iter().any(is_known), "POD_NAME is not known");
    let attributes = &volume["csi"]["volumeAttributes"];
    let listed = |key: &str| attributes[format!("csi.cert-manager.io/{key}")].as_str().unwrap_or_default().to_owned();
    let all = [listed("dns-names"), listed("uri-sans")].join(",");
    let names: Vec<String> = all.split(',').map(|name| name.trim().replace(POD, pod_name)).collect();
    ensure!(names.iter().any(|name| name == pod_name), "the certificate of a pod lacks its name: {names:?}");
    Ok(names)
}

/// Whether a Service of `objects` stands for the addresses of its pods under the name `host`.
fn headless(objects: &[Value], host: &str) -> bool {
    let is_called = |of: &Value| {
        let [name, namespace] = ["name", "namespace"].map(|key| of["metadata"][key].as_str().unwrap_or_default());
        format!("{name}.{namespace}.svc") == host
    };
    objects.iter().any(|of| of["kind"] == "Service" && of["spec"]["clusterIP"] == "None" && is_called(of))
}

/// Whether it is the DaemonSet of the host agents.
fn is_host_agent(object: &Value) -> bool {
    object["kind"] == "DaemonSet" && object["metadata"]["labels"]["app.kubernetes.io/component"] == "host-agent"
}

/// Whether a line of `--check-config` is about certificates of gossip.
fn is_of_certificates(line: &str) -> bool {
    line.split_whitespace().nth(1).is_some_and(|key| key.starts_with("coherence.") && key.contains("tls"))
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HOST: &str = "uview-peers.uview.svc";

    /// A pod of the host agent with these arguments, whose certificates are in `volume`.
    fn pod(arguments: &[&str], volume: &Value) -> Value {
        let variable = json!({"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}});
        let container = json!({"args": arguments, "env": [variable]});
        let mut volume = volume.clone();
        volume["name"] = "peers-tls".into();
        json!({"containers": [container], "volumes": [{"name": "configuration"}, volume]})
    }

    fn by_driver(names: &str) -> Value {
        json!({"csi": {"volumeAttributes": {
            "csi.cert-manager.io/dns-names": names, "csi.cert-manager.io/uri-sans": ROLE,
        }}})
    }

    #[test]
    fn an_agent_has_the_name_that_its_certificate_has_or_it_is_refused() {
        let by_pod = ["--node", "$(NODE_NAME)", "--gossip-name", "$(POD_NAME)"];
        let driver = by_driver("${POD_NAME},uview-peers.uview.svc");
        let node = json!({"hostPath": {"path": "/etc/uview-peers"}});

        assert_eq!(names(&pod(&by_pod, &driver), HOST).unwrap(), [NAMES[0], HOST, ROLE]);
        assert_eq!(names(&pod(&by_pod[..2], &node), HOST).unwrap(), [NAMES[1], HOST, ROLE]);
        for (arguments, volume) in [(&by_pod[..2], &driver), (&by_pod[..], &node), (&by_pod[..], &by_driver(HOST))] {
            assert!(names(&pod(arguments, volume), HOST).is_err(), "{arguments:?} {volume}");
        }
    }

    #[test]
    fn only_a_service_without_an_address_stands_for_all_agents() {
        let service = |address: &str| {
            vec![json!({
                "kind": "Service", "metadata": {"name": "uview-peers", "namespace": "uview"},
                "spec": {"clusterIP": address},
            })]
        };

        assert!(headless(&service("None"), HOST));
        assert!(!headless(&service(""), HOST) && !headless(&service("None"), "uview-peers.other.svc"));
    }

    #[test]
    fn lines_about_certificates_of_gossip_are_told_from_others() {
        assert!(is_of_certificates("ok       coherence.peers_tls.certificate it has the role peer"));
        assert!(is_of_certificates("warning  coherence.tls.key            everybody can read it"));
        assert!(!is_of_certificates("error    coherence.listen             in use"));
        assert!(!is_of_certificates("ok       control.tls.certificate      it has the role peer"));
    }

    #[test]
    fn certificates_lie_where_the_configuration_says() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("tls: {{certificate: {MOUNT}tls.crt}}");

        let changed = with_certificates(&text, &[ROLE], folder.path()).unwrap();

        assert_eq!(changed, format!("tls: {{certificate: {}/tls.crt}}", folder.path().display()));
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            assert!(folder.path().join(name).is_file(), "{name}");
        }
        assert_eq!(with_certificates("a: b", &[], folder.path()).unwrap(), "a: b");
    }
}
