//! Encodes and decodes messages (`wire/proto/gossip.proto`). A message from another node is untrusted input: it is
//! bounded, and refused as a whole if any part is invalid.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use wire::proto::gossip as proto;
use wire::proto::gossip::entry::Item as ProtoItem;
use wire::proto::gossip::reason::Reason as ProtoReason;
use wire::time::{Nanos, UnixNanos};

use crate::coherence::item::{Decision, Entry, Item, KnownPath, OperationRef, PathPiece, Run, RunId, ServiceVerdict};
use crate::coherence::member::MAX_VERSIONS;
use crate::coherence::message::{Entries, GossipMessage, VersionVector};
use crate::tracing::{Metric, Rank, Reason, ScoreBreakdown, TraceId};

/// Largest encoded message that a node accepts: 4 MiB.
pub const MAX_MESSAGE_BYTES: usize = 4 << 20;
/// Runs in one message.
const MAX_RUNS: usize = MAX_VERSIONS;
/// Entries in one message.
const MAX_ENTRIES: usize = 1 << 16;
/// Metrics of one reason, and services of one piece of a path.
const MAX_PARTS: usize = 256;
/// Bytes of a name or a text.
const NAME_BYTES: usize = 512;
/// Bytes of a node's name: a DNS name's.
const NODE_BYTES: usize = 253;
/// Largest entry number. A run that appends a million entries a second reaches it after 285 years.
const MAX_NUMBER: u64 = 1 << 53;

/// A message that cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A required field is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// More elements than a message may have.
    #[error("{found} {what} in one message, at most {most} are allowed")]
    TooMany {
        /// The elements: runs, entries, services …
        what: &'static str,
        /// Number of them in the message.
        found: usize,
        /// Largest allowed number.
        most: usize,
    },
    /// A name that is empty where it must not be, too long, or has control characters.
    #[error("a name of {0} bytes, expected 1 to 512 bytes without control characters")]
    Name(usize),
    /// A node's name that is longer than a DNS name.
    #[error("a node's name of {0} bytes, at most 253 are allowed")]
    Node(usize),
    /// A trace id is not 16 bytes, or they are all zero.
    #[error("a trace id of {0} bytes, expected 16 bytes, not all zero")]
    Trace(usize),
    /// An entry number above 2^53.
    #[error("entry number {0} is above 2^53")]
    Number(u64),
    /// An index that no reason of the message has.
    #[error("the message has no reason {0}")]
    Reason(u32),
    /// A number is NaN or infinite.
    #[error("a weight, score or value is not finite")]
    NotFinite,
}

fn bounded<T>(what: &'static str, all: &[T], most: usize) -> Result<(), DecodeError> {
    let found = all.len();
    if found <= most { Ok(()) } else { Err(DecodeError::TooMany { what, found, most }) }
}

fn name(text: &str) -> Result<Arc<str>, DecodeError> {
    let fits = (1..=NAME_BYTES).contains(&text.len()) && !text.contains(char::is_control);
    if fits { Ok(text.into()) } else { Err(DecodeError::Name(text.len())) }
}

/// A name that may be empty, or a text of another origin.
fn text(text: &str) -> Result<Box<str>, DecodeError> {
    if text.len() <= NAME_BYTES { Ok(text.into()) } else { Err(DecodeError::Name(text.len())) }
}

fn names(all: &[String]) -> Result<Vec<Arc<str>>, DecodeError> {
    bounded("services", all, MAX_PARTS)?;
    all.iter().map(|one| name(one)).collect()
}

fn finite(number: f64) -> Result<f64, DecodeError> {
    if number.is_finite() { Ok(number) } else { Err(DecodeError::NotFinite) }
}

fn number(number: u64) -> Result<u64, DecodeError> {
    if number <= MAX_NUMBER { Ok(number) } else { Err(DecodeError::Number(number)) }
}

fn trace(bytes: &[u8]) -> Result<TraceId, DecodeError> {
    TraceId::from_slice(bytes).ok_or(DecodeError::Trace(bytes.len()))
}

fn run(run: Option<&proto::Run>) -> Result<Run, DecodeError> {
    let run = run.ok_or(DecodeError::Missing("run"))?;
    let id = NonZeroU64::new(run.id).ok_or(DecodeError::Missing("a run's id"))?;
    let node = name(&run.node)?;
    if node.len() > NODE_BYTES {
        return Err(DecodeError::Node(node.len()));
    }
    Ok(Run { node, id: RunId(id) })
}

fn of_run(run: &Run) -> proto::Run {
    proto::Run { node: run.node.as_ref().into(), id: run.id.0.get() }
}

impl GossipMessage {
    /// Encodes the message. A reason of the floor is not sent: every node finds the floor's traces by itself.
    #[must_use]
    pub fn encode(&self) -> proto::GossipMessage {
        let versions = self.versions.iter().map(|(run, next)| proto::Version { run: Some(of_run(run)), next: *next });
        proto::GossipMessage {
            run: Some(of_run(&self.run)),
            level: self.level.map(Rank::position),
            versions: versions.collect(),
            entries: self.entries.iter().map(encode_entries).collect(),
            leaving: self.leaving,
            to: self.to.as_ref().map(of_run),
            appended: self.appended,
        }
    }

    /// Decodes and checks a message.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] with the first thing that does not hold.
    pub fn decode(message: &proto::GossipMessage) -> Result<Self, DecodeError> {
        bounded("runs", &message.versions, MAX_RUNS)?;
        bounded("runs", &message.entries, MAX_RUNS)?;
        let mut versions = VersionVector::new();
        for version in &message.versions {
            versions.insert(run(version.run.as_ref())?, number(version.next)?);
        }
        Ok(Self {
            run: run(message.run.as_ref())?,
            level: message.level.map(Rank::at),
            versions,
            entries: message.entries.iter().map(decode_entries).collect::<Result<_, _>>()?,
            leaving: message.leaving,
            to: message.to.as_ref().map(|to| run(Some(to))).transpose()?,
            appended: number(message.appended)?,
        })
    }
}

/// Reasons of one message, each once.
#[derive(Default)]
struct Reasons {
    indexes: BTreeMap<*const Reason, u32>,
    all: Vec<proto::Reason>,
}

impl Reasons {
    fn index(&mut self, reason: &Arc<Reason>) -> u32 {
        let next = self.all.len() as u32;
        let index = *self.indexes.entry(Arc::as_ptr(reason)).or_insert(next);
        if index == next {
            self.all.push(proto::Reason { reason: of_reason(reason) });
        }
        index
    }
}

fn encode_entries(block: &Entries) -> proto::Entries {
    let mut reasons = Reasons::default();
    let entries = block.entries.iter().map(|entry| {
        let item = match &entry.item {
            Item::Keep(Decision { tenant, trace, reason, began }) => ProtoItem::Keep(proto::Decision {
                trace: trace.bytes().to_vec(),
                reason: reasons.index(reason),
                began_unix_ns: began.map_or(0, |began| began.0),
                tenant: tenant.as_ref().into(),
            }),
            Item::Verdict(ServiceVerdict { service, from, at, weight, breakdown, reason }) => {
                ProtoItem::Verdict(proto::Verdict {
                    service: service.as_ref().into(),
                    at_unix_ns: at.0,
                    weight: *weight,
                    reason: reasons.index(reason),
                    breakdown: breakdown.as_deref().map(encode_breakdown),
                    from_unix_ns: from.0,
                })
            }
            Item::Piece(PathPiece { tenant, trace, services, requested }) => ProtoItem::Piece(proto::PathPiece {
                trace: trace.bytes().to_vec(),
                services: services.iter().map(|service| service.as_ref().into()).collect(),
                tenant: tenant.as_ref().into(),
                requested: encode_requested(requested),
            }),
            Item::Path(KnownPath { tenant, service, operation, services, requested }) => {
                ProtoItem::Path(proto::KnownPath {
                    service: service.as_ref().into(),
                    operation: operation.as_ref().into(),
                    services: services.iter().map(|service| service.as_ref().into()).collect(),
                    tenant: tenant.as_ref().into(),
                    requested: encode_requested(requested),
                })
            }
        };
        proto::Entry { at_unix_ns: entry.at.0, carried_out: entry.carried_out, item: Some(item) }
    });
    let entries = entries.collect();
    proto::Entries { run: Some(of_run(&block.run)), first: block.first, entries, reasons: reasons.all }
}

fn decode_entries(block: &proto::Entries) -> Result<Entries, DecodeError> {
    bounded("entries", &block.entries, MAX_ENTRIES)?;
    bounded("reasons", &block.reasons, MAX_ENTRIES)?;
    let reasons: Vec<_> = block.reasons.iter().map(reason).collect::<Result<_, _>>()?;
    let entries = block.entries.iter().map(|entry| self::entry(entry, &reasons)).collect::<Result<_, _>>()?;
    // The receiver passes its position on: that has to be a number that others accept.
    number(block.first.saturating_add(block.entries.len() as u64))?;
    Ok(Entries { run: run(block.run.as_ref())?, first: block.first, entries })
}

fn entry(entry: &proto::Entry, reasons: &[Arc<Reason>]) -> Result<Entry, DecodeError> {
    let reason = |place: u32| reasons.get(place as usize).map(Arc::clone).ok_or(DecodeError::Reason(place));
    let item = match entry.item.as_ref().ok_or(DecodeError::Missing("an entry's item"))? {
        ProtoItem::Keep(keep) => Item::Keep(Decision {
            tenant: text(&keep.tenant)?.into(),
            trace: trace(&keep.trace)?,
            reason: reason(keep.reason)?,
            began: (keep.began_unix_ns != 0).then_some(UnixNanos(keep.began_unix_ns)),
        }),
        ProtoItem::Verdict(verdict) => Item::Verdict(ServiceVerdict {
            service: name(&verdict.service)?,
            from: UnixNanos(if verdict.from_unix_ns == 0 { verdict.at_unix_ns } else { verdict.from_unix_ns }),
            at: UnixNanos(verdict.at_unix_ns),
            weight: finite(verdict.weight)?,
            breakdown: verdict.breakdown.as_ref().map(breakdown).transpose()?.map(Arc::new),
            reason: reason(verdict.reason)?,
        }),
        ProtoItem::Piece(piece) => Item::Piece(PathPiece {
            tenant: text(&piece.tenant)?.into(),
            trace: trace(&piece.trace)?,
            services: names(&piece.services)?,
            requested: requested(&piece.requested)?,
        }),
        ProtoItem::Path(path) => Item::Path(KnownPath {
            tenant: text(&path.tenant)?.into(),
            service: name(&path.service)?,
            operation: name(&path.operation)?,
            services: names(&path.services)?,
            requested: requested(&path.requested)?,
        }),
    };
    Ok(Entry { at: UnixNanos(entry.at_unix_ns), carried_out: entry.carried_out, item })
}

fn encode_requested(requested: &[OperationRef]) -> Vec<proto::OperationRef> {
    let of =
        |(service, operation): &OperationRef| proto::OperationRef { service: cut(service), operation: cut(operation) };
    requested.iter().take(MAX_PARTS).map(of).collect()
}

fn requested(all: &[proto::OperationRef]) -> Result<Vec<OperationRef>, DecodeError> {
    bounded("operations", all, MAX_PARTS)?;
    all.iter().map(|one| Ok((name(&one.service)?, name(&one.operation)?))).collect()
}

fn encode_breakdown(breakdown: &ScoreBreakdown) -> proto::ScoreBreakdown {
    let operations = breakdown.operations.iter().take(MAX_PARTS);
    let operations = operations.map(|(name, score)| proto::OperationScore { operation: cut(name), score: *score });
    proto::ScoreBreakdown { service_wide: breakdown.service_wide, operations: operations.collect() }
}

fn breakdown(breakdown: &proto::ScoreBreakdown) -> Result<ScoreBreakdown, DecodeError> {
    bounded("operations", &breakdown.operations, MAX_PARTS)?;
    let operation = |of: &proto::OperationScore| Ok((text(&of.operation)?, finite(of.score)?));
    let operations = breakdown.operations.iter().map(operation).collect::<Result<_, DecodeError>>()?;
    Ok(ScoreBreakdown { service_wide: finite(breakdown.service_wide)?, operations })
}

fn of_reason(reason: &Reason) -> Option<ProtoReason> {
    Some(match reason {
        Reason::Floor { .. } => return None,
        Reason::Error { service, operation } => {
            ProtoReason::Error(proto::ErrorReason { service: cut(service), operation: cut(operation) })
        }
        Reason::Lmap { service, score, gamma, metrics, incident } => {
            let metrics = metrics.iter().take(MAX_PARTS).map(|metric| proto::Metric {
                title: cut(&metric.title),
                unit: cut(&metric.unit),
                seen: metric.seen,
                expected: metric.expected,
                of_distribution: metric.of_distribution,
                replica: cut(&metric.replica),
            });
            let metrics = metrics.collect();
            ProtoReason::Lmap(proto::LmapReason {
                service: cut(service),
                score: *score,
                gamma: *gamma,
                metrics,
                incident: cut(incident),
            })
        }
        Reason::Latency { operation, took, quantile, usual } => ProtoReason::Latency(proto::LatencyReason {
            operation: cut(operation),
            took_ns: took.0,
            quantile: *quantile,
            usual_ns: usual.0,
        }),
        Reason::Trigger { text } => ProtoReason::Trigger(proto::TriggerReason { text: cut(text) }),
    })
}

/// `text`, cut to the length that a message may carry.
fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(NAME_BYTES)].to_owned()
}

fn reason(reason: &proto::Reason) -> Result<Arc<Reason>, DecodeError> {
    Ok(Arc::new(match reason.reason.as_ref().ok_or(DecodeError::Missing("a reason"))? {
        ProtoReason::Error(error) => {
            Reason::Error { service: text(&error.service)?, operation: text(&error.operation)? }
        }
        ProtoReason::Lmap(lmap) => {
            bounded("metrics", &lmap.metrics, MAX_PARTS)?;
            let metric = |metric: &proto::Metric| {
                let (title, unit, replica) = (text(&metric.title)?, text(&metric.unit)?, text(&metric.replica)?);
                let proto::Metric { seen, expected, of_distribution, .. } = *metric;
                Ok(Metric { title, unit, seen, expected, of_distribution, replica })
            };
            let metrics = lmap.metrics.iter().map(metric).collect::<Result<_, DecodeError>>()?;
            let (score, gamma) = (finite(lmap.score)?, finite(lmap.gamma)?);
            Reason::Lmap { service: text(&lmap.service)?, score, gamma, metrics, incident: text(&lmap.incident)? }
        }
        ProtoReason::Latency(latency) => Reason::Latency {
            operation: text(&latency.operation)?,
            took: Nanos(latency.took_ns),
            quantile: finite(latency.quantile)?,
            usual: Nanos(latency.usual_ns),
        },
        ProtoReason::Trigger(trigger) => Reason::Trigger { text: text(&trigger.text)? },
    }))
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    fn metric() -> Metric {
        Metric {
            title: "p99".into(),
            unit: "s".into(),
            seen: 0.18,
            expected: 0.02,
            of_distribution: true,
            replica: "payment-1".into(),
        }
    }

    fn message() -> GossipMessage {
        let run = |node: &str, id| Run { node: node.into(), id: RunId(NonZeroU64::new(id).unwrap()) };
        let trace = |number: u8| TraceId::new([number; 16]).unwrap();
        let lmap = Reason::Lmap {
            service: "payment".into(),
            score: 9.0,
            gamma: 3.0,
            metrics: [metric()].into(),
            incident: "".into(),
        };
        let (lmap, tenant) = (Arc::new(lmap), Arc::<str>::from("shop"));
        let latency = Reason::Latency {
            operation: "POST /pay".into(),
            took: Nanos::from_millis(900),
            quantile: 0.99,
            usual: Nanos::from_millis(80),
        };
        let keep = |number, reason: &Arc<Reason>, began: Option<u64>| {
            let (reason, began) = (Arc::clone(reason), began.map(UnixNanos));
            Item::Keep(Decision { tenant: Arc::clone(&tenant), trace: trace(number), reason, began })
        };
        let (service, at) = (Arc::from("payment"), UnixNanos(7));
        let services = vec![Arc::from("payment"), Arc::from("ledger")];
        let requested = vec![(Arc::from("payment"), Arc::from("Charge"))];
        let breakdown = ScoreBreakdown { service_wide: 0.5, operations: [("Charge".into(), 2.5)].into() };
        let items = [
            keep(1, &lmap, Some(5)),
            keep(2, &lmap, None),
            keep(3, &Arc::new(latency), None),
            keep(4, &Arc::new(Reason::Error { service: "a".into(), operation: "b".into() }), None),
            keep(5, &Arc::new(Reason::Trigger { text: "refund".into() }), None),
            Item::Verdict(ServiceVerdict {
                service,
                from: UnixNanos(4),
                at,
                weight: 3.0,
                breakdown: Some(Arc::new(breakdown)),
                reason: lmap,
            }),
            Item::Piece(PathPiece {
                tenant: Arc::clone(&tenant),
                trace: trace(6),
                services: services.clone(),
                requested: requested.clone(),
            }),
            Item::Path(KnownPath {
                tenant,
                service: "frontend".into(),
                operation: "POST /pay".into(),
                services,
                requested,
            }),
        ];
        let entry = |item| Entry { at: UnixNanos(9), carried_out: true, item };
        let entries = items.into_iter().map(entry).collect();
        GossipMessage {
            run: run("a", 1),
            level: Some(Rank::at(8)),
            versions: [(run("a", 1), 4), (run("b", 2), 9)].into(),
            entries: vec![Entries { run: run("b", 2), first: 3, entries }],
            leaving: true,
            to: Some(run("b", 2)),
            appended: 5,
        }
    }

    #[test]
    fn a_message_survives_encoding_and_a_reason_is_sent_once() {
        let encoded = message().encode();

        let decoded =
            GossipMessage::decode(&proto::GossipMessage::decode(&encoded.encode_to_vec()[..]).unwrap()).unwrap();

        assert_eq!(decoded, message());
        // Five decisions and an output have four reasons.
        assert_eq!(encoded.entries[0].reasons.len(), 4);
    }

    #[test]
    fn an_invalid_message_is_refused_with_its_cause() {
        type Spoil = fn(&mut proto::GossipMessage);
        let entry = |message: &mut proto::GossipMessage, item| message.entries[0].entries[0].item = Some(item);
        let decision =
            |trace: Vec<u8>, reason| ProtoItem::Keep(proto::Decision { trace, reason, ..proto::Decision::default() });
        let mut spoilt = message().encode();
        entry(&mut spoilt, decision(vec![1; 15], 0));
        assert_eq!(GossipMessage::decode(&spoilt).unwrap_err(), DecodeError::Trace(15));
        entry(&mut spoilt, decision(vec![1; 16], 4));
        assert_eq!(GossipMessage::decode(&spoilt).unwrap_err(), DecodeError::Reason(4));
        let cases: [(Spoil, DecodeError); 9] = [
            (|message| message.run = None, DecodeError::Missing("run")),
            (|message| message.to = Some(proto::Run { node: "b".into(), id: 0 }), DecodeError::Missing("a run's id")),
            (|message| message.to = Some(proto::Run { node: "b".repeat(254), id: 1 }), DecodeError::Node(254)),
            (|message| message.appended = (1 << 53) + 1, DecodeError::Number((1 << 53) + 1)),
            (|message| message.versions[0].next = u64::MAX, DecodeError::Number(u64::MAX)),
            (|message| message.entries[0].first = (1 << 53) - 1, DecodeError::Number((1 << 53) + 7)),
            (|message| message.entries[0].entries[0].item = None, DecodeError::Missing("an entry's item")),
            (|message| message.entries[0].reasons[0].reason = None, DecodeError::Missing("a reason")),
            (
                |message| message.versions = vec![proto::Version::default(); 1_025],
                DecodeError::TooMany { what: "runs", found: 1_025, most: 1_024 },
            ),
        ];
        for (spoil, expected) in cases {
            let mut message = message().encode();
            spoil(&mut message);
            assert_eq!(GossipMessage::decode(&message).unwrap_err(), expected);
        }
    }
}
