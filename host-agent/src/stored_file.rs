//! Files of state in a directory: each is replaced atomically, begins with a version and a checksum, and is moved aside
//! if it cannot be read.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The first line of a file: what it is, its version, and CRC-32 and length in bytes of the body that follows.
///
/// ```text
/// uview receipt 1 5f3a90c1 2481
/// ```
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileHeader {
    pub(crate) magic: &'static str,
    pub(crate) version: u32,
}

/// Why the header of a file, or what follows it, is not as it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileHeaderError {
    /// The header line does not match.
    #[error("it does not begin with \"{0}\": it is another file")]
    Magic(&'static str),
    /// Written by another version.
    #[error("it has version {found}, this agent reads {known}")]
    Version {
        /// The version of the file.
        found: u32,
        /// The only version that this agent reads.
        known: u32,
    },
    /// Truncated or corrupted.
    #[error("{0}: it is truncated or corrupted")]
    Torn(String),
}

impl FileHeader {
    /// The bytes of a file with this body.
    pub(crate) fn seal(self, body: &[u8]) -> Vec<u8> {
        let Self { magic, version } = self;
        let head = format!("{magic} {version} {:08x} {}\n", crc32fast::hash(body), body.len());
        [head.as_bytes(), body].concat()
    }

    /// The body of a file, if the header matches it.
    pub(crate) fn unseal(self, bytes: &[u8]) -> Result<&[u8], FileHeaderError> {
        let Self { magic, version: known } = self;
        let other = || FileHeaderError::Magic(magic);
        let end = bytes.iter().take(128).position(|byte| *byte == b'\n').ok_or_else(other)?;
        let (head, body) = (&bytes[..end], &bytes[end + 1..]);
        let rest = head.strip_prefix(magic.as_bytes()).and_then(|rest| core::str::from_utf8(rest).ok());
        let mut words = rest.ok_or_else(other)?.split_ascii_whitespace();
        let found: u32 = words.next().and_then(|word| word.parse().ok()).ok_or_else(other)?;
        if found != known {
            return Err(FileHeaderError::Version { found, known });
        }
        let crc = words.next().and_then(|word| u32::from_str_radix(word, 16).ok()).ok_or_else(other)?;
        let length: usize = words.next().and_then(|word| word.parse().ok()).ok_or_else(other)?;
        if body.len() != length {
            let found = body.len();
            return Err(FileHeaderError::Torn(format!("{found} bytes follow the header, which announces {length}")));
        }
        let found = crc32fast::hash(body);
        if found != crc {
            return Err(FileHeaderError::Torn(format!("its checksum is {found:08x}, the header has {crc:08x}")));
        }
        Ok(body)
    }
}

/// A directory with files of state, and their mode. Only this agent writes there.
#[derive(Clone, Debug)]
pub(crate) struct StateFolder {
    path: PathBuf,
    file_mode: u32,
}

impl StateFolder {
    /// Opens the directory at `path`, and creates it with `mode` if needed. Its files get `file_mode`.
    pub(crate) fn open(path: &Path, mode: u32, file_mode: u32) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(mode).create(path)?;
        Ok(Self { path: path.to_owned(), file_mode })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file's bytes, at most one more than `limit`, so that longer files can be refused.
    pub(crate) fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.path.join(name))?.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Replaces the file atomically, also across a power failure (fsync of file and directory). If that fails, for
    /// instance because the disk is full, the earlier file stays, and no other remains.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let draft = self.path.join(draft_of(name));
        let written = self.write(&draft, bytes).and_then(|()| fs::rename(&draft, self.path.join(name)));
        if let Err(error) = written {
            // It takes space where there is none. If it stays, the next write uses it again.
            _ = fs::remove_file(&draft);
            return Err(error);
        }
        File::open(&self.path)?.sync_all()
    }

    fn write(&self, draft: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::options().write(true).create(true).truncate(true).mode(self.file_mode).open(draft)?;
        // Where a draft was left by a run that made it readable for everybody.
        file.set_permissions(fs::Permissions::from_mode(self.file_mode))?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    /// Moves a file that cannot be read to `aside`, in the place of an earlier one, and logs why.
    pub(crate) fn set_aside(&self, name: &str, aside: &str, why: &dyn core::fmt::Display) {
        let (path, aside) = (self.path.join(name), self.path.join(aside));
        tracing::warn!(path = %path.display(), error = %why, aside = %aside.display(), "cannot read a file of state; moved aside, going on without it");
        if let Err(error) = fs::rename(&path, &aside) {
            tracing::warn!(path = %path.display(), %error, "cannot move the file aside; it will be overwritten");
        }
    }

    /// Removes a file; one that is not there is no error.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The name of a file's next version while it is written.
pub(crate) fn draft_of(name: &str) -> String {
    format!(".{name}.new")
}
