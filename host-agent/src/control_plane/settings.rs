//! Settings of the control plane.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_runtime::access::is_below;
use wire::id::{Incarnation, Owner};
use wire::metric::{Aggregation, TickDivider, stride};
use wire::name::{MetricName, ServiceName};
use wire::time::{Interval, Nanos};

use super::container::container_of;

/// The process at the other end of a service's connection, as reported by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id in the agent's pid namespace; 0 if not visible there.
    pub pid: u32,
    /// User id of the process.
    pub uid: u32,
    /// cgroup (v2 path); empty if unknown.
    pub cgroup: String,
}

impl Peer {
    /// Who pays for what the process takes: its pod, or its container without one; else its user. This is the one place
    /// that says so.
    #[must_use]
    pub fn owner(&self) -> Owner {
        container_of(&self.cgroup).map_or(Owner::User(self.uid), Owner::Container)
    }
}

/// Lets matching processes register as some services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityRule {
    /// The user; any user if `None`.
    pub uid: Option<u32>,
    /// The cgroup that the process is in or below; any if `None`.
    pub cgroup: Option<String>,
    /// The services; any if `None`.
    pub services: Option<Vec<ServiceName>>,
    /// Whether it is about processes of this machine. Otherwise it is about addresses and tokens, and fits no process.
    pub of_processes: bool,
}

impl IdentityRule {
    /// Whether this rule lets `peer` register as `service`.
    #[must_use]
    pub fn allows(&self, peer: &Peer, service: &ServiceName) -> bool {
        self.of_processes
            && self.uid.is_none_or(|uid| uid == peer.uid)
            && self.cgroup.as_ref().is_none_or(|above| is_below(&peer.cgroup, above))
            && self.services.as_ref().is_none_or(|services| services.contains(service))
    }

    /// Whether this rule lets what the agent reads of `cgroup` be values of `service`. Whose the processes in it are,
    /// nobody says: a rule about a user fits none.
    fn allows_cgroup(&self, cgroup: &str, service: &ServiceName) -> bool {
        self.of_processes
            && self.uid.is_none()
            && self.cgroup.as_ref().is_none_or(|above| is_below(cgroup, above))
            && self.services.as_ref().is_none_or(|services| services.contains(service))
    }
}

/// Whether what the agent reads of `cgroup` (path from the root) may be values of `service`: no rule names the service,
/// or one that fits the cgroup lets it.
#[must_use]
pub fn may_measure(rules: &[IdentityRule], cgroup: &str, service: &ServiceName) -> bool {
    let names = |rule: &IdentityRule| rule.services.as_ref().is_some_and(|services| services.contains(service));
    !rules.iter().any(names) || rules.iter().any(|rule| rule.allows_cgroup(cgroup, service))
}

/// How the replicas of some metrics are aggregated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregationRule {
    /// Names of services; `*` stands for any characters.
    pub services: String,
    /// Names of metrics, likewise.
    pub metrics: String,
    /// How their replicas are aggregated.
    pub aggregation: Aggregation,
}

impl AggregationRule {
    /// Whether it is about `metric` of `service`.
    #[must_use]
    pub fn applies(&self, service: &ServiceName, metric: &MetricName) -> bool {
        exposition::choice::matches(&self.services, service.as_str())
            && exposition::choice::matches(&self.metrics, metric.as_str())
    }
}

/// What the first of `rules` that applies has for a metric of `service`.
pub(super) fn aggregation<'rules>(
    rules: &'rules [AggregationRule],
    service: &ServiceName,
    metric: &MetricName,
) -> Option<&'rules Aggregation> {
    rules.iter().find(|rule| rule.applies(service, metric)).map(|rule| &rule.aggregation)
}

/// Limits on what services may register. Of those of the node, an owner may hold three times what is free: three
/// quarters if it is alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Concurrent connections of services on the node.
    pub connections: usize,
    /// Services on the node. One with replicas of several owners counts for each of them.
    pub services: usize,
    /// Series on the node: each counts once per replica.
    pub series: usize,
    /// Regions on the node, span rings included.
    pub regions: usize,
    /// Bytes of all regions on the node.
    pub region_bytes: u64,
    /// Replicas that one owner may register per second, after a burst of as many as there are connections.
    pub registrations_per_s: u32,
    /// Series that one owner may register per second, after a burst of as many as there are series of the node.
    pub series_per_s: u32,
    /// Replicas of one service.
    pub replicas_per_service: usize,
    /// Regions of one replica.
    pub regions_per_replica: usize,
    /// Bytes of all regions of one service.
    pub bytes_per_service: u64,
    /// Distinct series of one service over all its replicas, including process metrics.
    pub series_per_service: usize,
    /// Bytes of names and labels of one service's series.
    pub text_bytes_per_service: usize,
    /// Places of one service: each series counts once per replica.
    pub places_per_service: usize,
    /// Services without replicas of which an operator has deleted the LMAP: further ones are watched if they come.
    pub unwatched_services: usize,
    /// Workers of the node; their numbers are below this limit.
    pub workers: u32,
}

impl Limits {
    /// Series of each service that are reserved for the agent's own metrics.
    pub const OWN_SERIES: usize = 32;
}

impl Default for Limits {
    /// Limits that keep an LMAP's configuration below 4 MiB.
    fn default() -> Self {
        Self {
            connections: 1024,
            services: 1024,
            series: 1 << 18,
            regions: 1 << 16,
            region_bytes: 1 << 30,
            registrations_per_s: 100,
            series_per_s: 10_000,
            replicas_per_service: wire::control::MAX_REPLICAS,
            regions_per_replica: 64,
            bytes_per_service: 64 << 20,
            series_per_service: wire::control::MAX_METRICS,
            text_bytes_per_service: 1 << 20,
            places_per_service: 1 << 17,
            unwatched_services: 1024,
            workers: 256,
        }
    }
}

/// Settings of the control plane.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Incarnation of this run of the host agent.
    pub incarnation: Incarnation,
    /// How often a service's heartbeat word has to change.
    pub heartbeat: Nanos,
    /// Default interval of LMAPs.
    pub interval: Interval,
    /// Transports that the edge serves, by their names in a worker's hello.
    pub transports: Vec<String>,
    /// A worker that is silent for this long is fenced.
    pub lease: Nanos,
    /// Lowest share of γ at which workers send verdicts one by one.
    pub lowest_share: f64,
    /// Delay before a changed LMAP is sent to its worker, to batch changes.
    pub settle: Nanos,
    /// Delay before unplaced LMAPs are placed after a worker came, so that the first of several workers does not get
    /// all.
    pub gather: Nanos,
    /// Deadline for a connection's hello.
    pub hello_within: Nanos,
    /// Period at which metrics of these names change: LMAPs do not read them more often.
    pub periods: BTreeMap<MetricName, Nanos>,
    /// The shortest and the longest interval that an LMAP may have because its service declares how often metrics are
    /// worth reading.
    pub interval_bounds: (Interval, Interval),
    /// The shortest and the longest interval that operators may set.
    pub operator_bounds: (Interval, Interval),
    /// Least time between two fetches of an LMAP while something seems wrong; `None`: it is fetched for its rows only.
    pub adaptive: Option<Interval>,
    /// Aggregations by operators, by patterns of names: the first rule that applies counts.
    pub aggregations: Vec<AggregationRule>,
    /// Who may register as which service. Empty: every process as any service.
    pub identities: Arc<[IdentityRule]>,
    /// Limits on services.
    pub limits: Limits,
    /// How often workers hand over what the detectors of each LMAP have learnt; zero: never.
    pub models_every: Nanos,
    /// Bytes of all models that are kept.
    pub model_bytes: usize,
    /// What is open to anybody, for the status.
    pub warnings: Vec<String>,
}

impl Settings {
    /// Default settings for the run `incarnation`.
    #[must_use]
    pub fn new(incarnation: Incarnation, interval: Interval) -> Self {
        Self {
            incarnation,
            heartbeat: Nanos::from_millis(100),
            interval,
            // "shm": a descriptor over the regions socket. "local": memory of the same process, for tests.
            transports: vec!["shm".to_owned(), "local".to_owned()],
            lease: Nanos::from_secs(5),
            lowest_share: 0.5,
            settle: Nanos::from_millis(20),
            gather: Nanos::from_millis(200),
            hello_within: Nanos::from_secs(5),
            periods: BTreeMap::new(),
            interval_bounds: (interval, interval),
            operator_bounds: (interval, interval),
            adaptive: None,
            aggregations: Vec::new(),
            identities: Arc::default(),
            limits: Limits::default(),
            models_every: Nanos::from_secs(300),
            model_bytes: 64 << 20,
            warnings: Vec::new(),
        }
    }

    /// Stride, in intervals of an LMAP, at which the metric `name` is read.
    #[must_use]
    pub fn every(&self, name: &MetricName, interval: Interval) -> TickDivider {
        stride(self.periods.get(name).copied().unwrap_or(Nanos::ZERO), interval)
    }

    /// The aggregation that the configuration has for a metric of `service`.
    #[must_use]
    pub fn aggregation(&self, service: &ServiceName, metric: &MetricName) -> Option<&Aggregation> {
        aggregation(&self.aggregations, service, metric)
    }

    /// Whether `peer` may register as `service`.
    #[must_use]
    pub fn may_be(&self, peer: &Peer, service: &ServiceName) -> bool {
        self.identities.is_empty() || self.identities.iter().any(|rule| rule.allows(peer, service))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_not_looked_at_more_often_than_it_changes() {
        let interval = Interval::new(Nanos::from_millis(300)).unwrap();
        let name = MetricName::new("slow").unwrap();
        let mut settings = Settings::new(Incarnation(1), interval);
        settings.periods.insert(name.clone(), Nanos::from_secs(1));

        assert_eq!(settings.every(&name, interval).get(), 4);
        assert_eq!(settings.every(&MetricName::new("other").unwrap(), interval).get(), 1);
    }

    #[test]
    fn a_rule_binds_user_and_cgroup_to_services() {
        let payment = ServiceName::new("payment").unwrap();
        let cart = ServiceName::new("cart").unwrap();
        let rule = IdentityRule {
            uid: Some(1000),
            cgroup: Some("/kubepods/payment".into()),
            services: Some(vec![payment.clone()]),
            of_processes: true,
        };
        let peer = Peer { pid: 1, uid: 1000, cgroup: "/kubepods/payment/7".into() };

        assert!(rule.allows(&peer, &payment));
        assert!(!rule.allows(&peer, &cart));
        assert!(!rule.allows(&Peer { uid: 0, ..peer.clone() }, &payment));
        assert!(!rule.allows(&Peer { cgroup: "/kubepods/payment-2".into(), ..peer }, &payment));
    }

    #[test]
    fn a_name_that_a_rule_has_is_that_of_cgroups_in_and_below_its_own_and_of_no_others() {
        let [payment, cart] = ["payment", "cart"].map(|name| ServiceName::new(name).unwrap());
        let rule = |uid: Option<u32>, cgroup: Option<&str>, of_processes: bool| IdentityRule {
            uid,
            cgroup: cgroup.map(str::to_owned),
            services: Some(vec![payment.clone()]),
            of_processes,
        };
        let in_pods = rule(None, Some("/pods/payment"), true);
        let may = |rules: &[IdentityRule], cgroup: &str| may_measure(rules, cgroup, &payment);

        for cgroup in ["/pods/payment", "/pods/payment/7"] {
            assert!(may(core::slice::from_ref(&in_pods), cgroup), "{cgroup}");
        }
        for cgroup in ["/", "/pods", "/pods/payment-2", "/user.slice/pods/payment"] {
            assert!(!may(core::slice::from_ref(&in_pods), cgroup), "{cgroup}");
        }
        assert!(may_measure(core::slice::from_ref(&in_pods), "/user.slice/x", &cart), "a name of nobody");
        assert!(may(&[], "/user.slice/x"), "without rules each name is of nobody");
        // A user, or an address, says nothing about a cgroup, and the name is taken.
        assert!(!may(&[rule(Some(7), None, true)], "/pods/payment"));
        assert!(!may(&[rule(Some(7), Some("/pods/payment"), true)], "/pods/payment"));
        assert!(!may(&[rule(None, None, false)], "/pods/payment"));
        // Whoever fits a rule for any service.
        let general = IdentityRule { services: None, ..rule(None, Some("/system.slice"), true) };
        assert!(may(&[rule(Some(7), None, true), general.clone()], "/system.slice/payment.service"));
        assert!(!may(&[rule(Some(7), None, true), general], "/user.slice/payment.service"));
    }
}
