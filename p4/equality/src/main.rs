//! `cargo run -p equality`: writes what the P4 programs and their tests are made of.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use equality::control::Switch;
use equality::frames::Captured;
use equality::interpreter::Machine;
use equality::programs::{SUBJECTS, Subject, digest};
use equality::traffic::{Streams, Traffic};
use equality::vectors::Vector;
use equality::wire::Wire;
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
    /// Run a program as a switch, until it is killed: on the packets of an interface that are mirrored to its port, or
    /// between two interfaces. A NIC agent can ask it for registers.
    Switch {
        /// Name of the program.
        program: String,
        /// The interface whose frames pass; with `--with` it is port 0.
        #[arg(long)]
        interface: String,
        /// Forward the frames of both interfaces as the program says; this one is port 1. Offloads have to be off where
        /// they are sent (`ethtool -K IFACE tso off gso off gro off tx off`).
        #[arg(long, value_name = "INTERFACE")]
        with: Option<String>,
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
        Task::Switch { program, interface, with: None, listen } => mirror(named(&program)?, interface, listen),
        Task::Switch { program, interface, with: Some(with), listen } => {
            forward(named(&program)?, [&interface, &with], listen)
        }
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

fn listener(listen: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(listen).with_context(|| listen.to_string())
}

fn mirror(subject: &Subject, interface: String, listen: SocketAddr) -> Result<()> {
    let mut ring = Ring::open(&RingSettings { interface, ..RingSettings::default() })?;
    let switch = Switch::start(Machine::new(subject.load()?.into()), listener(listen)?)?;
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

fn forward(subject: &Subject, interfaces: [&str; 2], listen: SocketAddr) -> Result<()> {
    let machine = Machine::new(subject.load()?.into());
    let wire = Wire::open(interfaces)?;
    let switch = Switch::start_at(machine, listener(listen)?, now_ns()?)?;
    Ok(wire.run(&switch, &AtomicBool::new(false))?)
}

/// Whole microseconds since 1970, in nanoseconds: a switch says its times in microseconds.
#[expect(clippy::disallowed_methods, reason = "a switch's time begins when it starts")]
fn now_ns() -> Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("this machine's clock is before 1970")?;
    Ok(now.as_micros() as u64 * 1_000)
}
