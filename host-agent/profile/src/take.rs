//! Samples the threads of processes for some seconds, and names what they were in.
//!
//! *Memory* while a profile is taken: [`MAX_THREADS`] rings of 36 KiB, 2.3 MB of stacks, names of [`MAX_PLACES`]
//! functions three times over, tables that are read: [`BYTES`]. *Descriptors*: [`MAX_THREADS`] + [`MAX_FILES`].
//! *Time*: that of the plan, and some milliseconds for the symbols of each file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use wire::proto::operators::IncidentProfile;

use crate::event::Event;
use crate::functions;
use crate::kernel::{self, Thread};
use crate::mappings::{self, Mapping};
use crate::names::readable;
use crate::stacks::{CodePlace, MAX_FRAMES, Stacks};
use crate::tally::Tally;

/// Threads that are sampled; others are counted.
pub const MAX_THREADS: usize = 64;
/// Files that are open for their symbols.
pub const MAX_FILES: usize = 32;
/// Places in code whose functions are looked for; others are named by their file.
pub const MAX_PLACES: usize = 8_192;
/// Bytes that a profile takes at most while it is taken.
pub const BYTES: usize = 12 << 20;
/// Time between two looks at the rings, and at which threads there are.
pub const ROUND: Duration = Duration::from_millis(100);
/// Files and parts of memory in which samples lie.
const MAX_SOURCES: usize = 1_024;
/// Bytes of a table of mappings that are read.
const MAX_MAPS: u64 = 1 << 20;
/// Bytes of what a runtime says of the functions that it has compiled, and of one line of it.
const MAX_JIT_MAP: u64 = 16 << 20;
const LONGEST_LINE: u64 = 4 << 10;
/// Lines, and addresses that lie in them.
const MAX_MATCHES: usize = 4_000_000;

/// What is to be sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Processes by number, each with the name that stands at the bottom of its stacks.
    pub processes: Vec<(u32, String)>,
    /// What is sampled.
    pub event: Event,
    /// Rounds of [`ROUND`].
    pub rounds: u32,
    /// Samples for each second.
    pub frequency_hz: u32,
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The kernel or the agent's rights do not allow it.
    #[error(
        "the kernel refuses to sample process {process}: {source}; it takes CAP_PERFMON, or \
         /proc/sys/kernel/perf_event_paranoid of at most 2 and a process of the same user"
    )]
    Refused {
        /// Number of the process.
        process: u32,
        /// The kernel's reason.
        source: io::Error,
    },
    /// None of the processes is there.
    #[error("process {process} is gone")]
    Gone {
        /// The first process that was to be sampled.
        process: u32,
    },
    /// The rings could not be made or read.
    #[error("cannot sample process {process}: {source}")]
    Failed {
        /// Number of the process.
        process: u32,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// Samples as `plan` says. Whose profile it is and when it began, the caller adds. Reads below `proc`, usually /proc.
/// `pause` waits so long and says whether to go on.
///
/// # Errors
///
/// [`ProfileError`] if no thread could be sampled. A process that ends meanwhile gives what it has given.
pub fn take(
    plan: &Plan,
    proc: &Path,
    pause: &mut dyn FnMut(Duration) -> bool,
) -> Result<IncidentProfile, ProfileError> {
    let mut taking = ProfileRun::new(plan, proc);
    taking.find_threads()?;
    for _ in 0..plan.rounds {
        let goes_on = pause(ROUND);
        taking.drain();
        if !goes_on {
            break;
        }
        // Threads that come later are sampled, too; that they cannot be is no reason to end.
        _ = taking.find_threads();
    }
    Ok(taking.finish())
}

/// A file with code, or memory without one.
#[derive(Debug)]
struct Source {
    /// Index of the process.
    process: u32,
    /// What stands for a function that has no name.
    label: String,
    is_of_file: bool,
    file: Option<File>,
}

/// Code of a process.
#[derive(Debug, Default)]
struct Code {
    mappings: Vec<Mapping>,
    /// Index of the source of each mapping, once it was needed.
    sources: Vec<Option<u32>>,
    /// The mappings were read in this round.
    is_fresh: bool,
}

impl Code {
    /// Reads the mappings of the process below `path`. One that has ended keeps what was known of it.
    fn read(&mut self, path: &Path) {
        self.is_fresh = true;
        let read = mappings::parse(&read(&path.join("maps"), MAX_MAPS).unwrap_or_default());
        if !read.is_empty() {
            self.sources = vec![None; read.len()];
            self.mappings = read;
        }
    }
}

#[derive(Debug)]
struct ProfileRun<'a> {
    plan: &'a Plan,
    proc: PathBuf,
    threads: BTreeMap<(u32, u32), Thread>,
    /// Threads that did not fit.
    further: BTreeSet<u32>,
    /// Of each process.
    code: Vec<Code>,
    /// Index of each source by process, inode and path.
    known: BTreeMap<(u32, u64, String), u32>,
    sources: Vec<Source>,
    stacks: Stacks,
    lost: u64,
}

impl<'a> ProfileRun<'a> {
    fn new(plan: &'a Plan, proc: &Path) -> Self {
        Self {
            plan,
            proc: proc.to_owned(),
            threads: BTreeMap::new(),
            further: BTreeSet::new(),
            code: plan.processes.iter().map(|_| Code::default()).collect(),
            known: BTreeMap::new(),
            sources: Vec::new(),
            stacks: Stacks::default(),
            lost: 0,
        }
    }

    fn process(&self, index: u32) -> PathBuf {
        let number = self.plan.processes.get(index as usize).map_or(0, |(number, _)| *number);
        self.proc.join(number.to_string())
    }

    /// Begins with threads that are new.
    fn find_threads(&mut self) -> Result<(), ProfileError> {
        let mut first_failure = None;
        for (index, (number, _)) in (0..).zip(&self.plan.processes) {
            let tasks = fs::read_dir(self.process(index).join("task")).into_iter().flatten().flatten();
            for id in tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()) {
                if self.threads.contains_key(&(index, id)) || self.further.contains(&id) {
                    continue;
                }
                if self.threads.len() >= MAX_THREADS {
                    if self.further.len() < MAX_THREADS * MAX_THREADS {
                        self.further.insert(id);
                    }
                    continue;
                }
                match Thread::open(id, self.plan.event, self.plan.frequency_hz) {
                    Ok(thread) => _ = self.threads.insert((index, id), thread),
                    // It has ended meanwhile.
                    Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
                    Err(error) => {
                        if !self.threads.is_empty() {
                            self.further.insert(id);
                        }
                        first_failure.get_or_insert((*number, error));
                    }
                }
            }
        }
        if !self.threads.is_empty() {
            return Ok(());
        }
        let first = self.plan.processes.first().map_or(0, |(number, _)| *number);
        Err(match first_failure {
            Some((process, source)) if kernel::is_refusal(&source) => ProfileError::Refused { process, source },
            Some((process, source)) => ProfileError::Failed { process, source },
            None => ProfileError::Gone { process: first },
        })
    }

    /// Takes the samples of this round.
    fn drain(&mut self) {
        self.code.iter_mut().for_each(|code| code.is_fresh = false);
        let mut threads = core::mem::take(&mut self.threads);
        for ((process, _), thread) in &mut threads {
            let lost = thread.drain(|addresses, counts| self.sample(*process, addresses, counts));
            self.lost += lost;
        }
        self.threads = threads;
    }

    fn sample(&mut self, process: u32, addresses: &[u64], counts: u64) {
        let mut frames = [CodePlace { file: 0, at: 0 }; MAX_FRAMES];
        let mut count = 0;
        for (depth, (frame, address)) in frames.iter_mut().zip(addresses).enumerate() {
            // A caller goes on behind its call, which may be another function.
            let address = if depth == 0 { *address } else { address.saturating_sub(1) };
            // Without frame pointers, what follows is no code: the stack ends there.
            let Some(place) = self.place(process, address) else { break };
            *frame = place;
            count += 1;
        }
        self.stacks.add(process, &frames[..count], counts);
    }

    /// Where `address` lies; `None`: in no code. Mappings of the process are read once in a round at most.
    fn place(&mut self, process: u32, address: u64) -> Option<CodePlace> {
        let code = self.code.get(process as usize)?;
        let mut index = mappings::find(&code.mappings, address);
        if index.is_none() && !code.is_fresh {
            let path = self.process(process);
            let code = self.code.get_mut(process as usize)?;
            code.read(&path);
            index = mappings::find(&code.mappings, address);
        }
        let (index, code) = (index?, self.code.get(process as usize)?);
        let mapping = code.mappings.get(index)?;
        let from = if mapping.is_of_file() { mapping.addresses.start.wrapping_sub(mapping.offset) } else { 0 };
        let known = *code.sources.get(index)?;
        let file = match known {
            Some(known) => known,
            None => self.source(process, &mapping.clone())?,
        };
        self.code[process as usize].sources[index] = Some(file);
        Some(CodePlace { file, at: address.wrapping_sub(from) })
    }

    /// The index of the file of `mapping`; `None`: there are too many.
    fn source(&mut self, process: u32, mapping: &Mapping) -> Option<u32> {
        let key = (process, mapping.inode, mapping.path.clone());
        if let Some(known) = self.known.get(&key) {
            return Some(*known);
        }
        if self.sources.len() >= MAX_SOURCES {
            return None;
        }
        let open = self.sources.iter().filter(|source| source.file.is_some()).count();
        let file = (open < MAX_FILES).then(|| open_file(&self.process(process), mapping)).flatten();
        let index = self.sources.len() as u32;
        self.sources.push(Source { process, label: label(mapping), is_of_file: mapping.is_of_file(), file });
        self.known.insert(key, index);
        Some(index)
    }

    /// Names of the functions at all places, as far as they are known.
    fn names(&self) -> BTreeMap<CodePlace, String> {
        let mut offsets: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        let places = self.stacks.iter().flat_map(|(_, frames, _)| frames);
        let mut count = 0;
        for place in places {
            if count < MAX_PLACES && offsets.entry(place.file).or_default().insert(place.at) {
                count += 1;
            }
        }
        let mut named = BTreeMap::new();
        for (index, offsets) in offsets {
            let Some(source) = self.sources.get(index as usize) else { continue };
            let offsets: Vec<u64> = offsets.into_iter().collect();
            let names = match &source.file {
                Some(file) => functions::find(file, &offsets),
                None if source.is_of_file => continue,
                None => compiled(&self.process(source.process), &offsets),
            };
            let found =
                offsets.into_iter().zip(names).filter_map(|(at, name)| Some((CodePlace { file: index, at }, name?)));
            named.extend(found);
        }
        named
    }

    fn finish(self) -> IncidentProfile {
        let named = self.names();
        let mut tally = Tally::default();
        for (process, frames, samples) in self.stacks.iter() {
            let bottom = self.plan.processes.get(process as usize).map(|(_, name)| name.as_str());
            let frames = frames.iter().rev().filter_map(|place| {
                let of_file = self.sources.get(place.file as usize).map(|source| source.label.as_str());
                named.get(place).map(String::as_str).or(of_file)
            });
            let mut stack: Vec<&str> = bottom.into_iter().chain(frames).collect();
            // Neighbours that have no names are one frame: how deep it is there says nothing.
            stack.dedup_by(|after, before| after == before && after.starts_with('['));
            tally.add(&stack, samples);
        }
        let (names, stacks, left_out) = tally.finish();
        IncidentProfile {
            event: self.plan.event.name().to_owned(),
            frequency_hz: self.plan.frequency_hz,
            samples: self.stacks.samples(),
            lost: self.lost,
            left_out: self.stacks.left_out() + left_out,
            further_threads: self.further.len() as u32,
            names,
            stacks,
            ..IncidentProfile::default()
        }
    }
}

/// What stands for a function of `mapping` that has no name.
fn label(mapping: &Mapping) -> String {
    readable(&format!("[{}]", mapping.file_name().trim_matches(['[', ']'])))
}

/// The file of `mapping`, if it is the one that is mapped.
fn open_file(process: &Path, mapping: &Mapping) -> Option<File> {
    if !mapping.is_of_file() {
        return None;
    }
    let range = format!("{:x}-{:x}", mapping.addresses.start, mapping.addresses.end);
    // By its mapping, which takes more rights; else by its path, as the process sees it.
    let by_path = process.join("root").join(mapping.path.trim_start_matches('/'));
    [process.join("map_files").join(range), by_path].iter().find_map(|path| {
        let file = regular(path)?;
        (file.metadata().ok()?.ino() == mapping.inode).then_some(file)
    })
}

/// Opens a regular file; never waits for a pipe or a device.
fn regular(path: &Path) -> Option<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().try_into().ok()?;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// Names that a runtime has written for the functions which it has compiled, at addresses that are sorted:
/// `/tmp/perf-PID.map`, each line with begin, size and name (the kernel's tools/perf/Documentation/jit-interface.txt).
fn compiled(process: &Path, addresses: &[u64]) -> Vec<Option<String>> {
    let mut found = vec![None; addresses.len()];
    // Its number in its own namespace is the last one.
    let status = read(&process.join("status"), MAX_MAPS).unwrap_or_default();
    let number = status.lines().find_map(|line| line.strip_prefix("NSpid:")?.split_whitespace().next_back());
    let Some(number) = number else { return found };
    let Some(file) = regular(&process.join(format!("root/tmp/perf-{number}.map"))) else { return found };
    // Anybody may put a file there, or a link to one that the process could not read itself.
    let owner = |metadata: io::Result<fs::Metadata>| metadata.map(|metadata| metadata.uid()).ok();
    if owner(file.metadata()) != owner(fs::metadata(process)) {
        return found;
    }
    let mut lines = BufReader::new(file.take(MAX_JIT_MAP));
    let (mut line, mut matches) = (Vec::new(), 0);
    while matches < MAX_MATCHES {
        line.clear();
        let read = lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line);
        if read.unwrap_or_default() == 0 {
            break;
        }
        matches += 1 + compiled_function(&String::from_utf8_lossy(&line), addresses, &mut found);
    }
    found
}

/// Names the addresses that lie in the function of `line`. Returns how many.
fn compiled_function(line: &str, addresses: &[u64], found: &mut [Option<String>]) -> usize {
    let mut parts = line.trim_end().splitn(3, ' ');
    let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
    let (Some(from), Some(size)) = (number(), number()) else { return 0 };
    let Some(name) = parts.next() else { return 0 };
    let first = addresses.partition_point(|address| *address < from);
    let until = addresses.partition_point(|address| *address < from.saturating_add(size));
    let Some(within) = found.get_mut(first..until) else { return 0 };
    // A later line is of newer code at the same place.
    let name = readable(name);
    for of in within.iter_mut() {
        *of = Some(name.clone());
    }
    within.len()
}

/// At most `most` bytes of a file as text.
fn read(path: &Path, most: u64) -> Option<String> {
    let mut bytes = Vec::new();
    regular(path)?.take(most).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests;
