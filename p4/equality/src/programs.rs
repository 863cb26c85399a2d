//! The programs, and what their folders hold.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::finecomb;
use crate::frames::Captured;
use crate::fridge;
use crate::interpreter::{Fault, LoadError, Machine, Program};
use crate::model::{Constant, Reference};
use crate::registers::{Registers, differences, of};

/// A program and its model.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// Name of its folder and of its files.
    pub name: &'static str,
    /// What `constants.p4` has.
    pub constants: fn() -> Result<Vec<Constant>, Unequal>,
    /// The library, before the first frame.
    pub reference: fn() -> Result<Box<dyn Reference>, Unequal>,
}

/// All programs that there are.
pub const SUBJECTS: [Subject; 3] = [
    Subject {
        name: "fridge",
        constants: || fridge::constants().map_err(refused),
        reference: || fridge::Reference::new().map(boxed).map_err(refused),
    },
    Subject {
        name: "finecomb-sender",
        constants: || finecomb::constants().map_err(refused),
        reference: || finecomb::Reference::new().map(boxed).map_err(refused),
    },
    Subject {
        name: "finecomb-receiver",
        constants: || finecomb::constants().map_err(refused),
        reference: || finecomb::ReceiverReference::new().map(boxed).map_err(refused),
    },
];

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn refused(error: impl ToString) -> Unequal {
    Unequal::Settings(error.to_string())
}

fn boxed(reference: impl Reference + 'static) -> Box<dyn Reference> {
    Box::new(reference)
}

/// Why a program was not found equal to the library.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Unequal {
    /// The library refuses the settings.
    #[error("the library refuses the settings: {0}")]
    Settings(String),
    /// A file that cannot be read or written.
    #[error("{0}")]
    File(PathBuf, #[source] io::Error),
    /// The interpreter cannot load the program.
    #[error("the compiled program cannot be loaded")]
    Load(#[from] LoadError),
    /// The program does what a switch cannot do.
    #[error("frame {0}")]
    Fault(usize, #[source] Fault),
    /// A frame does not leave as it came.
    #[error("frame {0} left with other bytes, by another port, or not at all")]
    Frame(usize),
    /// Registers differ from the library's.
    #[error("registers after {frames} frames differ:\n{differences}")]
    Registers {
        /// Frames until then.
        frames: usize,
        /// The first ones that differ.
        differences: String,
    },
}

/// The folder of P4 programs.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

pub(crate) fn read(path: &Path) -> Result<String, Unequal> {
    fs::read_to_string(path).map_err(|error| Unequal::File(path.to_path_buf(), error))
}

impl Subject {
    /// The program with this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<&'static Self> {
        SUBJECTS.iter().find(|subject| subject.name == name)
    }

    /// Folder of its files.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        root().join(self.name)
    }

    /// A file in its folder with this extension.
    #[must_use]
    pub fn file(&self, extension: &str) -> PathBuf {
        self.folder().join(self.name).with_extension(extension)
    }

    /// The text of `constants.p4`.
    ///
    /// # Errors
    ///
    /// [`Unequal::Settings`] if the library refuses the settings.
    pub fn constants_text(&self) -> Result<String, Unequal> {
        let mut text = "// Constants of the tested program. Written by `cargo run -p equality -- constants`, from the \
                        settings and the key in\n// `equality/src`. The secret is public: take another one.\n\n"
            .to_owned();
        text.push_str("/// A tick is 2 to the power of this many nanoseconds.\n#define TICK_SHIFT 10\n\n");
        for (name, bits, value) in (self.constants)()? {
            let _ = writeln!(text, "const bit<{bits}> {name} = {value:#x};");
        }
        Ok(text)
    }

    /// SHA-256 of all sources of the program, with their names.
    ///
    /// # Errors
    ///
    /// [`Unequal::File`] if a source cannot be read.
    pub fn sources_digest(&self) -> Result<String, Unequal> {
        let mut hasher = Sha256::new();
        for folder in [root().join("shared"), self.folder()] {
            let entries = fs::read_dir(&folder).map_err(|error| Unequal::File(folder.clone(), error))?;
            let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
            files.retain(|file| file.extension().is_some_and(|extension| extension == "p4"));
            files.sort();
            for file in files {
                let text = read(&file)?;
                let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                hasher.update(format!("{name} {}\n{text}", text.len()));
            }
        }
        Ok(format!("{:x}", hasher.finalize()))
    }

    /// The compiled program.
    ///
    /// # Errors
    ///
    /// [`Unequal`] if it cannot be read or loaded.
    pub fn load(&self) -> Result<Program, Unequal> {
        Ok(Program::load(&read(&self.file("json"))?)?)
    }

    /// Sends `frames` to the interpreter and to the library, and compares all registers after every `every` frames and
    /// at the end, and each frame that leaves. Returns the registers at the end.
    ///
    /// # Errors
    ///
    /// [`Unequal`], with what differs.
    pub fn compare(&self, frames: impl Iterator<Item = Captured>, every: usize) -> Result<Registers, Unequal> {
        let mut machine = Machine::new(self.load()?.into());
        let mut reference = (self.reference)()?;
        let mut count = 0;
        let same = |reference: &dyn Reference, machine: &Machine, frames: usize| {
            let expected = reference.registers();
            let differences = differences(&expected, &of(machine));
            if differences.is_empty() { Ok(expected) } else { Err(Unequal::Registers { frames, differences }) }
        };
        for captured in frames {
            reference.process(&captured);
            let sent = machine.process(crate::frames::AGENT_PORT, 0, &captured.replayed());
            let sent = sent.map_err(|fault| Unequal::Fault(count, fault))?;
            if sent.is_none_or(|sent| sent.port != 0 || sent.bytes != captured.bytes) {
                return Err(Unequal::Frame(count));
            }
            count += 1;
            if count % every == 0 {
                same(&*reference, &machine, count)?;
            }
        }
        same(&*reference, &machine, count)
    }
}
