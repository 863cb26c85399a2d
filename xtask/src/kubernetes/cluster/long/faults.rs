//! Each service of the shop has a fault: it is noticed, named by workload and pod, and a trace of it is kept that says
//! which pods it is from.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::super::kit::{Cluster, Status};
use super::super::steps::Steps;
use super::super::traces;
use super::super::upstream::{Span, Upstream};
use super::failed::Failed;
use super::shop::{FIRST, FRONTEND, NAMESPACE, Shop, Version, of};

/// The program's name in all containers of the shop.
const PROGRAM: &str = "uview";
/// Twenty times as slow as what it replaces.
const SLOW: Version = Version { name: "2", wait_us: 30_000 };

/// What happens to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A thread burns CPU.
    Hog,
    /// Its processes are stopped, and go on after the alarm.
    Stop,
    /// It takes as much memory again as it has.
    Leak,
    /// Whenever it runs, it is killed.
    CrashLoop,
    /// A version that is far slower.
    Rollout,
}

/// A fault of a service, and how it is to be noticed.
#[derive(Clone, Copy, Debug)]
struct Fault {
    kind: Kind,
    service: &'static str,
    /// Groups of metrics, one of which the alarm is about; none: any.
    groups: &'static [&'static str],
    title: &'static str,
}

/// One for each service.
const FAULTS: [Fault; 5] = [
    Fault { kind: Kind::Hog, service: "payment", groups: &["cpu"], title: "a CPU hog in payment" },
    Fault { kind: Kind::Stop, service: "catalogue", groups: &["health"], title: "SIGSTOP of catalogue" },
    Fault { kind: Kind::Leak, service: "store", groups: &["memory"], title: "memory of store grows" },
    Fault { kind: Kind::CrashLoop, service: "cart", groups: &["health"], title: "a crash loop of cart" },
    Fault { kind: Kind::Rollout, service: FRONTEND, groups: &[], title: "a bad rollout of frontend" },
];

impl Fault {
    /// Whether a kept trace shows it: kept because of it and not by chance, with spans of the pod, or of one that
    /// called it in vain.
    fn is_shown_by(&self, trace: &[Span], pod: &str) -> bool {
        let policy = traces::policy(trace).unwrap_or("floor");
        let is_of_pod = || trace.iter().any(|span| is_from(span, self.service, pod));
        match self.kind {
            // What is stopped or killed sends no spans of that time.
            Kind::Stop | Kind::CrashLoop => {
                let calls = |span: &Span| attribute(span, "peer.service") == Some(self.service);
                policy == "error" && trace.iter().any(calls)
            }
            // Of a hundred requests one is slower than the others without any fault.
            Kind::Hog | Kind::Leak => policy == "lmap" && is_of_pod(),
            // Of the new version, which has no other requests, slow ones are the fault.
            Kind::Rollout => policy != "floor" && is_of_pod(),
        }
    }

    /// How it is to be named.
    const fn names(&self) -> &'static str {
        match self.kind {
            Kind::Rollout => "workload",
            _ => "workload and pod",
        }
    }

    /// Whether the service is in alarm for it, by metrics of its pod.
    fn is_noticed(&self, status: &Status, pod: &str) -> bool {
        let service = of(self.service);
        match self.kind {
            // Spans are counted by service, and are of no single replica.
            Kind::Rollout => status.is_in_alarm(&service),
            _ => self.groups.iter().any(|group| names(status, (&service, group), pod)),
        }
    }
}

/// Whether a service is in alarm for a metric of this group, and says that it is about this pod, or that it is silent.
fn names(status: &Status, (service, group): (&str, &str), pod: &str) -> bool {
    let silent = status.lmap(service)["silent_replicas"].as_array().into_iter().flatten();
    let is_silent = silent.filter_map(Value::as_str).any(|replica| replica == pod);
    status.names_replica(service, group, pod) || (is_silent && status.is_in_alarm_for(service, &[group]))
}

/// Injects one fault after the other, whatever becomes of the one before.
///
/// # Errors
///
/// One is not noticed within two minutes, no trace of it is kept within two more, an alarm outlasts it, or it cannot be
/// undone.
pub fn check(shop: &Shop<'_>, upstream: &Upstream, steps: &mut Steps) -> Result<()> {
    let mut failed = Failed::default();
    for fault in &FAULTS {
        failed.note(fault.title, is_seen(shop, upstream, fault, steps));
        failed.note(fault.title, end(shop, fault));
        let quiet = steps.run(&format!("{}: over, all are quiet", fault.title), || shop.settle());
        if !failed.note(fault.title, quiet) {
            let normal = shop.take_as_normal(&Shop::services()).and_then(|()| shop.settle());
            failed.note(fault.title, normal);
        }
    }
    failed.into_result()
}

/// Begins a fault: it is noticed, and a trace of it is kept.
fn is_seen(shop: &Shop<'_>, upstream: &Upstream, fault: &Fault, steps: &mut Steps) -> Result<()> {
    let pod = steps.run(&format!("{}: noticed, named by {}", fault.title, fault.names()), || {
        upstream.clear();
        let pod = inject(shop, fault)?;
        let what = format!("{} is in alarm for what {pod} does", of(fault.service));
        shop.cluster.until(&what, |status| fault.is_noticed(status, &pod))?;
        println!("{}", shop.cluster.status()?.reasons(&of(fault.service)));
        Ok(pod)
    })?;
    steps.run(&format!("{}: a kept trace with k8s.* of its pods", fault.title), || {
        let trace = kept(upstream, fault, &pod)?;
        println!("a trace of {} spans, kept because: {}", trace.len(), traces::reason(&trace).unwrap_or("?"));
        all_identified(&trace)
    })
}

/// Begins a fault, and returns the pod that has it.
fn inject(shop: &Shop<'_>, fault: &Fault) -> Result<String> {
    let (service, cluster) = (fault.service, shop.cluster);
    match fault.kind {
        Kind::Hog => shop.inject(service, "kind=cpu-hog&ms=30000&amount=1")?,
        Kind::Leak => shop.inject(service, "kind=leak&ms=20000&amount=0")?,
        Kind::Stop => cluster.signal("STOP", &cluster.container(NAMESPACE, &format!("app={service}"))?)?,
        Kind::CrashLoop => crash(cluster, &shop.pod(service)?)?,
        Kind::Rollout => shop.roll_out(service, SLOW)?,
    }
    shop.pod(service)
}

/// Undoes what does not end by itself.
fn end(shop: &Shop<'_>, fault: &Fault) -> Result<()> {
    let cluster = shop.cluster;
    match fault.kind {
        Kind::Stop => cluster.signal("CONT", &cluster.container(NAMESPACE, &format!("app={}", fault.service))?),
        Kind::Rollout => shop.roll_out(fault.service, FIRST),
        Kind::Hog | Kind::Leak | Kind::CrashLoop => Ok(()),
    }
}

/// For half a minute, kills the program of a pod as often as it is there. The pod itself, and so its address, stay.
fn crash(cluster: &Cluster, pod: &str) -> Result<()> {
    let uid = cluster.sh(&format!("kubectl -n {NAMESPACE} get pod {pod} -o jsonpath={{.metadata.uid}}"))?;
    let processes =
        format!("find /sys/fs/cgroup/memory/kubepods -path '*{}/*' -name cgroup.procs -exec cat {{}} +", uid.trim());
    let kill = format!("[ \"$(cat /proc/$p/comm)\" = {PROGRAM} ] && kill -9 $p");
    let again = format!("for _ in $(seq 150); do for p in $({processes}); do {kill}; done; sleep 0.2; done");
    cluster.sh(&format!("({again}) >/dev/null 2>&1 &")).map(drop)
}

/// The first trace that shows a fault.
fn kept(upstream: &Upstream, fault: &Fault, pod: &str) -> Result<Vec<Span>> {
    Cluster::until_some(&format!("a trace of {} is kept", fault.title), || {
        let traces: Vec<_> = upstream.traces().into_values().collect();
        let found = traces.iter().find(|trace| fault.is_shown_by(trace, pod)).cloned();
        found.with_context(|| {
            let reasons: Vec<_> = traces.iter().filter_map(|trace| traces::reason(trace)).take(5).collect();
            format!("{} traces arrived, kept because: {reasons:?}", traces.len())
        })
    })
}

/// Each span says which pod of the shop it is from.
fn all_identified(trace: &[Span]) -> Result<()> {
    for span in trace {
        let of = |key: &str| span.resource.get(key).map(String::as_str);
        let (workload, pod) = (of("k8s.deployment.name").unwrap_or_default(), of("k8s.pod.name").unwrap_or_default());
        let is_right = is_from(span, workload, pod) && !workload.is_empty() && pod.starts_with(workload);
        ensure!(is_right && of("k8s.node.name") == Some("lab"), "a span says of itself {:?}", span.resource);
    }
    Ok(())
}

/// Whether a span is from this pod of a workload of the shop.
pub fn is_from(span: &Span, workload: &str, pod: &str) -> bool {
    let expected = [("k8s.namespace.name", NAMESPACE), ("k8s.deployment.name", workload), ("k8s.pod.name", pod)];
    expected.iter().all(|(key, value)| span.resource.get(*key).is_some_and(|said| said == value))
}

fn attribute<'a>(span: &'a Span, key: &str) -> Option<&'a str> {
    span.attributes.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn span(workload: &str, attributes: &[(&str, &str)]) -> Span {
        let pod = format!("{workload}-1");
        let resource = [
            ("k8s.namespace.name", NAMESPACE),
            ("k8s.deployment.name", workload),
            ("k8s.pod.name", pod.as_str()),
            ("k8s.node.name", "lab"),
        ];
        Span { trace: vec![1; 16], attributes: texts(attributes), resource: texts(&resource) }
    }

    fn fault(kind: Kind) -> &'static Fault {
        FAULTS.iter().find(|fault| fault.kind == kind).unwrap()
    }

    #[test]
    fn each_service_has_one_fault() {
        let mut services: Vec<_> = FAULTS.iter().map(|fault| of(fault.service)).collect();
        let mut all = Shop::services();
        services.sort();
        all.sort();

        assert_eq!(services, all);
    }

    #[test]
    fn a_trace_shows_a_fault_by_a_span_of_the_pod_unless_it_was_kept_by_chance() {
        let hog = fault(Kind::Hog);
        let of = |policy: &str| [span(FRONTEND, &[("uview.policy", policy)]), span("payment", &[])];

        assert!(hog.is_shown_by(&of("lmap"), "payment-1"));
        for by_chance in ["floor", "latency"] {
            assert!(!hog.is_shown_by(&of(by_chance), "payment-1"), "{by_chance}");
        }
        assert!(!hog.is_shown_by(&of("lmap"), "payment-2"), "an earlier pod");
        assert!(!hog.is_shown_by(&of("lmap")[..1], "payment-1"), "no span of payment");
    }

    #[test]
    fn a_slow_version_is_shown_by_a_slow_request_to_its_pod() {
        let rollout = fault(Kind::Rollout);
        let of = |policy: &str| [span(FRONTEND, &[("uview.policy", policy)])];

        assert!(rollout.is_shown_by(&of("latency"), "frontend-1") && rollout.is_shown_by(&of("lmap"), "frontend-1"));
        assert!(!rollout.is_shown_by(&of("floor"), "frontend-1"));
        assert!(!rollout.is_shown_by(&of("latency"), "frontend-2"), "the pod of the version before");
    }

    #[test]
    fn what_is_stopped_is_shown_by_whoever_called_it_in_vain() {
        let stop = fault(Kind::Stop);
        let of = |policy: &str, peer: &str| [span(FRONTEND, &[("uview.policy", policy), ("peer.service", peer)])];

        assert!(stop.is_shown_by(&of("error", "catalogue"), "catalogue-1"));
        assert!(!stop.is_shown_by(&of("error", "cart"), "catalogue-1"));
        assert!(!stop.is_shown_by(&of("latency", "catalogue"), "catalogue-1"));
    }

    #[test]
    fn a_span_that_does_not_say_its_pod_is_an_error() {
        let mut trace = vec![span(FRONTEND, &[]), span("payment", &[])];
        assert!(all_identified(&trace).is_ok());

        trace[1].resource.remove("k8s.pod.name");

        assert!(all_identified(&trace).is_err());
    }
}
