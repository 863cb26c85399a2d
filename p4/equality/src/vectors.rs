//! Golden vectors: frames in a capture file, and the registers that each program has after them. And the same as a
//! running switch needs it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use packets::file::{Capture, Writer};
use packets::frame::{Frame, Link};
use packets::source::{Progress, Source as _, SourceError};
use thiserror::Error;

use crate::frames::{AGENT_PORT, Captured};
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
    /// Registers that cannot be read.
    #[error("{0}")]
    Registers(PathBuf, #[source] serde_json::Error),
    /// The program and the library differ.
    #[error(transparent)]
    Unequal(#[from] Unequal),
}

/// Frames and the registers after them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vector {
    /// Name of its files.
    pub name: String,
    /// The frames, in the order of their arrival.
    pub frames: Vec<Captured>,
    /// The library's registers after the last one.
    pub registers: Registers,
}

/// Traffic of the golden vectors: name, seed, share of damaged frames, number of frames.
const GOLDEN: [(&str, u64, f64, usize); 3] =
    [("whole", 1, 0.0, 400), ("damaged", 2, 0.3, 400), ("broken", 3, 1.0, 200)];

/// Frames of streams among the golden vectors.
const STREAMED: usize = 600;

/// The folder of all vectors: captures, and a folder of registers for each program.
#[must_use]
pub fn folder() -> PathBuf {
    root().join("vectors")
}

fn registers_file(subject: &Subject, name: &str) -> PathBuf {
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

    /// These frames, with the library's registers.
    ///
    /// # Errors
    ///
    /// [`VectorError::Unequal`] if the library refuses the settings.
    pub fn of(name: &str, subject: &Subject, frames: Vec<Captured>) -> Result<Self, VectorError> {
        let mut reference = subject.library()?;
        for captured in &frames {
            reference.process(captured);
        }
        Ok(Self { name: name.to_owned(), frames, registers: reference.registers() })
    }

    /// Writes the capture, which all programs share, and the registers of a program.
    ///
    /// # Errors
    ///
    /// [`VectorError::File`] if that fails.
    pub fn write(&self, subject: &Subject) -> Result<(), VectorError> {
        let file = registers_file(subject, &self.name);
        let (folder, registers) = (folder(), file.parent().unwrap_or(&file));
        fs::create_dir_all(registers).map_err(at(registers))?;
        let frames = self.frames.iter().map(|captured| (captured.time_ns, captured.bytes.clone()));
        capture(&folder.join(&self.name).with_extension("pcap"), frames)?;
        // Zeros at the end are left out.
        let filled = self.registers.iter().map(|(name, entries)| {
            let used = entries.iter().rposition(|entry| *entry != 0).map_or(0, |last| last + 1);
            (name.clone(), (entries.len(), entries[..used].to_vec()))
        });
        let filled: std::collections::BTreeMap<_, _> = filled.collect();
        let lines: Vec<_> =
            filled.iter().map(|line| serde_json::json!([line.0, line.1.0, line.1.1]).to_string()).collect();
        fs::write(&file, format!("[\n{}\n]\n", lines.join(",\n"))).map_err(at(&file))
    }

    /// All vectors that are kept, with the registers of a program.
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
        let json = registers_file(subject, &name);
        let lines: Vec<(String, usize, Vec<u64>)> =
            serde_json::from_str(&read(&json)?).map_err(|error| VectorError::Registers(json, error))?;
        let filled = lines.into_iter().map(|(name, size, mut entries)| {
            entries.resize(size, 0);
            (name, entries)
        });
        Ok(Self { name, frames, registers: filled.collect() })
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

fn capture(file: &Path, frames: impl Iterator<Item = (u64, Vec<u8>)>) -> Result<(), VectorError> {
    let mut writer = Writer::new(Vec::new(), Link::Ethernet, SNAP).map_err(at(file))?;
    for (time_ns, bytes) in frames {
        let frame = Frame { bytes: &bytes, length: bytes.len() as u32, time_ns, link: Link::Ethernet };
        writer.write(&frame).map_err(at(file))?;
    }
    fs::write(file, writer.finish().map_err(at(file))?).map_err(at(file))
}
