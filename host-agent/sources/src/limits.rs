//! Limits of a process: its own in /proc/PID/limits, and those of its cgroup. Source: proc_pid_limits(5),
//! Documentation/admin-guide/cgroup-v2.rst and sched-bwc.rst of the kernel.

use crate::fields::{fields, lines, number};

/// Limits of a process that are worth comparing: how the kernel calls them, and how they are called here.
const OF_PROCESSES: [(&[u8], &str); 4] = [
    (b"Max open files", "limit of open files"),
    (b"Max address space", "limit of address space"),
    (b"Max processes", "limit of processes"),
    (b"Max locked memory", "limit of locked memory"),
];

/// A limit of memory of version 1 from here on is none: the largest whole page.
const NO_MEMORY_LIMIT: u64 = 1 << 62;

/// A limit of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit<T> {
    /// There is none.
    Unlimited,
    /// So much at most.
    Most(T),
}

impl<T> Limit<T> {
    /// The limit; `None` without one.
    #[must_use]
    pub fn most(self) -> Option<T> {
        match self {
            Self::Unlimited => None,
            Self::Most(limit) => Some(limit),
        }
    }
}

/// The soft limits in a text of /proc/PID/limits; `None` as a value is unlimited. Lines that the kernel does not write
/// are left out.
pub fn of_process(text: &[u8]) -> impl Iterator<Item = (&'static str, Option<u64>)> {
    lines(text).filter_map(|line| {
        let (key, name) = OF_PROCESSES.iter().find(|(key, _)| line.starts_with(key))?;
        let soft = fields(line.get(key.len()..)?).next()?;
        if soft == b"unlimited" { Some((*name, None)) } else { Some((*name, Some(number(soft)?))) }
    })
}

/// A limit of CPU time of version 2 (`cpu.max`), in CPUs; `None` if the text is none.
#[must_use]
pub fn cpus(text: &[u8]) -> Option<Limit<f64>> {
    let mut words = fields(text);
    let (quota, period) = (words.next()?, number(words.next()?)?);
    if quota == b"max" {
        return Some(Limit::Unlimited);
    }
    share(number(quota)?, period)
}

/// A limit of CPU time of version 1 (`cpu.cfs_quota_us` and `cpu.cfs_period_us`), as [`cpus`].
#[must_use]
pub fn cpus_of_version_1(quota: &[u8], period: &[u8]) -> Option<Limit<f64>> {
    let quota = fields(quota).next()?;
    if quota.starts_with(b"-") {
        return Some(Limit::Unlimited);
    }
    share(number(quota)?, number(fields(period).next()?)?)
}

fn share(quota: u64, period: u64) -> Option<Limit<f64>> {
    (period > 0).then(|| Limit::Most(quota as f64 / period as f64))
}

/// A limit of memory in bytes, of both versions, as [`cpus`].
#[must_use]
pub fn memory(text: &[u8]) -> Option<Limit<u64>> {
    let word = fields(text).next()?;
    if word == b"max" {
        return Some(Limit::Unlimited);
    }
    number(word).map(|bytes| if bytes < NO_MEMORY_LIMIT { Limit::Most(bytes) } else { Limit::Unlimited })
}

/// The path of a process's cgroup in the hierarchy of `controller`, from a text of /proc/PID/cgroup; an empty
/// controller is version 2. `None` if it is in none, or outside of the agent's namespace.
#[must_use]
pub fn cgroup<'a>(text: &'a str, controller: &str) -> Option<&'a str> {
    let path = text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_meant = if controller.is_empty() {
            controllers.is_empty()
        } else {
            controllers.split(',').any(|name| name == controller)
        };
        is_meant.then_some(path)
    })?;
    let is_below = path.starts_with('/') && !path.split('/').any(|part| part == "..");
    is_below.then(|| path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: &[u8] = b"Limit                     Soft Limit           Hard Limit           Units     \n\
        Max cpu time              unlimited            unlimited            seconds   \n\
        Max processes             63204                63204                processes \n\
        Max open files            1024                 1048576              files     \n\
        Max address space         unlimited            unlimited            bytes     \n";

    #[test]
    fn soft_limits_of_a_process_are_found() {
        let found: Vec<_> = of_process(LIMITS).collect();
        let expected = [
            ("limit of processes", Some(63_204)),
            ("limit of open files", Some(1_024)),
            ("limit of address space", None),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn limits_of_cgroups_of_both_versions_are_read() {
        assert_eq!(cpus(b"150000 100000\n"), Some(Limit::Most(1.5)));
        assert_eq!((cpus(b"max 100000\n"), cpus(b"max"), cpus(b"1 0")), (Some(Limit::Unlimited), None, None));
        assert_eq!(cpus_of_version_1(b"-1\n", b"100000\n"), Some(Limit::Unlimited));
        assert_eq!(cpus_of_version_1(b"50000\n", b"100000\n"), Some(Limit::Most(0.5)));
        assert_eq!(
            (memory(b"max\n"), memory(b"268435456\n")),
            (Some(Limit::Unlimited), Some(Limit::Most(268_435_456)))
        );
        assert_eq!((memory(b"9223372036854771712\n"), memory(b"")), (Some(Limit::Unlimited), None));
    }

    #[test]
    fn a_cgroup_is_found_by_its_controller_and_never_above_the_root() {
        let text = "12:cpu,cpuacct:/kube/pod\n5:memory:/../../out\n0::/system.slice/a:b.service\n";
        assert_eq!(cgroup(text, "cpu"), Some("kube/pod"));
        assert_eq!(cgroup(text, ""), Some("system.slice/a:b.service"));
        assert_eq!((cgroup(text, "memory"), cgroup(text, "pids"), cgroup("", "")), (None, None, None));
    }

    proptest! {
        #[test]
        fn any_text_gives_values_or_nothing(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            _ = (of_process(&text).count(), cpus(&text), memory(&text), cpus_of_version_1(&text, &text));
            _ = cgroup(&String::from_utf8_lossy(&text), "cpu");
        }
    }
}
