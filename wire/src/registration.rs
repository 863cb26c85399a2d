//! Checked messages between a service and the host agent. See `proto/registration.proto`.

mod shards;
mod subject;

use core::num::NonZeroU64;

use prost::Message as _;

use crate::entries;
use crate::histogram::{Scale, ScaleError};
use crate::layout::{RegionSize, RegionSizeError, Slot};
use crate::metric::{Declaration, Group, Kind, Series};
use crate::name::{InstanceName, Labels, MetricName, NameError, ServiceName, Unit};
use crate::proto::registration as proto;
use crate::time::{Interval, Nanos};

pub use shards::{Shards, ShardsError};
pub use subject::{MAX_SUBJECT_CHARS, MAX_SUBJECTS, Subject};

/// Most series, or slot runs, of one message: as many of usual length as fit into a frame.
pub const MAX_ENTRIES: usize = 8_192;
/// Most labels of one message.
const MAX_LABELS: usize = 65_536;
/// Field numbers on the way to what is repeated in a message of a service, and its limit: series and their labels, slot
/// runs, labels of a hello, subjects.
const REPEATED: [(&[u32], usize); 5] = [
    (&[3, 1], MAX_ENTRIES),
    (&[3, 1, 2], MAX_LABELS),
    (&[4, 1], MAX_ENTRIES),
    (&[1, 4], MAX_LABELS),
    (&[5, 1], MAX_SUBJECTS),
];

/// Version of the protocol. An agent accepts this and every earlier one.
pub const PROTOCOL: u32 = 1;

/// Number of the region that is a service's span ring: just below that of the agent's own region.
pub const SPAN_RING_REGION: u32 = u32::MAX - 1;

/// Label of a replica whose metrics are of another process on the same machine: its number.
pub const PROCESS_LABEL: &str = "process.pid";

/// Identity of a service, sent first. The kernel identifies the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The service that the LMAP watches.
    pub service: ServiceName,
    /// Name of this replica.
    pub instance: InstanceName,
    /// Labels of the replica.
    pub labels: Labels,
    /// Whether the metrics are of this process: then the agent adds process metrics.
    pub process_metrics: bool,
    /// All values, and the heartbeat words, change together at this interval; `None`: at any time.
    pub changes_every: Option<Interval>,
    /// The shortest interval at which they may change while something seems wrong: then heartbeat words are
    /// [times of samples](crate::layout::sample_word). `None`: at `changes_every` only, and heartbeat words are counts.
    pub fastest: Option<Interval>,
}

impl Hello {
    /// A service with metrics of its own process that change at any time.
    #[must_use]
    pub const fn new(service: ServiceName, instance: InstanceName, labels: Labels) -> Self {
        Self { service, instance, labels, process_metrics: true, changes_every: None, fastest: None }
    }

    /// The process that its metrics are of, where that is another one than the sender.
    #[must_use]
    pub fn observed(&self) -> Option<u32> {
        let label = self.labels.iter().find(|(key, _)| *key == PROCESS_LABEL).filter(|_| !self.process_metrics);
        label?.1.parse().ok().filter(|process| *process != 0)
    }
}

/// A series and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedSeries {
    /// Name, labels, kind and unit.
    pub series: Series,
    /// Number of the service's region.
    pub region: u32,
    /// Its first slot in the region.
    pub first: Slot,
    /// The words of a counter; [`Shards::ONE`] for any other kind.
    pub shards: Shards,
    /// What the service declares about it.
    pub declared: Declaration,
}

/// A run of slots in one of a service's regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotRun {
    /// Number of the service's region.
    pub region: u32,
    /// The first slot of the run.
    pub first: Slot,
    /// Number of slots.
    pub slots: u32,
}

/// A message from a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceMessage {
    /// The first message of a connection.
    Hello(Hello),
    /// A region; its memfd is attached.
    AddRegion {
        /// Number chosen by the service, counting up from 0.
        region: u32,
        /// Announced size; the descriptor must agree.
        size: RegionSize,
        /// Version of the layout: [`crate::layout::VERSION`].
        layout_version: u64,
    },
    /// A ring of finished spans (see [`crate::span_record`]); its memfd is attached. At most one per connection.
    AddSpanRing {
        /// Announced size; the descriptor must agree.
        size: RegionSize,
        /// Version of the layout: [`crate::layout::VERSION`].
        layout_version: u64,
        /// Ticket of the first record for this agent.
        first_ticket: u64,
    },
    /// Series. Each is valid or refused by itself, so that an invalid one harms no other.
    AddSeries(Vec<Result<PlacedSeries, RefusedSeries>>),
    /// The service no longer writes these slots.
    Retire(Vec<SlotRun>),
    /// What values of metrics are about at present.
    Subjects(Vec<Subject>),
}

/// A series that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{title}: {cause}")]
pub struct RefusedSeries {
    /// Its name as received, cut to 64 characters.
    pub title: String,
    /// Why it is refused.
    #[source]
    pub cause: SeriesError,
}

/// Why a series is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SeriesError {
    /// An invalid name, label or unit.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Invalid buckets of a histogram.
    #[error(transparent)]
    Scale(#[from] ScaleError),
    /// More words than a counter may have, or none.
    #[error(transparent)]
    Shards(#[from] ShardsError),
    /// A kind of metric of a later release.
    #[error("kind {0} is not known to this release")]
    Kind(i32),
}

/// Why a message is refused. The connection has to be closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The bytes are no protocol buffer.
    #[error("not a message: {0}")]
    Garbage(#[from] prost::DecodeError),
    /// More entries than a message may have.
    #[error("{found} series, labels or slot runs in one message, at most {limit} are allowed: send several messages")]
    Entries {
        /// Entries of the message.
        found: usize,
        /// The limit of them.
        limit: usize,
    },
    /// A message of a later release, or an empty one.
    #[error("a message of a kind that this release does not know")]
    Unknown,
    /// The service speaks a later version of the protocol.
    #[error("the service speaks protocol {0}, this agent {PROTOCOL}: upgrade the agent first")]
    Protocol(u32),
    /// An invalid name in the hello.
    #[error(transparent)]
    Name(#[from] NameError),
    /// An invalid size of a region.
    #[error(transparent)]
    Size(#[from] RegionSizeError),
}

fn labels(pairs: &[proto::Label]) -> Result<Labels, NameError> {
    Labels::new(pairs.iter().map(|label| (label.key.as_str(), label.value.as_str())))
}

fn label_messages(labels: &Labels) -> Vec<proto::Label> {
    labels.iter().map(|(key, value)| proto::Label { key: key.to_owned(), value: value.to_owned() }).collect()
}

/// The group with this number; [`Group::Service`] for one of a later release.
pub(crate) fn group(number: u32) -> Group {
    Group::ALL.into_iter().find(|group| *group as u32 == number).unwrap_or(Group::Service)
}

/// The unit of this text; none if it is empty.
pub(crate) fn unit(text: &str) -> Result<Option<Unit>, NameError> {
    if text.is_empty() { Ok(None) } else { Unit::new(text).map(Some) }
}

impl PlacedSeries {
    fn decode(message: &proto::Series) -> Result<Self, SeriesError> {
        let kind = match message.kind() {
            proto::Kind::Counter | proto::Kind::ShardedCounter => Kind::Counter,
            proto::Kind::UpDownCounter => Kind::UpDownCounter,
            proto::Kind::Gauge => Kind::Gauge,
            proto::Kind::Histogram => Kind::Histogram(Scale::new(message.sub_bits, message.max_bits)?),
            proto::Kind::Unspecified => return Err(SeriesError::Kind(message.kind)),
        };
        let is_sharded = message.kind() == proto::Kind::ShardedCounter;
        let shards = if is_sharded { Shards::new(message.shards)? } else { Shards::ONE };
        let series = Series {
            name: MetricName::new(&message.name)?,
            labels: labels(&message.labels)?,
            kind,
            unit: unit(&message.unit)?,
            group: group(message.group),
            parts_per_unit: NonZeroU64::new(message.parts_per_unit).unwrap_or(NonZeroU64::MIN),
        };
        let declared = Declaration::from_message(&message.aggregation, message.read_every_ms);
        Ok(Self { series, region: message.region, first: Slot(message.first_slot), shards, declared })
    }

    fn encode(&self) -> proto::Series {
        let (kind, scale) = match self.series.kind {
            Kind::Counter if self.shards > Shards::ONE => (proto::Kind::ShardedCounter, None),
            Kind::Counter => (proto::Kind::Counter, None),
            Kind::UpDownCounter => (proto::Kind::UpDownCounter, None),
            Kind::Gauge => (proto::Kind::Gauge, None),
            Kind::Histogram(scale) => (proto::Kind::Histogram, Some(scale)),
        };
        let (aggregation, read_every_ms) = self.declared.to_message();
        proto::Series {
            name: self.series.name.to_string(),
            labels: label_messages(&self.series.labels),
            kind: kind.into(),
            unit: self.series.unit.as_ref().map(ToString::to_string).unwrap_or_default(),
            group: self.series.group as u32,
            region: self.region,
            first_slot: self.first.0,
            sub_bits: scale.map_or(0, Scale::sub_bits),
            max_bits: scale.map_or(0, Scale::max_bits),
            parts_per_unit: self.series.parts_per_unit.get(),
            shards: if self.shards > Shards::ONE { self.shards.count() } else { 0 },
            aggregation,
            read_every_ms,
        }
    }

    /// The slots that it takes.
    #[must_use]
    pub fn run(&self) -> SlotRun {
        SlotRun { region: self.region, first: self.first, slots: self.shards.slots(self.series.kind) }
    }
}

impl From<SlotRun> for proto::SlotRun {
    fn from(run: SlotRun) -> Self {
        Self { region: run.region, first_slot: run.first.0, slots: run.slots }
    }
}

impl From<proto::SlotRun> for SlotRun {
    fn from(run: proto::SlotRun) -> Self {
        Self { region: run.region, first: Slot(run.first_slot), slots: run.slots }
    }
}

impl ServiceMessage {
    /// Decodes one frame.
    ///
    /// # Errors
    ///
    /// [`MessageError`]: close the connection and say why. A series that cannot be taken is no error of the message.
    pub fn decode(frame: &[u8]) -> Result<Self, MessageError> {
        for (path, limit) in REPEATED {
            let found = entries::count(frame, path)?;
            if found > limit {
                return Err(MessageError::Entries { found, limit });
            }
        }
        let message = proto::ServiceMessage::decode(frame)?.message.ok_or(MessageError::Unknown)?;
        Ok(match message {
            proto::service_message::Message::Hello(hello) => {
                if hello.protocol > PROTOCOL {
                    return Err(MessageError::Protocol(hello.protocol));
                }
                Self::Hello(Hello {
                    service: ServiceName::new(&hello.service)?,
                    instance: InstanceName::new(&hello.instance)?,
                    labels: labels(&hello.labels)?,
                    process_metrics: !hello.without_process_metrics,
                    // 0, and what no LMAP could wait for.
                    changes_every: Interval::new(Nanos::from_millis(hello.changes_every_ms.into())).ok(),
                    fastest: Interval::new(Nanos::from_millis(hello.fastest_ms.into())).ok(),
                })
            }
            proto::service_message::Message::AddRegion(added) if added.contents() == proto::Contents::SpanRing => {
                Self::AddSpanRing {
                    size: RegionSize::new(added.bytes)?,
                    layout_version: added.layout_version,
                    first_ticket: added.first_ticket,
                }
            }
            proto::service_message::Message::AddRegion(added) => Self::AddRegion {
                region: added.region,
                size: RegionSize::new(added.bytes)?,
                layout_version: added.layout_version,
            },
            proto::service_message::Message::AddSeries(added) => Self::AddSeries(
                added
                    .series
                    .iter()
                    .map(|series| {
                        PlacedSeries::decode(series)
                            .map_err(|cause| RefusedSeries { title: series.name.chars().take(64).collect(), cause })
                    })
                    .collect(),
            ),
            proto::service_message::Message::RetireSeries(retired) => {
                Self::Retire(retired.runs.into_iter().map(SlotRun::from).collect())
            }
            proto::service_message::Message::Subjects(said) => {
                Self::Subjects(said.subjects.iter().map(Subject::decode).collect::<Result<_, _>>()?)
            }
        })
    }
}

impl From<&ServiceMessage> for proto::ServiceMessage {
    /// Refused series are left out.
    fn from(message: &ServiceMessage) -> Self {
        let message = match message {
            ServiceMessage::Hello(hello) => proto::service_message::Message::Hello(proto::Hello {
                protocol: PROTOCOL,
                service: hello.service.to_string(),
                instance: hello.instance.to_string(),
                labels: label_messages(&hello.labels),
                without_process_metrics: !hello.process_metrics,
                changes_every_ms: hello.changes_every.map_or(0, |period| period.length().as_millis() as u32),
                fastest_ms: hello.fastest.map_or(0, |period| period.length().as_millis() as u32),
            }),
            ServiceMessage::AddRegion { region, size, layout_version } => {
                proto::service_message::Message::AddRegion(proto::AddRegion {
                    region: *region,
                    bytes: size.bytes() as u64,
                    layout_version: *layout_version,
                    ..Default::default()
                })
            }
            ServiceMessage::AddSpanRing { size, layout_version, first_ticket } => {
                proto::service_message::Message::AddRegion(proto::AddRegion {
                    region: SPAN_RING_REGION,
                    bytes: size.bytes() as u64,
                    layout_version: *layout_version,
                    contents: proto::Contents::SpanRing.into(),
                    first_ticket: *first_ticket,
                })
            }
            ServiceMessage::AddSeries(series) => proto::service_message::Message::AddSeries(proto::AddSeries {
                series: series.iter().flatten().map(PlacedSeries::encode).collect(),
            }),
            ServiceMessage::Retire(runs) => proto::service_message::Message::RetireSeries(proto::RetireSeries {
                runs: runs.iter().copied().map(proto::SlotRun::from).collect(),
            }),
            ServiceMessage::Subjects(subjects) => proto::service_message::Message::Subjects(proto::Subjects {
                subjects: subjects.iter().map(Subject::encode).collect(),
            }),
        };
        Self { message: Some(message) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn series(name: &str, kind: Kind) -> PlacedSeries {
        let series = Series {
            name: MetricName::new(name).unwrap(),
            labels: Labels::new([("route", "/")]).unwrap(),
            kind,
            unit: Some(Unit::new("s").unwrap()),
            group: Group::Cpu,
            parts_per_unit: NonZeroU64::new(1000).unwrap(),
        };
        PlacedSeries { series, region: 1, first: Slot(9), shards: Shards::ONE, declared: Declaration::NONE }
    }

    #[test]
    fn a_message_of_more_entries_than_allowed_is_refused_before_it_is_decoded() {
        let of = |series: usize| {
            let series = vec![proto::Series::default(); series];
            let message = proto::service_message::Message::AddSeries(proto::AddSeries { series });
            ServiceMessage::decode(&proto::ServiceMessage { message: Some(message) }.encode_to_vec())
        };

        assert!(matches!(of(MAX_ENTRIES), Ok(ServiceMessage::AddSeries(all)) if all.len() == MAX_ENTRIES));
        let refused = MessageError::Entries { found: MAX_ENTRIES + 1, limit: MAX_ENTRIES };
        assert_eq!(of(MAX_ENTRIES + 1), Err(refused));
        // The labels of one series, each of two bytes, in the largest frame.
        let series = proto::Series { labels: vec![proto::Label::default(); 500_000], ..proto::Series::default() };
        let message = proto::service_message::Message::AddSeries(proto::AddSeries { series: vec![series] });
        let bytes = proto::ServiceMessage { message: Some(message) }.encode_to_vec();
        assert!(matches!(ServiceMessage::decode(&bytes), Err(MessageError::Entries { found: 500_000, .. })));
    }

    #[test]
    fn every_message_survives_encoding() {
        let hello = Hello {
            service: ServiceName::new("payment").unwrap(),
            instance: InstanceName::new("payment-1").unwrap(),
            labels: Labels::new([("version", "1.2")]).unwrap(),
            process_metrics: true,
            changes_every: None,
            fastest: None,
        };
        let changes_every = Some(Interval::new(Nanos::from_secs(1)).unwrap());
        let fastest = Some(Interval::new(Nanos::from_millis(100)).unwrap());
        let messages = [
            ServiceMessage::Hello(hello.clone()),
            ServiceMessage::Hello(Hello { process_metrics: false, changes_every, fastest, ..hello }),
            ServiceMessage::AddRegion { region: 0, size: RegionSize::ONE_PAGE, layout_version: 1 },
            ServiceMessage::AddSpanRing { size: RegionSize::ONE_PAGE, layout_version: 1, first_ticket: 7 },
            ServiceMessage::AddSeries(vec![
                Ok(series("a", Kind::Counter)),
                Ok(series("b", Kind::Histogram(Scale::DEFAULT))),
                Ok(PlacedSeries { shards: Shards::new(4).unwrap(), ..series("c", Kind::Counter) }),
                Ok(PlacedSeries { declared: Declaration::from_message("p90", 5000), ..series("d", Kind::Gauge) }),
            ]),
            ServiceMessage::Retire(vec![SlotRun { region: 0, first: Slot(3), slots: 2 }]),
            ServiceMessage::Subjects(vec![Subject::new(MetricName::new("network.flows").unwrap(), "10.0.0.7")]),
        ];

        for message in messages {
            let bytes = proto::ServiceMessage::from(&message).encode_to_vec();
            assert_eq!(ServiceMessage::decode(&bytes), Ok(message));
        }
    }

    #[test]
    fn a_bad_series_harms_no_other() {
        let good = series("good", Kind::Gauge).encode();
        let bad = proto::Series { name: "b a d".into(), ..good.clone() };
        let message = proto::ServiceMessage {
            message: Some(proto::service_message::Message::AddSeries(proto::AddSeries { series: vec![bad, good] })),
        };

        let Ok(ServiceMessage::AddSeries(series)) = ServiceMessage::decode(&message.encode_to_vec()) else {
            panic!("it is a message");
        };

        assert!(series[0].as_ref().is_err_and(|refused| refused.to_string().starts_with("b a d: metric name")));
        assert!(series[1].is_ok());
    }

    #[test]
    fn a_counter_has_a_cache_line_for_each_shard_and_no_more_shards_than_allowed() {
        let sharded = PlacedSeries { shards: Shards::new(4).unwrap(), ..series("requests", Kind::Counter) };

        assert_eq!(sharded.run().slots, 32);
        assert_eq!(sharded.shards.places(Slot(9)).map(|slot| slot.0).collect::<Vec<_>>(), [9, 17, 25, 33]);
        assert_eq!(series("requests", Kind::Counter).run().slots, 1);
        for shards in [0, Shards::LIMIT + 1, 256, u32::MAX] {
            let refused = PlacedSeries::decode(&proto::Series { shards, ..sharded.encode() });
            assert!(matches!(refused, Err(SeriesError::Shards(ShardsError(found))) if found == shards), "{shards}");
        }
    }

    #[test]
    fn a_later_protocol_is_refused() {
        let hello = proto::Hello { protocol: 2, service: "a".into(), instance: "b".into(), ..proto::Hello::default() };
        let message = proto::ServiceMessage { message: Some(proto::service_message::Message::Hello(hello)) };

        assert_eq!(ServiceMessage::decode(&message.encode_to_vec()), Err(MessageError::Protocol(2)));
    }

    #[test]
    fn a_hello_of_an_earlier_release_is_of_its_process_and_changes_whenever_it_likes() {
        let hello = proto::Hello { protocol: 1, service: "a".into(), instance: "b".into(), ..proto::Hello::default() };
        let decode = |hello: proto::Hello| {
            let message = proto::ServiceMessage { message: Some(proto::service_message::Message::Hello(hello)) };
            ServiceMessage::decode(&message.encode_to_vec())
        };

        let name = ServiceName::new("a").unwrap();
        let expected = Hello::new(name, InstanceName::new("b").unwrap(), Labels::default());
        assert_eq!(decode(hello.clone()), Ok(ServiceMessage::Hello(expected.clone())));
        // Longer than any LMAP's interval.
        let slow = proto::Hello { changes_every_ms: u32::MAX, fastest_ms: u32::MAX, ..hello };
        assert_eq!(decode(slow), Ok(ServiceMessage::Hello(expected)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = ServiceMessage::decode(&bytes);
        }
    }
}
