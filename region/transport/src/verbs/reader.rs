//! The worker's end: fetches regions by RDMA READ.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::time::Duration;

use wire::id::RegionId;
use wire::layout::{PAGE_BYTES, RegionSize, SLOT_BYTES};
use wire::rdma::{Endpoint, PacketSequence};

use super::clock::Stopwatch;
use super::connect::{self, ConnectError, Role};
use super::device::Device;
use super::loss::LostReason;
use super::memory::{Arena, ProtectionDomain, Registration};
use super::queue_pair::QueuePair;
use super::reads::{Progress, Reads};
use super::status::{Blame, Status};
use super::sys;
use crate::fetch::{Access, AttachError, BatchError, FetchStatus, RegionBuffer, RegionError, RegionReader};

/// Limits of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderLimits {
    /// READs posted at a time; at least 1, and at most what the device takes. A larger batch is posted in several
    /// parts.
    pub reads: u32,
    /// Registered memory for the fetched words, in bytes; at least one page. A larger batch, or a larger region, is
    /// read in several parts.
    pub buffer_bytes: usize,
    /// How long the READs of one part may take. The device itself gives up on a dead peer after a quarter of the
    /// default at the earliest, and before the default is over; this limit is for a device that hangs. It does not
    /// depend on the interval: a slow fetch makes ticks late, while giving up costs the batch and the connection.
    pub patience: Duration,
}

impl Default for ReaderLimits {
    fn default() -> Self {
        Self { reads: 256, buffer_bytes: 4 << 20, patience: connect::PATIENCE }
    }
}

/// Why a reader or a host end cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("{device} does not give {what}")]
pub struct ResourceError {
    /// Name of the device.
    pub device: String,
    /// The resource that was requested.
    pub what: &'static str,
    /// The error of the system.
    #[source]
    pub cause: io::Error,
}

/// Reads regions of a peer by RDMA READ through one connection.
///
/// A new reader is not connected: call [`VerbsReader::reset`], send the endpoint to the peer, then call
/// [`VerbsReader::connect`]. [`BatchError::Lost`] ends the connection. So does a batch with a [`RegionError::Revoked`]
/// region: the device gives up the whole connection for one bad key. Such a region is excluded from every later batch
/// until it is attached anew.
#[derive(Debug)]
pub struct VerbsReader {
    device: Device,
    reads: Reads,
    patience: Duration,
    longest_read: usize,
    regions: HashMap<RegionId, RemoteRegion>,
    /// The part of the batch that each READ of the chain fills.
    pieces: Vec<Piece>,
    link: Link,
    /// The region at which the last connection ended, if the region may be at fault.
    suspect: Option<RegionId>,
}

#[derive(Clone, Copy, Debug)]
enum Link {
    Down,
    /// Reset, and ready to be connected to a peer.
    Prepared(Endpoint),
    Up,
}

/// A region of the peer.
#[derive(Clone, Copy, Debug)]
struct RemoteRegion {
    address: u64,
    rkey: u32,
    words: usize,
    revoked: bool,
}

/// The part of a buffer that one READ fills.
#[derive(Clone, Copy, Debug)]
struct Piece {
    buffer: usize,
    first: usize,
    words: usize,
    last: bool,
}

/// How far a batch has been put into chains.
#[derive(Debug, Default)]
struct Cursor {
    buffer: usize,
    /// Words of the buffer that are done.
    first: usize,
    run: usize,
    /// Words of the run that are done.
    of_run: usize,
}

/// Why a chain was not completed.
enum Stop {
    /// This READ failed.
    Failed {
        read: usize,
        status: Status,
    },
    Lost(LostReason),
}

impl VerbsReader {
    /// A reader without regions and without a connection.
    ///
    /// # Errors
    ///
    /// [`ResourceError`] if the device or the system lacks a resource.
    pub fn new(device: &Device, limits: ReaderLimits) -> Result<Self, ResourceError> {
        let lacks = |what| move |cause| ResourceError { device: device.name().to_owned(), what, cause };
        let pd = ProtectionDomain::new(device.context()).map_err(lacks("a protection domain"))?;
        let depth = limits.reads.clamp(1, device.max_requests());
        let queue_pair = QueuePair::new(&pd, depth).map_err(lacks("a queue pair"))?;
        let bytes = limits.buffer_bytes.max(1).next_multiple_of(PAGE_BYTES);
        let arena = Arena::new(bytes).map_err(lacks("memory for what is read"))?;
        let arena = Registration::new(&pd, arena, sys::ACCESS_LOCAL_WRITE)
            .map_err(lacks("registered memory for what is read (is RLIMIT_MEMLOCK too low?)"))?;
        let reads = Reads::new(queue_pair, arena);
        Ok(Self {
            device: device.clone(),
            patience: limits.patience,
            longest_read: longest_read(device),
            regions: HashMap::new(),
            pieces: Vec::with_capacity(reads.depth()),
            link: Link::Down,
            suspect: None,
            reads,
        })
    }

    /// Ends the connection, if there is one, and prepares for a new one. Returns the endpoint to send to the peer.
    /// `psn`, which is random, is the first packet sequence number. The device's address is read anew.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] from the device. It may have been unplugged: open it again. With [`ConnectError::Unusable`] it
    /// has no active port or no address now: try again.
    pub fn reset(&mut self, psn: PacketSequence) -> Result<Endpoint, ConnectError> {
        self.link = Link::Down;
        self.reads.reset().map_err(ConnectError::device("reset"))?;
        self.device = self.device.refresh()?;
        self.longest_read = longest_read(&self.device);
        let own = connect::prepare(self.reads.queue_pair(), &self.device, Role::Initiator, psn)?;
        self.link = Link::Prepared(own);
        Ok(own)
    }

    /// Connects to `peer`, which has got the endpoint from [`VerbsReader::reset`]. Only the first fetch shows whether
    /// the peer responds.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]; reset again then.
    pub fn connect(&mut self, peer: &Endpoint) -> Result<(), ConnectError> {
        let Link::Prepared(own) = self.link else { return Err(ConnectError::NotReset) };
        self.link = Link::Down;
        connect::connect(self.reads.queue_pair(), &self.device, &own, peer)?;
        self.link = Link::Up;
        Ok(())
    }

    /// Whether a fetch would be attempted.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        matches!(self.link, Link::Up)
    }

    /// Fills the chain with the next part of the batch. Returns false if nothing is left.
    fn fill(&mut self, batch: &mut [RegionBuffer], cursor: &mut Cursor) -> Result<bool, LostReason> {
        self.reads.begin().map_err(|cause| LostReason::Device { step: "take READs", cause })?;
        self.pieces.clear();
        while let Some(buffer) = batch.get_mut(cursor.buffer) {
            if cursor.first == 0 {
                buffer.status = FetchStatus::Pending;
            }
            let remote = match self.remote(buffer) {
                Ok(remote) => remote,
                Err(error) => {
                    buffer.status = FetchStatus::Failed(error);
                    *cursor = Cursor { buffer: cursor.buffer + 1, ..Cursor::default() };
                    continue;
                }
            };
            let run = buffer.runs.get(cursor.run).unwrap_or_default();
            let left = run.len() - cursor.of_run;
            let words = left.min(self.longest_read).min(self.reads.words_left());
            let address = remote.address.wrapping_add(((run.start + cursor.of_run) * SLOT_BYTES) as u64);
            if !self.reads.push(address, remote.rkey, words) {
                break;
            }
            let last = cursor.first + words == buffer.words.len();
            self.pieces.push(Piece { buffer: cursor.buffer, first: cursor.first, words, last });
            *cursor = if last {
                Cursor { buffer: cursor.buffer + 1, ..Cursor::default() }
            } else if words == left {
                Cursor { first: cursor.first + words, run: cursor.run + 1, of_run: 0, ..*cursor }
            } else {
                Cursor { first: cursor.first + words, of_run: cursor.of_run + words, ..*cursor }
            };
        }
        Ok(self.reads.chained() > 0)
    }

    fn remote(&self, buffer: &RegionBuffer) -> Result<RemoteRegion, RegionError> {
        let remote = *self.regions.get(&buffer.region).ok_or(RegionError::NotAttached)?;
        if remote.revoked {
            return Err(RegionError::Revoked);
        }
        buffer.check(remote.words)?;
        Ok(remote)
    }

    /// Posts the chain and waits until all of it is completed.
    fn run(&mut self) -> Result<(), Stop> {
        let refused = |step| move |cause| Stop::Lost(LostReason::Device { step, cause });
        self.reads.post().map_err(refused("take READs"))?;
        let (mut wait, mut is_over) = (Wait::default(), false);
        loop {
            match self.reads.poll().map_err(refused("say what became of READs"))? {
                Progress::Done => return Ok(()),
                Progress::Failed { read, status } => return Err(Stop::Failed { read, status: Status(status) }),
                Progress::InFlight if is_over => return Err(Stop::Lost(LostReason::Silent(self.patience))),
                // Poll once more after that: this thread may have been preempted while the device was not.
                Progress::InFlight => is_over = wait.is_over(self.patience),
            }
        }
    }

    /// Copies what the first `reads` READs of the chain have fetched into the buffers.
    fn deliver(&mut self, batch: &mut [RegionBuffer], reads: usize) {
        let mut fetched = self.reads.fetched();
        for piece in self.pieces.iter().take(reads) {
            let (words, rest) = fetched.split_at(piece.words);
            fetched = rest;
            let buffer = &mut batch[piece.buffer];
            buffer.words[piece.first..][..piece.words].copy_from_slice(words);
            if piece.last {
                buffer.status = FetchStatus::Fetched;
                self.suspect = self.suspect.filter(|suspect| *suspect != buffer.region);
            }
        }
    }

    /// Whether READ number `read` failed because of its region. If the status is ambiguous, the connection is blamed
    /// first, and the region if the next connection ends at it, too. So a region that cannot be read does not starve
    /// the others for ever.
    fn is_fault_of_region(&mut self, batch: &[RegionBuffer], read: usize, status: Status) -> bool {
        match status.blame() {
            Blame::Region => true,
            Blame::Connection => false,
            Blame::Either => {
                let region = self.pieces.get(read).map(|piece| batch[piece.buffer].region);
                let again = region.is_some() && self.suspect == region;
                self.suspect = region.filter(|_| !again);
                again
            }
        }
    }

    /// Ends the connection after READ number `read` was refused. READs before it have arrived; its region is excluded
    /// from now on.
    fn exclude_region(&mut self, batch: &mut [RegionBuffer], read: usize) -> Result<(), LostReason> {
        self.link = Link::Down;
        self.reads.reset().map_err(|cause| LostReason::Device { step: "reset the queue pair", cause })?;
        self.deliver(batch, read);
        if let Some(piece) = self.pieces.get(read) {
            batch[piece.buffer].status = FetchStatus::Failed(RegionError::Revoked);
            if let Some(remote) = self.regions.get_mut(&batch[piece.buffer].region) {
                remote.revoked = true;
            }
        }
        Ok(())
    }

    fn fetch_all(&mut self, batch: &mut [RegionBuffer]) -> Result<(), LostReason> {
        if !self.is_connected() {
            return Err(LostReason::NotConnected);
        }
        let mut cursor = Cursor::default();
        while self.fill(batch, &mut cursor)? {
            match self.run() {
                Ok(()) => self.deliver(batch, self.pieces.len()),
                Err(Stop::Lost(reason)) => return Err(reason),
                Err(Stop::Failed { read, status }) if !self.is_fault_of_region(batch, read, status) => {
                    return Err(LostReason::GaveUp(status));
                }
                Err(Stop::Failed { read, .. }) => {
                    self.exclude_region(batch, read)?;
                    self.fail_rest(batch, &cursor);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Sets the status of each region that has not been read.
    fn fail_rest(&self, batch: &mut [RegionBuffer], cursor: &Cursor) {
        for (n, buffer) in batch.iter_mut().enumerate() {
            if n >= cursor.buffer || buffer.status == FetchStatus::Pending {
                buffer.status = FetchStatus::Failed(self.remote(buffer).err().unwrap_or(RegionError::Interrupted));
            }
        }
    }
}

/// The longest READ of a device, in words.
fn longest_read(device: &Device) -> usize {
    (device.max_message() / SLOT_BYTES).max(1)
}

impl RegionReader for VerbsReader {
    fn name(&self) -> &'static str {
        "verbs"
    }

    fn attach(&mut self, region: RegionId, size: RegionSize, access: Access) -> Result<(), AttachError> {
        let Entry::Vacant(place) = self.regions.entry(region) else {
            return Err(AttachError::Attached(region));
        };
        let Access::Remote { address, rkey, bytes } = access else {
            return Err(AttachError::Access { reader: "verbs", needed: "an address and a key", given: access.name() });
        };
        if bytes != size.bytes() as u64 {
            return Err(AttachError::Size { announced: size, found: bytes });
        }
        place.insert(RemoteRegion { address, rkey, words: size.words(), revoked: false });
        Ok(())
    }

    fn detach(&mut self, region: RegionId) {
        self.regions.remove(&region);
    }

    fn fetch(&mut self, batch: &mut [RegionBuffer]) -> Result<(), BatchError> {
        self.fetch_all(batch).map_err(|reason| {
            if !matches!(self.link, Link::Prepared(_)) {
                self.link = Link::Down;
            }
            BatchError::Lost(Some(io::Error::other(reason)))
        })
    }
}

/// Waits for completions, which usually take microseconds and rarely milliseconds: spins first, then yields the core,
/// then sleeps.
#[derive(Debug, Default)]
struct Wait {
    polls: u32,
    since: Option<Stopwatch>,
}

impl Wait {
    /// Polls that only spin: some microseconds.
    const SPINS: u32 = 200;
    /// Polls that yield the core: some 100 µs.
    const YIELDS: u32 = 300;
    /// Sleep between later polls: short compared with any interval that makes such a wait worthwhile.
    const NAP: Duration = Duration::from_micros(50);

    /// Waits a little. Returns whether `patience` is over.
    fn is_over(&mut self, patience: Duration) -> bool {
        let since = *self.since.get_or_insert_with(Stopwatch::start);
        self.polls = self.polls.saturating_add(1);
        if self.polls < Self::SPINS {
            core::hint::spin_loop();
            return false;
        }
        if self.polls < Self::SPINS + Self::YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Self::NAP);
        }
        since.elapsed() > patience
    }
}
