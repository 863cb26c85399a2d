//! Recovery of buckets: finds the displaced packets, a subset of the stash that explains the difference of two buckets.

use alloc::vec::Vec;

use super::aggregator::Bucket;
use super::receiver::{Boundary, StashedPacket};

/// Maximum number of candidates for a bucket with elimination. With more, some subset would match by chance.
const MAX_CANDIDATES: usize = 60;
/// Elimination searches at most 2^this subsets with the right digest for one with the right number of packets.
const MAX_FREE: usize = 12;

/// Algorithm that finds the subset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Solver {
    /// Elimination over GF(2): 64 equations, one for each bit of a digest. At most 60 candidates for a bucket.
    #[default]
    Elimination,
    /// Enumeration of all subsets, smaller ones first, as published. At most this many candidates for a bucket, up to
    /// 30.
    Enumeration(usize),
}

/// A stashed packet that may have to be added to an interval or removed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) packet: StashedPacket,
    /// True if it arrived outside of the interval and may have been sent in it. False for the opposite.
    pub(super) add: bool,
}

/// The candidates of one bank, in the order of rows. A packet that is near both ends appears once.
pub(super) fn candidates(start: &Boundary, end: &Boundary) -> Vec<Candidate> {
    let outside = start.before().iter().chain(end.after()).map(|packet| Candidate { packet: *packet, add: true });
    let inside = start.after().iter().chain(end.before()).map(|packet| Candidate { packet: *packet, add: false });
    let mut all: Vec<Candidate> = outside.chain(inside).collect();
    all.sort_unstable_by_key(|candidate| (candidate.packet.row, candidate.packet.number));
    all.dedup_by_key(|candidate| candidate.packet.number);
    all
}

/// The candidates of one row.
pub(super) fn of_row(all: &[Candidate], row: u32) -> &[Candidate] {
    let from = all.partition_point(|candidate| candidate.packet.row < row);
    let count = all[from..].partition_point(|candidate| candidate.packet.row == row);
    &all[from..from + count]
}

/// What a subset has to make up for: the XOR of its digests, and the number of packets added less those removed.
#[derive(Clone, Copy, Debug)]
struct Deficit {
    digest: u64,
    more: i64,
}

/// `received` with displaced packets added and removed so that it matches `sent`, if possible, and the number of
/// subsets tested.
pub(super) fn recover(
    sent: &Bucket,
    received: &Bucket,
    candidates: &[Candidate],
    solver: Solver,
) -> (Option<Bucket>, u64) {
    let deficit =
        Deficit { digest: sent.digest ^ received.digest, more: sent.count.wrapping_sub(received.count) as i64 };
    let (found, tried) = match solver {
        Solver::Elimination => eliminate(candidates, deficit),
        Solver::Enumeration(most) => enumerate(candidates, deficit, most.min(30)),
    };
    let recovered = found.map(|subset| {
        let mut recovered = Bucket { sum: received.sum, count: sent.count, digest: sent.digest };
        for (_, candidate) in candidates.iter().enumerate().filter(|(at, _)| subset >> at & 1 == 1) {
            let time = candidate.packet.time_ns;
            recovered.sum =
                if candidate.add { recovered.sum.wrapping_add(time) } else { recovered.sum.wrapping_sub(time) };
        }
        recovered
    });
    (recovered, tried)
}

fn fits(candidates: &[Candidate], subset: u64, deficit: Deficit) -> bool {
    let chosen = candidates.iter().enumerate().filter(|(at, _)| subset >> at & 1 == 1).map(|(_, candidate)| candidate);
    let (mut digest, mut more) = (0, 0);
    for candidate in chosen {
        digest ^= candidate.packet.digest;
        more += if candidate.add { 1 } else { -1 };
    }
    subset != 0 && digest == deficit.digest && more == deficit.more
}

/// Tests all subsets, in the order of their size. The next subset of a size is the next larger number with as many
/// ones.
fn enumerate(candidates: &[Candidate], deficit: Deficit, most: usize) -> (Option<u64>, u64) {
    let mut tried = 0;
    if candidates.len() > most {
        return (None, tried);
    }
    let end = 1_u64 << candidates.len();
    for size in 1..=candidates.len() {
        let mut subset = (1_u64 << size) - 1;
        while subset < end {
            tried += 1;
            if fits(candidates, subset, deficit) {
                return (Some(subset), tried);
            }
            let lowest = subset & subset.wrapping_neg();
            let carried = subset + lowest;
            subset = carried | (((subset ^ carried) >> 2) / lowest);
        }
    }
    (None, tried)
}

/// An equation: the XOR of a subset of the candidates.
#[derive(Clone, Copy, Debug, Default)]
struct Combination {
    digest: u64,
    subset: u64,
}

/// Builds a basis of digests with distinct highest bits, and collects the subsets whose XOR is 0.
fn eliminate(candidates: &[Candidate], deficit: Deficit) -> (Option<u64>, u64) {
    if candidates.is_empty() || candidates.len() > MAX_CANDIDATES {
        return (None, 0);
    }
    let mut basis = [Combination::default(); 64];
    let mut free = Vec::new();
    for (at, candidate) in candidates.iter().enumerate() {
        let rest = reduce(&basis, Combination { digest: candidate.packet.digest, subset: 1 << at });
        match rest.digest.checked_ilog2() {
            Some(bit) => basis[bit as usize] = rest,
            None => free.push(rest.subset),
        }
    }
    let rest = reduce(&basis, Combination { digest: deficit.digest, subset: 0 });
    if rest.digest != 0 || free.len() > MAX_FREE {
        return (None, 1);
    }
    // Usually there is only one subset. Of several, the smallest one is the likeliest.
    let subsets = 1_u64 << free.len();
    let all = (0..subsets).map(|choice| {
        let chosen = free.iter().enumerate().filter(|(at, _)| choice >> at & 1 == 1);
        chosen.fold(rest.subset, |subset, (_, other)| subset ^ other)
    });
    let fitting = all.filter(|subset| fits(candidates, *subset, deficit));
    (fitting.min_by_key(|subset| (subset.count_ones(), *subset)), subsets)
}

fn reduce(basis: &[Combination; 64], mut rest: Combination) -> Combination {
    while let Some(bit) = rest.digest.checked_ilog2() {
        let row = basis[bit as usize];
        if row.digest == 0 {
            break;
        }
        rest.digest ^= row.digest;
        rest.subset ^= row.subset;
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::finalise;

    fn candidate(number: u64, digest: u64, add: bool) -> Candidate {
        Candidate { packet: StashedPacket { digest, time_ns: 1_000 * number, row: 0, number }, add }
    }

    /// Some candidates with digests of `bits` bits, and a bucket that lacks a subset of them.
    fn case(seed: u64, bits: u32) -> (Vec<Candidate>, Bucket, Bucket, u64) {
        let random = |place: u64| finalise(finalise(seed) ^ place);
        let count = 1 + random(1) % 12;
        let candidates: Vec<_> =
            (0..count).map(|n| candidate(n, random(10 + n) >> (64 - bits), random(40 + n) % 2 == 0)).collect();
        let subset = random(2) & ((1 << count) - 1);
        let received = Bucket { sum: random(3), count: 100, digest: random(4) };
        let mut sent = received;
        for (_, candidate) in candidates.iter().enumerate().filter(|(at, _)| subset >> at & 1 == 1) {
            sent.digest ^= candidate.packet.digest;
            sent.count = if candidate.add { sent.count + 1 } else { sent.count - 1 };
        }
        (candidates, sent, received, subset)
    }

    #[test]
    fn both_solvers_find_the_same_subset() {
        let (mut found, mut ambiguous) = (0, 0);
        for seed in 0..10_000 {
            // With few bits, digests are linearly dependent.
            let (candidates, sent, received, _) = case(seed, if seed % 2 == 0 { 64 } else { 10 });
            let (by_elimination, _) = recover(&sent, &received, &candidates, Solver::Elimination);
            let (by_enumeration, _) = recover(&sent, &received, &candidates, Solver::Enumeration(20));

            let smallest = |deficit| {
                let fitting = (1..1_u64 << candidates.len()).filter(|subset| fits(&candidates, *subset, deficit));
                fitting
                    .clone()
                    .map(u64::count_ones)
                    .min()
                    .map(|least| fitting.filter(|s| s.count_ones() == least).count())
            };
            let deficit =
                Deficit { digest: sent.digest ^ received.digest, more: sent.count.wrapping_sub(received.count) as i64 };
            assert_eq!(by_elimination.is_some(), by_enumeration.is_some(), "seed {seed}");
            match smallest(deficit) {
                // Several of one size are equally good.
                Some(2..) => ambiguous += 1,
                _ => assert_eq!(by_elimination, by_enumeration, "seed {seed}"),
            }
            found += u32::from(by_elimination.is_some());
        }
        assert!(found > 8_000 && ambiguous < 2_000, "{found} found, {ambiguous} with several of one size");
    }

    #[test]
    fn displaced_packets_are_recovered_to_the_nanosecond() {
        for seed in 0..1_000 {
            let (candidates, sent, received, subset) = case(seed, 64);
            let (recovered, _) = recover(&sent, &received, &candidates, Solver::Elimination);
            if subset == 0 {
                assert_eq!(recovered, None);
                continue;
            }
            let mut sum = received.sum;
            for (at, candidate) in candidates.iter().enumerate().filter(|(at, _)| subset >> at & 1 == 1) {
                let time = 1_000 * at as u64;
                sum = if candidate.add { sum.wrapping_add(time) } else { sum.wrapping_sub(time) };
            }
            assert_eq!(recovered, Some(Bucket { sum, ..sent }));
        }
    }

    #[test]
    fn a_bucket_with_a_lost_packet_is_never_recovered() {
        for seed in 0..2_000 {
            let (candidates, mut sent, received, _) = case(seed, 64);
            sent.add(5, finalise(seed ^ 0xabcd));

            for solver in [Solver::Elimination, Solver::Enumeration(20)] {
                assert_eq!(recover(&sent, &received, &candidates, solver).0, None, "seed {seed}");
            }
        }
    }

    #[test]
    fn the_right_digest_with_the_wrong_number_is_not_enough() {
        let candidates = [candidate(1, 0b100_1101, false)];
        let received = Bucket { sum: 0, count: 10, digest: 0b101 };
        let sent = Bucket { sum: 0, count: 11, digest: 0b101 ^ 0b100_1101 };

        assert_eq!(recover(&sent, &received, &candidates, Solver::Elimination).0, None);
        assert_eq!(recover(&sent, &received, &candidates, Solver::Enumeration(20)).0, None);
    }

    #[test]
    fn too_many_candidates_are_given_up() {
        let candidates: Vec<_> = (0..61).map(|n| candidate(n, finalise(n), true)).collect();
        let sent = Bucket { sum: 0, count: 1, digest: finalise(3) };

        assert_eq!(recover(&sent, &Bucket::default(), &candidates, Solver::Elimination).0, None);
        assert_eq!(recover(&sent, &Bucket::default(), &candidates[..40], Solver::Enumeration(64)), (None, 0));
        assert!(recover(&sent, &Bucket::default(), &candidates[..60], Solver::Elimination).0.is_some());
    }
}
