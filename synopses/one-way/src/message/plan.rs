//! The plan of a run in messages.

use core::num::NonZeroU64;

use synopses::finecomb::Bank;
use synopses::rda::Ids;
use wire::proto::one_way as proto;
use wire::proto::one_way::plan::Synopsis as ProtoSynopsis;
use wire::time::{Nanos, UnixNanos};

use super::{MessageError, bounded};
use crate::plan::{Plan, Synopsis};

/// Encodes a plan for the wire.
pub(super) fn encode_plan(plan: &Plan) -> proto::Plan {
    let synopsis = match &plan.synopsis {
        Synopsis::Rda { banks, ids } => {
            ProtoSynopsis::Rda(proto::Rda { banks: *banks as u32, ids: u32::from(*ids as u8) })
        }
        Synopsis::FineComb { digests, buckets, banks } => {
            let bank = |bank: &Bank| {
                let Bank { probability, stash, loss } = *bank;
                proto::Bank { probability, stash: stash as u64, loss }
            };
            let (digests, buckets) = (*digests, *buckets as u64);
            ProtoSynopsis::Finecomb(proto::FineComb { digests, buckets, banks: banks.iter().map(bank).collect() })
        }
    };
    proto::Plan {
        begins_unix_ns: plan.begins.0,
        length_ns: plan.length.0,
        key: plan.key.to_le_bytes().to_vec(),
        seed: plan.seed,
        synopsis: Some(synopsis),
        intervals_per_key: plan.intervals_per_key,
        fingerprint: plan.fingerprint.map_or(0, NonZeroU64::get),
    }
}

/// Decodes a plan from the wire, and checks it.
pub(super) fn decode_plan(from: proto::Plan) -> Result<Plan, MessageError> {
    let proto::Plan { begins_unix_ns, length_ns, key, seed, synopsis, intervals_per_key, fingerprint } = from;
    let key = <[u8; 16]>::try_from(key).map_err(|_| MessageError::Missing("a key of 16 bytes"))?;
    let size = |found: u64| usize::try_from(found).unwrap_or(usize::MAX);
    let synopsis = match synopsis.ok_or(MessageError::Missing("a synopsis that this release knows"))? {
        ProtoSynopsis::Rda(proto::Rda { banks, ids }) => {
            let ids = match ids {
                0 => Ids::Plain,
                1 => Ids::Checked8,
                2 => Ids::Checked16,
                _ => return Err(MessageError::Number("the kind of ids")),
            };
            Synopsis::Rda { banks: banks as usize, ids }
        }
        ProtoSynopsis::Finecomb(proto::FineComb { digests, buckets, banks }) => {
            bounded("the number of banks", banks.len() as u64, synopses::finecomb::MAX_BANKS as u64)?;
            let bank =
                |bank: proto::Bank| Bank { probability: bank.probability, stash: size(bank.stash), loss: bank.loss };
            Synopsis::FineComb { digests, buckets: size(buckets), banks: banks.into_iter().map(bank).collect() }
        }
    };
    let (begins, length) = (UnixNanos(begins_unix_ns), Nanos(length_ns));
    let (key, fingerprint) = (u128::from_le_bytes(key), NonZeroU64::new(fingerprint));
    let plan = Plan { begins, length, key, seed, synopsis, intervals_per_key, fingerprint };
    plan.check()?;
    Ok(plan)
}
