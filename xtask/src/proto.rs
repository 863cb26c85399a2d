//! Rust from the proto files. What is generated is committed, so that building uview needs neither protoc nor this tool, and a
//! service that links the client compiles no code generator. CI compares.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

const FILES: [&str; 6] = ["registration", "attach", "control", "operators", "coherence", "exchange"];

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
    for package in ["uview.control.v1", "uview.operators.v1", "uview.coherence.v1", "uview.exchange.v1"] {
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

/// The workspace's root.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_path_buf()
}
