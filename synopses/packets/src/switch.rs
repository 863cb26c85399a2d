//! What a program for a switch (`p4/`) has to know: its constants, from the settings of the library's type that does
//! the same, and their checksum, which the program reports.
//!
//! A program does what the library does only for some settings: sizes are bounded by what an array of registers of
//! Tofino 1 holds in one stage, and some are powers of two, since a pipeline does not divide. Others are refused with
//! what is possible ([`ConstantsError`]).
//!
//! Each program is there with digests of either kind. Its name, and so its checksum, has the kind in it. The key and
//! the seeds of settings are of one kind.
//!
//! And what an agent makes of a program's registers: [`registers`] reads them by blocks, [`readout`] makes the
//! intervals of the host's own path, [`thrift`] is how the reference switch is asked. Intervals of a one-way
//! measurement begin with [`markers`]; [`clock`] is how the times of two switches become comparable.

use core::fmt::Write as _;

use synopses::digest::{DigestKey, DigestKind};
use synopses::{cardinality, disaggregated, finecomb, fridge, rap, reordering};
use thiserror::Error;

pub mod clock;
pub mod markers;
pub mod programs;
pub mod readout;
pub mod registers;
pub mod thrift;
mod written;

pub use written::WrittenError;

/// The most entries of 32 bits that an array of registers has: what 35 blocks of memory of one stage hold, in
/// thousands.
pub const MAX_ENTRIES: usize = 1 << 17;

/// Why there are no constants for some settings.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ConstantsError {
    /// An array of registers does not fit.
    #[error("{what}: {found} entries, at most {MAX_ENTRIES} are possible in a switch")]
    Entries {
        /// What the entries are.
        what: &'static str,
        /// Entries asked for.
        found: usize,
    },
    /// A number that a pipeline would have to divide by.
    #[error("{what}: {found}, a power of two is needed in a switch, such as {near}")]
    Power {
        /// What the number is.
        what: &'static str,
        /// The number asked for.
        found: u64,
        /// The power of two below it, or 1.
        near: u64,
    },
    /// A setting for which the program does something else.
    #[error("{what}: {found}, the program has {possible}")]
    Setting {
        /// Name of the setting.
        what: &'static str,
        /// What it was.
        found: String,
        /// What is possible.
        possible: &'static str,
    },
    /// The library refuses the settings of a fridge.
    #[error(transparent)]
    Fridge(#[from] fridge::SettingsError),
    /// The library refuses the settings of FineComb or LDA.
    #[error(transparent)]
    FineComb(#[from] finecomb::SettingsError),
    /// The library refuses the settings of a sketch of cardinality.
    #[error(transparent)]
    Cardinality(#[from] cardinality::SettingsError),
    /// The library refuses the settings of a fragment.
    #[error(transparent)]
    Fragment(#[from] disaggregated::SettingsError),
    /// The library refuses the settings of reordering.
    #[error(transparent)]
    Reordering(#[from] reordering::SettingsError),
    /// The library refuses the settings of PRECISION.
    #[error(transparent)]
    Precision(#[from] rap::SettingsError),
}

/// The programs: their names, and with digests of hardware.
static PROGRAMS: [[&str; 2]; 12] = [
    ["finecomb-receiver", "finecomb-receiver-hardware"],
    ["finecomb-sender", "finecomb-sender-hardware"],
    ["fragment", "fragment-hardware"],
    ["fridge", "fridge-hardware"],
    ["fridges", "fridges-hardware"],
    ["lda", "lda-hardware"],
    ["precision", "precision-hardware"],
    ["reordering", "reordering-hardware"],
    ["reordering-samples", "reordering-samples-hardware"],
    ["st-hll", "st-hll-hardware"],
    ["together", "together-hardware"],
    ["ts-pcsa", "ts-pcsa-hardware"],
];

/// The constant that makes a program use the digests of hardware (`p4/shared/hash.p4`).
const HARDWARE: &str = "HARDWARE_DIGEST";

/// The folder of a program's sources: its name without the kind of its digests.
#[must_use]
pub fn folder(program: &str) -> &str {
    program.strip_suffix("-hardware").unwrap_or(program)
}

/// What a program names by digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    /// Flows, or requests and responses.
    Flows,
    /// Packets, by their own names.
    Packets,
}

/// A constant of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Constant {
    /// A number of this many bits.
    Number(u32, u64),
    /// A number of 64 bits that the control plane can set in a program that runs.
    Key(u64),
    /// A number that the program is written with: a width, or a shift.
    Macro(u64),
}

/// All constants of a program, in the order of its file.
#[derive(Clone, PartialEq, Eq)]
pub struct Constants {
    program: &'static str,
    constants: Vec<(String, Constant)>,
}

// Leaves out the constants: a secret is among them.
impl core::fmt::Debug for Constants {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Constants")
            .field("program", &self.program())
            .field("checksum", &self.checksum())
            .finish_non_exhaustive()
    }
}

impl Constants {
    const fn new(program: &'static str) -> Self {
        Self { program, constants: Vec::new() }
    }

    /// None yet, of a program whose digests are those of the key.
    fn for_key(program: &'static str, key: &DigestKey) -> Self {
        let mut constants = Self::new(program);
        if key.kind() == DigestKind::Hardware {
            constants.text_macro(HARDWARE, 1);
            constants.name_kind();
        }
        constants
    }

    /// Takes the program's other name if the constants are those of hardware.
    fn name_kind(&mut self) {
        if self.kind() == DigestKind::Hardware {
            let names = PROGRAMS.iter().find(|[name, _]| *name == self.program);
            self.program = names.map_or(self.program, |[_, hardware]| *hardware);
        }
    }

    fn number(&mut self, name: &str, bits: u32, value: u64) {
        self.constants.push((name.to_owned(), Constant::Number(bits, value)));
    }

    fn key(&mut self, name: &str, value: u64) {
        self.constants.push((name.to_owned(), Constant::Key(value)));
    }

    fn text_macro(&mut self, name: &str, value: u32) {
        self.constants.push((name.to_owned(), Constant::Macro(value.into())));
    }

    /// The words of the key that a program takes.
    fn secret(&mut self, key: &DigestKey, named: Named) {
        let (name, words) = match (key.kind(), named) {
            (DigestKind::Products, Named::Flows) => ("SECRET", 8),
            (DigestKind::Products, Named::Packets) => ("SECRET", 16),
            // Two for the rounds, and one for each word of 32 bits of the name: a request's twelve, a packet's sixteen.
            (DigestKind::Hardware, Named::Flows) => ("KEY", 2 + 12),
            (DigestKind::Hardware, Named::Packets) => ("KEY", 2 + 16),
        };
        for (at, word) in key.secret_words().into_iter().take(words).enumerate() {
            self.key(&format!("{name}_{at}"), word);
        }
    }

    /// Adds those of another program that are not there yet.
    fn join(&mut self, other: Self) {
        for (name, constant) in other.constants {
            if self.constants.iter().all(|(there, _)| *there != name) {
                self.constants.push((name, constant));
            }
        }
    }

    /// What the program's digests are.
    #[must_use]
    pub fn kind(&self) -> DigestKind {
        if self.value(HARDWARE).is_some() { DigestKind::Hardware } else { DigestKind::Products }
    }

    /// The program that they belong to, with the kind of its digests.
    #[must_use]
    pub const fn program(&self) -> &'static str {
        self.program
    }

    /// The folder of the program's sources.
    #[must_use]
    pub fn folder(&self) -> &'static str {
        folder(self.program)
    }

    /// 32 bits that depend on the program's name and on each constant, the secret too. The program has them in its
    /// register `constants` from the first frame on; never 0. They show a mistake, not an attack.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        let text = format!("{}\n{}", self.program, self.lines());
        (DigestKey::new(0).digest(text.as_bytes()).0 as u32).max(1)
    }

    /// What a control plane gives the action `Keys.set`, the only one of the table `Keys.keys`, so that a program that
    /// runs goes on with these keys: all keys in their order, then the constant `CHECKSUM`. They hold the secret.
    #[must_use]
    pub fn parameters(&self) -> Vec<u64> {
        self.keys().chain([u64::from(self.checksum_without_keys())]).collect()
    }

    fn keys(&self) -> impl Iterator<Item = u64> {
        self.constants.iter().filter_map(|(_, constant)| match constant {
            Constant::Key(key) => Some(*key),
            Constant::Number(..) | Constant::Macro(_) => None,
        })
    }

    /// The constant `CHECKSUM`: the program combines it with its keys by XOR and has the checksum, unless its keys are
    /// other ones.
    fn checksum_without_keys(&self) -> u32 {
        self.checksum() ^ folded(self.keys())
    }

    fn lines(&self) -> String {
        let mut text = String::new();
        for (name, constant) in &self.constants {
            // Writing to a text does not fail.
            let _ = match constant {
                Constant::Macro(value) => writeln!(text, "#define {name} {value}"),
                Constant::Number(bits, value) => writeln!(text, "const bit<{bits}> {name} = {value:#x};"),
                Constant::Key(value) => writeln!(text, "const key_t {name} = {value:#x};"),
            };
        }
        text
    }

    /// The text of the program's `constants.p4`, with `note` in front: lines of text, each below 118 characters. It
    /// holds the secret.
    #[must_use]
    pub fn text(&self, note: &str) -> String {
        let note = note.lines().fold(String::new(), |text, line| text + "// " + line + "\n");
        let (lines, checksum) = (self.lines(), self.checksum_without_keys());
        let last = "/// With the keys, the checksum of the program's name and all of these.";
        format!("{note}\n{lines}{last}\nconst bit<32> CHECKSUM = {checksum:#x};\n")
    }
}

/// 32 bits that depend on all keys and their order, as `p4/shared/keys.p4` has them.
fn folded(keys: impl Iterator<Item = u64>) -> u32 {
    let check = keys.fold(0_u64, |check, key| check.rotate_left(1) ^ key);
    (check >> 32) as u32 ^ check as u32
}

#[cfg(test)]
mod tests;
