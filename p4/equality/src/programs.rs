//! The programs, and what their folders hold.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use packets::switch::Constants;
use sha2::{Digest as _, Sha256};
use synopses::digest::DigestKind;
use thiserror::Error;

use crate::comparison::Comparison;
use crate::frames::Captured;
use crate::interpreter::{Fault, LoadError, Machine, Program};
use crate::model::Reference;
use crate::registers::Registers;
use crate::{finecomb, fragment, fridge, fridges, lda, precision, reordering, sthll, together, tspcsa};

/// A program and its model.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// Its name, with the kind of its digests if that is not the first one.
    pub name: &'static str,
    /// Name of the folder and of the main file of its sources.
    pub source: &'static str,
    /// What its digests are.
    pub kind: DigestKind,
    /// What its file of constants has.
    pub constants: fn(DigestKind) -> Result<Constants, Unequal>,
    /// The library, before the first frame of a program with these constants.
    pub reference: fn(&Constants) -> Result<Box<dyn Reference>, Unequal>,
}

/// Each program with digests of either kind.
macro_rules! subjects {
    ($($name:literal, $constants:expr, $reference:expr;)*) => {
        [$(
            Subject {
                name: $name,
                source: $name,
                kind: DigestKind::Products,
                constants: $constants,
                reference: $reference,
            },
            Subject {
                name: concat!($name, "-hardware"),
                source: $name,
                kind: DigestKind::Hardware,
                constants: $constants,
                reference: $reference,
            },
        )*]
    };
}

/// All programs that there are, one after the other with digests of either kind.
pub const SUBJECTS: [Subject; 24] = subjects! {
    "fridge",
    |kind| fridge::constants_of(kind).map_err(refused),
    |of| fridge::Reference::new(of).map(boxed).map_err(refused);

    "fridges",
    |kind| fridges::constants(kind).map_err(refused),
    |of| fridges::Reference::new(of).map(boxed).map_err(refused);

    "finecomb-sender",
    |kind| finecomb::constants(false, kind).map_err(refused),
    |of| finecomb::Reference::new(finecomb::settings(), of).map(boxed).map_err(refused);

    "finecomb-receiver",
    |kind| finecomb::constants(true, kind).map_err(refused),
    |of| finecomb::ReceiverReference::new(of).map(boxed).map_err(refused);

    "st-hll",
    |kind| sthll::constants(kind).map_err(refused),
    |of| sthll::Reference::new(of).map(boxed).map_err(refused);

    "fragment",
    |kind| fragment::constants(kind).map_err(refused),
    |of| fragment::Reference::new(of).map(boxed).map_err(refused);

    "reordering-samples",
    |kind| reordering::constants(reordering::sampling(), kind).map_err(refused),
    |of| reordering::Reference::new(reordering::sampling(), of).map(boxed).map_err(refused);

    "reordering",
    |kind| reordering::constants(reordering::hybrid(), kind).map_err(refused),
    |of| reordering::Reference::new(reordering::hybrid(), of).map(boxed).map_err(refused);

    "precision",
    |kind| precision::constants(kind).map_err(refused),
    |of| precision::Reference::new(of).map(boxed).map_err(refused);

    "lda",
    |kind| lda::constants(kind).map_err(refused),
    |of| lda::Reference::new(of).map(boxed).map_err(refused);

    "ts-pcsa",
    |kind| tspcsa::constants(kind).map_err(refused),
    |of| tspcsa::Reference::new(of).map(boxed).map_err(refused);

    "together",
    |kind| together::constants(kind).map_err(refused),
    |of| together::Reference::new(of).map(boxed).map_err(refused);
};

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
    /// The library's type cannot be loaded from the registers, or is another one then.
    #[error("after {0} frames the library's type is another one if it is loaded from the registers")]
    Loaded(usize),
    /// The compiled program is not the one that its lock names.
    #[error("{file} has the digest {found}, its lock says {expected}: `cargo xtask p4 --write` compiles it again")]
    Compiled {
        /// The compiled program.
        file: PathBuf,
        /// Digest of the file.
        found: String,
        /// What the lock says.
        expected: String,
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

/// SHA-256 of a text.
#[must_use]
pub fn digest(text: &str) -> String {
    format!("{:x}", Sha256::digest(text))
}

/// What a lock says behind a word; nothing if it does not say it.
#[must_use]
pub fn locked<'a>(lock: &'a str, word: &str) -> &'a str {
    lock.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' ')).unwrap_or_default()
}

/// Refuses a compiled program that is not the one that its lock names.
fn unchanged(file: &Path, json: &str, lock: &str) -> Result<(), Unequal> {
    let (found, expected) = (digest(json), locked(lock, "program").to_owned());
    let file = file.to_path_buf();
    if found == expected { Ok(()) } else { Err(Unequal::Compiled { file, found, expected }) }
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
        root().join(self.source)
    }

    /// A file in its folder with this extension.
    #[must_use]
    pub fn file(&self, extension: &str) -> PathBuf {
        self.folder().join(self.name).with_extension(extension)
    }

    /// The file of its constants.
    #[must_use]
    pub fn constants_file(&self) -> PathBuf {
        self.folder().join(match self.kind {
            DigestKind::Products => "constants.p4",
            DigestKind::Hardware => "constants-hardware.p4",
        })
    }

    /// The text of that file.
    ///
    /// # Errors
    ///
    /// [`Unequal::Settings`] if the library refuses the settings.
    pub fn constants_text(&self) -> Result<String, Unequal> {
        Ok((self.constants)(self.kind)?.text(
            "Constants of the tested program. Written by `cargo run -p equality -- constants`, from the settings and the \
             key in\n`equality/src`. The secret is public: take another one.",
        ))
    }

    /// The library, before the first frame.
    ///
    /// # Errors
    ///
    /// [`Unequal::Settings`] if the library refuses the settings.
    pub fn library(&self) -> Result<Box<dyn Reference>, Unequal> {
        (self.reference)(&(self.constants)(self.kind)?)
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
    /// [`Unequal`] if it cannot be read or loaded, or is not the one that its lock names.
    pub fn load(&self) -> Result<Program, Unequal> {
        let file = self.file("json");
        let (json, lock) = (read(&file)?, read(&self.file("lock"))?);
        unchanged(&file, &json, &lock)?;
        Ok(Program::load(&json)?)
    }

    /// Interpreter and library, before the first frame.
    ///
    /// # Errors
    ///
    /// [`Unequal`] if the program cannot be loaded, or the library refuses the settings.
    pub fn comparison(&self) -> Result<Comparison, Unequal> {
        Ok(Comparison::new(Machine::new(self.load()?.into()), self.library()?))
    }

    /// Sends `frames` from the agent to the interpreter and to the library, and compares all registers after every
    /// `every` frames and at the end, and each frame that leaves. Returns the registers at the end.
    ///
    /// # Errors
    ///
    /// [`Unequal`], with what differs.
    pub fn compare(&self, frames: impl Iterator<Item = Captured>, every: usize) -> Result<Registers, Unequal> {
        self.comparison()?.run(frames, every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_its_lock_does_not_name_is_refused_with_both_digests() {
        let lock = format!("sources 1\nprogram {}\ncompiler 2\n", digest("{}"));
        let of = |json: &str| unchanged(Path::new("a.json"), json, &lock).map_err(|error| error.to_string());

        assert_eq!(of("{}"), Ok(()));
        let (found, expected) = (digest("{ }"), digest("{}"));
        assert_eq!(
            of("{ }"),
            Err(format!(
                "a.json has the digest {found}, its lock says {expected}: `cargo xtask p4 --write` compiles it again"
            ))
        );
        assert_eq!((locked(&lock, "sources"), locked(&lock, "compiler"), locked(&lock, "source")), ("1", "2", ""));
    }

    #[test]
    fn programs_are_those_whose_names_their_constants_have() {
        for subject in &SUBJECTS {
            let constants = (subject.constants)(subject.kind).expect("settings of the tested program");
            assert_eq!((constants.program(), constants.folder()), (subject.name, subject.source));
        }
    }
}
