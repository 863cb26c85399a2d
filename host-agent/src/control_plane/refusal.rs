//! Why something that a service asked for is not taken. Each text ends with what can be done about it where that is not plain.

use wire::layout::{RegionSizeError, VERSION};
use wire::name::ServiceName;
use wire::registration::RefusedSeries;

/// Why a hello is not taken. The connection is closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloRefusal {
    /// Too many connections.
    #[error("{limit} connections of services are open, more are not taken: raise limits.connections or close some")]
    Connections {
        /// How many there may be.
        limit: usize,
    },
    /// Something came before the hello.
    #[error("the first message of a connection is a hello")]
    Missing,
    /// Nothing came in time.
    #[error("no hello came in time")]
    Late,
    /// A second one.
    #[error("a connection says hello once")]
    Twice,
    /// The name is someone else's.
    #[error(
        "process {pid} of user {uid} may not register as {service}: add a rule to `identities` in the host agent's configuration"
    )]
    Identity {
        /// The name that it gave.
        service: ServiceName,
        /// Its process.
        pid: u32,
        /// Its user.
        uid: u32,
    },
    /// Too many replicas.
    #[error("{service} has {limit} replicas on this node, more are not taken")]
    Replicas {
        /// Of which service.
        service: ServiceName,
        /// How many there may be.
        limit: usize,
    },
}

/// Why a region is not taken. Everything else of the connection stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionRefusal {
    /// No descriptor.
    #[error("no descriptor came with it")]
    NoDescriptor,
    /// A descriptor of something else.
    #[error("{0}")]
    Descriptor(String),
    /// Written by a later client.
    #[error("layout version {0}, this agent knows {VERSION}: upgrade the agent first")]
    Layout(u64),
    /// The number is the agent's own.
    #[error("regions are numbered upwards from 0")]
    Number,
    /// The number is in use.
    #[error("this region was added before")]
    Twice,
    /// Too many of them.
    #[error("a replica may have {limit} regions: use larger ones")]
    TooMany {
        /// How many there may be.
        limit: usize,
    },
    /// Too much memory.
    #[error("with it the service's regions are {bytes} bytes, {limit} are allowed")]
    Bytes {
        /// How many there would be.
        bytes: u64,
        /// How many there may be.
        limit: u64,
    },
    /// The agent could not make its own region.
    #[error(transparent)]
    Size(#[from] RegionSizeError),
}

/// Why a series is not taken. Everything else of the connection stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SeriesRefusal {
    /// Its name, label, unit or kind.
    #[error(transparent)]
    Malformed(#[from] RefusedSeries),
    /// Its region was not added or not taken.
    #[error("region {region} is not registered")]
    NoRegion {
        /// Which.
        region: u32,
    },
    /// Its slots are not in its region.
    #[error("slots {first} and {slots} on are outside region {region}, which has {held}")]
    Outside {
        /// Which region.
        region: u32,
        /// The first slot.
        first: u32,
        /// How many it takes.
        slots: u32,
        /// How many the region has.
        held: u32,
    },
    /// Its slots are another's.
    #[error("slot {first} of region {region} is {}", if *.retired { "retired and not yet released" } else { "another series'" })]
    Occupied {
        /// Which region.
        region: u32,
        /// Where what is in the way begins.
        first: u32,
        /// Whether it is waiting to be released.
        retired: bool,
    },
    /// It was registered at another place.
    #[error("this series is registered at another place: retire that one first")]
    Elsewhere,
    /// The metric is of another kind.
    #[error("this metric is a {known}, not a {asked}: choose another name, or stop the replicas that use the old one")]
    Kind {
        /// What it is.
        known: String,
        /// What was asked.
        asked: String,
    },
    /// Too many series.
    #[error("the service has {limit} series, more are not taken: use fewer label values")]
    TooMany {
        /// How many there may be.
        limit: usize,
    },
    /// Too much text.
    #[error("names and labels of the service's series take {limit} bytes, more are not kept: shorten them")]
    Text {
        /// How many there may be.
        limit: usize,
    },
    /// Too many places.
    #[error("the replicas of the service have {limit} series together, more are not taken")]
    Places {
        /// How many there may be.
        limit: usize,
    },
}
