//! The status of a failed READ, and whose fault the failure is.

use core::fmt;

/// The status of a failed completion: a value of `enum ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

/// Whose fault a READ's failure is. The connection is over in any case; the fault decides whether to read that region
/// over the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The region's: no connection can read it by this key at this address.
    Region,
    /// The connection's, or one of its ends': the next connection may succeed.
    Connection,
    /// Ambiguous: the status fits both.
    Either,
}

impl Status {
    /// This end could not execute it; with soft-RoCE, a packet could not be sent.
    pub const LOCAL_OPERATION: Self = Self(2);
    /// The buffer is not in this end's registered memory.
    pub const LOCAL_PROTECTION: Self = Self(4);
    /// Never attempted: another READ failed before it, or the connection was down already.
    pub const FLUSHED: Self = Self(5);
    /// The peer's device rejects the READ as invalid: its queue pair allows no READs, not as many at a time, or none as
    /// long.
    pub const REMOTE_INVALID: Self = Self(9);
    /// The key is wrong or no longer valid, or the address is outside the registration.
    pub const REMOTE_ACCESS: Self = Self(10);
    /// The peer's device could not execute it: unreadable memory, or an internal error.
    pub const REMOTE_OPERATION: Self = Self(11);
    /// The peer did not respond to any retry.
    pub const RETRIES_EXCEEDED: Self = Self(12);

    /// Whose fault it is. Only wrong keys and addresses were seen to be the region's. Statuses that the specification
    /// uses both for errors of the peer's device and for bad requests are ambiguous.
    #[must_use]
    pub const fn blame(self) -> Blame {
        match self {
            Self::REMOTE_ACCESS => Blame::Region,
            Self::REMOTE_INVALID | Self::REMOTE_OPERATION => Blame::Either,
            _ => Blame::Connection,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match *self {
            Self::LOCAL_OPERATION => "this end cannot send",
            Self::LOCAL_PROTECTION => "the buffer is not registered",
            Self::FLUSHED => "the connection was down",
            Self::REMOTE_INVALID => "the peer takes the request for invalid",
            Self::REMOTE_ACCESS => "the peer refuses access",
            Self::REMOTE_OPERATION => "the peer cannot do it",
            Self::RETRIES_EXCEEDED => "no answer from the peer",
            Self(_) => "an error",
        };
        write!(f, "{text} (status {})", self.0)
    }
}
