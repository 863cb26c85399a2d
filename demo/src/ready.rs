//! Files by which a child process says that it is ready, or what it has to report: written whole or not at all.

use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Writes `value` to `path` as JSON; a reader sees all of it or nothing.
pub(crate) fn write<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let unfinished = path.with_extension("unfinished");
    fs::write(&unfinished, serde_json::to_vec(value)?)?;
    fs::rename(&unfinished, path)
}

/// What is in `path`, or `None` as long as nothing (or something else) is there.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}
