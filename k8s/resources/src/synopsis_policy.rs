//! The kind `SynopsisPolicy`: which synopses watch the packets of pods of its own namespace.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lmap::{Selector, Workload};
use crate::object_status::ObjectStatus;
use crate::rules;

/// Which synopses watch the packets of the pods of its namespace, where nodes measure packets
/// (`network.policy_interfaces` of a NIC agent). Each workload has a stream of its own on each node.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "uview.dev",
    version = "v1alpha1",
    kind = "SynopsisPolicy",
    plural = "synopsispolicies",
    namespaced,
    category = "uview",
    status = "ObjectStatus",
    derive = "PartialEq",
    doc = "Which synopses watch the packets of pods of its namespace: delays, packets out of order, who has most, how many there are",
    printcolumn = r#"{"name":"Kind","type":"string","jsonPath":".spec.workload.kind"}"#,
    printcolumn = r#"{"name":"Workload","type":"string","jsonPath":".spec.workload.name"}"#,
    printcolumn = r#"{"name":"Delay","type":"string","jsonPath":".spec.delay"}"#,
    printcolumn = r#"{"name":"Interface","type":"string","jsonPath":".spec.interface"}"#,
    printcolumn = r#"{"name":"Applied","type":"string","jsonPath":".status.conditions[?(@.type==\"Applied\")].status"}"#,
    printcolumn = r#"{"name":"Nodes","type":"integer","jsonPath":".status.nodesApplied"}"#,
    printcolumn = r#"{"name":"Refused","type":"integer","jsonPath":".status.nodesRefused"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(rules::ONE_OF_TWO.cel).message(rules::ONE_OF_TWO.message),
    validation = Rule::new(rules::NO_CONTAINER_OF_PACKETS.cel).message(rules::NO_CONTAINER_OF_PACKETS.message),
    validation = Rule::new(rules::ONE_END.cel).message(rules::ONE_END.message),
    validation = Rule::new(rules::ANY_SYNOPSIS.cel).message(rules::ANY_SYNOPSIS.message),
    validation = Rule::new(rules::STREAM_INTERVAL.cel).message(rules::STREAM_INTERVAL.message),
)]
pub struct SynopsisPolicySpec {
    /// One workload of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// Pods of the namespace by their labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// The node's interface on which packets are captured, such as eth0; absent: the one to which the pods' addresses
    /// are routed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 15))]
    pub interface: Option<String>,
    /// Which packets of the pods: those that they receive, that they send, or both. Of delays, requests are meant;
    /// responses go the other way.
    #[serde(default)]
    pub direction: Direction,
    /// The destination's port; absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535), extend("format" = "int32"))]
    pub port: Option<u16>,
    /// Period of the metrics, from 100ms to 1m; absent: 1s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10))]
    pub interval: Option<String>,
    /// The kind of request and response whose delay is measured; absent: none. 128 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Delay>,
    /// Prefixes of sources whose TCP packets are out of order; absent: not measured. 40 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reordering: Option<Reordering>,
    /// Who has most of the traffic; absent: not measured. 40 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heavy_hitters: Option<HeavyHitters>,
    /// Distinct flows, sources and destination ports; absent: not measured. 72 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cardinality: Option<Cardinality>,
    /// Always refused: one-way delay and loss (Rda, Finecomb, Lda) need the same stream at both ends at once, which
    /// network.streams of both NIC agents configure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub one_way: Option<String>,
}

/// Which packets of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum Direction {
    /// To one of their addresses.
    #[default]
    Received,
    /// From one of their addresses.
    Sent,
    /// To or from one of their addresses.
    Both,
}

/// Kinds of requests and responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum Delay {
    /// Handshakes of TCP connections.
    Handshake,
    /// TCP data and its acknowledgement.
    Data,
    /// TCP connections, from beginning to end.
    Flow,
    /// DNS queries and their responses.
    Dns,
    /// NTP queries and their responses.
    Ntp,
}

impl Delay {
    /// Its name in messages and in the NIC agent's configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Data => "data",
            Self::Flow => "flow",
            Self::Dns => "dns",
            Self::Ntp => "ntp",
        }
    }
}

/// Settings of reordering by prefix: there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reordering {}

/// Settings of heavy hitters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeavyHitters {
    /// What is weighed.
    #[serde(default)]
    pub by: Party,
    /// By what it is weighed.
    #[serde(default)]
    pub weight: Weight,
}

/// What has a weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum Party {
    /// By source addresses.
    #[default]
    Source,
    /// By destination addresses.
    Destination,
    /// Both addresses, both ports, and the protocol.
    Flow,
    /// By destination ports.
    Port,
}

impl Party {
    /// Its name in messages and in the NIC agent's configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
            Self::Flow => "flow",
            Self::Port => "port",
        }
    }
}

/// What a weight is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum Weight {
    /// Number of packets.
    Packets,
    /// Bytes of TCP and UDP.
    #[default]
    Bytes,
}

impl Weight {
    /// Its name in messages and in the NIC agent's configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Bytes => "bytes",
        }
    }
}

/// Settings of distinct items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(rules::WINDOW.cel).message(rules::WINDOW.message),
)]
pub struct Cardinality {
    /// They are counted over the last so much time, from 100ms to 1h; absent: an interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10))]
    pub window: Option<String>,
}
