//! The kinds of request and response, as named in the file.

use packets::Pair;
use serde::Deserialize;

/// [`Pair`], as named in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PairName {
    /// Handshakes of TCP connections.
    Handshake,
    /// TCP data and its acknowledgement.
    Data,
    /// TCP connections, from beginning to end.
    Flow,
    /// DNS queries and their responses.
    Dns,
    /// NTP queries and their responses.
    Ntp,
}

impl From<PairName> for Pair {
    fn from(name: PairName) -> Self {
        match name {
            PairName::Handshake => Self::Handshake,
            PairName::Data => Self::Data,
            PairName::Flow => Self::Flow,
            PairName::Dns => Self::Dns,
            PairName::Ntp => Self::Ntp,
        }
    }
}
