//! The pod and the container that the path of a cgroup names: both versions, the drivers of systemd and of cgroupfs,
//! containerd, CRI-O and Docker, static pods, and paths as a container sees them (`/../`).
//!
//! A path is read from the root of the tree on, down to the folder right below that of a pod: nobody but root makes
//! these. Whoever may make groups of its own makes them further below, and no name there counts.

use crate::pod::PodId;

/// What the name of a container's group begins with: in systemd's slices, and CRI-O's with cgroupfs, too.
const RUNTIMES: [&str; 3] = ["cri-containerd-", "crio-", "docker-"];
/// What stands between the pod's slice and the container's id where kubelet uses systemd's driver, and containerd that
/// of cgroupfs: both are one folder then.
const JOINT: &str = ".slice:cri-containerd:";
/// Services below which containerd makes such folders on version 1. Any service may be given a group of its own with
/// its user as the owner (`Delegate=`, `User=`), so that only those are believed which run containerd.
const SERVICES: [&str; 3] = ["containerd.service", "k3s.service", "k3s-agent.service"];
/// The slice of users, who make groups somewhere below it.
const USERS: &str = "user.slice";
/// Classes of pods. They come first in what an agent sees that is in a pod itself.
const CLASSES: [&str; 2] = ["burstable", "besteffort"];

/// Patterns of the groups of containers, from the root of a hierarchy; a star is any text within a folder's name. What
/// they match is a container if [`container_at`] says so.
///
/// Below groups of pods: systemd's driver, then cgroupfs; pods of the class *guaranteed* have no folder of a class.
/// Where the node is a container itself (kind), all of that is below the kubelet's own group. Then those in one folder
/// with their pod: on version 1 below the service, on version 2 beside it.
pub const PATTERNS: [&str; 14] = [
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
    "*.slice/containerd.service/*.slice:cri-containerd:*",
    "*.slice/k3s.service/*.slice:cri-containerd:*",
    "*.slice/k3s-agent.service/*.slice:cri-containerd:*",
    "*.slice/*.slice:cri-containerd:*",
];

/// The path in `cgroups`, the text of `/proc/PID/cgroup`: that of version 2, unless only one of version 1 is in a pod.
/// Empty if there is none.
#[must_use]
pub fn path_in(cgroups: &str) -> &str {
    let paths = || cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let unified = cgroups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    if pod_of(unified).is_some() { unified } else { paths().find(|path| pod_of(path).is_some()).unwrap_or(unified) }
}

/// The pod that a process in the group `path` is in.
#[must_use]
pub fn pod_of(path: &str) -> Option<PodId> {
    locate(path).map(|location| location.pod)
}

/// The pod, and the id of the container (64 hexadecimal digits), that a process in the group `path` is in: by the
/// folder right below the pod's, whatever groups the container has below its own. crun makes one, `container`. `None`
/// for what is in no container, as CRI-O's monitors are (`crio-conmon-ID.scope`).
#[must_use]
pub fn container_of(path: &str) -> Option<(PodId, &str)> {
    let location = locate(path)?;
    Some((location.pod, location.container?))
}

/// The same of a container's own group, which has all that the container uses. `None` for groups below it: those that
/// a container makes itself are not the container.
#[must_use]
pub fn container_at(path: &str) -> Option<(PodId, &str)> {
    let location = locate(path).filter(|location| !location.is_below)?;
    Some((location.pod, location.container?))
}

/// Where in a pod a group is.
struct Location<'a> {
    pod: PodId,
    /// Id of the container that the folder right below the pod's is of.
    container: Option<&'a str>,
    /// Whether the group is below that folder.
    is_below: bool,
}

fn locate(path: &str) -> Option<Location<'_>> {
    let mut folders = path.split('/').filter(|name| !name.is_empty() && *name != "..").peekable();
    if !holds_pods(folders.peek()?) {
        // Seen from elsewhere than the root, a slice may be one of a user's own.
        let is_from_root = path.split('/').all(|name| name != "..");
        folders.next_if(|slice| is_from_root && slice.strip_suffix(".slice").is_some() && *slice != USERS)?;
        folders.next_if(|service| SERVICES.contains(service));
        let (pod, container) = joint(folders.next()?)?;
        return Some(Location { pod, container: Some(container), is_below: folders.next().is_some() });
    }
    while let Some(folder) = folders.next() {
        if let Some((pod, container)) = joint(folder) {
            return Some(Location { pod, container: Some(container), is_below: folders.next().is_some() });
        }
        if let Some(pod) = pod_named(folder) {
            let container = folders.next().and_then(container_named);
            return Some(Location { pod, container, is_below: folders.next().is_some() });
        }
    }
    None
}

/// Whether a group right below the root is of pods, or is one.
fn holds_pods(first: &str) -> bool {
    let is_of_pods = first.starts_with("kubepods") || first.starts_with("kubelet") || CLASSES.contains(&first);
    is_of_pods || pod_named(first).is_some()
}

/// The pod whose group is called `folder`: `kubepods-burstable-podID.slice`, `kubepods-podID.slice` or `podID`, and
/// `kubelet-kubepods-podID.slice` below the kubelet's own group.
fn pod_named(folder: &str) -> Option<PodId> {
    let name = folder.strip_suffix(".slice").unwrap_or(folder);
    let (before, id) = name.rsplit_once("pod")?;
    PodId::new(id).filter(|_| before.is_empty() || before.starts_with("kube"))
}

/// The id of the container whose group below its pod's is called `folder`: `cri-containerd-ID.scope`, with cgroupfs
/// `ID` or `crio-ID`.
fn container_named(folder: &str) -> Option<&str> {
    let scope = folder.strip_suffix(".scope");
    let name = scope.unwrap_or(folder);
    let named = RUNTIMES.iter().find_map(|runtime| name.strip_prefix(runtime));
    let id = if scope.is_some() { named? } else { named.unwrap_or(name) };
    Some(id).filter(|id| is_id(id))
}

/// The pod and the container of `kubepods-burstable-podID.slice:cri-containerd:ID`.
fn joint(folder: &str) -> Option<(PodId, &str)> {
    let (slice, id) = folder.split_once(JOINT)?;
    Some((pod_named(slice)?, id)).filter(|_| is_id(id))
}

fn is_id(id: &str) -> bool {
    id.len() == 64 && id.bytes().all(|digit| digit.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "3fa85f6457174562b3fc2c963f66afa63fa85f6457174562b3fc2c963f66afa6";
    const UID: &str = "0b5c5b7e-6f0f-4c55-9d3a-0d2b2a0c8f11";
    /// The same, as systemd's driver writes it.
    const SYSTEMD: &str = "0b5c5b7e_6f0f_4c55_9d3a_0d2b2a0c8f11";

    fn pod() -> PodId {
        PodId::new(UID).unwrap()
    }

    #[test]
    fn containers_of_every_runtime_and_driver_are_found() {
        for path in [
            format!("/kubepods.slice/kubepods-b.slice/kubepods-burstable-pod{SYSTEMD}.slice/cri-containerd-{ID}.scope"),
            format!("kubepods.slice/kubepods-pod{SYSTEMD}.slice/crio-{ID}.scope"),
            format!("/../../kubepods-besteffort-pod{SYSTEMD}.slice/docker-{ID}.scope"),
            format!("/kubepods/burstable/pod{UID}/{ID}"),
            format!("/kubepods/burstable/pod{UID}/crio-{ID}"),
            format!("/../pod{UID}/{ID}"),
            format!(
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SYSTEMD}.slice/cri-containerd-{ID}.scope"
            ),
            format!("/../../kubelet-kubepods-burstable-pod{SYSTEMD}.slice/cri-containerd-{ID}.scope"),
            format!("/kubelet/kubepods/besteffort/pod{UID}/{ID}"),
            "kubepods/pod0b5c5b7e6f0f4c559d3a0d2b2a0c8f11/".to_owned() + ID,
        ] {
            assert_eq!(container_of(&path), Some((pod(), ID)), "{path}");
            assert_eq!(container_at(&path), Some((pod(), ID)), "{path}");
            assert_eq!(pod_of(&path), Some(pod()), "{path}");
        }
    }

    #[test]
    fn a_process_below_its_containers_group_is_that_containers_and_the_group_is_not() {
        let pod_slice = format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SYSTEMD}.slice");
        for path in [
            format!("{pod_slice}/crio-{ID}.scope/container"),
            format!("{pod_slice}/cri-containerd-{ID}.scope/init.scope"),
            format!("/kubepods/burstable/pod{UID}/{ID}/init"),
            // Called like a container of another pod.
            format!("/kubepods/pod{UID}/{ID}/kubepods/pod{}/{}", "0".repeat(32), "0".repeat(64)),
            format!("/system.slice/containerd.service/kubepods-pod{SYSTEMD}.slice:cri-containerd:{ID}/own"),
        ] {
            assert_eq!(container_of(&path), Some((pod(), ID)), "{path}");
            assert_eq!(container_at(&path), None, "{path}");
        }
    }

    #[test]
    fn a_process_in_a_pod_and_in_no_container_of_it_is_the_pods() {
        let pod_slice = format!("/kubepods.slice/kubepods-pod{SYSTEMD}.slice");
        for path in [
            format!("/kubepods/burstable/pod{UID}"),
            format!("/kubepods/pod{UID}/{}", &ID[1..]),
            format!("/kubepods/pod{UID}/crio-conmon-{ID}"),
            format!("{pod_slice}/crio-conmon-{ID}.scope"),
            format!("{pod_slice}/crio-conmon-{ID}.scope/{ID}"),
            format!("{pod_slice}/{ID}.scope"),
            // Its own group, called as containerd calls a container's.
            format!("{pod_slice}/own/kubepods-pod{}.slice:cri-containerd:{ID}", "0".repeat(32)),
        ] {
            assert_eq!((pod_of(&path), container_of(&path)), (Some(pod()), None), "{path}");
        }
    }

    #[test]
    fn a_folder_of_both_pod_and_container_counts_only_where_containerd_makes_it() {
        let joint = format!("kubepods-burstable-pod{SYSTEMD}.slice:cri-containerd:{ID}");
        for before in [
            "/system.slice/containerd.service/",
            "system.slice/containerd.service/",
            "/system.slice/k3s-agent.service/",
            "/kuberuntime.slice/containerd.service/",
            "/system.slice/",
            "/",
            "/../",
        ] {
            let path = format!("{before}{joint}");
            assert_eq!((pod_of(&path), container_at(&path)), (Some(pod()), Some((pod(), ID))), "{path}");
        }
        for before in [
            "/user.slice/",
            "/user.slice/containerd.service/",
            "/user.slice/user-1000.slice/user@1000.service/",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/containerd.service/",
            "/../../app.slice/containerd.service/",
            "/../own.service/",
            "/system.slice/own.service/",
            "/system.slice/containerd.service/own/",
            "/system.slice/containerd.service/containerd.service/",
            "/containerd.service/",
            "/docker/",
        ] {
            let path = format!("{before}{joint}");
            assert_eq!((pod_of(&path), container_of(&path)), (None, None), "{path}");
        }
        for folder in [
            format!("kubepods-burstable-pod{SYSTEMD}.slice:cri-containerd:{}", &ID[1..]),
            format!("own-pod{SYSTEMD}.slice:cri-containerd:{ID}"),
            format!("kubepods-burstable-pod{SYSTEMD}:cri-containerd:{ID}"),
            format!("kubepods-burstable-pod{SYSTEMD}.slice:{ID}"),
        ] {
            assert_eq!(pod_of(&format!("/system.slice/containerd.service/{folder}")), None, "{folder}");
        }
    }

    #[test]
    fn other_groups_are_in_no_pod() {
        for path in [
            String::new(),
            "/".to_owned(),
            "/kubepods.slice/kubepods-burstable.slice".to_owned(),
            format!("/system.slice/docker-{ID}.scope"),
            format!("/system.slice/crio-conmon-{ID}.scope"),
            "/system.slice/containerd.service".to_owned(),
            format!("/user.slice/mypod{UID}/{ID}"),
            format!("/user.slice/pod{UID}/{ID}"),
            format!("/docker/{ID}/kubepods/burstable/pod{UID}/{ID}"),
        ] {
            assert_eq!((pod_of(&path), container_of(&path)), (None, None), "{path}");
        }
    }

    #[test]
    fn the_path_of_a_pod_is_found_in_both_versions() {
        let pod = format!("/kubepods/burstable/pod{UID}/{ID}");
        let joint = format!("/kubepods-pod{SYSTEMD}.slice:cri-containerd:{ID}");
        for (text, expected) in [
            (format!("0::{pod}\n"), pod.as_str()),
            (format!("12:pids:{pod}\n4:cpu,cpuacct:{pod}\n1:name=systemd:{pod}\n0::/\n"), &pod),
            (format!("5:cpuset:{joint}\n4:pids:/system.slice/containerd.service{joint}\n0::/a\n"), &joint),
            ("4:cpu,cpuacct:/user.slice\n0::/user.slice/a.service\n".to_owned(), "/user.slice/a.service"),
            // Who makes groups of its own makes them below its own.
            (format!("4:cpu:/user.slice{pod}\n0::/a\n"), "/a"),
            (String::new(), ""),
        ] {
            assert_eq!(path_in(&text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_path_is_read_without_a_panic(path in ".{0,200}") {
            let (pod, of, at) = (pod_of(&path), container_of(&path), container_at(&path));
            prop_assert!(of.is_none_or(|(of, id)| Some(of) == pod && id.len() == 64));
            prop_assert!(at.is_none() || at == of);
        }

        #[test]
        fn no_name_below_a_containers_group_changes_whose_it_is(below in "(/[a-z.:-]{1,20}|/pod[0-9a-f]{32}){0,4}") {
            let path = format!("/kubepods/pod{UID}/{ID}{below}");
            prop_assert_eq!(container_of(&path), Some((pod(), ID)));
        }
    }
}
