//! A NIC worker and the edge around it: the reader, attaching regions, running jobs.

use std::collections::BTreeSet;

use nic_agent::{
    AttachRequest, Effect, EffectError, Fetching, QueuePairEffect, Step, UnexpectedMessage, Worker, WorkerSettings,
    WorkerStatus,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use transport::local::{self, LocalReader, Region};
use transport::{Access, RegionReader};
use wire::id::{RegionId, WorkerId};
use wire::proto::control::{HostMessage, WorkerMessage};
use wire::time::{Nanos, UnixNanos};

use crate::fetches::FetchLedger;
use crate::ledger::TickLedger;
use crate::verbs::{self, Fabric};

/// One run of a worker.
#[derive(Debug)]
pub struct Node {
    pub worker: Worker,
    fetching: Fetching,
    reader: LocalReader,
    verbs: verbs::Reader,
    link: local::Link,
    /// Requested regions, and when the reply arrives.
    pending_attaches: Vec<(Nanos, AttachRequest)>,
    jobs: Vec<(Nanos, nic_agent::JobId, lmap::Job)>,
    /// Whether the control connection has to be closed.
    pub disconnect: bool,
    /// The worker's thread does not run before this time.
    pub stalled_until: Nanos,
    attached: BTreeSet<RegionId>,
    ticks: TickLedger,
    fetches: FetchLedger,
    /// Random delays of the regions socket's replies, which race the stream.
    delays: ChaCha8Rng,
    /// Offset of its wall clock; jumps in both directions.
    pub wall_offset: Nanos,
    /// Number of buffers to fill.
    presented: u64,
    /// Number of batches that failed as a whole.
    failed_batches: u64,
    /// Whether the host agent has fenced this worker, which may not know it yet.
    pub is_fenced: bool,
    reads: Reads,
}

/// When RDMA READs complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    AtOnce,
    /// In the step after they were posted. Messages of the host agent come after them.
    Later,
    /// They have been posted.
    InFlight,
}

impl Node {
    /// Worker `number`, which supports `transports` in this order and has a device on `fabric`.
    pub fn new(number: u32, seed: u64, transports: &[&str], fabric: Fabric) -> Self {
        let detector = lmap::Settings {
            warm_up_rows: 20,
            provisional_rows: None,
            fit_again_rows: vec![60],
            ..lmap::Settings::default()
        };
        let settings = WorkerSettings {
            worker: WorkerId(number),
            detector,
            transports: transports.iter().map(ToString::to_string).collect(),
            without_host_agent: Nanos::from_secs(4),
            attach_pause: (Nanos::from_millis(20), Nanos::from_millis(500)),
            ..WorkerSettings::default()
        };
        let reader = LocalReader::new();
        Self {
            worker: Worker::new(settings, seed),
            link: reader.link(),
            reader,
            fetching: Fetching::Memory,
            verbs: verbs::Reader::new(WorkerId(number), fabric),
            pending_attaches: Vec::new(),
            jobs: Vec::new(),
            disconnect: false,
            stalled_until: Nanos::ZERO,
            attached: BTreeSet::new(),
            ticks: TickLedger::default(),
            fetches: FetchLedger::default(),
            delays: ChaCha8Rng::seed_from_u64(seed),
            wall_offset: Nanos::from_secs(7200),
            presented: 0,
            failed_batches: 0,
            is_fenced: false,
            reads: Reads::AtOnce,
        }
    }

    /// From now on RDMA READs complete in the step after they were posted, or at once.
    pub fn delay_reads(&mut self, is_later: bool) {
        self.reads = if is_later { Reads::Later } else { Reads::AtOnce };
    }

    /// Whether READs are in flight.
    pub fn is_reading(&self) -> bool {
        self.reads == Reads::InFlight
    }

    /// Number of attached regions.
    pub fn attached(&self) -> usize {
        self.attached.len()
    }

    /// Checks that every region was fetched, or is counted as failed.
    pub fn check_counters(&self) {
        let counters = self.worker.status().counters;
        assert_eq!(
            counters.fetched_regions + counters.failed_regions,
            self.presented,
            "every sample is fetched or counted: {counters:?}"
        );
        assert_eq!(counters.failed_batches, self.failed_batches, "every failed batch is counted: {counters:?}");
    }

    /// Numbers of compared cells and checked places.
    pub fn compared(&self) -> (u64, u64) {
        (self.fetches.compared, self.fetches.places)
    }

    fn check_books(&mut self, now: Nanos) {
        let status = self.worker.status();
        self.follow(now, &status);
        self.ticks.polled(now);
        self.ticks.check(&status);
        self.fetches.check(status.discarded);
    }

    /// Clears the ledgers if the worker has dropped all LMAPs.
    fn follow(&mut self, now: Nanos, status: &WorkerStatus) {
        if status.lmaps.iter().sum::<usize>() == 0 {
            self.ticks.clear(now);
            self.fetches.clear();
            self.is_fenced = false;
        }
    }

    /// A message of the host agent arrived. The worker must accept it, unless the host agent refuses the worker.
    pub fn on_host_message(&mut self, now: Nanos, message: &HostMessage) {
        let taken = self.worker.on_host(now, message.clone());
        self.follow(now, &self.worker.status());
        if taken.is_ok() {
            self.ticks.on_host_message(now, message);
            self.fetches.on_host_message(message);
        }
        assert!(
            matches!(
                taken,
                Ok(())
                    | Err(UnexpectedMessage::Refused(_)
                        | UnexpectedMessage::TooEarly
                        | UnexpectedMessage::QueuePair(_))
            ),
            "the host agent sent an unexpected message: {taken:?}: {message:?}"
        );
        self.act(now);
    }

    /// One iteration of its thread. `regions` stands for the regions socket. On a quiet node no read fails.
    pub fn step(
        &mut self,
        now: Nanos,
        random: &mut ChaCha8Rng,
        is_quiet: bool,
        regions: &dyn Fn(&AttachRequest) -> Option<Region>,
    ) {
        if now < self.stalled_until {
            return;
        }
        self.answer(now, regions);
        self.finish_jobs(now, random);
        if !is_quiet && random.random_bool(0.001) {
            self.link.cut(1);
            self.verbs.flushed = random.random_range(1..3);
        }
        loop {
            if self.reads == Reads::InFlight {
                self.reads = Reads::Later;
            } else {
                if self.worker.poll(now) != Step::Fetch {
                    break;
                }
                self.act(now);
                if self.reads == Reads::Later && self.fetching == Fetching::Verbs {
                    self.reads = Reads::InFlight;
                    return;
                }
            }
            let outcome = match self.fetching {
                Fetching::Memory => self.reader.fetch(self.worker.batch()),
                Fetching::Verbs => self.verbs.fetch(self.worker.batch()),
            };
            self.presented += self.worker.batch().len() as u64;
            self.failed_batches += u64::from(outcome.is_err());
            let (unix_ns, alone) = (now.plus(self.wall_offset).0, !self.worker.status().welcomed);
            // With RDMA, the host agent has already disconnected a fenced worker's queue pair.
            self.fetches.is_fenced = self.is_fenced && self.fetching == Fetching::Memory;
            self.fetches.fetched(now, unix_ns, self.worker.batch(), alone, &self.ticks.due(now));
            let unexpected = self.worker.fetched(now, UnixNanos(unix_ns), &outcome);
            let is_expected = |unexpected: &UnexpectedMessage| matches!(unexpected, UnexpectedMessage::QueuePair(_));
            assert!(unexpected.iter().all(is_expected), "the host agent sent an unexpected message: {unexpected:?}");
        }
        self.check_books(now);
        self.act(now);
    }

    /// The next message for the host agent.
    pub fn next_message(&mut self) -> Option<WorkerMessage> {
        let message = self.worker.next_message()?;
        self.fetches.sent(&message);
        Some(message)
    }

    fn act(&mut self, now: Nanos) {
        for effect in self.worker.take_effects() {
            match effect {
                Effect::Use(fetching) => self.fetching = fetching,
                Effect::QueuePair(QueuePairEffect::Reset(psn)) => {
                    let own = self.verbs.reset(psn);
                    self.worker.queue_pair_reset(now, Ok(own));
                }
                Effect::QueuePair(QueuePairEffect::Connect(host)) => {
                    let outcome = self.verbs.connect(host);
                    self.worker.queue_pair_connected(now, outcome);
                }
                Effect::Attach(request) if self.fetching == Fetching::Verbs => self.attach_remote(now, &request),
                Effect::Attach(request) => {
                    let longest = if self.delays.random_bool(0.1) { 900 } else { 20 };
                    let late = Nanos::from_millis(self.delays.random_range(0..longest));
                    self.pending_attaches.push((now.plus(late), request));
                }
                Effect::Detach(region) => {
                    self.reader.detach(region);
                    self.verbs.detach(region);
                    self.attached.remove(&region);
                }
                // No interface is simulated.
                Effect::SetStreams(_) => {}
                Effect::Disconnect { .. } => self.disconnect = true,
            }
        }
    }

    fn attach_remote(&mut self, now: Nanos, request: &AttachRequest) {
        let outcome = match request.address {
            0 => Err("it was not registered".into()),
            address => {
                let attached = self.verbs.attach(request.region, request.size, address, request.rkey);
                attached.map_err(|problem| EffectError::of(&problem))
            }
        };
        self.attached.extend(outcome.is_ok().then_some(request.region));
        self.worker.attached(now, request.region, outcome);
    }

    fn answer(&mut self, now: Nanos, regions: &dyn Fn(&AttachRequest) -> Option<Region>) {
        for (_, request) in self.pending_attaches.extract_if(.., |(at, _)| *at <= now) {
            if !self.worker.expects(&request) {
                continue;
            }
            let outcome = match regions(&request) {
                None => Err("no such region".into()),
                Some(region) => {
                    let attached = self.reader.attach(request.region, request.size, Access::Memory(region));
                    attached.map_err(|problem| EffectError::of(&problem))
                }
            };
            self.attached.extend(outcome.is_ok().then_some(request.region));
            self.worker.attached(now, request.region, outcome);
        }
    }

    fn finish_jobs(&mut self, now: Nanos, random: &mut ChaCha8Rng) {
        while let Some((id, job)) = self.worker.take_job() {
            self.jobs.push((now.plus(Nanos::from_millis(random.random_range(1..300))), id, job));
        }
        for (_, id, job) in self.jobs.extract_if(.., |(at, _, _)| *at <= now) {
            self.worker.job_done(id, job.run());
        }
    }
}
