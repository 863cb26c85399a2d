//! Names of what is measured of a cgroup: those of OpenTelemetry's `container.*` where it has one. Each measure has one
//! slot, in the order of [`Measure::ALL`].

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use sources::cgroup::Measure;
use wire::layout::Slot;
use wire::metric::{Aggregation, Declaration, Group, Kind, Series};
use wire::name::{Labels, MetricName, NameError, Unit};
use wire::registration::{PlacedSeries, Shards};
use wire::time::Nanos;

/// Metric, label, unit and group.
type Description = (Kind, &'static str, Option<(&'static str, &'static str)>, &'static str, Group);

const fn counter(
    metric: &'static str,
    label: Option<(&'static str, &'static str)>,
    unit: &'static str,
    group: Group,
) -> Description {
    (Kind::Counter, metric, label, unit, group)
}

const fn bytes(metric: &'static str) -> Description {
    (Kind::UpDownCounter, metric, None, "By", Group::Memory)
}

const fn pages(metric: &'static str, kind: Option<&'static str>) -> Description {
    let label = match kind {
        Some(kind) => Some(("memory.kind", kind)),
        None => None,
    };
    counter(metric, label, "{page}", Group::Memory)
}

const fn event(kind: &'static str) -> Description {
    counter("container.memory.events", Some(("memory.event", kind)), "{event}", Group::Memory)
}

const fn stalled(metric: &'static str, kind: &'static str, group: Group) -> Description {
    counter(metric, Some(("pressure", kind)), "ns", group)
}

const fn moved(
    metric: &'static str,
    key: &'static str,
    direction: &'static str,
    unit: &'static str,
    group: Group,
) -> Description {
    counter(metric, Some((key, direction)), unit, group)
}

const fn disk(metric: &'static str, direction: &'static str, unit: &'static str) -> Description {
    moved(metric, "disk.io.direction", direction, unit, Group::Io)
}

const fn network(metric: &'static str, direction: &'static str, unit: &'static str) -> Description {
    moved(metric, "network.io.direction", direction, unit, Group::Network)
}

#[expect(clippy::too_many_lines, reason = "one line for each measure")]
const fn description(measure: Measure) -> Description {
    use Group::{Cpu, Health, Io, Memory, Network};
    match measure {
        Measure::CpuUser => counter("container.cpu.time", Some(("cpu.mode", "user")), "ns", Cpu),
        Measure::CpuSystem => counter("container.cpu.time", Some(("cpu.mode", "system")), "ns", Cpu),
        Measure::Periods => counter("container.cpu.periods", None, "{period}", Cpu),
        Measure::ThrottledPeriods => counter("container.cpu.throttled_periods", None, "{period}", Cpu),
        Measure::ThrottledTime => counter("container.cpu.throttled_time", None, "ns", Cpu),
        Measure::Bursts => counter("container.cpu.bursts", None, "{period}", Cpu),
        Measure::BurstTime => counter("container.cpu.burst_time", None, "ns", Cpu),
        Measure::CpuSome => stalled("container.cpu.pressure", "some", Cpu),
        Measure::CpuFull => stalled("container.cpu.pressure", "full", Cpu),
        Measure::MemoryUsage => bytes("container.memory.usage"),
        Measure::WorkingSet => bytes("container.memory.working_set"),
        Measure::Swap => bytes("container.memory.swap"),
        Measure::Anon => bytes("container.memory.anon"),
        Measure::File => bytes("container.memory.file"),
        Measure::Shmem => bytes("container.memory.shmem"),
        Measure::FileMapped => bytes("container.memory.file_mapped"),
        Measure::FileDirty => bytes("container.memory.file_dirty"),
        Measure::FileWriteback => bytes("container.memory.file_writeback"),
        Measure::AnonHuge => bytes("container.memory.anon_huge"),
        Measure::KernelStack => bytes("container.memory.kernel_stack"),
        Measure::PageTables => bytes("container.memory.page_tables"),
        Measure::Sock => bytes("container.memory.sock"),
        Measure::SlabReclaimable => bytes("container.memory.slab_reclaimable"),
        Measure::SlabUnreclaimable => bytes("container.memory.slab_unreclaimable"),
        Measure::InactiveAnon => bytes("container.memory.inactive_anon"),
        Measure::ActiveAnon => bytes("container.memory.active_anon"),
        Measure::InactiveFile => bytes("container.memory.inactive_file"),
        Measure::ActiveFile => bytes("container.memory.active_file"),
        Measure::Unevictable => bytes("container.memory.unevictable"),
        Measure::FaultsMinor => {
            counter("container.paging.faults", Some(("paging.fault_type", "minor")), "{fault}", Memory)
        }
        Measure::FaultsMajor => {
            counter("container.paging.faults", Some(("paging.fault_type", "major")), "{fault}", Memory)
        }
        Measure::RefaultsAnon => pages("container.memory.refaults", Some("anon")),
        Measure::RefaultsFile => pages("container.memory.refaults", Some("file")),
        Measure::ActivationsAnon => pages("container.memory.activations", Some("anon")),
        Measure::ActivationsFile => pages("container.memory.activations", Some("file")),
        Measure::PagesScanned => pages("container.memory.scanned", None),
        Measure::PagesReclaimed => pages("container.memory.reclaimed", None),
        Measure::PagesScannedDirectly => pages("container.memory.scanned_directly", None),
        Measure::PagesRefilled => pages("container.memory.refilled", None),
        Measure::PagesCharged => pages("container.memory.charged", None),
        Measure::PagesUncharged => pages("container.memory.uncharged", None),
        Measure::EventsLow => event("low"),
        Measure::EventsHigh => event("high"),
        Measure::EventsMax => event("max"),
        Measure::EventsOom => event("oom"),
        Measure::OomKills => event("oom_kill"),
        Measure::MemorySome => stalled("container.memory.pressure", "some", Memory),
        Measure::MemoryFull => stalled("container.memory.pressure", "full", Memory),
        Measure::BytesRead => disk("container.disk.io", "read", "By"),
        Measure::BytesWritten => disk("container.disk.io", "write", "By"),
        Measure::BytesDiscarded => disk("container.disk.io", "discard", "By"),
        Measure::Reads => disk("container.disk.operations", "read", "{operation}"),
        Measure::Writes => disk("container.disk.operations", "write", "{operation}"),
        Measure::Discards => disk("container.disk.operations", "discard", "{operation}"),
        Measure::IoSome => stalled("container.io.pressure", "some", Io),
        Measure::IoFull => stalled("container.io.pressure", "full", Io),
        Measure::Pids => (Kind::UpDownCounter, "container.thread.count", None, "{thread}", Cpu),
        Measure::EventsPids => counter("container.thread.refused", None, "{fork}", Cpu),
        Measure::NetworkReceived => network("container.network.io", "receive", "By"),
        Measure::NetworkTransmitted => network("container.network.io", "transmit", "By"),
        Measure::PacketsReceived => network("container.network.packets", "receive", "{packet}"),
        Measure::PacketsTransmitted => network("container.network.packets", "transmit", "{packet}"),
        Measure::ErrorsReceived => network("container.network.errors", "receive", "{error}"),
        Measure::ErrorsTransmitted => network("container.network.errors", "transmit", "{error}"),
        Measure::DropsReceived => network("container.network.dropped", "receive", "{packet}"),
        Measure::DropsTransmitted => network("container.network.dropped", "transmit", "{packet}"),
        Measure::Retransmitted => counter("container.network.tcp.retransmits", None, "{segment}", Network),
        Measure::Resets => counter("container.network.tcp.resets", None, "{connection}", Network),
        Measure::ListenDrops => counter("container.network.tcp.listen_drops", None, "{connection}", Network),
        Measure::Stopped => counter("container.stopped_time", None, "ns", Health),
        Measure::Down => counter("container.down_time", None, "ns", Health),
    }
}

/// Whether a measure is a level, and no counter.
pub(super) const fn is_level(measure: Measure) -> bool {
    matches!(description(measure).0, Kind::UpDownCounter)
}

/// A level of a service is the mean of its containers: then more of them, or fewer, are no change by themselves.
fn declaration(measure: Measure) -> Declaration {
    let mean = || Declaration::NONE.aggregated(Aggregation::Mean).ok();
    is_level(measure).then(mean).flatten().unwrap_or_default()
}

/// The slot of a measure.
pub(super) const fn slot(measure: Measure) -> Slot {
    Slot(measure as u32)
}

/// Name, labels, kind, unit and group of a measure.
fn series(measure: Measure) -> Result<Series, NameError> {
    let (kind, metric, label, unit, group) = description(measure);
    Ok(Series {
        name: MetricName::new(metric)?,
        labels: Labels::new(label)?,
        kind,
        unit: Some(Unit::new(unit)?),
        group,
        parts_per_unit: NonZeroU64::MIN,
    })
}

/// The series of these measures, to be announced.
pub(super) fn placed(measures: impl Iterator<Item = Measure>) -> Vec<PlacedSeries> {
    let place = |measure| {
        Some(PlacedSeries {
            series: series(measure).ok()?,
            region: 0,
            first: slot(measure),
            shards: Shards::ONE,
            declared: declaration(measure),
        })
    };
    measures.filter_map(place).collect()
}

/// How often each metric changes when cgroups are read every `interval`.
pub(crate) fn periods(interval: Nanos) -> BTreeMap<MetricName, Nanos> {
    Measure::ALL.iter().filter_map(|measure| Some((series(*measure).ok()?.name, interval))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measure_is_a_series_of_its_own_in_one_page() {
        let placed = placed(Measure::ALL.iter().copied());

        assert_eq!(placed.len(), Measure::ALL.len());
        let titles: std::collections::BTreeSet<_> = placed.iter().map(|placed| placed.series.title()).collect();
        assert_eq!(titles.len(), placed.len());
        let region = region::OwnedRegion::create("test", wire::layout::RegionSize::ONE_PAGE).unwrap();
        assert!(placed.iter().all(|placed| region.slot(placed.first).is_some()));
    }

    #[test]
    fn levels_are_the_mean_of_containers_and_counters_their_sum() {
        for (measure, placed) in Measure::ALL.iter().zip(placed(Measure::ALL.iter().copied())) {
            let is_mean = placed.declared.aggregation() == Some(&Aggregation::Mean);
            assert_eq!(is_mean, placed.series.kind == Kind::UpDownCounter, "{measure:?}");
        }
    }
}
