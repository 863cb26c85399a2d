//! What an agent accounts for of its resident set: pages of its program's file, what it keeps by its own count, and
//! what the allocator adds to that. `/metrics` has it beside the resident set itself, and `cargo lab memory` compares
//! both.

use std::fs;

/// Where the kernel says how much memory this process has.
const STATUS: &str = "/proc/self/status";

/// What a program has in memory that has started and keeps nothing yet, besides pages of its file: stacks of threads,
/// their runtime, what libraries keep.
pub const STARTED_BYTES: u64 = 4 << 20;

/// Memory of a process, in bytes, as the kernel has it. Memory that services share with it is not part of it: the
/// kernel charges that to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentSet {
    /// Pages of files: of the program, and of its libraries.
    pub file: u64,
    /// Pages of its own.
    pub anonymous: u64,
}

impl ResidentSet {
    /// That of this process; `None` if the kernel does not say.
    #[must_use]
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string(STATUS).ok()?)
    }

    /// That of the text of [`STATUS`].
    fn parse(status: &str) -> Option<Self> {
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
            kib.checked_mul(1 << 10)
        };
        Some(Self { file: bytes("RssFile:")?, anonymous: bytes("RssAnon:")? })
    }

    /// Bytes of both together.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.file.saturating_add(self.anonymous)
    }
}

/// What an agent accounts for of its resident set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its resident set.
    pub resident: ResidentSet,
    /// Bytes that it keeps by its own count, as they were asked of the allocator.
    pub kept: u64,
    /// What the allocator adds to them, in percent: rounding, heads of blocks, and memory that is free and not given
    /// back.
    pub allocator_percent: u64,
}

impl Account {
    /// That of this process, which keeps so many bytes; `None` if the kernel does not say what is resident.
    #[must_use]
    pub fn now(kept: u64, allocator_percent: u64) -> Option<Self> {
        Some(Self { resident: ResidentSet::now()?, kept, allocator_percent })
    }

    /// Bytes that are accounted for.
    #[must_use]
    pub const fn accounted(&self) -> u64 {
        let added = (self.kept / 100).saturating_mul(self.allocator_percent);
        self.resident.file.saturating_add(STARTED_BYTES).saturating_add(self.kept).saturating_add(added)
    }

    /// The gauges of `/metrics`: name, help text without a full stop, and bytes.
    #[must_use]
    pub const fn gauges(&self) -> [(&'static str, &'static str, u64); 3] {
        [
            ("resident_bytes", "Bytes of this process in memory, without services' regions", self.resident.total()),
            ("kept_bytes", "Bytes that this process keeps by its own count, of all that it counts in bytes", self.kept),
            (
                "accounted_bytes",
                "Bytes that should be resident: the program, what is kept, and what the allocator adds to it",
                self.accounted(),
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_files_and_own_ones_are_told_apart_and_shared_ones_are_left_out() {
        let status =
            "Name:\tuview\nVmRSS:\t   46080 kB\nRssAnon:\t    3072 kB\nRssFile:\t   40960 kB\nRssShmem:\t 2048 kB\n";

        assert_eq!(ResidentSet::parse(status), Some(ResidentSet { file: 40 << 20, anonymous: 3 << 20 }));
        assert_eq!(ResidentSet::parse("RssAnon:\t1 kB\n"), None);
        assert_eq!(ResidentSet::parse("RssAnon:\t-1 kB\nRssFile:\t1 kB\n"), None);
    }

    #[test]
    fn what_is_kept_counts_with_what_the_allocator_adds_and_the_program_with_what_of_it_is_in_memory() {
        let resident = ResidentSet { file: 10 << 20, anonymous: 0 };

        let account = Account { resident, kept: 100_000_000, allocator_percent: 30 };

        assert_eq!(account.accounted(), (10 << 20) + STARTED_BYTES + 130_000_000);
        let full = Account { resident, kept: u64::MAX, allocator_percent: 30 };
        assert_eq!(full.accounted(), u64::MAX);
    }

    #[test]
    fn this_process_has_pages_of_its_own_and_of_its_program() {
        let resident = ResidentSet::now().expect("Linux says so");

        assert!(resident.file > 1 << 16 && resident.anonymous > 1 << 16, "{resident:?}");
    }
}
