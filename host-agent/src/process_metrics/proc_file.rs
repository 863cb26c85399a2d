//! Open files of /proc.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use sources::process::FromText;

/// Buffer for one file of /proc.
const FILE_BYTES: usize = 2048;

/// Reads and parses a file of /proc. `None` if the process or thread has ended, or access is denied.
pub fn read<T: FromText>(file: &File) -> Option<T> {
    let mut buffer = [0; FILE_BYTES];
    let got = file.read_at(&mut buffer, 0).ok()?;
    T::from_text(buffer.get(..got)?)
}
