//! Whether a library can be preloaded into a program: what its file says. Pure.

/// The start of a file is enough: headers come first.
pub(super) const HEAD_BYTES: usize = 64 << 10;

const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
/// The kind of a program header that names the dynamic loader.
const INTERPRETER: u32 = 3;

/// What the beginning of a program's file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProgramFile {
    /// It is started by a dynamic loader, which preloads libraries.
    Dynamic {
        /// The kind of processor, as ELF numbers them.
        machine: u16,
        /// The path of the loader.
        loader: String,
    },
    /// It is linked statically: no loader, nothing is preloaded.
    Static,
    /// It is a script, which another program runs.
    Script {
        /// The path of that program.
        interpreter: String,
    },
    /// It is no program that this knows: not ELF, or not of 64 bits and little-endian.
    Other,
}

fn number<const N: usize>(head: &[u8], at: usize) -> Option<[u8; N]> {
    head.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn word(head: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(number(head, at)?)).ok()
}

impl ProgramFile {
    /// What the first bytes `head` of a file say.
    pub(super) fn new(head: &[u8]) -> Self {
        if let Some(line) = head.strip_prefix(b"#!") {
            let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii_start();
            let path = line.split(|byte| *byte == b' ' || *byte == b'\t').next().unwrap_or_default();
            return Self::Script { interpreter: String::from_utf8_lossy(path).into_owned() };
        }
        Self::elf(head).unwrap_or(Self::Other)
    }

    fn elf(head: &[u8]) -> Option<Self> {
        let identity = head.strip_prefix(b"\x7fELF")?;
        if identity.get(..2)? != [CLASS_64, LITTLE_ENDIAN] {
            return None;
        }
        let machine = Self::machine(head)?;
        let (headers, each, count) = (word(head, 32)?, number(head, 54)?, number(head, 56)?);
        for index in 0..usize::from(u16::from_le_bytes(count)) {
            let at = headers.checked_add(index.checked_mul(u16::from_le_bytes(each).into())?)?;
            if u32::from_le_bytes(number(head, at)?) == INTERPRETER {
                let (start, length) = (word(head, at.checked_add(8)?)?, word(head, at.checked_add(32)?)?);
                let path = head.get(start..start.checked_add(length)?)?;
                let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
                return Some(Self::Dynamic { machine, loader: String::from_utf8_lossy(path).into_owned() });
            }
        }
        Some(Self::Static)
    }

    /// The kind of processor of an ELF file, also of a library.
    pub(super) fn machine(head: &[u8]) -> Option<u16> {
        head.starts_with(b"\x7fELF").then_some(())?;
        number(head, 18).map(u16::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with a program header of kind `kind`, at whose place is `loader`.
    fn elf(kind: u32, loader: &str) -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18..20].copy_from_slice(&62_u16.to_le_bytes());
        file[32..40].copy_from_slice(&64_u64.to_le_bytes());
        file[54..56].copy_from_slice(&56_u16.to_le_bytes());
        file[56..58].copy_from_slice(&1_u16.to_le_bytes());
        file[64..68].copy_from_slice(&kind.to_le_bytes());
        file[72..80].copy_from_slice(&120_u64.to_le_bytes());
        file[96..104].copy_from_slice(&(loader.len() as u64 + 1).to_le_bytes());
        file.extend(loader.as_bytes());
        file.push(0);
        file
    }

    #[test]
    fn a_program_with_a_loader_is_dynamic_and_one_without_is_static() {
        let loader = "/lib64/ld-linux-x86-64.so.2";

        let dynamic = ProgramFile::Dynamic { machine: 62, loader: loader.to_owned() };
        assert_eq!(ProgramFile::new(&elf(INTERPRETER, loader)), dynamic);
        assert_eq!(ProgramFile::new(&elf(1, loader)), ProgramFile::Static);
    }

    #[test]
    fn a_script_names_its_interpreter_and_anything_else_is_no_program() {
        let script = |interpreter: &str| ProgramFile::Script { interpreter: interpreter.to_owned() };

        assert_eq!(ProgramFile::new(b"#! /usr/bin/env python3\nprint()"), script("/usr/bin/env"));
        assert_eq!(ProgramFile::new(b"#!/bin/sh\n"), script("/bin/sh"));
        assert_eq!(ProgramFile::new(b"hello"), ProgramFile::Other);
        assert_eq!(ProgramFile::new(b"\x7fELF\x01\x01"), ProgramFile::Other);
    }

    #[test]
    fn a_file_that_ends_early_or_lies_is_no_program() {
        let file = elf(INTERPRETER, "/lib/ld.so");
        for length in 0..file.len() {
            let _ = ProgramFile::new(&file[..length]);
        }
        for at in 0..file.len() {
            let mut lies = file.clone();
            lies[at] = 0xff;
            let _ = ProgramFile::new(&lies);
        }
    }
}
