//! What the control plane is told at its start.

use std::collections::BTreeMap;

use wire::id::Incarnation;
use wire::metric::Every;
use wire::name::{MetricName, ServiceName};
use wire::time::{Interval, Nanos};

/// Who is at the other end of a service's connection, as the kernel says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process, in the agent's pid namespace; 0 if it is not visible there.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its cgroup (v2 path); empty if not known.
    pub cgroup: String,
}

/// Allows some processes to register as some services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityRule {
    /// Which user; every one if `None`.
    pub uid: Option<u32>,
    /// Which cgroup the process has to be in or below; every one if `None`.
    pub cgroup: Option<String>,
    /// As which services; `None` means any.
    pub services: Option<Vec<ServiceName>>,
}

impl IdentityRule {
    /// Whether this rule lets `peer` be `service`.
    #[must_use]
    pub fn allows(&self, peer: &Peer, service: &ServiceName) -> bool {
        self.uid.is_none_or(|uid| uid == peer.uid)
            && self.cgroup.as_ref().is_none_or(|above| is_below(&peer.cgroup, above))
            && self.services.as_ref().is_none_or(|services| services.contains(service))
    }
}

fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above.trim_end_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// How much may come from outside before it is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of services at one time.
    pub connections: usize,
    /// Replicas of one service.
    pub replicas_per_service: usize,
    /// Regions of one replica.
    pub regions_per_replica: usize,
    /// Bytes of all regions of one service.
    pub bytes_per_service: u64,
    /// Different series of one service over all its replicas, process metrics included.
    pub series_per_service: usize,
    /// Bytes of the names and labels of one service's series.
    pub text_bytes_per_service: usize,
    /// Places of one service: each series counts once for each replica that has it.
    pub places_per_service: usize,
    /// Workers of the node: their numbers are below this.
    pub workers: u32,
}

impl Limits {
    /// Of a service's series, so many are kept free for the agent's own (process metrics).
    pub const OWN_SERIES: usize = 32;
}

impl Default for Limits {
    /// Bounds under which the configuration of an LMAP stays below 4 MiB.
    fn default() -> Self {
        Self {
            connections: 1024,
            replicas_per_service: wire::control::MAX_REPLICAS,
            regions_per_replica: 64,
            bytes_per_service: 64 << 20,
            series_per_service: wire::control::MAX_METRICS,
            text_bytes_per_service: 1 << 20,
            places_per_service: 1 << 17,
            workers: 256,
        }
    }
}

/// What the control plane is told at its start.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// This run of the host agent.
    pub incarnation: Incarnation,
    /// How often a service's heartbeat word has to change.
    pub heartbeat: Nanos,
    /// The local scraping interval of an LMAP for which none was asked.
    pub interval: Interval,
    /// Ways to fetch that the edge can serve, by their names in a worker's hello.
    pub transports: Vec<String>,
    /// A worker that was not heard of for so long is fenced.
    pub lease: Nanos,
    /// Workers summarise verdicts with a score below this share of γ.
    pub lowest_share: f64,
    /// Changes of an LMAP are gathered for so long before its worker is told.
    pub settle: Nanos,
    /// LMAPs without a worker wait for so long after a worker came, so that the first of several does not get all.
    pub gather: Nanos,
    /// A connection without a hello is closed after so long.
    pub hello_within: Nanos,
    /// Metrics that change only so often, whoever registers them: an LMAP does not look at them more often.
    pub periods: BTreeMap<MetricName, Nanos>,
    /// Who may be which service. Empty: everyone may be any.
    pub identities: Vec<IdentityRule>,
    /// The bounds.
    pub limits: Limits,
}

impl Settings {
    /// The product's defaults for the run `incarnation`.
    #[must_use]
    pub fn new(incarnation: Incarnation, interval: Interval) -> Self {
        Self {
            incarnation,
            heartbeat: Nanos::from_millis(100),
            interval,
            // A descriptor over the regions socket; memory of one process, for tests.
            transports: vec!["shm".to_owned(), "local".to_owned()],
            lease: Nanos::from_secs(5),
            lowest_share: 0.5,
            settle: Nanos::from_millis(20),
            gather: Nanos::from_millis(200),
            hello_within: Nanos::from_secs(5),
            periods: BTreeMap::new(),
            identities: Vec::new(),
            limits: Limits::default(),
        }
    }

    /// Every how many intervals of an LMAP the metric `name` is looked at, at the most.
    #[must_use]
    pub fn every(&self, name: &MetricName, interval: Interval) -> Every {
        let period = self.periods.get(name).copied().unwrap_or(Nanos::ZERO);
        Every::new(period.0.div_ceil(interval.nanos().get()) as u32).unwrap_or(Every::MIN)
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
        };
        let peer = Peer { pid: 1, uid: 1000, cgroup: "/kubepods/payment/7".into() };

        assert!(rule.allows(&peer, &payment));
        assert!(!rule.allows(&peer, &cart));
        assert!(!rule.allows(&Peer { uid: 0, ..peer.clone() }, &payment));
        assert!(!rule.allows(&Peer { cgroup: "/kubepods/payment-2".into(), ..peer }, &payment));
    }
}
