//! The functions of a file: its symbol tables (ELF of 64 bits, little endian), read piece by piece.
//!
//! The file belongs to a process that is not trusted. It is not mapped, since it may become shorter at any time; all
//! counts are bounded; and what does not fit together gives no names.

use core::mem::size_of;
use std::os::unix::fs::FileExt;

use object::LittleEndian as LE;
use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64, Sym64};
use object::pod::{Pod, from_bytes, slice_from_all_bytes};

use crate::names::readable;

/// Segments and sections of a file that are looked at.
const MAX_SEGMENTS: u64 = 128;
const MAX_SECTIONS: u64 = 4_096;
/// Symbols of a file: 192 MB of its table.
const MAX_SYMBOLS: u64 = 8_000_000;
/// Bytes that are read at once, a multiple of the size of a symbol.
const PIECE: u64 = 2_730 * size_of::<Sym64<LE>>() as u64;
/// Bytes of a name.
const LONGEST_NAME: usize = 1_024;
/// Symbols that overlap one another are looked at so often in all.
const MAX_MATCHES: u64 = 8_000_000;

/// The best symbol for an address so far.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    value: u64,
    name: u32,
}

/// For each of `offsets`, which are sorted, the name of the function that lies there in `file`.
#[must_use]
pub fn find(file: &impl FileExt, offsets: &[u64]) -> Vec<Option<String>> {
    let none = vec![None; offsets.len()];
    read(file, offsets).unwrap_or(none)
}

fn read(file: &impl FileExt, offsets: &[u64]) -> Option<Vec<Option<String>>> {
    let head = bytes(file, 0, size_of::<FileHeader64<LE>>() as u64)?;
    let (head, _) = from_bytes::<FileHeader64<LE>>(&head).ok()?;
    let ident = head.e_ident;
    let fits = ident.magic == elf::ELFMAG && ident.class == elf::ELFCLASS64 && ident.data == elf::ELFDATA2LSB;
    if !fits {
        return None;
    }
    let segments = u64::from(head.e_phnum.get(LE)).min(MAX_SEGMENTS);
    let segments = table::<ProgramHeader64<LE>, _>(file, head.e_phoff.get(LE), segments)?;
    let mut addresses: Vec<(u64, usize)> =
        offsets.iter().enumerate().filter_map(|(index, at)| Some((address(&segments, *at)?, index))).collect();
    addresses.sort_unstable();
    let sections = u64::from(head.e_shnum.get(LE)).min(MAX_SECTIONS);
    let sections = table::<SectionHeader64<LE>, _>(file, head.e_shoff.get(LE), sections)?;
    let mut names = vec![None; offsets.len()];
    // The dynamic table is a part of the other one, which is stripped from many programs.
    for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
        let Some(section) = sections.iter().find(|section| section.sh_type.get(LE) == kind) else { continue };
        let Some(strings) = sections.get(section.sh_link.get(LE) as usize) else { continue };
        let found = search(file, section, &addresses);
        for ((_, index), found) in addresses.iter().zip(found) {
            if let (None, Some(found)) = (&names[*index], found) {
                names[*index] = name(file, strings, found.name);
            }
        }
    }
    Some(names)
}

/// The address that the linker gave to the byte at `offset` of the file.
fn address(segments: &[ProgramHeader64<LE>], offset: u64) -> Option<u64> {
    let loaded = segments.iter().filter(|segment| segment.p_type.get(LE) == elf::PT_LOAD);
    let within = |segment: &&ProgramHeader64<LE>| {
        let from = segment.p_offset.get(LE);
        offset >= from && offset - from < segment.p_filesz.get(LE)
    };
    let segment = loaded.into_iter().find(within)?;
    (offset - segment.p_offset.get(LE)).checked_add(segment.p_vaddr.get(LE))
}

/// For each address, the function of the table `section` that begins last before it and reaches to it.
fn search(file: &impl FileExt, section: &SectionHeader64<LE>, addresses: &[(u64, usize)]) -> Vec<Option<Candidate>> {
    let mut found = vec![None; addresses.len()];
    let size = size_of::<Sym64<LE>>() as u64;
    let whole = (section.sh_size.get(LE) / size).min(MAX_SYMBOLS) * size;
    let (mut at, mut matches) = (0, 0);
    while at < whole && matches < MAX_MATCHES {
        let length = PIECE.min(whole - at);
        let Some(piece) = section.sh_offset.get(LE).checked_add(at).and_then(|from| bytes(file, from, length)) else {
            break;
        };
        let symbols = slice_from_all_bytes::<Sym64<LE>>(&piece).unwrap_or_default();
        for symbol in symbols.iter().filter(|symbol| is_function(symbol)) {
            matches += better(symbol, addresses, &mut found);
        }
        at += length;
    }
    found
}

fn is_function(symbol: &Sym64<LE>) -> bool {
    let kind = symbol.st_info & 0xf;
    (kind == elf::STT_FUNC || kind == elf::STT_GNU_IFUNC) && symbol.st_shndx.get(LE) != elf::SHN_UNDEF
}

/// Takes `symbol` for the addresses within it, unless one that begins later is known. Returns how many lie in it.
fn better(symbol: &Sym64<LE>, addresses: &[(u64, usize)], found: &mut [Option<Candidate>]) -> u64 {
    let (value, size) = (symbol.st_value.get(LE), symbol.st_size.get(LE));
    let from = addresses.partition_point(|(address, _)| *address < value);
    let until = addresses.partition_point(|(address, _)| *address < value.saturating_add(size));
    let Some(within) = found.get_mut(from..until) else { return 0 };
    for known in within.iter_mut().filter(|known| known.is_none_or(|known| known.value < value)) {
        *known = Some(Candidate { value, name: symbol.st_name.get(LE) });
    }
    within.len() as u64
}

/// The text at `at` of the table `strings`.
fn name(file: &impl FileExt, strings: &SectionHeader64<LE>, at: u32) -> Option<String> {
    let left = strings.sh_size.get(LE).checked_sub(u64::from(at))?;
    let from = strings.sh_offset.get(LE).checked_add(u64::from(at))?;
    let mut text = vec![0; LONGEST_NAME.min(usize::try_from(left).unwrap_or(usize::MAX))];
    // The table may be the last part of the file: less than asked for is no error.
    let read = file.read_at(&mut text, from).ok()?;
    let text = text.get(..read)?;
    let text = text.split(|byte| *byte == 0).next()?;
    (!text.is_empty()).then(|| readable(&String::from_utf8_lossy(text)))
}

/// `count` entries of a table at `at`.
fn table<T: Pod + Clone, F: FileExt>(file: &F, at: u64, count: u64) -> Option<Vec<T>> {
    let bytes = bytes(file, at, count * size_of::<T>() as u64)?;
    slice_from_all_bytes::<T>(&bytes).ok().map(<[T]>::to_vec)
}

fn bytes(file: &impl FileExt, at: u64, length: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    /// What the linker made of this test, with symbols.
    fn itself() -> File {
        File::open("/proc/self/exe").unwrap()
    }

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[inline(never)]
    extern "C" fn a_function_with_a_name(of: u64) -> u64 {
        std::hint::black_box(of + 1)
    }

    #[test]
    fn an_address_of_this_program_has_its_functions_name() {
        let maps = crate::mappings::parse(&std::fs::read_to_string("/proc/self/maps").unwrap());
        let address = a_function_with_a_name as *const () as u64;
        let mapping = &maps[crate::mappings::find(&maps, address).unwrap()];
        let offset = address - mapping.addresses.start + mapping.offset;

        let names = find(&itself(), &[0, offset, offset + 1, u64::MAX]);

        let expected = "profile::functions::tests::a_function_with_a_name";
        assert_eq!(names, [None, Some(expected.to_owned()), Some(expected.to_owned()), None]);
    }

    #[test]
    fn what_is_no_program_has_no_names() {
        for bytes in [&b""[..], b"#!/bin/sh\n", &[0x7f; 64], b"\x7fELF"] {
            assert_eq!(find(&file(bytes), &[0, 5]), [None, None]);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_damaged_program_is_read_without_a_panic(
            damage in proptest::collection::vec((0usize..4_096, any::<u8>()), 1..40),
            length in 64usize..200_000,
        ) {
            let mut program = std::fs::read("/proc/self/exe").unwrap();
            for (at, byte) in damage {
                program[at] = byte;
            }
            // Sections stand at the end of the file, and are beyond its end now.
            program.truncate(length);
            prop_assert_eq!(find(&file(&program), &[0, 4_096, 70_000]).len(), 3);
        }

        #[test]
        fn damaged_tables_are_read_without_a_panic(damage in proptest::collection::vec((0usize..64, any::<u8>()), 1..8)) {
            let mut program = tiny();
            for (at, byte) in damage {
                program[at] = byte;
            }
            prop_assert_eq!(find(&file(&program), &[0, 40, 1_000]).len(), 3);
        }
    }

    /// The smallest file with one function: a header, a segment, three sections, two symbols and a name.
    fn tiny() -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        let strings = file.len();
        file.extend_from_slice(b"\0burn\0\0\0");
        let symbols = file.len();
        file.extend_from_slice(&[0; 24]);
        let mut symbol = [0; 24];
        symbol[0] = 1;
        symbol[4] = elf::STT_FUNC;
        symbol[6] = 1;
        symbol[8] = 32;
        symbol[16] = 16;
        file.extend_from_slice(&symbol);
        let sections = file.len();
        for (kind, offset, size, link) in
            [(0, 0, 0, 0), (elf::SHT_SYMTAB, symbols, 48, 2), (elf::SHT_STRTAB, strings, 8, 0)]
        {
            let mut section = [0; 64];
            section[4..8].copy_from_slice(&kind.to_le_bytes());
            section[24..32].copy_from_slice(&(offset as u64).to_le_bytes());
            section[32..40].copy_from_slice(&(size as u64).to_le_bytes());
            section[40..44].copy_from_slice(&u32::to_le_bytes(link));
            file.extend_from_slice(&section);
        }
        file[32] = 64;
        file[40..48].copy_from_slice(&(sections as u64).to_le_bytes());
        (file[54], file[56], file[58], file[60]) = (56, 1, 64, 3);
        // The segment: everything, at the addresses of its offsets.
        file[64] = 1;
        let length = file.len() as u64;
        file[64 + 32..64 + 40].copy_from_slice(&length.to_le_bytes());
        file
    }

    #[test]
    fn a_function_reaches_from_its_begin_to_its_end() {
        let found = find(&file(&tiny()), &[31, 32, 47, 48]);
        assert_eq!(found, [None, Some("burn".to_owned()), Some("burn".to_owned()), None]);
    }
}
