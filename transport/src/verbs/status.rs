//! What a device says of a READ that it did not do, and whose fault that is.

use core::fmt;

/// `enum ibv_wc_status` of a completion that is no success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

/// Whose fault a READ's failure is. The connection is over in any case; what differs is whether to read that region over the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The region's: whatever the connection, it cannot be read by this key at this address.
    Region,
    /// The connection's, or that of one of its ends: the next connection may do it.
    Connection,
    /// The status does not say.
    Either,
}

impl Status {
    /// This end could not carry it out; with soft-RoCE, where a packet could not be sent.
    pub const LOCAL_OPERATION: Self = Self(2);
    /// The buffer is not in this end's registered memory.
    pub const LOCAL_PROTECTION: Self = Self(4);
    /// Never tried: another READ failed before it, or the connection was down already.
    pub const FLUSHED: Self = Self(5);
    /// The peer's device takes the READ for invalid: its queue pair answers no READs, or not so many at a time, or none so long.
    pub const REMOTE_INVALID: Self = Self(9);
    /// The key is wrong or no longer valid, or the address is outside of what it is for.
    pub const REMOTE_ACCESS: Self = Self(10);
    /// The peer's device could not do it: memory that it cannot read, or an error of its own.
    pub const REMOTE_OPERATION: Self = Self(11);
    /// The peer did not answer.
    pub const RETRIES_EXCEEDED: Self = Self(12);

    /// Whose fault it is. Only wrong keys and addresses were seen to be the region's; what the specification has for errors of the peer's
    /// device as well as for what it was asked is nobody's for sure.
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
