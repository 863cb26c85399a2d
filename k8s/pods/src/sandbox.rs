//! Runtimes that keep a pod's processes away from the node's kernel: a process of the node that speaks for such a pod
//! is its virtual machine or its user-space kernel, and never the service.

/// Such a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sandbox {
    /// A virtual machine for each pod.
    Kata,
    /// A kernel in user space for each pod.
    Gvisor,
}

/// Beginnings of the names of virtual machines' processes, as `/proc/PID/comm` has them: at most 15 bytes.
const MACHINES: [&str; 6] = ["qemu-", "cloud-hyperviso", "firecracker", "stratovirt", "dragonball", "virtiofsd"];

impl Sandbox {
    /// Why its pods cannot register, and what to do.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Kata => {
                "its pod is a virtual machine (Kata), whose memory nobody outside can read: let it send OTLP instead"
            }
            Self::Gvisor => {
                "its pod runs in gVisor, whose kernel stands between it and this one: let it send OTLP instead"
            }
        }
    }
}

/// The sandbox of a process: by the runtime class of its pod, its name (`/proc/PID/comm`) or the path of its cgroup.
#[must_use]
pub fn of(runtime_class: &str, comm: &str, cgroup: &str) -> Option<Sandbox> {
    let class = runtime_class.to_ascii_lowercase();
    let has_folder = |start: &str| cgroup.split('/').any(|folder| folder.starts_with(start));
    if comm.starts_with("runsc") || class.contains("gvisor") || class.contains("runsc") {
        return Some(Sandbox::Gvisor);
    }
    let is_machine = MACHINES.iter().any(|name| comm.starts_with(name)) || has_folder("kata_");
    (is_machine || class.contains("kata")).then_some(Sandbox::Kata)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3fa85f6457174562b3fc2c963f66afa63fa85f6457174562b3fc2c963f66afa6";
    const POD: &str = "/kubepods/burstable/pod0b5c5b7e-6f0f-4c55-9d3a-0d2b2a0c8f11";

    /// Class, `/proc/PID/comm` and cgroup, as the documentation of the runtimes has them.
    #[test]
    fn machines_and_kernels_in_user_space_are_recognised() {
        let container = format!("{POD}/{ID}");
        let overhead = format!("/kata_overhead/{ID}");
        let systemd = format!("/kubepods.slice/kubepods-pod1.slice/kata_{ID}.scope");
        for (class, comm, cgroup, expected) in [
            ("kata-qemu", "payment", container.as_str(), Some(Sandbox::Kata)),
            ("", "qemu-system-x86", &container, Some(Sandbox::Kata)),
            ("", "cloud-hyperviso", &container, Some(Sandbox::Kata)),
            ("", "vm", &overhead, Some(Sandbox::Kata)),
            ("", "vm", &systemd, Some(Sandbox::Kata)),
            ("gvisor", "exe", &container, Some(Sandbox::Gvisor)),
            ("", "runsc-sandbox", &container, Some(Sandbox::Gvisor)),
            ("", "runsc-gofer", &container, Some(Sandbox::Gvisor)),
            ("", "payment", &container, None),
            ("nvidia", "katalog", &container, None),
        ] {
            assert_eq!(of(class, comm, cgroup), expected, "{class} {comm} {cgroup}");
        }
    }
}
