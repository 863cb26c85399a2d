//! Checks of process metrics: /proc, delay accounting, and the right to inspect other processes.

use std::fs;
use std::path::Path;

use super::Finding;

/// Number of the capability to inspect processes of other users.
const CAP_SYS_PTRACE: u32 = 19;

pub(super) fn check() -> [Finding; 4] {
    [
        judge_proc(Path::new("/proc/self/stat").exists()),
        judge_hidepid(&read("/proc/self/mounts")),
        judge_delay_accounting(&read("/proc/sys/kernel/task_delayacct")),
        judge_rights(rustix::process::geteuid().is_root(), &read("/proc/self/status")),
    ]
}

/// The content of a file, empty if it cannot be read.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn judge_proc(readable: bool) -> Finding {
    const NAME: &str = "/proc";
    if readable {
        return Finding::fine(NAME, "mounted");
    }
    let found = "not mounted: no process metrics, and the agent cannot identify the processes that register";
    Finding::broken(NAME, found, "`mount -t proc proc /proc`; in a container, do not mask it")
}

fn judge_hidepid(mounts: &str) -> Finding {
    const NAME: &str = "hidepid";
    let mut options = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (target, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let hidden = options.split(',').find(|option| option.starts_with("hidepid="))?;
        (target == "/proc" && kind == "proc").then_some(hidden)
    });
    match options.next_back() {
        None | Some("hidepid=0" | "hidepid=off") => Finding::fine(NAME, "off, all processes are visible"),
        Some(option) => {
            let found = format!("/proc is mounted with {option}: no metrics of other users' processes");
            Finding::missing(NAME, found, "run the host agent as root or in the group of the mount's gid= option")
        }
    }
}

fn judge_delay_accounting(setting: &str) -> Finding {
    const NAME: &str = "delay accounting";
    match setting.trim() {
        "1" => Finding::fine(NAME, "on"),
        "0" => Finding::missing(
            NAME,
            "off: no metric of the time spent waiting for block I/O",
            "`sysctl kernel.task_delayacct=1`, or `delayacct` on the kernel's command line",
        ),
        _ => Finding::missing(
            NAME,
            "unknown (kernel before 5.14, or built without it): the time spent waiting for block I/O may be missing",
            "use a kernel with CONFIG_TASK_DELAY_ACCT",
        ),
    }
}

fn judge_rights(root: bool, status: &str) -> Finding {
    const NAME: &str = "process access";
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = capabilities.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    if capabilities.unwrap_or_default() >> CAP_SYS_PTRACE & 1 == 1 {
        return Finding::fine(NAME, "processes of all users can be inspected (CAP_SYS_PTRACE)");
    }
    let user = if root { "root without CAP_SYS_PTRACE" } else { "no CAP_SYS_PTRACE" };
    Finding::missing(
        NAME,
        format!("{user}: no file descriptor and I/O metrics of other users' processes"),
        "run the host agent with CAP_SYS_PTRACE (AmbientCapabilities= of systemd)",
    )
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn hidepid_is_found_in_the_mount_of_proc_only() {
        let mounts =
            |options: &str| format!("tmpfs /tmp tmpfs rw,hidepid=2 0 0\nproc /proc proc rw,nosuid{options} 0 0\n");

        assert_eq!(judge_hidepid(&mounts("")).level, Level::Fine);
        assert_eq!(judge_hidepid(&mounts(",hidepid=0")).level, Level::Fine);
        assert_eq!(judge_hidepid(&mounts(",hidepid=invisible")).level, Level::Missing);
    }

    #[test]
    fn delay_accounting_is_on_off_or_unknown() {
        assert_eq!(judge_delay_accounting("1\n").level, Level::Fine);
        assert!(judge_delay_accounting("0\n").fix.is_some_and(|fix| fix.contains("sysctl")));
        assert_eq!(judge_delay_accounting("").level, Level::Missing);
    }

    #[test]
    fn the_right_to_inspect_processes_is_a_bit_of_the_effective_capabilities() {
        assert_eq!(judge_rights(true, "CapEff:\t000001ffffffffff\n").level, Level::Fine);
        assert_eq!(judge_rights(false, "CapEff:\t0000000000080000\n").level, Level::Fine);
        assert_eq!(judge_rights(true, "CapEff:\t0000000000000000\n").level, Level::Missing);
        assert_eq!(judge_rights(false, "").level, Level::Missing);
    }
}
