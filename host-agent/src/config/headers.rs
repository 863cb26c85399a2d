//! Headers of requests to receivers: given in the configuration, or each in a file of its own, such as a mounted
//! Secret.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use agent_runtime::ConfigError;

/// Most bytes of a file with a header's value.
const MAX_BYTES: u64 = 16 << 10;

/// Why the headers cannot be used.
#[derive(Debug, thiserror::Error)]
enum HeaderFileError {
    #[error("the header {0:?} has a value already: capitals make no difference in names of headers")]
    Twice(String),
    #[error("cannot read the value of the header {name:?} in {}", .path.display())]
    Read {
        name: String,
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("{} has no value of the header {name:?}: one line of at most {MAX_BYTES} bytes is needed", .path.display())]
    Line { name: String, path: PathBuf },
}

/// Headers of requests to one receiver, as the configuration has them, and where they go.
#[derive(Clone, Copy)]
pub(crate) struct HeaderSource<'a> {
    /// URL of the receiver.
    pub(crate) url: &'a str,
    /// Headers with their values.
    pub(crate) given: &'a BTreeMap<String, String>,
    /// Files with the values of more of them.
    pub(crate) files: &'a BTreeMap<String, PathBuf>,
}

impl HeaderSource<'_> {
    /// All headers with their values; those in files as these are now, without the end of the line.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] about `key` if a file cannot be read, is not one line, or a header has two values.
    pub(crate) fn values(self, key: &'static str) -> Result<Vec<(String, String)>, ConfigError> {
        with_files(key, self.given, self.files)
    }
}

fn with_files(
    key: &'static str,
    given: &BTreeMap<String, String>,
    files: &BTreeMap<String, PathBuf>,
) -> Result<Vec<(String, String)>, ConfigError> {
    let mut all: Vec<_> = given.clone().into_iter().collect();
    for (name, path) in files {
        let is_known = all.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let value = if is_known { Err(HeaderFileError::Twice(name.clone())) } else { value_in(path, name) };
        all.push((name.clone(), value.map_err(|cause| ConfigError::value(key, cause))?));
    }
    Ok(all)
}

/// The only line of a file.
fn value_in(path: &Path, name: &str) -> Result<String, HeaderFileError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
    let bytes = read.map_err(|cause| HeaderFileError::Read { name: name.to_owned(), path: path.to_owned(), cause })?;
    let value = text.trim_end_matches(['\r', '\n']);
    let fits = u64::try_from(bytes).is_ok_and(|bytes| bytes <= MAX_BYTES);
    if fits && !value.is_empty() && !value.contains(['\r', '\n']) {
        return Ok(value.to_owned());
    }
    Err(HeaderFileError::Line { name: name.to_owned(), path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use agent_runtime::chain;

    use super::*;

    fn files(pairs: &[(&str, &Path)]) -> BTreeMap<String, PathBuf> {
        pairs.iter().map(|(name, path)| ((*name).to_owned(), path.to_path_buf())).collect()
    }

    #[test]
    fn a_value_is_the_only_line_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("authorization");
        let given = BTreeMap::from([("x-scope-orgid".to_owned(), "shop".to_owned())]);
        let all = || with_files("key", &given, &files(&[("authorization", path.as_path())]));

        fs::write(&path, "Bearer abc \r\n").unwrap();
        let expected = [("x-scope-orgid", "shop"), ("authorization", "Bearer abc ")];
        assert_eq!(all().unwrap(), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));

        let long = "x".repeat(17 << 10);
        for text in ["", "\n", "one\ntwo\n", long.as_str()] {
            fs::write(&path, text).unwrap();
            let error = chain(&all().unwrap_err());
            assert!(error.contains("one line of at most 16384 bytes") && error.contains("authorization"), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_and_a_second_value_are_named_without_any_value() {
        let given = BTreeMap::from([("Authorization".to_owned(), "s3cret".to_owned())]);

        let missing = with_files("key", &given, &files(&[("x-key", Path::new("/nowhere/x-key"))])).unwrap_err();
        let twice = with_files("key", &given, &files(&[("authorization", Path::new("/nowhere"))])).unwrap_err();

        let (missing, twice) = (chain(&missing), chain(&twice));
        assert!(missing.contains("/nowhere/x-key") && missing.contains("No such file"), "{missing}");
        assert!(twice.contains("\"authorization\" has a value already"), "{twice}");
        assert!(!missing.contains("s3cret") && !twice.contains("s3cret"));
    }
}
