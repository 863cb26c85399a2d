//! The kind `SamplingPolicy`: which traces through the workloads of its own namespace are kept.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lmap::{Selector, Workload};
use crate::object_status::ObjectStatus;
use crate::rules;

/// Which traces through the workloads of its namespace are kept, where nodes choose (`otlp.traces.keep: tail`).
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "uview.dev",
    version = "v1alpha1",
    kind = "SamplingPolicy",
    plural = "samplingpolicies",
    namespaced,
    category = "uview",
    status = "ObjectStatus",
    derive = "PartialEq",
    doc = "Which traces through the workloads of its namespace are kept: for which reasons, and how many of the others",
    printcolumn = r#"{"name":"Kind","type":"string","jsonPath":".spec.workload.kind"}"#,
    printcolumn = r#"{"name":"Workload","type":"string","jsonPath":".spec.workload.name"}"#,
    printcolumn = r#"{"name":"Share","type":"number","jsonPath":".spec.share"}"#,
    printcolumn = r#"{"name":"Reasons","type":"string","jsonPath":".spec.reasons"}"#,
    printcolumn = r#"{"name":"Applied","type":"string","jsonPath":".status.conditions[?(@.type==\"Applied\")].status"}"#,
    printcolumn = r#"{"name":"Nodes","type":"integer","jsonPath":".status.nodesApplied"}"#,
    printcolumn = r#"{"name":"Refused","type":"integer","jsonPath":".status.nodesRefused"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(rules::ONE_OF_TWO.cel).message(rules::ONE_OF_TWO.message),
    validation = Rule::new(rules::NO_CONTAINER.cel).message(rules::NO_CONTAINER.message),
    validation = Rule::new(rules::SHARE_OR_REASONS.cel).message(rules::SHARE_OR_REASONS.message),
    validation = Rule::new(rules::SHARE.cel).message(rules::SHARE.message),
    validation = Rule::new(rules::REASONS.cel).message(rules::REASONS.message),
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
