//! Unix sockets that outlive neither the agent nor a killed predecessor.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Why a socket cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another agent is there and answers.
    #[error("another host agent listens on {}: stop it, or choose another runtime_dir", .0.display())]
    Taken(PathBuf),
    /// Something else has the name.
    #[error("{} is no socket: remove it, or choose another runtime_dir", .0.display())]
    NoSocket(PathBuf),
    /// The system refused.
    #[error("cannot listen on {}", .path.display())]
    System {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
}

/// A socket of this agent. Its file is removed when it is dropped, unless somebody else has the name by then.
#[derive(Debug)]
pub struct Listening {
    path: PathBuf,
    file: (u64, u64),
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|data| (data.dev(), data.ino()))
}

impl Listening {
    /// Listens on `path` with the file mode `mode`. The socket of a predecessor that was killed is taken over; that of one that lives is not.
    ///
    /// # Errors
    ///
    /// [`ListenError`].
    pub fn bind(path: &Path, mode: u32) -> Result<(UnixListener, Self), ListenError> {
        let failed = |cause| ListenError::System { path: path.to_owned(), cause };
        if let Ok(data) = std::fs::symlink_metadata(path) {
            if !data.file_type().is_socket() {
                return Err(ListenError::NoSocket(path.to_owned()));
            }
            if UnixStream::connect(path).is_ok() {
                return Err(ListenError::Taken(path.to_owned()));
            }
            tracing::info!(path = %path.display(), "taking over the socket of a predecessor");
            std::fs::remove_file(path).map_err(failed)?;
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        let listening = Self { path: path.to_owned(), file: identity(path).map_err(failed)? };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok((listener, listening))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "a socket was left behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_a_killed_predecessor_is_taken_over_and_that_of_a_living_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "left behind as by a killed agent");

        let (_listener, listening) = Listening::bind(&path, 0o666).unwrap();

        assert!(matches!(Listening::bind(&path, 0o666), Err(ListenError::Taken(_))));
        assert!(UnixStream::connect(&path).is_ok());
        drop(listening);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        std::fs::write(&path, "data").unwrap();

        assert!(matches!(Listening::bind(&path, 0o600), Err(ListenError::NoSocket(_))));

        assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
    }

    #[test]
    fn a_successors_socket_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let (_listener, listening) = Listening::bind(&path, 0o600).unwrap();
        let other = folder.path().join("b.sock");
        let _successor = UnixListener::bind(&other).unwrap();
        std::fs::rename(&other, &path).unwrap();

        drop(listening);

        assert!(path.exists());
    }
}
