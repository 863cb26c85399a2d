//! A cgroup as a replica of its service, and a container that has ended although its pod wants it to run.

use std::sync::atomic::Ordering;

use region::{CreateError, OwnedRegion};
use sources::cgroup::{Measure, Values};
use wire::layout::RegionSize;
use wire::name::{InstanceName, ServiceName};
use wire::time::Nanos;

use super::series;
use super::{MeasuredCgroup, VanishedError};
use crate::control_plane::ConnectionId;
use crate::node::Node;
use crate::pod_watch::{PodContainer, PodWatch};
use crate::sampling_times;

/// A cgroup, and where its values go.
pub(super) struct Replica {
    /// `None`: the container has ended, and its pod wants it to run.
    pub(super) measured: Option<MeasuredCgroup>,
    /// Whose cgroup it is.
    pub(super) container: Option<PodContainer>,
    pub(super) service: ServiceName,
    /// Whether a pattern gives it its service; otherwise its pod does.
    pub(super) of_pattern: bool,
    pub(super) region: OwnedRegion,
    pub(super) connection: ConnectionId,
    /// Measures that were announced.
    announced: [bool; Measure::ALL.len()],
    sampled: Option<Nanos>,
    /// The time from which its next sample counts.
    pub(super) last: Nanos,
    /// Its CPU time at the last sample.
    cpu: Option<u64>,
    /// Time in which it was stopped, and in which it was down.
    stopped: Nanos,
    down: Nanos,
}

impl Replica {
    /// A replica whose first sample is `values`, of `now`.
    ///
    /// # Errors
    ///
    /// There is no memory for its values.
    pub(super) fn new(
        measured: MeasuredCgroup,
        container: Option<PodContainer>,
        (service, instance): (ServiceName, InstanceName),
        values: &mut Values,
        (node, now): (&Node, Nanos),
    ) -> Result<Self, CreateError> {
        values.set(Measure::Stopped, 0);
        if container.is_some() {
            values.set(Measure::Down, 0);
        }
        let region = OwnedRegion::create("uview-cgroup", RegionSize::ONE_PAGE)?;
        let mut announced = [false; Measure::ALL.len()];
        let first = store(&region, values, &mut announced, now);
        let (placed, pace) = (series::placed(first.into_iter()), (None, Some(sampling_times::fastest())));
        let connection = node.agent_sampler(service.clone(), instance, &region, placed, pace);
        let (sampled, cpu, stopped, down) = Default::default();
        let measured = Some(measured);
        let of_pattern = false;
        Ok(Self {
            measured,
            container,
            service,
            of_pattern,
            region,
            connection,
            announced,
            sampled,
            last: now,
            cpu,
            stopped,
            down,
        })
    }

    /// Reads its values at `now`. `pods` tells whether a container that has ended is to come back.
    ///
    /// # Errors
    ///
    /// [`VanishedError`] once its cgroup has, and its container is not to come back.
    pub(super) fn sample(
        &mut self,
        now: Nanos,
        (node, pods): (&Node, Option<&PodWatch>),
        buffer: &mut [u8],
        values: &mut Values,
    ) -> Result<(), VanishedError> {
        let elapsed = self.sampled.replace(now).and_then(|last| now.since(last)).unwrap_or(Nanos::ZERO);
        let read = self.measured.as_mut().map_or(Err(VanishedError), |measured| measured.read(buffer, values));
        match read {
            Ok(()) => self.count_stopped(elapsed, buffer, values),
            Err(VanishedError) if self.is_awaited(pods) => {
                // Its files are of no use any more.
                self.measured = None;
                self.down = self.down.plus(elapsed);
                self.take_nothing(values);
            }
            Err(vanished) => return Err(vanished),
        }
        values.set(Measure::Stopped, self.stopped.0);
        if self.container.is_some() {
            values.set(Measure::Down, self.down.0);
        }
        let new = store(&self.region, values, &mut self.announced, now);
        if !new.is_empty() {
            node.agent_series(self.connection, series::placed(new.into_iter()));
        }
        Ok(())
    }

    /// Only what uses no CPU time can be stopped, and is looked at.
    fn count_stopped(&mut self, elapsed: Nanos, buffer: &mut [u8], values: &Values) {
        let cpu = values.get(Measure::CpuUser).zip(values.get(Measure::CpuSystem));
        let cpu = cpu.map(|(user, system)| user.saturating_add(system));
        let has_run = cpu.is_none() || cpu != self.cpu;
        self.cpu = cpu;
        if !has_run && self.measured.as_ref().is_some_and(|measured| measured.is_stopped(buffer)) {
            self.stopped = self.stopped.plus(elapsed);
        }
    }

    fn is_awaited(&self, pods: Option<&PodWatch>) -> bool {
        self.container.as_ref().zip(pods).is_some_and(|(container, pods)| pods.awaits(container))
    }

    /// What has ended uses nothing; what it counted stays.
    fn take_nothing(&self, values: &mut Values) {
        values.clear();
        let announced = Measure::ALL.iter().zip(self.announced).filter(|(_, announced)| *announced);
        for (measure, _) in announced.filter(|(measure, _)| series::is_level(**measure)) {
            values.set(*measure, 0);
        }
    }
}

/// Writes `values`, which were sampled at `now`, into `region`. Returns measures that are not announced yet: none but
/// for the first samples, so that nothing is allocated.
fn store(
    region: &OwnedRegion,
    values: &Values,
    announced: &mut [bool; Measure::ALL.len()],
    now: Nanos,
) -> Vec<Measure> {
    let mut new = Vec::new();
    for (measure, value) in values.iter() {
        if let Some(slot) = region.slot(series::slot(measure)) {
            // Relaxed: values are independent of each other.
            slot.store(value, Ordering::Relaxed);
        }
        if let Some(announced) = announced.get_mut(measure as usize)
            && !core::mem::replace(announced, true)
        {
            new.push(measure);
        }
    }
    region.sampled(now);
    new
}
