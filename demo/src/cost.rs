//! Processor time and memory of the demo's processes, read from /proc.

use std::collections::BTreeMap;

use procfs::process::Process;
use wire::time::Nanos;

use crate::graph::Service;
use crate::record::Cost;
use crate::testbed::{HOST_AGENT, LINK, LOAD, NIC_AGENT, Testbed};

/// The client's thread in a service.
const CLIENT_THREAD: &str = "uview";
/// The SDK's thread in a service: `OpenTelemetry.Traces.BatchProcessor`, which the kernel cuts to 15 bytes.
const SDK_THREAD: &str = "OpenTelemetry.T";

/// Processor time since the processes' start, in kernel clock ticks.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuUsage {
    pub(crate) at: Nanos,
    by_process: BTreeMap<String, u64>,
    client_threads: u64,
    sdk_threads: u64,
}

impl CpuUsage {
    /// Reads the current usage. A process that cannot be read counts as 0.
    pub(crate) fn read(testbed: &Testbed, now: Nanos) -> Self {
        let services = Service::ALL.map(Service::name);
        let names = [HOST_AGENT, NIC_AGENT, LOAD, LINK].into_iter().chain(services);
        let process = |name: &str| Process::new(testbed.processes.pid(name).try_into().ok()?).ok();
        let used = |name: &str| {
            process(name).and_then(|process| process.stat().ok()).map_or(0, |stat| stat.utime + stat.stime)
        };
        let threads = |called| {
            let of = |name: &str| process(name).map_or(0, |process| threads(&process, called));
            services.into_iter().map(of).sum()
        };
        Self {
            at: now,
            by_process: names.map(|name| (name.to_owned(), used(name))).collect(),
            client_threads: threads(CLIENT_THREAD),
            sdk_threads: threads(SDK_THREAD),
        }
    }

    /// Usage between `self` and `later`, as shares of one core. Instrumentation counts the threads only.
    pub(crate) fn cost_until(&self, later: &Self) -> Cost {
        let ticks = later.at.since(self.at).unwrap_or_default().as_secs_f64() * procfs::ticks_per_second() as f64;
        let share = |used: u64| if ticks > 0.0 { used as f64 / ticks } else { 0.0 };
        let of = |name: &str| {
            let at = |used: &Self| used.by_process.get(name).copied().unwrap_or(0);
            share(at(later).saturating_sub(at(self)))
        };
        Cost {
            host_agent: of(HOST_AGENT),
            nic_agent: of(NIC_AGENT),
            load: of(LOAD),
            relay: of(LINK),
            shop: Service::ALL.into_iter().map(|service| of(service.name())).sum(),
            instrumentation: share(later.client_threads.saturating_sub(self.client_threads)),
            sdk_threads: share(later.sdk_threads.saturating_sub(self.sdk_threads)),
            writes_per_request_ns: 0.0,
        }
    }
}

fn threads(process: &Process, called: &str) -> u64 {
    let Ok(tasks) = process.tasks() else { return 0 };
    // The first thread has the command's name, which is the same.
    let others = tasks.flatten().filter(|task| task.tid != process.pid());
    let stats = others.filter_map(|task| task.stat().ok());
    stats.filter(|stat| stat.comm == called).map(|stat| stat.utime + stat.stime).sum()
}

/// The resident set of a process in bytes; 0 if it cannot be read.
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    let statm = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok()?.statm().ok());
    statm.map_or(0, |statm| statm.resident * procfs::page_size())
}
