//! Lists of the configuration whose members come and go while the agent runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use sources::cgroup::hierarchies::hierarchies;
use support::harness::not_run;
use wire::proto::control::Episode;
use wire::proto::operators::{ListRequest, SourceTarget, SourcesRequest};

use crate::agent::{Agent, WAIT};
use crate::live_headers::ShownHeaders;
use crate::reload::{rejected, replace};
use crate::scraped_targets::{metric, page, serve};
use crate::service::Service;
use crate::webhooks::{ReceivedAlarms, is, receiver};
use crate::worker::Worker;

/// What every configuration here has.
const COMMON: &str = "process_metrics: {enabled: false}\n";

/// A target with a counter that grows with each scrape.
fn growing() -> SocketAddr {
    let scrapes = AtomicU64::new(0);
    serve(None, move |stream| {
        let scrapes = scrapes.fetch_add(1, Ordering::Relaxed);
        stream.write_all(page(&format!("requests_total {}\n", scrapes * 7)).as_bytes())
    })
}

/// A configuration with these targets: service, address, and what else is said of it.
fn scraping(targets: &[(&str, SocketAddr, &str)]) -> String {
    let of = |(service, address, more): &(&str, SocketAddr, &str)| {
        let how = "interval_ms: 100, learn_scrapes: 10, timeout_ms: 30000";
        format!("{{service: {service}, url: 'http://{address}/metrics', {how}{more}}}")
    };
    let targets = targets.iter().map(of).collect::<Vec<_>>().join(", ");
    format!("{COMMON}sources: {{prometheus: {{targets: [{targets}]}}}}\n")
}

fn sources(agent: &Agent) -> BTreeMap<String, SourceTarget> {
    let mut operators = agent.operators();
    let reply = operators.runtime.block_on(operators.client.sources(SourcesRequest::default())).unwrap();
    reply.into_inner().targets.into_iter().map(|target| (target.service.clone(), target)).collect()
}

fn names(sources: &BTreeMap<String, SourceTarget>) -> Vec<&str> {
    sources.keys().map(String::as_str).collect()
}

/// Services that have an LMAP.
fn services(agent: &Agent) -> BTreeSet<String> {
    let mut operators = agent.operators();
    let reply = operators.runtime.block_on(operators.client.list(ListRequest {})).unwrap().into_inner();
    reply.lmaps.into_iter().map(|lmap| lmap.service).collect()
}

/// How often a target was scraped, once its series are chosen.
fn watched(agent: &Agent, service: &str) -> Option<u64> {
    sources(agent).get(service).filter(|target| target.state == "watching").map(|target| target.scrapes)
}

#[test]
fn targets_come_and_go_with_the_file_and_those_that_stay_keep_what_they_have_learnt() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.yaml");
    let [stays, goes, comes] = [(); 3].map(|()| growing());
    let write = |targets: &[(&str, SocketAddr, &str)]| replace(&file, &scraping(targets));
    write(&[("stays", stays, ""), ("goes", goes, "")]);
    let agent = Agent::of_file(tempfile::tempdir().unwrap(), &file);
    let is_in = |service: &str| services(&agent).contains(service);
    WAIT.until("both are watched", || is_in("stays") && is_in("goes"));
    let before = WAIT.until("its series", || watched(&agent, "stays"));
    let all = metric(&agent, "uview_host_scrapes_total");

    write(&[("stays", stays, ""), ("comes", comes, "")]);
    WAIT.until("the other target", || is_in("comes") && !is_in("goes"));

    assert_eq!(names(&sources(&agent)), ["comes", "stays"]);
    assert!(watched(&agent, "stays").is_some_and(|scrapes| scrapes >= before), "it does not begin anew");
    assert!(metric(&agent, "uview_host_scrapes_total") > all, "sums never fall");
    assert_eq!(metric(&agent, "uview_host_targets"), 2);

    // Two of one name: nothing of the file is taken, not even the end of the other target.
    write(&[("stays", stays, ""), ("stays", stays, ", labels: {a: b}")]);
    WAIT.until("the problem", || rejected(&agent));
    assert_eq!(names(&sources(&agent)), ["comes", "stays"]);
    let problems = agent.status().problems;
    assert!(problems.iter().any(|line| line.contains("is there twice")), "{problems:?}");

    let before = watched(&agent, "stays").unwrap();
    write(&[("stays", stays, ", labels: {a: b}")]);
    WAIT.until("another one begins", || sources(&agent).get("stays").is_some_and(|target| target.scrapes < before));
    WAIT.until("it is watched", || watched(&agent, "stays"));
    write(&[]);
    WAIT.until("nothing is left", || sources(&agent).is_empty() && services(&agent).is_empty());
    assert!(!rejected(&agent));
}

#[test]
fn a_target_is_shown_a_renewed_key_and_does_not_begin_anew() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    replace(&key, "one\n");
    let (address, shown) = ShownHeaders::receiver();
    let more = format!(", header_files: {{authorization: '{}'}}", key.display());
    let agent = Agent::with(&scraping(&[("shop", address, &more)]));
    let before = WAIT.until("it is watched", || watched(&agent, "shop"));
    assert_eq!(shown.paths("one").len(), 1);

    replace(&key, "two\n");
    WAIT.until("the new key", || !shown.paths("two").is_empty());

    assert!(watched(&agent, "shop").is_some_and(|scrapes| scrapes >= before));
    WAIT.until("one change", || metric(&agent, "uview_host_reloads_total") == 1);
}

/// A cgroup in all hierarchies of this system that let this user make one.
struct OwnCgroup {
    name: String,
    folders: Vec<PathBuf>,
}

impl OwnCgroup {
    fn create() -> Option<Self> {
        let name = format!("uview-live-{}", std::process::id());
        let found = hierarchies(&fs::read("/proc/self/mountinfo").unwrap());
        let folders = found.into_iter().map(|found| found.root.join(&name)).filter(|path| fs::create_dir(path).is_ok());
        Some(Self { folders: folders.collect(), name }).filter(|own| !own.folders.is_empty())
    }
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        for folder in &self.folders {
            // Version 1 may have two controllers in one folder.
            _ = fs::remove_dir(folder);
        }
    }
}

#[test]
fn cgroups_are_read_as_soon_as_a_pattern_names_them_and_no_longer() {
    let Some(own) = OwnCgroup::create() else {
        return not_run("patterns of cgroups that come and go: this user may create no cgroup");
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.yaml");
    replace(&file, COMMON);
    let agent = Agent::of_file(tempfile::tempdir().unwrap(), &file);
    let naming = |service: &str| {
        let pattern = format!("{{pattern: '{}', service: '{service}'}}", own.name);
        replace(&file, &format!("{COMMON}sources: {{cgroups: [{pattern}]}}\n"));
    };
    assert!(services(&agent).is_empty());

    naming("shop");
    WAIT.until("it is read", || services(&agent).contains("shop"));
    naming("{2}");
    WAIT.until("the problem", || rejected(&agent));
    assert!(services(&agent).contains("shop"), "a pattern that has no second star changes nothing");
    naming("store");
    WAIT.until("another service", || services(&agent) == ["store".to_owned()].into());
    replace(&file, COMMON);
    WAIT.until("none is read", || services(&agent).is_empty());

    assert!(agent.status().problems.is_empty(), "{:?}", agent.status().problems);
}

/// A configuration with these receivers: name, address, and least time between two messages in milliseconds.
fn alarming(receivers: &[(&str, SocketAddr, u32)]) -> String {
    let of = |(name, address, interval): &(&str, SocketAddr, u32)| {
        let how = format!("timeout_ms: 60000, group_wait_ms: 0, group_interval_ms: {interval}");
        format!("{{name: {name}, url: 'http://{address}/hook', {how}}}")
    };
    format!("{COMMON}webhooks: [{}]\n", receivers.iter().map(of).collect::<Vec<_>>().join(", "))
}

#[test]
fn receivers_come_and_go_and_one_that_stays_is_told_the_end_of_an_alarm_of_before() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.yaml");
    let write = |receivers: &[(&str, SocketAddr, u32)]| replace(&file, &alarming(receivers));
    let [stays, goes, comes] = [(); 3].map(|()| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        (listener.local_addr().unwrap(), receiver(listener))
    });
    write(&[("stays", stays.0, 1), ("goes", goes.0, 1)]);
    let agent = Agent::of_file(tempfile::tempdir().unwrap(), &file);
    let mut worker = Worker::connect(&agent, 0);
    let (_service, _region) = Service::register(&agent, "payment", &["requests"]);
    let (epoch, lmap) = worker.set();
    let say = |episode: Episode, at: u64| worker.verdict_in(episode, &lmap, epoch, 1_700_000_000_000_000_000 + at);
    let told = |receiver: &(SocketAddr, ReceivedAlarms), statuses: &[&str]| is(&receiver.1, "payment", statuses);
    say(Episode::Began, 1);
    WAIT.until("the beginning", || told(&stays, &["firing"]) && told(&goes, &["firing"]));

    write(&[("stays", stays.0, 2), ("comes", comes.0, 1)]);
    WAIT.until("the change", || metric(&agent, "uview_host_reloads_total") == 1);
    // Who is new hears of what goes on.
    say(Episode::On, 2);
    WAIT.until("the alarm", || told(&comes, &["firing"]));
    say(Episode::Ended, 3);
    let ended = ["firing", "resolved"];
    WAIT.until("the end", || told(&stays, &ended) && told(&comes, &ended));
    assert!(told(&goes, &["firing"]), "it is gone");

    write(&[("stays", stays.0, 1), ("stays", comes.0, 1)]);
    WAIT.until("the problem", || rejected(&agent));
    say(Episode::Began, 4);
    let again = ["firing", "resolved", "firing"];
    WAIT.until("the next alarm", || told(&stays, &again) && told(&comes, &again));

    write(&[]);
    WAIT.until("the other change", || metric(&agent, "uview_host_reloads_total") == 2);
    say(Episode::Ended, 5);
    WAIT.until("the verdict", || agent.status().lmaps.iter().all(|lmap| !lmap.alarm));
    assert!(told(&stays, &again) && told(&comes, &again));
    WAIT.until("the hooks of the receipt and of incidents only", || metric(&agent, "uview_host_hooks") == 2);
}
