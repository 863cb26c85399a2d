//! The pod and the container that the path of a cgroup names: both versions, the drivers of systemd and of cgroupfs,
//! containerd, CRI-O and Docker, static pods, and paths as a container sees them (`/../`).

use crate::pod::PodId;

/// What the name of a container's group begins with, in systemd's slices.
const RUNTIMES: [&str; 3] = ["cri-containerd-", "crio-", "docker-"];
/// What a group of CRI-O's monitor is called instead, which is no container.
const MONITOR: &str = "crio-conmon-";

/// Patterns of the groups of containers below those of pods, from the root of a hierarchy; a star is any text within a
/// folder's name. Systemd's driver, then cgroupfs; pods of the class *guaranteed* have no folder of a class. Where the
/// node is a container itself (kind), all of that is below the kubelet's own group.
pub const PATTERNS: [&str; 10] = [
    "kubepods.slice/kubepods-*.slice/kubepods-*.slice/*.scope",
    "kubepods.slice/kubepods-pod*.slice/*.scope",
    "kubepods/burstable/pod*/*",
    "kubepods/besteffort/pod*/*",
    "kubepods/pod*/*",
    "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-*.slice/kubelet-kubepods-*.slice/*.scope",
    "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod*.slice/*.scope",
    "kubelet/kubepods/burstable/pod*/*",
    "kubelet/kubepods/besteffort/pod*/*",
    "kubelet/kubepods/pod*/*",
];

/// The pod, and the id of the container (64 hexadecimal digits), of the group `path`. `None` if it is not right below a
/// pod's group, or is no container.
#[must_use]
pub fn container_of(path: &str) -> Option<(PodId, &str)> {
    let mut names = path.rsplit('/').filter(|name| !name.is_empty());
    let (folder, pod) = (names.next()?, names.next()?);
    if folder.starts_with(MONITOR) {
        return None;
    }
    let scope = folder.strip_suffix(".scope");
    let id = match scope {
        Some(scope) => RUNTIMES.iter().find_map(|runtime| scope.strip_prefix(runtime))?,
        None => folder,
    };
    let is_id = id.len() == 64 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
    Some((pod_of(pod)?, id)).filter(|_| is_id)
}

/// The pod whose group is called `folder`: `kubepods-burstable-podID.slice`, `kubepods-podID.slice` or `podID`, and
/// `kubelet-kubepods-podID.slice` below the kubelet's own group.
#[must_use]
pub fn pod_of(folder: &str) -> Option<PodId> {
    let name = folder.strip_suffix(".slice").unwrap_or(folder);
    let (before, id) = name.rsplit_once("pod")?;
    PodId::new(id).filter(|_| before.is_empty() || before.starts_with("kube"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "3fa85f6457174562b3fc2c963f66afa63fa85f6457174562b3fc2c963f66afa6";

    #[test]
    fn containers_of_every_runtime_and_driver_are_found() {
        let pod = PodId::new("0b5c5b7e-6f0f-4c55-9d3a-0d2b2a0c8f11").unwrap();
        let systemd = "0b5c5b7e_6f0f_4c55_9d3a_0d2b2a0c8f11";
        for path in [
            format!("/kubepods.slice/kubepods-b.slice/kubepods-burstable-pod{systemd}.slice/cri-containerd-{ID}.scope"),
            format!("kubepods.slice/kubepods-pod{systemd}.slice/crio-{ID}.scope"),
            format!("/../../kubepods-besteffort-pod{systemd}.slice/docker-{ID}.scope"),
            format!("/kubepods/burstable/pod0b5c5b7e-6f0f-4c55-9d3a-0d2b2a0c8f11/{ID}"),
            format!("/../pod0b5c5b7e-6f0f-4c55-9d3a-0d2b2a0c8f11/{ID}"),
            format!(
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{systemd}.slice/cri-containerd-{ID}.scope"
            ),
            format!("/../../kubelet-kubepods-burstable-pod{systemd}.slice/cri-containerd-{ID}.scope"),
            format!("/kubelet/kubepods/besteffort/pod0b5c5b7e-6f0f-4c55-9d3a-0d2b2a0c8f11/{ID}"),
        ] {
            assert_eq!(container_of(&path), Some((pod, ID)), "{path}");
        }
        let hash = format!("kubepods/pod0b5c5b7e6f0f4c559d3a0d2b2a0c8f11/{ID}");
        assert_eq!(container_of(&hash), Some((pod, ID)), "a static pod is called by the hash of its file");
    }

    #[test]
    fn other_groups_are_no_containers() {
        for path in [
            String::new(),
            "/".to_owned(),
            format!("/system.slice/docker-{ID}.scope"),
            format!("/kubepods/burstable/pod0b5c5b7e-6f0f-4c55-9d3a-0d2b2a0c8f11/{ID}/init"),
            "/kubepods/burstable/pod0b5c5b7e-6f0f-4c55-9d3a-0d2b2a0c8f11".to_owned(),
            format!("/kubepods/pod0b5c5b7e-6f0f-4c55-9d3a-0d2b2a0c8f11/{}", &ID[1..]),
            format!("/kubepods.slice/kubepods-pod0b5c5b7e_6f0f_4c55_9d3a_0d2b2a0c8f11.slice/crio-conmon-{ID}.scope"),
            format!("/kubepods.slice/kubepods-pod0b5c5b7e_6f0f_4c55_9d3a_0d2b2a0c8f11.slice/{ID}.scope"),
            format!("/user.slice/mypod0b5c5b7e-6f0f-4c55-9d3a-0d2b2a0c8f11/{ID}"),
        ] {
            assert_eq!(container_of(&path), None, "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_path_is_read_without_a_panic(path in ".{0,200}") {
            if let Some((_, id)) = container_of(&path) {
                prop_assert_eq!(id.len(), 64);
            }
        }
    }
}
