//! Which LMAPs an object of Kubernetes consists of: a pod's are those of its services on its node.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use kube::{Api, Client};
use pods::Pod;
use pods::workload::WorkloadKind;

use crate::agents::running_pods;
use crate::calls::within;
use crate::known::ClusterView;

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
    pub(crate) client: Client,
    pub(crate) known: Arc<ClusterView>,
}

impl Objects {
    /// The object called `name`.
    pub(crate) async fn named(&self, kind: Kind, namespace: &str, name: &str) -> Result<Composition, ObjectError> {
        let parts = match kind {
            Kind::Pod => {
                let pods: Api<api::Pod> = Api::namespaced(self.client.clone(), namespace);
                let pod = within(pods.get_opt(name)).await.map_err(ObjectError::Unknown)?;
                let pod = pod.ok_or(ObjectError::Missing("Pod"))?;
                parts(&[pod], |_| true)
            }
            Kind::Deployment => {
                let all: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
                let found = within(all.get_opt(name)).await.map_err(ObjectError::Unknown)?;
                let spec = found.ok_or(ObjectError::Missing("Deployment"))?.spec.unwrap_or_default();
                self.workload(namespace, (WorkloadKind::Deployment, name), spec.selector).await?
            }
            Kind::StatefulSet => {
                let all: Api<StatefulSet> = Api::namespaced(self.client.clone(), namespace);
                let found = within(all.get_opt(name)).await.map_err(ObjectError::Unknown)?;
                let spec = found.ok_or(ObjectError::Missing("StatefulSet"))?.spec.unwrap_or_default();
                self.workload(namespace, (WorkloadKind::StatefulSet, name), spec.selector).await?
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
        let pods = running_pods(&self.client, namespace, &selector.to_string()).await.map_err(ObjectError::Unknown)?;
        Ok(parts(&pods, |pod| pod.workload.kind == kind && pod.workload.name == name))
    }

    /// All running pods with `labels`.
    pub(crate) async fn pods(&self, namespace: &str, labels: &str) -> Result<Vec<Composition>, ObjectError> {
        let pods = running_pods(&self.client, namespace, labels).await.map_err(ObjectError::Unknown)?;
        let composition = |pod: &api::Pod| Composition {
            name: pod.metadata.name.clone().unwrap_or_default(),
            parts: parts(core::slice::from_ref(pod), |_| true),
        };
        Ok(pods.iter().map(composition).collect())
    }
}

/// The LMAPs of those of `pods` that are `wanted`, by node; each once.
fn parts(pods: &[api::Pod], wanted: impl Fn(&Pod) -> bool) -> Vec<(String, Vec<String>)> {
    let pods = pods.iter().filter_map(Pod::new).filter(|pod| !pod.is_own && !pod.node.is_empty() && wanted(pod));
    let all: BTreeSet<(String, Vec<String>)> = pods.map(|pod| (pod.node.clone(), services(&pod))).collect();
    all.into_iter().collect()
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
        assert_eq!(parts(&[cart.clone(), own, cart.clone()], |_| true), [("node-1".to_owned(), services)]);
        let is_of = |name: &str| parts(core::slice::from_ref(&cart), |pod| pod.workload.name == name).len();
        assert_eq!([is_of("cart"), is_of("payment")], [1, 0]);
    }
}
