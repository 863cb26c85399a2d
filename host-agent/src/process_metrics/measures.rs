//! What is measured of a process. Names follow OpenTelemetry's `process.*` where it has one. Each measure has one slot,
//! in this order.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use wire::layout::Slot;
use wire::metric::{Declaration, Group, Kind, Series};
use wire::name::{Labels, MetricName, NameError, Unit};
use wire::registration::{PlacedSeries, Shards};
use wire::time::Nanos;

/// Interval of values that are expensive to read.
pub const SLOW: Nanos = Nanos::from_secs(1);

macro_rules! measures {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ident $metric:literal [$($key:literal = $value:literal)?] $unit:literal $group:ident $pace:ident;)+) => {
        /// One value of a process, and its slot.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Measure {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Measure {
            /// All of them, in the order of their slots.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            const fn description(self) -> Description {
                match self {
                    $(Self::$name => Description {
                        kind: Kind::$kind,
                        metric: $metric,
                        labels: &[$(($key, $value))?],
                        unit: $unit,
                        group: Group::$group,
                        pace: Pace::$pace,
                    },)+
                }
            }
        }
    };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Read with every sample.
    Fast,
    /// Read once a second at most.
    Slow,
}

struct Description {
    kind: Kind,
    metric: &'static str,
    labels: &'static [(&'static str, &'static str)],
    unit: &'static str,
    group: Group,
    pace: Pace,
}

measures! {
    /// CPU time in user mode. The sum of both modes is exact; its division is accurate to a clock tick.
    CpuUser: Counter "process.cpu.time" ["cpu.mode" = "user"] "ns" Cpu Fast;
    /// CPU time in the kernel.
    CpuSystem: Counter "process.cpu.time" ["cpu.mode" = "system"] "ns" Cpu Fast;
    /// Time that threads were runnable and waited for a CPU.
    CpuWait: Counter "process.cpu.wait_time" [] "ns" Cpu Fast;
    /// Number of threads.
    Threads: UpDownCounter "process.thread.count" [] "{thread}" Cpu Fast;
    /// Voluntary context switches: a thread blocked.
    SwitchesVoluntary: Counter "process.context_switches" ["process.context_switch.type" = "voluntary"] "{switch}" Cpu Slow;
    /// Involuntary context switches: the scheduler took the CPU away.
    SwitchesInvoluntary: Counter "process.context_switches" ["process.context_switch.type" = "involuntary"] "{switch}" Cpu Slow;
    /// Resident memory, in bytes. What several processes of a program share counts once.
    MemoryUsage: UpDownCounter "process.memory.usage" [] "By" Memory Fast;
    /// Virtual memory, in bytes.
    MemoryVirtual: UpDownCounter "process.memory.virtual" [] "By" Memory Fast;
    /// Minor page faults, without I/O.
    FaultsMinor: Counter "process.paging.faults" ["process.paging.fault_type" = "minor"] "{fault}" Memory Fast;
    /// Major page faults, with I/O.
    FaultsMajor: Counter "process.paging.faults" ["process.paging.fault_type" = "major"] "{fault}" Memory Fast;
    /// Open file descriptors.
    Descriptors: UpDownCounter "process.open_file_descriptor.count" [] "{count}" Io Slow;
    /// Bytes read from storage.
    DiskRead: Counter "process.disk.io" ["disk.io.direction" = "read"] "By" Io Fast;
    /// Bytes written to storage.
    DiskWrite: Counter "process.disk.io" ["disk.io.direction" = "write"] "By" Io Fast;
    /// Bytes returned by read calls, from any file.
    BytesRead: Counter "process.io.bytes" ["io.direction" = "read"] "By" Io Fast;
    /// Bytes taken by write calls, to any file.
    BytesWritten: Counter "process.io.bytes" ["io.direction" = "write"] "By" Io Fast;
    /// Number of read calls.
    Reads: Counter "process.io.operations" ["io.direction" = "read"] "{operation}" Io Fast;
    /// Number of write calls.
    Writes: Counter "process.io.operations" ["io.direction" = "write"] "{operation}" Io Fast;
    /// Time that threads waited for block devices, where the kernel accounts for it. Of watched programs elsewhere:
    /// that processes slept uninterruptibly, from ten looks per sample.
    DiskWait: Counter "process.disk.wait_time" [] "ns" Io Fast;
    /// Bytes received, for a process with a network namespace of its own.
    NetworkReceived: Counter "process.network.io" ["network.io.direction" = "receive"] "By" Network Slow;
    /// Bytes transmitted, for a process with a network namespace of its own.
    NetworkTransmitted: Counter "process.network.io" ["network.io.direction" = "transmit"] "By" Network Slow;
    /// Open TCP connections. This and the next measures are of watched programs only.
    Established: UpDownCounter "process.network.connection.count" ["network.connection.state" = "established"] "{connection}" Network Slow;
    /// TCP connections that the peer has closed, and the program not yet.
    CloseWait: UpDownCounter "process.network.connection.count" ["network.connection.state" = "close_wait"] "{connection}" Network Slow;
    /// TCP connections that are being opened or closed.
    OtherConnections: UpDownCounter "process.network.connection.count" ["network.connection.state" = "other"] "{connection}" Network Slow;
    /// TCP connections that wait to be accepted.
    Unaccepted: UpDownCounter "process.network.unaccepted" [] "{connection}" Network Slow;
    /// Bytes that arrived and the program has not read.
    Unread: UpDownCounter "process.network.queue" ["network.io.direction" = "receive"] "By" Network Slow;
    /// Bytes that were sent and peers have not acknowledged.
    Unacknowledged: UpDownCounter "process.network.queue" ["network.io.direction" = "transmit"] "By" Network Slow;
    /// TCP segments sent again, in a network namespace of its own.
    Retransmitted: Counter "process.network.tcp.retransmits" [] "{segment}" Network Slow;
    /// Connections refused because a queue was full, in a network namespace of its own.
    ListenDrops: Counter "process.network.tcp.listen_drops" [] "{connection}" Network Slow;
    /// Connections reset, in a network namespace of its own.
    Resets: Counter "process.network.tcp.resets" [] "{connection}" Network Slow;
    /// Time for which a signal had stopped processes. By all other measures one that is stopped looks like an idle one.
    /// It is a time and no number of processes, since what was constant is an alarm while it keeps moving.
    Stopped: Counter "process.stopped_time" [] "ns" Health Fast;
    /// How long a thread was runnable until it had a CPU: the mean over the last second. Unlike the sum of these times
    /// it does not shrink with the load of clients that wait for answers. Of watched programs only.
    RunQueueLatency: UpDownCounter "process.cpu.run_queue_latency" [] "ns" Cpu Slow;
    /// How long a thread waited for block devices each time that it blocked for anything: likewise.
    DiskLatency: UpDownCounter "process.disk.wait_latency" [] "ns" Io Slow;
}

/// A sample of a process: values of some measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values([Option<u64>; Measure::ALL.len()]);

impl Values {
    /// Sets the value of a measure.
    pub fn set(&mut self, measure: Measure, value: u64) {
        if let Some(place) = self.0.get_mut(measure as usize) {
            *place = Some(value);
        }
    }

    /// The value of this measure, if it was read.
    #[must_use]
    pub fn get(&self, measure: Measure) -> Option<u64> {
        self.0.get(measure as usize).copied().flatten()
    }

    /// The measures with a value.
    pub fn iter(&self) -> impl Iterator<Item = (Measure, u64)> {
        Measure::ALL.iter().zip(&self.0).filter_map(|(measure, value)| Some((*measure, (*value)?)))
    }
}

impl Measure {
    /// Whether it only grows.
    #[must_use]
    pub fn is_counter(self) -> bool {
        self.description().kind == Kind::Counter
    }

    /// Whether it is read once a second at most.
    #[must_use]
    pub fn is_expensive(self) -> bool {
        self.description().pace == Pace::Slow
    }

    /// The measure's slot in its region.
    #[must_use]
    pub const fn slot(self) -> Slot {
        Slot(self as u32)
    }

    /// Its name, labels, kind, unit and group.
    ///
    /// # Errors
    ///
    /// [`NameError`], which a test rules out.
    pub fn series(self) -> Result<Series, NameError> {
        let description = self.description();
        Ok(Series {
            name: MetricName::new(description.metric)?,
            labels: Labels::new(description.labels.iter().copied())?,
            kind: description.kind,
            unit: Some(Unit::new(description.unit)?),
            group: description.group,
            parts_per_unit: NonZeroU64::MIN,
        })
    }
}

/// The series of these measures, to be announced.
pub fn placed(measures: impl Iterator<Item = Measure>) -> Vec<PlacedSeries> {
    let place = |measure: Measure| {
        let series = measure.series().ok()?;
        Some(PlacedSeries {
            series,
            region: 0,
            first: measure.slot(),
            shards: Shards::ONE,
            declared: Declaration::NONE,
        })
    };
    measures.filter_map(place).collect()
}

/// How often each metric changes when processes are sampled every `interval`.
pub fn periods(interval: Nanos) -> BTreeMap<MetricName, Nanos> {
    let period = |measure: &Measure| {
        let description = measure.description();
        let name = MetricName::new(description.metric).ok()?;
        Some((name, if measure.is_expensive() { interval.max(SLOW) } else { interval }))
    };
    Measure::ALL.iter().filter_map(period).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measure_is_a_series_of_its_own_with_one_pace_per_name() {
        let placed = placed(Measure::ALL.iter().copied());

        assert_eq!(placed.len(), Measure::ALL.len());
        assert!(placed.len() <= crate::control_plane::Limits::OWN_SERIES);
        let titles: std::collections::BTreeSet<_> = placed.iter().map(|placed| placed.series.title()).collect();
        assert_eq!(titles.len(), placed.len());
        for measure in Measure::ALL {
            let same = Measure::ALL.iter().filter(|other| other.description().metric == measure.description().metric);
            assert!(same.clone().all(|other| other.description().pace == measure.description().pace), "{measure:?}");
        }
    }

    #[test]
    fn what_is_expensive_changes_once_a_second() {
        let periods = periods(Nanos::from_millis(100));

        assert_eq!(periods[&MetricName::new("process.cpu.time").unwrap()], Nanos::from_millis(100));
        assert_eq!(periods[&MetricName::new("process.open_file_descriptor.count").unwrap()], Nanos::from_secs(1));
    }
}
