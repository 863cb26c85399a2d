//! The workload that owns a pod. Nothing is asked for but the pod: a Deployment is named by its ReplicaSet and the hash
//! in the pod's labels.

use k8s_openapi::api::core::v1 as api;

use crate::names::short;

/// What owns a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its kind, as far as OpenTelemetry has a name for it.
    pub kind: WorkloadKind,
    /// Its name; that of the pod if nobody owns it.
    pub name: String,
}

/// Kinds of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    /// Owns ReplicaSets, one per version.
    Deployment,
    /// One that no Deployment owns.
    ReplicaSet,
    /// Pods with names that stay.
    StatefulSet,
    /// One pod on each node.
    DaemonSet,
    /// Runs to its end.
    Job,
    /// Starts Jobs at set times.
    CronJob,
    /// Nobody, a node (static pods), or a kind of somebody else.
    Other,
}

impl WorkloadKind {
    /// The attribute with the name of such a workload, in OpenTelemetry's conventions; empty if there is none.
    #[must_use]
    pub const fn attribute(self) -> &'static str {
        match self {
            Self::Deployment => "k8s.deployment.name",
            Self::ReplicaSet => "k8s.replicaset.name",
            Self::StatefulSet => "k8s.statefulset.name",
            Self::DaemonSet => "k8s.daemonset.name",
            Self::Job => "k8s.job.name",
            Self::CronJob => "k8s.cronjob.name",
            Self::Other => "",
        }
    }
}

/// The workload that owns `object`, a pod called `name`, whose template has the hash `hash`.
pub(crate) fn of(object: &api::Pod, name: &str, hash: Option<&str>) -> Workload {
    let owners = object.metadata.owner_references.as_deref().unwrap_or_default();
    let Some(owner) = owners.iter().find(|owner| owner.controller == Some(true)) else {
        return Workload { kind: WorkloadKind::Other, name: name.to_owned() };
    };
    let owned = short(&owner.name);
    let without = |end: &str| owned.strip_suffix(end).and_then(|start| start.strip_suffix('-')).map(str::to_owned);
    let (kind, found) = match owner.kind.as_str() {
        // payment-6d4cf56db6
        "ReplicaSet" => match hash.and_then(without).filter(|name| !name.is_empty()) {
            Some(name) => (WorkloadKind::Deployment, Some(name)),
            None => (WorkloadKind::ReplicaSet, None),
        },
        // A CronJob's Job ends with the minute it was due: report-29384720.
        "Job" => match of_minute(&owned) {
            Some(name) => (WorkloadKind::CronJob, Some(name)),
            None => (WorkloadKind::Job, None),
        },
        // A static pod, with the node's name behind its own: etcd-node-1.
        "Node" => (WorkloadKind::Other, Some(name.strip_suffix(&format!("-{owned}")).unwrap_or(name).to_owned())),
        "StatefulSet" => (WorkloadKind::StatefulSet, None),
        "DaemonSet" => (WorkloadKind::DaemonSet, None),
        _ => (WorkloadKind::Other, None),
    };
    Workload { kind, name: found.filter(|found| !found.is_empty()).unwrap_or(owned) }
}

/// The CronJob of a Job whose name ends with a minute.
fn of_minute(job: &str) -> Option<String> {
    let (start, minute) = job.rsplit_once('-')?;
    let is_minute = minute.len() >= 8 && minute.bytes().all(|digit| digit.is_ascii_digit());
    (is_minute && !start.is_empty()).then(|| start.to_owned())
}
