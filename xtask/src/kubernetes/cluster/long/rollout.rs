//! Three frontends that run side by side and send OTLP are rolled out under load, to a version that does the same. That
//! is a change of version: no alarm begins. A fault in one of the new pods is an alarm in the same place.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value, json};
use support::clock::Stopwatch;

use super::super::kit::{Cluster, Status};
use super::super::steps::Steps;
use super::super::upstream::{Span, Upstream};
use super::agent_log;
use super::failed::Failed;
use super::faults::is_from;
use super::quiet_watch::QuietWatch;
use super::shop::{FIRST, FRONTEND, NAMESPACE, Shop, ShopPod, Version, of};

/// Frontends that run side by side.
const REPLICAS: usize = 3;
/// Rows without an alarm before a rollout, and after its end: half a minute.
const ROWS: u64 = 300;
/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// What looks wait for is there by then.
const WITHIN: Duration = Duration::from_mins(2);
/// A service is without an alarm for [`ROWS`] rows by then.
const CALM_WITHIN: Duration = Duration::from_mins(5);
/// Versions that pods of this node have had for the first time.
const COUNTER: &str = "uview_host_rollouts";
/// A thread that burns CPU for half a minute.
const HOG: &str = "kind=cpu-hog&ms=30000&amount=1";

/// A rollout that changes nothing but the version.
#[derive(Clone, Copy, Debug)]
struct Rollout {
    version: Version,
    /// Seconds that a new pod is ready before an old one goes.
    ready_s: u32,
    title: &'static str,
}

/// Each begins with the pods of the one before.
const ROLLOUTS: [Rollout; 2] = [
    // As Deployments do by themselves. A pod joins 10 s after it is ready: most old ones have left by then.
    Rollout { version: Version { name: "1.1", ..FIRST }, ready_s: 0, title: "three frontends rolled out at once" },
    // Longer than these 10 s: replicas of both versions are judged side by side.
    Rollout { version: Version { name: "1.2", ..FIRST }, ready_s: 15, title: "three frontends rolled out one by one" },
];

/// Rolls out three frontends twice. After each, one of them has a fault.
///
/// # Errors
///
/// An alarm begins with a rollout, or until [`ROWS`] rows after its end; the service is another one meanwhile, its
/// replicas or their version are not the new ones; the fault is not noticed, or not in the pod that has it.
pub fn check(shop: &Shop<'_>, upstream: &Upstream, steps: &mut Steps) -> Result<()> {
    let mut failed = Failed::default();
    let prepared = steps.run("three frontends side by side: what they do is normal", || {
        adjust(shop, REPLICAS, 0)?;
        shop.roll_out(FRONTEND, FIRST)?;
        take_as_normal(shop, REPLICAS)
    });
    if failed.note("three frontends", prepared) {
        for rollout in &ROLLOUTS {
            failed.note(rollout.title, is_told_from_a_fault(shop, upstream, rollout, steps));
            let quiet = steps.run(&format!("{}: over, all are quiet", rollout.title), || shop.settle());
            if !failed.note(rollout.title, quiet) {
                let normal = shop.take_as_normal(&Shop::services()).and_then(|()| shop.settle());
                failed.note(rollout.title, normal);
            }
        }
    }
    failed.note("afterwards", steps.run("one frontend of the first version, as before", || undo(shop)));
    failed.into_result()
}

/// The rollout is no alarm, and a fault after it is one.
fn is_told_from_a_fault(shop: &Shop<'_>, upstream: &Upstream, rollout: &Rollout, steps: &mut Steps) -> Result<()> {
    let &Rollout { version, title, .. } = rollout;
    let before = shop.pods(FRONTEND)?;
    let from = before.first().context("there is no frontend")?.version.clone();
    let pods = steps.run(&format!("{title}: no alarm until {ROWS} rows after it"), || {
        upstream.clear();
        good(shop, rollout, &before)
    })?;
    steps.run(&format!("{title}: kept traces say the version of each"), || {
        Cluster::until_some("spans of each new pod are kept", || {
            let traces = upstream.traces();
            for ShopPod { name, .. } in &pods {
                let said = versions_said(traces.values().flatten(), name);
                ensure!(said == BTreeSet::from([version.name]), "spans of {name} say versions {said:?}");
            }
            Ok(())
        })
    })?;
    let pod = pods.last().context("there is no new frontend")?;
    steps.run(&format!("{title}: a CPU hog in a new pod is noticed, named by it"), || {
        is_noticed(shop, pod, &format!("version {} after {from}", version.name))
    })
}

/// So many frontends. Of a rollout, one pod comes at a time, and is ready for `ready_s` seconds before an old one goes.
/// What is set here stays when a version is applied.
fn adjust(shop: &Shop<'_>, replicas: usize, ready_s: u32) -> Result<()> {
    let spec = json!({"spec": {
        "replicas": replicas,
        "minReadySeconds": ready_s,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
    }});
    shop.cluster.sh(&format!("kubectl -n {NAMESPACE} patch deploy {FRONTEND} --type=merge -p '{spec}'")).map(drop)
}

/// What so many frontends do is normal, once all have joined.
fn take_as_normal(shop: &Shop<'_>, count: usize) -> Result<()> {
    joined(shop, count)?;
    shop.take_as_normal(&[of(FRONTEND)])?;
    shop.settle()
}

/// Takes all of it back, each part whatever becomes of the one before.
fn undo(shop: &Shop<'_>) -> Result<()> {
    let mut failed = Failed::default();
    failed.note("one frontend", adjust(shop, 1, 0));
    failed.note("its first version", shop.roll_out(FRONTEND, FIRST));
    failed.note("what it does is normal", take_as_normal(shop, 1));
    failed.into_result()
}

/// Rolls out, and returns the new pods.
fn good(shop: &Shop<'_>, rollout: &Rollout, before: &[ShopPod]) -> Result<Vec<ShopPod>> {
    let (cluster, service) = (shop.cluster, of(FRONTEND));
    let &Rollout { version, ready_s, .. } = rollout;
    adjust(shop, REPLICAS, ready_s)?;
    let mut watch = calm(shop)?;
    let counted = cluster.metric(COUNTER)?;
    shop.visitors.window();
    let pods = look_on(shop, version, &mut watch).with_context(|| watch.to_string())?;
    let window = shop.visitors.window();
    println!("{watch}; {} visits meanwhile, {} of them failed", window.ended, window.failed);
    watch.judge()?;
    are_new(before, &pods, version.name)?;
    let counted = cluster.metric(COUNTER)? - counted;
    ensure!((counted - 1.0).abs() < 0.5, "{counted} new versions were counted, of one rollout");
    let log = host_agent_log(cluster)?;
    let told = agent_log::versions(&log, &service);
    let is_new = |(from, to): &(String, String)| before.iter().all(|pod| pod.version == *from) && *to == version.name;
    ensure!(told.last().is_some_and(is_new), "the agent's log has these versions of {service}: {told:?}");
    Ok(pods)
}

/// Waits until the frontend has been quiet for [`ROWS`] rows: what begins from here on is not of before.
fn calm(shop: &Shop<'_>) -> Result<QuietWatch> {
    let clock = Stopwatch::start();
    loop {
        shop.settle()?;
        let mut watch = QuietWatch::begin(&of(FRONTEND), &status(shop.cluster)?)?;
        let is_over = |_: &Status, watch: &QuietWatch| watch.rows() >= ROWS || !watch.is_quiet();
        look_until(shop, &mut watch, "rows come", is_over)?;
        if watch.is_quiet() {
            return Ok(watch.anew());
        }
        println!("before the rollout: {watch}");
        ensure!(clock.elapsed() < CALM_WITHIN, "not quiet for {ROWS} rows within {CALM_WITHIN:?}: {watch}");
    }
}

/// Rolls out under looks, until [`ROWS`] rows after all new pods have joined. Returns them.
fn look_on(shop: &Shop<'_>, version: Version, watch: &mut QuietWatch) -> Result<Vec<ShopPod>> {
    let service = of(FRONTEND);
    std::thread::scope(|scope| {
        let rolling = scope.spawn(|| shop.roll_out(FRONTEND, version));
        while !rolling.is_finished() {
            watch.look(&status(shop.cluster)?);
            std::thread::sleep(LOOK_EVERY);
        }
        rolling.join().unwrap_or_else(|_| Err(anyhow!("the thread that rolls out has crashed")))
    })?;
    // Their containers, and what is counted of their spans.
    let have_joined = |status: &Status, _: &QuietWatch| status.lmap(&service)["replicas"] == REPLICAS + 1;
    look_until(shop, watch, "all new pods have joined", have_joined)?;
    let pods = joined(shop, REPLICAS)?;
    let ended = watch.rows();
    look_until(shop, watch, "rows come after the rollout", |_, watch| watch.rows() >= ended + ROWS)?;
    Ok(pods)
}

/// Looks until `holds` is true of the status and of what was found.
fn look_until(
    shop: &Shop<'_>,
    watch: &mut QuietWatch,
    what: &str,
    holds: impl Fn(&Status, &QuietWatch) -> bool,
) -> Result<()> {
    let clock = Stopwatch::start();
    loop {
        let status = status(shop.cluster)?;
        watch.look(&status);
        if holds(&status, watch) {
            return Ok(());
        }
        ensure!(clock.elapsed() < WITHIN, "not within {WITHIN:?}: {what}; {status}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Waits until so many frontends are there, and the agent reads the containers of just these. Returns them.
fn joined(shop: &Shop<'_>, count: usize) -> Result<Vec<ShopPod>> {
    Cluster::until_some(&format!("{count} frontends have joined"), || {
        let (pods, log) = (shop.pods(FRONTEND)?, host_agent_log(shop.cluster)?);
        let read = agent_log::containers(&log, &of(FRONTEND));
        ensure!(pods.len() == count && are_of(&read, &pods), "{read:?} are read, pods are {pods:?}");
        Ok(pods)
    })
}

/// The log of the host agent.
fn host_agent_log(cluster: &Cluster) -> Result<String> {
    cluster.sh("kubectl -n uview logs ds/uview-host-agent")
}

/// What the agent says, which a busy machine may have to be asked for again.
fn status(cluster: &Cluster) -> Result<Status> {
    Cluster::until_some("the status is said", || cluster.status())
}

/// Whether these groups are one container of each pod, and no other.
fn are_of(groups: &BTreeSet<String>, pods: &[ShopPod]) -> bool {
    let is_of = |group: &str, uid: &str| group.split('/').any(|folder| folder.strip_prefix("pod") == Some(uid));
    groups.len() == pods.len() && pods.iter().all(|pod| groups.iter().any(|group| is_of(group, &pod.uid)))
}

/// The pods after a rollout are others than before, as many, and have its version.
fn are_new(before: &[ShopPod], pods: &[ShopPod], version: &str) -> Result<()> {
    let is_new = |pod: &ShopPod| pod.version == version && before.iter().all(|old| old.name != pod.name);
    ensure!(pods.len() == before.len() && pods.iter().all(is_new), "pods were {before:?}, and are {pods:?}");
    Ok(())
}

/// Versions that kept spans of a frontend say, one that says none as an empty text.
fn versions_said<'a>(spans: impl Iterator<Item = &'a Span>, pod: &str) -> BTreeSet<&'a str> {
    let of_pod = spans.filter(|span| is_from(span, FRONTEND, pod));
    of_pod.map(|span| span.resource.get("service.version").map_or("", String::as_str)).collect()
}

/// Has a pod burn CPU: the alarm names it, and its incident has the change of version.
fn is_noticed(shop: &Shop<'_>, pod: &ShopPod, change: &str) -> Result<()> {
    let (cluster, service) = (shop.cluster, of(FRONTEND));
    shop.settle()?;
    let list = cluster.json("incidents")?;
    let known: BTreeSet<&str> = incidents(&list, &service).into_iter().collect();
    shop.inject_at(&pod.address, HOG)?;
    let what = format!("{service} is in alarm for the CPU time of {}", pod.name);
    cluster.until(&what, |status| status.names_replica(&service, "cpu", &pod.name))?;
    println!("{}", cluster.status()?.reasons(&service));
    let incident = Cluster::until_some("its incident has the change of version", || {
        let list = cluster.json("incidents")?;
        let new = incidents(&list, &service).into_iter().find(|id| !known.contains(id));
        let id = new.with_context(|| format!("no incident of {service} is new: {list}"))?;
        let changes = version_changes(&cluster.json(&format!("incident {id}"))?, &service);
        ensure!(changes.iter().any(|text| text == change), "incident {id} has these changes of version: {changes:?}");
        Ok(id.to_owned())
    })?;
    println!("incident {incident}: {change}");
    Ok(())
}

/// Incidents of a service by their ids, in the order of the list.
fn incidents<'a>(list: &'a Value, service: &str) -> Vec<&'a str> {
    let all = list["incidents"].as_array().into_iter().flatten();
    let is_of = |incident: &&Value| incident["services"].as_array().into_iter().flatten().any(|of| of == service);
    all.filter(is_of).filter_map(|incident| incident["id"].as_str()).collect()
}

/// Changes of a service's version that an incident has, in words.
fn version_changes(incident: &Value, service: &str) -> Vec<String> {
    let all = incident["changes"].as_array().into_iter().flatten();
    let of = all.filter(|change| change["kind"] == "version" && change["service"] == service);
    of.filter_map(|change| change["text"].as_str()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, version: &str) -> ShopPod {
        ShopPod {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            address: "10.244.0.7".to_owned(),
            version: version.to_owned(),
        }
    }

    #[test]
    fn rollouts_change_the_version_and_nothing_else() {
        let versions: BTreeSet<_> = ROLLOUTS.iter().map(|rollout| rollout.version.name).chain([FIRST.name]).collect();

        assert_eq!(versions.len(), ROLLOUTS.len() + 1, "each is new to the agent");
        assert!(ROLLOUTS.iter().all(|rollout| rollout.version.wait_us == FIRST.wait_us));
    }

    #[test]
    fn containers_that_are_read_are_one_of_each_pod() {
        let pods = [pod("a", "2"), pod("b", "2")];
        let groups = |of: &[&str]| of.iter().map(|group| (*group).to_owned()).collect::<BTreeSet<String>>();
        let (a, b) = ("kubepods/besteffort/poduid-a/1", "kubepods/besteffort/poduid-b/2");

        assert!(are_of(&groups(&[a, b]), &pods));
        assert!(!are_of(&groups(&[a]), &pods), "b has not joined");
        assert!(!are_of(&groups(&[a, b, "kubepods/besteffort/poduid-c/3"]), &pods), "c has not left");
        assert!(!are_of(&groups(&[a, "kubepods/besteffort/poduid-b-2/3"]), &pods), "another pod");
    }

    #[test]
    fn pods_of_a_rollout_are_new_and_have_its_version() {
        let before = [pod("a", "1"), pod("b", "1")];

        assert!(are_new(&before, &[pod("c", "2"), pod("d", "2")], "2").is_ok());
        for (after, why) in [
            (vec![pod("c", "2"), pod("b", "2")], "b is of before"),
            (vec![pod("c", "2"), pod("d", "1")], "d has the version of before"),
            (vec![pod("c", "2")], "one is missing"),
        ] {
            assert!(are_new(&before, &after, "2").is_err(), "{why}");
        }
    }

    #[test]
    fn spans_of_a_pod_say_its_version() {
        let span = |pod: &str, version: Option<&str>| {
            let names = [("k8s.namespace.name", NAMESPACE), ("k8s.deployment.name", FRONTEND), ("k8s.pod.name", pod)];
            let said = names.into_iter().chain(version.map(|version| ("service.version", version)));
            Span { resource: said.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(), ..Span::default() }
        };
        let spans = [span("a", Some("1.1")), span("b", Some("1")), span("a", Some("1.1")), span("c", None)];
        let said = |pod: &str| versions_said(spans.iter(), pod).into_iter().collect::<Vec<_>>();

        assert_eq!([said("a"), said("b"), said("c"), said("d")], [vec!["1.1"], vec!["1"], vec![""], vec![]]);
    }

    #[test]
    fn incidents_of_a_service_are_those_that_name_it() {
        let list = json!({"node": "lab", "incidents": [
            {"id": "20261130-090200-001", "services": ["shop/cart", "shop/frontend"]},
            {"id": "20261130-090100-001", "services": ["shop/cart"]},
            {"id": "20261130-090000-001", "services": ["shop/frontend"]},
        ]});

        assert_eq!(incidents(&list, "shop/frontend"), ["20261130-090200-001", "20261130-090000-001"]);
        assert!(incidents(&json!({}), "shop/frontend").is_empty());
    }

    #[test]
    fn changes_of_version_are_those_of_the_service() {
        let change = |service: &str, kind: &str, text: &str| json!({"service": service, "kind": kind, "text": text});
        let incident = json!({"changes": [
            change("shop/frontend", "version", "version 1.1 after 1"),
            change("shop/cart", "version", "version 3 after 2"),
            change("shop/frontend", "limit", "memory limit 2 MB, before 1 MB"),
            change("shop/frontend", "version", "version 1.2 after 1.1"),
        ]});

        assert_eq!(version_changes(&incident, "shop/frontend"), ["version 1.1 after 1", "version 1.2 after 1.1"]);
    }
}
