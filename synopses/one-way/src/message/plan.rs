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
    // Receivers that do not know fingerprints refuse a plan without a key.
    let key = if plan.fingerprint.is_some() { Vec::new() } else { plan.key.to_le_bytes().to_vec() };
    proto::Plan {
        begins_unix_ns: plan.begins.0,
        length_ns: plan.length.0,
        key,
        seed: plan.seed,
        synopsis: Some(synopsis),
        intervals_per_key: plan.intervals_per_key,
        fingerprint: plan.fingerprint.map_or(0, NonZeroU64::get),
    }
}

/// Decodes a plan from the wire, and checks it.
pub(super) fn decode_plan(from: proto::Plan) -> Result<Plan, MessageError> {
    let proto::Plan { begins_unix_ns, length_ns, key, seed, synopsis, intervals_per_key, fingerprint } = from;
    let fingerprint = NonZeroU64::new(fingerprint);
    let key = match fingerprint {
        Some(_) if key.is_empty() => 0,
        Some(_) => return Err(MessageError::Contradiction("a key and a fingerprint")),
        None => u128::from_le_bytes(key.try_into().map_err(|_| MessageError::Missing("a key of 16 bytes"))?),
    };
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
    let plan = Plan { begins, length, key, seed, synopsis, intervals_per_key, fingerprint };
    plan.check()?;
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(key: u128, fingerprint: Option<NonZeroU64>) -> Plan {
        let (begins, length) = (UnixNanos::from_secs(1_700_000_000), Nanos::from_secs(1));
        let synopsis = Synopsis::finecomb(64, 0);
        Plan { begins, length, key, seed: 2, synopsis, intervals_per_key: 0, fingerprint }
    }

    #[test]
    fn a_plan_of_switches_has_no_key_and_any_other_one_has() {
        let (switches, agents) = (plan(0, NonZeroU64::new(7)), plan(1, None));
        for plan in [&switches, &agents] {
            assert_eq!(decode_plan(encode_plan(plan)).as_ref(), Ok(plan));
        }
        // What receivers look at that know no fingerprint.
        let sent = encode_plan(&switches);
        assert!(sent.key.is_empty());

        let decoded = decode_plan(proto::Plan { fingerprint: 0, ..sent.clone() });
        assert_eq!(decoded, Err(MessageError::Missing("a key of 16 bytes")));
        let decoded = decode_plan(proto::Plan { key: vec![0; 16], ..sent });
        assert_eq!(decoded, Err(MessageError::Contradiction("a key and a fingerprint")));
    }
}
