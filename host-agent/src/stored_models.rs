//! Models of services in a directory, so that a restart of both agents goes on with what was learnt. One file for each
//! service and interval, replaced when its worker hands over a newer model. And one file that names the workers that
//! operators drain. All I/O is done on threads of its own.

mod drained_workers;
mod file_format;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_runtime::ticks::every;
use tokio::runtime::Handle;
use wire::id::WorkerId;

use self::file_format::OVERHEAD_BYTES;
use crate::control_plane::{Drain, KeptModel, MAX_KEPT_MODELS, ModelKey};
use crate::node::Node;
use crate::stored_file::StateFolder;

/// Name for a file that could not be read. Only the latest is kept.
const SET_ASIDE: &str = "model.set-aside";
/// Time from a model's arrival until it is written, at most, if the disk is quick.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// Time for workers to hand over what they have learnt when the agent ends.
const MODELS_WITHIN: Duration = Duration::from_secs(2);
/// Pause between two looks at what has arrived by then.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A file of the directory.
#[derive(Clone, Copy, Debug)]
struct ModelFile {
    number: u64,
    /// The model's place in the order of arrivals.
    arrival: u64,
}

/// The files by service and interval, the largest number of one, and the drained workers as written.
#[derive(Debug, Default)]
struct Files {
    of: BTreeMap<ModelKey, ModelFile>,
    last: u64,
    drains: Vec<(WorkerId, Drain)>,
}

/// The directory of stored models.
#[derive(Debug)]
pub(crate) struct StoredModels {
    folder: StateFolder,
    /// Bytes of all models.
    limit: usize,
    files: Mutex<Files>,
    /// Why the last write failed; `None` if it did not.
    failure: Mutex<Option<String>>,
}

/// What has changed since the last write.
#[derive(Debug)]
struct Changes {
    newer: Vec<(ModelKey, u64, KeptModel)>,
    gone: Vec<ModelKey>,
    /// Drained workers, if they are others than those written.
    drains: Option<Vec<(WorkerId, Drain)>>,
}

/// Bytes on disk that models of `limit` bytes take at most: with a block for what is left of each file, and a draft and
/// a file that was set aside of the longest model.
pub(crate) const fn disk_bytes(limit: usize) -> u64 {
    (3 * limit + MAX_KEPT_MODELS * (OVERHEAD_BYTES + 4096)) as u64
}

fn file_name(number: u64) -> String {
    format!("{number}.model")
}

impl StoredModels {
    /// Opens the directory at `path`, and creates it if needed.
    ///
    /// # Errors
    ///
    /// It cannot be created.
    pub(crate) fn open(path: &Path, limit: usize) -> io::Result<Self> {
        // What is normal for a service is its own business.
        let folder = StateFolder::open(path, 0o700, 0o600)?;
        Ok(Self { folder, limit, files: Mutex::default(), failure: Mutex::default() })
    }

    /// Reads all models into `node`, the oldest first, and which workers are drained. A file that cannot be read is
    /// logged, counted and moved aside.
    ///
    /// # Errors
    ///
    /// The directory cannot be listed.
    pub(crate) fn restore(&self, node: &Node) -> io::Result<()> {
        self.restore_drains(node);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(self.folder.path())? {
            let entry = entry?;
            let number = entry.file_name().to_str().and_then(|name| name.strip_suffix(".model")?.parse::<u64>().ok());
            let Some(number) = number.filter(|number| *number < u64::MAX) else { continue };
            found.push((entry.metadata()?.modified()?, number));
        }
        found.sort_unstable();
        let mut models = 0_usize;
        for (_, number) in found {
            let mut files = self.lock();
            files.last = files.last.max(number);
            let read = self.folder.read(&file_name(number), (self.limit + OVERHEAD_BYTES) as u64);
            let decoded = read
                .map_err(|error| error.to_string())
                .and_then(|bytes| file_format::decode(&bytes, self.limit).map_err(|error| error.to_string()));
            match decoded {
                Ok((service, model)) => {
                    let interval = model.interval;
                    let arrival = node.plane(|plane, _| plane.restore_model(&service, model));
                    let file = ModelFile { number, arrival };
                    if let Some(older) = files.of.insert((service, interval), file) {
                        self.folder.remove(&file_name(older.number))?;
                    }
                    models += 1;
                }
                Err(error) => {
                    node.counts.unreadable_models.one_more();
                    self.folder.set_aside(&file_name(number), SET_ASIDE, &error);
                }
            }
        }
        tracing::info!(dir = %self.folder.path().display(), models, "going on with stored models");
        Ok(())
    }

    fn restore_drains(&self, node: &Node) {
        let read = match self.folder.read(drained_workers::NAME, drained_workers::MAX_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            read => read.map_err(|error| error.to_string()),
        };
        match read.and_then(|bytes| drained_workers::decode(&bytes).map_err(|error| error.to_string())) {
            Ok(drains) => {
                for (worker, drain) in &drains {
                    tracing::info!(%worker, by = %drain.by, "this worker is drained still");
                    node.plane(|plane, _| plane.restore_drain(*worker, drain.clone()));
                }
                self.lock().drains = drains;
            }
            Err(error) => self.folder.set_aside(drained_workers::NAME, drained_workers::SET_ASIDE, &error),
        }
    }

    /// Writes what changes in `node` until it drains, on `threads`.
    pub(crate) fn start(self: &Arc<Self>, node: &Arc<Node>, threads: &Handle) {
        let (models, node) = (Arc::clone(self), Arc::clone(node));
        threads.spawn(async move {
            let of = Arc::clone(&node);
            every(WRITE_INTERVAL, node.drained(), move || models.write(&of)).await;
        });
    }

    /// Asks all workers for what they have learnt, and waits until that is there, or for two seconds.
    pub(crate) async fn gather(node: &Node) {
        node.plane(|plane, _| plane.ask_for_models());
        let gathered = async {
            while node.inspect(|plane, _| plane.awaited_models()) > 0 {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        if tokio::time::timeout(MODELS_WITHIN, gathered).await.is_err() {
            let missing = node.inspect(|plane, _| plane.awaited_models());
            tracing::warn!(missing, "workers did not hand over all models; what they learnt lately may be lost");
        }
    }

    /// Writes the models that have changed. One that cannot be written is tried again with the next call.
    pub(crate) fn write(&self, node: &Node) {
        let mut files = self.lock();
        let changes = files.changes(node);
        let outcome = self.apply(&mut files, changes);
        drop(files);
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(()) => *failure = None,
            Err(error) => {
                node.counts.failed_model_writes.one_more();
                if failure.replace(error.to_string()).is_none() {
                    tracing::warn!(dir = %self.folder.path().display(), %error, "cannot write models; retrying. A restart of both agents loses what is not written");
                }
            }
        }
    }

    fn apply(&self, files: &mut Files, Changes { newer, gone, drains }: Changes) -> io::Result<()> {
        if let Some(drains) = drains {
            if drains.is_empty() {
                self.folder.remove(drained_workers::NAME)?;
            } else {
                self.folder.replace(drained_workers::NAME, &drained_workers::encode(&drains))?;
            }
            files.drains = drains;
        }
        // First, so that there is space.
        for key in gone {
            if let Some(file) = files.of.get(&key) {
                self.folder.remove(&file_name(file.number))?;
                files.of.remove(&key);
            }
        }
        for (key, arrival, model) in newer {
            let number = files.of.get(&key).map_or(files.last + 1, |file| file.number);
            self.folder.replace(&file_name(number), &file_format::encode(&key.0, &model))?;
            files.last = files.last.max(number);
            files.of.insert(key, ModelFile { number, arrival });
        }
        Ok(())
    }

    /// What is wrong now, in words.
    pub(crate) fn problems(&self, node: &Node) -> Vec<String> {
        let unreadable = node.counts.unreadable_models.get();
        let dir = self.folder.path().display();
        let aside = (unreadable > 0).then(|| {
            format!("models: {unreadable} files in {dir} could not be read; the last is {SET_ASIDE}. Their services learn anew")
        });
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let failure = failure.map(|error| {
            format!("models: they cannot be written to {dir}, and a restart of both agents loses what is not written: {error}")
        });
        aside.into_iter().chain(failure).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        // No code under this lock panics. If one did, the state would still be usable.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    /// What `node` keeps and the files do not have, and the other way round. The models' bytes are shared, not copied.
    fn changes(&self, node: &Node) -> Changes {
        node.inspect(|plane, _| {
            let is_newer = |key: &ModelKey, arrival| self.of.get(key).is_none_or(|file| file.arrival != arrival);
            let newer = plane.kept_models().filter(|(key, arrival, _)| is_newer(key, *arrival));
            let newer = newer.map(|(key, arrival, model)| (key.clone(), arrival, model.clone())).collect();
            let kept: BTreeSet<&ModelKey> = plane.kept_models().map(|(key, ..)| key).collect();
            let gone = self.of.keys().filter(|key| !kept.contains(key)).cloned().collect();
            let drains: Vec<_> = plane.drained_workers().map(|(id, drain)| (id, drain.clone())).collect();
            Changes { newer, gone, drains: Some(drains).filter(|drains| *drains != self.drains) }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    use wire::control::DetectorSpec;
    use wire::id::{Incarnation, Owner};
    use wire::name::ServiceName;
    use wire::time::{Interval, Nanos};

    use super::*;
    use crate::clock::Clock;
    use crate::control_plane::Settings;
    use crate::stored_file::draft_of;

    fn node() -> Node {
        let interval = Interval::new(Nanos::from_millis(100)).unwrap();
        Node::new(Settings { model_bytes: 250, ..Settings::new(Incarnation(1), interval) }, 4, Clock::start(), None)
    }

    fn model(byte: u8) -> KeptModel {
        let interval = Interval::new(Nanos::from_secs(1)).unwrap();
        let (bytes, owner) = (vec![byte; 100].into(), Owner::User(1));
        KeptModel { bytes, lmap: None, interval, detector: DetectorSpec::default(), owner }
    }

    fn put(node: &Node, service: &str, byte: u8) {
        node.plane(|plane, _| plane.restore_model(&ServiceName::new(service).unwrap(), model(byte)));
    }

    /// First bytes of the models that a node keeps, by service.
    fn kept(node: &Node) -> Vec<(String, u8)> {
        let of = |(key, _, model): (&ModelKey, u64, &KeptModel)| (key.0.as_str().to_owned(), model.bytes[0]);
        node.inspect(|plane, _| plane.kept_models().map(of).collect())
    }

    /// A node that begins with what is in `folder`.
    fn next_run(folder: &Path) -> (Node, StoredModels) {
        let (node, models) = (node(), StoredModels::open(folder, 250).unwrap());
        models.restore(&node).unwrap();
        (node, models)
    }

    fn entries(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn the_next_run_begins_with_the_latest_models_and_those_that_made_room_have_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("models");
        let (node, models) = next_run(&dir);
        put(&node, "a", 1);
        put(&node, "b", 2);
        models.write(&node);
        put(&node, "a", 3);
        put(&node, "c", 4);
        models.write(&node);

        assert_eq!(kept(&next_run(&dir).0), [("a".to_owned(), 3), ("c".to_owned(), 4)]);
        assert_eq!(entries(&dir), 2, "two models are over the limit, and no draft is left");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir), 0o700);
        assert!(fs::read_dir(&dir).unwrap().all(|file| mode(&file.unwrap().path()) == 0o600));
        // The numbers of earlier files are not given to others.
        let (node, models) = next_run(&dir);
        put(&node, "d", 5);
        models.write(&node);
        assert_eq!(kept(&next_run(&dir).0), [("c".to_owned(), 4), ("d".to_owned(), 5)]);
    }

    #[test]
    fn a_service_has_a_file_for_each_interval() {
        let folder = tempfile::tempdir().unwrap();
        let (node, models) = next_run(folder.path());
        let faster = KeptModel { interval: Interval::new(Nanos::from_millis(200)).unwrap(), ..model(6) };
        put(&node, "a", 5);
        node.plane(|plane, _| plane.restore_model(&ServiceName::new("a").unwrap(), faster));
        models.write(&node);

        assert_eq!(kept(&next_run(folder.path()).0), [("a".to_owned(), 6), ("a".to_owned(), 5)]);
    }

    #[test]
    fn workers_are_drained_after_a_restart_too_until_that_is_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let (node, models) = next_run(folder.path());
        let drain = Drain { by: "user 7".into(), forced: false };
        node.plane(|plane, _| plane.restore_drain(WorkerId(3), drain.clone()));
        models.write(&node);
        let drains = |node: &Node| {
            node.inspect(|plane, _| plane.drained_workers().map(|(id, of)| (id, of.clone())).collect::<Vec<_>>())
        };

        let (node, models) = next_run(folder.path());
        assert_eq!(drains(&node), [(WorkerId(3), drain)]);
        node.plane(|plane, now| plane.undrain_worker(now, WorkerId(3)).unwrap());
        models.write(&node);
        assert_eq!((drains(&next_run(folder.path()).0), entries(folder.path())), (Vec::new(), 0));

        std::fs::write(folder.path().join(drained_workers::NAME), "something else").unwrap();
        assert_eq!(drains(&next_run(folder.path()).0), []);
        assert!(folder.path().join(drained_workers::SET_ASIDE).exists());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_moved_aside_and_said_and_the_others_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let (node, models) = next_run(folder.path());
        put(&node, "a", 1);
        put(&node, "b", 2);
        models.write(&node);
        let file = folder.path().join("1.model");
        let whole = fs::read(&file).unwrap();
        fs::write(&file, &whole[..whole.len() / 2]).unwrap();

        let (node, models) = next_run(folder.path());

        assert_eq!(kept(&node), [("b".to_owned(), 2)]);
        assert_eq!(node.counts.unreadable_models.get(), 1);
        assert!(models.problems(&node)[0].starts_with("models: 1 files in "), "{:?}", models.problems(&node));
        assert_eq!(fs::read(folder.path().join(SET_ASIDE)).unwrap(), whole[..whole.len() / 2]);
        let (node, models) = next_run(folder.path());
        assert_eq!((kept(&node).len(), models.problems(&node).len()), (1, 0), "it is said once");
    }

    #[test]
    fn a_write_that_fails_is_said_costs_nothing_else_and_is_made_up_for() {
        let folder = tempfile::tempdir().unwrap();
        let (node, models) = next_run(folder.path());
        put(&node, "a", 1);
        models.write(&node);
        // No file can be written in the place of a directory, whoever runs this.
        let obstacle = folder.path().join(draft_of("1.model"));
        fs::create_dir(&obstacle).unwrap();
        put(&node, "a", 2);
        models.write(&node);
        models.write(&node);

        assert_eq!(node.counts.failed_model_writes.get(), 2);
        assert!(models.problems(&node)[0].contains("cannot be written"), "{:?}", models.problems(&node));
        assert_eq!(kept(&next_run(folder.path()).0), [("a".to_owned(), 1)], "the earlier one stays");

        fs::remove_dir(&obstacle).unwrap();
        models.write(&node);
        assert_eq!(models.problems(&node), [""; 0]);
        assert_eq!(kept(&next_run(folder.path()).0), [("a".to_owned(), 2)]);
    }

    #[test]
    fn on_a_full_disk_the_earlier_models_stay_no_draft_does_and_the_newer_ones_follow_when_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        // A disk of its own, of 64 KiB, that no other process sees.
        let script = "mount -t tmpfs -o size=64k tmpfs \"$0\" && cd \"$0\" && exec \"$@\"";
        let mut unshare = Command::new("unshare");
        unshare.args(["--map-root-user", "--mount", "sh", "-c", script]).arg(folder.path());
        let is_possible = Command::new("unshare").args(["--map-root-user", "--mount", "true"]).status();
        if !is_possible.is_ok_and(|status| status.success()) {
            return support::harness::not_run("a full disk for models: no namespace of mounts here");
        }
        unshare.arg(std::env::current_exe().unwrap());
        unshare.args(["--ignored", "--exact", "stored_models::tests::child_fills_its_disk"]);

        let child = unshare.output().unwrap();

        let text = String::from_utf8_lossy(&child.stdout).into_owned();
        assert!(
            child.status.success() && text.contains("1 passed"),
            "{text}{}",
            String::from_utf8_lossy(&child.stderr)
        );
    }

    #[test]
    #[ignore = "a child of the test before, with a disk of its own"]
    fn child_fills_its_disk() {
        let folder = Path::new("models");
        let (node, models) = next_run(folder);
        put(&node, "a", 1);
        models.write(&node);
        let mut filler = fs::File::create("filler").unwrap();
        let full = (0..1_000).find_map(|_| filler.write_all(&[7; 4096]).err()).unwrap();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);

        put(&node, "a", 2);
        models.write(&node);

        assert_eq!(node.counts.failed_model_writes.get(), 1);
        assert!(models.problems(&node)[0].contains("No space left"), "{:?}", models.problems(&node));
        assert_eq!((kept(&next_run(folder).0), entries(folder)), (vec![("a".to_owned(), 1)], 1));
        drop(filler);
        fs::remove_file("filler").unwrap();
        models.write(&node);
        assert_eq!(models.problems(&node), [""; 0]);
        assert_eq!(kept(&next_run(folder).0), [("a".to_owned(), 2)]);
    }
}
