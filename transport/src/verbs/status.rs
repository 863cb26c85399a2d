//! What a device says of a READ that it did not do.

use core::fmt;

/// `enum ibv_wc_status` of a completion that is no success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// This end could not carry it out; with soft-RoCE, where a packet could not be sent.
    pub const LOCAL_OPERATION: Self = Self(2);
    /// The buffer is not in this end's registered memory.
    pub const LOCAL_PROTECTION: Self = Self(4);
    /// Never tried: another READ failed before it, or the connection was down already.
    pub const FLUSHED: Self = Self(5);
    /// The peer's device takes the READ for nonsense.
    pub const REMOTE_INVALID: Self = Self(9);
    /// The key is wrong or no longer valid, or the address is outside of what it is for.
    pub const REMOTE_ACCESS: Self = Self(10);
    /// The peer's device could not do it.
    pub const REMOTE_OPERATION: Self = Self(11);
    /// The peer did not answer.
    pub const RETRIES_EXCEEDED: Self = Self(12);

    /// Whether it says something about that READ, and not about the connection.
    #[must_use]
    pub fn is_of_one_read(self) -> bool {
        [Self::LOCAL_PROTECTION, Self::REMOTE_INVALID, Self::REMOTE_ACCESS, Self::REMOTE_OPERATION].contains(&self)
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
