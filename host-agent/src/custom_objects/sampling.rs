//! Applies `SamplingPolicy`s to the traces of this node's services.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hooks::tracing::{Policy, ServicePolicies, ServiceRule, Switches};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use otlp::Edge;
use resources::node_status::ObjectState;
use resources::plan::Plan;
use resources::report::{KindReport, KindWords, report_of};
use resources::sampling_plan::{ServiceSampling, of_services, plan};
use resources::sampling_policy::KeepReason;

use super::known::{Knowledge, Versions};
use super::objects::CustomObjects;
use crate::pod_watch::PodWatch;

const WORDS: KindWords = KindWords { kind: "SamplingPolicy", waits: "is not sampled by it yet" };

/// What was done so far. The whole table of services is replaced at once: nothing is left of a policy that is gone.
#[derive(Debug, Default)]
pub(super) struct PolicyReconciler {
    /// Of which policies and pods the plan is.
    versions: Option<Versions>,
    plan: Plan<ServiceSampling>,
    applied: Arc<ServicePolicies>,
    /// Services that do not have what they are to have, and why.
    refused: BTreeMap<String, String>,
}

impl PolicyReconciler {
    /// Applies what has changed. False as long as pods, policies, or where traces are sampled are not known.
    pub(super) fn look(&mut self, objects: &CustomObjects, pods: Option<&PodWatch>) -> bool {
        let Some(edge) = objects.edge.get() else { return false };
        match objects.policies.since(self.versions, pods) {
            Knowledge::Incomplete => return false,
            Knowledge::Same => return true,
            Knowledge::New(versions, policies, pods) => {
                let plan = pods.map_or_else(|| of_services(&policies), |pods| plan(&policies, &pods));
                (self.versions, self.plan) = (Some(versions), plan);
            }
        }
        let (services, refused) = services(&self.plan.wanted, edge.as_deref());
        if let Some(edge) = edge.as_ref().filter(|_| services != *self.applied) {
            let count = services.len();
            self.applied = Arc::new(services);
            edge.set_service_policies(&self.applied);
            tracing::info!(services = count, "SamplingPolicies changed what is kept of services' traces");
        }
        for (service, why) in refused.iter().filter(|(service, _)| !self.refused.contains_key(*service)) {
            tracing::warn!(service, why, "a SamplingPolicy is refused");
        }
        self.refused = refused;
        true
    }

    /// What came of the policies; `before` and `now` are for times of transition.
    pub(super) fn report(&self, before: &[ObjectState], now: &Time) -> KindReport {
        let is_done = |service: &str| self.plan.wanted.contains_key(service);
        report_of(&self.plan, WORDS, (is_done, &self.refused), (before, now))
    }
}

/// What services have of what is `wanted`, and why others do not.
fn services(
    wanted: &BTreeMap<String, Arc<ServiceSampling>>,
    edge: Option<&Edge>,
) -> (ServicePolicies, BTreeMap<String, String>) {
    let switches = switches(edge);
    let mut services = ServicePolicies::default();
    let mut refused = BTreeMap::new();
    for (service, sampling) in wanted {
        let inserted = switches.as_ref().map_err(|why| (*why).to_owned()).and_then(|switches| {
            services.insert(service, &rule(sampling), switches).map_err(|error| error.to_string())
        });
        if let Err(why) = inserted {
            refused.insert(service.clone(), why);
        }
    }
    (services, refused)
}

/// The policies that this node has on, or why it chooses no traces.
fn switches(edge: Option<&Edge>) -> Result<Switches, &'static str> {
    let edge =
        edge.ok_or("this node takes no spans: set otlp.upstream or otlp.watch_only in the agents' configuration")?;
    edge.switches().ok_or("this node chooses no traces: set otlp.traces.keep to tail")
}

fn rule(sampling: &ServiceSampling) -> ServiceRule {
    let policy = |reason: &KeepReason| match reason {
        KeepReason::Error => Policy::Error,
        KeepReason::Lmap => Policy::Lmap,
        KeepReason::Latency => Policy::Latency,
        KeepReason::Trigger => Policy::Trigger,
    };
    let policies = sampling.reasons.as_ref().map(|reasons| reasons.iter().map(policy).collect::<BTreeSet<_>>());
    ServiceRule { by: sampling.by.clone(), share: sampling.share, policies }
}
