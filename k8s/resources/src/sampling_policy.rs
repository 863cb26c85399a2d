//! The kind `SamplingPolicy`: which traces through the workloads of its own namespace are kept.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lmap::{Selector, Workload};

const ONE_RULE: &str = "[has(self.workload), has(self.selector)].filter(is, is).size() == 1";
const ONE_MESSAGE: &str = "set exactly one of workload (one workload) and selector (pods by their labels)";
const REASONS_RULE: &str = "!has(self.reasons) || self.reasons.all(one, self.reasons.exists_one(other, other == one))";

/// Which traces through the workloads of its namespace are kept, where nodes choose (`otlp.traces.keep: tail`).
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "uview.dev",
    version = "v1alpha1",
    kind = "SamplingPolicy",
    plural = "samplingpolicies",
    namespaced,
    category = "uview",
    derive = "PartialEq",
    doc = "Which traces through the workloads of its namespace are kept: for which reasons, and how many of the others",
    printcolumn = r#"{"name":"Kind","type":"string","jsonPath":".spec.workload.kind"}"#,
    printcolumn = r#"{"name":"Workload","type":"string","jsonPath":".spec.workload.name"}"#,
    printcolumn = r#"{"name":"Share","type":"number","jsonPath":".spec.share"}"#,
    printcolumn = r#"{"name":"Reasons","type":"string","jsonPath":".spec.reasons"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(ONE_RULE).message(ONE_MESSAGE),
    validation = Rule::new("!has(self.workload) || !has(self.workload.container)")
        .message("spans are of the whole pod, whichever container sends them: leave container out"),
    validation = Rule::new("has(self.share) || has(self.reasons)")
        .message("set share, reasons, or both: without either nothing would change"),
    validation = Rule::new("!has(self.share) || self.share > 0.0")
        .message("share must be above 0, up to 1, such as 0.1 for a tenth of the traces"),
    validation = Rule::new(REASONS_RULE).message("name each of the reasons once"),
)]
pub struct SamplingPolicySpec {
    /// One workload of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// Pods of the namespace by their labels: the traces through their workloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// Share of the traces through these workloads that is kept without any other reason, such as 0.1, as far as the
    /// budget has bytes to spare; absent: as the agents are configured (otlp.traces.floor), which is the least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub share: Option<f64>,
    /// The only reasons of these workloads for which traces are kept, of those that the agents are configured for; an
    /// empty list: none of them; absent: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4))]
    pub reasons: Option<Vec<KeepReason>>,
}

/// Why a trace is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum KeepReason {
    /// A span of the workload ended in an error.
    Error,
    /// The workload's LMAP was in alarm.
    Lmap,
    /// A request that entered the system at the workload took longer than usual.
    Latency,
    /// The workload asked for it.
    Trigger,
}
