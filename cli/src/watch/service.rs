//! The program as a service of the agents: what is sampled becomes metrics in shared memory, as if it had registered
//! itself.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use client::{Client, Connection, Counter, Service, UpDownCounter};
use host_agent::process_metrics::{Measure, Values};
use host_agent::sampling_times::FASTEST;
use wire::metric::Kind;
use wire::registration::PROCESS_LABEL;
use wire::time::Nanos;

enum Handle {
    Counter(Counter),
    UpDownCounter(UpDownCounter),
}

/// One run of the program: a replica of its service.
pub(super) struct Replica {
    client: Client,
    handles: BTreeMap<Measure, Handle>,
}

impl Replica {
    /// Registers at `socket` a replica of `service` whose values change every `interval`, and more often while
    /// something seems wrong.
    pub(super) fn connect(service: &str, pid: u32, socket: &Path, interval: Duration) -> Self {
        // The process that it is about, which the agent looks at for changes and profiles.
        let service = Service::new(service).instance(format!("pid-{pid}")).socket(socket);
        let service = service.label(PROCESS_LABEL, pid.to_string());
        let service = service.without_process_metrics().changes_every(interval).fastest(FASTEST.into());
        let client = client::connect(service);
        Self { client, handles: BTreeMap::new() }
    }

    /// Writes a sample of `now`.
    pub(super) fn write(&mut self, values: &Values, now: Nanos) {
        for (measure, value) in values.iter() {
            let Self { client, handles } = self;
            if !handles.contains_key(&measure)
                && let Some(handle) = register(client, measure)
            {
                handles.insert(measure, handle);
            }
            match handles.get(&measure) {
                Some(Handle::Counter(counter)) => counter.add(value.saturating_sub(counter.get())),
                Some(Handle::UpDownCounter(level)) => level.add((value as i64).wrapping_sub(level.get())),
                None => {}
            }
        }
        self.client.sampled(now.into());
    }

    /// Why the agents do not watch it: the newest reason.
    pub(super) fn problem(&self) -> Option<String> {
        let status = self.client.status();
        let refused = status.problems.last().map(|problem| problem.cause.to_string());
        match status.connection {
            Connection::Waiting { error: Some(error), .. } => Some(refused.unwrap_or(error)),
            _ => refused,
        }
    }

    /// The number of its metrics.
    pub(super) fn metrics(&self) -> usize {
        self.handles.len()
    }
}

fn register(client: &Client, measure: Measure) -> Option<Handle> {
    let series = measure.series().ok()?;
    let name = series.name.as_str();
    let unit = series.unit.as_ref().map_or("", |unit| unit.as_str());
    Some(if series.kind == Kind::Counter {
        let registration = client.counter(name).unit(unit).group(series.group);
        Handle::Counter(series.labels.iter().fold(registration, |r, (key, value)| r.label(key, value)).register())
    } else {
        let registration = client.up_down_counter(name).unit(unit).group(series.group);
        Handle::UpDownCounter(series.labels.iter().fold(registration, |r, (key, value)| r.label(key, value)).register())
    })
}
