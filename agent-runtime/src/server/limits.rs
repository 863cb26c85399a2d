//! What the connections of a server are for, and what follows from it: how many, how long, how much of each.

use std::time::Duration;

use super::exchanges::Patience;

/// Time limit for the first request of a connection, for the head of each, and for an idle connection over HTTP/1.
pub(super) const FIRST_REQUEST: Duration = Duration::from_secs(20);
/// Time limit for each piece of a page to be read.
const PAGE_READ: Duration = Duration::from_secs(10);
/// Time limit for an idle connection over HTTP/2 whose client connects again by itself.
const IDLE: Duration = Duration::from_mins(10);

/// How many connections a server takes, and what for.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Concurrent connections of all peers. One of them may have three times what is free.
    pub connections: usize,
    /// Most concurrent connections of one user of this machine, or from one address of another one.
    pub connections_per_peer: usize,
    /// What they are for.
    pub traffic: Traffic,
}

/// What connections are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Pages, and other replies that whoever asks reads at once: a few at a time. A connection of which a reply is not
    /// read for 10 s is closed, and so is one without a request for 10 min: clients connect again.
    Pages,
    /// Calls, some of which are streams that may rest.
    Streams,
}

impl Traffic {
    pub(super) const fn http(self) -> HttpLimits {
        match self {
            Self::Pages => HttpLimits { requests: 4, head_bytes: 16 << 10 },
            Self::Streams => HttpLimits { requests: 64, head_bytes: 32 << 10 },
        }
    }

    pub(super) const fn patience(self) -> Patience {
        let (reply, idle) = match self {
            Self::Pages => (Some(PAGE_READ), Some(IDLE)),
            Self::Streams => (None, None),
        };
        Patience { first_request: FIRST_REQUEST, reply, idle }
    }
}

/// What one connection may ask for.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// Concurrent requests over HTTP/2.
    pub requests: u32,
    /// Maximum bytes of the head of a request, at least 8,192.
    pub head_bytes: u32,
}
