//! Mounts and unmounts volumes. Each is idempotent: what is as it should be is left alone, and what was begun is ended.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};

use crate::mounts::{self, Mount};

/// The mounts of this thread's namespace.
const LIST: &str = "/proc/thread-self/mountinfo";
/// Longest list of mounts: some hundred bytes for each.
const MAX_LIST_BYTES: u64 = 16 << 20;
/// Mounts over each other that are undone at one path.
const MAX_MOUNTS: usize = 16;

/// Why a volume is not mounted or unmounted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishError {
    /// There is nothing to mount yet.
    #[error("{} is no directory: the host agent makes it when it starts", .0.display())]
    NoSource(PathBuf),
    /// Something else is there.
    #[error("something else is at {} already", .0.display())]
    Foreign(PathBuf),
    /// The system refuses.
    #[error("cannot {what} {}", .path.display())]
    System {
        /// What was tried.
        what: &'static str,
        /// With which path.
        path: PathBuf,
        /// The cause, from the operating system.
        #[source]
        cause: io::Error,
    },
}

/// Mounts one directory at many places.
///
/// What a mount may do does not travel: where the driver runs in a container, a mount reaches the node as it was when
/// it was made, and what is set on it afterwards stays in the container. So the directory is first mounted at a place
/// of the driver's own, from which everything else is copied, flags included.
#[derive(Debug)]
pub(crate) struct Publisher {
    source: PathBuf,
    /// The place of the driver's own. Others do not look there.
    stage: PathBuf,
    /// One change at a time.
    alone: Mutex<()>,
}

impl Publisher {
    /// Mounts the directory `source`, by way of `stage`, whose parent is there.
    pub(crate) const fn new(source: PathBuf, stage: PathBuf) -> Self {
        Self { source, stage, alone: Mutex::new(()) }
    }

    /// Whether there is something to mount.
    pub(crate) fn is_ready(&self) -> bool {
        self.source.is_dir()
    }

    /// Has the directory at `target`, for reading only. Its parent is there.
    ///
    /// # Errors
    ///
    /// [`PublishError`]. Nothing is mounted then.
    pub(crate) fn publish(&self, target: &Path) -> Result<(), PublishError> {
        let _alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_ready() {
            return Err(PublishError::NoSource(self.source.clone()));
        }
        self.mount_stage()?;
        match mounted(target)? {
            Some(_) if !self.is_source(target)? => return Err(PublishError::Foreign(target.to_owned())),
            Some(Mount { is_guarded: true }) => return Ok(()),
            // Of an older driver.
            Some(Mount { is_guarded: false }) => take_off(target)?,
            None => make(target)?,
        }
        mount_bind(&self.stage, target).map_err(|cause| system("mount at", target, cause.into()))
    }

    /// Has the directory at the stage, guarded.
    fn mount_stage(&self) -> Result<(), PublishError> {
        let stage = &self.stage;
        if matches!(mounted(stage)?, Some(Mount { is_guarded: true })) && self.is_source(stage)? {
            return Ok(());
        }
        take_off(stage)?;
        make(stage)?;
        mount_bind(&self.source, stage).map_err(|cause| system("mount at", stage, cause.into()))?;
        // A mount is for writing at first, whatever it is asked for.
        let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount_remount(stage, flags, "").map_err(|cause| {
            _ = unmount(stage, UnmountFlags::NOFOLLOW);
            system("make read-only", stage, cause.into())
        })
    }

    /// Has nothing at the stage. Volumes stay.
    pub(crate) fn end(&self) -> Result<(), PublishError> {
        self.unpublish(&self.stage)
    }

    /// Has nothing at `target`, not even the directory.
    ///
    /// # Errors
    ///
    /// [`PublishError`]: it is in use, or something else is in the directory.
    pub(crate) fn unpublish(&self, target: &Path) -> Result<(), PublishError> {
        let _alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        take_off(target)?;
        match fs::remove_dir(target) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(system("remove", target, cause)),
            _ => Ok(()),
        }
    }

    /// Whether `target` shows the source.
    fn is_source(&self, target: &Path) -> Result<bool, PublishError> {
        let identity = |path: &Path| {
            let data = fs::metadata(path).map_err(|cause| system("look at", path, cause))?;
            Ok((data.dev(), data.ino()))
        };
        Ok(identity(&self.source)? == identity(target)?)
    }
}

fn system(what: &'static str, path: &Path, cause: io::Error) -> PublishError {
    PublishError::System { what, path: path.to_owned(), cause }
}

/// Has nothing mounted at `target`.
fn take_off(target: &Path) -> Result<(), PublishError> {
    for _ in 0..MAX_MOUNTS {
        if mounted(target)?.is_none() {
            break;
        }
        unmount(target, UnmountFlags::NOFOLLOW).map_err(|cause| system("unmount", target, cause.into()))?;
    }
    Ok(())
}

/// What is mounted at `target`.
fn mounted(target: &Path) -> Result<Option<Mount>, PublishError> {
    let mut list = Vec::new();
    let read = File::open(LIST).and_then(|file| file.take(MAX_LIST_BYTES + 1).read_to_end(&mut list));
    let read = read.map_err(|cause| system("read", Path::new(LIST), cause))?;
    // Half of a list would say that nothing is there.
    if read as u64 > MAX_LIST_BYTES {
        return Err(system("read", Path::new(LIST), io::ErrorKind::FileTooLarge.into()));
    }
    Ok(mounts::at(&list, target.as_os_str().as_bytes()))
}

/// Makes the directory `target`, unless it is there and empty.
fn make(target: &Path) -> Result<(), PublishError> {
    match fs::create_dir(target) {
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {
            // No link is followed to somewhere else.
            let is_directory = fs::symlink_metadata(target).is_ok_and(|data| data.is_dir());
            let is_empty = is_directory && fs::read_dir(target).is_ok_and(|mut files| files.next().is_none());
            if is_empty { Ok(()) } else { Err(PublishError::Foreign(target.to_owned())) }
        }
        made => made.map_err(|cause| system("make", target, cause)),
    }
}
