//! Compares uview's structs of libibverbs with those of its header, where that is or can be installed.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;

use super::guest::{exists, is_root, succeed};
use support::workspace;

const NEEDED: [&str; 6] = ["libibverbs-dev", "librdmacm-dev", "libclang-dev", "pkg-config", "gcc", "libc6-dev"];

/// Compares the structs, or prints why that is not possible.
///
/// # Errors
///
/// They differ.
pub fn compare() -> Result<()> {
    let clang = || {
        fs::read_dir("/usr/lib").into_iter().flatten().filter_map(Result::ok).any(|entry| {
            entry.file_name().to_string_lossy().starts_with("llvm-") && entry.path().join("lib/libclang.so").exists()
        })
    };
    let there = || has_header() && clang() && exists("cc");
    if !there() {
        install(&NEEDED);
    }
    if !there() {
        println!("!! THE LAYOUT OF STRUCTS WAS NOT COMPARED: install {}.", NEEDED.join(", "));
        return Ok(());
    }
    let target = workspace().join("target/rdma-layout");
    let folder = workspace().join("tests/rdma/layout");
    succeed(Command::new("cargo").args(["test", "--quiet"]).current_dir(folder).env("CARGO_TARGET_DIR", target))
}

/// Whether libibverbs-dev is installed.
pub fn has_header() -> bool {
    Path::new("/usr/include/infiniband/verbs.h").exists()
}

/// Installs Debian packages if this user may. The caller has to check whether they are installed.
pub fn install(packages: &[&str]) {
    if !is_root() || !exists("apt-get") {
        return;
    }
    let install = ["install", "--yes", "--quiet=2", "--no-install-recommends"];
    if let Err(error) = succeed(Command::new("apt-get").args(install).args(packages).stdout(Stdio::null())) {
        println!("!! {} could not be installed: {error:#}", packages.join(", "));
    }
}
