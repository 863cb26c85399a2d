//! The service's identity and limits, as passed to `connect`.

use std::path::PathBuf;
use std::time::Duration;

use wire::layout::RegionSize;
use wire::name::{InstanceName, Labels, NameError, ServiceName};
use wire::registration::Hello;
use wire::time::{Interval, Nanos};

use crate::environment;

/// Describes this replica of a service: name, instance, labels, limits. Pass it to [`connect`](crate::connect).
#[derive(Clone, Debug)]
#[must_use = "a service is registered only by `connect`"]
pub struct Service {
    pub(crate) name: String,
    instance: Option<String>,
    labels: Vec<(String, String)>,
    socket: Option<PathBuf>,
    limits: Limits,
    process_metrics: bool,
    changes_every: Option<Duration>,
    fastest: Option<Duration>,
    pub(crate) at_thread_start: Option<fn()>,
}

/// Bounds on a client's memory, so that a mistake such as an unbounded label value costs a known amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of series. Further ones get detached handles, which no agent reads. Default: 4,096.
    pub series: usize,
    /// Maximum number of label sets per metric. Further ones share one series, labelled
    /// `otel.metric.overflow="true"`. Default: 256.
    pub label_sets_per_metric: usize,
    /// Maximum number of shared-memory regions. A series that does not fit gets a detached handle. Default: 16.
    pub regions: usize,
    /// Size of the first region. Each further region is twice as large as the one before, up to 1 MiB. Default: 16 KiB.
    pub first_region: RegionSize,
    /// Finished spans buffered for the agent, which reads at least twenty times a second; beyond that the oldest are
    /// lost. 512 bytes each, allocated only if spans are recorded or a trace is triggered. Rounded up to a power of
    /// two, at most 16,384. Default: 4,096.
    pub spans: u32,
}

impl Default for Limits {
    /// 4,096 series, 256 label sets per metric, 16 regions from 16 KiB on: 11 MiB at most. 4,096 spans: 2 MiB.
    fn default() -> Self {
        let first_region = RegionSize::for_slots(2_000).unwrap_or(RegionSize::ONE_PAGE);
        Self { series: 4_096, label_sets_per_metric: 256, regions: 16, first_region, spans: 4_096 }
    }
}

impl Service {
    /// A replica of the service `name`: 1 to 128 letters, digits and `_.-/:`, as OpenTelemetry's `service.name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            instance: None,
            labels: Vec::new(),
            socket: None,
            limits: Limits::default(),
            process_metrics: true,
            changes_every: None,
            fastest: None,
            at_thread_start: None,
        }
    }

    /// Sets the replica's name, as `service.instance.id`. Default: host name and process id.
    pub fn instance(mut self, instance: impl Into<String>) -> Self {
        self.instance = Some(instance.into());
        self
    }

    /// Adds a label of the replica, such as its version. At most 16.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// Sets the agent's socket. Default: `UVIEW_SOCKET`, or `/run/uview/services.sock`.
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.socket = Some(path.into());
        self
    }

    /// Sets the bounds on the client's memory.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Calls `start` first in the thread that the client starts: for a library that watches the calls of its process,
    /// and has to tell the client's from the program's.
    pub fn at_thread_start(mut self, start: fn()) -> Self {
        self.at_thread_start = Some(start);
        self
    }

    /// For values that do not describe this process, such as those of a network probe: the agent adds no CPU, memory
    /// and I/O metrics of the process. Agents of earlier releases add them nevertheless.
    pub fn without_process_metrics(mut self) -> Self {
        self.process_metrics = false;
        self
    }

    /// For values that are measured over intervals and all change at once, every `period`. The detector (LMAP) takes
    /// one row per change. Otherwise a counter would seem to stand still between changes, and a gauge would be counted
    /// again.
    ///
    /// Call [`Client::changed`](crate::Client::changed) after each change: agents read the values only then. `period`
    /// is in whole milliseconds, 1 ms to 1 h; any other value is ignored.
    pub fn changes_every(mut self, period: Duration) -> Self {
        self.changes_every = Some(period);
        self
    }

    /// For values with [`changes_every`](Self::changes_every) that can also be measured as often as every `fastest`
    /// while something seems wrong with the service, which agents know: they look at them as often then.
    ///
    /// Call [`Client::sampled`](crate::Client::sampled) after each change, in place of `changed`, however often they
    /// are measured. `fastest` is in whole milliseconds, 1 ms to 1 h; any other value is ignored.
    pub fn fastest(mut self, fastest: Duration) -> Self {
        self.fastest = Some(fastest);
        self
    }

    pub(crate) fn instance_name(&self) -> String {
        self.instance.clone().unwrap_or_else(environment::instance)
    }

    pub(crate) fn socket_path(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(environment::socket)
    }

    pub(crate) const fn bounds(&self) -> Limits {
        self.limits
    }

    /// The first message on every connection.
    pub(crate) fn hello(&self, instance: &str) -> Result<Hello, NameError> {
        let interval = |length: Option<Duration>| length.and_then(|length| Interval::new(Nanos::from(length)).ok());
        let changes_every = interval(self.changes_every);
        Ok(Hello {
            service: ServiceName::new(&self.name)?,
            instance: InstanceName::new(instance)?,
            labels: Labels::new(self.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())))?,
            process_metrics: self.process_metrics,
            changes_every,
            fastest: interval(self.fastest).filter(|_| changes_every.is_some()),
        })
    }
}

#[cfg(test)]
#[cfg(not(miri))] // Needs uname, which Miri does not have.
mod tests {
    use super::*;

    #[test]
    fn an_instance_has_a_name_even_if_nobody_gives_it_one() {
        let service = Service::new("payment");
        let instance = service.instance_name();

        assert!(instance.ends_with(&format!("-{}", std::process::id())), "{instance}");
        assert!(service.hello(&instance).is_ok());
    }

    #[test]
    fn a_name_that_is_not_allowed_is_told_before_anything_is_sent() {
        for service in [Service::new(""), Service::new("pay ment"), Service::new("a").label("b c", "")] {
            assert!(service.hello("one").is_err(), "{service:?}");
        }
        assert!(Service::new("a").hello("one two").is_err());
    }
}
