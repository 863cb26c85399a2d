//! Where books are between two runs: one file, replaced as a whole.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use hooks::time::UnixNanos;

use super::stored::{MAX_BYTES, MOST_RUNS, Run, Stored, StoredError};

const FILE: &str = "receipt.books";
/// What could not be read is moved here; the last one only is kept.
const SET_ASIDE: &str = "receipt.set-aside";
const DRAFT: &str = ".receipt.books.new";

/// The folder of the file.
#[derive(Clone, Debug)]
pub(super) struct Store(PathBuf);

/// What was found at the start.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) stored: Stored,
    /// There was a file that could not be read: it is set aside.
    pub(super) set_aside: bool,
}

/// Why books cannot be read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Stored(#[from] StoredError),
}

impl Store {
    /// In `folder`, which is made if it is not there.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self(folder.to_owned()))
    }

    /// What a predecessor wrote; empty books if there was none. What cannot be read is said and set aside: books are not worth an agent that does not start.
    pub(super) fn read(&self) -> Found {
        let path = self.0.join(FILE);
        let error = match read(&path) {
            Ok(stored) => return Found { stored, set_aside: false },
            Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Found { stored: Stored::default(), set_aside: false };
            }
            Err(error) => error,
        };
        let aside = self.0.join(SET_ASIDE);
        tracing::warn!(path = %path.display(), %error, aside = %aside.display(), "the receipt's books cannot be read: set aside, and begun anew");
        if let Err(error) = fs::rename(&path, &aside) {
            tracing::warn!(path = %path.display(), %error, "it could not be set aside, and will be replaced");
        }
        Found { stored: Stored::default(), set_aside: true }
    }

    /// Replaces the file, so that whoever reads it finds the one or the other, also after the power has failed.
    pub(super) fn write(&self, stored: &Stored) -> io::Result<()> {
        let draft = self.0.join(DRAFT);
        let mut file = File::create(&draft)?;
        file.write_all(&stored.encode())?;
        file.sync_all()?;
        fs::rename(&draft, self.0.join(FILE))?;
        File::open(&self.0)?.sync_all()
    }
}

fn read(path: &Path) -> Result<Stored, ReadError> {
    let mut bytes = Vec::new();
    // A byte more than is read, so that it is refused as what it is.
    File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Stored::decode(&bytes)?)
}

/// The runs of `before` and one that begins now.
pub(super) fn with_run(mut before: Vec<Run>, began: UnixNanos) -> Vec<Run> {
    if before.len() >= MOST_RUNS {
        before.drain(..=before.len() - MOST_RUNS);
    }
    before.push(Run { began: began.0, written: began.0, ended: false });
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(since: u64) -> Stored {
        Stored { since: UnixNanos(since), ..Stored::default() }
    }

    #[test]
    fn what_was_written_last_is_found_and_a_draft_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("new")).unwrap();
        assert_eq!(store.read().stored, Stored::default());

        store.write(&stored(1)).unwrap();
        store.write(&stored(2)).unwrap();
        // What a kill in the middle of writing leaves.
        fs::write(folder.path().join("new").join(DRAFT), b"uview rec").unwrap();

        let found = store.read();
        assert_eq!((found.stored, found.set_aside), (stored(2), false));
    }

    #[test]
    fn what_cannot_be_read_is_set_aside_and_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        store.write(&stored(1)).unwrap();
        let whole = fs::read(folder.path().join(FILE)).unwrap();
        fs::write(folder.path().join(FILE), &whole[..whole.len() / 2]).unwrap();

        let found = store.read();

        assert_eq!((found.stored, found.set_aside), (Stored::default(), true));
        assert_eq!(fs::read(folder.path().join(SET_ASIDE)).unwrap(), whole[..whole.len() / 2]);
        assert!(!store.read().set_aside, "there is none any more");
        store.write(&stored(3)).unwrap();
        assert_eq!(store.read().stored, stored(3));
    }

    #[test]
    fn so_many_runs_are_remembered() {
        let mut runs = Vec::new();
        for began in 1..=100 {
            runs = with_run(runs, UnixNanos(began));
        }

        assert_eq!((runs.len(), runs[0].began, runs[63].began), (MOST_RUNS, 37, 100));
    }
}
