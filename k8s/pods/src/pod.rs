//! What an object of the API server says about a pod.

use core::net::IpAddr;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;

use crate::names::short;
use crate::scraping::{self, ScrapeRequest};
use crate::workload::{self, Workload};

/// Annotation of static pods: the kubelet names their cgroup by the hash of their file, and not by the uid of the
/// object, which is a mirror.
const STATIC: &str = "kubernetes.io/config.hash";
/// Annotation with the service's name, of OpenTelemetry's conventions for Kubernetes. It holds within the namespace.
const SERVICE: &str = "resource.opentelemetry.io/service.name";
/// The labels that a Deployment gives its pods (the last part of the ReplicaSet's name), a StatefulSet and a DaemonSet.
const HASH: &str = "pod-template-hash";
const REVISION: &str = "controller-revision-hash";
const VERSION: &str = "app.kubernetes.io/version";
const NAME: &str = "app.kubernetes.io/name";
/// The restart policy of what serves; others end in the end.
const ALWAYS: &str = "Always";
/// Our own pods, which are not watched as services.
const OWN: &str = "uview";
/// Most containers of a pod that are known by name.
const MAX_CONTAINERS: usize = 64;
/// Most labels and named ports that are kept for selectors.
const MAX_SELECTED: usize = 32;

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
    /// The uid of its object.
    pub uid: String,
    /// The namespace that it is in.
    pub namespace: String,
    /// The pod's own name.
    pub name: String,
    /// The node that it runs on; empty before it is scheduled.
    pub node: String,
    /// What owns it.
    pub workload: Workload,
    /// Its service: `namespace/workload`, or `namespace/NAME` with the annotation
    /// `resource.opentelemetry.io/service.name`.
    pub service: String,
    /// The label `app.kubernetes.io/version`; without one the tag of its first image, or the hash of its template.
    pub version: String,
    /// Its addresses; several pods on the node's network have the same ones.
    pub addresses: Vec<IpAddr>,
    /// Names of its containers by their id (64 hexadecimal digits), as the runtime has given them so far.
    pub containers: BTreeMap<String, String>,
    /// The name of its container, if it has one, not counting those that only initialise it.
    pub container: Option<String>,
    /// Whether a container of it that ends is always started again.
    pub restarts: bool,
    /// Names of containers that initialise it, and end.
    pub initial: Vec<String>,
    /// Whether it is one of uview's own pods.
    pub is_own: bool,
    /// Whether it shares the network of its node, and so its address with others.
    pub has_host_network: bool,
    /// How far it is between its start and its end.
    pub stage: Stage,
    /// The runtime class that it asks for; empty for the node's usual one.
    pub runtime_class: String,
    /// What its annotations say about its Prometheus endpoint.
    pub scrape: ScrapeRequest,
    /// Its labels, for selectors, as lines `key=value`.
    pub labels: Box<str>,
    /// Its ports that have a name, for `PodMonitor`s.
    pub ports: Vec<(String, u16)>,
}

impl Pod {
    /// What `object` says. `None` without a namespace, name and uid: the API server gives all three.
    #[must_use]
    pub fn new(object: &api::Pod) -> Option<Self> {
        let metadata = &object.metadata;
        let text = |map: &Option<BTreeMap<String, String>>, key: &str| {
            map.as_ref().and_then(|map| map.get(key)).map(|text| short(text)).filter(|text| !text.is_empty())
        };
        let annotation = |key: &str| text(&metadata.annotations, key);
        let label = |key| text(&metadata.labels, key);
        let uid = short(metadata.uid.as_deref()?);
        let id = annotation(STATIC).and_then(|hash| PodId::new(&hash)).or_else(|| PodId::new(&uid))?;
        let (namespace, name) = (short(metadata.namespace.as_deref()?), short(metadata.name.as_deref()?));
        let workload = workload::of(object, &name, label(HASH).as_deref());
        let named = annotation(SERVICE).unwrap_or_else(|| workload.name.clone());
        let (spec, status) = (object.spec.as_ref(), object.status.as_ref());
        let addresses = status.and_then(|status| status.pod_ips.as_ref()).into_iter().flatten();
        let containers = spec.map(|spec| &spec.containers[..]).unwrap_or_default();
        let tag = || containers.first().and_then(|container| tag_of(container.image.as_deref()?));
        Some(Self {
            id,
            service: format!("{namespace}/{named}"),
            version: label(VERSION)
                .or_else(tag)
                .or_else(|| label(HASH))
                .or_else(|| label(REVISION))
                .unwrap_or_default(),
            addresses: addresses.filter_map(|address| address.ip.parse().ok()).take(2).collect(),
            containers: status.map(ids).unwrap_or_default(),
            container: containers.first().filter(|_| containers.len() == 1).map(|container| short(&container.name)),
            restarts: spec.is_some_and(|spec| spec.restart_policy.as_deref().is_none_or(|policy| policy == ALWAYS)),
            initial: spec.map(initial).unwrap_or_default(),
            is_own: label(NAME).as_deref() == Some(OWN),
            has_host_network: spec.and_then(|spec| spec.host_network).unwrap_or(false),
            stage: Stage::of(object),
            runtime_class: spec.and_then(|spec| spec.runtime_class_name.as_deref()).map(short).unwrap_or_default(),
            scrape: scraping::of_annotations(annotation),
            labels: metadata.labels.as_ref().map(lines).unwrap_or_default(),
            ports: ports(containers),
            node: spec.and_then(|spec| spec.node_name.as_deref()).map(short).unwrap_or_default(),
            uid,
            workload,
            namespace,
            name,
        })
    }

    /// Whether it has several containers, not counting those that only initialise it.
    #[must_use]
    pub const fn has_sidecars(&self) -> bool {
        self.container.is_none()
    }

    /// Whether it wants its container called `name` to run now, and always: a container that ends for good, or whose
    /// pod does, is no fault.
    #[must_use]
    pub fn awaits(&self, name: &str) -> bool {
        let is_leaving = matches!(self.stage, Stage::Leaving | Stage::Over);
        self.restarts && !is_leaving && !self.initial.iter().any(|initial| initial == name)
    }

    /// The value of the label `key`.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels
            .lines()
            .filter_map(|line| line.split_once('='))
            .find(|(known, _)| *known == key)
            .map(|(_, value)| value)
    }

    /// What OpenTelemetry's conventions call it: keys and values of a resource. The first three name the pod.
    pub fn attributes(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("k8s.namespace.name", self.namespace.as_str()),
            ("k8s.pod.name", &self.name),
            ("k8s.pod.uid", &self.uid),
            ("k8s.node.name", &self.node),
            (self.workload.kind.attribute(), &self.workload.name),
            ("k8s.container.name", self.container.as_deref().unwrap_or_default()),
            ("service.version", &self.version),
        ];
        all.into_iter().filter(|(key, value)| !key.is_empty() && !value.is_empty())
    }

    /// Bytes that it takes in memory, with what a map of pods takes for it; nodes of maps are counted as full ones.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let texts = [&self.uid, &self.namespace, &self.name, &self.node, &self.workload.name, &self.service];
        let texts = texts.into_iter().chain([&self.version, &self.runtime_class]).chain(&self.container);
        let texts = texts.chain(&self.initial);
        let pairs: usize = self
            .containers
            .iter()
            .map(|(key, value)| key.capacity() + value.capacity() + 2 * size_of::<String>())
            .sum();
        let ports: usize = self.ports.iter().map(|(name, _)| name.capacity() + size_of::<(String, u16)>()).sum();
        let path = self.scrape.path().map_or(0, str::len);
        size_of::<Self>()
            + size_of::<PodId>()
            + texts.map(String::capacity).sum::<usize>()
            + self.addresses.capacity() * size_of::<IpAddr>()
            + pairs
            + ports
            + path
            + self.labels.len()
            + self.initial.capacity() * size_of::<String>()
    }
}

/// Phases of pods of which no container runs, or will.
const OVER: [&str; 2] = ["Succeeded", "Failed"];

/// How far a pod is. What is said last here counts first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is not ready to serve.
    Starting,
    /// It is ready to serve.
    Ready,
    /// A container of it was started again.
    Restarted,
    /// It was told to end: it will stop to answer, and that is no fault.
    Leaving,
    /// Its containers have ended for good: its address may be another pod's.
    Over,
}

impl Stage {
    fn of(object: &api::Pod) -> Self {
        let Some(status) = &object.status else { return Self::Starting };
        let is_true = |condition: &api::PodCondition| condition.type_ == "Ready" && condition.status == "True";
        if status.phase.as_deref().is_some_and(|phase| OVER.contains(&phase)) {
            Self::Over
        } else if object.metadata.deletion_timestamp.is_some() {
            Self::Leaving
        } else if status.container_statuses.iter().flatten().any(|container| container.restart_count > 0) {
            Self::Restarted
        } else if status.conditions.iter().flatten().any(is_true) {
            Self::Ready
        } else {
            Self::Starting
        }
    }
}

/// The tag of `image`, unless it is one that moves.
fn tag_of(image: &str) -> Option<String> {
    let named = image.split('@').next().unwrap_or(image);
    let (_, tag) = named.rsplit('/').next()?.split_once(':')?;
    Some(short(tag)).filter(|tag| !tag.is_empty() && tag != "latest")
}

/// Labels as lines. Those of templates' hashes are left out, since nobody selects by them.
fn lines(labels: &BTreeMap<String, String>) -> Box<str> {
    // The API server lets no label have such letters.
    let is_plain = |text: &str| !text.contains(['\n', '\r', '=']);
    let selected = labels.iter().filter(|(key, _)| ![HASH, REVISION].contains(&key.as_str()));
    let selected = selected.filter(|(key, value)| is_plain(key) && is_plain(value)).take(MAX_SELECTED);
    let mut all = String::new();
    for (key, value) in selected {
        all.extend([&*short(key), "=", &*short(value), "\n"]);
    }
    all.into()
}

/// Ports with a name and a number.
fn ports(containers: &[api::Container]) -> Vec<(String, u16)> {
    let all = containers.iter().flat_map(|container| container.ports.iter().flatten());
    let named = all.filter_map(|port| Some((short(port.name.as_deref()?), u16::try_from(port.container_port).ok()?)));
    named.take(MAX_SELECTED).collect()
}

/// Names of containers that initialise a pod.
fn initial(spec: &api::PodSpec) -> Vec<String> {
    let all = spec.init_containers.iter().flatten().take(MAX_CONTAINERS);
    all.map(|container| short(&container.name)).collect()
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::names::MAX_NAME;

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
        pod(json!({"ownerReferences": owner, "labels": labels})).workload.name
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

        assert_eq!((named.service.as_str(), named.version.as_str(), named.is_own), ("shop/payment", "1.2", true));
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
        assert!(pod.has_sidecars() && pod.container.is_none());
    }

    #[test]
    fn a_pod_awaits_containers_that_serve_until_it_is_told_to_end() {
        let awaits = |policy: Value, deleted: Value, name: &str| {
            let object = json!({
                "metadata": {"name": "a", "namespace": "b", "uid": UID, "deletionTimestamp": deleted},
                "spec": {"containers": [{"name": "app"}], "initContainers": [{"name": "fetch"}], "restartPolicy": policy},
                "status": {"phase": "Running"},
            });
            Pod::new(&serde_json::from_value(object).unwrap()).unwrap().awaits(name)
        };

        assert!(awaits(Value::Null, Value::Null, "app") && awaits(json!("Always"), Value::Null, "app"));
        assert!(!awaits(json!("Always"), Value::Null, "fetch"), "it ends when it has fetched");
        assert!(!awaits(json!("OnFailure"), Value::Null, "app"), "a job ends");
        assert!(!awaits(json!("Always"), json!("2026-11-26T08:00:00Z"), "app"), "the pod ends");
    }

    #[test]
    fn names_are_bounded_and_objects_without_an_identity_are_nobody() {
        let long = "ä".repeat(1000);
        let named = pod(json!({"labels": {"app.kubernetes.io/version": long}}));
        assert!(named.version.len() <= MAX_NAME && named.version.starts_with('ä'));
        let many = |what: &str| (0..5_000).map(|at| (format!("{what}-{at}"), "v".repeat(2_000))).collect();
        let (labels, annotations): (BTreeMap<_, _>, BTreeMap<_, _>) = (many("label"), many("annotation"));
        let huge = pod(json!({"labels": labels, "annotations": annotations}));
        assert!(huge.memory_bytes() < 16 << 10, "{} bytes", huge.memory_bytes());
        assert!(Pod::new(&api::Pod::default()).is_none());
        for text in ["", "0b5c5b7e", "+b5c5b7e6f0f4c559d3a0d2b2a0c8f11", "0b5c5b7e-6f0f-4c55-9d3a-0d2b2a0c8f1x"] {
            assert_eq!(PodId::new(text), None, "{text}");
        }
    }
}
