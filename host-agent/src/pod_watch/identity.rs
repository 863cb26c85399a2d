//! Whose a process is that registers: its cgroup names its pod.

use core::time::Duration;

use pods::cgroup::{container_of, pod_of};
use pods::{Member, sandbox};
use wire::name::{InstanceName, ServiceName};

use super::PodWatch;
use crate::control_plane::PodIdentity;

/// How long a process waits for the API server to tell of its pod, and of its container's id: kubelet reports both a
/// moment after the start.
const WAITS: Duration = Duration::from_secs(3);

/// What is known of a process.
enum FoundIdentity {
    Known(PodIdentity),
    /// Its pod is known, and not which container of it this is.
    WithoutContainer(PodIdentity),
    Unknown,
}

impl PodWatch {
    /// Whose the process is that is called `name` and is in `cgroup`. Waits up to 3 s for a pod that is new.
    pub(crate) async fn identity(&self, cgroup: &str, name: &str) -> PodIdentity {
        self.identity_within(cgroup, name, WAITS).await
    }

    pub(super) async fn identity_within(&self, cgroup: &str, name: &str, waits: Duration) -> PodIdentity {
        let deadline = tokio::time::sleep(waits);
        let mut deadline = core::pin::pin!(deadline);
        loop {
            // Before the table is looked at, so that no change is missed.
            let mut changed = core::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let FoundIdentity::Known(identity) = self.find(cgroup, name) {
                return identity;
            }
            tokio::select! {
                () = changed => {}
                () = &mut deadline => break,
            }
        }
        match self.find(cgroup, name) {
            FoundIdentity::Known(identity) | FoundIdentity::WithoutContainer(identity) => identity,
            FoundIdentity::Unknown => PodIdentity::Refused(
                "the API server has not told of this process's pod yet: it may register when it has".to_owned(),
            ),
        }
    }

    fn find(&self, cgroup: &str, name: &str) -> FoundIdentity {
        if cgroup.is_empty() {
            // It has ended, or is not seen: who it is cannot be told, and so it is in no pod's name.
            return FoundIdentity::Known(PodIdentity::None);
        }
        let Some(id) = pod_of(cgroup) else {
            let machine = sandbox::of("", "", cgroup);
            return FoundIdentity::Known(machine.map_or(PodIdentity::None, |machine| refused(machine.reason())));
        };
        let pods = self.pods();
        let Some(pod) = pods.get(id) else { return FoundIdentity::Unknown };
        if let Some(sandbox) = sandbox::of(&pod.runtime_class, name, cgroup) {
            return FoundIdentity::Known(refused(sandbox.reason()));
        }
        if pod.is_own {
            return FoundIdentity::Known(PodIdentity::None);
        }
        // By the group that root has made: what a container calls those below its own says nothing.
        let container = container_of(cgroup).and_then(|(_, container)| pod.containers.get(container));
        let identity = named(pod.member(container.map(String::as_str)));
        if container.is_none() && pod.has_sidecars() {
            FoundIdentity::WithoutContainer(identity)
        } else {
            FoundIdentity::Known(identity)
        }
    }
}

fn refused(why: &str) -> PodIdentity {
    PodIdentity::Refused(why.to_owned())
}

fn named(Member { service, instance }: Member) -> PodIdentity {
    match (ServiceName::new(&service), InstanceName::new(&instance)) {
        (Ok(service), Ok(instance)) => PodIdentity::Member { service, instance },
        _ => PodIdentity::Refused(format!(
            "its pod is {instance} of {service}, which is no name that a service may have"
        )),
    }
}
