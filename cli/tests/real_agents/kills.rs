//! Fifty processes that are killed: services, the host agent and both NIC agents, at each moment of a service's life,
//! in an order drawn from a seed. After each kill, every service is judged again with what was learnt, and nothing is
//! left behind.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};
use wire::proto::operators::operators_client::OperatorsClient;
use wire::proto::operators::{
    DrainWorkerRequest, ListRequest, LmapInfo, LmapStatus, RegisterHookRequest, StatusRequest, UndrainWorkerRequest,
};

use crate::operator_calls::{RunningService, is_armed};
use crate::{ANY, Agent, addresses, eventually};

const SEED: u64 = 17;
const KILLS: usize = 50;
/// Services that run all the time.
const SERVICES: [&str; 4] = ["cart", "store", "payment", "mail"];
/// One that comes and goes, so that there is a moment to kill something at.
const GUEST: &str = "guest";
/// Two NIC agents: one runs all LMAPs, the other one is drained until they are handed over to it. Not 0, so that an
/// LMAP without a worker is told from one that has one.
const WORKERS: [u32; 2] = [1, 2];
const INTERVAL: Duration = Duration::from_millis(50);
/// Rows that are not judged after a start with a model. A detector that learns anew needs more.
const SETTLE_ROWS: u32 = 20;
/// Within this time every service is judged again. An idle machine takes about a second: less than the 120 rows (6 s)
/// that a detector without a model needs. CI runs other tests meanwhile.
const LIMIT: Duration = Duration::from_secs(20);
/// Half of the kills cost less than this: learnt anew, each would cost more.
const MEDIAN: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Process {
    Service,
    HostAgent,
    /// The one that runs LMAPs.
    NicAgent,
    /// The one to which they are handed over.
    NextNicAgent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// The guest has just been accepted.
    Registration,
    /// A worker has just been given the guest's LMAP.
    Placement,
    /// Any part of an interval.
    Reading,
    /// A verdict has just arrived.
    Verdict,
    /// The guest has just ended, and what it held is being released.
    Release,
    /// A NIC agent was ordered to hand over its LMAPs, and has not handed over all of them.
    HandingOver,
}

const PROCESSES: [Process; 3] = [Process::Service, Process::HostAgent, Process::NicAgent];
const MOMENTS: [Moment; 6] =
    [Moment::Registration, Moment::Placement, Moment::Reading, Moment::Verdict, Moment::Release, Moment::HandingOver];

/// A service in a process of its own, killed when it is dropped.
struct ServiceProcess(Child);

impl ServiceProcess {
    fn start(name: &str, socket: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "kills::a_service_of_its_own", "--ignored", "--nocapture"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "{name} {}", socket.display()).unwrap();
        Self(child)
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "the other test runs it as a process"]
fn a_service_of_its_own() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let Some((name, socket)) = line.trim_end().split_once(' ') else { return };
    let _service = RunningService::start(name, Path::new(socket));
    // Until the other test ends or is killed.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// When rows of each service were last judged: by the rows' own times, and when that arrived here.
type LatestVerdicts = BTreeMap<String, (u64, Instant)>;

/// A viewer of the operators' API that outlives host agents.
struct Viewer {
    runtime: Runtime,
    channel: Channel,
    judged: Arc<Mutex<LatestVerdicts>>,
}

impl Viewer {
    fn new(address: &str) -> Self {
        let runtime = Runtime::new().unwrap();
        let endpoint = Endpoint::from_shared(address.to_owned()).unwrap();
        let channel = runtime.block_on(async { endpoint.connect_lazy() });
        let judged = Arc::new(Mutex::new(LatestVerdicts::new()));
        runtime.spawn(follow(channel.clone(), Arc::clone(&judged)));
        Self { runtime, channel, judged }
    }

    fn judged(&self) -> MutexGuard<'_, LatestVerdicts> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lmaps(&self) -> Vec<LmapInfo> {
        let mut client = OperatorsClient::new(self.channel.clone());
        let list = self.runtime.block_on(client.list(ListRequest {}));
        list.map(|list| list.into_inner().lmaps).unwrap_or_default()
    }

    fn lmap(&self, service: &str) -> Option<LmapInfo> {
        self.lmaps().into_iter().find(|lmap| lmap.service == service)
    }

    /// The LMAPs on a worker, of services that run all the time.
    fn lmaps_on(&self, worker: u32) -> usize {
        let is_its = |lmap: &&LmapInfo| lmap.worker == worker && SERVICES.contains(&lmap.service.as_str());
        self.lmaps().iter().filter(is_its).count()
    }

    /// The LMAPs of services that run all the time and for which `fits` is true.
    fn which(&self, fits: impl Fn(&LmapStatus) -> bool) -> Vec<LmapStatus> {
        let mut client = OperatorsClient::new(self.channel.clone());
        let status = self.runtime.block_on(client.status(StatusRequest {}));
        let lmaps = status.map(|status| status.into_inner().lmaps).unwrap_or_default();
        let of = lmaps.into_iter().filter(|lmap| SERVICES.contains(&lmap.service.as_str()));
        of.filter(fits).collect()
    }

    /// Orders that the LMAPs of one worker go to the other one, as `uview undrain` and `uview drain` do. Returns
    /// whether the host agent takes the order: both workers have to be connected.
    fn hand_over(&self, from: u32, to: u32) -> bool {
        let mut client = OperatorsClient::new(self.channel.clone());
        let undrained = self.runtime.block_on(client.undrain_worker(UndrainWorkerRequest { worker: to }));
        let drained = client.drain_worker(DrainWorkerRequest { worker: from, force: false });
        undrained.is_ok() && self.runtime.block_on(drained).is_ok()
    }

    /// Waits until rows that are younger than `since` (nanoseconds since 1970) of all services that run all the time
    /// were judged. Returns when the last of them was.
    fn all_judged_since(&self, since: u64) -> Instant {
        let begin = now();
        loop {
            {
                let judged = self.judged();
                let of = SERVICES.map(|service| judged.get(service).filter(|(at, _)| *at > since).map(|(_, on)| *on));
                if let Some(all) = of.into_iter().collect::<Option<Vec<_>>>() {
                    return all.into_iter().max().unwrap();
                }
            }
            assert!(begin.elapsed() < LIMIT, "not judged again within {LIMIT:?}: {:?}", self.judged());
            let anew = self.which(|lmap| !is_armed(lmap) && lmap.rows_needed > SETTLE_ROWS);
            assert!(anew.is_empty(), "what was learnt is lost: {anew:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Records verdicts of all services; goes on with the next run of the host agent.
async fn follow(channel: Channel, judged: Arc<Mutex<LatestVerdicts>>) {
    loop {
        let request =
            RegisterHookRequest { lmaps: Vec::new(), min_share: 0.0, queue: 0, ..RegisterHookRequest::default() };
        if let Ok(stream) = OperatorsClient::new(channel.clone()).register_hook(request).await {
            let mut stream = stream.into_inner();
            while let Ok(Some(event)) = stream.message().await {
                if matches!(event.state.as_str(), "armed" | "drifted") {
                    let mut judged = judged.lock().unwrap_or_else(PoisonError::into_inner);
                    judged.insert(event.service, (event.at_unix_ns, now()));
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What must not grow: descriptors of the agents, and files in the runtime directory.
#[derive(Debug, PartialEq, Eq)]
struct Resources {
    host: usize,
    nics: [usize; 2],
    files: Vec<String>,
}

/// A node with its agents and its services, each a process of its own.
struct Node {
    directory: tempfile::TempDir,
    host: Option<Agent>,
    nics: BTreeMap<u32, Agent>,
    /// The one that runs the LMAPs.
    worker: u32,
    services: BTreeMap<&'static str, ServiceProcess>,
    viewer: Viewer,
}

impl Node {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        let text = format!(
            "runtime_dir: {}\nlmap: {{interval_ms: {}, models_every_s: 1, models_dir: {}}}\ncontrol: {{min_verdict_share: 0.0}}\n\
             process_metrics: {{enabled: false}}\nmetrics: {ANY}\n",
            run.display(),
            INTERVAL.as_millis(),
            directory.path().join("models").display()
        );
        std::fs::write(directory.path().join("host.yaml"), text).unwrap();
        let host = Agent::start("host-agent", &directory.path().join("host.yaml"));
        let ready = addresses(&run);
        let (control, regions) = (ready["control"].as_str().unwrap(), ready["regions"].as_str().unwrap());
        let text = format!("control: {{address: '{control}'}}\nregions_socket: {regions}\nmetrics: {ANY}\n");
        let viewer = Viewer::new(ready["operators"].as_str().unwrap());
        let (nics, services) = (BTreeMap::new(), BTreeMap::new());
        let mut node = Self { directory, host: Some(host), nics, worker: WORKERS[0], services, viewer };
        for worker in WORKERS {
            std::fs::write(node.nic_config(worker), format!("worker: {worker}\n{text}")).unwrap();
            node.start_nic_agent(worker);
        }
        eventually("the second NIC agent is drained", || node.viewer.hand_over(WORKERS[1], WORKERS[0]).then_some(()));
        for service in SERVICES {
            node.start_service(service);
        }
        node
    }

    fn nic_config(&self, worker: u32) -> PathBuf {
        self.directory.path().join(format!("nic-{worker}.yaml"))
    }

    /// Starts a NIC agent, and kills the run before it.
    fn start_nic_agent(&mut self, worker: u32) {
        drop(self.nics.remove(&worker));
        self.nics.insert(worker, Agent::start("nic-agent", &self.nic_config(worker)));
    }

    /// The worker to which LMAPs are handed over next.
    fn next_worker(&self) -> u32 {
        WORKERS.into_iter().find(|worker| *worker != self.worker).unwrap()
    }

    /// Waits until a worker has all LMAPs. The order is given again: a host agent that is killed within a second of it
    /// may not have stored it, and an LMAP whose service starts waits 10 s without a new one.
    fn gather(&mut self, worker: u32) {
        let other = WORKERS.into_iter().find(|other| *other != worker).unwrap();
        eventually("all LMAPs are handed over", || {
            let is_taken = self.viewer.hand_over(other, worker);
            (is_taken && self.viewer.lmaps_on(worker) == SERVICES.len()).then_some(())
        });
        self.worker = worker;
    }

    fn run(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    fn start_service(&mut self, name: &'static str) {
        let process = ServiceProcess::start(name, &self.run().join("services.sock"));
        self.services.insert(name, process);
    }

    /// Waits for the moment. Ends a guest of before, and starts one where the moment needs it.
    fn wait_for(&mut self, moment: Moment, random: &mut ChaCha8Rng) {
        let has_replica = |lmap: &LmapInfo| !lmap.replicas.is_empty();
        match moment {
            Moment::Registration => {
                self.start_service(GUEST);
                eventually("the guest has registered", || self.viewer.lmap(GUEST).filter(has_replica));
            }
            Moment::Placement => {
                self.start_service(GUEST);
                let is_placed = |lmap: &LmapInfo| has_replica(lmap) && WORKERS.contains(&lmap.worker);
                eventually("the guest's LMAP is placed", || self.viewer.lmap(GUEST).filter(is_placed));
            }
            Moment::Reading => std::thread::sleep(INTERVAL.mul_f64(random.random_range(0.0..1.0))),
            Moment::Verdict => _ = self.viewer.all_judged_since(unix_now()),
            Moment::Release => {
                self.start_service(GUEST);
                eventually("the guest has registered", || self.viewer.lmap(GUEST).filter(has_replica));
                drop(self.services.remove(GUEST));
            }
            Moment::HandingOver => eventually("LMAPs are on their way to the other NIC agent", || {
                let can_move = self.viewer.which(|lmap| is_armed(lmap) && !lmap.alarm).len() == SERVICES.len();
                if !can_move || !self.viewer.hand_over(self.worker, self.next_worker()) {
                    return None;
                }
                std::thread::sleep(INTERVAL.mul_f64(random.random_range(0.0..2.0)));
                if self.viewer.lmaps_on(self.worker) == 0 {
                    // Too late: all have moved. Back, then.
                    self.gather(self.next_worker());
                    return None;
                }
                Some(())
            }),
        }
    }

    /// Kills a process and starts it again at once; a service that has just come, or one that is drawn. Returns from
    /// when on rows count.
    fn kill(&mut self, process: Process, random: &mut ChaCha8Rng) -> u64 {
        let at = unix_now();
        match process {
            Process::Service => {
                let drawn = SERVICES[random.random_range(0..SERVICES.len())];
                let name = if self.services.contains_key(GUEST) { GUEST } else { drawn };
                drop(self.services.remove(name));
                self.start_service(name);
                // Rows of its former process, whose memory is still there, do not count.
                let pid = self.services[name].0.id();
                let is_new = |lmap: &LmapInfo| lmap.replicas.iter().any(|replica| replica.pid == pid);
                eventually("it has registered again", || self.viewer.lmap(name).filter(is_new));
                return unix_now();
            }
            Process::HostAgent => {
                drop(self.host.take());
                self.host = Some(Agent::start("host-agent", &self.directory.path().join("host.yaml")));
            }
            Process::NicAgent => self.start_nic_agent(self.worker),
            Process::NextNicAgent => self.start_nic_agent(self.next_worker()),
        }
        at
    }

    fn held(&self) -> Resources {
        let descriptors = |agent: &Agent| std::fs::read_dir(format!("/proc/{}/fd", agent.0.id())).unwrap().count();
        let files = std::fs::read_dir(self.run()).unwrap();
        let mut files: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        files.sort();
        let nics = WORKERS.map(|worker| descriptors(&self.nics[&worker]));
        Resources { host: descriptors(self.host.as_ref().unwrap()), nics, files }
    }

    /// What is held once it has not changed for a second.
    fn settled(&self) -> Resources {
        let mut before = self.held();
        let mut since = now();
        eventually("what the agents hold is steady", || {
            let held = self.held();
            if held != before {
                (before, since) = (held, now());
            }
            (since.elapsed() > Duration::from_secs(1)).then_some(())
        });
        before
    }
}

#[expect(clippy::disallowed_methods, reason = "how long something takes is measured here")]
fn now() -> Instant {
    Instant::now()
}

/// Nanoseconds since 1970, as rows have them.
#[expect(clippy::disallowed_methods, reason = "rows have the time of the system's clock")]
fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// Each process at each moment twice, some of them, drawn from the seed, a third time, in an order drawn from it, too.
fn order(random: &mut ChaCha8Rng) -> Vec<(Process, Moment)> {
    let all = PROCESSES.into_iter().flat_map(|process| MOMENTS.map(|moment| (process, moment)));
    let mut all: Vec<_> = all.chain([(Process::NextNicAgent, Moment::HandingOver)]).collect();
    all.shuffle(random);
    let mut order: Vec<_> = all.iter().copied().cycle().take(KILLS).collect();
    order.shuffle(random);
    order
}

/// Seconds without a verdict by process: number, median and maximum.
fn table(gaps: &BTreeMap<Process, Vec<Duration>>) -> String {
    let mut text = "| process | kills | median s | max s |\n| --- | --- | --- | --- |\n".to_owned();
    for (process, gaps) in gaps {
        let mut sorted = gaps.clone();
        sorted.sort_unstable();
        let (median, max) = (sorted[sorted.len() / 2].as_secs_f64(), sorted[sorted.len() - 1].as_secs_f64());
        writeln!(text, "| {process:?} | {} | {median:.2} | {max:.2} |", sorted.len()).unwrap();
    }
    text
}

#[test]
fn after_each_of_fifty_kills_every_service_is_judged_again_and_nothing_is_left_behind() {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut node = Node::start();
    for service in SERVICES {
        let is_judged = |lmap: &LmapStatus| lmap.service == service && is_armed(lmap);
        eventually("every service is judged", || (node.viewer.which(is_judged).len() == 1).then_some(()));
    }
    node.viewer.all_judged_since(unix_now());
    // Both have run LMAPs then.
    node.gather(WORKERS[1]);
    node.gather(WORKERS[0]);
    let before = node.settled();

    let mut gaps: BTreeMap<Process, Vec<Duration>> = BTreeMap::new();
    for (process, moment) in order(&mut random) {
        node.wait_for(moment, &mut random);
        let killed = now();
        let at = node.kill(process, &mut random);
        let judged = node.viewer.all_judged_since(at);
        let gap = judged.saturating_duration_since(killed);
        println!("{process:?} at {moment:?}: {:.2} s", gap.as_secs_f64());
        gaps.entry(if process == Process::NextNicAgent { Process::NicAgent } else { process }).or_default().push(gap);
        drop(node.services.remove(GUEST));
        node.gather(if moment == Moment::HandingOver { node.next_worker() } else { node.worker });
    }
    node.gather(WORKERS[0]);

    println!("{}", table(&gaps));
    for (process, gaps) in &gaps {
        let short = gaps.iter().filter(|gap| **gap < MEDIAN).count();
        assert!(2 * short > gaps.len(), "{process:?}: {gaps:?}");
    }
    assert_eq!(gaps.values().map(Vec::len).sum::<usize>(), KILLS);
    eventually("the guest is gone", || {
        let lmap = node.viewer.lmap(GUEST);
        lmap.is_none_or(|lmap| lmap.replicas.is_empty()).then_some(())
    });
    println!("held before {before:?}, after {:?}", node.settled());
    // The viewer's connection and its hook are those of before; connections that end are closed a little later.
    eventually("nothing is left behind", || {
        let after = node.held();
        let nics = after.nics.iter().zip(&before.nics).all(|(after, before)| after <= before);
        (after.host <= before.host && nics && after.files == before.files).then_some(())
    });
}
