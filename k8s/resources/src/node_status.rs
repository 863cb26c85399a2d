//! The kind `LmapNodeStatus`: what came of each `Lmap`, `SamplingPolicy` and `SynopsisPolicy` on one node. One object
//! per node, with the node's name: a node writes only its own.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::report::KindReport;

/// Most objects of a kind that are told of.
pub const MAX_STATES: usize = 256;
/// Most services of one object that are named.
pub const MAX_SERVICES: usize = 16;
/// Most bytes of a message.
pub const MAX_MESSAGE: usize = 512;

/// What came of the Lmaps, SamplingPolicies and SynopsisPolicies that are about pods of this node.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "uview.dev",
    version = "v1alpha1",
    kind = "LmapNodeStatus",
    plural = "lmapnodestatuses",
    no_spec,
    category = "uview",
    derive = "PartialEq",
    doc = "What came of the Lmaps, SamplingPolicies and SynopsisPolicies about pods of one node. Its name is the node's, whose host agent writes it",
    printcolumn = r#"{"name":"Applied","type":"integer","jsonPath":".applied"}"#,
    printcolumn = r#"{"name":"Not applied","type":"integer","jsonPath":".notApplied"}"#,
    printcolumn = r#"{"name":"First problem","type":"string","jsonPath":".firstProblem"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// Objects that are in effect on this node.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub applied: u32,
    /// Objects that are not, or in part.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub not_applied: u32,
    /// The first of those, with its kind, and why.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub first_problem: String,
    /// All Lmaps, by namespace and name.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub lmaps: Vec<ObjectState>,
    /// All SamplingPolicies, by namespace and name.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub sampling_policies: Vec<ObjectState>,
    /// All SynopsisPolicies, by namespace and name.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub synopsis_policies: Vec<ObjectState>,
}

impl NodeReport {
    /// What came of the objects of all kinds.
    #[must_use]
    pub fn of(lmaps: &KindReport, policies: &KindReport, synopses: &KindReport) -> Self {
        let kinds = [lmaps, policies, synopses];
        let first = kinds.into_iter().map(|kind| &kind.first_problem).find(|problem| !problem.is_empty());
        Self {
            applied: kinds.into_iter().map(|kind| kind.applied).sum(),
            not_applied: kinds.into_iter().map(|kind| kind.not_applied).sum(),
            first_problem: first.cloned().unwrap_or_default(),
            lmaps: lmaps.states.clone(),
            sampling_policies: policies.states.clone(),
            synopsis_policies: synopses.states.clone(),
        }
    }
}

/// What came of one object on this node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectState {
    /// The object's namespace.
    #[schemars(length(max = 253))]
    pub namespace: String,
    /// The object's name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// What it sets on this node: LMAPs, services, or services of streams.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub services: Vec<String>,
    /// `Applied`: it is in effect on all of its services here. `Conflicted`: an older one of its kind sets one of them.
    #[serde(default)]
    #[schemars(length(max = 4))]
    pub conditions: Vec<Condition>,
}
