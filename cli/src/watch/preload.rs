//! `uview watch --preload`: starts a program with the library that sees its connections, or says why that cannot be.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use agent_runtime::clock::Clock;
use rustix::process::{Pid, Signal, kill_process};
use sources::selection::Selector;

use super::program_file::{HEAD_BYTES, ProgramFile};
use super::{WHAT, service_name};
use crate::Environment;
use crate::failure::Failure;

/// The library's name. As a path it means the one beside this program, or installed with it.
pub(super) const LIBRARY: &str = "libuview_preload.so";
/// Set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;
/// Time for the program to end after SIGTERM, before SIGKILL.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const FROM_OUTSIDE: &str = "start it as always, and `uview watch --name NAME`, which sees its processes only";

/// A program that can be started with the library.
pub(super) struct Program {
    words: Vec<OsString>,
    path: PathBuf,
    library: PathBuf,
}

impl Program {
    /// The program of `words`, to be started with `library` if there is one.
    pub(super) fn new(
        library: Option<PathBuf>,
        words: &[OsString],
        environment: &Environment,
    ) -> Result<Option<Self>, Failure> {
        let (Some(library), Some(name)) = (library, words.first()) else { return Ok(None) };
        let library = if library == Path::new(LIBRARY) { beside(environment.program.as_deref())? } else { library };
        // Relative names would be looked up in the program's folder.
        let library = library.canonicalize().map_err(|error| because(&library, "cannot be used").caused_by(&error))?;
        let path = located(name, environment.path.as_deref())?;
        check(&path, &library)?;
        Ok(Some(Self { words: words.to_vec(), path, library }))
    }

    /// Starts it, so that it is watched as `service` by the agent in `runtime_dir`.
    pub(super) fn start(self, service: Option<&str>, runtime_dir: &Path) -> Result<StartedProgram, Failure> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let service = service.map_or_else(|| service_name(&Selector::Name(name), 0), str::to_owned);
        let mut command = Command::new(&self.path);
        command.args(self.words.iter().skip(1)).env("LD_PRELOAD", &self.library).env("UVIEW_SERVICE", &service);
        // This program measures the processes.
        command.env("UVIEW_PRELOAD", "traffic").env("UVIEW_SOCKET", runtime_dir.join("services.sock"));
        let child = command.spawn().map_err(|error| because(&self.path, "does not start").caused_by(&error))?;
        Ok(StartedProgram { child, service })
    }
}

/// A program that runs. Dropping it ends it.
pub(super) struct StartedProgram {
    child: Child,
    service: String,
}

impl StartedProgram {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn service(&self) -> &str {
        &self.service
    }
}

impl Drop for StartedProgram {
    fn drop(&mut self) {
        let clock = Clock::start();
        // Fails if it has ended already.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        while Duration::from(clock.now()) < ENDS_WITHIN && self.child.try_wait().is_ok_and(|status| status.is_none()) {
            std::thread::sleep(LOOK_EVERY);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn because(path: &Path, text: &str) -> Failure {
    Failure::to(WHAT).because(format!("{} {text}", path.display()))
}

/// The library beside this program, or where `make install` of a release puts it.
fn beside(program: Option<&Path>) -> Result<PathBuf, Failure> {
    let folder = program.and_then(Path::parent).unwrap_or(Path::new("."));
    let places = [folder.join(LIBRARY), folder.join("../lib/uview").join(LIBRARY)];
    if let Some(path) = places.iter().find(|path| path.is_file()) {
        return Ok(path.clone());
    }
    let [beside, installed] = places.map(|path| path.display().to_string());
    let advice = "`cargo build --release -p uview-preload`, or --preload=PATH names it";
    Err(Failure::to(WHAT).because(format!("there is neither {beside} nor {installed}")).advice(advice))
}

/// The file of the program `name`: in the folders of `path` unless it names a folder itself.
fn located(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    let name = Path::new(name);
    if name.components().count() > 1 {
        return Ok(name.to_owned());
    }
    let is_program = |file: &PathBuf| file.metadata().is_ok_and(|data| data.is_file() && data.mode() & 0o111 != 0);
    let found = std::env::split_paths(path.unwrap_or_default()).map(|folder| folder.join(name)).find(is_program);
    found.ok_or_else(|| because(name, "is in no folder of PATH"))
}

fn head(path: &Path) -> Result<Vec<u8>, Failure> {
    let unreadable = |error: std::io::Error| because(path, "cannot be read").caused_by(&error);
    let mut head = Vec::new();
    File::open(path).map_err(unreadable)?.take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(unreadable)?;
    Ok(head)
}

/// Whether the loader would preload the library.
fn check(path: &Path, library: &Path) -> Result<(), Failure> {
    let mut file = ProgramFile::new(&head(path)?);
    let mut path = path.to_owned();
    if let ProgramFile::Script { interpreter } = &file {
        path = PathBuf::from(interpreter);
        file = ProgramFile::new(&head(&path)?);
    }
    let (machine, loader) = match file {
        ProgramFile::Dynamic { machine, loader } => (machine, loader),
        ProgramFile::Static => {
            return Err(because(&path, "is linked statically: no loader, nothing is preloaded").advice(FROM_OUTSIDE));
        }
        ProgramFile::Script { .. } | ProgramFile::Other => {
            return Err(because(&path, "is no ELF program of 64 bits").advice(FROM_OUTSIDE));
        }
    };
    if loader.contains("musl") {
        return Err(because(&path, "is built for musl, and the library for glibc").advice(FROM_OUTSIDE));
    }
    if ProgramFile::machine(&head(library)?) != Some(machine) {
        return Err(because(&path, &format!("is for another processor than {}", library.display())));
    }
    let mode = path.metadata().map_or(0, |data| data.permissions().mode());
    let capable = rustix::fs::getxattr(&path, "security.capability", &mut [0_u8; 64]).is_ok();
    if mode & SET_ID != 0 || capable {
        let text = "changes its rights at its start (set-user-ID or file capabilities): the loader preloads nothing";
        return Err(because(&path, text).advice(FROM_OUTSIDE));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_library_is_beside_the_program_or_where_a_release_installs_it() {
        let prefix = tempfile::tempdir().unwrap();
        let program = prefix.path().join("bin/uview");
        let place = |path: &str| {
            let file = prefix.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "").unwrap();
            file.canonicalize().unwrap()
        };
        let found = || beside(Some(&program)).map(|path| path.canonicalize().unwrap());

        fs::create_dir_all(prefix.path().join("bin")).unwrap();
        let refused = found().unwrap_err().to_string();
        assert!(refused.contains("bin/libuview_preload.so") && refused.contains("lib/uview"), "{refused}");
        let installed = place("lib/uview/libuview_preload.so");
        assert_eq!(found().unwrap(), installed);
        let beside = place("bin/libuview_preload.so");
        assert_eq!(found().unwrap(), beside, "a build of a clone has its own");
    }
}
