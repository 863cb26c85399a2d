//! Threads that measure programs from outside: registered processes and cgroups.

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::cgroup_metrics::{self, CgroupThread, PatternSender};
use crate::config::Config;
use crate::node::Node;
use crate::pod_watch::PodWatch;
use crate::process_metrics;
use crate::run_error::RunError;
use crate::sampling_times;

/// What the threads count: of processes and of cgroups.
pub(crate) type Counts = (Arc<process_metrics::Counts>, Arc<cgroup_metrics::Counts>);

/// The threads that run.
pub(crate) struct MeasuringThreads {
    processes: Option<JoinHandle<()>>,
    cgroups: Option<CgroupThread>,
}

impl MeasuringThreads {
    /// Starts those that `config` wants; containers of `pods` are read, too. That of cgroups also waits for patterns
    /// that may come. Each keeps at most a quarter of `files` open.
    pub(crate) fn start(
        config: &Config,
        files: usize,
        node: &Arc<Node>,
        (counts, cgroups): &Counts,
        pods: Option<Arc<PodWatch>>,
    ) -> Result<Self, RunError> {
        let settings = config.cgroup_settings(files / 4, pods)?;
        let is_wanted = settings.is_wanted();
        let cgroups = match cgroup_metrics::start(settings, node, Arc::clone(cgroups)) {
            Ok(thread) => {
                node.pace_cgroups_with(thread.paces());
                Some(thread)
            }
            Err(cause) if is_wanted => return Err(RunError::Cgroups(cause)),
            // Nobody asks for them, and this machine has none.
            Err(_) => None,
        };
        Ok(Self { processes: measure(config, files / 4, node, Arc::clone(counts))?, cgroups })
    }

    /// What tells the thread of cgroups later which to read; `None`: this machine has none.
    pub(crate) fn cgroup_patterns(&self) -> Option<PatternSender> {
        self.cgroups.as_ref().map(CgroupThread::patterns)
    }

    /// Both end within one round. Waiting for them may block for that long.
    pub(crate) fn end(self) {
        if let Some(cgroups) = self.cgroups {
            cgroups.end();
        }
        if let Some(processes) = self.processes {
            // The thread ends when its requests end. It does not panic.
            let _ = processes.join();
        }
    }
}

/// Starts the thread that measures processes, if configured.
fn measure(
    config: &Config,
    files: usize,
    node: &Arc<Node>,
    counts: Arc<process_metrics::Counts>,
) -> Result<Option<JoinHandle<()>>, RunError> {
    if !config.process_metrics.enabled {
        return Ok(None);
    }
    // The thread must not keep the node alive: the node owns the sender of its requests.
    let weak = Arc::downgrade(node);
    let announce: process_metrics::Announce = Box::new(move |connection, region, series| {
        if let Some(node) = weak.upgrade() {
            node.add_agent_region(connection, region, series);
            node.plane(|plane, _| plane.agent_fastest(connection, sampling_times::fastest()));
        }
    });
    let interval = config.process_metrics_interval();
    let started = process_metrics::start(interval, files, node.clock(), counts, announce);
    let (requests, thread) = started.map_err(RunError::Thread)?;
    node.measure_with(requests);
    Ok(Some(thread))
}
