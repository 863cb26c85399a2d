//! Generates Rust from the proto files. The generated code is committed, so that building uview needs neither protoc
//! nor this tool, and services with the client compile no code generator. CI compares the files.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use support::workspace;

#[cfg(test)]
mod api_page;

const FILES: [&str; 6] = ["registration", "attach", "control", "operators", "gossip", "one_way"];

/// Generates wire/src/proto; with `check` only compares.
///
/// # Errors
///
/// A proto file that does not compile, a file that cannot be written, or with `check` a file that differs.
pub fn generate(check: bool) -> Result<()> {
    let wire = workspace().join("wire");
    let sources = wire.join("proto");
    let target = wire.join("src/proto");
    let scratch = workspace().join("target/proto");
    fs::create_dir_all(&scratch)?;

    let files = FILES.map(|name| format!("{name}.proto"));
    let descriptors = protox::compile(files, [&sources]).context("the proto files do not compile")?;
    let mut builder = tonic_prost_build::configure().build_transport(true).out_dir(&scratch);
    for package in ["uview.control.v1", "uview.operators.v1", "uview.gossip.v1", "uview.one_way.v1"] {
        builder = builder
            .client_mod_attribute(package, "#[cfg(feature = \"grpc\")]")
            .server_mod_attribute(package, "#[cfg(feature = \"grpc\")]");
    }
    builder.compile_fds(descriptors)?;

    for name in FILES {
        let scratch = scratch.join(format!("uview.{name}.v1.rs"));
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
