//! Unix sockets whose file is removed on exit, and taken over from a run that was killed.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Why a Unix socket cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another agent listens on it.
    #[error("another agent listens on {}: stop it, or choose another path", .0.display())]
    InUse(PathBuf),
    /// The path exists and is not a socket.
    #[error("{} is not a socket: remove it, or choose another path", .0.display())]
    NoSocket(PathBuf),
    /// The operating system refused.
    #[error("cannot listen on {}", .path.display())]
    System {
        /// The socket's path.
        path: PathBuf,
        /// The cause, from the operating system.
        #[source]
        cause: io::Error,
    },
}

/// The file of a listening socket. Removed on drop, unless the path is another file by then.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    file: (u64, u64),
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|data| (data.dev(), data.ino()))
}

impl SocketFile {
    /// Listens on `path` with the file mode `mode`. Takes over the socket of a process that was killed, not that of a
    /// living one.
    ///
    /// # Errors
    ///
    /// [`ListenError`] if the path is in use, or the operating system refuses.
    pub fn bind(path: &Path, mode: u32) -> Result<(UnixListener, Self), ListenError> {
        let failed = |cause| ListenError::System { path: path.to_owned(), cause };
        if let Ok(data) = std::fs::symlink_metadata(path) {
            if !data.file_type().is_socket() {
                return Err(ListenError::NoSocket(path.to_owned()));
            }
            if UnixStream::connect(path).is_ok() {
                return Err(ListenError::InUse(path.to_owned()));
            }
            tracing::info!(path = %path.display(), "replacing the socket of an earlier run");
            std::fs::remove_file(path).map_err(failed)?;
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        let listening = Self { path: path.to_owned(), file: identity(path).map_err(failed)? };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok((listener, listening))
    }

    /// The socket's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
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

        let (_listener, listening) = SocketFile::bind(&path, 0o666).unwrap();

        assert!(matches!(SocketFile::bind(&path, 0o666), Err(ListenError::InUse(_))));
        assert!(UnixStream::connect(&path).is_ok());
        drop(listening);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        std::fs::write(&path, "data").unwrap();

        assert!(matches!(SocketFile::bind(&path, 0o600), Err(ListenError::NoSocket(_))));

        assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
    }

    #[test]
    fn a_successors_socket_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let (_listener, listening) = SocketFile::bind(&path, 0o600).unwrap();
        let other = folder.path().join("b.sock");
        let _successor = UnixListener::bind(&other).unwrap();
        std::fs::rename(&other, &path).unwrap();

        drop(listening);

        assert!(path.exists());
    }
}
