//! The pods of a node. A list begins anew when a watch has ended: pods that it does not name are gone.

use std::collections::BTreeMap;

use crate::cgroup::container_of;
use crate::pod::{Pod, PodId};

/// Most pods that are kept: the kubelet runs 110 by default, and some hundreds at most.
pub const MAX_PODS: usize = 1024;

/// A container of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// `namespace/workload`, and the container's name if the pod has several.
    pub service: String,
    /// The pod's name.
    pub instance: String,
}

/// What is known of the containers of this node.
#[derive(Debug, Default)]
pub struct Pods {
    known: BTreeMap<PodId, Pod>,
    /// A list in progress.
    listed: Option<BTreeMap<PodId, Pod>>,
    /// Changes of what is known.
    version: u64,
    refused: u64,
}

impl Pods {
    /// A list begins. What is known stays until [`Self::end_list`].
    pub fn begin_list(&mut self) {
        self.listed = Some(BTreeMap::new());
    }

    /// A pod of the list in progress.
    pub fn add_listed(&mut self, pod: Pod) {
        let Self { listed, refused, .. } = self;
        insert(listed.get_or_insert_default(), pod, refused);
    }

    /// The list is complete: other pods are gone.
    pub fn end_list(&mut self) {
        if let Some(listed) = self.listed.take() {
            self.version += u64::from(listed != self.known);
            self.known = listed;
        }
    }

    /// A pod is new, or has changed.
    pub fn apply(&mut self, pod: Pod) {
        if self.known.get(&pod.id) != Some(&pod) && insert(&mut self.known, pod, &mut self.refused) {
            self.version += 1;
        }
    }

    /// A pod is gone.
    pub fn remove(&mut self, id: PodId) {
        self.version += u64::from(self.known.remove(&id).is_some());
    }

    /// Changes with each change of what is known.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Pods that are known now.
    #[must_use]
    pub fn count(&self) -> usize {
        self.known.len()
    }

    /// Pods that were refused because there were [`MAX_PODS`].
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// The pod with this id.
    #[must_use]
    pub fn get(&self, id: PodId) -> Option<&Pod> {
        self.known.get(&id)
    }

    /// Whose the cgroup `path` is. `None` for pods that are not known yet, for the container that holds a pod's
    /// namespaces, which no object names, and for uview's own pods.
    #[must_use]
    pub fn member(&self, path: &str) -> Option<Member> {
        let (id, container) = container_of(path)?;
        let pod = self.known.get(&id).filter(|pod| !pod.is_own)?;
        let container = pod.containers.get(container)?;
        let service = if pod.has_sidecars { format!("{}/{container}", pod.service) } else { pod.service.clone() };
        Some(Member { service, instance: pod.name.clone() })
    }
}

fn insert(pods: &mut BTreeMap<PodId, Pod>, pod: Pod, refused: &mut u64) -> bool {
    let fits = pods.len() < MAX_PODS || pods.contains_key(&pod.id);
    if fits {
        pods.insert(pod.id, pod);
    } else {
        *refused += 1;
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3fa85f6457174562b3fc2c963f66afa63fa85f6457174562b3fc2c963f66afa6";

    fn pod(number: u64) -> Pod {
        Pod {
            id: PodId::new(&format!("{number:032x}")).unwrap(),
            namespace: "shop".to_owned(),
            name: format!("payment-{number}"),
            workload: "payment".to_owned(),
            service: "shop/payment".to_owned(),
            version: String::new(),
            addresses: Vec::new(),
            containers: BTreeMap::from([(ID.to_owned(), "app".to_owned())]),
            has_sidecars: false,
            is_own: false,
        }
    }

    fn path(number: u64, container: &str) -> String {
        format!("kubepods/burstable/pod{number:032x}/{container}")
    }

    #[test]
    fn containers_are_replicas_of_their_workload() {
        let mut pods = Pods::default();
        pods.apply(pod(1));
        pods.apply(Pod { has_sidecars: true, ..pod(2) });
        pods.apply(Pod { is_own: true, ..pod(3) });

        let member = |number| pods.member(&path(number, ID)).map(|member| (member.service, member.instance));
        assert_eq!(member(1), Some(("shop/payment".to_owned(), "payment-1".to_owned())));
        assert_eq!(member(2), Some(("shop/payment/app".to_owned(), "payment-2".to_owned())), "sidecars are others");
        assert_eq!(member(3), None, "our own pods");
        assert_eq!(member(4), None, "not known yet");
        assert_eq!(pods.member(&path(1, &"0".repeat(64))), None, "the container of the namespaces");
    }

    #[test]
    fn a_list_replaces_what_was_known_when_it_is_complete() {
        let mut pods = Pods::default();
        pods.apply(pod(1));
        let before = pods.version();

        pods.begin_list();
        pods.add_listed(pod(2));
        assert_eq!((pods.count(), pods.get(pod(1).id).is_some(), pods.version()), (1, true, before));
        pods.end_list();

        assert_eq!((pods.count(), pods.get(pod(2).id).is_some()), (1, true));
        assert!(pods.version() > before);
        pods.remove(pod(2).id);
        assert_eq!(pods.count(), 0);
    }

    #[test]
    fn what_changes_nothing_is_no_change() {
        let mut pods = Pods::default();
        pods.apply(pod(1));
        let version = pods.version();

        pods.apply(pod(1));
        pods.remove(pod(9).id);
        pods.begin_list();
        pods.add_listed(pod(1));
        pods.end_list();

        assert_eq!(pods.version(), version);
    }

    #[test]
    fn no_more_pods_are_kept_than_a_node_can_run() {
        let mut pods = Pods::default();
        for number in 0..=MAX_PODS as u64 {
            pods.apply(pod(number));
        }
        assert_eq!((pods.count(), pods.refused()), (MAX_PODS, 1));
        pods.apply(Pod { version: "2".to_owned(), ..pod(0) });
        assert_eq!((pods.get(pod(0).id).unwrap().version.as_str(), pods.refused()), ("2", 1));
    }
}
