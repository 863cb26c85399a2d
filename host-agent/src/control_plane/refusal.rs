//! Why a request of a service is refused. The texts say what to do about it.

use agent_runtime::shares::ShareError;
use wire::id::Owner;
use wire::layout::{RegionSizeError, VERSION};
use wire::name::ServiceName;
use wire::registration::RefusedSeries;
use wire::time::Nanos;

/// Why a hello is refused. The connection is closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloRefusal {
    /// The owner's share of connections, or of services, is taken.
    #[error(transparent)]
    Share(#[from] ShareError<Owner>),
    /// The owner registers replicas too fast.
    #[error(
        "{owner} has registered all replicas that it may at once, and more than {limit} per second: try again in {wait}, or raise services.limits.registrations_per_s"
    )]
    Rate {
        /// The owner that registers.
        owner: Owner,
        /// The limit, per second.
        limit: u32,
        /// When the next one is accepted.
        wait: Nanos,
    },
    /// Another message came before the hello.
    #[error("the first message of a connection must be a hello")]
    Missing,
    /// No hello came in time.
    #[error("no hello in time")]
    Late,
    /// A second hello on one connection.
    #[error("a second hello on one connection")]
    Twice,
    /// No rule lets this process register as the service.
    #[error(
        "process {pid} of user {uid} may not register as {service}: add a rule to services.identities in the host agent's configuration"
    )]
    Identity {
        /// The service in the hello.
        service: ServiceName,
        /// The process id.
        pid: u32,
        /// The user id.
        uid: u32,
    },
    /// The process is in a pod that does not let it register.
    #[error("{0}")]
    Pod(String),
    /// The name is that of a pod, and the process is not of it.
    #[error(
        "{service} is the name of pods: this process is {own}; leave the namespace out, and it gets the name of its pod"
    )]
    OtherPod {
        /// The service in the hello.
        service: ServiceName,
        /// Whose the process is: `of shop/payment`, or `in no pod`.
        own: String,
    },
    /// An LMAP over several services has this name.
    #[error(
        "{service} is the name of an LMAP over several services: register under another one, or have an operator give that LMAP another one"
    )]
    OverSeveral {
        /// The service in the hello.
        service: ServiceName,
    },
    /// The limit of replicas is reached.
    #[error(
        "{service} has reached the limit of {limit} replicas on this node: raise services.limits.replicas_per_service"
    )]
    Replicas {
        /// The service in the hello.
        service: ServiceName,
        /// The limit of replicas per service.
        limit: usize,
    },
}

/// Why a region is refused. The connection stays open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionRefusal {
    /// No descriptor came with the message.
    #[error("no descriptor came with the message")]
    NoDescriptor,
    /// The descriptor is not a sealed memfd of the announced size.
    #[error("{0}")]
    Descriptor(String),
    /// The layout version is newer than this agent's.
    #[error("layout version {0} is newer than this agent's version {VERSION}: upgrade the agent first")]
    Layout(u64),
    /// The number is reserved for the agent's own region.
    #[error("this region number is reserved: number regions upwards from 0")]
    Number,
    /// The number is already in use.
    #[error("this region is already registered")]
    Twice,
    /// The limit of regions is reached.
    #[error("the replica has reached the limit of {limit} regions: use larger ones")]
    TooMany {
        /// The limit of regions per replica.
        limit: usize,
    },
    /// The limit of memory is exceeded.
    #[error("the service's regions would take {bytes} bytes, over the limit of {limit}")]
    Bytes {
        /// Bytes of the service's regions, with this one.
        bytes: u64,
        /// The limit of bytes per service.
        limit: u64,
    },
    /// The owner's share of regions, or of their bytes, is taken.
    #[error(transparent)]
    Share(#[from] ShareError<Owner>),
    /// The agent's own region has an invalid size.
    #[error(transparent)]
    Size(#[from] RegionSizeError),
}

/// Why a series is refused. The connection stays open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SeriesRefusal {
    /// The owner registers series too fast.
    #[error(
        "{owner} has registered all series that it may at once, and more than {limit} per second: register fewer, or raise services.limits.series_per_s; its service asks again in {wait} at the earliest"
    )]
    Rate {
        /// The owner that registers.
        owner: Owner,
        /// The limit, per second.
        limit: u32,
        /// When the next one is accepted.
        wait: Nanos,
    },
    /// Its name, a label, its unit or its kind is malformed.
    #[error(transparent)]
    Malformed(#[from] RefusedSeries),
    /// Its region was not registered.
    #[error("region {region} is not registered")]
    NoRegion {
        /// The region's number.
        region: u32,
    },
    /// Its slots are outside its region.
    #[error("{slots} slots from {first} on are outside region {region}, which has {held} slots")]
    Outside {
        /// The region's number.
        region: u32,
        /// The first slot.
        first: u32,
        /// Number of slots.
        slots: u32,
        /// Number of slots of the region.
        held: u32,
    },
    /// Its slots are occupied.
    #[error("slot {first} of region {region} is {}", if *.retired { "retired and not yet released" } else { "in use by another series" })]
    Occupied {
        /// The region's number.
        region: u32,
        /// First slot of the series in the way.
        first: u32,
        /// Whether that series is retired and not yet released.
        retired: bool,
    },
    /// The series is already registered at another place.
    #[error("this series is already registered at another place: retire that one first")]
    Elsewhere,
    /// Another replica registered the metric with another kind.
    #[error("this metric is a {known}, not a {asked}: choose another name, or stop the replicas that registered it so")]
    Kind {
        /// The registered kind.
        known: String,
        /// The kind in this message.
        asked: String,
    },
    /// The limit of series is reached.
    #[error("the service has reached the limit of {limit} series: use fewer label values")]
    TooMany {
        /// The limit of series per service.
        limit: usize,
    },
    /// The limit of text is reached.
    #[error("names and labels of the service's series have reached the limit of {limit} bytes: shorten them")]
    Text {
        /// Bytes of names and labels per service.
        limit: usize,
    },
    /// The owner's share of series is taken.
    #[error(transparent)]
    Share(#[from] ShareError<Owner>),
    /// The limit of places is reached.
    #[error("the replicas of the service have reached the limit of {limit} series in total")]
    Places {
        /// The limit of series summed over all replicas.
        limit: usize,
    },
}

/// When an owner that has its share may ask again: others may have left, or workers forgotten what it had before.
const SHARE_AGAIN: Nanos = Nanos::from_secs(60);

impl SeriesRefusal {
    /// When the series may be taken; `None`: not without a change.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Nanos> {
        match self {
            Self::Rate { wait, .. } => Some(*wait),
            Self::Share(_) => Some(SHARE_AGAIN),
            _ => None,
        }
    }
}

impl RegionRefusal {
    /// When the region may be taken; `None`: not without a change.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Nanos> {
        match self {
            Self::Share(_) => Some(SHARE_AGAIN),
            _ => None,
        }
    }
}
