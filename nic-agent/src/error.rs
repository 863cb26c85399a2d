//! Errors in messages of the host agent.

pub(crate) use agent_runtime::chain;
use agent_runtime::shares::ShareError;
use wire::control::{LmapError, MAX_LMAPS, MAX_STREAM_ADDRESSES, MAX_STREAMS};
use wire::id::{Epoch, LmapId, Owner};

use crate::queue_pair::QueuePairReplyError;
use crate::region_limits::RegionsError;

/// Why a message of the host agent was rejected, in whole or in part. Each is counted. None stops the worker or another
/// LMAP.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnexpectedMessage {
    /// The message has no content that this release knows.
    #[error("the message has no content that this release knows")]
    Unknown,
    /// The message came without a session: before the welcome, or after a disconnect.
    #[error("the message arrived without a session")]
    TooEarly,
    /// The epoch does not follow the last one: a message was lost or duplicated. The worker reconnects.
    #[error("{found} does not follow {last}")]
    Epoch {
        /// The epoch of the message.
        found: Epoch,
        /// The last accepted epoch.
        last: Epoch,
    },
    /// The configuration is invalid. The earlier configuration of the LMAP ends, since it is not in effect any more.
    #[error("the configuration of {lmap} is invalid, so it is not monitored")]
    Lmap {
        /// The LMAP of the configuration.
        lmap: LmapId,
        /// The invalid part.
        source: LmapError,
    },
    /// The regions of the LMAP are invalid or exceed a limit. The earlier configuration of the LMAP ends.
    #[error("the regions of {lmap} are refused, so it is not monitored")]
    Regions {
        /// The LMAP of the configuration.
        lmap: LmapId,
        /// The invalid region, or the limit.
        source: RegionsError,
    },
    /// Replicas of one owner would have more than its share: the LMAP is monitored without them, so that nobody who
    /// runs a service of the same name costs another its LMAP.
    #[error("{lmap} is monitored without the replicas of {}", source.owner)]
    ReplicasLeftOut {
        /// The LMAP of the configuration.
        lmap: LmapId,
        /// The share of their owner.
        source: ShareError<Owner>,
    },
    /// The host agent chose a transport that this worker did not offer.
    #[error("the host agent chose the transport {0:?}, which this worker did not offer")]
    Transport(String),
    /// The queue pair was not connected. The worker tries again after a pause.
    #[error(transparent)]
    QueuePair(#[from] QueuePairReplyError),
    /// The worker has the largest number of LMAPs.
    #[error("{0} exceeds the limit of {limit} LMAPs", limit = MAX_LMAPS)]
    TooMany(LmapId),
    /// The worker has no LMAP with this id.
    #[error("{0} is not configured on this worker")]
    UnknownLmap(LmapId),
    /// No aggregation has this name, or the expression cannot be computed: the metric is missing.
    #[error("no aggregation is named {aggregation}, so metrics of {lmap} are missing")]
    Aggregation {
        /// The LMAP of the configuration.
        lmap: LmapId,
        /// The configured name or expression.
        aggregation: String,
    },
    /// The trained model cannot be used: what judged before goes on, and where nothing did, the LMAP learns by itself.
    #[error("the model cannot be used, so the LMAP goes on as before, or learns by itself")]
    Model(#[from] lmap::ModelError),
    /// The settings that an operator requested conflict with those of this worker. The worker's own are used.
    #[error("the requested settings conflict with those of this worker, which are used instead")]
    Settings(#[source] lmap::SettingsError),
    /// No detector can be created: the LMAP is fetched, but has no verdicts.
    #[error("no detector can be created")]
    Detector(#[from] lmap::DetectorError),
    /// The host agent asks for too many streams, or for one of too many addresses. Those before stay.
    #[error(
        "{streams} streams of up to {addresses} addresses exceed the limit of {MAX_STREAMS} of {MAX_STREAM_ADDRESSES}: those before stay"
    )]
    Streams {
        /// Streams of the message.
        streams: usize,
        /// Addresses of the one with most of them.
        addresses: usize,
    },
    /// The host agent refused this worker.
    #[error("the host agent refused this worker: {0}")]
    Refused(String),
    /// More messages arrived while a batch was in flight than the worker queues.
    #[error("more than {0} messages arrived while a batch was in flight")]
    Flood(usize),
}
