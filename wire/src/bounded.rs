//! Messages of gRPC, counted before they are decoded.
//!
//! An element of a repeated field has two bytes on the wire and a hundred in memory. So a limit of a message's bytes
//! alone lets whoever may send one take fifty times as many.

use core::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use crate::entries;
use crate::proto::{control, fragments, gossip, one_way, operators};

/// Field numbers on the way to what is repeated, and how often it may stand in a message in all.
type Limit = (&'static [u32], usize);

/// A message whose repeated fields are bounded.
pub trait BoundedMessage {
    /// The fields that repeat, and their limits; the outer ones come first.
    const REPEATED: &'static [Limit];
}

/// LMAPs, verdicts and rows of one message, and streams of packets.
const OF_WORKER: usize = 1 << 16;
/// Services and metrics of one call: as many as all services of an LMAP over several may have.
const OF_OPERATOR: usize = 1 << 14;
/// Runs of one gossip message.
const RUNS: usize = 1_024;
/// Entries and reasons of one gossip message. A member packs 2,600 at most.
const ENTRIES: usize = 1 << 14;
/// Services, operations and metrics in all entries of a gossip message together.
const PARTS: usize = 1 << 16;
/// Banks of a plan, and reports of a message: many times as many as are allowed.
const OF_STREAM: usize = 1_024;
/// Flows of one request about fragments. An end asks for 16 at most.
const FLOWS: usize = 16;

/// Implements [`BoundedMessage`]: fields and limits of each message.
macro_rules! bounded {
    ($($message:ty: [$($limit:expr),* $(,)?];)*) => {
        $(impl BoundedMessage for $message {
            const REPEATED: &'static [Limit] = &[$($limit),*];
        })*
    };
}

bounded! {
    control::WorkerMessage: [
        (&[1, 5], RUNS), (&[3, 2], OF_WORKER), (&[4, 2], OF_WORKER), (&[5, 3], OF_WORKER), (&[11, 1], OF_WORKER),
        (&[12, 2], OF_WORKER),
    ];
    operators::NewLmapRequest: [(&[8], OF_OPERATOR), (&[8, 2], OF_OPERATOR)];
    operators::ConfigLmapRequest: [(&[2], OF_OPERATOR), (&[3], OF_OPERATOR), (&[3, 2], OF_OPERATOR)];
    operators::RegisterHookRequest: [(&[1], OF_OPERATOR)];
    gossip::GossipMessage: [
        (&[3], RUNS), (&[4], RUNS), (&[4, 3], ENTRIES), (&[4, 4], ENTRIES),
        // Pieces of paths, paths, verdicts; metrics of reasons.
        (&[4, 3, 5, 2], PARTS), (&[4, 3, 5, 4], PARTS), (&[4, 3, 6, 3], PARTS), (&[4, 3, 6, 5], PARTS),
        (&[4, 3, 4, 5, 2], PARTS), (&[4, 4, 2, 4], PARTS),
    ];
    one_way::Request: [(&[4, 6, 3], OF_STREAM), (&[8, 1], OF_STREAM)];
    fragments::FragmentRequest: [(&[5], FLOWS)];
}

/// Messages without repeated messages, and those of the host agent: whoever reads these has chosen it.
macro_rules! unbounded {
    ($($message:ty),* $(,)?) => { bounded! { $($message: [];)* } };
}

unbounded! {
    control::HostMessage, one_way::Response, fragments::FragmentReply,
    operators::DeleteLmapRequest, operators::AddMetricRequest, operators::DeleteMetricRequest,
    operators::ResumeHookRequest, operators::WatchRowsRequest, operators::FitAgainRequest,
    operators::DrainWorkerRequest, operators::UndrainWorkerRequest, operators::ListRequest, operators::StatusRequest,
    operators::ReceiptRequest, operators::PathsRequest, operators::SourcesRequest, operators::SetIntervalRequest,
    operators::OpenPageRequest, operators::IncidentsRequest, operators::IncidentRequest, operators::TriggerRequest,
    operators::SetModelRequest, operators::NewLmapReply, operators::ConfigLmapReply, operators::DeleteLmapReply,
    operators::AddMetricReply, operators::DeleteMetricReply, operators::HookEvent, operators::RowEvent,
    operators::FitAgainReply, operators::DrainWorkerReply, operators::UndrainWorkerReply, operators::ListReply,
    operators::StatusReply, operators::ReceiptReply, operators::PathsReply, operators::SourcesReply,
    operators::SetIntervalReply, operators::OpenPageReply, operators::IncidentsReply, operators::IncidentReply,
    operators::TriggerReply, operators::SetModelReply,
}

/// Why a message is not decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoundError {
    /// The bytes are no protocol buffer.
    #[error("not a message: {0}")]
    Garbage(#[from] prost::DecodeError),
    /// More elements than a message may have.
    #[error("{found} elements of field {field} in one message, at most {limit} are allowed: send less at a time")]
    TooMany {
        /// Numbers of the fields on the way to it, such as `4.3`.
        field: String,
        /// Elements in the message.
        found: usize,
        /// The limit of them.
        limit: usize,
    },
}

/// Checks the repeated fields of an encoded `M`. Reads the bytes once for each of its limits; allocates only an error.
///
/// # Errors
///
/// [`BoundError`]: the first limit that does not hold, or bytes that are no message.
pub fn check<M: BoundedMessage>(message: &[u8]) -> Result<(), BoundError> {
    for &(path, limit) in M::REPEATED {
        let found = entries::count(message, path)?;
        if found > limit {
            let field = path.iter().map(u32::to_string).collect::<Vec<_>>().join(".");
            return Err(BoundError::TooMany { field, found, limit });
        }
    }
    Ok(())
}

/// Encodes `T`, and decodes `U` if its repeated fields are within their limits.
#[derive(Clone, Debug)]
pub struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + BoundedMessage + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(PhantomData)
    }
}

/// Decodes `U` if its repeated fields are within their limits.
#[derive(Clone, Debug)]
pub struct BoundedDecoder<U>(PhantomData<U>);

impl<U: Message + Default + BoundedMessage> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        use prost::bytes::Buf as _;
        // Taken out of the buffer as it is: nothing is copied.
        let message = buffer.copy_to_bytes(buffer.remaining());
        check::<U>(&message).map_err(|error| Status::invalid_argument(error.to_string()))?;
        // As the codec of tonic says it: whoever sent this speaks another protocol.
        U::decode(message).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::gossip::entry::Item;
    use crate::proto::gossip::{Entries, Entry, GossipMessage, OperationRef, PathPiece};
    use crate::proto::operators::{ConfigLmapRequest, MetricConfig, NewLmapRequest, ServiceMetrics};

    fn refused<M: Message + BoundedMessage>(message: &M) -> Option<String> {
        check::<M>(&message.encode_to_vec()).err().map(|error| error.to_string())
    }

    #[test]
    fn a_call_of_more_metrics_than_any_lmap_has_is_refused_before_it_is_decoded() {
        let metrics = |count| vec![MetricConfig::default(); count];
        let config = |count| ConfigLmapRequest { lmap: 1, metrics: metrics(count), services: Vec::new() };

        assert_eq!(refused(&config(OF_OPERATOR)), None);
        let why = "16385 elements of field 2 in one message, at most 16384 are allowed: send less at a time";
        assert_eq!(refused(&config(OF_OPERATOR + 1)).as_deref(), Some(why));
        let of_many = vec![ServiceMetrics { metrics: metrics(OF_OPERATOR / 2), ..ServiceMetrics::default() }; 3];
        let new = NewLmapRequest { services: of_many, ..NewLmapRequest::default() };
        assert!(refused(&new).is_some_and(|why| why.contains("field 8.2")), "they count together");
    }

    #[test]
    fn what_a_peer_says_of_many_operations_at_once_is_refused_however_it_is_spread() {
        let piece = |operations| PathPiece {
            requested: vec![OperationRef::default(); operations],
            services: vec!["a".to_owned(); 256],
            ..PathPiece::default()
        };
        let entry = |operations| Entry { item: Some(Item::Piece(piece(operations))), ..Entry::default() };
        let message = |entries, operations| GossipMessage {
            entries: vec![Entries { entries: vec![entry(operations); entries], ..Entries::default() }],
            ..GossipMessage::default()
        };

        assert_eq!(refused(&message(256, 256)), None);
        assert!(refused(&message(256, 257)).is_some_and(|why| why.contains("field 4.3.5.4")));
        assert!(refused(&message(257, 256)).is_some_and(|why| why.contains("field 4.3.5.2")));
        assert!(refused(&message(ENTRIES + 1, 0)).is_some_and(|why| why.contains("field 4.3 ")));
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        assert!(matches!(check::<ConfigLmapRequest>(&[0x80]), Err(BoundError::Garbage(_))));
    }
}
