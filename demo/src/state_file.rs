//! Files by which a child process reports that it is ready, or its results. They are written atomically.

use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Writes `value` to `path` as JSON, atomically.
pub(crate) fn write<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let unfinished = path.with_extension("unfinished");
    fs::write(&unfinished, serde_json::to_vec(value)?)?;
    fs::rename(&unfinished, path)
}

/// The content of `path`, or `None` as long as there is none, or one of another type.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}
