//! Captured frames.

/// Ethernet's header with two tags.
const LONGEST_HEADER: u32 = 14 + 8;

/// Link type: the header that a frame begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// An Ethernet header.
    Ethernet,
    /// An IP header.
    Ip,
    /// The Linux "cooked" header of captures on all interfaces, version 1.
    Cooked,
}

impl Link {
    /// The link type with this number in capture files; `None` if it is not supported.
    #[must_use]
    pub const fn of_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Ethernet),
            // LINKTYPE_RAW, and what the BSDs write for it, LINKTYPE_IPV4, LINKTYPE_IPV6.
            101 | 12 | 14 | 228 | 229 => Some(Self::Ip),
            113 => Some(Self::Cooked),
            _ => None,
        }
    }

    /// Its number in capture files.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Ethernet => 1,
            Self::Ip => 101,
            Self::Cooked => 113,
        }
    }
}

/// One captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The captured bytes, from the frame's beginning.
    pub bytes: &'a [u8],
    /// Length on the wire in bytes.
    pub length: u32,
    /// Timestamp in nanoseconds since 1970, by the capturing clock.
    pub time_ns: u64,
    /// Link type of the interface or capture.
    pub link: Link,
}

impl Frame<'_> {
    /// Whether a NIC or the kernel merged it from several frames on the wire (TSO, GSO, GRO): it is longer than `mtu`
    /// bytes and the longest link header, Ethernet's with two tags. Always false for a "cooked" frame, which may be of
    /// another interface.
    #[must_use]
    pub fn is_merged(&self, mtu: u32) -> bool {
        self.length > mtu.saturating_add(LONGEST_HEADER) && self.link != Link::Cooked
    }
}
