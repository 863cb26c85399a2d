//! Each process killed at each step of a service's life, exactly there, in virtual time: every other service goes on
//! being judged, with what was learnt, and nothing is left behind. Once with workers that read shared memory, once with
//! workers that read by RDMA, whose READs take until the next step.

use nic_agent::Fetching;

use super::quiet::{HANDED_OVER, WITHIN};
use super::*;

/// A gap between verdicts that nobody minds: two intervals, or a second.
const GAP: Nanos = Nanos::from_secs(1);
/// The service whose life it is.
const GUEST: usize = 3;
const SEEDS: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    Service,
    HostAgent,
    /// The one with the guest's LMAP.
    NicAgent,
    /// The one to which it is handed over. Where nothing is handed over it is the other one.
    NextNicAgent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The host agent knows the guest, and its LMAP has no worker.
    Registration,
    /// A worker has been sent the guest's LMAP.
    Placement,
    /// Its rows are read, and it is not judged yet.
    Reading,
    /// It is being judged, and RDMA READs of its regions are in flight. Not with shared memory.
    InFlight,
    /// It has just been judged for the first time.
    Verdict,
    /// It has retired a metric, and the slots wait until no worker reads them any more.
    Release,
    /// The worker with its LMAP leaves, and has handed over models.
    HandingOver,
    /// The same of a worker that an operator drains.
    Draining,
}

const PROCESSES: [Process; 4] = [Process::Service, Process::HostAgent, Process::NicAgent, Process::NextNicAgent];
const STEPS: [Step; 8] = [
    Step::Registration,
    Step::Placement,
    Step::Reading,
    Step::InFlight,
    Step::Verdict,
    Step::Release,
    Step::HandingOver,
    Step::Draining,
];

/// Cells with a longer gap of the guest, each with its bound and its reason. At most five; docs/upgrade.md would list
/// them, too. There are none.
const EXCEPTIONS: [(Process, Step, Nanos, &str); 0] = [];

impl World {
    /// Whether the guest is registered, and the worker with its LMAP.
    fn guest(&self) -> (bool, Option<usize>) {
        let lmaps = self.host.control.list().lmaps;
        let lmap = lmaps.into_iter().find(|lmap| lmap.service == name(GUEST as u64).as_str());
        let Some(lmap) = lmap.filter(|lmap| !lmap.replicas.is_empty()) else { return (false, None) };
        (true, Some(lmap.worker as usize).filter(|worker| *worker < self.workers.len()))
    }

    /// Runs until the guest is exactly at `step`.
    fn reach(&mut self, step: Step) {
        let (begin, limit) = (self.now, self.now.plus(WITHIN));
        let registered = self.fabric.registrations();
        let is_remote = registered > 0;
        self.start_service(GUEST);
        let is_placed = |world: &Self| world.guest().1.is_some();
        let is_judged = move |world: &Self| world.is_judged(GUEST, begin);
        match step {
            Step::Registration => {
                self.until("registered", limit, |world| world.guest().0);
                assert_eq!(self.guest().1, None, "it is placed already");
            }
            Step::Placement => {
                self.until("placed", limit, is_placed);
                assert_eq!(self.host.control.list().lmaps.len(), GUEST + 1);
                assert!(!is_remote || self.fabric.registrations() > registered, "its region is registered");
            }
            Step::Reading => {
                self.until("read", limit, |world| world.rows.contains(&name(GUEST as u64)));
                assert!(!is_judged(self), "it is judged already");
            }
            Step::InFlight => {
                self.until("judged", limit, is_judged);
                self.for_a_while(HANDED_OVER);
                let worker = self.guest().1.expect("a worker judges it");
                self.until("in flight", limit, |world| world.workers[worker].node.is_reading());
            }
            Step::Verdict => self.until("judged", limit, is_judged),
            Step::Release => {
                self.until("judged", limit, is_judged);
                self.for_a_while(HANDED_OVER);
                self.services[GUEST].service.as_mut().expect("it runs").retire(0);
                self.until("retired", limit, |world| world.host.control.pending_releases() > 0);
            }
            Step::HandingOver | Step::Draining => {
                self.until("judged", limit, is_judged);
                self.for_a_while(HANDED_OVER);
                let worker = self.guest().1.expect("a worker judges it");
                let taken = self.host.control.counters().taken_models;
                if step == Step::Draining {
                    let lmaps = self.host.control.drain_worker(self.now, WorkerId(worker as u32), false, "a test");
                    assert!(lmaps.is_ok(), "the other one takes its LMAPs: {lmaps:?}");
                } else {
                    self.workers[worker].leaves = self.workers[worker].node.worker.leave();
                    assert!(self.workers[worker].leaves, "the host agent takes its models");
                }
                self.until("handed over", limit, |world| world.host.control.counters().taken_models > taken);
                assert_eq!(self.guest().1, Some(worker), "it has moved already");
            }
        }
    }

    fn kill(&mut self, process: Process) {
        match process {
            Process::Service => {
                self.services[GUEST].service = None;
                self.break_service(GUEST);
                self.start_service(GUEST);
            }
            Process::HostAgent => self.restart_host(),
            Process::NicAgent => self.restart_worker(self.guest().1.unwrap_or(0)),
            Process::NextNicAgent => self.restart_worker(1 - self.guest().1.unwrap_or(0)),
        }
    }
}

/// The longest gap of the services that run all the time, and of the guest if it was judged and survives.
fn play(fetching: Fetching, process: Process, step: Step, seed: u64) -> (Nanos, Nanos) {
    let mut world = World::quiet(fetching, seed, GUEST);
    assert_eq!(world.fabric.registrations() > 0, fetching == Fetching::Verbs, "regions are registered for RDMA");
    world.reach(step);
    let killed = world.now;
    world.kill(process);
    world.for_a_while(Nanos::from_secs(8));
    assert!(world.is_judged(GUEST, killed), "{process:?} at {step:?}, seed {seed}: the guest is never judged");
    let others = (0..GUEST).map(|at| world.gap(at, killed)).max().unwrap_or(Nanos::NEVER);
    let was_judged = !matches!(step, Step::Registration | Step::Placement | Step::Reading);
    let survives = was_judged && process != Process::Service;
    let guest = if survives { world.gap(GUEST, killed) } else { Nanos::ZERO };
    // Ends all services, waits until everything is freed, and checks all ledgers.
    world.run(Nanos::ZERO);
    (others, guest)
}

fn check(fetching: Fetching) {
    assert!(EXCEPTIONS.len() <= 5);
    let mut over = Vec::new();
    println!("{fetching:?}\n\n| process | step | longest gap of others | of the guest |\n| --- | --- | --- | --- |");
    for process in PROCESSES {
        for step in STEPS.into_iter().filter(|step| fetching == Fetching::Verbs || *step != Step::InFlight) {
            let (others, guest) = (0..SEEDS)
                .map(|seed| play(fetching, process, step, seed))
                .fold((Nanos::ZERO, Nanos::ZERO), |(others, guest), gap| (others.max(gap.0), guest.max(gap.1)));
            println!("| {process:?} | {step:?} | {others} | {guest} |");
            let exception = EXCEPTIONS.iter().find(|(of, at, ..)| (*of, *at) == (process, step));
            let (bound, why) = exception.map_or((GAP, "none"), |(_, _, bound, why)| (*bound, *why));
            if others > GAP || guest > bound {
                over.push(format!("{process:?} at {step:?}: {others}, {guest}; more than {bound} (exception: {why})"));
            }
        }
    }
    assert!(over.is_empty(), "gaps that are too long: {over:#?}");
}

#[test]
fn each_process_killed_at_each_step_costs_the_other_services_no_verdict_for_long() {
    check(Fetching::Memory);
}

#[test]
fn nor_does_it_where_workers_read_by_rdma() {
    check(Fetching::Verbs);
}
