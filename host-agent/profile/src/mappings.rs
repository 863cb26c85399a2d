//! What of a process's memory is code, and of which file: the text of /proc/PID/maps.

use core::ops::Range;

/// Mappings of code of one process that are looked at. A program with more has addresses without names.
pub(crate) const MAX_MAPPINGS: usize = 1_024;

/// A part of memory that can be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Addresses in the process.
    pub(crate) addresses: Range<u64>,
    /// Where the first address lies in the file.
    pub(crate) offset: u64,
    /// The file's inode; 0: there is no file.
    pub(crate) inode: u64,
    /// The file as the process sees it; empty: there is none. `[vdso]` and the like are no files.
    pub(crate) path: String,
}

impl Mapping {
    /// Whether it is of a file.
    pub(crate) fn is_of_file(&self) -> bool {
        self.inode != 0 && self.path.starts_with('/')
    }

    /// The last part of the path, or what stands for it.
    pub(crate) fn file_name(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let name = name.strip_suffix(" (deleted)").unwrap_or(name);
        if name.is_empty() { "anonymous" } else { name }
    }
}

/// All mappings of code in `text`, sorted by address, [`MAX_MAPPINGS`] at most. Lines that cannot be read are left out.
pub(crate) fn parse(text: &str) -> Vec<Mapping> {
    let mut all: Vec<Mapping> = text.lines().filter_map(line).take(MAX_MAPPINGS).collect();
    all.sort_by_key(|mapping| mapping.addresses.start);
    all
}

/// `55d0c0a00000-55d0c0a21000 r-xp 00002000 08:02 173521  /usr/bin/dbus-daemon` (proc(5)).
fn line(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (from, to) = fields.next()?.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let addresses = number(from)?..number(to)?;
    let is_code = fields.next()?.as_bytes().get(2) == Some(&b'x');
    let offset = number(fields.next()?)?;
    let inode = fields.nth(1)?.parse().ok()?;
    let path = fields.next().unwrap_or_default().trim_start().to_owned();
    (is_code && addresses.start < addresses.end).then_some(Mapping { addresses, offset, inode, path })
}

/// The mapping with `address`.
pub(crate) fn find(mappings: &[Mapping], address: u64) -> Option<usize> {
    let after = mappings.partition_point(|mapping| mapping.addresses.start <= address);
    let at = after.checked_sub(1)?;
    mappings[at].addresses.contains(&address).then_some(at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "\
00400000-00452000 r-xp 00002000 08:02 173521      /usr/bin/with space (deleted)
00651000-00652000 r--p 00051000 08:02 173521      /usr/bin/dbus-daemon
7f0000000000-7f0000010000 rwxp 00000000 00:00 0 
7ffe00000000-7ffe00002000 r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn code_is_found_with_its_file_and_its_place_in_it() {
        let mappings = parse(TEXT);

        let found = &mappings[find(&mappings, 0x40_1000).unwrap()];
        assert_eq!((found.offset, found.inode, found.file_name()), (0x2000, 173_521, "with space"));
        assert!(found.is_of_file());
        assert_eq!(find(&mappings, 0x65_1000), None, "that is no code");
        assert_eq!(find(&mappings, 0x45_2000), None, "the end is outside");
        let [_, anonymous, vdso] = &mappings[..] else { panic!("{mappings:?}") };
        assert_eq!((anonymous.file_name(), vdso.file_name()), ("anonymous", "[vdso]"));
        assert!(!anonymous.is_of_file() && !vdso.is_of_file());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "[0-9a-f \\-rxp:/\n]{0,400}", address: u64) {
            let mappings = parse(&text);
            prop_assert!(find(&mappings, address).is_none_or(|at| mappings[at].addresses.contains(&address)));
        }
    }
}
