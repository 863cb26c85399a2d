//! The faults: their services, durations and order, and the metrics that indicate each.

use core::fmt;

use serde::{Deserialize, Serialize};
use wire::metric::Group;
use wire::time::Nanos;

use crate::graph::{Service, Target};
use crate::noise::Noise;
use crate::reason::Reason;
use crate::shop::names;

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A thread of the service uses a core without doing any work for requests.
    CpuHog,
    /// The store delays each request.
    Latency,
    /// Payment fails a part of its requests.
    Errors,
    /// The catalogue allocates memory until it has twice as much.
    Leak,
    /// Payment is stopped by a signal; its sockets stay open, but no request gets a response.
    Hang,
    /// The link between payment and the store delays packets. Needs a network namespace.
    SlowLink,
}

impl Kind {
    /// All kinds, in no particular order.
    pub const ALL: [Self; 6] = [Self::CpuHog, Self::Latency, Self::Errors, Self::Leak, Self::Hang, Self::SlowLink];

    /// Its name in output and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CpuHog => "cpu-hog",
            Self::Latency => "latency",
            Self::Errors => "errors",
            Self::Leak => "leak",
            Self::Hang => "hang",
            Self::SlowLink => "slow-link",
        }
    }

    /// Whether it has its full effect at once; only the leak grows.
    #[must_use]
    pub const fn is_abrupt(self) -> bool {
        !matches!(self, Self::Leak)
    }

    /// Description of what happens, for the report.
    #[must_use]
    pub const fn story(self) -> &'static str {
        match self {
            Self::CpuHog => "a thread burns CPU",
            Self::Latency => "every request takes 80 ms longer",
            Self::Errors => "3 of 10 requests get status 500",
            Self::Leak => "memory grows until it has doubled",
            Self::Hang => "the process is stopped (SIGSTOP)",
            Self::SlowLink => "packets take 30 to 50 ms longer in each direction",
        }
    }

    /// Its size: threads, milliseconds, or failing requests in a thousand, by kind.
    #[must_use]
    pub(crate) const fn amount(self) -> u64 {
        match self {
            Self::CpuHog => 1,
            Self::Latency => 80,
            Self::Errors => 300,
            Self::SlowLink => 40,
            Self::Leak | Self::Hang => 0,
        }
    }

    /// The services, or the link, that can have it.
    const fn targets(self) -> &'static [Target] {
        use Service::{Cart, Catalogue, Frontend, Payment, Store};
        match self {
            Self::CpuHog => &[
                Target::Service(Frontend),
                Target::Service(Cart),
                Target::Service(Catalogue),
                Target::Service(Payment),
                Target::Service(Store),
            ],
            Self::Latency => &[Target::Service(Store)],
            Self::Errors | Self::Hang => &[Target::Service(Payment)],
            Self::Leak => &[Target::Service(Catalogue)],
            Self::SlowLink => &[Target::Link],
        }
    }

    /// Description of the metrics that belong to this fault; [`Kind::belongs`] has the rule.
    #[must_use]
    pub const fn belonging(self) -> &'static str {
        match self {
            Self::CpuHog => "everything of the group cpu: processor time, run delay, context switches, threads",
            Self::Latency => {
                "durations of requests, calls, queueing and work, and backlogs: active requests and calls, queue, tasks"
            }
            Self::Errors => {
                "errors, requests with status 5xx, and the number of calls, which failing requests do not make"
            }
            Self::Leak => "everything of the group memory: resident set, page faults",
            Self::Hang => {
                "everything that stops with a process: the number of requests, calls and tasks, and the group cpu"
            }
            Self::SlowLink => "of the packets on the link: their delay, and unanswered or repeated requests",
        }
    }

    /// Whether a metric of the faulty service indicates this fault ([`Kind::belonging`]).
    #[must_use]
    pub fn belongs(self, reason: &Reason) -> bool {
        let (metric, group) = (reason.metric.as_str(), reason.group.as_str());
        match self {
            Self::CpuHog => group == Group::Cpu.name(),
            Self::Latency => match metric {
                names::REQUEST_DURATION | names::CALL_DURATION | names::QUEUE_WAIT | names::WORK_DURATION => {
                    !reason.is_count()
                }
                names::ACTIVE_REQUESTS | names::ACTIVE_CALLS | names::QUEUE_DEPTH | names::TASKS => true,
                _ => false,
            },
            Self::Errors => match metric {
                names::REQUESTS => reason.has_label(names::STATUS, "5xx"),
                names::CALL_DURATION => reason.is_count(),
                names::ERRORS | names::CALLS | names::ACTIVE_CALLS | names::CALL_SIZE => true,
                _ => false,
            },
            Self::Leak => group == Group::Memory.name(),
            Self::Hang => match metric {
                names::REQUEST_DURATION | names::CALL_DURATION | names::WORK_DURATION => reason.is_count(),
                names::REQUESTS | names::CALLS | names::ACTIVE_REQUESTS | names::ACTIVE_CALLS | names::TASKS => true,
                _ => group == Group::Cpu.name(),
            },
            Self::SlowLink => group == Group::Network.name() && LINK_METRICS.contains(&metric),
        }
    }
}

/// The NIC agent's packet metrics that depend on the delay of a link.
const LINK_METRICS: [&str; 5] = [
    "network.delay.p50",
    "network.delay.p95",
    "network.delay.p99",
    "network.requests.unanswered",
    "network.requests.repeated",
];

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Durations of the phases of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Healthy traffic between the arming of all LMAPs and the first fault.
    pub healthy: Nanos,
    /// Duration of CPU hog, latency, errors and the slow link.
    pub short_fault: Nanos,
    /// Duration of the leak.
    pub leak: Nanos,
    /// Duration of the hang.
    pub hang: Nanos,
    /// Minimal pause after a fault.
    pub pause: Nanos,
    /// Maximal pause after a fault, used if an alarm is still active.
    pub longest_pause: Nanos,
}

impl Pace {
    /// At most 90 s in all. Pauses are shorter than the grace after a fault, so that only the healthy traffic before
    /// the first one counts for false alarms.
    pub const QUICK: Self = Self {
        healthy: Nanos::from_secs(5),
        short_fault: Nanos::from_secs(3),
        leak: Nanos::from_secs(20),
        hang: Nanos::from_secs(10),
        pause: Nanos::from_secs(3),
        longest_pause: Nanos::from_secs(4),
    };

    /// For one fault, in tests: long enough to detect it, too short to measure false alarms.
    pub const BRIEF: Self = Self {
        healthy: Nanos::from_secs(2),
        short_fault: Nanos::from_secs(4),
        leak: Nanos::from_secs(10),
        hang: Nanos::from_secs(4),
        pause: Nanos::from_secs(1),
        longest_pause: Nanos::from_secs(1),
    };

    /// At most 4 minutes in all. The healthy traffic is long enough for the second fit, at 600 rows of 100 ms.
    pub const FULL: Self = Self {
        healthy: Nanos::from_secs(50),
        short_fault: Nanos::from_secs(8),
        leak: Nanos::from_secs(20),
        hang: Nanos::from_secs(10),
        pause: Nanos::from_secs(14),
        longest_pause: Nanos::from_secs(16),
    };

    const fn of(&self, kind: Kind) -> Nanos {
        match kind {
            Kind::CpuHog | Kind::Latency | Kind::Errors | Kind::SlowLink => self.short_fault,
            Kind::Leak => self.leak,
            Kind::Hang => self.hang,
        }
    }
}

/// A fault that will be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedFault {
    /// The service, or the link, that has it.
    pub service: Target,
    /// The kind of fault.
    pub kind: Kind,
    /// How long it lasts.
    pub lasts: Nanos,
}

/// Every kind once. The seed determines the order and the service that has the CPU hog.
#[must_use]
pub fn plan(seed: u64, pace: &Pace) -> Vec<PlannedFault> {
    let mut noise = Noise::new(seed, "faults");
    let mut kinds = Kind::ALL;
    noise.shuffle(&mut kinds);
    let mut planned = Vec::with_capacity(kinds.len());
    for kind in kinds {
        let targets = kind.targets();
        let service = targets.get(noise.below(targets.len())).copied().unwrap_or(Target::Service(Service::Frontend));
        planned.push(PlannedFault { service, kind, lasts: pace.of(kind) });
    }
    planned
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use wire::metric::Statistic;

    use super::*;
    use crate::judge::example::{labelled, reason, statistic};

    #[test]
    fn every_fault_happens_once_and_seeds_differ_in_order_and_in_who_has_the_hog() {
        let plans: Vec<_> = (0..40).map(|seed| plan(seed, &Pace::QUICK)).collect();

        for plan in &plans {
            let kinds: BTreeSet<_> = plan.iter().map(|planned| planned.kind).collect();
            assert_eq!(kinds, BTreeSet::from(Kind::ALL));
        }
        let first: BTreeSet<_> = plans.iter().map(|plan| plan[0].kind).collect();
        let hogs = plans.iter().flatten().filter(|planned| planned.kind == Kind::CpuHog);
        let hogs: BTreeSet<_> = hogs.map(|planned| planned.service).collect();
        assert_eq!(first.len(), Kind::ALL.len());
        assert_eq!(hogs.len(), 5);
        assert_eq!(plan(3, &Pace::QUICK), plan(3, &Pace::QUICK));
    }

    #[test]
    fn both_paces_keep_their_promise_if_every_pause_is_the_longest() {
        let arming = Nanos::from_secs(18); // 12 s of rows, and everything's start
        let whole = |pace: &Pace| {
            let faults = plan(1, pace).iter().fold(Nanos::ZERO, |sum, planned| sum.plus(planned.lasts));
            let pauses = Nanos(pace.longest_pause.0 * Kind::ALL.len() as u64);
            arming.plus(pace.healthy).plus(faults).plus(pauses).as_secs_f64()
        };

        assert!(whole(&Pace::QUICK) <= 90.0, "{}", whole(&Pace::QUICK));
        assert!(whole(&Pace::FULL) <= 230.0, "{}", whole(&Pace::FULL));
    }

    /// A metric of the group "service".
    fn metric(name: &str) -> Reason {
        Reason { group: "service".to_owned(), ..reason(name, 1.0, 1.0) }
    }

    fn in_group(group: &str, name: &str) -> Reason {
        Reason { group: group.to_owned(), ..metric(name) }
    }

    fn requests(route: &str, status: &str) -> Reason {
        let labels = [("route", route), ("status", status)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        Reason { labels, ..metric("http.server.requests") }
    }

    #[test]
    fn metrics_belong_to_the_fault_that_moves_them() {
        let served = || metric("http.server.request.duration");

        assert!(Kind::CpuHog.belongs(&labelled(in_group("cpu", "process.cpu.time"), "mode", "user")));
        assert!(!Kind::CpuHog.belongs(&in_group("memory", "process.memory.usage")));
        assert!(Kind::Latency.belongs(&labelled(statistic(Statistic::Mean, served()), "route", "/read")));
        assert!(!Kind::Latency.belongs(&metric("store.rows.read")));
        assert!(!Kind::Latency.belongs(&labelled(statistic(Statistic::Count, served()), "route", "/read")));
        assert!(Kind::Errors.belongs(&requests("/pay", "5xx")));
        assert!(!Kind::Errors.belongs(&requests("/pay", "2xx")));
        assert!(Kind::Leak.belongs(&in_group("memory", "process.page_faults")));
        assert!(Kind::Hang.belongs(&metric("http.server.active_requests")));
        assert!(Kind::Hang.belongs(&in_group("cpu", "process.cpu.time")));
        assert!(Kind::Hang.belongs(&statistic(Statistic::Count, metric("work.duration"))));
        assert!(!Kind::Hang.belongs(&statistic(Statistic::P99, metric("work.duration"))));
        assert!(Kind::SlowLink.belongs(&in_group("network", "network.delay.p99")));
        assert!(Kind::SlowLink.belongs(&in_group("network", "network.requests.unanswered")));
        assert!(!Kind::SlowLink.belongs(&in_group("network", "network.requests")));
        assert!(!Kind::SlowLink.belongs(&in_group("network", "network.delay.trusted")));
    }

    #[test]
    fn a_name_that_only_resembles_a_meters_own_belongs_to_nothing() {
        let call = |which| labelled(statistic(which, metric("http.client.request.duration")), "peer", "store");

        assert!(Kind::Errors.belongs(&call(Statistic::Count)));
        assert!(!Kind::Errors.belongs(&call(Statistic::P99)), "no call's length");
        assert!(!Kind::Errors.belongs(&requests("/5xx", "2xx")));
        for kind in Kind::ALL {
            for name in ["store.errors.queue.duration", "my.http.server.requests", "queue.depths", "payment.accepted"] {
                assert!(!kind.belongs(&metric(name)), "{kind}: {name}");
            }
        }
    }

    #[test]
    fn a_title_alone_belongs_to_nothing() {
        let titled = Reason { metric: String::new(), ..metric("queue.depth") };

        assert!(Kind::ALL.iter().all(|kind| !kind.belongs(&titled)));
    }
}
