//! The kind `LmapNodeStatus`: what came of each `Lmap`, `SamplingPolicy` and `SynopsisPolicy` on one node. One object
//! per node, with the node's name: a node writes only its own.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::object_status::MAX_PROBLEM;
use crate::report::KindReport;
use crate::text::short;

/// Most objects of a kind that are told of.
pub const MAX_STATES: usize = 256;
/// Most services of one object that are named.
pub const MAX_SERVICES: usize = 16;
/// Most bytes of a message.
pub const MAX_MESSAGE: usize = 512;
/// Most bytes of the whole object as JSON: a quarter of what the API server's store takes.
pub const MAX_OBJECT: usize = 384 << 10;

/// How much is told of each object: most services, and most bytes of a message. The first that lets all fit.
const DETAILS: [(usize, usize); 4] = [(MAX_SERVICES, MAX_MESSAGE), (4, 160), (1, 64), (0, 0)];
/// Most bytes of a report about nothing: its keys, three numbers, and the object's name of at most 253 bytes.
const FRAME: usize = 1024;
/// Most bytes of a state without its texts: its keys.
const STATE: usize = 56;
/// Most bytes of a condition without its texts: its keys, a time with nanoseconds, and a generation.
const CONDITION: usize = 144;

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
    /// Lmaps by namespace and name; as many as there is room for.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub lmaps: Vec<ObjectState>,
    /// SamplingPolicies by namespace and name; as many as there is room for.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub sampling_policies: Vec<ObjectState>,
    /// SynopsisPolicies by namespace and name; as many as there is room for.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub synopsis_policies: Vec<ObjectState>,
}

impl NodeReport {
    /// What came of the objects of all kinds, in at most [`MAX_OBJECT`] bytes. Where there are too many, less is told
    /// of each; then the last of each kind are counted and not named.
    #[must_use]
    pub fn of(lmaps: &KindReport, policies: &KindReport, synopses: &KindReport) -> Self {
        let kinds = [lmaps, policies, synopses];
        let first = kinds.into_iter().map(|kind| &kind.first_problem).find(|problem| !problem.is_empty());
        let mut report = Self {
            applied: kinds.into_iter().map(|kind| kind.applied).sum(),
            not_applied: kinds.into_iter().map(|kind| kind.not_applied).sum(),
            first_problem: short(first.cloned().unwrap_or_default(), MAX_PROBLEM),
            lmaps: lmaps.states.clone(),
            sampling_policies: policies.states.clone(),
            synopsis_policies: synopses.states.clone(),
        };
        report.fit();
        report
    }

    /// Tells less, until all fits.
    fn fit(&mut self) {
        for detail in DETAILS {
            self.kinds_mut().into_iter().flatten().for_each(|state| state.shorten(detail));
            if self.bytes() <= MAX_OBJECT {
                return;
            }
        }
        let (mut bytes, mut named) = (FRAME + bytes_of(&self.first_problem), 0);
        while named < MAX_STATES {
            // One more of each kind.
            let next = self.kinds().into_iter().filter_map(|states| states.get(named));
            bytes += next.map(ObjectState::bytes).sum::<usize>();
            if bytes > MAX_OBJECT {
                break;
            }
            named += 1;
        }
        self.kinds_mut().into_iter().for_each(|states| states.truncate(named));
    }

    /// Bytes of the object as JSON, at most.
    fn bytes(&self) -> usize {
        let states = self.kinds().into_iter().flatten();
        FRAME + bytes_of(&self.first_problem) + states.map(ObjectState::bytes).sum::<usize>()
    }

    const fn kinds(&self) -> [&Vec<ObjectState>; 3] {
        [&self.lmaps, &self.sampling_policies, &self.synopsis_policies]
    }

    const fn kinds_mut(&mut self) -> [&mut Vec<ObjectState>; 3] {
        [&mut self.lmaps, &mut self.sampling_policies, &mut self.synopsis_policies]
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

impl ObjectState {
    /// Leaves so many services, and so many bytes of each message.
    fn shorten(&mut self, (services, message): (usize, usize)) {
        self.services.truncate(services);
        for condition in &mut self.conditions {
            condition.message = short(core::mem::take(&mut condition.message), message);
        }
    }

    /// Bytes as JSON, at most.
    fn bytes(&self) -> usize {
        let condition = |of: &Condition| {
            CONDITION
                + [&of.type_, &of.status, &of.reason, &of.message].map(|text| bytes_of(text)).iter().sum::<usize>()
        };
        // With the comma behind each.
        let services: usize = self.services.iter().map(|service| 1 + bytes_of(service)).sum();
        let conditions: usize = self.conditions.iter().map(condition).sum();
        STATE + bytes_of(&self.namespace) + bytes_of(&self.name) + services + conditions
    }
}

/// Bytes of a text as JSON, at most: a control character may take six.
fn bytes_of(text: &str) -> usize {
    let of = |byte: u8| match byte {
        b'"' | b'\\' => 2,
        byte if byte.is_ascii_control() => 6,
        _ => 1,
    };
    2 + text.bytes().map(of).sum::<usize>()
}

#[cfg(test)]
mod tests;
