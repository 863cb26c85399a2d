//! The pod or container of a cgroup. Only names are believed that nobody but root gives: those right below the root of
//! the tree, and what Kubernetes puts there. Whoever may make groups of its own, makes them further below.

/// What the names of containers begin with, in systemd's slices.
const RUNTIMES: [&str; 4] = ["docker-", "libpod-", "cri-containerd-", "crio-"];
/// The groups in which systemd and Docker keep containers that are in no pod.
const CONTAINERS: [&str; 3] = ["system.slice", "machine.slice", "docker"];

/// The first 128 bits of the id of the pod, or of the container without one; `None` if `cgroup` (v2 path) is in
/// neither.
pub(super) fn container_of(cgroup: &str) -> Option<[u8; 16]> {
    if let Some(pod) = pods::cgroup::pod_of(cgroup) {
        return Some(pod.bits());
    }
    let mut names = cgroup.split('/').filter(|name| !name.is_empty() && *name != "..");
    let first = names.next()?;
    if CONTAINERS.contains(&first) { container(names.next()?, first == "docker") } else { None }
}

/// The id in the name of a container's group: `docker-ID.scope`, or `is_plain` `ID`.
fn container(name: &str, is_plain: bool) -> Option<[u8; 16]> {
    let named = name.strip_suffix(".scope").and_then(|name| RUNTIMES.iter().find_map(|of| name.strip_prefix(of)));
    let id = named.or(Some(name).filter(|_| is_plain))?;
    hexadecimal(id.get(..32)?).filter(|_| id.len() == 64)
}

fn hexadecimal(digits: &str) -> Option<[u8; 16]> {
    let id = u128::from_str_radix(digits, 16).ok()?;
    Some(id.to_be_bytes()).filter(|_| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: [u8; 16] = 0x3fa8_5f64_5717_4562_b3fc_2c96_3f66_afa6_u128.to_be_bytes();
    const ID: &str = "3fa85f6457174562b3fc2c963f66afa63fa85f6457174562b3fc2c963f66afa6";

    #[test]
    fn processes_of_a_pod_are_its_own_whatever_container_they_are_in() {
        for path in [
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod3fa85f64_5717_4562_b3fc_2c963f66afa6.slice/cri-containerd-aa.scope",
            "/kubepods.slice/kubepods-pod3fa85f64_5717_4562_b3fc_2c963f66afa6.slice/crio-bb.scope",
            "/kubepods/besteffort/pod3fa85f64-5717-4562-b3fc-2c963f66afa6/cc",
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod3fa85f64_5717_4562_b3fc_2c963f66afa6.slice/x",
            // As an agent sees it that is in a pod.
            "/../../kubepods-burstable-pod3fa85f64_5717_4562_b3fc_2c963f66afa6.slice/cri-containerd-aa.scope",
            "/../../pod3fa85f64-5717-4562-b3fc-2c963f66afa6/dd",
            // A static pod.
            "/kubepods/burstable/pod3fa85f6457174562b3fc2c963f66afa6/ee",
            // Kubelet uses systemd's driver, and containerd does not.
            &format!("/system.slice/containerd.service/kubepods-pod{}.slice:cri-containerd:{ID}", &ID[..32]),
            &format!("/system.slice/kubepods-burstable-pod{}.slice:cri-containerd:{ID}/own", &ID[..32]),
        ] {
            assert_eq!(container_of(path), Some(POD), "{path}");
        }
    }

    #[test]
    fn a_container_without_a_pod_is_its_own() {
        for path in [
            format!("/system.slice/docker-{ID}.scope"),
            format!("/system.slice/docker-{ID}.scope/below"),
            format!("/docker/{ID}"),
            format!("/machine.slice/libpod-{ID}.scope/container"),
        ] {
            assert_eq!(container_of(&path), Some(POD), "{path}");
        }
    }

    #[test]
    fn groups_that_users_may_make_are_no_containers() {
        for path in [
            "",
            "/",
            "/user.slice/user-1000.slice/user@1000.service/pod3fa85f64-5717-4562-b3fc-2c963f66afa6",
            &format!("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope"),
            &format!("/system.slice/own.service/docker-{ID}.scope"),
            &format!("/system.slice/own.service/kubepods-pod{}.slice:cri-containerd:{ID}", &ID[..32]),
            &format!(
                "/user.slice/user-1000.slice/user@1000.service/kubepods-pod{}.slice:cri-containerd:{ID}",
                &ID[..32]
            ),
            &format!("/system.slice/crio-conmon-{ID}.scope"),
            &format!("/system.slice/own-{ID}.scope"),
            &format!("/system.slice/{ID}"),
            "/docker/3fa8",
            "/kubepods.slice/kubepods-burstable.slice",
            "/kubepods/burstable/pod+fa85f6457174562b3fc2c963f66afa6/ee",
        ] {
            assert_eq!(container_of(path), None, "{path}");
        }
        // A pod that makes groups below its own stays itself.
        let path = format!("/kubepods/pod{}/pod{}/x", &ID[..32], "0".repeat(32));
        assert_eq!(container_of(&path), Some(POD));
    }
}
