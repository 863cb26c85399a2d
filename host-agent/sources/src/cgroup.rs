//! Files of a control group (cgroup): what a container or a systemd unit uses, waits for and is refused.
//!
//! Source: Documentation/admin-guide/cgroup-v2.rst, Documentation/accounting/psi.rst and, for version 1,
//! Documentation/admin-guide/cgroup-v1 of the kernel.
//!
//! | module | what |
//! | --- | --- |
//! | [`files`] | which files are read, and how each is parsed, of both versions |
//! | [`hierarchies`] | where the kernel shows cgroups: /proc/self/mountinfo |
//! | [`pattern`] | which cgroups are read, and as which service |

pub mod files;
pub mod hierarchies;
pub mod pattern;

macro_rules! measures {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => {
        /// One value of a cgroup, its children included.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Measure {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Measure {
            /// All of them, in their order.
            pub const ALL: &[Self] = &[$(Self::$name,)+];
        }
    };
}

measures! {
    /// CPU time in user mode, in nanoseconds.
    CpuUser;
    /// CPU time in the kernel, in nanoseconds.
    CpuSystem;
    /// Periods of the CPU limit in which it ran.
    Periods;
    /// Periods in which it used up its CPU limit and had to wait.
    ThrottledPeriods;
    /// Time that its threads were kept from running by the CPU limit, in nanoseconds.
    ThrottledTime;
    /// Periods in which it used time that it had saved.
    Bursts;
    /// CPU time that was taken from savings, in nanoseconds.
    BurstTime;
    /// Time in which some thread waited for a CPU, in nanoseconds.
    CpuSome;
    /// Time in which all threads waited for a CPU, in nanoseconds.
    CpuFull;
    /// Memory in use, in bytes.
    MemoryUsage;
    /// Memory in use without file pages that can be dropped, in bytes.
    WorkingSet;
    /// Swap space in use, in bytes.
    Swap;
    /// Memory of programs that is no file, in bytes.
    Anon;
    /// Cached files, in bytes.
    File;
    /// Shared memory and tmpfs, in bytes.
    Shmem;
    /// Cached files that are mapped, in bytes.
    FileMapped;
    /// Cached files to be written, in bytes.
    FileDirty;
    /// Cached files that are being written, in bytes.
    FileWriteback;
    /// Huge pages of programs, in bytes.
    AnonHuge;
    /// Kernel stacks, in bytes.
    KernelStack;
    /// Page tables, in bytes.
    PageTables;
    /// Socket buffers, in bytes.
    Sock;
    /// Kernel objects that can be dropped, in bytes.
    SlabReclaimable;
    /// Kernel objects that cannot be dropped, in bytes.
    SlabUnreclaimable;
    /// Memory of programs that was not used lately, in bytes.
    InactiveAnon;
    /// Memory of programs that was used lately, in bytes.
    ActiveAnon;
    /// Cached files that were not used lately, in bytes.
    InactiveFile;
    /// Cached files that were used lately, in bytes.
    ActiveFile;
    /// Memory that cannot be reclaimed, in bytes.
    Unevictable;
    /// Page faults without I/O.
    FaultsMinor;
    /// Page faults with I/O.
    FaultsMajor;
    /// Pages of programs that came back from swap soon after they had to leave.
    RefaultsAnon;
    /// Pages of files that were read again soon after they had to leave.
    RefaultsFile;
    /// Pages of programs that came back and were found in use at once.
    ActivationsAnon;
    /// Pages of files that came back and were found in use at once.
    ActivationsFile;
    /// Pages that were looked at to free memory.
    PagesScanned;
    /// Pages that were freed so.
    PagesReclaimed;
    /// Pages that the programs themselves had to look at, while they waited for memory.
    PagesScannedDirectly;
    /// Active pages that were looked at to free memory.
    PagesRefilled;
    /// Pages that were charged; version 1 only.
    PagesCharged;
    /// Pages that were given back; version 1 only.
    PagesUncharged;
    /// Times that memory was reclaimed although usage was below the protected amount.
    EventsLow;
    /// Times that usage exceeded the high boundary, and threads were slowed down.
    EventsHigh;
    /// Times that usage was about to exceed the limit.
    EventsMax;
    /// Times that the limit was reached and an allocation was about to fail.
    EventsOom;
    /// Processes killed for lack of memory.
    OomKills;
    /// Time in which some thread waited for memory, in nanoseconds.
    MemorySome;
    /// Time in which all threads waited for memory, in nanoseconds.
    MemoryFull;
    /// Bytes read from devices.
    BytesRead;
    /// Bytes written to devices.
    BytesWritten;
    /// Bytes discarded on devices.
    BytesDiscarded;
    /// Reads of devices.
    Reads;
    /// Writes to devices.
    Writes;
    /// Discards on devices.
    Discards;
    /// Time in which some thread waited for a device, in nanoseconds.
    IoSome;
    /// Time in which all threads waited for a device, in nanoseconds.
    IoFull;
    /// Processes and threads.
    Pids;
    /// Forks that failed because of the limit of processes.
    EventsPids;
    /// Bytes that were received.
    NetworkReceived;
    /// Bytes that were transmitted.
    NetworkTransmitted;
    /// Packets that were received.
    PacketsReceived;
    /// Packets that were transmitted.
    PacketsTransmitted;
    /// Errors of receiving.
    ErrorsReceived;
    /// Errors of transmitting.
    ErrorsTransmitted;
    /// Packets dropped that were received.
    DropsReceived;
    /// Packets dropped that were to be transmitted.
    DropsTransmitted;
    /// TCP segments sent again.
    Retransmitted;
    /// TCP connections reset.
    Resets;
    /// TCP connections refused because a queue was full.
    ListenDrops;
    /// Time in which all processes were stopped by a signal, in nanoseconds.
    Stopped;
    /// Time in which a container was not running that is to run always, in nanoseconds.
    Down;
}

/// A sample of a cgroup: values of some measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values([Option<u64>; Measure::ALL.len()]);

impl Default for Values {
    fn default() -> Self {
        Self([None; Measure::ALL.len()])
    }
}

impl Values {
    /// Forgets all values.
    pub fn clear(&mut self) {
        self.0.fill(None);
    }

    /// Sets the value of a measure.
    pub fn set(&mut self, measure: Measure, value: u64) {
        if let Some(place) = self.0.get_mut(measure as usize) {
            *place = Some(value);
        }
    }

    /// Adds to the value of a measure, which is 0 before.
    pub fn add(&mut self, measure: Measure, value: u64) {
        if let Some(place) = self.0.get_mut(measure as usize) {
            *place = Some(place.unwrap_or(0).saturating_add(value));
        }
    }

    /// The value of this measure, if there is one.
    #[must_use]
    pub fn get(&self, measure: Measure) -> Option<u64> {
        self.0.get(measure as usize).copied().flatten()
    }

    /// The measures with a value.
    pub fn iter(&self) -> impl Iterator<Item = (Measure, u64)> {
        Measure::ALL.iter().zip(&self.0).filter_map(|(measure, value)| Some((*measure, (*value)?)))
    }
}
