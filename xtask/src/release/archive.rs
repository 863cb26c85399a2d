//! Archives whose bytes depend on nothing but their content: sorted, with one time, one owner and two modes.

use std::io::Write;

use anyhow::Result;
use flate2::{Compression, GzBuilder};

/// A file of an archive.
#[derive(Debug)]
pub struct Entry {
    /// Its path within the archive's folder.
    pub path: String,
    /// Its whole content.
    pub bytes: Vec<u8>,
    /// Whether it is a program or a shared library.
    pub executable: bool,
}

impl Entry {
    /// A file that is no program.
    pub fn text(path: &str, bytes: Vec<u8>) -> Self {
        Self { path: path.to_owned(), bytes, executable: false }
    }

    /// A program or a shared library.
    pub fn program(path: &str, bytes: Vec<u8>) -> Self {
        Self { path: path.to_owned(), bytes, executable: true }
    }
}

/// A `.tar.gz` with `entries` in the folder `folder`, all of the time `seconds` since 1970 and owned by root.
///
/// # Errors
///
/// A path that is too long for the format.
pub fn pack(folder: &str, entries: Vec<Entry>, seconds: u64) -> Result<Vec<u8>> {
    // The header of gzip has a time and the name of a system, too.
    let gzip = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::best());
    Ok(write(&format!("{folder}/"), entries, seconds, gzip)?.finish()?)
}

/// The same without compression, each path behind `prefix`.
///
/// # Errors
///
/// A path that is too long for the format.
pub fn plain(prefix: &str, entries: Vec<Entry>, seconds: u64) -> Result<Vec<u8>> {
    write(prefix, entries, seconds, Vec::new())
}

fn write<W: Write>(prefix: &str, mut entries: Vec<Entry>, seconds: u64, into: W) -> Result<W> {
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let mut archive = tar::Builder::new(into);
    for entry in entries {
        let mut header = tar::Header::new_ustar();
        header.set_size(entry.bytes.len() as u64);
        header.set_mode(if entry.executable { 0o755 } else { 0o644 });
        header.set_mtime(seconds);
        header.set_uid(0);
        header.set_gid(0);
        header.set_username("root")?;
        header.set_groupname("root")?;
        header.set_entry_type(tar::EntryType::Regular);
        archive.append_data(&mut header, format!("{prefix}{}", entry.path), entry.bytes.as_slice())?;
    }
    Ok(archive.into_inner()?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    fn entry(path: &str, executable: bool) -> Entry {
        Entry { path: path.to_owned(), bytes: path.as_bytes().to_vec(), executable }
    }

    #[test]
    fn the_same_files_in_any_order_are_the_same_bytes() {
        let one =
            pack("uview", vec![entry("b", false), entry("bin/a", true), entry("a", false)], 1_700_000_000).unwrap();
        let two =
            pack("uview", vec![entry("bin/a", true), entry("a", false), entry("b", false)], 1_700_000_000).unwrap();

        assert_eq!(one, two);
        assert_ne!(one, pack("uview", vec![entry("b", false)], 1_700_000_000).unwrap());
    }

    #[test]
    fn what_was_packed_comes_out_with_its_mode_and_nobodys_name() {
        let packed = pack("uview", vec![entry("bin/a", true), entry("b", false)], 1_700_000_000).unwrap();

        let mut modes = BTreeMap::new();
        for file in tar::Archive::new(GzDecoder::new(packed.as_slice())).entries().unwrap() {
            let mut file = file.unwrap();
            let header = file.header();
            let (mode, time, owner) = (header.mode().unwrap(), header.mtime().unwrap(), header.uid().unwrap());
            let path = file.path().unwrap().display().to_string();
            let mut content = String::new();
            file.read_to_string(&mut content).unwrap();
            assert_eq!((time, owner, format!("uview/{content}")), (1_700_000_000, 0, path.clone()));
            modes.insert(path, mode);
        }
        assert_eq!(modes, BTreeMap::from([("uview/b".to_owned(), 0o644), ("uview/bin/a".to_owned(), 0o755)]));
    }
}
