//! The same objects from files of a folder, on a node without Kubernetes. The folder is read again every few seconds:
//! what changes there is applied without a restart.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use agent_runtime::lock;
use agent_runtime::ticks::ticks;
use resources::check;
use resources::files::{FileError, FileObjects, MAX_FILE_BYTES, merge, parse};

use super::objects::CustomObjects;

/// Why a folder cannot be read. What was read before stays in effect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// It, or a file in it, cannot be read.
    #[error("cannot read {}: {cause}", .path.display())]
    Read {
        /// The folder or the file.
        path: PathBuf,
        /// What the operating system reported.
        cause: io::Error,
    },
    /// Its files are too large.
    #[error("{} has {bytes} bytes of YAML files, at most {MAX_FILE_BYTES} are read", .0.display(), bytes = .1)]
    Size(PathBuf, u64),
}

/// The texts of the YAML files in `folder`, by their names. Hidden files, and those with another ending, are left out.
fn texts(folder: &Path) -> Result<BTreeMap<String, String>, FolderError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |cause| FolderError::Read { path, cause }
    };
    let mut paths = BTreeMap::new();
    let mut bytes = 0;
    for entry in fs::read_dir(folder).map_err(failed(folder))? {
        let path = entry.map_err(failed(folder))?.path();
        let is_yaml = path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml");
        let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| !name.starts_with('.')) else {
            continue;
        };
        if is_yaml {
            bytes += fs::metadata(&path).map_err(failed(&path))?.len();
            paths.insert(name.to_owned(), path);
        }
    }
    if bytes > MAX_FILE_BYTES {
        return Err(FolderError::Size(folder.to_owned(), bytes));
    }
    let read = |(name, path): (String, PathBuf)| Ok((name, fs::read_to_string(&path).map_err(failed(&path))?));
    paths.into_iter().map(read).collect()
}

/// What is wrong with the objects in the files of `folder`, such as `a.yaml:7: spec.intervall is no field that is
/// known`; nothing if all of them are taken.
///
/// # Errors
///
/// [`FolderError`] if the folder or a file in it cannot be read, or there is more than is read.
pub fn problems_of_resources(folder: &Path) -> Result<Vec<String>, FolderError> {
    Ok(check::problems(&texts(folder)?).iter().map(ToString::to_string).collect())
}

/// A file, as it was read last.
#[derive(Debug, Default)]
struct KnownFile {
    /// The text that was taken.
    text: Option<String>,
    /// Another text, read once: perhaps it is being written.
    next: Option<String>,
    /// What it said when it made sense last.
    objects: FileObjects,
    /// Why it makes none now.
    error: Option<FileError>,
}

impl KnownFile {
    fn take(&mut self, name: &str, text: String) {
        match parse(name, &text) {
            Ok(objects) => (self.objects, self.error) = (objects, None),
            Err(error) => self.error = Some(error),
        }
        (self.text, self.next) = (Some(text), None);
    }
}

/// The files of a folder.
#[derive(Debug, Default)]
struct KnownFiles {
    files: BTreeMap<String, KnownFile>,
    is_read: bool,
}

impl KnownFiles {
    /// Takes the texts of all files. One that has changed, or is new, counts when it is read the same twice. Returns
    /// whether anything has changed; the first time, it has.
    fn take(&mut self, texts: BTreeMap<String, String>) -> bool {
        let is_first = !core::mem::replace(&mut self.is_read, true);
        let before = self.files.len();
        self.files.retain(|name, _| texts.contains_key(name));
        let mut has_changed = is_first || self.files.len() != before;
        for (name, text) in texts {
            let known = self.files.entry(name.clone()).or_default();
            if known.text.as_ref() == Some(&text) {
                known.next = None;
            } else if is_first || known.next.as_ref() == Some(&text) {
                known.take(&name, text);
                has_changed = true;
            } else {
                known.next = Some(text);
            }
        }
        has_changed
    }

    /// Has `objects` know what the files say.
    fn publish(&self, objects: &CustomObjects) {
        let files = self.files.iter().map(|(name, known)| (name.clone(), known.objects.clone())).collect();
        let all = merge(&files);
        let wrong = self.files.values().filter_map(|known| known.error.as_ref());
        let wrong = wrong.map(|error| format!("resources: {error}; what the file said before stays in effect"));
        let left_out = all.errors.iter().map(|error| format!("resources: {error}"));
        let problems: Vec<_> = wrong.chain(left_out).collect();
        for problem in &problems {
            tracing::warn!(problem, "objects of files are not in effect");
        }
        *lock(&objects.file_problems) = problems;
        objects.lmaps.replace(all.lmaps);
        objects.policies.replace(all.policies);
        objects.synopses.replace(all.synopses);
    }
}

/// Reads `folder` for ever.
pub(super) async fn watch(folder: &Path, objects: &CustomObjects) {
    let mut known = KnownFiles::default();
    let mut ticks = ticks(objects.pace.files);
    let mut last_error = String::new();
    loop {
        ticks.tick().await;
        let of = folder.to_owned();
        // Reading does not panic.
        let Ok(texts) = tokio::task::spawn_blocking(move || texts(&of)).await else { continue };
        match texts {
            Ok(texts) => {
                // What could not be read is over, too.
                if known.take(texts) || !core::mem::take(&mut last_error).is_empty() {
                    known.publish(objects);
                }
            }
            Err(error) => {
                let error = error.to_string();
                if last_error != error {
                    tracing::warn!(error, "objects of files cannot be read");
                    let problem = format!("resources: {error}; what was read before stays in effect");
                    *lock(&objects.file_problems) = vec![problem];
                    last_error = error;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: uview.dev/v1alpha1\nkind: Lmap\nmetadata: {name: a}\n";

    #[test]
    fn a_file_that_is_being_written_counts_when_it_is_whole() {
        let texts = |text: &str| BTreeMap::from([("a.yaml".to_owned(), text.to_owned())]);
        let whole = format!("{HEAD}spec: {{workload: {{name: cart}}, interval: 1s}}\n");
        let mut known = KnownFiles::default();

        assert!(known.take(texts(&whole)), "at the start all that is there counts");
        assert!(!known.take(texts(&whole)));
        assert!(!known.take(texts("")) && !known.take(texts(HEAD)), "an editor has emptied it, and writes");
        assert_eq!(known.files["a.yaml"].objects.lmaps.len(), 1);
        assert!(!known.take(texts(&whole)), "as before");
        assert!(!known.take(texts("")) && known.take(texts("")), "it is empty");
        assert_eq!(known.files["a.yaml"].objects, FileObjects::default());
        assert!(known.take(BTreeMap::new()) && !known.take(BTreeMap::new()), "it is gone");
    }
}
