use std::fs::File;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::{Duration, SystemTime};

use support::workspace;

use super::*;
use crate::release::packages::{MEMBER, metadata, shipped};
use crate::release::{notices, sbom};

const TARGET: &str = "x86_64-unknown-linux-gnu";

fn commit() -> Commit {
    Commit { id: "0123abcd".to_owned(), seconds: 1_700_000_000, time: "2023-11-14T22:13:20Z".to_owned() }
}

/// How a clone may differ from another one of the same commit.
struct Checkout {
    folder: &'static str,
    mode: u32,
    /// When its files were written, in seconds since 1970.
    written: u64,
    reversed: bool,
}

/// Makes `root` a clone of this workspace: what is packed is copied, everything else is linked.
fn make(root: &Path, checkout: &Checkout) {
    let mut packed = places(&workspace()).unwrap();
    // The defaults of agents lie among sources.
    packed.retain(|(from, _)| !from.contains("/src/"));
    packed.sort();
    if checkout.reversed {
        packed.reverse();
    }
    for (from, _) in &packed {
        let to = root.join(from);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(workspace().join(from), &to).unwrap();
        let written = SystemTime::UNIX_EPOCH + Duration::from_secs(checkout.written);
        File::options().append(true).open(&to).unwrap().set_modified(written).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(checkout.mode)).unwrap();
    }
    for entry in fs::read_dir(workspace()).unwrap() {
        let name = entry.unwrap().file_name();
        let is_other = name != "target" && name != ".git" && !root.join(&name).exists();
        if is_other {
            symlink(workspace().join(&name), root.join(&name)).unwrap();
        }
    }
}

/// A release of the clone, with something in place of what is built.
fn release(root: &Path, reversed: bool, commit: &Commit) -> Vec<ReleaseFile> {
    let metadata = metadata(root, TARGET).unwrap();
    let packages = shipped(&metadata, root, &[MEMBER], TARGET).unwrap();
    let locks = fs::read_to_string(root.join("Cargo.lock")).unwrap();
    let built = |names: [&str; 3]| {
        let mut built = Vec::from(names.map(|name| Entry::program(name, name.as_bytes().repeat(1000))));
        if reversed {
            built.reverse();
        }
        built
    };
    let parts = Parts {
        commit,
        version: "1.2.3",
        target: TARGET,
        program: vec![7; 10_000],
        documents: documents(root).unwrap(),
        libraries: built(["lib/libuview.so.0", "lib/libuview.a", "python/uview.whl"]),
        in_image: Some(built(["bin/uview", "lib/libc.so.6", "lib64/ld-linux-x86-64.so.2"])),
        bill: sbom::bill(&[&metadata], &packages, &locks, &commit.time).unwrap(),
        notices: notices::collect(&packages).unwrap(),
    };
    parts.pack().unwrap()
}

#[test]
fn the_same_commit_is_packed_to_the_same_bytes_in_another_folder_at_another_time() {
    let place = tempfile::tempdir().unwrap();
    let one = Checkout { folder: "one", mode: 0o644, written: 1_600_000_000, reversed: false };
    let other = Checkout { folder: "a/folder/further/down", mode: 0o700, written: 1_800_000_000, reversed: true };
    let [one, other] = [one, other].map(|checkout| {
        let root = place.path().join(checkout.folder);
        make(&root, &checkout);
        let files = release(&root, checkout.reversed, &commit());
        let sums = write(&root.join("release-files"), &files).unwrap();
        (files, sums)
    });

    let names: Vec<_> = one.0.iter().map(|(name, _)| name.as_str()).collect();
    let [bill, image, archive] = [
        "uview-1.2.3-x86_64-unknown-linux-gnu.cdx.json",
        "uview-1.2.3-linux-amd64.oci.tar",
        "uview-1.2.3-x86_64-unknown-linux-gnu.tar.gz",
    ];
    assert_eq!(names, [bill, image, archive]);
    for ((name, one), (same_name, other)) in one.0.iter().zip(&other.0) {
        assert!(name == same_name && one == other, "{name} is not the same");
    }
    assert_eq!(one.1, other.1);
    assert_eq!(one.1.lines().count(), 3);
    // What is not compressed shows whether a folder's name is in it.
    let folder = place.path().display().to_string();
    for (name, bytes) in &one.0 {
        assert!(!bytes.windows(folder.len()).any(|window| window == folder.as_bytes()), "{name} names {folder}");
    }
}

#[test]
fn another_commit_is_packed_to_other_bytes() {
    let later = Commit { seconds: 1_700_000_001, time: "2023-11-14T22:13:21Z".to_owned(), ..commit() };

    let [one, other] = [commit(), later].map(|commit| release(&workspace(), false, &commit));

    for ((name, one), (_, other)) in one.iter().zip(&other) {
        assert!(one != other, "{name} does not have the time of its commit");
    }
}

#[test]
fn every_file_of_the_archive_is_there_and_has_a_place_of_its_own() {
    let entries = documents(&workspace()).unwrap();
    let mut places: Vec<_> = entries.iter().map(|entry| entry.path.as_str()).collect();
    places.sort_unstable();
    places.dedup();

    assert_eq!(places.len(), entries.len());
    assert!(entries.iter().any(|entry| entry.path == "deploy/systemd/uview-host-agent.service"));
}

#[test]
fn checksums_of_other_targets_in_the_same_folder_stay_while_their_files_do() {
    let folder = tempfile::tempdir().unwrap();
    let release = |file: &str, bytes: &[u8]| write(folder.path(), &[(file.to_owned(), bytes.to_owned())]).unwrap();
    let line = |file: &str, bytes: &[u8]| format!("{:x}  {file}\n", Sha256::digest(bytes));

    assert_eq!(release("x86.tar.gz", b"1"), line("x86.tar.gz", b"1"));
    assert_eq!(release("arm.tar.gz", b"2"), [line("arm.tar.gz", b"2"), line("x86.tar.gz", b"1")].concat());
    assert_eq!(release("x86.tar.gz", b"3"), [line("arm.tar.gz", b"2"), line("x86.tar.gz", b"3")].concat());
    fs::remove_file(folder.path().join("arm.tar.gz")).unwrap();
    assert_eq!(release("x86.tar.gz", b"3"), line("x86.tar.gz", b"3"));
}
