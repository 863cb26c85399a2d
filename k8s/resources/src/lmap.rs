//! The kind `Lmap`: how the workloads of its own namespace are watched.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use pods::Pod;
use pods::workload::WorkloadKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::object_status::ObjectStatus;
use crate::rules;

/// How the workloads of its namespace are watched on each node.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "uview.dev",
    version = "v1alpha1",
    kind = "Lmap",
    plural = "lmaps",
    namespaced,
    category = "uview",
    status = "ObjectStatus",
    derive = "PartialEq",
    doc = "How the workloads of its namespace are watched: how often, which metrics, and by which detector",
    printcolumn = r#"{"name":"Kind","type":"string","jsonPath":".spec.workload.kind"}"#,
    printcolumn = r#"{"name":"Workload","type":"string","jsonPath":".spec.workload.name"}"#,
    printcolumn = r#"{"name":"Interval","type":"string","jsonPath":".spec.interval"}"#,
    printcolumn = r#"{"name":"Applied","type":"string","jsonPath":".status.conditions[?(@.type==\"Applied\")].status"}"#,
    printcolumn = r#"{"name":"Nodes","type":"integer","jsonPath":".status.nodesApplied"}"#,
    printcolumn = r#"{"name":"Refused","type":"integer","jsonPath":".status.nodesRefused"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(rules::ONE_OF_THREE.cel).message(rules::ONE_OF_THREE.message),
    validation = Rule::new(rules::TOGETHER_METRICS.cel).message(rules::TOGETHER_METRICS.message),
    validation = Rule::new(rules::INTERVAL.cel).message(rules::INTERVAL.message),
    validation = Rule::new(rules::ADAPTIVE.cel).message(rules::ADAPTIVE.message),
)]
pub struct LmapSpec {
    /// One workload of the namespace: the LMAP of each of its services is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// Pods of the namespace by their labels: the LMAPs of their workloads are set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// Several workloads of the namespace: one LMAP over all of them, beside those of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 2, max = 16))]
    pub together: Vec<Member>,
    /// The only metrics that are watched; none: all that there are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub metrics: Vec<Metric>,
    /// Time between two rows, such as 200ms; absent: as the agents are configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10))]
    pub interval: Option<String>,
    /// Least time between two fetches while something seems wrong, such as 50ms, or off; absent: as configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10))]
    pub adaptive: Option<String>,
    /// Settings of the detector; what is absent is as the agents are configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detector: Option<Detector>,
}

/// A workload of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// Its kind. Pod: one that nobody owns, or that a kind of somebody else owns.
    #[serde(default)]
    pub kind: Kind,
    /// Name of the workload.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// One container of its pods, if they have several; absent: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub container: Option<String>,
}

/// Kinds of workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum Kind {
    /// Owns ReplicaSets, one per version.
    #[default]
    Deployment,
    /// Pods with names that stay.
    StatefulSet,
    /// One pod on each node.
    DaemonSet,
    /// One that no Deployment owns.
    ReplicaSet,
    /// Runs to its end.
    Job,
    /// Starts Jobs at set times.
    CronJob,
    /// Owned by nobody, or by a kind of somebody else.
    Pod,
}

impl Kind {
    const fn is(self, kind: WorkloadKind) -> bool {
        matches!(
            (self, kind),
            (Self::Deployment, WorkloadKind::Deployment)
                | (Self::StatefulSet, WorkloadKind::StatefulSet)
                | (Self::DaemonSet, WorkloadKind::DaemonSet)
                | (Self::ReplicaSet, WorkloadKind::ReplicaSet)
                | (Self::Job, WorkloadKind::Job)
                | (Self::CronJob, WorkloadKind::CronJob)
                | (Self::Pod, WorkloadKind::Other)
        )
    }
}

impl Workload {
    /// Whether `pod` is of this workload, whatever namespace it is in.
    #[must_use]
    pub fn has(&self, pod: &Pod) -> bool {
        self.kind.is(pod.workload.kind) && self.name == pod.workload.name
    }
}

/// Pods by their labels. An empty one selects all pods of the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    /// Labels that a pod has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub match_labels: BTreeMap<String, String>,
    /// Further conditions that all hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub match_expressions: Vec<Condition>,
}

/// A condition about one label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(rules::VALUES.cel).message(rules::VALUES.message),
)]
pub struct Condition {
    /// Key of the label.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// How it is compared.
    pub operator: Operator,
    /// What it is compared with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 63)))]
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum Operator {
    /// It has one of the values.
    In,
    /// It has none of the values, or is missing.
    NotIn,
    /// It is there.
    Exists,
    /// It is missing.
    DoesNotExist,
}

impl Selector {
    /// Whether it selects `pod`, whatever namespace it is in.
    #[must_use]
    pub fn selects(&self, pod: &Pod) -> bool {
        let has = |(key, value): (&String, &String)| pod.label(key) == Some(value);
        self.match_labels.iter().all(has) && self.match_expressions.iter().all(|condition| condition.holds(pod))
    }
}

impl Condition {
    fn holds(&self, pod: &Pod) -> bool {
        let value = pod.label(&self.key);
        let is_listed = || value.is_some_and(|value| self.values.iter().any(|listed| listed == value));
        match self.operator {
            Operator::In => is_listed(),
            Operator::NotIn => !is_listed(),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

/// A workload of an LMAP over several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// The workload. Of one with several containers, name the one that is meant.
    pub workload: Workload,
    /// The only metrics of it that are watched; none: all that there are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub metrics: Vec<Metric>,
}

/// A metric, or a column that is derived from others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(rules::DERIVED_OR_AGGREGATED.cel).message(rules::DERIVED_OR_AGGREGATED.message),
    validation = Rule::new(rules::UNIT.cel).message(rules::UNIT.message),
)]
pub struct Metric {
    /// Its name: all of its label sets are watched.
    #[schemars(length(min = 1, max = 255))]
    pub name: String,
    /// How replicas become one: max, min, sum, mean, a quantile such as p90, or an expression such as max - min;
    /// absent: as the configuration, the service, or the kind says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub aggregation: Option<String>,
    /// Read every so many rows; absent: as the service declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000), extend("format" = "int32"))]
    pub every: Option<u32>,
    /// An expression over other metrics, such as errors / requests: a column of this name that no replica registers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub derived: Option<String>,
    /// Unit of a derived column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub unit: Option<String>,
}

/// Settings of a detector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(rules::SKETCH_ROWS.cel).message(rules::SKETCH_ROWS.message),
    validation = Rule::new(rules::ROWS_KEPT.cel).message(rules::ROWS_KEPT.message),
    validation = Rule::new(rules::PERCENTILE.cel).message(rules::PERCENTILE.message),
)]
pub struct Detector {
    /// Form of the score. One other than the agents' has its own defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// Rank of the basis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4096), extend("format" = "int32"))]
    pub rank: Option<u32>,
    /// Rows of the sketch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 8192), extend("format" = "int32"))]
    pub sketch_rows: Option<u32>,
    /// Every so many rows, one is learnt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000), extend("format" = "int32"))]
    pub stride: Option<u32>,
    /// γ is this percentile of the scores in training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub percentile: Option<f64>,
    /// Probability that a row above γ is learnt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub learning_rate: Option<f64>,
    /// Factor on γ for alarms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub margin: Option<f64>,
    /// Alarms a day to which γ is steered; 0: γ is fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub alarms_per_day: Option<f64>,
    /// Rows that are stored, so that a fit can be made at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000), extend("format" = "int32"))]
    pub rows_kept: Option<u32>,
}

/// Forms of the score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Score {
    /// Residuals and coordinates in units of their standard deviations.
    Scaled,
    /// The length of the residual.
    Absolute,
    /// The length of the residual of rows of unit length.
    Relative,
}

impl Score {
    /// Name of this form.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scaled => "scaled",
            Self::Absolute => "absolute",
            Self::Relative => "relative",
        }
    }
}
