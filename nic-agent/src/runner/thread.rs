//! The worker's thread: waits for the next deadline or event, and carries out what the worker decides.

use std::io;
use std::num::NonZeroU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError};
use std::thread;

use agent_runtime::clock::{Clock, process_cpu, unix_now};
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};
use tokio::sync::oneshot;
use transport::{Access, BatchError};
use wire::proto::control::WorkerMessage;
use wire::proto::control::worker_message::Message;
use wire::time::Nanos;

use super::event::{Connection, Event};
use super::reader::Reader;
use crate::attachments::{AttachRequest, Effect};
use crate::error::{UnexpectedMessage, chain};
use crate::jobs::JobId;
use crate::metrics::Board;
use crate::network::StreamSetter;
use crate::queue_pair::QueuePairEffect;
use crate::settings::Fetching;
use crate::worker::{Step, Worker};

/// Interval between two updates of the status and of the CPU time.
const PUBLISH_INTERVAL: Nanos = Nanos::from_millis(500);
/// Timer slack of the thread. The kernel's default of 50 µs is a twentieth of the shortest interval.
const SLACK_NS: NonZeroU64 = NonZeroU64::new(1000).expect("1000 is not 0");

/// The threads for slow work.
#[derive(Debug)]
pub(super) struct Helpers {
    pub(super) jobs: SyncSender<(JobId, lmap::Job)>,
    pub(super) attach: Sender<AttachRequest>,
    /// Measures streams that the host agent asks for.
    pub(super) streams: StreamSetter,
}

/// The state of the worker's thread.
pub(super) struct Runner {
    worker: Worker,
    reader: Reader,
    helpers: Helpers,
    clock: Clock,
    board: Board,
    connection: Option<Connection>,
    /// A job for which the queue of the jobs' thread was full.
    job: Option<(JobId, lmap::Job)>,
    next_publish: Nanos,
    /// Set when the thread is to end: it goes on until the host agent lets it go, and not longer than this.
    leave_until: Option<Nanos>,
}

/// Time for other workers to take over the LMAPs, before this one ends.
pub(super) const LEAVE_WITHIN: Nanos = Nanos::from_secs(3);

/// A helper thread has ended, which none does before this thread.
struct HelperEnded;

impl Runner {
    pub(super) fn new(worker: Worker, reader: Reader, helpers: Helpers, clock: Clock, board: Board) -> Self {
        Self {
            worker,
            reader,
            helpers,
            clock,
            board,
            connection: None,
            job: None,
            next_publish: Nanos::ZERO,
            leave_until: None,
        }
    }

    /// Starts the thread, on `core` if given. The receiver gets a message when the thread has ended normally, and an
    /// error otherwise.
    ///
    /// # Errors
    ///
    /// The system cannot start a thread.
    pub(super) fn start(self, inbox: Receiver<Event>, core: Option<usize>) -> io::Result<oneshot::Receiver<()>> {
        let (done_sender, ended) = oneshot::channel();
        thread::Builder::new().name("worker".to_owned()).spawn(move || {
            pin(core);
            if let Err(error) = set_current_timer_slack(Some(SLACK_NS)) {
                tracing::warn!(%error, "ticks may be late by 50 µs");
            }
            if self.run(&inbox).is_ok() {
                let _ = done_sender.send(());
            }
        })?;
        Ok(ended)
    }

    fn run(mut self, inbox: &Receiver<Event>) -> Result<(), HelperEnded> {
        loop {
            while let Ok(event) = inbox.try_recv() {
                self.take(event);
            }
            self.act()?;
            let now = self.clock.now();
            if self.leave_until.is_some_and(|until| now >= until || self.worker.has_left()) {
                // Effects that fail do not matter any more.
                _ = self.act();
                self.worker.disconnected(now);
                return Ok(());
            }
            match self.worker.poll(now) {
                Step::Fetch => self.fetch(),
                Step::SleepUntil(deadline) => {
                    // A summary may have been queued just now.
                    self.act()?;
                    let wait = deadline.since(self.clock.now()).unwrap_or(Nanos::ZERO);
                    match inbox.recv_timeout(wait.into()) {
                        Ok(event) => self.take(event),
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => return Ok(()),
                    }
                }
            }
            if now >= self.next_publish {
                self.next_publish = now.plus(PUBLISH_INTERVAL);
                self.worker.set_cpu(process_cpu());
                self.board.publish(self.worker.status());
            }
        }
    }

    fn fetch(&mut self) {
        let at = unix_now();
        let was_connected = self.worker.is_connected();
        let outcome = self.reader.fetch(self.worker.batch());
        if let (Err(BatchError::Lost(Some(why))), true) = (&outcome, was_connected) {
            tracing::warn!(why = chain(why), "the connection to the host's memory is lost: connecting again");
        }
        for refused in self.worker.fetched(self.clock.now(), at, &outcome) {
            report(&refused);
        }
    }

    fn take(&mut self, event: Event) {
        let now = self.clock.now();
        match event {
            Event::Connected(connection) => {
                self.worker.connected(now);
                let hello = WorkerMessage { message: Some(Message::Hello(self.worker.hello())) };
                // The channel is new and has capacity. If its other end is closed already, an event follows.
                let _ = connection.out.try_send(hello);
                self.connection = Some(connection);
            }
            Event::Received(number, message) => {
                if self.is_current(number)
                    && let Err(refused) = self.worker.on_host(now, message)
                {
                    report(&refused);
                }
            }
            Event::Disconnected(number) => {
                if self.is_current(number) {
                    self.connection = None;
                    self.worker.disconnected(now);
                }
            }
            Event::Descriptor(request, outcome) => {
                if self.worker.expects(&request) {
                    let attached = outcome.and_then(|descriptor| {
                        let access = Access::Descriptor(descriptor);
                        self.reader.attach(request.region, request.size, access)
                    });
                    self.worker.attached(now, request.region, attached);
                }
            }
            Event::Done(id, done) => self.worker.job_done(id, done),
            Event::Streams(states) => self.worker.streams_changed(states),
            // The requester may be gone.
            Event::Model(service, answer) => _ = answer.send(self.worker.model(&service)),
            Event::Stop => {
                self.leave_until = Some(if self.worker.leave() { now.plus(LEAVE_WITHIN) } else { now });
            }
        }
    }

    fn is_current(&self, number: u64) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.number == number)
    }

    /// Carries out the worker's effects, and sends its jobs and messages as far as the queues have capacity.
    fn act(&mut self) -> Result<(), HelperEnded> {
        // Carrying out an effect may cause others.
        loop {
            let effects = self.worker.take_effects();
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.apply(effect)?;
            }
        }
        while let Some(job) = self.job.take().or_else(|| self.worker.take_job()) {
            match self.helpers.jobs.try_send(job) {
                Ok(()) => {}
                Err(TrySendError::Full(job)) => {
                    self.job = Some(job);
                    break;
                }
                Err(TrySendError::Disconnected(_)) => return Err(HelperEnded),
            }
        }
        if let Some(connection) = &self.connection {
            while let Ok(permit) = connection.out.try_reserve() {
                let Some(message) = self.worker.next_message() else { break };
                permit.send(message);
            }
        }
        Ok(())
    }
}

impl Runner {
    fn apply(&mut self, effect: Effect) -> Result<(), HelperEnded> {
        match effect {
            Effect::Use(fetching) => {
                let transport = if fetching == Fetching::Verbs { "verbs" } else { "shm" };
                tracing::info!(transport, "the host agent chose how regions are fetched");
                self.reader.choose(fetching);
            }
            Effect::Attach(request) if self.reader.fetching() == Fetching::Verbs => {
                let AttachRequest { region, size, address, rkey, .. } = request;
                let attached = self.reader.attach_remote(region, size, address, rkey);
                self.worker.attached(self.clock.now(), region, attached);
            }
            Effect::Attach(request) => self.helpers.attach.send(request).map_err(|_| HelperEnded)?,
            Effect::SetStreams(streams) => self.helpers.streams.set(streams),
            Effect::Detach(region) => self.reader.detach(region),
            Effect::QueuePair(QueuePairEffect::Reset(psn)) => {
                let outcome = self.reader.reset(psn);
                if let Err(why) = &outcome {
                    tracing::warn!(%why, "the queue pair cannot be reset: trying again");
                }
                self.worker.queue_pair_reset(self.clock.now(), outcome);
            }
            Effect::QueuePair(QueuePairEffect::Connect(host)) => {
                let outcome = self.reader.connect(&host);
                match &outcome {
                    Ok(()) => tracing::info!(%host, "connected to the host's memory"),
                    Err(why) => tracing::warn!(%host, %why, "the queue pair cannot be connected: trying again"),
                }
                self.worker.queue_pair_connected(self.clock.now(), outcome);
            }
            Effect::Disconnect { reason } => {
                if let Some(connection) = self.connection.take() {
                    let _ = connection.close.send(reason);
                    self.worker.disconnected(self.clock.now());
                }
            }
        }
        Ok(())
    }
}

/// Logs a rejected message, which the worker has counted.
fn report(refused: &UnexpectedMessage) {
    tracing::warn!(why = chain(refused), "a message of the host agent was rejected");
}

fn pin(core: Option<usize>) {
    let Some(core) = core else { return };
    let mut cores = CpuSet::new();
    if core < CpuSet::MAX_CPU {
        cores.set(core);
    }
    if let Err(error) = sched_setaffinity(None, &cores) {
        tracing::warn!(core, %error, "the worker's thread runs on any core");
    }
}
