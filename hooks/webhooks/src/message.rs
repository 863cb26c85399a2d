//! The JSON message of Alertmanager's webhooks, version 4.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use wire::date::Date;
use wire::time::UnixNanos;

use crate::groups::{Alert, AlertKind, Notification};

/// `endsAt` of a firing alert: Go's zero time.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// Sender of messages: values that are the same in all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    /// Name of the receiver in the configuration.
    pub receiver: String,
    /// URL of the agent's page; empty if there is none.
    pub external_url: String,
    /// Name of this node.
    pub node: String,
    /// Where people find an incident: a URL in which [`NODE`] and [`INCIDENT`] stand for the node's name and for the
    /// incident's. `None`: messages have the incident's address only.
    pub incident_link: Option<String>,
}

/// What stands for the name of the node in a link.
pub const NODE: &str = "{node}";
/// What stands for the name of the incident in a link.
pub const INCIDENT: &str = "{incident}";

impl Sender {
    /// Where the incident of `address`, node, slash, id, is found.
    fn link(&self, address: &str) -> Option<String> {
        let (node, incident) = address.rsplit_once('/')?;
        let link = self.incident_link.as_ref()?;
        Some(link.replace(INCIDENT, &encoded(incident)).replace(NODE, &encoded(node)))
    }
}

/// `text` as a part of a URL: percent-encoded, but for the unreserved characters of RFC 3986.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

type Labels<'a> = BTreeMap<&'static str, &'a str>;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Message<'a> {
    version: &'static str,
    group_key: String,
    truncated_alerts: u32,
    status: &'static str,
    receiver: &'a str,
    group_labels: Labels<'a>,
    common_labels: Labels<'a>,
    common_annotations: Labels<'a>,
    #[serde(rename = "externalURL")]
    external_url: &'a str,
    alerts: Vec<AlertMessage<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AlertMessage<'a> {
    status: &'static str,
    labels: Labels<'a>,
    annotations: Labels<'a>,
    starts_at: String,
    ends_at: String,
    #[serde(rename = "generatorURL")]
    generator_url: Cow<'a, str>,
    fingerprint: String,
}

const fn status(firing: bool) -> &'static str {
    if firing { "firing" } else { "resolved" }
}

impl<'a> AlertMessage<'a> {
    fn new(service: &'a str, kind: &'a AlertKind, alert: &'a Alert, from: &'a Sender) -> Self {
        let mut labels = Labels::from([("node", &*from.node), ("service", service)]);
        match kind {
            AlertKind::Anomaly => _ = labels.insert("alertname", "UviewAnomaly"),
            AlertKind::SilentReplica(instance) => {
                labels.insert("alertname", "UviewSilentReplica");
                labels.insert("instance", instance);
            }
        }
        let annotations =
            [("summary", &*alert.summary), ("description", &*alert.description), ("incident", &*alert.incident)];
        Self {
            status: status(alert.ended.is_none()),
            fingerprint: format!("{:016x}", fingerprint(&labels)),
            labels,
            annotations: annotations.into_iter().filter(|(_, text)| !text.is_empty()).collect(),
            starts_at: rfc3339(alert.began),
            ends_at: alert.ended.map_or_else(|| NEVER.to_owned(), rfc3339),
            generator_url: from.link(&alert.incident).map_or(Cow::Borrowed(&*from.external_url), Cow::Owned),
        }
    }
}

/// Renders `notification` as JSON.
#[must_use]
pub fn render(notification: &Notification<'_>, from: &Sender) -> Vec<u8> {
    let service = notification.service;
    let alerts: Vec<_> =
        notification.alerts.iter().map(|(kind, alert)| AlertMessage::new(service, kind, alert, from)).collect();
    let message = Message {
        version: "4",
        group_key: format!("{{}}:{{service={service:?}}}"),
        truncated_alerts: 0,
        status: status(notification.alerts.values().any(|alert| alert.ended.is_none())),
        receiver: &from.receiver,
        group_labels: Labels::from([("service", service)]),
        common_labels: shared(alerts.iter().map(|alert| &alert.labels)),
        common_annotations: shared(alerts.iter().map(|alert| &alert.annotations)),
        external_url: &from.external_url,
        alerts,
    };
    // Only maps of text and numbers: serializing them does not fail.
    serde_json::to_vec(&message).unwrap_or_default()
}

/// Labels that all have in common.
fn shared<'l, 'a: 'l>(mut all: impl Iterator<Item = &'l Labels<'a>>) -> Labels<'a> {
    let mut shared = all.next().cloned().unwrap_or_default();
    for labels in all {
        shared.retain(|name, value| labels.get(name) == Some(value));
    }
    shared
}

/// Prometheus' fingerprint of a label set: FNV-1a over names and values, each followed by a byte that is not in UTF-8.
fn fingerprint(labels: &Labels<'_>) -> u64 {
    let texts = labels.iter().flat_map(|(name, value)| [*name, *value]);
    let bytes = texts.flat_map(|text| text.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Formats a time as RFC 3339 in UTC, in milliseconds.
fn rfc3339(at: UnixNanos) -> String {
    let (seconds, millis) = (at.second(), at.millis() % 1_000);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z", Date::of(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_calendars_have_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (4_102_444_800, "2100-01-01T00:00:00.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(UnixNanos::from_secs(seconds)), text);
        }
        assert_eq!(rfc3339(UnixNanos(1_700_000_000_123_456_789)), "2023-11-14T22:13:20.123Z");
    }

    #[test]
    fn labels_have_the_fingerprint_that_prometheus_gives_them() {
        // LabelSet.Fingerprint of prometheus/common: the offset for none.
        assert_eq!(fingerprint(&Labels::new()), 0xcbf2_9ce4_8422_2325);
        let one = fingerprint(&Labels::from([("a", "b")]));
        let by_hand = [b'a', 0xff, b'b', 0xff].iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        assert_eq!(one, by_hand);
    }
}
