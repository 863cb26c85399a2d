//! What the kernel offers: its version, cores, memory that can be sealed.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create};
use rustix::io::Errno;

use super::Finding;

/// memfd_create and seals.
const NEEDED: (u32, u32) = (3, 17);
/// pidfd_open: a process is followed without mistaking its successor for it.
const WANTED: (u32, u32) = (5, 3);

pub(super) fn version() -> Finding {
    let uname = rustix::system::uname();
    judge_version(&uname.release().to_string_lossy())
}

fn judge_version(release: &str) -> Finding {
    const NAME: &str = "kernel";
    let Some(version) = parse_version(release) else {
        let found = format!("the kernel calls itself `{release}`, which is no version of Linux");
        return Finding::missing(NAME, found, "nothing, if the other lines are fine");
    };
    let linux = |(major, minor): (u32, u32)| format!("Linux {major}.{minor}");
    if version < NEEDED {
        let found = format!("Linux {release} has no sealed memory files");
        return Finding::broken(NAME, found, format!("{} or later", linux(WANTED)));
    }
    if version < WANTED {
        let found = format!("Linux {release} cannot name a process safely (pidfd_open)");
        return Finding::missing(NAME, found, format!("{} or later", linux(WANTED)));
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
        let found = "1 core: the agents and the services that they watch wait for each other";
        return Finding::missing(NAME, found, "2 cores, or an interval of a second and more");
    }
    Finding::fine(NAME, format!("{cores} cores for this process"))
}

pub(super) fn sealed_memory() -> Finding {
    const NAME: &str = "sealed memory";
    match seal() {
        Ok(()) => Finding::fine(NAME, "a memory file can be sealed against shrinking and growing"),
        Err(error) => {
            let found = format!("a memory file cannot be made and sealed: {error}");
            let fix = "a sandbox (seccomp, gVisor) refuses memfd_create or F_ADD_SEALS: allow both";
            Finding::broken(NAME, found, fix)
        }
    }
}

/// What every service does when it registers (D1 of ARCHITECTURE.md).
fn seal() -> Result<(), Errno> {
    let file = memfd_create("uview-check", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, 4096)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW;
    fcntl_add_seals(&file, seals)?;
    let sealed = fcntl_get_seals(&file)?.contains(seals) && ftruncate(&file, 0).is_err();
    if sealed { Ok(()) } else { Err(Errno::NOTSUP) }
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
    fn one_core_is_few() {
        assert_eq!(judge_cores(1).level, Level::Missing);
        assert_eq!(judge_cores(2).level, Level::Fine);
    }

    #[test]
    fn memory_can_be_sealed_here() {
        assert_eq!(sealed_memory().level, Level::Fine);
    }
}
