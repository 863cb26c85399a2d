//! The pods of a node. A list begins anew when a watch has ended: pods that it does not name are gone.
//!
//! A pod *joins* its workload when it has started: 10 s after it is ready for the first time, or when a container of it
//! is started again, or after 2 minutes. What it does before is not normal, and no anomaly of the workload either: a
//! rollout is a change of version. Pods that were there before the agent have joined.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crate::cgroup::container_at;
use crate::monitor::Monitor;
use crate::pod::{Pod, PodId, Stage};
use crate::scraping::Endpoint;

/// Most pods that are kept: the kubelet runs 110 by default, and some hundreds at most.
pub const MAX_PODS: usize = 1024;
/// From a pod's being ready until it joins.
pub const SETTLES: Duration = Duration::from_secs(10);
/// A pod that is not ready joins after this: that it hangs is to be seen.
pub const STARTS_WITHIN: Duration = Duration::from_mins(2);

/// A container of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// `namespace/workload`, and the container's name if the pod has several.
    pub service: String,
    /// The pod's name.
    pub instance: String,
}

/// Pods of a version that none of their workload had before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    /// The service of these pods.
    pub service: String,
    /// A version that its other pods have.
    pub from: String,
    /// The new version.
    pub to: String,
}

/// What is scraped, and what is not: the pod, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Those that fit the limit, by service and instance.
    pub scraped: BTreeSet<Endpoint>,
    /// Endpoints over the limit.
    pub over_limit: usize,
    /// Pods whose annotations make no sense, with what to change.
    pub refused: Vec<(String, &'static str)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownPod {
    pod: Pod,
    /// When it joins.
    joins: Duration,
}

/// What is known of the containers of this node. Times are since any start, and never go back.
#[derive(Debug, Default)]
pub struct Pods {
    known: BTreeMap<PodId, KnownPod>,
    /// A list in progress.
    listed: Option<BTreeMap<PodId, KnownPod>>,
    /// Whether a list was complete.
    is_listed: bool,
    /// Changes of what is known.
    version: u64,
    refused: u64,
}

impl Pods {
    /// A list begins. What is known stays until [`Self::end_list`].
    pub fn begin_list(&mut self) {
        self.listed = Some(BTreeMap::new());
    }

    /// A pod of the list in progress, told at `now`.
    pub fn add_listed(&mut self, pod: Pod, now: Duration) {
        let has_joined = !self.is_listed && pod.stage != Stage::Starting;
        let joins = if has_joined { Duration::ZERO } else { self.joins(&pod, now) };
        let Self { listed, refused, .. } = self;
        insert(listed.get_or_insert_default(), KnownPod { pod, joins }, refused);
    }

    /// The list is complete: other pods are gone.
    pub fn end_list(&mut self) {
        if let Some(listed) = self.listed.take() {
            self.version += u64::from(listed != self.known);
            self.known = listed;
            self.is_listed = true;
        }
    }

    /// A pod is new, or has changed, at `now`. Whether it is the first of its version.
    pub fn apply(&mut self, pod: Pod, now: Duration) -> Option<Rollout> {
        let known = KnownPod { joins: self.joins(&pod, now), pod };
        if self.known.get(&known.pod.id) == Some(&known) {
            return None;
        }
        let rollout = self.rollout(&known.pod);
        let is_kept = insert(&mut self.known, known, &mut self.refused);
        self.version += u64::from(is_kept);
        rollout.filter(|_| is_kept)
    }

    /// A pod is gone.
    pub fn remove(&mut self, id: PodId) {
        self.version += u64::from(self.known.remove(&id).is_some());
    }

    /// When `pod` joins, as known at `now`.
    fn joins(&self, pod: &Pod, now: Duration) -> Duration {
        let before = self.known.get(&pod.id).map_or_else(|| now + STARTS_WITHIN, |known| known.joins);
        match pod.stage {
            Stage::Ready => before.min(now + SETTLES),
            Stage::Restarted => before.min(now),
            Stage::Starting | Stage::Leaving | Stage::Over => before,
        }
    }

    /// Whether no pod of its service has had the version of `pod`, which is new.
    fn rollout(&self, pod: &Pod) -> Option<Rollout> {
        if self.known.contains_key(&pod.id) {
            return None;
        }
        let mut others = self.known.values().filter(|known| known.pod.service == pod.service);
        let from = others.clone().next()?.pod.version.clone();
        let is_new = others.all(|known| known.pod.version != pod.version);
        is_new.then(|| Rollout { service: pod.service.clone(), from, to: pod.version.clone() })
    }

    /// Changes with each change of what is known, and when pods join.
    #[must_use]
    pub fn version(&self, now: Duration) -> u64 {
        let joined = self.known.values().filter(|known| known.joins <= now).count();
        self.version.wrapping_mul(2 * MAX_PODS as u64).wrapping_add(joined as u64)
    }

    /// Pods that are known now.
    #[must_use]
    pub fn count(&self) -> usize {
        self.known.len()
    }

    /// All that are known now.
    pub fn iter(&self) -> impl Iterator<Item = &Pod> {
        self.known.values().map(|known| &known.pod)
    }

    /// Whether a list was complete: what is not known is not there.
    #[must_use]
    pub const fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Pods that were refused because there were [`MAX_PODS`].
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Bytes that all pods take.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.known.values().map(|known| known.pod.memory_bytes() + size_of::<Duration>()).sum()
    }

    /// The pod with this id.
    #[must_use]
    pub fn get(&self, id: PodId) -> Option<&Pod> {
        self.known.get(&id).map(|known| &known.pod)
    }

    /// Whose the cgroup `path` is. `None` for pods that are not known yet or have not joined, for the container that
    /// holds a pod's namespaces, which no object names, for groups below a container's own, and for uview's own pods.
    #[must_use]
    pub fn member(&self, path: &str, now: Duration) -> Option<Member> {
        let (id, container) = container_at(path)?;
        let known = self.known.get(&id).filter(|known| !known.pod.is_own && known.joins <= now)?;
        known.pod.containers.get(container).map(|container| known.pod.member(Some(container)))
    }

    /// The pod, and the name of its container, whose own group the cgroup `path` is.
    #[must_use]
    pub fn container(&self, path: &str) -> Option<(PodId, &str)> {
        let (id, container) = container_at(path)?;
        Some((id, self.known.get(&id)?.pod.containers.get(container)?))
    }

    /// Pods by their addresses. Those on the node's network, and those that are over, have none of their own; an
    /// address that several have is nobody's.
    #[must_use]
    pub fn by_address(&self) -> BTreeMap<IpAddr, &Pod> {
        let (mut found, mut shared) = (BTreeMap::new(), Vec::new());
        let own = |pod: &&Pod| !pod.has_host_network && pod.stage != Stage::Over;
        for pod in self.known.values().map(|known| &known.pod).filter(own) {
            for address in &pod.addresses {
                if found.insert(address.to_canonical(), pod).is_some_and(|other: &Pod| other.id != pod.id) {
                    shared.push(address.to_canonical());
                }
            }
        }
        for address in shared {
            found.remove(&address);
        }
        found
    }

    /// Prometheus endpoints of pods that have joined: by their annotations, and by `monitors`; at most `limit`.
    #[must_use]
    pub fn endpoints(&self, monitors: &[Monitor], limit: usize, now: Duration) -> Endpoints {
        let mut found = Endpoints::default();
        let mut known = BTreeSet::new();
        for pod in self.known.values().filter(|known| known.joins <= now).map(|known| &known.pod) {
            let annotated = pod.annotated().unwrap_or_else(|why| {
                found.refused.push((format!("{}/{}", pod.namespace, pod.name), why));
                None
            });
            let monitored = monitors.iter().flat_map(|monitor| monitor.endpoints(pod));
            for endpoint in annotated.into_iter().chain(monitored) {
                // One replica for each port, whoever asks for it.
                if !known.insert((endpoint.service.clone(), endpoint.instance.clone())) {
                } else if found.scraped.len() < limit {
                    found.scraped.insert(endpoint);
                } else {
                    found.over_limit += 1;
                }
            }
        }
        found
    }
}

impl Pod {
    /// The replica that its `container` is; without one, that of the whole pod.
    #[must_use]
    pub fn member(&self, container: Option<&str>) -> Member {
        let container = container.filter(|_| self.has_sidecars());
        let service = container.map_or_else(|| self.service.clone(), |name| format!("{}/{name}", self.service));
        Member { service, instance: self.name.clone() }
    }
}

fn insert(pods: &mut BTreeMap<PodId, KnownPod>, known: KnownPod, refused: &mut u64) -> bool {
    let fits = pods.len() < MAX_PODS || pods.contains_key(&known.pod.id);
    if fits {
        pods.insert(known.pod.id, known);
    } else {
        *refused += 1;
    }
    fits
}

#[cfg(test)]
mod tests;
