//! Records of incidents in a directory: a file for each, replaced atomically.

use std::io;
use std::path::Path;

use incidents::recorder::{MAX_RECORD_BYTES, Recorder, Step};
use wire::incident::IncidentId;

use crate::stored_file::{FileHeader, StateFolder, draft_of};

/// First line of a file.
const HEADER: FileHeader = FileHeader { magic: "uview incident", version: 1 };
/// Bytes of that line at most.
const HEADER_BYTES: usize = 128;
/// Name for a file that could not be read. Only the latest is kept.
const SET_ASIDE: &str = "incident.set-aside";
const SUFFIX: &str = ".incident";
/// The agent's user writes, its group reads.
const FILE_MODE: u32 = 0o640;

/// Bytes on disk beside the records: a draft, and a file that was set aside.
pub(crate) const FURTHER_BYTES: u64 = 2 * (MAX_RECORD_BYTES + HEADER_BYTES) as u64;

/// The directory of records.
#[derive(Debug)]
pub(super) struct Store(StateFolder);

fn file_name(id: IncidentId) -> String {
    format!("{id}{SUFFIX}")
}

impl Store {
    /// Opens `folder`, and creates it if needed.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        // Names of services and operations are for operators, not for everybody.
        Ok(Self(StateFolder::open(folder, 0o750, FILE_MODE)?))
    }

    /// Reads records into `recorder`, the newest first, as far as its budget reaches; older ones are removed. A file
    /// that cannot be read is logged and moved aside.
    ///
    /// # Errors
    ///
    /// The directory cannot be listed.
    pub(super) fn restore(&self, recorder: &mut Recorder, budget: usize) -> io::Result<()> {
        let mut ids = Vec::new();
        for entry in std::fs::read_dir(self.0.path())? {
            let name = entry?.file_name();
            let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)) else { continue };
            ids.extend(stem.parse::<IncidentId>().ok());
        }
        ids.sort_unstable();
        for id in ids.into_iter().rev() {
            // What a kill during a write has left.
            self.0.remove(&draft_of(&file_name(id)))?;
            if recorder.bytes() >= budget {
                self.0.remove(&file_name(id))?;
                continue;
            }
            if let Err(why) = self.read(id, recorder) {
                self.0.set_aside(&file_name(id), SET_ASIDE, &why);
            }
        }
        Ok(())
    }

    fn read(&self, id: IncidentId, recorder: &mut Recorder) -> Result<(), String> {
        let bytes = self.0.read(&file_name(id), (MAX_RECORD_BYTES + HEADER_BYTES) as u64);
        let bytes = bytes.map_err(|error| error.to_string())?;
        let body = HEADER.unseal(&bytes).map_err(|error| error.to_string())?;
        recorder.restore(body).map(drop).map_err(|error| error.to_string())
    }

    /// Carries out `step`.
    pub(super) fn carry_out(&self, step: &Step) -> io::Result<()> {
        match step {
            Step::Write(id, bytes) => self.0.replace(&file_name(*id), &HEADER.seal(bytes)),
            Step::Remove(id) => self.0.remove(&file_name(*id)),
        }
    }
}
