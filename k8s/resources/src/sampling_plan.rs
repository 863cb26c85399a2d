//! Which services of this node each `SamplingPolicy` is about, and which policy has the say. Pure, and by the rules of
//! [`plan`](mod@crate::plan): the older policy has the say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pods::Pod;

use crate::files;
use crate::plan::{Declared, Plan, full_name, plan_of, resolve, understood};
use crate::sampling_policy::{KeepReason, SamplingPolicySpec};

/// Most policies that a node keeps.
pub const MAX_POLICIES: usize = 256;
/// Most bytes of all of them, as the API server sends them.
pub const MAX_POLICY_BYTES: usize = 128 << 10;

/// What one service is to have. What is absent is as the agent is configured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceSampling {
    /// The policy that says so: `SamplingPolicy shop/payment`.
    pub by: String,
    /// Share of traces through it that is kept without any other reason, above 0 and up to 1.
    pub share: Option<f64>,
    /// The only reasons of this service for which traces are kept.
    pub reasons: Option<BTreeSet<KeepReason>>,
}

/// What `policies` say about the node that runs `pods`, by service. Spans are of a pod's own service, whichever of its
/// containers sends them.
#[must_use]
pub fn plan(policies: &[Declared<SamplingPolicySpec>], pods: &[Pod]) -> Plan<ServiceSampling> {
    plan_of(policies, pods, wanted)
}

/// What `policies` of files say about a node without Kubernetes, by the names of its services.
#[must_use]
pub fn of_services(policies: &[Declared<SamplingPolicySpec>]) -> Plan<ServiceSampling> {
    resolve(policies, |policy| {
        let wanted = |spec: &SamplingPolicySpec| {
            let sampling = Arc::new(sampling(policy, spec)?);
            let services = files::one_service(spec.workload.as_ref(), spec.selector.as_ref())?;
            Ok(services.into_iter().map(|service| (service, Arc::clone(&sampling))).collect())
        };
        Some(understood(policy).and_then(wanted))
    })
}

/// What `policy` wants of the services of this node; none if no pod of it is here.
fn wanted(
    policy: &Declared<SamplingPolicySpec>,
    spec: &SamplingPolicySpec,
    pods: &[&Pod],
) -> Result<BTreeMap<String, Arc<ServiceSampling>>, String> {
    let sampling = Arc::new(sampling(policy, spec)?);
    let is_selected = |pod: &Pod| match (&spec.workload, &spec.selector) {
        (Some(workload), None) => Ok(workload.has(pod)),
        (None, Some(selector)) => Ok(selector.selects(pod)),
        _ => Err("set exactly one of workload and selector".to_owned()),
    };
    let mut wanted = BTreeMap::new();
    for pod in pods {
        if is_selected(pod)? {
            wanted.insert(pod.service.clone(), Arc::clone(&sampling));
        }
    }
    Ok(wanted)
}

/// What `spec` says, whichever services it is about. The API server checks all of this; not if its definition is of
/// another release.
fn sampling(policy: &Declared<SamplingPolicySpec>, spec: &SamplingPolicySpec) -> Result<ServiceSampling, String> {
    if let Some(container) = spec.workload.as_ref().and_then(|workload| workload.container.as_deref()) {
        return Err(format!("workload.container is {container}: spans are of the whole pod, leave it out"));
    }
    if let Some(share) = spec.share.filter(|share| !(*share > 0.0 && *share <= 1.0)) {
        return Err(format!("share is {share}: it must be above 0, up to 1"));
    }
    if spec.share.is_none() && spec.reasons.is_none() {
        return Err("set share, reasons, or both: without either nothing would change".to_owned());
    }
    Ok(ServiceSampling {
        by: format!("SamplingPolicy {}", full_name(&policy.key())),
        share: spec.share,
        reasons: spec.reasons.as_ref().map(|reasons| reasons.iter().copied().collect()),
    })
}

#[cfg(test)]
mod tests;
