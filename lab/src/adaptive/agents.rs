//! A worker of the NIC agent in virtual time, and what it says about one service.

use anyhow::{Context as _, Result};
use nic_agent::{Effect, Step, Worker, WorkerSettings};
use transport::{Access, LocalReader, RegionReader as _};
use wire::control::{Episode, LmapSpec, Verdict};
use wire::proto::control::host_message::Message;
use wire::proto::control::{self as proto, HostMessage, worker_message};
use wire::time::{Nanos, UnixNanos};

use super::service::Service;

/// A worker, and when its alarms began and ended.
pub struct Agent {
    worker: Worker,
    reader: LocalReader,
    /// Begin of each alarm, and its end if it has ended.
    pub alarms: Vec<(Nanos, Option<Nanos>)>,
}

impl Agent {
    /// A worker that watches `service` as `spec` says.
    ///
    /// # Errors
    ///
    /// The worker refuses the configuration.
    pub fn new(seed: u64, service: &Service, spec: &LmapSpec) -> Result<Self> {
        let mut agent = Self {
            worker: Worker::new(WorkerSettings::default(), seed),
            reader: LocalReader::new(),
            alarms: Vec::new(),
        };
        agent.worker.connected(Nanos::ZERO);
        let welcome =
            proto::HostWelcome { host_incarnation: 1, lowest_share: 0.5, lease_ms: 60_000, ..Default::default() };
        for (epoch, message) in [(0, Message::Welcome(welcome)), (1, Message::SetLmap(spec.into()))] {
            agent.worker.on_host(Nanos::ZERO, HostMessage { epoch, message: Some(message) })?;
        }
        for effect in agent.worker.take_effects() {
            if let Effect::Attach(request) = effect {
                agent.reader.attach(request.region, request.size, Access::Memory(service.region.clone()))?;
                agent.worker.attached(Nanos::ZERO, request.region, Ok(()));
            }
        }
        Ok(agent)
    }

    /// Does what is due at `now`.
    ///
    /// # Errors
    ///
    /// A verdict is not valid.
    pub fn step(&mut self, now: Nanos) -> Result<()> {
        while self.worker.poll(now) == Step::Fetch {
            let fetched = self.reader.fetch(self.worker.batch());
            self.worker.fetched(now, UnixNanos(now.0), &fetched);
        }
        while let Some((id, job)) = self.worker.take_job() {
            self.worker.job_done(id, job.run());
        }
        let messages: Vec<_> = self.worker.outbox().filter_map(|message| message.message).collect();
        for message in messages {
            let worker_message::Message::Verdicts(verdicts) = message else { continue };
            for verdict in &verdicts.verdicts {
                let verdict = Verdict::decode(verdict).context("a verdict is not valid")?;
                match verdict.episode {
                    Episode::Began => {
                        // One that is on ends where another begins.
                        if let Some((_, end)) = self.alarms.last_mut() {
                            end.get_or_insert(now);
                        }
                        self.alarms.push((now, None));
                    }
                    Episode::Ended => {
                        if let Some((_, end)) = self.alarms.last_mut() {
                            *end = Some(now);
                        }
                    }
                    Episode::Quiet | Episode::On => {}
                }
            }
        }
        Ok(())
    }

    /// READs of regions so far, and those of them between rows.
    pub fn reads(&self) -> (u64, u64) {
        let status = self.worker.status();
        (status.counters.fetched_regions, status.extra_regions)
    }

    /// Whether the LMAP is armed.
    pub fn is_armed(&self) -> bool {
        self.worker.status().lmaps[1] == 1
    }
}
