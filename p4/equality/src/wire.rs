//! The interpreter between two interfaces: what arrives at one leaves by the port that the program says, as in a switch
//! whose ports 0 and 1 they are. Frames wait until the kernel passes on what it has captured, about a millisecond.
//!
//! Frames have to be as on a wire. One that a card or the kernel has merged is an error. A checksum that the kernel
//! leaves to the card stays unfinished, and a receiver refuses the packet. At the interfaces that send to the switch,
//! `ethtool -K IFACE tso off gso off gro off tx off` prevents both.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use packets::ring::{FrameSender, Ring, RingError, RingSettings};
use packets::{Frame, Source as _, SourceError};
use thiserror::Error;

use crate::control::Switch;
use crate::frames::Captured;
use crate::interpreter::Fault;

/// How long the kernel keeps a frame that does not fill a block: as short as it can be.
const DEADLINE: Duration = Duration::from_millis(1);

/// Why a switch does not go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WireError {
    /// The program does what a switch cannot do.
    #[error("the program does what a switch cannot do")]
    Fault(#[from] Fault),
    /// An interface is gone.
    #[error("cannot read the interface {0}")]
    Read(String, #[source] SourceError),
    /// A frame that was on no wire.
    #[error(
        "a frame of {length} bytes at {interface}, whose packets have at most {mtu}: the kernel has merged it; \
         `ethtool -K IFACE tso off gso off gro off` at the interface that sent it"
    )]
    Merged {
        /// The interface at which it arrived.
        interface: String,
        /// Its length in bytes.
        length: u32,
        /// The interface's MTU in bytes.
        mtu: u32,
    },
}

/// An interface of a switch.
#[derive(Debug)]
struct Port {
    interface: String,
    ring: Ring,
    mtu: u32,
}

/// Two interfaces, which are ports 0 and 1 of a switch.
#[derive(Debug)]
pub struct Wire {
    ports: [Port; 2],
    senders: [FrameSender; 2],
}

impl Wire {
    /// Opens the interfaces. What arrives from now on is forwarded once it [runs](Self::run).
    ///
    /// # Errors
    ///
    /// [`RingError`], mostly for lack of privileges.
    pub fn open(interfaces: [&str; 2]) -> Result<Self, RingError> {
        let [first, second] = interfaces;
        let senders = [FrameSender::open(first)?, FrameSender::open(second)?];
        Ok(Self { ports: [port(first)?, port(second)?], senders })
    }

    /// Forwards frames by `switch` until `stop` is set.
    ///
    /// # Errors
    ///
    /// [`WireError`]. Frames before it were forwarded.
    pub fn run(self, switch: &Switch, stop: &AtomicBool) -> Result<(), WireError> {
        let Self { ports: [first, second], senders } = self;
        let ended = AtomicBool::new(false);
        let goes_on = || !stop.load(Ordering::Acquire) && !ended.load(Ordering::Acquire);
        let forward = |number: u16, mut port: Port| {
            let mut outcome = Ok(());
            while outcome.is_ok() && goes_on() {
                outcome = port.forward(number, switch, &senders);
            }
            // Neither direction goes on alone.
            ended.store(true, Ordering::Release);
            outcome
        };
        thread::scope(|scope| {
            let other = scope.spawn(|| forward(1, second));
            let one = forward(0, first);
            match other.join() {
                Ok(other) => one.and(other),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

fn port(interface: &str) -> Result<Port, RingError> {
    let name = interface.to_owned();
    // The reader may stall for as many deadlines as there are blocks.
    let settings = RingSettings {
        interface: name.clone(),
        block_bytes: 1 << 14,
        blocks: 256,
        deadline: DEADLINE,
        incoming: true,
        ..RingSettings::default()
    };
    let ring = Ring::open(&settings)?;
    let mtu = ring.mtu().map_err(|cause| RingError::System { what: "query the MTU", cause })?;
    Ok(Port { interface: name, ring, mtu })
}

impl Port {
    /// Forwards what has arrived, if something arrives in time.
    fn forward(&mut self, number: u16, switch: &Switch, senders: &[FrameSender; 2]) -> Result<(), WireError> {
        let (interface, mtu) = (&self.interface, self.mtu);
        let mut outcome = Ok(());
        let read = self.ring.read(&mut |frame| {
            if outcome.is_ok() {
                outcome = if frame.is_merged(mtu) {
                    Err(WireError::Merged { interface: interface.clone(), length: frame.length, mtu })
                } else {
                    pass(number, frame, switch, senders)
                };
            }
        });
        let _ = read.map_err(|error| WireError::Read(interface.clone(), error))?;
        outcome
    }
}

fn pass(port: u16, frame: &Frame<'_>, switch: &Switch, senders: &[FrameSender; 2]) -> Result<(), WireError> {
    let captured = Captured { time_ns: frame.time_ns, bytes: frame.bytes.to_vec() };
    let Some(sent) = switch.forward(port, &captured)? else { return Ok(()) };
    if let Some(sender) = senders.get(usize::from(sent.port)) {
        // What a full queue does not take is lost, as in any switch.
        let _ = sender.send(&sent.bytes);
    }
    Ok(())
}
