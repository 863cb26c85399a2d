//! Client of the host agent's regions socket, through which a worker on the service's host gets a region's memory.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use prost::Message as _;
use region::fd_passing;
use wire::frame::{self, FrameError, Frames};
use wire::id::{Incarnation, RegionId};
use wire::layout::RegionSize;
use wire::proto::attach::{AttachReply, AttachRequest};

/// How long a reply may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// A connection to the regions socket. Sends one request at a time and blocks for at most two seconds, so do not use it
/// on the worker's thread.
#[derive(Debug)]
pub struct Attacher {
    socket: UnixStream,
}

/// Why a request for a region's descriptor failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The host agent is gone or does not reply. Connect again.
    #[error("the regions socket failed")]
    Socket(#[from] io::Error),
    /// The host agent refused the request. The connection stays usable.
    #[error("the host agent does not give {region}: {problem}")]
    Refused {
        /// The requested region.
        region: RegionId,
        /// The reason that the host agent gave.
        problem: String,
    },
    /// The region's size differs from the configured one. The connection stays usable.
    #[error("{region} has {found} bytes, {} were configured", .wanted.bytes())]
    Size {
        /// The requested region.
        region: RegionId,
        /// The configured size.
        wanted: RegionSize,
        /// The size that the host agent reported, in bytes.
        found: u64,
    },
    /// The reply violates the protocol. Connect again.
    #[error("the reply of the regions socket is {0}")]
    Malformed(&'static str),
}

impl From<FrameError> for RequestError {
    fn from(_: FrameError) -> Self {
        Self::Malformed("longer than allowed")
    }
}

impl From<prost::DecodeError> for RequestError {
    fn from(_: prost::DecodeError) -> Self {
        Self::Malformed("no valid message")
    }
}

impl Attacher {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    ///
    /// The error of the system: no host agent listens there, or this user may not connect.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        let socket = UnixStream::connect(path)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { socket })
    }

    /// Requests a read-only descriptor of `region`, which the run `host` of the host agent named and which has to have
    /// `size`.
    ///
    /// # Errors
    ///
    /// [`RequestError`]; each variant says what to do. The descriptor itself is checked when it is mapped.
    pub fn request(&mut self, host: Incarnation, region: RegionId, size: RegionSize) -> Result<OwnedFd, RequestError> {
        let mut bytes = Vec::new();
        frame::encode(&AttachRequest { host_incarnation: host.0, region: region.0 }, &mut bytes)?;
        let mut sent = 0;
        while sent < bytes.len() {
            sent += fd_passing::send(&self.socket, &bytes[sent..], None)?;
        }
        let (reply, descriptor) = self.receive()?;
        if reply.region != region.0 {
            return Err(RequestError::Malformed("for another region"));
        }
        if !reply.problem.is_empty() {
            return Err(RequestError::Refused { region, problem: reply.problem });
        }
        if reply.bytes != size.bytes() as u64 {
            return Err(RequestError::Size { region, wanted: size, found: reply.bytes });
        }
        descriptor.ok_or(RequestError::Malformed("without a descriptor"))
    }

    /// The next reply and the descriptor that came with it.
    fn receive(&mut self) -> Result<(AttachReply, Option<OwnedFd>), RequestError> {
        let mut frames = Frames::default();
        let mut descriptors = Vec::new();
        let mut buffer = [0; 512];
        loop {
            let got = fd_passing::receive(&self.socket, &mut buffer, &mut descriptors)?;
            if got == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            frames.push(&buffer[..got]);
            if let Some(frame) = frames.next_frame()? {
                let reply = AttachReply::decode(frame)?;
                if frames.pending() > 0 {
                    return Err(RequestError::Malformed("followed by another, unrequested one"));
                }
                return Ok((reply, descriptors.into_iter().next()));
            }
            descriptors.truncate(1);
        }
    }
}
