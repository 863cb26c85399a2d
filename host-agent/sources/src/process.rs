//! Files of one process in /proc: only what is measured, without allocating.
//!
//! Source: proc_pid_stat(5), proc_pid_statm(5), proc_pid_io(5), proc_pid_status(5), and
//! Documentation/scheduler/sched-stats.rst of the kernel.

use crate::fields::{named_lines, number};

/// A value parsed from a file of /proc.
pub trait FromText: Sized {
    /// `None` if the text is not what the kernel writes.
    fn from_text(text: &[u8]) -> Option<Self>;
}

/// From a process's `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Whether a signal or a debugger has stopped it.
    pub stopped: bool,
    /// Whether it sleeps so that no signal wakes it (state D), as for a disk.
    pub disk_sleep: bool,
    /// Minor page faults, without I/O.
    pub minor_faults: u64,
    /// Major page faults, with I/O.
    pub major_faults: u64,
    /// Clock ticks in user mode.
    pub user_ticks: u64,
    /// Clock ticks in the kernel.
    pub system_ticks: u64,
    /// Number of threads.
    pub threads: u64,
    /// Start time, in clock ticks since boot.
    pub started: u64,
    /// Virtual memory, in bytes.
    pub virtual_bytes: u64,
    /// Resident memory, in pages.
    pub resident_pages: u64,
    /// Clock ticks waiting for block devices; `None` on older kernels.
    pub disk_wait_ticks: Option<u64>,
}

/// From a process's `io`. Zero for values that the kernel does not report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Io {
    /// Bytes returned by read calls.
    pub bytes_read: u64,
    /// Bytes taken by write calls.
    pub bytes_written: u64,
    /// Number of read calls.
    pub reads: u64,
    /// Number of write calls.
    pub writes: u64,
    /// Bytes read from storage.
    pub disk_read: u64,
    /// Bytes written to storage.
    pub disk_written: u64,
}

/// From a process's `statm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statm {
    /// Resident memory, in pages. More accurate than the field of `stat`, which newer kernels do not add up over
    /// processors.
    pub resident_pages: u64,
    /// Of it, what other processes may map, too: pages of files, and shared ones.
    pub shared_pages: u64,
}

/// From a thread's `schedstat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedstat {
    /// Nanoseconds on a CPU.
    pub ran_ns: u64,
    /// Nanoseconds runnable and waiting for a CPU.
    pub waited_ns: u64,
}

/// From a thread's `status`. `None` for values that the kernel does not report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Voluntary context switches.
    pub voluntary: Option<u64>,
    /// Involuntary context switches.
    pub involuntary: Option<u64>,
}

impl FromText for Stat {
    fn from_text(text: &[u8]) -> Option<Self> {
        // The name is in parentheses and may itself contain parentheses and spaces.
        let name_ends = text.iter().rposition(|byte| *byte == b')')?;
        let mut fields = text.get(name_ends + 1..)?.split(|byte| *byte == b' ' || *byte == b'\n');
        // A space follows the name, so the first piece is empty and the next one is field 3 of the manual page.
        let mut next = 2;
        let mut field = |wanted: usize| {
            let found = fields.nth(wanted - next).and_then(number);
            next = wanted + 1;
            found
        };
        Some(Self {
            stopped: matches!(text.get(name_ends + 2), Some(b'T' | b't')),
            disk_sleep: text.get(name_ends + 2) == Some(&b'D'),
            minor_faults: field(10)?,
            major_faults: field(12)?,
            user_ticks: field(14)?,
            system_ticks: field(15)?,
            threads: field(20)?,
            started: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
            disk_wait_ticks: field(42),
        })
    }
}

impl FromText for Io {
    fn from_text(text: &[u8]) -> Option<Self> {
        let mut io = Self::default();
        for (name, value) in named_lines(text) {
            let place = match name {
                b"rchar" => &mut io.bytes_read,
                b"wchar" => &mut io.bytes_written,
                b"syscr" => &mut io.reads,
                b"syscw" => &mut io.writes,
                b"read_bytes" => &mut io.disk_read,
                b"write_bytes" => &mut io.disk_written,
                _ => continue,
            };
            *place = number(value)?;
        }
        (!text.is_empty()).then_some(io)
    }
}

impl FromText for Statm {
    fn from_text(text: &[u8]) -> Option<Self> {
        // The first is the size.
        let mut fields = text.split(|byte| *byte == b' ').map(number).skip(1);
        Some(Self { resident_pages: fields.next()??, shared_pages: fields.next()?? })
    }
}

impl FromText for Schedstat {
    fn from_text(text: &[u8]) -> Option<Self> {
        let mut fields = text.split(|byte| *byte == b' ').map(number);
        Some(Self { ran_ns: fields.next()??, waited_ns: fields.next()?? })
    }
}

impl FromText for Switches {
    fn from_text(text: &[u8]) -> Option<Self> {
        let mut switches = Self::default();
        for (name, value) in named_lines(text) {
            match name {
                b"voluntary_ctxt_switches" => switches.voluntary = number(value),
                b"nonvoluntary_ctxt_switches" => switches.involuntary = number(value),
                _ => {}
            }
        }
        Some(switches)
    }
}

#[cfg(test)]
mod tests {
    use procfs::process::Process;

    use super::*;

    const STAT: &[u8] = b"4711 (a) b (c) S 1 4711 4711 0 -1 4194560 1206 30 7 0 12 5 0 0 20 0 3 0 8911 8425472 1330 \
        18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 1 0 0 42 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn fields_are_found_whatever_the_process_is_called() {
        let stat = Stat::from_text(STAT).unwrap();

        let expected = Stat {
            stopped: false,
            disk_sleep: false,
            minor_faults: 1206,
            major_faults: 7,
            user_ticks: 12,
            system_ticks: 5,
            threads: 3,
            started: 8911,
            virtual_bytes: 8_425_472,
            resident_pages: 1330,
            disk_wait_ticks: Some(42),
        };
        assert_eq!(stat, expected);
        let in_state =
            |state: &str| Stat::from_text(&String::from_utf8_lossy(STAT).replace(") S ", state).into_bytes());
        assert!(in_state(") D ").unwrap().disk_sleep && in_state(") T ").unwrap().stopped);
    }

    #[test]
    fn files_of_this_system_are_parsed_as_by_procfs() {
        let me = Process::myself().unwrap();
        let text = |file: &str| std::fs::read(format!("/proc/self/{file}")).unwrap();

        let (stat, same) = (Stat::from_text(&text("stat")).unwrap(), me.stat().unwrap());
        assert_eq!((stat.started, stat.disk_wait_ticks.is_some()), (same.starttime, true));
        assert!(stat.user_ticks <= same.utime && stat.minor_faults <= same.minflt && stat.threads > 0);
        assert!(stat.virtual_bytes > 0 && stat.resident_pages > 0);
        let memory = Statm::from_text(&text("statm")).unwrap();
        assert!(0 < memory.shared_pages && memory.shared_pages < memory.resident_pages, "{memory:?}");
        let (io, same) = (Io::from_text(&text("io")).unwrap(), me.io().unwrap());
        assert!(io.bytes_read > 0 && io.bytes_read <= same.rchar && io.reads > 0 && io.reads <= same.syscr);
        let (first, second) = (Schedstat::from_text(&text("schedstat")).unwrap(), me.schedstat().unwrap());
        assert!(first.ran_ns > 0 && first.ran_ns <= second.sum_exec_runtime);
        assert!(Switches::from_text(&text("status")).unwrap().voluntary.is_some());
    }

    #[test]
    fn what_the_kernel_does_not_write_is_refused() {
        for text in [&b""[..], b"1", b"1 (a", b"1 (a)", b"1 (a) S x", &STAT[..60]] {
            assert_eq!(Stat::from_text(text), None, "{}", text.escape_ascii());
        }
        assert_eq!(Io::from_text(b""), None);
        assert_eq!(Io::from_text(b"rchar: 99999999999999999999"), None);
        let memory = Statm { resident_pages: 20, shared_pages: 7 };
        assert_eq!(Statm::from_text(b"500 20 7 1 0 9 0\n"), Some(memory));
        for text in [&b""[..], b"1 2", b"1 2 x 4"] {
            assert_eq!(Statm::from_text(text), None, "{}", text.escape_ascii());
        }
        for text in [&b""[..], b"1", b"1 -2 3", b"1  2"] {
            assert_eq!(Schedstat::from_text(text), None, "{}", text.escape_ascii());
        }
        assert_eq!(Switches::from_text(b"voluntary_ctxt_switches:\tmany\n"), Some(Switches::default()));
    }
}
