//! How a worker on the service's host gets at a region's memory: a blocking client of the host agent's regions socket.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use prost::Message as _;
use region::passing;
use wire::frame::{self, FrameError, Frames};
use wire::id::{Incarnation, RegionId};
use wire::layout::RegionSize;
use wire::proto::attach::{AttachReply, AttachRequest};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// A connection to the regions socket. One request at a time; blocks for at most two seconds, so use it off the worker's thread.
#[derive(Debug)]
pub struct Attacher {
    socket: UnixStream,
}

/// Why a region's descriptor was not got.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The host agent is gone or does not answer. Connect again.
    #[error("the regions socket failed")]
    Socket(#[from] io::Error),
    /// The host agent says no. The connection stays usable.
    #[error("the host agent does not give {region}: {problem}")]
    Refused {
        /// Which region.
        region: RegionId,
        /// Its words.
        problem: String,
    },
    /// Another region than the one of the configuration. The connection stays usable.
    #[error("{region} has {found} bytes, {} were configured", .wanted.bytes())]
    Size {
        /// Which region.
        region: RegionId,
        /// As configured.
        wanted: RegionSize,
        /// What the host agent says.
        found: u64,
    },
    /// It does not speak the protocol. Connect again.
    #[error("the answer is {0}")]
    Garbage(&'static str),
}

impl From<FrameError> for RequestError {
    fn from(_: FrameError) -> Self {
        Self::Garbage("longer than allowed")
    }
}

impl From<prost::DecodeError> for RequestError {
    fn from(_: prost::DecodeError) -> Self {
        Self::Garbage("no reply")
    }
}

impl Attacher {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    ///
    /// What the system said: no host agent is listening there, or this user may not ask it.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        let socket = UnixStream::connect(path)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { socket })
    }

    /// A read-only descriptor of `region`, which the run `host` of the host agent named and which is to have `size`.
    ///
    /// # Errors
    ///
    /// [`RequestError`] with what can be done. The descriptor itself is checked where it is mapped.
    pub fn request(&mut self, host: Incarnation, region: RegionId, size: RegionSize) -> Result<OwnedFd, RequestError> {
        let mut bytes = Vec::new();
        frame::encode(&AttachRequest { host_incarnation: host.0, region: region.0 }, &mut bytes)?;
        let mut sent = 0;
        while sent < bytes.len() {
            sent += passing::send(&self.socket, &bytes[sent..], None)?;
        }
        let (reply, descriptor) = self.receive()?;
        if reply.region != region.0 {
            return Err(RequestError::Garbage("for another region"));
        }
        if !reply.problem.is_empty() {
            return Err(RequestError::Refused { region, problem: reply.problem });
        }
        if reply.bytes != size.bytes() as u64 {
            return Err(RequestError::Size { region, wanted: size, found: reply.bytes });
        }
        descriptor.ok_or(RequestError::Garbage("without a descriptor"))
    }

    /// The next reply and the descriptor that came with it.
    fn receive(&mut self) -> Result<(AttachReply, Option<OwnedFd>), RequestError> {
        let mut frames = Frames::default();
        let mut descriptors = Vec::new();
        let mut buffer = [0; 512];
        loop {
            let got = passing::receive(&self.socket, &mut buffer, &mut descriptors)?;
            if got == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            frames.push(&buffer[..got]);
            if let Some(frame) = frames.next_frame()? {
                let reply = AttachReply::decode(frame)?;
                if frames.pending() > 0 {
                    return Err(RequestError::Garbage("followed by another that nobody asked for"));
                }
                return Ok((reply, descriptors.into_iter().next()));
            }
            descriptors.truncate(1);
        }
    }
}
