//! Checks that the licence of every dependency is permissive and that it comes from crates.io, from Cargo's metadata,
//! without network access. `deny.toml` says the same to cargo-deny.

use std::path::Path;

use anyhow::{Result, bail};
use cargo_metadata::MetadataCommand;
use spdx::{Expression, LicenseReq};

use support::workspace;

/// Licences that are compatible with Apache-2.0 code and its distribution.
pub const PERMISSIVE: [&str; 14] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// The only registry: its index pins a checksum of each crate.
pub const REGISTRY: &str = "https://github.com/rust-lang/crates.io-index";

/// Compared with its exception, as cargo-deny does: what passes here must pass there.
fn permissive(requirement: &LicenseReq) -> bool {
    PERMISSIVE.contains(&requirement.to_string().as_str())
}

/// Checks licence and source of all packages in the workspace's lock file.
///
/// # Errors
///
/// Names every package whose licence is missing or not permissive, or that comes from elsewhere.
pub fn check() -> Result<()> {
    check_in(&workspace())
}

/// Checks those of the package in `folder`, which may be a workspace of its own.
///
/// # Errors
///
/// Those of [`check`].
pub fn check_in(folder: &Path) -> Result<()> {
    let metadata = MetadataCommand::new().current_dir(folder).exec()?;
    let mut refused = Vec::new();
    for package in &metadata.packages {
        // Old manifests separate alternatives by a slash.
        let licence = package.license.as_deref().unwrap_or_default().replace('/', " OR ");
        let expression = Expression::parse(&licence);
        if !expression.is_ok_and(|expression| expression.evaluate(permissive)) {
            refused.push(format!("{} {}: {licence:?}", package.name, package.version));
        }
        // Members have no source.
        let source = package.source.as_ref().map(|source| source.repr.as_str());
        if source.is_some_and(|source| source.strip_prefix("registry+") != Some(REGISTRY)) {
            refused.push(format!("{} {}: from {}", package.name, package.version, source.unwrap_or_default()));
        }
    }
    if !refused.is_empty() {
        bail!("not permissively licensed, or not from crates.io:\n  {}", refused.join("\n  "));
    }
    println!("{} packages, all permissively licensed and from crates.io", metadata.packages.len());
    Ok(())
}
