//! What an object of the API server says about a pod.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1 as api;

/// Annotation of static pods: the kubelet names their cgroup by the hash of their file, and not by the uid of the
/// object, which is a mirror.
const STATIC: &str = "kubernetes.io/config.hash";
/// Annotation with the service's name, of OpenTelemetry's conventions for Kubernetes.
const SERVICE: &str = "resource.opentelemetry.io/service.name";
/// The label that a Deployment gives its pods: the last part of the ReplicaSet's name.
const HASH: &str = "pod-template-hash";
const VERSION: &str = "app.kubernetes.io/version";
const NAME: &str = "app.kubernetes.io/name";
/// Our own pods, which are not watched as services.
const OWN: &str = "uview";
/// Most bytes of a name that is kept; those of Kubernetes have at most 253.
const MAX_NAME: usize = 253;
/// Most containers of a pod that are known by name.
const MAX_CONTAINERS: usize = 64;

/// The 128 bits of a pod's uid, or of the hash of a static pod's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodId(u128);

impl PodId {
    /// Reads `0b5c5b7e-6f0f-4c55-9d3a-0d2b2a0c8f11`, the same with underscores (systemd), or without any.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|digit| !matches!(digit, '-' | '_')).collect();
        let is_id = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        u128::from_str_radix(&digits, 16).ok().filter(|_| is_id).map(Self)
    }

    /// The bits, the first digit's first.
    #[must_use]
    pub const fn bits(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

/// A pod, as far as its metrics need names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// What its cgroup is called.
    pub id: PodId,
    /// The namespace that it is in.
    pub namespace: String,
    /// The pod's own name.
    pub name: String,
    /// The name of the workload that owns it (Deployment, StatefulSet, DaemonSet, CronJob or Job), else its own.
    pub workload: String,
    /// Its service: `namespace/workload`, or what the annotation `resource.opentelemetry.io/service.name` says.
    pub service: String,
    /// The label `app.kubernetes.io/version`; empty without one.
    pub version: String,
    /// Its addresses; several pods on the node's network have the same ones.
    pub addresses: Vec<IpAddr>,
    /// Names of its containers by their id (64 hexadecimal digits), as the runtime has given them so far.
    pub containers: BTreeMap<String, String>,
    /// Whether it has several containers, not counting those that only initialise it.
    pub has_sidecars: bool,
    /// Whether it is one of uview's own pods.
    pub is_own: bool,
}

impl Pod {
    /// What `object` says. `None` without a namespace, name and uid: the API server gives all three.
    #[must_use]
    pub fn new(object: &api::Pod) -> Option<Self> {
        let metadata = &object.metadata;
        let text = |map: &Option<BTreeMap<String, String>>, key: &str| {
            map.as_ref().and_then(|map| map.get(key)).map(|text| short(text)).filter(|text| !text.is_empty())
        };
        let annotation = |key| text(&metadata.annotations, key);
        let label = |key| text(&metadata.labels, key);
        let id = annotation(STATIC).and_then(|hash| PodId::new(&hash));
        let id = id.or_else(|| PodId::new(metadata.uid.as_deref()?))?;
        let (namespace, name) = (short(metadata.namespace.as_deref()?), short(metadata.name.as_deref()?));
        let workload = workload(object, &name, label(HASH).as_deref());
        let service = annotation(SERVICE).unwrap_or_else(|| format!("{namespace}/{workload}"));
        let status = object.status.as_ref();
        let addresses = status.and_then(|status| status.pod_ips.as_ref()).into_iter().flatten();
        let addresses = addresses.filter_map(|address| address.ip.parse().ok()).take(2).collect();
        let containers = object.spec.as_ref().map_or(0, |spec| spec.containers.len());
        Some(Self {
            id,
            workload,
            service,
            version: label(VERSION).unwrap_or_default(),
            addresses,
            containers: status.map(ids).unwrap_or_default(),
            has_sidecars: containers > 1,
            is_own: label(NAME).as_deref() == Some(OWN),
            namespace,
            name,
        })
    }
}

/// At most [`MAX_NAME`] bytes of `text`.
fn short(text: &str) -> String {
    let mut end = text.len().min(MAX_NAME);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

/// Names of containers by their id: `containerd://ID` in the object.
fn ids(status: &api::PodStatus) -> BTreeMap<String, String> {
    let all = status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
    let named = all.filter_map(|container| {
        let (_, id) = container.container_id.as_deref()?.split_once("://")?;
        Some((short(id), short(&container.name)))
    });
    named.take(MAX_CONTAINERS).collect()
}

/// The name of the workload that owns a pod called `name`, whose template has the hash `hash`.
fn workload(object: &api::Pod, name: &str, hash: Option<&str>) -> String {
    let owners = object.metadata.owner_references.as_deref().unwrap_or_default();
    let Some(owner) = owners.iter().find(|owner| owner.controller == Some(true)) else { return name.to_owned() };
    let owned = short(&owner.name);
    let without = |end: &str| owned.strip_suffix(end).and_then(|start| start.strip_suffix('-')).map(str::to_owned);
    let found = match owner.kind.as_str() {
        // payment-6d4cf56db6
        "ReplicaSet" => hash.and_then(without),
        // A CronJob's Job ends with the minute it was due: report-29384720.
        "Job" => owned.rsplit_once('-').and_then(|(start, minute)| {
            let is_minute = minute.len() >= 8 && minute.bytes().all(|digit| digit.is_ascii_digit());
            is_minute.then(|| start.to_owned())
        }),
        // A static pod, with the node's name behind its own: etcd-node-1.
        "Node" => Some(name.strip_suffix(&format!("-{owned}")).unwrap_or(name).to_owned()),
        _ => None,
    };
    found.filter(|found| !found.is_empty()).unwrap_or(owned)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const UID: &str = "0b5c5b7e-6f0f-4c55-9d3a-0d2b2a0c8f11";

    fn pod(metadata: Value) -> Pod {
        let mut object = json!({
            "metadata": {"name": "payment-6d4cf56db6-x2x7k", "namespace": "shop", "uid": UID},
            "spec": {"containers": [{"name": "payment"}]},
        });
        let all = object["metadata"].as_object_mut().unwrap();
        let Value::Object(metadata) = metadata else { panic!("metadata is an object") };
        all.extend(metadata);
        Pod::new(&serde_json::from_value(object).unwrap()).unwrap()
    }

    fn owned(kind: &str, name: &str, labels: &Value) -> String {
        let owner = json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": UID, "controller": true}]);
        pod(json!({"ownerReferences": owner, "labels": labels})).workload
    }

    #[test]
    fn a_service_is_the_workload_that_owns_the_pod() {
        let hash = json!({"pod-template-hash": "6d4cf56db6"});
        assert_eq!(owned("ReplicaSet", "payment-6d4cf56db6", &hash), "payment");
        assert_eq!(owned("ReplicaSet", "payment-by-hand", &hash), "payment-by-hand");
        assert_eq!(owned("ReplicaSet", "payment-6d4cf56db6", &json!({})), "payment-6d4cf56db6");
        assert_eq!(owned("StatefulSet", "redis", &json!({})), "redis");
        assert_eq!(owned("DaemonSet", "proxy", &json!({})), "proxy");
        assert_eq!(owned("Job", "report-29384720", &json!({})), "report");
        assert_eq!(owned("Job", "migrate-2", &json!({})), "migrate-2");
        assert_eq!(owned("Node", "node-1", &json!({})), "payment-6d4cf56db6-x2x7k");
        assert_eq!(owned("Rollout", "canary", &json!({})), "canary", "a kind that nobody here knows");
        assert_eq!(pod(json!({})).service, "shop/payment-6d4cf56db6-x2x7k", "nobody owns it");
    }

    #[test]
    fn an_annotation_names_the_service_and_labels_its_version() {
        let named = pod(json!({
            "annotations": {"resource.opentelemetry.io/service.name": "payment"},
            "labels": {"app.kubernetes.io/version": "1.2", "app.kubernetes.io/name": "uview"},
        }));

        assert_eq!((named.service.as_str(), named.version.as_str(), named.is_own), ("payment", "1.2", true));
    }

    #[test]
    fn a_static_pod_is_found_by_the_hash_of_its_file() {
        let hash = "d3adbeefd3adbeefd3adbeefd3adbeef";
        let mirrored = pod(json!({"annotations": {"kubernetes.io/config.hash": hash}}));
        assert_eq!(mirrored.id, PodId::new(hash).unwrap());
        assert_eq!(pod(json!({})).id, PodId::new(UID).unwrap());
    }

    #[test]
    fn containers_are_known_by_their_ids_once_they_run() {
        let object = json!({
            "metadata": {"name": "a", "namespace": "b", "uid": UID},
            "spec": {"containers": [{"name": "app"}, {"name": "proxy"}]},
            "status": {
                "podIPs": [{"ip": "10.1.0.7"}, {"ip": "fd00::7"}, {"ip": "no address"}],
                "containerStatuses": [
                    {"name": "app", "containerID": "containerd://ab", "image": "", "imageID": "", "ready": true,
                     "restartCount": 0},
                    {"name": "proxy", "image": "", "imageID": "", "ready": false, "restartCount": 0},
                ],
            },
        });

        let pod = Pod::new(&serde_json::from_value(object).unwrap()).unwrap();

        assert_eq!(pod.containers, BTreeMap::from([("ab".to_owned(), "app".to_owned())]));
        assert_eq!(pod.addresses.len(), 2);
        assert!(pod.has_sidecars);
    }

    #[test]
    fn names_are_bounded_and_objects_without_an_identity_are_nobody() {
        let long = "ä".repeat(1000);
        let named = pod(json!({"labels": {"app.kubernetes.io/version": long}}));
        assert!(named.version.len() <= MAX_NAME && named.version.starts_with('ä'));
        assert!(Pod::new(&api::Pod::default()).is_none());
        for text in ["", "0b5c5b7e", "+b5c5b7e6f0f4c559d3a0d2b2a0c8f11", "0b5c5b7e-6f0f-4c55-9d3a-0d2b2a0c8f1x"] {
            assert_eq!(PodId::new(text), None, "{text}");
        }
    }
}
