//! `cargo run -p equality`: writes what the P4 programs and their tests are made of.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use equality::control::Switch;
use equality::frames::Captured;
use equality::interpreter::Machine;
use equality::programs::{SUBJECTS, Subject, digest};
use equality::traffic::{Streams, Traffic};
use equality::vectors::Vector;
use packets::Source as _;
use packets::ring::{Ring, RingSettings};
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
    /// Write the constants of each program.
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
    /// Run a program on the packets of an interface, as a switch to whose port they are mirrored, until it is killed. A
    /// NIC agent can ask it for registers.
    Switch {
        /// Name of the program.
        program: String,
        /// The interface whose frames pass.
        #[arg(long)]
        interface: String,
        /// Address at which it can be asked.
        #[arg(long, default_value = "127.0.0.1:9090")]
        listen: SocketAddr,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().task {
        Task::Constants => constants(),
        Task::Vectors => vectors(),
        Task::Seal { program, compiled, compiler } => seal(named(&program)?, &compiled, &compiler),
        Task::Stage { program, frames, seed, into } => stage(named(&program)?, frames, seed, &into),
        Task::Switch { program, interface, listen } => switch(named(&program)?, interface, listen),
    }
}

fn named(name: &str) -> Result<&'static Subject> {
    Subject::of_name(name).with_context(|| format!("no program is called {name}"))
}

fn constants() -> Result<()> {
    for subject in &SUBJECTS {
        fs::write(subject.constants_file(), subject.constants_text()?)?;
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
    let text = serde_json::to_string(&json)? + "\n";
    let (sources, program) = (subject.sources_digest()?, digest(&text));
    fs::write(subject.file("json"), text)?;
    fs::write(subject.file("lock"), format!("sources {sources}\nprogram {program}\ncompiler {compiler}\n"))?;
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
    let random = Vector::of("random", subject, Traffic::new(seed, 0.1).take(frames).collect())?;
    let streams = Vector::of("random-streams", subject, Streams::new(seed).take(frames).collect())?;
    for vector in Vector::read_all(subject)?.iter().chain([&random, &streams]) {
        subject.compare(vector.frames.iter().cloned(), EVERY).with_context(|| vector.name.clone())?;
        vector.stage(&into.join(&vector.name))?;
    }
    Ok(())
}

fn switch(subject: &Subject, interface: String, listen: SocketAddr) -> Result<()> {
    let mut ring = Ring::open(&RingSettings { interface, ..RingSettings::default() })?;
    let listener = TcpListener::bind(listen).with_context(|| listen.to_string())?;
    let switch = Switch::start(Machine::new(subject.load()?.into()), listener)?;
    let mut outcome = Ok(());
    while outcome.is_ok() {
        let _ = ring.read(&mut |frame| {
            let captured = Captured { time_ns: frame.time_ns, bytes: frame.bytes.to_vec() };
            if outcome.is_ok() {
                outcome = switch.process(&captured).map(drop);
            }
        })?;
    }
    outcome.context("the program does what a switch cannot do")
}
