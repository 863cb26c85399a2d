//! Who a service says it is, and what it may take.

use std::path::PathBuf;
use std::time::Duration;

use wire::layout::RegionSize;
use wire::name::{InstanceName, Labels, NameError, ServiceName};
use wire::registration::Hello;
use wire::time::{Interval, Nanos};

use crate::environment;

/// A service's name, and whatever else there is to say of this replica of it.
#[derive(Clone, Debug)]
#[must_use = "it says nothing before it is given to `connect`"]
pub struct Service {
    pub(crate) name: String,
    instance: Option<String>,
    labels: Vec<(String, String)>,
    socket: Option<PathBuf>,
    limits: Limits,
    process_metrics: bool,
    changes_every: Option<Duration>,
}

/// How much a client takes at most, so that a mistake in naming costs a known amount of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Series in all. Further ones get handles that nobody reads.
    pub series: usize,
    /// Label sets of one metric. Further ones share one series, labelled `otel.metric.overflow="true"`.
    pub label_sets_per_metric: usize,
    /// Regions of shared memory. A series for which there is no room in them gets a handle that nobody reads.
    pub regions: usize,
    /// Size of the first region. Each further one is twice as large as the one before, up to 1 MiB.
    pub first_region: RegionSize,
    /// Finished spans that wait for the agent, which looks twenty times a second at least; the oldest are lost beyond. 512 bytes each, taken only where
    /// spans are recorded or traces asked for; rounded up to a power of two, at most 16,384.
    pub spans: u32,
}

impl Default for Limits {
    /// 4,096 series, 256 label sets of one metric, 16 regions from 16 KiB on: 11 MiB at most. 4,096 spans: 2 MiB.
    fn default() -> Self {
        let first_region = RegionSize::for_slots(2_000).unwrap_or(RegionSize::ONE_PAGE);
        Self { series: 4_096, label_sets_per_metric: 256, regions: 16, first_region, spans: 4_096 }
    }
}

impl Service {
    /// A replica of the service `name` (1 to 128 letters, digits and `_.-/:`), as in OpenTelemetry's `service.name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            instance: None,
            labels: Vec::new(),
            socket: None,
            limits: Limits::default(),
            process_metrics: true,
            changes_every: None,
        }
    }

    /// Which replica it is, as in `service.instance.id`. Otherwise the host's name and the process id.
    pub fn instance(mut self, instance: impl Into<String>) -> Self {
        self.instance = Some(instance.into());
        self
    }

    /// A label of the replica, such as its version. At most 16.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// Where the agent listens. Otherwise what `UVIEW_SOCKET` says, or `/run/uview/services.sock`.
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.socket = Some(path.into());
        self
    }

    /// How much the client takes at most.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The values tell of something else than this process, such as a network: the agent does not put the process's CPU time, memory and so
    /// on beside them. Agents of earlier releases do all the same.
    pub fn without_process_metrics(mut self) -> Self {
        self.process_metrics = false;
        self
    }

    /// Values change only so often, all at a time: they are measured over intervals. The LMAP takes a row for each and none between, where a counter would
    /// seem to stand still and a gauge be counted again. [`Client::changed`](crate::Client::changed) has to be called after each change, and
    /// nobody looks at values before. In whole milliseconds, 1 ms to 1 h; otherwise it is as if nothing had been said.
    pub fn changes_every(mut self, period: Duration) -> Self {
        self.changes_every = Some(period);
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

    /// The first message to every agent.
    pub(crate) fn hello(&self, instance: &str) -> Result<Hello, NameError> {
        Ok(Hello {
            service: ServiceName::new(&self.name)?,
            instance: InstanceName::new(instance)?,
            labels: Labels::new(self.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())))?,
            process_metrics: self.process_metrics,
            changes_every: self.changes_every.and_then(|period| Interval::new(Nanos::from(period)).ok()),
        })
    }
}

#[cfg(test)]
#[cfg(not(miri))] // The system's name, which Miri does not have.
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
