//! What an operator wants of the traces through single services, beside what the node is configured for. It changes
//! while the node runs.
//!
//! Sound on one node alone, and among nodes that differ: whatever selects a trace is announced to the others, and
//! whatever does not select it here may do so there. So a service can have fewer reasons than the node, and a larger
//! share of traces without a reason. A smaller one it cannot have: each node finds the floor's traces by itself, from
//! any span of them, and some of these spans are of other services.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::tracing::reason::{Policy, Reason};
use crate::tracing::switches::Switches;
use crate::tracing::threshold::{ProbabilityError, Randomness, Threshold};

/// Bytes of the text about who asks for a share; more are cut.
const BY_BYTES: usize = 256;

/// What is wanted of the traces through one service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceRule {
    /// Who wants it, for the reason of kept traces.
    pub by: String,
    /// Share of the traces through it that is kept without any other reason, 2^-56 to 1, as far as the budget has bytes
    /// to spare. `None`: the floor's.
    pub share: Option<f64>,
    /// The only policies that keep traces because of this service; the floor is no concern of it. `None`: all that are
    /// on.
    pub policies: Option<BTreeSet<Policy>>,
}

/// Why a rule cannot be followed on this node.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ServicePolicyError {
    /// The share is none.
    #[error(transparent)]
    Share(#[from] ProbabilityError),
    /// The floor is larger.
    #[error(
        "a share of {share} is less than the {floor} that this node keeps of all traces (otlp.traces.floor): ask for \
         more, or leave share out"
    )]
    BelowFloor {
        /// The share that was asked for.
        share: f64,
        /// The share that is kept of all traces.
        floor: f64,
    },
    /// A policy that is off.
    #[error("{0} keeps no traces on this node: switch it on in its configuration (otlp.traces.{0}), or leave it out")]
    Off(&'static str),
    /// There is no room for another service.
    #[error("this node has policies for {0} services, which is the most")]
    TooMany(usize),
}

/// A share of traces, and the reason that these have.
#[derive(Clone, Debug, PartialEq)]
struct Share {
    threshold: Threshold,
    reason: Arc<Reason>,
}

/// A rule that was checked.
#[derive(Clone, Debug, PartialEq)]
struct ServicePolicy {
    share: Option<Share>,
    off: PolicySet,
}

/// A set of policies: bit n is number n of [`Policy::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PolicySet(u8);

impl PolicySet {
    pub(super) const fn has(self, policy: Policy) -> bool {
        self.0 & (1 << policy as u8) != 0
    }

    fn without(of: &BTreeSet<Policy>) -> Self {
        let others = Policy::ALL.into_iter().filter(|policy| *policy != Policy::Floor && !of.contains(policy));
        Self(others.fold(0, |set, policy| set | (1 << policy as u8)))
    }
}

/// Policies of single services, by the names that their spans have. Memory: at most [`MAX`](Self::MAX) services with
/// their names, and 256 bytes of text each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServicePolicies(HashMap<Box<str>, ServicePolicy>);

impl ServicePolicies {
    /// Most services with a policy of their own.
    pub const MAX: usize = 1_024;

    /// Has `rule` hold for `service`, on a node with `switches`. It takes the place of an earlier one.
    ///
    /// # Errors
    ///
    /// [`ServicePolicyError`]; then nothing has changed.
    pub fn insert(&mut self, service: &str, rule: &ServiceRule, switches: &Switches) -> Result<(), ServicePolicyError> {
        let policy = ServicePolicy {
            share: rule.share.map(|share| Share::new(share, &rule.by, switches)).transpose()?,
            off: rule.policies.as_ref().map(|of| are_on(of, switches)).transpose()?.unwrap_or_default(),
        };
        if self.0.len() >= Self::MAX && !self.0.contains_key(service) {
            return Err(ServicePolicyError::TooMany(Self::MAX));
        }
        self.0.insert(service.into(), policy);
        Ok(())
    }

    /// Number of services with a policy of their own.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no service has one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `policy` keeps no traces because of `service`, whatever the node's switches say.
    #[must_use]
    pub fn is_off(&self, service: &str, policy: Policy) -> bool {
        self.off(service).has(policy)
    }

    /// The policies that keep no traces because of `service`.
    pub(super) fn off(&self, service: &str) -> PolicySet {
        self.0.get(service).map(|policy| policy.off).unwrap_or_default()
    }

    /// The reason if the share of `service` has a trace of this `randomness`. Every node with the same rule comes to
    /// the same result.
    pub(super) fn share(&self, service: &str, randomness: Randomness) -> Option<Arc<Reason>> {
        let share = self.0.get(service)?.share.as_ref()?;
        share.threshold.keeps(randomness).then(|| Arc::clone(&share.reason))
    }
}

impl Share {
    fn new(share: f64, by: &str, switches: &Switches) -> Result<Self, ServicePolicyError> {
        let threshold = Threshold::keeping(share)?;
        let floor = switches.floor.map_or(0.0, Threshold::probability);
        if threshold.probability() < floor {
            // Without the digits that 56 bits of a threshold add.
            let floor = (floor * 1e9).round() / 1e9;
            return Err(ServicePolicyError::BelowFloor { share, floor });
        }
        // No threshold for its spans: those of the floor alone stand for all traces.
        let text = format!("{} % by {by}", wire::quantity::quantity(share * 100.0, ""));
        let text = text[..text.floor_char_boundary(BY_BYTES)].into();
        Ok(Self { threshold, reason: Arc::new(Reason::Trigger { text }) })
    }
}

/// The policies beside `of`, of which all are on.
fn are_on(of: &BTreeSet<Policy>, switches: &Switches) -> Result<PolicySet, ServicePolicyError> {
    let is_on = |policy: &Policy| match policy {
        Policy::Floor => true,
        Policy::Error => switches.error,
        Policy::Lmap => switches.lmap,
        Policy::Latency => switches.latency,
        Policy::Trigger => switches.trigger,
    };
    match of.iter().find(|policy| !is_on(policy)) {
        Some(off) => Err(ServicePolicyError::Off(off.name())),
        None => Ok(PolicySet::without(of)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(share: Option<f64>, policies: Option<&[Policy]>) -> ServiceRule {
        let policies = policies.map(|policies| policies.iter().copied().collect());
        ServiceRule { by: "SamplingPolicy shop/payment".to_owned(), share, policies }
    }

    fn refused(rule: &ServiceRule, switches: &Switches) -> String {
        let mut policies = ServicePolicies::default();
        let error = policies.insert("shop/payment", rule, switches).unwrap_err();
        assert!(policies.is_empty());
        error.to_string()
    }

    #[test]
    fn what_is_not_listed_is_off_and_the_floor_is_no_concern_of_it() {
        let mut policies = ServicePolicies::default();
        policies.insert("shop/payment", &rule(None, Some(&[Policy::Error])), &Switches::default()).unwrap();

        let off = Policy::ALL.into_iter().filter(|policy| policies.is_off("shop/payment", *policy));
        assert_eq!(off.collect::<Vec<_>>(), [Policy::Lmap, Policy::Latency, Policy::Trigger]);
        assert!(!Policy::ALL.into_iter().any(|policy| policies.is_off("shop/cart", policy)), "it has no rule");
        policies.insert("shop/payment", &rule(Some(0.5), None), &Switches::default()).unwrap();
        assert!(!policies.is_off("shop/payment", Policy::Lmap), "the later rule holds");
    }

    #[test]
    fn rules_that_this_node_cannot_follow_are_refused_with_what_to_do() {
        let switches = Switches { latency: false, ..Switches::default() };

        let below = refused(&rule(Some(0.001), None), &switches);
        assert!(
            below.starts_with("a share of 0.001 is less than the 0.01 that this node keeps of all traces"),
            "{below}"
        );
        let off = refused(&rule(None, Some(&[Policy::Error, Policy::Latency])), &switches);
        assert!(off.contains("latency keeps no traces on this node") && off.contains("otlp.traces.latency"), "{off}");
        for wrong in [0.0, 1.5, f64::NAN] {
            assert!(refused(&rule(Some(wrong), None), &switches).contains("a sampling probability of"));
        }
        let equal = ServicePolicies::default().insert("a", &rule(Some(0.01), None), &switches);
        assert_eq!(equal, Ok(()), "the floor itself is no less");
    }

    #[test]
    fn a_flood_of_services_is_refused_and_those_that_are_known_may_change() {
        let (mut policies, switches) = (ServicePolicies::default(), Switches::default());
        for number in 0..ServicePolicies::MAX {
            policies.insert(&format!("shop/{number}"), &rule(Some(0.5), None), &switches).unwrap();
        }

        let more = policies.insert("shop/more", &rule(Some(0.5), None), &switches);
        assert_eq!(more, Err(ServicePolicyError::TooMany(1_024)));
        assert_eq!(policies.insert("shop/7", &rule(None, Some(&[])), &switches), Ok(()));
        assert_eq!(policies.len(), ServicePolicies::MAX);
    }

    #[test]
    fn a_long_name_is_cut_at_a_character() {
        let mut policies = ServicePolicies::default();
        let long = ServiceRule { by: "é".repeat(400), ..rule(Some(1.0), None) };
        policies.insert("a", &long, &Switches::default()).unwrap();

        let reason = policies.share("a", Randomness::parse("00000000000000").unwrap()).unwrap();
        assert!(
            matches!(&*reason, Reason::Trigger { text } if text.len() <= BY_BYTES && text.starts_with("100 % by é"))
        );
    }
}
