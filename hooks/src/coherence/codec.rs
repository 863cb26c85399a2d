//! Words as they travel (`wire/proto/coherence.proto`), and back, bounded. What another node says is data: what does not hold is refused as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::proto::coherence as proto;
use wire::proto::coherence::entry::Item as ProtoItem;
use wire::proto::coherence::reason::Reason as ProtoReason;
use wire::time::Nanos;

use crate::coherence::item::{Asked, Decision, Entry, Item, KnownPath, Output, PathPiece, Run};
use crate::coherence::words::{Digest, Said, Words};
use crate::time::UnixNanos;
use crate::tracing::{Metric, Parts, Rank, Reason, TraceId};

/// The largest message that a node takes.
pub const MAX_WORDS_BYTES: usize = 4 << 20;
/// Runs of which a message may speak.
const MOST_RUNS: usize = 1_024;
/// Entries in one message.
const MOST_ENTRIES: usize = 1 << 16;
/// Metrics of one reason, and services of one piece of a path.
const MOST_PARTS: usize = 256;
/// Bytes of a name or a text.
const NAME_BYTES: usize = 512;
/// Numbers stay below: a run that says a million things a second takes 285 years.
const MOST_NUMBER: u64 = 1 << 53;

/// Why words cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WordsError {
    /// A field without which the message says nothing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// More than is taken.
    #[error("{found} {what} in one message: at most {most} are taken")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        found: usize,
        /// How many are possible.
        most: usize,
    },
    /// A name that is empty where it must not be, too long, or has control characters.
    #[error("a name of {0} bytes: 1 to 512 printable ones are needed")]
    Name(usize),
    /// A trace id is not 16 bytes, or they are all zero.
    #[error("{0} bytes are no trace id: 16, not all zero, are needed")]
    Trace(usize),
    /// A number beyond all that can have been said.
    #[error("number {0} is above 2^53")]
    Number(u64),
    /// A reason that the message does not have.
    #[error("reason {0} is not in the message")]
    Reason(u32),
    /// A number that is none.
    #[error("a weight, score or value is not finite")]
    NotFinite,
}

fn bounded<T>(what: &'static str, all: &[T], most: usize) -> Result<(), WordsError> {
    let found = all.len();
    if found <= most { Ok(()) } else { Err(WordsError::TooMany { what, found, most }) }
}

fn name(text: &str) -> Result<Arc<str>, WordsError> {
    let fits = (1..=NAME_BYTES).contains(&text.len()) && !text.contains(char::is_control);
    if fits { Ok(text.into()) } else { Err(WordsError::Name(text.len())) }
}

/// A name that may be empty, or a text that someone else wrote.
fn text(text: &str) -> Result<Box<str>, WordsError> {
    if text.len() <= NAME_BYTES { Ok(text.into()) } else { Err(WordsError::Name(text.len())) }
}

fn names(all: &[String]) -> Result<Vec<Arc<str>>, WordsError> {
    bounded("services", all, MOST_PARTS)?;
    all.iter().map(|one| name(one)).collect()
}

fn finite(number: f64) -> Result<f64, WordsError> {
    if number.is_finite() { Ok(number) } else { Err(WordsError::NotFinite) }
}

fn number(number: u64) -> Result<u64, WordsError> {
    if number <= MOST_NUMBER { Ok(number) } else { Err(WordsError::Number(number)) }
}

fn trace(bytes: &[u8]) -> Result<TraceId, WordsError> {
    TraceId::from_slice(bytes).ok_or(WordsError::Trace(bytes.len()))
}

fn run(run: Option<&proto::Run>) -> Result<Run, WordsError> {
    let run = run.ok_or(WordsError::Missing("run"))?;
    Ok(Run { node: name(&run.node)?, began: UnixNanos(run.began_unix_ns) })
}

fn of_run(run: &Run) -> proto::Run {
    proto::Run { node: run.node.as_ref().into(), began_unix_ns: run.began.0 }
}

impl Words {
    /// As a message. A reason of the floor does not travel: every node finds the floor's traces by itself.
    #[must_use]
    pub fn encode(&self) -> proto::Words {
        let have = self.digest.iter().map(|(run, next)| proto::Have { run: Some(of_run(run)), next: *next });
        proto::Words {
            run: Some(of_run(&self.run)),
            level: self.level.map(Rank::position),
            have: have.collect(),
            said: self.said.iter().map(said).collect(),
            leaving: self.leaving,
            to: self.to.as_ref().map(of_run),
        }
    }

    /// A message, read.
    ///
    /// # Errors
    ///
    /// [`WordsError`] with the first thing that does not hold.
    pub fn decode(words: &proto::Words) -> Result<Self, WordsError> {
        bounded("runs", &words.have, MOST_RUNS)?;
        bounded("runs", &words.said, MOST_RUNS)?;
        let mut digest = Digest::new();
        for have in &words.have {
            digest.insert(run(have.run.as_ref())?, number(have.next)?);
        }
        Ok(Self {
            run: run(words.run.as_ref())?,
            level: words.level.map(Rank::at),
            digest,
            said: words.said.iter().map(heard).collect::<Result<_, _>>()?,
            leaving: words.leaving,
            to: words.to.as_ref().map(|to| run(Some(to))).transpose()?,
        })
    }
}

/// Reasons of one message, each once.
#[derive(Default)]
struct Reasons {
    places: BTreeMap<*const Reason, u32>,
    all: Vec<proto::Reason>,
}

impl Reasons {
    fn place(&mut self, reason: &Arc<Reason>) -> u32 {
        let next = self.all.len() as u32;
        let place = *self.places.entry(Arc::as_ptr(reason)).or_insert(next);
        if place == next {
            self.all.push(proto::Reason { reason: of_reason(reason) });
        }
        place
    }
}

fn said(said: &Said) -> proto::Said {
    let mut reasons = Reasons::default();
    let entries = said.entries.iter().map(|entry| {
        let item = match &entry.item {
            Item::Keep(Decision { tenant, trace, reason, began }) => ProtoItem::Keep(proto::Decision {
                trace: trace.bytes().to_vec(),
                reason: reasons.place(reason),
                began_unix_ns: began.map_or(0, |began| began.0),
                tenant: tenant.as_ref().into(),
            }),
            Item::Output(Output { service, from, at, weight, parts, reason }) => ProtoItem::Output(proto::Output {
                service: service.as_ref().into(),
                at_unix_ns: at.0,
                weight: *weight,
                reason: reasons.place(reason),
                parts: parts.as_deref().map(of_parts),
                from_unix_ns: from.0,
            }),
            Item::Piece(PathPiece { tenant, trace, services, asked }) => ProtoItem::Piece(proto::PathPiece {
                trace: trace.bytes().to_vec(),
                services: services.iter().map(|service| service.as_ref().into()).collect(),
                tenant: tenant.as_ref().into(),
                asked: of_asked(asked),
            }),
            Item::Path(KnownPath { tenant, service, operation, services, asked }) => {
                ProtoItem::Path(proto::KnownPath {
                    service: service.as_ref().into(),
                    operation: operation.as_ref().into(),
                    services: services.iter().map(|service| service.as_ref().into()).collect(),
                    tenant: tenant.as_ref().into(),
                    asked: of_asked(asked),
                })
            }
        };
        proto::Entry { said_unix_ns: entry.said.0, dealt_with: entry.dealt_with, item: Some(item) }
    });
    let entries = entries.collect();
    proto::Said { run: Some(of_run(&said.run)), first: said.first, entries, reasons: reasons.all }
}

fn heard(said: &proto::Said) -> Result<Said, WordsError> {
    bounded("entries", &said.entries, MOST_ENTRIES)?;
    bounded("reasons", &said.reasons, MOST_ENTRIES)?;
    let reasons: Vec<_> = said.reasons.iter().map(reason).collect::<Result<_, _>>()?;
    let entries = said.entries.iter().map(|entry| self::entry(entry, &reasons)).collect::<Result<_, _>>()?;
    Ok(Said { run: run(said.run.as_ref())?, first: number(said.first)?, entries })
}

fn entry(entry: &proto::Entry, reasons: &[Arc<Reason>]) -> Result<Entry, WordsError> {
    let reason = |place: u32| reasons.get(place as usize).map(Arc::clone).ok_or(WordsError::Reason(place));
    let item = match entry.item.as_ref().ok_or(WordsError::Missing("an entry's item"))? {
        ProtoItem::Keep(keep) => Item::Keep(Decision {
            tenant: text(&keep.tenant)?.into(),
            trace: trace(&keep.trace)?,
            reason: reason(keep.reason)?,
            began: (keep.began_unix_ns != 0).then_some(UnixNanos(keep.began_unix_ns)),
        }),
        ProtoItem::Output(output) => Item::Output(Output {
            service: name(&output.service)?,
            from: UnixNanos(if output.from_unix_ns == 0 { output.at_unix_ns } else { output.from_unix_ns }),
            at: UnixNanos(output.at_unix_ns),
            weight: finite(output.weight)?,
            parts: output.parts.as_ref().map(parts).transpose()?.map(Arc::new),
            reason: reason(output.reason)?,
        }),
        ProtoItem::Piece(piece) => Item::Piece(PathPiece {
            tenant: text(&piece.tenant)?.into(),
            trace: trace(&piece.trace)?,
            services: names(&piece.services)?,
            asked: asked(&piece.asked)?,
        }),
        ProtoItem::Path(path) => Item::Path(KnownPath {
            tenant: text(&path.tenant)?.into(),
            service: name(&path.service)?,
            operation: name(&path.operation)?,
            services: names(&path.services)?,
            asked: asked(&path.asked)?,
        }),
    };
    Ok(Entry { said: UnixNanos(entry.said_unix_ns), dealt_with: entry.dealt_with, item })
}

fn of_asked(asked: &[Asked]) -> Vec<proto::Asked> {
    let of = |(service, operation): &Asked| proto::Asked { service: cut(service), operation: cut(operation) };
    asked.iter().take(MOST_PARTS).map(of).collect()
}

fn asked(all: &[proto::Asked]) -> Result<Vec<Asked>, WordsError> {
    bounded("operations", all, MOST_PARTS)?;
    all.iter().map(|one| Ok((name(&one.service)?, name(&one.operation)?))).collect()
}

fn of_parts(parts: &Parts) -> proto::Parts {
    let operations = parts.operations.iter().take(MOST_PARTS);
    let operations = operations.map(|(name, part)| proto::OperationPart { operation: cut(name), part: *part });
    proto::Parts { whole: parts.whole, operations: operations.collect() }
}

fn parts(parts: &proto::Parts) -> Result<Parts, WordsError> {
    bounded("operations", &parts.operations, MOST_PARTS)?;
    let operation = |of: &proto::OperationPart| Ok((text(&of.operation)?, finite(of.part)?));
    let operations = parts.operations.iter().map(operation).collect::<Result<_, WordsError>>()?;
    Ok(Parts { whole: finite(parts.whole)?, operations })
}

fn of_reason(reason: &Reason) -> Option<ProtoReason> {
    Some(match reason {
        Reason::Floor { .. } => return None,
        Reason::Error { service, operation } => {
            ProtoReason::Error(proto::ErrorReason { service: cut(service), operation: cut(operation) })
        }
        Reason::Lmap { service, score, gamma, metrics } => {
            let metrics = metrics.iter().take(MOST_PARTS).map(|metric| proto::Metric {
                title: cut(&metric.title),
                unit: cut(&metric.unit),
                seen: metric.seen,
                expected: metric.expected,
            });
            let metrics = metrics.collect();
            ProtoReason::Lmap(proto::LmapReason { service: cut(service), score: *score, gamma: *gamma, metrics })
        }
        Reason::Latency { operation, took, quantile, usual } => ProtoReason::Latency(proto::LatencyReason {
            operation: cut(operation),
            took_ns: took.0,
            quantile: *quantile,
            usual_ns: usual.0,
        }),
        Reason::Code { text } => ProtoReason::Code(proto::CodeReason { text: cut(text) }),
    })
}

/// So much of `text` as may travel.
fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(NAME_BYTES)].to_owned()
}

fn reason(reason: &proto::Reason) -> Result<Arc<Reason>, WordsError> {
    Ok(Arc::new(match reason.reason.as_ref().ok_or(WordsError::Missing("a reason"))? {
        ProtoReason::Error(error) => {
            Reason::Error { service: text(&error.service)?, operation: text(&error.operation)? }
        }
        ProtoReason::Lmap(lmap) => {
            bounded("metrics", &lmap.metrics, MOST_PARTS)?;
            let metric = |metric: &proto::Metric| {
                let (seen, expected) = (metric.seen, metric.expected);
                Ok(Metric { title: text(&metric.title)?, unit: text(&metric.unit)?, seen, expected })
            };
            let metrics = lmap.metrics.iter().map(metric).collect::<Result<_, WordsError>>()?;
            let (score, gamma) = (finite(lmap.score)?, finite(lmap.gamma)?);
            Reason::Lmap { service: text(&lmap.service)?, score, gamma, metrics }
        }
        ProtoReason::Latency(latency) => Reason::Latency {
            operation: text(&latency.operation)?,
            took: Nanos(latency.took_ns),
            quantile: finite(latency.quantile)?,
            usual: Nanos(latency.usual_ns),
        },
        ProtoReason::Code(code) => Reason::Code { text: text(&code.text)? },
    }))
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    fn words() -> Words {
        let run = |node: &str, began| Run { node: node.into(), began: UnixNanos(began) };
        let trace = |number: u8| TraceId::new([number; 16]).unwrap();
        let metric = Metric { title: "p99".into(), unit: "s".into(), seen: 0.18, expected: 0.02 };
        let lmap = Reason::Lmap { service: "payment".into(), score: 9.0, gamma: 3.0, metrics: [metric].into() };
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
        let asked = vec![(Arc::from("payment"), Arc::from("Charge"))];
        let parts = Parts { whole: 0.5, operations: [("Charge".into(), 2.5)].into() };
        let items = [
            keep(1, &lmap, Some(5)),
            keep(2, &lmap, None),
            keep(3, &Arc::new(latency), None),
            keep(4, &Arc::new(Reason::Error { service: "a".into(), operation: "b".into() }), None),
            keep(5, &Arc::new(Reason::Code { text: "refund".into() }), None),
            Item::Output(Output {
                service,
                from: UnixNanos(4),
                at,
                weight: 3.0,
                parts: Some(Arc::new(parts)),
                reason: lmap,
            }),
            Item::Piece(PathPiece {
                tenant: Arc::clone(&tenant),
                trace: trace(6),
                services: services.clone(),
                asked: asked.clone(),
            }),
            Item::Path(KnownPath {
                tenant,
                service: "frontend".into(),
                operation: "POST /pay".into(),
                services,
                asked,
            }),
        ];
        let entry = |item| Entry { said: UnixNanos(9), dealt_with: true, item };
        let entries = items.into_iter().map(entry).collect();
        Words {
            run: run("a", 1),
            level: Some(Rank::at(8)),
            digest: [(run("a", 1), 4), (run("b", 2), 9)].into(),
            said: vec![Said { run: run("b", 2), first: 3, entries }],
            leaving: true,
            to: Some(run("b", 2)),
        }
    }

    #[test]
    fn words_are_read_as_they_were_said_and_a_reason_travels_once() {
        let said = words().encode();

        let read = Words::decode(&proto::Words::decode(&said.encode_to_vec()[..]).unwrap()).unwrap();

        assert_eq!(read, words());
        // Five decisions and an output have four reasons.
        assert_eq!(said.said[0].reasons.len(), 4);
    }

    #[test]
    fn what_does_not_hold_is_refused_with_what_it_is() {
        type Spoil = fn(&mut proto::Words);
        let entry = |words: &mut proto::Words, item| words.said[0].entries[0].item = Some(item);
        let decision =
            |trace: Vec<u8>, reason| ProtoItem::Keep(proto::Decision { trace, reason, ..proto::Decision::default() });
        let mut spoilt = words().encode();
        entry(&mut spoilt, decision(vec![1; 15], 0));
        assert_eq!(Words::decode(&spoilt).unwrap_err(), WordsError::Trace(15));
        entry(&mut spoilt, decision(vec![1; 16], 4));
        assert_eq!(Words::decode(&spoilt).unwrap_err(), WordsError::Reason(4));
        let cases: [(Spoil, WordsError); 6] = [
            (|words| words.run = None, WordsError::Missing("run")),
            (|words| words.have[0].next = u64::MAX, WordsError::Number(u64::MAX)),
            (|words| words.said[0].first = (1 << 53) + 1, WordsError::Number((1 << 53) + 1)),
            (|words| words.said[0].entries[0].item = None, WordsError::Missing("an entry's item")),
            (|words| words.said[0].reasons[0].reason = None, WordsError::Missing("a reason")),
            (
                |words| words.have = vec![proto::Have::default(); 1_025],
                WordsError::TooMany { what: "runs", found: 1_025, most: 1_024 },
            ),
        ];
        for (spoil, expected) in cases {
            let mut words = words().encode();
            spoil(&mut words);
            assert_eq!(Words::decode(&words).unwrap_err(), expected);
        }
    }
}
