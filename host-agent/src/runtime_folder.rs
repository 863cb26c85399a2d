//! The directory of the agent's sockets, which goes with the agent if the agent made it.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A directory that there is while this lives. One that was there before stays, as that of a systemd unit, and so does
/// one with files of others.
#[derive(Debug)]
pub(crate) struct RuntimeFolder {
    /// `None`: it was there before.
    made: Option<PathBuf>,
}

impl RuntimeFolder {
    /// The directory `path`, which is made with those above it if there is none.
    ///
    /// # Errors
    ///
    /// The error of the operating system if it cannot be made.
    pub(crate) fn make(path: &Path) -> io::Result<Self> {
        let made = (!path.is_dir()).then(|| path.to_owned());
        std::fs::create_dir_all(path)?;
        Ok(Self { made })
    }
}

impl Drop for RuntimeFolder {
    fn drop(&mut self) {
        let Some(path) = &self.made else { return };
        match std::fs::remove_dir(path) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) => {}
            Err(error) => tracing::warn!(path = %path.display(), %error, "cannot remove the runtime directory"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_made_goes_if_it_is_empty_and_another_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (made, used, there) =
            (folder.path().join("a/made"), folder.path().join("used"), folder.path().join("there"));
        std::fs::create_dir(&there).unwrap();
        let kept = [&made, &used, &there].map(|path| RuntimeFolder::make(path).unwrap());
        assert!(made.is_dir());
        std::fs::write(used.join("file"), "").unwrap();

        drop(kept);

        assert_eq!((made.exists(), used.exists(), there.exists()), (false, true, true));
        let (file, again) = (used.join("file"), RuntimeFolder::make(&made).unwrap());
        std::fs::remove_dir(&made).unwrap();
        drop(again);
        assert_eq!(RuntimeFolder::make(&file.join("b")).unwrap_err().kind(), ErrorKind::NotADirectory);
    }
}
