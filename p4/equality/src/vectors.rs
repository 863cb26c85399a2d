//! Golden vectors: frames in a capture file, the registers that each program has after them, what the library estimates
//! of them, and the digests of the first ones. And the same as a running switch needs it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use packets::file::{Capture, Writer};
use packets::frame::{Frame, Link};
use packets::source::{Progress, Source as _, SourceError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::estimates::{self, Estimates, EstimatesError};
use crate::frames::{AGENT_PORT, Captured};
use crate::names::{self, FrameDigest};
use crate::programs::{Subject, Unequal, read, root};
use crate::registers::Registers;
use crate::traffic::{Streams, Traffic, edges, wraps};

/// Longer frames are not written.
const SNAP: u32 = 1 << 16;

/// Why vectors could not be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VectorError {
    /// A file that cannot be read or written.
    #[error("{0}")]
    File(PathBuf, #[source] io::Error),
    /// A capture that cannot be read.
    #[error("{0}")]
    Capture(PathBuf, #[source] SourceError),
    /// Registers, digests and estimates that cannot be read.
    #[error("{0}")]
    Outcome(PathBuf, #[source] serde_json::Error),
    /// The program and the library differ.
    #[error(transparent)]
    Unequal(#[from] Unequal),
    /// The library estimates nothing.
    #[error(transparent)]
    Estimates(#[from] EstimatesError),
}

/// Frames, and what comes of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vector {
    /// Name of its files.
    pub name: String,
    /// The frames, in the order of their arrival.
    pub frames: Vec<Captured>,
    /// The library's registers after the last one.
    pub registers: Registers,
    /// The library's digests of the first ones.
    pub digests: Vec<FrameDigest>,
    /// What the library estimates of all of them.
    pub estimates: Estimates,
}

/// The file of what comes of a capture's frames in one program, a line for each row. Zeros at the end of an array are
/// left out.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutcomeFile {
    /// Names of arrays, their sizes, and their entries.
    registers: Vec<(String, usize, Vec<u64>)>,
    digests: Vec<FrameDigest>,
    estimates: Estimates,
}

/// Traffic of the golden vectors: name, seed, share of damaged frames, number of frames.
const GOLDEN: [(&str, u64, f64, usize); 3] =
    [("whole", 1, 0.0, 400), ("damaged", 2, 0.3, 400), ("broken", 3, 1.0, 200)];

/// Frames of streams among the golden vectors.
const STREAMED: usize = 600;

/// The folder of all vectors: captures, and a folder for each program with what comes of them.
#[must_use]
pub fn folder() -> PathBuf {
    root().join("vectors")
}

fn outcome_file(subject: &Subject, name: &str) -> PathBuf {
    folder().join(subject.name).join(name).with_extension("json")
}

fn at(path: &Path) -> impl Fn(io::Error) -> VectorError {
    let path = path.to_path_buf();
    move |error| VectorError::File(path.clone(), error)
}

impl Vector {
    /// The vectors that the library makes for a program.
    ///
    /// # Errors
    ///
    /// [`VectorError::Unequal`] if the library refuses the settings.
    pub fn golden(subject: &Subject) -> Result<Vec<Self>, VectorError> {
        let vector = |(name, seed, damaged, count): (&str, _, _, _)| {
            Self::of(name, subject, Traffic::new(seed, damaged).take(count).collect())
        };
        let edges = Self::of("edges", subject, edges());
        let streams = Self::of("streams", subject, Streams::new(5).take(STREAMED).collect());
        let wraps = Self::of("wraps", subject, wraps());
        GOLDEN.into_iter().map(vector).chain([edges, streams, wraps]).collect()
    }

    /// These frames, with the library's registers, digests and estimates.
    ///
    /// # Errors
    ///
    /// [`VectorError::Unequal`] or [`VectorError::Estimates`] if the library refuses the settings.
    pub fn of(name: &str, subject: &Subject, frames: Vec<Captured>) -> Result<Self, VectorError> {
        let mut reference = subject.library()?;
        for captured in &frames {
            reference.process(captured);
        }
        let digests = names::of_library(subject, &frames)?;
        let estimates = estimates::of_frames(subject, &frames)?;
        Ok(Self { name: name.to_owned(), frames, registers: reference.registers(), digests, estimates })
    }

    /// Writes the capture, which all programs share, and what comes of it in a program.
    ///
    /// # Errors
    ///
    /// [`VectorError::File`] if that fails.
    pub fn write(&self, subject: &Subject) -> Result<(), VectorError> {
        let file = outcome_file(subject, &self.name);
        let (folder, outcomes) = (folder(), file.parent().unwrap_or(&file));
        fs::create_dir_all(outcomes).map_err(at(outcomes))?;
        let frames = self.frames.iter().map(|captured| (captured.time_ns, captured.bytes.clone()));
        capture(&folder.join(&self.name).with_extension("pcap"), frames)?;
        let registers = self.registers.iter().map(|(name, entries)| {
            let used = entries.iter().rposition(|entry| *entry != 0).map_or(0, |last| last + 1);
            (name, entries.len(), &entries[..used])
        });
        let registers = lines("registers", registers);
        let (digests, estimates) = (lines("digests", &self.digests), lines("estimates", &self.estimates));
        fs::write(&file, format!("{{\n{registers},\n{digests},\n{estimates}\n}}\n")).map_err(at(&file))
    }

    /// All vectors that are kept, with what comes of them in a program.
    ///
    /// # Errors
    ///
    /// [`VectorError`] if one cannot be read.
    pub fn read_all(subject: &Subject) -> Result<Vec<Self>, VectorError> {
        let (mut vectors, folder) = (Vec::new(), folder());
        for entry in fs::read_dir(&folder).map_err(at(&folder))? {
            let file = entry.map_err(at(&folder))?.path();
            if file.extension().is_some_and(|extension| extension == "pcap") {
                vectors.push(Self::read(&file, subject)?);
            }
        }
        vectors.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(vectors)
    }

    fn read(file: &Path, subject: &Subject) -> Result<Self, VectorError> {
        let in_file = |error| VectorError::Capture(file.to_path_buf(), error);
        let mut capture = Capture::new(fs::File::open(file).map_err(at(file))?).map_err(in_file)?;
        let mut frames = Vec::new();
        let mut keep =
            |frame: &Frame<'_>| frames.push(Captured { time_ns: frame.time_ns, bytes: frame.bytes.to_vec() });
        while !matches!(capture.read(&mut keep).map_err(in_file)?, Progress::End) {}
        let name = file.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let json = outcome_file(subject, &name);
        let outcome = serde_json::from_str(&read(&json)?).map_err(|error| VectorError::Outcome(json, error))?;
        let OutcomeFile { registers, digests, estimates } = outcome;
        let filled = registers.into_iter().map(|(name, size, mut entries)| {
            entries.resize(size, 0);
            (name, entries)
        });
        Ok(Self { name, frames, registers: filled.collect(), digests, estimates })
    }

    /// Writes what a switch needs to run it: frames that arrive from the agent, those that leave, and the registers,
    /// each array with all of its entries.
    ///
    /// # Errors
    ///
    /// [`VectorError::File`] if that fails.
    pub fn stage(&self, folder: &Path) -> Result<(), VectorError> {
        fs::create_dir_all(folder).map_err(at(folder))?;
        let frames = self.frames.iter().map(|captured| (captured.time_ns, captured.replayed()));
        capture(&folder.join(format!("agent{AGENT_PORT}_in.pcap")), frames)?;
        capture(&folder.join("wire0_in.pcap"), core::iter::empty())?;
        let frames = self.frames.iter().map(|captured| (captured.time_ns, captured.bytes.clone()));
        capture(&folder.join("wire0_expected.pcap"), frames)?;
        let file = folder.join("registers.json");
        fs::write(&file, serde_json::json!(self.registers).to_string()).map_err(at(&file))
    }
}

/// A list of an object in JSON, with a line for each row.
fn lines<T: Serialize>(name: &str, rows: impl IntoIterator<Item = T>) -> String {
    let rows: Vec<_> = rows.into_iter().map(|row| serde_json::json!(row).to_string()).collect();
    format!("\"{name}\": [\n{}\n]", rows.join(",\n"))
}

fn capture(file: &Path, frames: impl Iterator<Item = (u64, Vec<u8>)>) -> Result<(), VectorError> {
    let mut writer = Writer::new(Vec::new(), Link::Ethernet, SNAP).map_err(at(file))?;
    for (time_ns, bytes) in frames {
        let frame = Frame { bytes: &bytes, length: bytes.len() as u32, time_ns, link: Link::Ethernet };
        writer.write(&frame).map_err(at(file))?;
    }
    fs::write(file, writer.finish().map_err(at(file))?).map_err(at(file))
}
