//! Files of one cgroup, and of the network namespace of its processes: only what is measured, without allocating.

use super::hierarchies::Controller;
use super::{Measure, Values};
use crate::fields::{fields, lines, number};
use crate::sockets::counter;

const NS_PER_US: u64 = 1_000;

/// Parses a text into values. `None` if the text is not what the kernel writes.
type Parse = fn(&[u8], &mut Values) -> Option<()>;

/// A file that each cgroup of a hierarchy may have.
#[derive(Clone, Copy, Debug)]
pub struct CgroupFile {
    /// The hierarchy that has it.
    pub controller: Controller,
    /// Its name in the cgroup's folder.
    pub name: &'static str,
    parse: Parse,
}

impl CgroupFile {
    /// Adds the values of `text`, the whole file. `None` if the text is not what the kernel writes.
    pub fn read(&self, text: &[u8], values: &mut Values) -> Option<()> {
        (self.parse)(text, values)
    }
}

const fn file(controller: Controller, name: &'static str, parse: Parse) -> CgroupFile {
    CgroupFile { controller, name, parse }
}

/// Files in the order in which they are to be read: where both versions have a value, that of version 2 counts.
pub const FILES: &[CgroupFile] = &[
    file(Controller::Cpuacct, "cpuacct.usage_user", |text, values| level(Measure::CpuUser, text, values)),
    file(Controller::Cpuacct, "cpuacct.usage_sys", |text, values| level(Measure::CpuSystem, text, values)),
    file(Controller::Cpu, "cpu.stat", |text, values| table(text, values, cpu_v1)),
    file(Controller::Memory, "memory.usage_in_bytes", |text, values| level(Measure::MemoryUsage, text, values)),
    file(Controller::Memory, "memory.stat", |text, values| memory(text, values, memory_v1)),
    file(Controller::Memory, "memory.failcnt", |text, values| level(Measure::EventsMax, text, values)),
    file(Controller::Memory, "memory.oom_control", |text, values| table(text, values, memory_event)),
    file(Controller::Blkio, "blkio.throttle.io_service_bytes_recursive", |text, values| {
        block_devices(text, values, [Measure::BytesRead, Measure::BytesWritten, Measure::BytesDiscarded])
    }),
    file(Controller::Blkio, "blkio.throttle.io_serviced_recursive", |text, values| {
        block_devices(text, values, [Measure::Reads, Measure::Writes, Measure::Discards])
    }),
    file(Controller::Pids, "pids.current", |text, values| level(Measure::Pids, text, values)),
    file(Controller::Pids, "pids.events", |text, values| table(text, values, pids_event)),
    file(Controller::Unified, "cpu.stat", |text, values| table(text, values, cpu_v2)),
    file(Controller::Unified, "cpu.pressure", |text, values| {
        pressure(text, values, Measure::CpuSome, Measure::CpuFull)
    }),
    file(Controller::Unified, "memory.current", |text, values| level(Measure::MemoryUsage, text, values)),
    file(Controller::Unified, "memory.swap.current", |text, values| level(Measure::Swap, text, values)),
    file(Controller::Unified, "memory.stat", |text, values| memory(text, values, memory_v2)),
    file(Controller::Unified, "memory.events", |text, values| table(text, values, memory_event)),
    file(Controller::Unified, "memory.pressure", |text, values| {
        pressure(text, values, Measure::MemorySome, Measure::MemoryFull)
    }),
    file(Controller::Unified, "io.stat", io_v2),
    file(Controller::Unified, "io.pressure", |text, values| pressure(text, values, Measure::IoSome, Measure::IoFull)),
    file(Controller::Unified, "pids.current", |text, values| level(Measure::Pids, text, values)),
    file(Controller::Unified, "pids.events", |text, values| table(text, values, pids_event)),
];

/// A measure, and how many of its units one of the kernel's is.
type ScaledMeasure = (Measure, u64);

/// A text of one number.
fn level(measure: Measure, text: &[u8], values: &mut Values) -> Option<()> {
    values.set(measure, number(text.trim_ascii())?);
    Some(())
}

/// Lines of `key value`, of which `place` knows some.
fn table(text: &[u8], values: &mut Values, place: fn(&[u8]) -> Option<ScaledMeasure>) -> Option<()> {
    for line in lines(text).filter(|line| !line.is_empty()) {
        let space = line.iter().position(|byte| *byte == b' ')?;
        let Some((measure, unit)) = place(line.get(..space)?) else { continue };
        values.set(measure, number(line.get(space + 1..)?)?.saturating_mul(unit));
    }
    Some(())
}

fn cpu_v2(key: &[u8]) -> Option<ScaledMeasure> {
    Some(match key {
        b"user_usec" => (Measure::CpuUser, NS_PER_US),
        b"system_usec" => (Measure::CpuSystem, NS_PER_US),
        b"nr_periods" => (Measure::Periods, 1),
        b"nr_throttled" => (Measure::ThrottledPeriods, 1),
        b"throttled_usec" => (Measure::ThrottledTime, NS_PER_US),
        b"nr_bursts" => (Measure::Bursts, 1),
        b"burst_usec" => (Measure::BurstTime, NS_PER_US),
        _ => return None,
    })
}

fn cpu_v1(key: &[u8]) -> Option<ScaledMeasure> {
    Some(match key {
        b"nr_periods" => (Measure::Periods, 1),
        b"nr_throttled" => (Measure::ThrottledPeriods, 1),
        b"throttled_time" => (Measure::ThrottledTime, 1),
        b"nr_bursts" => (Measure::Bursts, 1),
        b"burst_time" => (Measure::BurstTime, 1),
        _ => return None,
    })
}

fn memory_event(key: &[u8]) -> Option<ScaledMeasure> {
    Some(match key {
        b"low" => (Measure::EventsLow, 1),
        b"high" => (Measure::EventsHigh, 1),
        b"max" => (Measure::EventsMax, 1),
        b"oom" => (Measure::EventsOom, 1),
        b"oom_kill" => (Measure::OomKills, 1),
        _ => return None,
    })
}

fn pids_event(key: &[u8]) -> Option<ScaledMeasure> {
    (key == b"max").then_some((Measure::EventsPids, 1))
}

fn memory_v2(key: &[u8]) -> Option<ScaledMeasure> {
    let measure = match key {
        b"anon" => Measure::Anon,
        b"file" => Measure::File,
        b"shmem" => Measure::Shmem,
        b"file_mapped" => Measure::FileMapped,
        b"file_dirty" => Measure::FileDirty,
        b"file_writeback" => Measure::FileWriteback,
        b"anon_thp" => Measure::AnonHuge,
        b"kernel_stack" => Measure::KernelStack,
        b"pagetables" => Measure::PageTables,
        b"sock" => Measure::Sock,
        b"slab_reclaimable" => Measure::SlabReclaimable,
        b"slab_unreclaimable" => Measure::SlabUnreclaimable,
        b"inactive_anon" => Measure::InactiveAnon,
        b"active_anon" => Measure::ActiveAnon,
        b"inactive_file" => Measure::InactiveFile,
        b"active_file" => Measure::ActiveFile,
        b"unevictable" => Measure::Unevictable,
        b"pgfault" => Measure::FaultsMinor,
        b"pgmajfault" => Measure::FaultsMajor,
        b"workingset_refault_anon" => Measure::RefaultsAnon,
        // Of kernels before 5.9, which know refaults of files only.
        b"workingset_refault_file" | b"workingset_refault" => Measure::RefaultsFile,
        b"workingset_activate_anon" => Measure::ActivationsAnon,
        b"workingset_activate_file" | b"workingset_activate" => Measure::ActivationsFile,
        b"pgscan" => Measure::PagesScanned,
        b"pgsteal" => Measure::PagesReclaimed,
        b"pgscan_direct" => Measure::PagesScannedDirectly,
        b"pgrefill" => Measure::PagesRefilled,
        _ => return None,
    };
    Some((measure, 1))
}

/// Version 1 has each key twice; those with `total_` count the children, too.
fn memory_v1(key: &[u8]) -> Option<ScaledMeasure> {
    let measure = match key.strip_prefix(b"total_")? {
        b"cache" => Measure::File,
        b"rss" => Measure::Anon,
        b"rss_huge" => Measure::AnonHuge,
        b"shmem" => Measure::Shmem,
        b"mapped_file" => Measure::FileMapped,
        b"dirty" => Measure::FileDirty,
        b"writeback" => Measure::FileWriteback,
        b"swap" => Measure::Swap,
        b"inactive_anon" => Measure::InactiveAnon,
        b"active_anon" => Measure::ActiveAnon,
        b"inactive_file" => Measure::InactiveFile,
        b"active_file" => Measure::ActiveFile,
        b"unevictable" => Measure::Unevictable,
        b"pgfault" => Measure::FaultsMinor,
        b"pgmajfault" => Measure::FaultsMajor,
        b"pgpgin" => Measure::PagesCharged,
        b"pgpgout" => Measure::PagesUncharged,
        b"workingset_refault_anon" => Measure::RefaultsAnon,
        b"workingset_refault_file" | b"workingset_refault" => Measure::RefaultsFile,
        _ => return None,
    };
    Some((measure, 1))
}

/// `memory.stat`, after the file with the usage.
fn memory(text: &[u8], values: &mut Values, place: fn(&[u8]) -> Option<ScaledMeasure>) -> Option<()> {
    table(text, values, place)?;
    // The kernel counts all faults, and those with I/O among them.
    if let (Some(all), Some(major)) = (values.get(Measure::FaultsMinor), values.get(Measure::FaultsMajor)) {
        values.set(Measure::FaultsMinor, all.saturating_sub(major));
    }
    if let (Some(usage), Some(inactive)) = (values.get(Measure::MemoryUsage), values.get(Measure::InactiveFile)) {
        values.set(Measure::WorkingSet, usage.saturating_sub(inactive));
    }
    Some(())
}

/// Lines of `some avg10=… total=…` and `full …`.
fn pressure(text: &[u8], values: &mut Values, some: Measure, full: Measure) -> Option<()> {
    for line in lines(text) {
        let mut words = fields(line);
        let measure = match words.next() {
            Some(b"some") => some,
            Some(b"full") => full,
            _ => continue,
        };
        let total = words.find_map(|word| word.strip_prefix(b"total="))?;
        values.set(measure, number(total)?.saturating_mul(NS_PER_US));
    }
    Some(())
}

/// Lines of `8:0 rbytes=… wbytes=… …`: sums over devices. Without a line nothing was read or written yet.
fn io_v2(text: &[u8], values: &mut Values) -> Option<()> {
    for (_, measure) in IO_KEYS {
        values.add(*measure, 0);
    }
    for word in lines(text).flat_map(fields) {
        let Some(equals) = word.iter().position(|byte| *byte == b'=') else { continue };
        let key = word.get(..equals)?;
        if let Some((_, measure)) = IO_KEYS.iter().find(|(name, _)| *name == key) {
            values.add(*measure, number(word.get(equals + 1..)?)?);
        }
    }
    Some(())
}

const IO_KEYS: &[(&[u8], Measure)] = &[
    (b"rbytes", Measure::BytesRead),
    (b"wbytes", Measure::BytesWritten),
    (b"rios", Measure::Reads),
    (b"wios", Measure::Writes),
    (b"dbytes", Measure::BytesDiscarded),
    (b"dios", Measure::Discards),
];

/// Lines of `8:0 Read 4096`: sums over devices.
fn block_devices(text: &[u8], values: &mut Values, [read, written, discarded]: [Measure; 3]) -> Option<()> {
    for measure in [read, written, discarded] {
        values.add(measure, 0);
    }
    for line in lines(text) {
        let mut words = fields(line).skip(1);
        let measure = match words.next() {
            Some(b"Read") => read,
            Some(b"Write") => written,
            Some(b"Discard") => discarded,
            _ => continue,
        };
        values.add(measure, number(words.next()?)?);
    }
    Some(())
}

/// Adds the interfaces of a text of /proc/PID/net/dev, without the loopback interface.
pub fn interfaces(text: &[u8], values: &mut Values) -> Option<()> {
    for line in lines(text) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = line.get(..colon)?.trim_ascii();
        if name == b"lo" {
            continue;
        }
        let mut columns = fields(line.get(colon + 1..)?).map(number);
        for measure in
            [Measure::NetworkReceived, Measure::PacketsReceived, Measure::ErrorsReceived, Measure::DropsReceived]
        {
            values.add(measure, columns.next()??);
        }
        // Four more of the received ones.
        let mut columns = columns.skip(4);
        for measure in [
            Measure::NetworkTransmitted,
            Measure::PacketsTransmitted,
            Measure::ErrorsTransmitted,
            Measure::DropsTransmitted,
        ] {
            values.add(measure, columns.next()??);
        }
    }
    Some(())
}

/// Adds the TCP counters of a text of /proc/PID/net/snmp.
pub fn tcp(text: &[u8], values: &mut Values) {
    for (name, measure) in [("RetransSegs", Measure::Retransmitted), ("EstabResets", Measure::Resets)] {
        if let Some(value) = counter(text, "Tcp", name) {
            values.set(measure, value);
        }
    }
}

/// Adds the TCP counter of a text of /proc/PID/net/netstat.
pub fn tcp_extensions(text: &[u8], values: &mut Values) {
    if let Some(value) = counter(text, "TcpExt", "ListenDrops") {
        values.set(Measure::ListenDrops, value);
    }
}

#[cfg(test)]
mod tests;
