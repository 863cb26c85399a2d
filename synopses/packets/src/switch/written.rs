//! Constants as they were written into a file, so that an agent knows what a program was compiled with.

use thiserror::Error;

use super::{Constant, Constants, folded};

/// The most constants of a file: those of the largest program, and as many again.
const MAX_CONSTANTS: usize = 128;

/// Why a text is no file of constants.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WrittenError {
    /// A line that `uview p4 constants` does not write.
    #[error("line {0} is neither a constant nor a comment")]
    Line(usize),
    /// More than any program has.
    #[error("more than {MAX_CONSTANTS} constants")]
    Many,
    /// The checksum at the end is missing.
    #[error("the constant CHECKSUM is missing")]
    NoChecksum,
    /// Something was changed, or the file is of another program.
    #[error("the constants have the checksum {written:#x}, as constants of {program} they would have {computed:#x}")]
    Checksum {
        /// The program that they should be of.
        program: &'static str,
        /// What the file says.
        written: u32,
        /// What follows from its constants.
        computed: u32,
    },
}

impl Constants {
    /// Reads what [`Self::text`] wrote for `program`, with digests of either kind.
    ///
    /// # Errors
    ///
    /// [`WrittenError`] if it is another text, or of another program.
    pub fn written(program: &'static str, text: &str) -> Result<Self, WrittenError> {
        let (mut constants, mut checksum) = (Self::new(program), None);
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with("//") {
                continue;
            }
            let (name, constant) = constant(line).ok_or(WrittenError::Line(number))?;
            match constant {
                Constant::Number(32, value) if name == "CHECKSUM" => checksum = Some(value as u32),
                _ => constants.constants.push((name.to_owned(), constant)),
            }
            if constants.constants.len() > MAX_CONSTANTS {
                return Err(WrittenError::Many);
            }
        }
        constants.name_kind();
        let program = constants.program;
        let written = checksum.ok_or(WrittenError::NoChecksum)? ^ folded(constants.keys());
        let computed = constants.checksum();
        if written == computed { Ok(constants) } else { Err(WrittenError::Checksum { program, written, computed }) }
    }

    /// The constant of this name; `None` if the program has none.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<u64> {
        let (_, constant) = self.constants.iter().find(|(there, _)| there == name)?;
        let (Constant::Number(_, value) | Constant::Key(value) | Constant::Macro(value)) = constant;
        Some(*value)
    }
}

/// Name and value of a line.
fn constant(line: &str) -> Option<(&str, Constant)> {
    if let Some(rest) = line.strip_prefix("#define ") {
        let (name, value) = rest.split_once(' ')?;
        return Some((name, Constant::Macro(value.parse().ok()?)));
    }
    let (kind, rest) = line.strip_prefix("const ")?.split_once(' ')?;
    let (name, value) = rest.strip_suffix(';')?.split_once(" = 0x")?;
    let value = u64::from_str_radix(value, 16).ok()?;
    if kind == "key_t" {
        return Some((name, Constant::Key(value)));
    }
    let bits: u32 = kind.strip_prefix("bit<")?.strip_suffix('>')?.parse().ok().filter(|bits| *bits <= 64)?;
    Some((name, Constant::Number(bits, value)))
}

#[cfg(test)]
mod tests {
    use synopses::digest::{DigestKey, DigestKind};
    use synopses::fridge::Settings;

    use super::*;
    use crate::switch::programs;

    fn text() -> (Constants, String) {
        let constants = programs::fridge(Settings::default(), &DigestKey::new(7)).expect("a fridge");
        let text = constants.text("A note,\nof two lines.");
        (constants, text)
    }

    #[test]
    fn what_was_written_is_read_again() {
        let (constants, text) = text();

        assert_eq!(Constants::written("fridge", &text), Ok(constants.clone()));
        assert_eq!((constants.value("SLOTS"), constants.value("TICK_SHIFT")), (Some(1 << 12), Some(10)));
        assert_eq!(constants.value("SECRET_0"), Some(DigestKey::new(7).secret_words()[0]));
        assert_eq!(constants.value("CHECKSUM"), None, "it is no constant of the program");
    }

    #[test]
    fn constants_of_hardware_are_those_of_another_program() {
        let kind = DigestKind::Hardware;
        let settings = Settings { seed: kind.seed(0), ..Settings::default() };
        let constants = programs::fridge(settings, &DigestKey::of_kind(kind, 7)).expect("a fridge");
        let text = constants.text("");

        let read = Constants::written("fridge", &text).expect("what was written");
        assert_eq!((read.program(), read.kind()), ("fridge-hardware", kind));
        assert_eq!(read, constants);
        // Without the word they are of no program.
        let other = text.replace("#define HARDWARE_DIGEST 1\n", "");
        assert!(Constants::written("fridge", &other).is_err());
    }

    #[test]
    fn a_file_that_was_changed_or_is_of_another_program_is_refused_with_both_checksums() {
        let (constants, text) = text();
        let refused = |program, text: &str| Constants::written(program, text).expect_err("refused").to_string();

        let other = refused("lda", &text);
        assert!(other.starts_with(&format!("the constants have the checksum {:#x}", constants.checksum())), "{other}");
        assert!(other.contains("as constants of lda they would have 0x"), "{other}");
        assert!(refused("fridge", &text.replace("SLOTS = 0x1000", "SLOTS = 0x2000")).contains("of fridge they would"));
        let cut = &text[..text.rfind("const bit").expect("a constant")];
        assert_eq!(refused("fridge", cut), "the constant CHECKSUM is missing");
        assert_eq!(refused("fridge", "// A note.\nconst int A = 5;"), "line 2 is neither a constant nor a comment");
        let many = "const bit<8> A = 0x1;\n".repeat(200);
        assert_eq!(refused("fridge", &many), "more than 128 constants");
    }
}
