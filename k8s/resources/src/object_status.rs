//! The status of an `Lmap`, a `SamplingPolicy` or a `SynopsisPolicy`: what came of it on all nodes together. The
//! controller writes it (decision D40).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most bytes of the text about the first problem.
pub const MAX_PROBLEM: usize = 1024;

/// What came of an object on all nodes that run its pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectStatus {
    /// The generation of the spec that this is about.
    #[serde(default)]
    pub observed_generation: i64,
    /// Nodes on which it is in effect.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub nodes_applied: u32,
    /// Nodes that do not apply it, or in part.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub nodes_refused: u32,
    /// Nodes that have yet to apply it.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub nodes_pending: u32,
    /// The first node that does not apply it, by name, and why.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub first_problem: String,
    /// `Applied`: it is in effect on all nodes that run its pods. `Conflicted`: an older one sets one of its services.
    #[serde(default)]
    #[schemars(length(max = 4))]
    pub conditions: Vec<Condition>,
}

impl ObjectStatus {
    /// The condition of the type `kind`, if there is one.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == kind)
    }
}
