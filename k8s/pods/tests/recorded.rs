//! Texts of `/proc/PID/cgroup` as others published them: each names the pod and the container that it is of, or none.
//! `recorded/README.md` has their sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pods::PodId;
use pods::cgroup::{container_of, path_in, pod_of};

/// Stands for the pod in all texts; a static pod's hash has the same digits.
const POD: &str = "0b5c5b7e-6f0f-4c55-9d3a-0d2b2a0c8f11";
/// Stands for the container.
const CONTAINER: &str = "3fa85f6457174562b3fc2c963f66afa63fa85f6457174562b3fc2c963f66afa6";

/// Texts by the names of their files, and whether each is of the pod, and of the container.
const EXPECTED: [(&str, bool, bool); 37] = [
    ("v1-containerd-cgroupfs", true, true),
    ("v1-containerd-cgroupfs-hybrid", true, true),
    ("v1-containerd-cgroupfs-guaranteed", true, true),
    ("v1-containerd-systemd", true, true),
    ("v1-containerd-systemd-static", true, true),
    ("v1-containerd-mixed", true, true),
    ("v1-containerd-mixed-guaranteed", true, true),
    ("v1-containerd-mixed-static", true, true),
    ("v1-containerd-mixed-own-slice", true, true),
    ("v1-k3s-cgroupfs", true, true),
    ("v1-k3s-mixed", true, true),
    ("v1-crio-runc", true, true),
    ("v1-crio-runc-hybrid", true, true),
    ("v1-crio-cgroupfs", true, true),
    ("v1-crio-cgroupfs-conmon", true, false),
    ("v1-crio-conmon", false, false),
    ("v1-docker-systemd", true, true),
    ("v1-cri-dockerd-systemd", true, true),
    ("v1-docker-cgroupfs", true, true),
    ("v1-kind-from-outside", false, false),
    ("v1-docker-alone", false, false),
    ("v2-containerd-cgroupfs", true, true),
    ("v2-containerd-mixed", true, true),
    ("v2-containerd-systemd-from-a-pod", true, true),
    ("v2-k3s-systemd", true, true),
    ("v2-crio-runc", true, true),
    ("v2-crio-crun", true, true),
    ("v2-crio-crun-without-group", true, true),
    ("v2-crio-conmon", true, false),
    ("v2-crio-beside-an-agent", false, false),
    ("v2-docker-from-a-pod", true, true),
    ("v2-kind-systemd", true, true),
    ("v2-kind-cgroupfs", true, true),
    ("v2-kind-cgroupfs-from-a-pod", true, true),
    ("v2-kind-cgroupfs-from-another-class", true, true),
    ("v2-kind-from-outside", false, false),
    ("v2-podman-rootless", false, false),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded")
}

fn text(name: &str) -> String {
    fs::read_to_string(folder().join(format!("{name}.txt"))).expect("each text is a file")
}

fn pod() -> PodId {
    PodId::new(POD).expect("the pod's id is one")
}

#[test]
fn each_published_text_names_its_pod_and_its_container() {
    for (name, is_in_pod, is_in_container) in EXPECTED {
        let text = text(name);
        let path = path_in(&text);

        assert_eq!(pod_of(path), Some(pod()).filter(|_| is_in_pod), "{name}: {path}");
        assert_eq!(container_of(path), Some((pod(), CONTAINER)).filter(|_| is_in_container), "{name}: {path}");
    }
}

#[test]
fn each_line_of_a_text_says_the_same_or_nothing() {
    for (name, is_in_pod, is_in_container) in EXPECTED {
        for path in text(name).lines().filter_map(|line| line.splitn(3, ':').nth(2)) {
            assert!(pod_of(path).is_none_or(|of| is_in_pod && of == pod()), "{name}: {path}");
            assert!(container_of(path).is_none_or(|of| is_in_container && of == (pod(), CONTAINER)), "{name}: {path}");
        }
    }
}

#[test]
fn each_text_has_an_expectation_and_a_source() {
    let readme = fs::read_to_string(folder().join("README.md")).unwrap();
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let texts: BTreeSet<String> = files.filter_map(|file| Some(file.strip_suffix(".txt")?.to_owned())).collect();
    let word = |is: bool| if is { "yes" } else { "no" };

    assert_eq!(texts, BTreeSet::from(EXPECTED.map(|(name, ..)| name.to_owned())));
    for (name, is_in_pod, is_in_container) in EXPECTED {
        let row = readme.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).unwrap_or_default();
        let expected = format!("| {} | {} | https://", word(is_in_pod), word(is_in_container));
        assert!(row.contains(&expected), "{name}: {row}");
    }
}
