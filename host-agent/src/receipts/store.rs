//! The ledger's file, replaced atomically.

use std::io;
use std::path::Path;

use wire::time::UnixNanos;

use super::file_format::{MAX_BYTES, MAX_RUNS, Run, StoredReceipt, StoredReceiptError};
use crate::stored_file::StateFolder;

const FILE: &str = "receipt.ledger";
/// Name for a file that could not be read. Only the latest is kept.
const SET_ASIDE: &str = "receipt.set-aside";
/// The agent's user writes, its group reads.
const FILE_MODE: u32 = 0o640;

/// The ledger's directory.
#[derive(Clone, Debug)]
pub(super) struct Store(StateFolder);

/// What was found at the start.
#[derive(Debug, Default)]
pub(super) struct LoadedReceipt {
    pub(super) stored: StoredReceipt,
    /// Whether an unreadable file was moved aside.
    pub(super) set_aside: bool,
}

/// Why the ledger cannot be read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    StoredReceipt(#[from] StoredReceiptError),
}

impl Store {
    /// Opens `folder`, and creates it if needed.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        // Names of services and what they cost are for operators, not for everybody.
        Ok(Self(StateFolder::open(folder, 0o750, FILE_MODE)?))
    }

    /// The stored ledger; empty if there is none. An unreadable file is logged and moved aside, and does not stop the
    /// agent.
    pub(super) fn read(&self) -> LoadedReceipt {
        match self.decode() {
            Ok(stored) => LoadedReceipt { stored, set_aside: false },
            Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => LoadedReceipt::default(),
            Err(error) => {
                self.0.set_aside(FILE, SET_ASIDE, &error);
                LoadedReceipt { stored: StoredReceipt::default(), set_aside: true }
            }
        }
    }

    fn decode(&self) -> Result<StoredReceipt, ReadError> {
        Ok(StoredReceipt::decode(&self.0.read(FILE, MAX_BYTES as u64)?)?)
    }

    /// Replaces the file atomically, also across a power failure (fsync of file and directory).
    pub(super) fn write(&self, stored: &StoredReceipt) -> io::Result<()> {
        self.0.replace(FILE, &stored.encode())
    }
}

/// The runs of `before`, and one that begins now.
pub(super) fn with_run(mut before: Vec<Run>, began: UnixNanos) -> Vec<Run> {
    if before.len() >= MAX_RUNS {
        before.drain(..=before.len() - MAX_RUNS);
    }
    before.push(Run { began: began.0, written: began.0, ended: false });
    before
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::stored_file::draft_of;

    fn stored(since: u64) -> StoredReceipt {
        StoredReceipt { since: UnixNanos(since), ..StoredReceipt::default() }
    }

    #[test]
    fn what_was_written_last_is_found_and_a_draft_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("new")).unwrap();
        assert_eq!(store.read().stored, StoredReceipt::default());

        store.write(&stored(1)).unwrap();
        store.write(&stored(2)).unwrap();
        // A kill during a write leaves this.
        fs::write(folder.path().join("new").join(draft_of(FILE)), b"uview rec").unwrap();

        let found = store.read();
        assert_eq!((found.stored, found.set_aside), (stored(2), false));
    }

    #[test]
    fn only_the_user_and_the_group_of_the_agent_can_read_the_ledger() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("new");
        let store = Store::open(&dir).unwrap();
        // Left by an earlier release.
        fs::write(dir.join(draft_of(FILE)), b"").unwrap();
        fs::set_permissions(dir.join(draft_of(FILE)), fs::Permissions::from_mode(0o644)).unwrap();

        store.write(&stored(1)).unwrap();

        let others = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o027;
        assert_eq!((others(&dir), others(&dir.join(FILE))), (0, 0));
    }

    #[test]
    fn what_cannot_be_read_is_set_aside_and_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        store.write(&stored(1)).unwrap();
        let whole = fs::read(folder.path().join(FILE)).unwrap();
        fs::write(folder.path().join(FILE), &whole[..whole.len() / 2]).unwrap();

        let found = store.read();

        assert_eq!((found.stored, found.set_aside), (StoredReceipt::default(), true));
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

        assert_eq!((runs.len(), runs[0].began, runs[63].began), (MAX_RUNS, 37, 100));
    }
}
