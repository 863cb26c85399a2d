//! The configuration of one LMAP (local metrics analysis pipeline), sent by the host agent to a worker.

use core::num::{NonZeroU32, NonZeroU64};
use std::collections::{BTreeMap, BTreeSet};

use super::detector::{DetectorSpec, DetectorSpecError};
use super::{MAX_METRICS, MAX_REGIONS, MAX_REPLICAS};
use crate::histogram::{Scale, ScaleError};
use crate::id::{LmapId, MetricId, Owner, RegionId, ReplicaId};
use crate::layout::{RegionSize, RegionSizeError, Slot};
use crate::metric::{Aggregation, AggregationError, Kind, Series, TickDivider};
use crate::name::{Formula, InstanceName, Labels, MetricName, NameError, ServiceName};
use crate::proto::control as proto;
use crate::registration::{group, unit};
use crate::time::{Interval, IntervalError, Nanos};

/// A series that an LMAP watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricSpec {
    /// Its id, as operators see it.
    pub id: MetricId,
    /// Name, labels, kind and unit of the series.
    pub series: Series,
    /// How values of replicas are aggregated.
    pub aggregation: Aggregation,
    /// It is read every n-th interval.
    pub every: TickDivider,
}

/// A region to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionSpec {
    /// Id of the region.
    pub id: RegionId,
    /// Size of the region, header included.
    pub size: RegionSize,
    /// Whether its heartbeat word shows that the replica is alive. The host agent's own regions (process metrics) have
    /// none.
    pub heartbeat: bool,
    /// Address for RDMA, in the address space of the host agent; 0 without RDMA.
    pub address: u64,
    /// Remote key for RDMA; 0 without RDMA.
    pub rkey: u32,
    /// Whether its heartbeat word is the [time of a sample](crate::layout::sample_word), and no count.
    pub sample_times: bool,
}

/// Where a metric is in a replica's regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricPlace {
    /// Id of the metric.
    pub metric: MetricId,
    /// Id of the region.
    pub region: RegionId,
    /// The first of its slots.
    pub first: Slot,
}

/// A replica of the service on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSpec {
    /// Its id on this node.
    pub id: ReplicaId,
    /// Its name, as operators see it.
    pub instance: InstanceName,
    /// Who pays for it.
    pub owner: Owner,
    /// The regions that it owns.
    pub regions: Vec<RegionSpec>,
    /// Places of its metrics. A metric without a place is missing in this replica.
    pub places: Vec<MetricPlace>,
}

/// The whole configuration of one LMAP. Every place is inside its region, and no metric or region is there twice.
#[derive(Clone, Debug, PartialEq)]
pub struct LmapSpec {
    /// Id of the LMAP.
    pub id: LmapId,
    /// The service that it watches, or its name if it watches several.
    pub service: ServiceName,
    /// The local scraping interval.
    pub interval: Interval,
    /// Interval at which a live replica's heartbeat changes.
    pub heartbeat: Nanos,
    /// Series that it watches.
    pub metrics: Vec<MetricSpec>,
    /// Replicas of the service, with the places of metrics.
    pub replicas: Vec<ReplicaSpec>,
    /// A trained model; empty: the LMAP trains itself.
    pub model: Vec<u8>,
    /// Settings of its detector.
    pub detector: DetectorSpec,
    /// It watches several services: one that is silent does not silence the others.
    pub several_services: bool,
    /// Least time between two fetches while something seems wrong; `None`: it is fetched for its rows only.
    pub fastest: Option<Interval>,
}

/// An invalid configuration of an LMAP.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LmapError {
    /// An invalid name, label or unit.
    #[error(transparent)]
    Name(#[from] NameError),
    /// An invalid size of a region.
    #[error(transparent)]
    Size(#[from] RegionSizeError),
    /// Invalid buckets of a histogram.
    #[error(transparent)]
    Scale(#[from] ScaleError),
    /// The scraping interval is out of range.
    #[error(transparent)]
    Interval(#[from] IntervalError),
    /// An invalid aggregation.
    #[error(transparent)]
    Aggregation(#[from] AggregationError),
    /// Invalid settings of the detector.
    #[error("settings of the detector")]
    Detector(#[from] DetectorSpecError),
    /// A kind of metric of a later release.
    #[error("{metric} is of kind {kind}, which this release does not know")]
    Kind {
        /// Id of the metric.
        metric: MetricId,
        /// The kind's number.
        kind: i32,
    },
    /// More elements than a worker takes.
    #[error("{found} {what} are more than {limit}")]
    TooMany {
        /// Metrics, replicas or regions.
        what: &'static str,
        /// Number of elements.
        found: usize,
        /// Largest allowed number.
        limit: usize,
    },
    /// A metric or region is there twice.
    #[error("{0} is configured twice")]
    Twice(String),
    /// A place outside its region, or of an unknown metric.
    #[error("the place of {metric} in {region}, slot {}, is outside the region, or the metric is unknown", .first.0)]
    Place {
        /// Id of the metric.
        metric: MetricId,
        /// Id of the region.
        region: RegionId,
        /// The first slot.
        first: Slot,
    },
}

fn labels(pairs: &[proto::Label]) -> Result<Labels, NameError> {
    Labels::new(pairs.iter().map(|label| (label.key.as_str(), label.value.as_str())))
}

fn bounded(what: &'static str, found: usize, limit: usize) -> Result<(), LmapError> {
    if found > limit { Err(LmapError::TooMany { what, found, limit }) } else { Ok(()) }
}

impl MetricSpec {
    fn decode(message: &proto::Metric) -> Result<Self, LmapError> {
        let id = MetricId(message.metric);
        let kind = match message.kind() {
            proto::Kind::Counter => Kind::Counter,
            proto::Kind::UpDownCounter => Kind::UpDownCounter,
            proto::Kind::Gauge => Kind::Gauge,
            proto::Kind::Histogram => Kind::Histogram(Scale::new(message.sub_bits, message.max_bits)?),
            proto::Kind::Unspecified => return Err(LmapError::Kind { metric: id, kind: message.kind }),
        };
        let series = Series {
            name: MetricName::new(&message.name)?,
            labels: labels(&message.labels)?,
            kind,
            unit: unit(&message.unit)?,
            group: group(message.group),
            parts_per_unit: NonZeroU64::new(message.parts_per_unit).unwrap_or(NonZeroU64::MIN),
        };
        let aggregation = match (message.formula.as_str(), message.derived.as_str()) {
            ("", "") => Aggregation::parse(&message.aggregation)?,
            (formula, "") => Aggregation::Formula(Formula::new(formula)?),
            (_, derived) => Aggregation::Derived(Formula::new(derived)?),
        };
        Ok(Self { id, series, aggregation, every: NonZeroU32::new(message.every).unwrap_or(NonZeroU32::MIN) })
    }

    fn encode(&self) -> proto::Metric {
        let (kind, scale) = match self.series.kind {
            Kind::Counter => (proto::Kind::Counter, None),
            Kind::UpDownCounter => (proto::Kind::UpDownCounter, None),
            Kind::Gauge => (proto::Kind::Gauge, None),
            Kind::Histogram(scale) => (proto::Kind::Histogram, Some(scale)),
        };
        let label = |(key, value): (&str, &str)| proto::Label { key: key.to_owned(), value: value.to_owned() };
        proto::Metric {
            metric: self.id.0,
            name: self.series.name.to_string(),
            labels: self.series.labels.iter().map(label).collect(),
            kind: kind.into(),
            unit: self.series.unit.as_ref().map(ToString::to_string).unwrap_or_default(),
            group: self.series.group as u32,
            sub_bits: scale.map_or(0, Scale::sub_bits),
            max_bits: scale.map_or(0, Scale::max_bits),
            parts_per_unit: self.series.parts_per_unit.get(),
            // Earlier workers know no expressions. To them it is an aggregation that they do not have.
            aggregation: match &self.aggregation {
                Aggregation::Formula(_) | Aggregation::Derived(_) => "expression".to_owned(),
                aggregation => aggregation.to_string(),
            },
            every: self.every.get(),
            formula: if let Aggregation::Formula(formula) = &self.aggregation {
                formula.to_string()
            } else {
                String::new()
            },
            derived: if let Aggregation::Derived(formula) = &self.aggregation {
                formula.to_string()
            } else {
                String::new()
            },
        }
    }
}

impl ReplicaSpec {
    fn decode(message: &proto::Replica) -> Result<Self, LmapError> {
        let regions: Vec<RegionSpec> = message.regions.iter().map(region).collect::<Result<_, _>>()?;
        let place = |place: &proto::MetricPlace| MetricPlace {
            metric: MetricId(place.metric),
            region: RegionId(place.region),
            first: Slot(place.first_slot),
        };
        Ok(Self {
            id: ReplicaId(message.replica),
            instance: InstanceName::new(&message.instance)?,
            owner: Owner::of(message.uid, &message.container),
            regions,
            places: message.places.iter().map(place).collect(),
        })
    }

    fn encode(&self) -> proto::Replica {
        let region = |region: &RegionSpec| proto::Region {
            region: region.id.0,
            bytes: region.size.bytes() as u64,
            heartbeat: region.heartbeat,
            address: region.address,
            rkey: region.rkey,
            sample_times: region.sample_times,
        };
        let place = |place: &MetricPlace| proto::MetricPlace {
            metric: place.metric.0,
            region: place.region.0,
            first_slot: place.first.0,
        };
        proto::Replica {
            replica: self.id.0,
            instance: self.instance.to_string(),
            regions: self.regions.iter().map(region).collect(),
            places: self.places.iter().map(place).collect(),
            uid: self.owner.uid(),
            container: self.owner.container(),
        }
    }
}

fn region(message: &proto::Region) -> Result<RegionSpec, RegionSizeError> {
    Ok(RegionSpec {
        id: RegionId(message.region),
        size: RegionSize::new(message.bytes)?,
        heartbeat: message.heartbeat,
        address: message.address,
        rkey: message.rkey,
        sample_times: message.sample_times,
    })
}

/// Least time between two fetches, from microseconds; 0 is none.
fn fastest(micros: u64) -> Result<Option<Interval>, IntervalError> {
    (micros > 0).then(|| Interval::new(Nanos::from_micros(micros))).transpose()
}

impl LmapSpec {
    /// Decodes and checks an LMAP's configuration.
    ///
    /// # Errors
    ///
    /// [`LmapError`] if anything in it does not hold.
    pub fn decode(message: &proto::Lmap) -> Result<Self, LmapError> {
        bounded("metrics", message.metrics.len(), MAX_METRICS)?;
        bounded("replicas", message.replicas.len(), MAX_REPLICAS)?;
        bounded("regions", message.replicas.iter().map(|replica| replica.regions.len()).sum(), MAX_REGIONS)?;
        let spec = Self {
            id: LmapId(message.lmap),
            service: ServiceName::new(&message.service)?,
            interval: Interval::new(Nanos::from_micros(message.interval_us))?,
            heartbeat: Nanos::from_millis(u64::from(message.heartbeat_ms)),
            metrics: message.metrics.iter().map(MetricSpec::decode).collect::<Result<_, _>>()?,
            replicas: message.replicas.iter().map(ReplicaSpec::decode).collect::<Result<_, _>>()?,
            model: message.model.clone(),
            detector: message.detector.as_ref().map(DetectorSpec::try_from).transpose()?.unwrap_or_default(),
            several_services: message.several_services,
            fastest: fastest(message.fastest_us)?,
        };
        spec.check()?;
        Ok(spec)
    }

    fn check(&self) -> Result<(), LmapError> {
        let kinds: BTreeMap<_, _> = self.metrics.iter().map(|metric| (metric.id, metric.series.kind)).collect();
        if kinds.len() != self.metrics.len() {
            return Err(LmapError::Twice(format!("a metric of {}", self.id)));
        }
        let mut regions = BTreeMap::new();
        for replica in &self.replicas {
            for region in &replica.regions {
                if regions.insert(region.id, (region.size, replica.id)).is_some() {
                    return Err(LmapError::Twice(region.id.to_string()));
                }
            }
            let mut placed = BTreeSet::new();
            for place in &replica.places {
                let MetricPlace { metric, region, first } = *place;
                let inside = |(size, owner): &(RegionSize, ReplicaId)| {
                    *owner == replica.id && kinds.get(&metric).is_some_and(|kind| size.holds(first, kind.slots()))
                };
                if !regions.get(&region).is_some_and(inside) {
                    return Err(LmapError::Place { metric, region, first });
                }
                // A counter may have several words, whose increments are summed like those of replicas.
                let shard = (kinds.get(&metric) == Some(&Kind::Counter)).then_some((region, first));
                if !placed.insert((metric, shard)) {
                    return Err(LmapError::Twice(format!("{metric} in {}", replica.id)));
                }
            }
        }
        Ok(())
    }
}

impl From<&LmapSpec> for proto::Lmap {
    fn from(spec: &LmapSpec) -> Self {
        Self {
            lmap: spec.id.0,
            service: spec.service.to_string(),
            interval_us: spec.interval.length().0 / 1000,
            heartbeat_ms: spec.heartbeat.as_millis() as u32,
            metrics: spec.metrics.iter().map(MetricSpec::encode).collect(),
            replicas: spec.replicas.iter().map(ReplicaSpec::encode).collect(),
            model: spec.model.clone(),
            detector: (!spec.detector.is_default()).then(|| (&spec.detector).into()),
            learnt: Vec::new(),
            continues: false,
            several_services: spec.several_services,
            fastest_us: spec.fastest.map_or(0, |fastest| fastest.length().0 / 1000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Group;

    fn spec() -> LmapSpec {
        let metric = |id, name: &str, kind| MetricSpec {
            id: MetricId(id),
            series: Series {
                name: MetricName::new(name).unwrap(),
                labels: Labels::default(),
                kind,
                unit: None,
                group: Group::Service,
                parts_per_unit: NonZeroU64::MIN,
            },
            aggregation: Aggregation::default_for(kind),
            every: TickDivider::MIN,
        };
        let region = RegionSpec {
            id: RegionId(5),
            size: RegionSize::ONE_PAGE,
            heartbeat: true,
            address: 0,
            rkey: 0,
            sample_times: true,
        };
        let place = |metric, first| MetricPlace { metric: MetricId(metric), region: RegionId(5), first: Slot(first) };
        LmapSpec {
            id: LmapId(1),
            service: ServiceName::new("cart").unwrap(),
            interval: Interval::new(Nanos::from_millis(100)).unwrap(),
            heartbeat: Nanos::from_millis(100),
            metrics: vec![metric(1, "a", Kind::Counter), metric(2, "b", Kind::Histogram(Scale::DEFAULT))],
            replicas: vec![ReplicaSpec {
                id: ReplicaId(1),
                instance: InstanceName::new("cart-1").unwrap(),
                owner: Owner::User(1000),
                regions: vec![region],
                places: vec![place(1, 0), place(2, 1)],
            }],
            model: vec![1, 2, 3],
            detector: DetectorSpec { rank: Some(3), ..DetectorSpec::default() },
            several_services: true,
            fastest: Interval::new(Nanos::from_millis(10)).ok(),
        }
    }

    #[test]
    fn a_configuration_survives_encoding() {
        assert_eq!(LmapSpec::decode(&proto::Lmap::from(&spec())), Ok(spec()));
    }

    #[test]
    fn every_aggregation_survives_encoding_and_an_expression_is_an_unknown_name_to_earlier_workers() {
        let formula = |text| Formula::new(text).unwrap();
        let over_replicas = Aggregation::Formula(formula("max - min"));
        let aggregations =
            [Aggregation::parse("p99.9").unwrap(), over_replicas, Aggregation::Derived(formula("a / b"))];
        for aggregation in aggregations {
            let mut spec = spec();
            spec.metrics[0].aggregation = aggregation;
            let mut message = proto::Lmap::from(&spec);
            assert_eq!(LmapSpec::decode(&message), Ok(spec));

            // What they do not know is not there. They report the name, and the metric is missing.
            (message.metrics[0].formula, message.metrics[0].derived) = (String::new(), String::new());
            assert!(LmapSpec::decode(&message).is_ok());
        }
    }

    #[test]
    fn invalid_settings_of_the_detector_are_refused() {
        let mut message = proto::Lmap::from(&spec());
        message.detector = Some(proto::Detector { rank: Some(0), ..proto::Detector::default() });

        assert!(matches!(LmapSpec::decode(&message), Err(LmapError::Detector(_))));
    }

    #[test]
    fn a_place_outside_its_region_is_refused() {
        let mut wrong = spec();
        wrong.replicas[0].places[1].first = Slot(504 - 125);
        let error = LmapSpec::decode(&proto::Lmap::from(&wrong)).unwrap_err();
        assert!(matches!(error, LmapError::Place { metric: MetricId(2), .. }), "{error}");

        let mut unknown = spec();
        unknown.replicas[0].places[0].metric = MetricId(9);
        assert!(LmapSpec::decode(&proto::Lmap::from(&unknown)).is_err());
    }

    #[test]
    fn a_replica_cannot_point_into_anothers_region() {
        let mut wrong = spec();
        let places = wrong.replicas[0].places.clone();
        let other = ReplicaSpec { id: ReplicaId(2), regions: vec![], places, ..wrong.replicas[0].clone() };
        wrong.replicas.push(other);

        assert!(matches!(LmapSpec::decode(&proto::Lmap::from(&wrong)), Err(LmapError::Place { .. })));
    }

    #[test]
    fn nothing_is_named_twice() {
        let mut wrong = spec();
        wrong.metrics[1].id = MetricId(1);
        assert!(matches!(LmapSpec::decode(&proto::Lmap::from(&wrong)), Err(LmapError::Twice(_))));

        let mut wrong = spec();
        let twice = wrong.replicas[0].places[0];
        wrong.replicas[0].places.push(twice);
        assert!(matches!(LmapSpec::decode(&proto::Lmap::from(&wrong)), Err(LmapError::Twice(_))));
    }

    #[test]
    fn a_counter_may_be_placed_several_times_in_a_replica_and_nothing_else_may() {
        let shard = |metric| {
            let mut spec = spec();
            let place = *spec.replicas[0].places.iter().find(|place| place.metric == MetricId(metric)).unwrap();
            spec.replicas[0].places.push(MetricPlace { first: Slot(place.first.0 + 200), ..place });
            LmapSpec::decode(&proto::Lmap::from(&spec)).map(|decoded| assert_eq!(decoded, spec))
        };

        assert!(shard(1).is_ok());
        assert!(matches!(shard(2), Err(LmapError::Twice(_))));
    }

    #[test]
    fn absurd_sizes_are_refused_before_they_are_stored() {
        let mut message = proto::Lmap::from(&spec());
        message.metrics = vec![message.metrics[0].clone(); MAX_METRICS + 1];
        assert!(matches!(LmapSpec::decode(&message), Err(LmapError::TooMany { what: "metrics", .. })));

        let mut message = proto::Lmap::from(&spec());
        message.replicas[0].regions = vec![message.replicas[0].regions[0]; 100_000];
        assert!(matches!(
            LmapSpec::decode(&message),
            Err(LmapError::TooMany { what: "regions", found: 100_000, limit: MAX_REGIONS })
        ));

        let mut message = proto::Lmap::from(&spec());
        message.replicas[0].regions[0].bytes = u64::MAX;
        assert!(matches!(LmapSpec::decode(&message), Err(LmapError::Size(_))));
    }
}
