//! Generates Rust from the proto files of uview, and from those of kubelet's interfaces. The generated code is
//! committed, so that building uview needs neither protoc nor this tool, and services with the client compile no code
//! generator. CI compares the files.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use support::workspace;

#[cfg(test)]
mod api_page;

const FILES: [&str; 7] = ["registration", "attach", "control", "operators", "gossip", "one_way", "fragments"];
/// Those of kubelet, with their packages: k8s/csi.
const OF_KUBELET: [(&str, &str); 2] = [("csi", "csi.v1"), ("registration", "pluginregistration")];

/// Generates wire/src/proto and k8s/csi/src/proto; with `check` only compares.
///
/// # Errors
///
/// A proto file that does not compile, a file that cannot be written, or with `check` a file that differs.
pub fn generate(check: bool) -> Result<()> {
    let scratch = workspace().join("target/proto");
    fs::create_dir_all(&scratch)?;
    let builder = || tonic_prost_build::configure().build_transport(true).out_dir(&scratch);

    let wire = workspace().join("wire");
    let mut own = builder().codec_path("crate::bounded::BoundedCodec");
    for package in ["control", "operators", "gossip", "one_way", "fragments"] {
        let package = &format!("uview.{package}.v1");
        own = own
            .client_mod_attribute(package, "#[cfg(feature = \"grpc\")]")
            .server_mod_attribute(package, "#[cfg(feature = \"grpc\")]");
    }
    let names = FILES.map(|name| (name, format!("uview.{name}.v1")));
    compile(own, &wire, names.iter().map(|(name, package)| (*name, package.as_str())), check)?;
    compile(builder(), &workspace().join("k8s/csi"), OF_KUBELET.into_iter(), check)
}

/// Generates `src/proto/NAME.rs` of `member` from `proto/NAME.proto`, for each of `files` with its package.
fn compile<'a>(
    builder: tonic_prost_build::Builder,
    member: &Path,
    files: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    check: bool,
) -> Result<()> {
    let (sources, target) = (member.join("proto"), member.join("src/proto"));
    let scratch = workspace().join("target/proto");
    let protos = files.clone().map(|(name, _)| format!("{name}.proto"));
    let descriptors = protox::compile(protos, [&sources]).context("the proto files do not compile")?;
    builder.compile_fds(descriptors)?;
    for (name, package) in files {
        let scratch = scratch.join(format!("{package}.rs"));
        let formatted = Command::new("rustfmt").args(["--edition", "2024"]).arg(&scratch).status()?;
        ensure!(formatted.success(), "rustfmt refuses {}", scratch.display());
        let generated = fs::read_to_string(scratch)?;
        let file = target.join(format!("{name}.rs"));
        if !check {
            fs::write(&file, generated)?;
        } else if fs::read_to_string(&file).unwrap_or_default() != generated {
            bail!("{} differs from its proto file: run `cargo xtask proto`", file.display());
        }
    }
    Ok(())
}
