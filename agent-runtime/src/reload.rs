//! Configuration that is taken over while the agent runs: at SIGHUP, and when a file's content has changed.
//!
//! What can change while it is in use is a [`Reloadable`] (roles, rules) or a
//! [`LiveServer`](crate::live_tls::LiveServer) (certificates). An agent says in [`Reload`] which files it depends on
//! and how it takes them over, all of them or none; [`watch`] calls it.

mod keys;

use core::hash::{Hash as _, Hasher as _};
use std::hash::DefaultHasher;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::access::UnknownName;
use crate::config::ConfigError;
use crate::count::Count;
use crate::error::chain;
use crate::logs::LogError;
use crate::tls::TlsError;

pub use keys::{KeyChanges, changed_keys};

/// How often the files are looked at. Contents are compared and not times: Kubernetes replaces a symlink.
const POLL: Duration = Duration::from_secs(2);
/// Bytes of a file that are compared.
const MAX_BYTES: u64 = 4 << 20;
/// Room for a file at first, in bytes: of a smaller one a read finds all, and another one the end.
const ROOM: usize = 16 << 10;

/// A value that is replaced while it is in use. Clones share it; who has loaded it keeps what it was then.
#[derive(Debug)]
pub struct Reloadable<T>(Arc<Mutex<Arc<T>>>);

impl<T> Clone for Reloadable<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Reloadable<T> {
    /// Begins with `value`.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(Arc::new(value))))
    }

    /// The current value.
    #[must_use]
    pub fn load(&self) -> Arc<T> {
        // Nothing under this lock panics.
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the value for all clones.
    pub fn replace(&self, value: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }
}

/// What became of changed files, for metrics and status.
#[derive(Debug, Default)]
pub struct ReloadState {
    taken: Count,
    failed: Count,
    problem: Mutex<Option<String>>,
    latest: Mutex<Vec<String>>,
}

impl ReloadState {
    /// Changes that were taken over.
    pub fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// Changes that were refused: a file could not be read or used, and what was in use before stays.
    pub fn failed(&self) -> u64 {
        self.failed.get()
    }

    /// Full names of the keys that were taken over last.
    #[must_use]
    pub fn latest(&self) -> Vec<String> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why the files as they are now cannot be used; `None` if they can.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_problem(&self, problem: Option<String>) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    /// Notes and logs the outcome of a reload.
    fn note(&self, outcome: Result<Changes, ReloadError>) {
        match outcome {
            Ok(Changes { taken, at_restart }) => {
                self.set_problem(None);
                if !taken.is_empty() {
                    tracing::info!(changed = taken.join(", "), "configuration taken over");
                    // Before the number: who sees it finds them.
                    *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = taken;
                    self.taken.one_more();
                }
                if !at_restart.is_empty() {
                    let changed = at_restart.join(", ");
                    tracing::warn!(changed, "these keys take effect with the next start of the agent");
                }
            }
            Err(error) => {
                let why = chain(&error);
                self.failed.one_more();
                tracing::error!(why, "the changed configuration cannot be used: the one before stays in use");
                self.set_problem(Some(format!("changed configuration is not in use: {why}")));
            }
        }
    }
}

/// What a reload has changed: full names of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// In use from now on.
    pub taken: Vec<String>,
    /// In use after the next start.
    pub at_restart: Vec<String>,
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.at_restart.is_empty()
    }
}

/// How an agent takes over changed files.
pub trait Reload: Send + 'static {
    /// The files on whose content it depends.
    fn files(&self) -> Vec<PathBuf>;

    /// Takes over the files as they are now: all of them, or none.
    ///
    /// # Errors
    ///
    /// [`ReloadError`]: what is wrong with which file. Nothing has changed.
    fn reload(&mut self) -> Result<Changes, ReloadError>;
}

/// Why changed files are not taken over. What was in use before stays.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The configuration file cannot be read, or a key has a value that it cannot have.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A role is given to a name that this system does not know.
    #[error(transparent)]
    Access(#[from] UnknownName),
    /// The level of the log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The certificates of a section cannot be used.
    #[error("{key}")]
    Certificates {
        /// The section of the configuration.
        key: &'static str,
        /// What is wrong with its files.
        #[source]
        cause: Box<TlsError>,
    },
    /// A part of the agent cannot be made anew.
    #[error(transparent)]
    Part(Box<dyn core::error::Error + Send + Sync>),
}

impl ReloadError {
    /// The certificates of section `key` cannot be used.
    #[must_use]
    pub fn certificates(key: &'static str, cause: TlsError) -> Self {
        Self::Certificates { key, cause: Box::new(cause) }
    }
}

/// A number that changes with the names or the content of `files`. Not a secure hash.
#[must_use]
pub fn fingerprint(files: &[PathBuf]) -> u64 {
    let (mut hasher, mut bytes) = (DefaultHasher::new(), Vec::with_capacity(ROOM));
    for path in files {
        bytes.clear();
        let read = std::fs::File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
        (path, read.is_ok(), &bytes).hash(&mut hasher);
    }
    hasher.finish()
}

/// SIGHUP, which ends a process that does not catch it.
#[derive(Debug)]
pub struct Hangup(Option<Signal>);

impl Hangup {
    /// Catches it from now on, in a runtime with signals. If that is not possible, the log says so.
    #[must_use]
    pub fn catch() -> Self {
        let caught = signal(SignalKind::hangup()).inspect_err(|error| {
            tracing::warn!(%error, "SIGHUP cannot be caught: changed files are found by looking at them");
        });
        Self(caught.ok())
    }

    /// Waits for it; for ever if it cannot be caught.
    async fn received(&mut self) {
        match &mut self.0 {
            Some(signal) => _ = signal.recv().await,
            None => core::future::pending().await,
        }
    }
}

/// Reloads `agent` at `hangup` and when its files have changed, until it is dropped. Needs a runtime. One thread that
/// may block does it all: a look wakes no other one.
pub async fn watch(agent: impl Reload, state: Arc<ReloadState>, mut hangup: Hangup) {
    let (asks, asked) = sync_channel(1);
    let looking = tokio::task::spawn_blocking(move || look(agent, &state, POLL, &asked));
    tokio::select! {
        // By a panic only.
        _ = looking => {}
        () = async {
            loop {
                hangup.received().await;
                // If one waits already, a look is for both.
                _ = asks.try_send(());
            }
        } => {}
    }
}

/// Looks at the files of `agent`, which may be on a file system that hangs, `every` so often and when it is `asked`
/// for, until nobody can ask any more.
fn look(mut agent: impl Reload, state: &ReloadState, every: Duration, asked: &Receiver<()>) {
    let (mut known, mut is_asked) = (None, false);
    loop {
        // Taken before the files are read: what changes meanwhile is seen the next time.
        let now = Some(fingerprint(&agent.files()));
        // The first time, too: a file may have changed since the agent has read it.
        if is_asked || known != now {
            let outcome = agent.reload();
            if is_asked && outcome.as_ref().is_ok_and(Changes::is_empty) {
                // Who sent the signal would not know whether it has come.
                tracing::info!("SIGHUP: nothing has changed since the files were taken over last");
            }
            state.note(outcome);
        }
        known = now;
        is_asked = match asked.recv_timeout(every) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_loaded_a_value_keeps_it() {
        let value = Reloadable::new(1);
        let (clone, held) = (value.clone(), value.load());

        clone.replace(2);

        assert_eq!((*held, *value.load()), (1, 2));
    }

    #[test]
    fn a_changed_content_is_seen_behind_a_symlink_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("old"), "a").unwrap();
        std::fs::write(path("new"), "b").unwrap();
        std::os::unix::fs::symlink("old", path("link")).unwrap();
        let files = [path("link")];
        let before = fingerprint(&files);

        assert_eq!(fingerprint(&files), before);
        std::os::unix::fs::symlink("new", path("next")).unwrap();
        std::fs::rename(path("next"), path("link")).unwrap();
        let after = fingerprint(&files);

        assert_ne!(after, before);
        std::fs::remove_file(path("new")).unwrap();
        assert_ne!(fingerprint(&files), after, "a file that is gone is another content");
    }

    /// An agent that depends on one file, and tells of each reload.
    struct Agent(PathBuf, std::sync::mpsc::Sender<String>);

    impl Reload for Agent {
        fn files(&self) -> Vec<PathBuf> {
            vec![self.0.clone()]
        }

        fn reload(&mut self) -> Result<Changes, ReloadError> {
            self.1.send(std::fs::read_to_string(&self.0).unwrap()).unwrap();
            Ok(Changes::default())
        }
    }

    #[test]
    fn a_look_reloads_what_has_changed_or_was_asked_for_and_ends_with_those_who_ask() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "a").unwrap();
        std::fs::write(path("next"), "b").unwrap();
        let ((said, texts), (asks, asked)) = (std::sync::mpsc::channel(), sync_channel(1));
        let (agent, often) = (Agent(path("file"), said), Duration::from_millis(10));
        let looking = std::thread::spawn(move || look(agent, &ReloadState::default(), often, &asked));
        assert_eq!(texts.recv().as_deref(), Ok("a"), "the first time");

        asks.send(()).unwrap();
        assert_eq!(texts.recv().as_deref(), Ok("a"), "nothing has changed");
        std::fs::rename(path("next"), path("file")).unwrap();
        assert_eq!(texts.recv().as_deref(), Ok("b"), "nobody asks");
        drop(asks);
        looking.join().unwrap();

        assert!(texts.recv().is_err(), "that was all");
    }

    #[test]
    fn a_problem_stays_until_it_is_mended() {
        let state = ReloadState::default();
        assert_eq!(state.problem(), None);

        state.note(Err(ReloadError::certificates("control.tls", TlsError::NoKey("a.key".into()))));
        assert!(state.problem().unwrap().ends_with("control.tls: a.key has no private key in PEM"));
        state.note(Ok(Changes::default()));

        assert_eq!((state.problem(), state.failed(), state.taken()), (None, 1, 0));
        state.note(Ok(Changes { taken: vec!["access".to_owned()], at_restart: Vec::new() }));
        assert_eq!(state.taken(), 1);
    }
}
