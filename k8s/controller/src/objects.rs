//! Which LMAPs an object of Kubernetes consists of: a pod's are those of its services on its node.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use kube::core::Selector;
use pods::Pod;
use pods::workload::WorkloadKind;

use crate::known::ClusterView;
use crate::questions::Questions;

/// Kinds of objects that have metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One pod, or those with some labels.
    Pod,
    /// All pods of a Deployment.
    Deployment,
    /// All pods of a StatefulSet.
    StatefulSet,
    /// All LMAPs that an `Lmap` sets.
    Lmap,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Pod, Self::Deployment, Self::StatefulSet, Self::Lmap];

    /// Its name in paths, with its group.
    pub(crate) const fn resource(self) -> &'static str {
        match self {
            Self::Pod => "pods",
            Self::Deployment => "deployments.apps",
            Self::StatefulSet => "statefulsets.apps",
            Self::Lmap => "lmaps.uview.dev",
        }
    }

    /// Kind and version of its objects.
    pub(crate) const fn kind(self) -> [&'static str; 2] {
        match self {
            Self::Pod => ["Pod", "v1"],
            Self::Deployment => ["Deployment", "apps/v1"],
            Self::StatefulSet => ["StatefulSet", "apps/v1"],
            Self::Lmap => ["Lmap", "uview.dev/v1alpha1"],
        }
    }

    /// The kind whose resource is `name`, with or without its group.
    pub(crate) fn of_resource(name: &str) -> Option<Self> {
        let is_of = |kind: &Self| {
            let resource = kind.resource();
            resource == name || resource.split_once('.').is_some_and(|(plain, _)| plain == name)
        };
        Self::ALL.into_iter().find(is_of)
    }
}

/// An object, and the LMAPs that it consists of, by node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Composition {
    /// Name of the object.
    pub(crate) name: String,
    /// Its LMAPs by node.
    pub(crate) parts: Vec<(String, Vec<String>)>,
}

/// Why an object has no metrics.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ObjectError {
    /// There is none of that name.
    #[error("there is no {0} of that name in this namespace")]
    Missing(&'static str),
    /// The API server does not say.
    #[error("{0}")]
    Unknown(String),
}

/// Asks which LMAPs objects consist of.
#[derive(Clone)]
pub(crate) struct Objects {
    pub(crate) questions: Questions,
    pub(crate) known: Arc<ClusterView>,
}

impl Objects {
    /// The object called `name`.
    pub(crate) async fn named(&self, kind: Kind, namespace: &str, name: &str) -> Result<Composition, ObjectError> {
        let parts = match kind {
            Kind::Pod => {
                let get = async |client| Api::<api::Pod>::namespaced(client, namespace).get_opt(name).await;
                let parts = self.questions.one(get, |pod| of_pod(&pod)).await.map_err(ObjectError::Unknown)?;
                each_once(parts.ok_or(ObjectError::Missing("Pod"))?)
            }
            Kind::Deployment => {
                let get = async |client| Api::<Deployment>::namespaced(client, namespace).get_opt(name).await;
                let selector = |of: Deployment| of.spec.unwrap_or_default().selector;
                let selector = self.questions.one(get, selector).await.map_err(ObjectError::Unknown)?;
                let selector = selector.ok_or(ObjectError::Missing("Deployment"))?;
                self.workload(namespace, (WorkloadKind::Deployment, name), selector).await?
            }
            Kind::StatefulSet => {
                let get = async |client| Api::<StatefulSet>::namespaced(client, namespace).get_opt(name).await;
                let selector = |of: StatefulSet| of.spec.unwrap_or_default().selector;
                let selector = self.questions.one(get, selector).await.map_err(ObjectError::Unknown)?;
                let selector = selector.ok_or(ObjectError::Missing("StatefulSet"))?;
                self.workload(namespace, (WorkloadKind::StatefulSet, name), selector).await?
            }
            Kind::Lmap => {
                let key = (namespace.to_owned(), name.to_owned());
                self.known.services(&key).ok_or(ObjectError::Missing("Lmap"))?
            }
        };
        Ok(Composition { name: name.to_owned(), parts })
    }

    /// The pods of a workload. Others may have the same labels.
    async fn workload(
        &self,
        namespace: &str,
        (kind, name): (WorkloadKind, &str),
        selector: LabelSelector,
    ) -> Result<Vec<(String, Vec<String>)>, ObjectError> {
        let selector = Selector::try_from(selector).map_err(|error| ObjectError::Unknown(error.to_string()))?;
        let selector = selector.to_string();
        let keep =
            |pod: &api::Pod| part(pod, |pod| pod.workload.kind == kind && pod.workload.name == name).map(with_bytes);
        let parts = self.questions.running_pods(namespace, &selector, keep).await;
        Ok(each_once(parts.map_err(ObjectError::Unknown)?))
    }

    /// All running pods with `labels`.
    pub(crate) async fn pods(&self, namespace: &str, labels: &str) -> Result<Vec<Composition>, ObjectError> {
        let keep = |pod: &api::Pod| {
            let composition = Composition { name: pod.metadata.name.clone().unwrap_or_default(), parts: of_pod(pod) };
            let bytes = 64 + composition.name.len() + composition.parts.iter().map(bytes).sum::<usize>();
            Some((composition, bytes))
        };
        self.questions.running_pods(namespace, labels, keep).await.map_err(ObjectError::Unknown)
    }
}

/// A node, and LMAPs on it.
type NodeLmaps = (String, Vec<String>);

/// The LMAPs of `pod`, with its node, if it is `wanted`.
fn part(pod: &api::Pod, wanted: impl Fn(&Pod) -> bool) -> Option<NodeLmaps> {
    let pod = Pod::new(pod).filter(|pod| !pod.is_own && !pod.node.is_empty() && wanted(pod))?;
    Some((pod.node.clone(), services(&pod)))
}

/// The LMAPs of `pod`, with its node, if it has one.
fn of_pod(pod: &api::Pod) -> Vec<NodeLmaps> {
    part(pod, |_| true).into_iter().collect()
}

/// Each of `parts` once.
fn each_once(parts: Vec<NodeLmaps>) -> Vec<NodeLmaps> {
    let all: BTreeSet<NodeLmaps> = parts.into_iter().collect();
    all.into_iter().collect()
}

/// Bytes that a part takes.
fn bytes((node, lmaps): &NodeLmaps) -> usize {
    64 + node.len() + lmaps.iter().map(|name| 24 + name.len()).sum::<usize>()
}

fn with_bytes(part: NodeLmaps) -> (NodeLmaps, usize) {
    let bytes = bytes(&part);
    (part, bytes)
}

/// The services of a pod: its workload's, and those of its containers.
fn services(pod: &Pod) -> Vec<String> {
    let of_containers = pod.containers.values().map(|container| pod.member(Some(container)).service);
    let all: BTreeSet<String> = of_containers.chain([pod.service.clone()]).collect();
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kind_is_known_with_its_group_and_without() {
        for name in ["deployments.apps", "deployments"] {
            assert_eq!(Kind::of_resource(name), Some(Kind::Deployment));
        }
        assert_eq!(Kind::of_resource("lmaps.uview.dev"), Some(Kind::Lmap));
        assert_eq!([Kind::of_resource("nodes"), Kind::of_resource("deployments.other")], [None, None]);
    }

    #[test]
    fn a_pod_is_the_services_of_its_workload_and_containers_on_its_node() {
        let containers = |names: &[&str]| -> Vec<_> { names.iter().map(|name| json!({"name": name})).collect() };
        let statuses = |names: &[&str]| -> Vec<_> {
            let id = |at: usize| format!("containerd://{at:064x}");
            let status = |(at, name)| {
                json!({"name": name, "containerID": id(at), "image": "", "imageID": "", "ready": true,
                    "restartCount": 0})
            };
            names.iter().enumerate().map(status).collect()
        };
        let pod = |labels: serde_json::Value, names: &[&str]| -> api::Pod {
            let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "cart-abc", "uid": "1",
                "controller": true}]);
            serde_json::from_value(json!({
                "metadata": {"name": "cart-abc-1", "namespace": "shop", "uid": format!("{:032x}", 1),
                    "labels": labels, "ownerReferences": owner},
                "spec": {"nodeName": "node-1", "containers": containers(names)},
                "status": {"containerStatuses": statuses(names)},
            }))
            .unwrap()
        };
        let cart = pod(json!({"pod-template-hash": "abc"}), &["app", "proxy"]);
        let own = pod(json!({"app.kubernetes.io/name": "uview"}), &["host-agent"]);

        let services = ["shop/cart", "shop/cart/app", "shop/cart/proxy"].map(str::to_owned).to_vec();
        let parts = [&cart, &own, &cart].map(of_pod).concat();
        assert_eq!(each_once(parts), [("node-1".to_owned(), services)]);
        let is_of = |name: &str| part(&cart, |pod| pod.workload.name == name).is_some();
        assert_eq!([is_of("cart"), is_of("payment")], [true, false]);
    }
}
