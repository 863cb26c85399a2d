//! What is known of the custom resources, and what came of them on this node.

use core::time::Duration;
use std::sync::{Arc, Mutex, OnceLock};

use agent_runtime::lock;
use otlp::Edge;
use resources::plan::{MAX_OBJECT_BYTES, MAX_OBJECTS};
use resources::sampling_plan::{MAX_POLICIES, MAX_POLICY_BYTES};
use resources::synopsis_plan::{MAX_SYNOPSIS_POLICIES, MAX_SYNOPSIS_POLICY_BYTES};
use resources::{LmapSpec, NodeReport, SamplingPolicySpec, SynopsisPolicySpec};
use tokio::sync::Notify;

use super::known::{ObjectKind, WatchedKind};

const LMAPS: ObjectKind =
    ObjectKind { one: "Lmap", many: "Lmaps", resource: "lmaps", objects: MAX_OBJECTS, bytes: MAX_OBJECT_BYTES };
const POLICIES: ObjectKind = ObjectKind {
    one: "SamplingPolicy",
    many: "SamplingPolicies",
    resource: "samplingpolicies",
    objects: MAX_POLICIES,
    bytes: MAX_POLICY_BYTES,
};
const SYNOPSES: ObjectKind = ObjectKind {
    one: "SynopsisPolicy",
    many: "SynopsisPolicies",
    resource: "synopsispolicies",
    objects: MAX_SYNOPSIS_POLICIES,
    bytes: MAX_SYNOPSIS_POLICY_BYTES,
};

/// How often things are done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// It is looked whether something has changed.
    pub(super) look: Duration,
    /// What was refused is tried again.
    pub(super) again: Duration,
    /// A change of the status waits for others that come with it.
    pub(super) settle: Duration,
    /// The status is written at most so often.
    pub(super) write: Duration,
    /// Files are read again.
    pub(super) files: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            look: Duration::from_millis(500),
            again: Duration::from_secs(30),
            settle: Duration::from_secs(2),
            write: Duration::from_secs(30),
            files: Duration::from_secs(5),
        }
    }
}

impl Pace {
    /// All nodes see a change at once. Each writes at a moment of its own within `spread`, which follows from its name.
    pub(super) fn of(node: &str, spread: Duration) -> Self {
        let pace = Self::default();
        let share = f64::from(crc32fast::hash(node.as_bytes())) / f64::from(u32::MAX);
        Self { settle: pace.settle + spread.mul_f64(share), ..pace }
    }
}

/// What is known of the objects, and what came of them.
#[derive(Debug)]
pub(crate) struct CustomObjects {
    /// Who tells of the objects: kubernetes, or resources (files).
    source: &'static str,
    pub(super) node_name: String,
    pub(super) pace: Pace,
    pub(super) lmaps: WatchedKind<LmapSpec>,
    pub(super) policies: WatchedKind<SamplingPolicySpec>,
    pub(super) synopses: WatchedKind<SynopsisPolicySpec>,
    /// Where traces are sampled, once that is known; `None` inside: nowhere.
    pub(super) edge: OnceLock<Option<Arc<Edge>>>,
    pub(super) report: Mutex<NodeReport>,
    /// Notified when the report has changed.
    pub(super) reported: Notify,
    /// Why the status cannot be written.
    pub(super) write_error: Mutex<Option<String>>,
    /// What is wrong with files, where they say all this.
    pub(super) file_problems: Mutex<Vec<String>>,
}

impl CustomObjects {
    /// Nothing is known yet of what `source` tells the node `node_name`.
    pub(super) fn new(source: &'static str, node_name: String, pace: Pace) -> Self {
        let (lmaps, policies) = (WatchedKind::new(LMAPS), WatchedKind::new(POLICIES));
        let synopses = WatchedKind::new(SYNOPSES);
        let (edge, report, reported, write_error, file_problems) = Default::default();
        Self { source, node_name, pace, lmaps, policies, synopses, edge, report, reported, write_error, file_problems }
    }

    /// Traces are sampled at `edge`, or nowhere. Policies wait until this is said.
    pub(crate) fn set_edge(&self, edge: Option<Arc<Edge>>) {
        if self.edge.set(edge).is_err() {
            tracing::warn!("where traces are sampled was said twice; the first counts");
        }
    }

    /// Objects that there was no room for, of all kinds.
    pub(crate) fn refused(&self) -> u64 {
        self.lmaps.refused() + self.policies.refused() + self.synopses.refused()
    }

    /// What an operator has to know, for the status.
    pub(crate) fn problems(&self) -> Vec<String> {
        let write = lock(&self.write_error).clone().map(|error| {
            format!(
                "kubernetes: what came of custom resources cannot be written: {error} (may the service account get and \
                 patch lmapnodestatuses?)"
            )
        });
        let report = lock(&self.report);
        let more =
            if report.not_applied > 1 { format!("; and {} more", report.not_applied - 1) } else { String::new() };
        let first = &report.first_problem;
        let first = (!first.is_empty()).then(|| format!("{}: {first}{more}", self.source));
        let files = lock(&self.file_problems).clone();
        let kinds = self.lmaps.problems().chain(self.policies.problems()).chain(self.synopses.problems());
        kinds.chain(write).chain(files).chain(first).collect()
    }
}
