//! `cargo run -p equality`: writes what the P4 programs and their tests are made of.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use equality::programs::{SUBJECTS, Subject};
use equality::traffic::Traffic;
use equality::vectors::Vector;
use serde_json::Value;

/// Frames between two comparisons of all registers.
const EVERY: usize = 1_000;

#[derive(Debug, Parser)]
#[command(about = "Writes what the P4 programs and their tests are made of")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Write each program's constants.p4.
    Constants,
    /// Write the golden vectors, from the library.
    Vectors,
    /// Keep a compiled program, without what differs from machine to machine, and say what it was compiled from.
    Seal {
        /// Name of the program.
        program: String,
        /// The compiler's output.
        compiled: PathBuf,
        /// The compiler and its version.
        #[arg(long)]
        compiler: String,
    },
    /// Write all vectors of a program, and random traffic, as a switch needs them. Library and interpreter are compared
    /// first.
    Stage {
        /// Name of the program.
        program: String,
        /// Number of random frames.
        #[arg(long, default_value_t = 10_000)]
        frames: usize,
        /// Seed of the random traffic.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Folder to write to.
        #[arg(long)]
        into: PathBuf,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().task {
        Task::Constants => constants(),
        Task::Vectors => vectors(),
        Task::Seal { program, compiled, compiler } => seal(named(&program)?, &compiled, &compiler),
        Task::Stage { program, frames, seed, into } => stage(named(&program)?, frames, seed, &into),
    }
}

fn named(name: &str) -> Result<&'static Subject> {
    Subject::of_name(name).with_context(|| format!("no program is called {name}"))
}

fn constants() -> Result<()> {
    for subject in &SUBJECTS {
        fs::write(subject.folder().join("constants.p4"), subject.constants_text()?)?;
    }
    Ok(())
}

fn vectors() -> Result<()> {
    for subject in &SUBJECTS {
        for vector in Vector::golden(subject)? {
            vector.write(subject)?;
        }
    }
    Ok(())
}

fn seal(subject: &Subject, compiled: &PathBuf, compiler: &str) -> Result<()> {
    let text = fs::read_to_string(compiled).with_context(|| compiled.display().to_string())?;
    let mut json: Value = serde_json::from_str(&text).context("the compiler's output is not JSON")?;
    strip(&mut json);
    fs::write(subject.file("json"), serde_json::to_string(&json)? + "\n")?;
    fs::write(subject.file("lock"), format!("sources {}\ncompiler {compiler}\n", subject.sources_digest()?))?;
    Ok(())
}

/// Removes where in the sources something came from.
fn strip(json: &mut Value) {
    match json {
        Value::Object(fields) => {
            fields.retain(|name, _| name != "source_info");
            fields.values_mut().for_each(strip);
        }
        Value::Array(values) => values.iter_mut().for_each(strip),
        _ => {}
    }
}

fn stage(subject: &Subject, frames: usize, seed: u64, into: &std::path::Path) -> Result<()> {
    let traffic = Traffic::new(seed, 0.1).take(frames);
    let random = Vector::of("random", subject, traffic.collect())?;
    for vector in Vector::read_all(subject)?.iter().chain([&random]) {
        subject.compare(vector.frames.iter().cloned(), EVERY).with_context(|| vector.name.clone())?;
        vector.stage(&into.join(&vector.name))?;
    }
    Ok(())
}
