//! Checks of the kernel: version, cores, sealed memory files, senders on this machine.

use host_agent::{UnknownSenders, unknown_senders_here};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create};
use rustix::io::Errno;

use super::Finding;

/// The first version with memfd_create and seals.
const REQUIRED_VERSION: (u32, u32) = (3, 17);
/// The first version with pidfd_open, which is safe against reused process ids.
const RECOMMENDED_VERSION: (u32, u32) = (5, 3);

pub(super) fn version() -> Finding {
    let uname = rustix::system::uname();
    judge_version(&uname.release().to_string_lossy())
}

fn judge_version(release: &str) -> Finding {
    const NAME: &str = "kernel";
    let Some(version) = parse_version(release) else {
        let found = format!("the kernel release `{release}` is no version of Linux");
        return Finding::missing(NAME, found, "nothing to do if the other checks pass");
    };
    let linux = |(major, minor): (u32, u32)| format!("Linux {major}.{minor}");
    if version < REQUIRED_VERSION {
        let found = format!("Linux {release} has no sealed memory files");
        return Finding::broken(NAME, found, format!("{} or later", linux(RECOMMENDED_VERSION)));
    }
    if version < RECOMMENDED_VERSION {
        let found = format!("Linux {release} has no pidfd_open: a reused process id can be mistaken for a service");
        return Finding::missing(NAME, found, format!("{} or later", linux(RECOMMENDED_VERSION)));
    }
    Finding::fine(NAME, format!("Linux {release}"))
}

fn parse_version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

pub(super) fn cores() -> Finding {
    judge_cores(std::thread::available_parallelism().map_or(1, usize::from))
}

fn judge_cores(cores: usize) -> Finding {
    const NAME: &str = "cores";
    if cores < 2 {
        let found = "1 core: the agents compete with the services that they watch";
        return Finding::missing(NAME, found, "2 cores, or an interval of at least a second");
    }
    Finding::fine(NAME, format!("{cores} cores available to this process"))
}

pub(super) fn sealed_memory() -> Finding {
    const NAME: &str = "sealed memory";
    match seal() {
        Ok(()) => Finding::fine(NAME, "memory files can be sealed"),
        Err(error) => {
            let found = format!("a memory file cannot be created and sealed: {error}");
            let fix = "allow memfd_create and F_ADD_SEALS in the sandbox (seccomp, gVisor)";
            Finding::broken(NAME, found, fix)
        }
    }
}

/// Creates and seals a memory file, as every service does when it registers (D1).
fn seal() -> Result<(), Errno> {
    let file = memfd_create("uview-check", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, 4096)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW;
    fcntl_add_seals(&file, seals)?;
    let sealed = fcntl_get_seals(&file)?.contains(seals) && ftruncate(&file, 0).is_err();
    if sealed { Ok(()) } else { Err(Errno::NOTSUP) }
}

pub(super) fn senders() -> Finding {
    judge_senders(unknown_senders_here().as_ref())
}

/// Whether rules of `services.identities` can fit a sender of OTLP on this machine.
fn judge_senders(unknown: Option<&UnknownSenders>) -> Finding {
    const NAME: &str = "OTLP senders";
    match unknown {
        None => Finding::fine(NAME, "the kernel says the user and the cgroup of who connects from this machine"),
        Some(unknown) => Finding::missing(NAME, unknown.to_string(), unknown.advice()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(parse_version("6.12.9+deb13-cloud-amd64"), Some((6, 12)));
        assert_eq!(judge_version("3.16.0").level, Level::Broken);
        assert_eq!(judge_version("4.19.0-27").level, Level::Missing);
        assert_eq!(judge_version("5.10.0").level, Level::Fine);
        assert_eq!(judge_version("plan 9").level, Level::Missing);
    }

    #[test]
    fn one_core_is_reported() {
        assert_eq!(judge_cores(1).level, Level::Missing);
        assert_eq!(judge_cores(2).level, Level::Fine);
    }

    #[test]
    fn a_kernel_that_does_not_know_senders_is_no_failure_and_says_what_to_do() {
        let finding = judge_senders(Some(&UnknownSenders::NoModule));

        assert_eq!(finding.level, Level::Missing);
        assert!(finding.fix.unwrap().contains("tcp_diag"));
        assert_eq!(judge_senders(None).level, Level::Fine);
    }

    #[test]
    fn memory_can_be_sealed_here() {
        assert_eq!(sealed_memory().level, Level::Fine);
    }
}
