//! Estimates from the buckets of both ends.

use alloc::vec::Vec;

use super::aggregator::{Bucket, FineComb, MergeError};
use super::receiver::Interval;
use super::recovery::{Solver, candidates, of_row, recover};
use super::settings::{Rule, Sampling};
use crate::moments::{Deviation, UsefulRow, variance};

/// Number of buckets by state, over all banks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Buckets with the same packets at both ends, at least one.
    pub useful: u64,
    /// Buckets that are useful after displaced packets were added or removed.
    pub recovered: u64,
    /// Buckets with different packets.
    pub useless: u64,
    /// Subsets of packets tested for recovery.
    pub tried: u64,
}

/// Delay and loss of one interval. Unknown values are `None`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Mean delay in nanoseconds of the packets in useful buckets. Negative if the clocks differ by more than the
    /// delay.
    pub mean_ns: Option<f64>,
    /// Standard deviation of the delay in nanoseconds, from at least two useful buckets.
    pub deviation_ns: Option<f64>,
    /// The estimated variance was below 0 and was set to 0: the deviation is meaningless.
    pub deviation_clamped: bool,
    /// Share of sampled packets that were lost, computed by the rule, from the bank that is designed for about that
    /// share.
    pub loss: Option<f64>,
    /// Share of all packets that were lost, from the counts of both ends; negative if more packets arrived than were
    /// sent. The best estimate over several intervals, the worst one for a single interval with little loss and much
    /// reordering.
    pub loss_in_all: Option<f64>,
    /// Number of packets in useful buckets.
    pub packets: u64,
    /// Number of buckets by state.
    pub health: Health,
}

/// A bank of both ends, after recovery.
struct MatchedBank {
    useful: Vec<Option<(i64, u64)>>,
    lost: u64,
    sent: u64,
}

impl Interval {
    /// Estimates delay and loss from this interval and the sender's buckets, by `rule`.
    ///
    /// # Errors
    ///
    /// [`MergeError`] if the sender's settings differ, so that buckets hold other packets.
    pub fn estimate(
        &self,
        sender: &FineComb,
        rule: Rule,
        solver: Solver,
        deviation: Deviation,
    ) -> Result<Estimate, MergeError> {
        if sender.settings != self.finecomb.settings {
            return Err(MergeError);
        }
        let mut health = Health::default();
        let banks: Vec<MatchedBank> = (0..sender.settings.banks.len())
            .map(|bank| self.matched(sender, bank, rule, solver, &mut health))
            .collect();
        let useful = self.useful(&banks);
        let all = useful.iter().fold((0_i128, 0_u64), |(delay, count), (difference, more, ..)| {
            (delay + i128::from(*difference), count + more)
        });
        let mean_ns = (all.1 > 0).then(|| all.0 as f64 / all.1 as f64);
        let rows: Vec<UsefulRow> = useful
            .iter()
            .map(|&(delay, count, bank, row)| UsefulRow { delay: delay as f64, count: count as f64, bank, row })
            .collect();
        let variance = mean_ns.and_then(|mean| variance(rows.iter().copied(), mean, deviation));
        let passed = (sender.packets as f64, self.finecomb.packets as f64);
        Ok(Estimate {
            mean_ns,
            deviation_ns: variance.map(|variance| libm::sqrt(variance.max(0.0))),
            deviation_clamped: variance.is_some_and(|variance| variance < 0.0),
            loss: self.loss(&banks),
            loss_in_all: (passed.0 > 0.0).then(|| (passed.0 - passed.1) / passed.0),
            packets: all.1,
            health,
        })
    }

    fn matched(&self, sender: &FineComb, bank: usize, rule: Rule, solver: Solver, health: &mut Health) -> MatchedBank {
        let buckets = sender.settings.buckets;
        let range = bank * buckets..(bank + 1) * buckets;
        let near = if rule == Rule::FineComb { candidates(&self.start[bank], &self.end[bank]) } else { Vec::new() };
        let mut matched = MatchedBank { useful: Vec::with_capacity(buckets), lost: 0, sent: 0 };
        let (mut sent_in_all, mut received_in_all) = (0_u64, 0_u64);
        for (row, (sent, received)) in
            (0..).zip(sender.buckets[range.clone()].iter().zip(&self.finecomb.buckets[range]))
        {
            let mut received = *received;
            let mut same = is_useful(sent, &received, rule);
            health.useful += u64::from(same && received.count > 0);
            if !same && rule == Rule::FineComb {
                let (recovered, tried) = recover(sent, &received, of_row(&near, row), solver);
                health.tried += tried;
                if let Some(recovered) = recovered {
                    (received, same) = (recovered, true);
                    health.recovered += 1;
                }
            }
            health.useless += u64::from(!same);
            if sent.count >= received.count {
                matched.lost += sent.count - received.count;
                matched.sent += sent.count;
            }
            sent_in_all += sent.count;
            received_in_all += received.count;
            let difference = received.sum.wrapping_sub(sent.sum) as i64;
            matched.useful.push((same && received.count > 0).then_some((difference, received.count)));
        }
        if matches!(rule, Rule::Lda | Rule::LdaPlus) {
            // Without digests, an added packet in one bucket cancels a missing one in another.
            matched.lost = sent_in_all.saturating_sub(received_in_all);
            matched.sent = sent_in_all;
        }
        matched
    }

    /// Useful rows: difference, count, bank, row. For nested banks the one with the most packets, for disjoint banks
    /// all.
    fn useful(&self, banks: &[MatchedBank]) -> Vec<(i64, u64, usize, usize)> {
        let row = |row: usize| {
            banks.iter().enumerate().filter_map(move |(bank, matched)| {
                matched.useful[row].map(|(difference, count)| (difference, count, bank, row))
            })
        };
        let rows = 0..self.finecomb.settings.buckets;
        match self.finecomb.settings.sampling {
            Sampling::Nested => rows.filter_map(|at| row(at).max_by_key(|useful| useful.1)).collect(),
            Sampling::Disjoint => rows.flat_map(row).collect(),
        }
    }

    /// The loss of the bank whose loss is nearest to its design value, by ratio.
    fn loss(&self, banks: &[MatchedBank]) -> Option<f64> {
        let of = |(matched, bank): (&MatchedBank, &super::Bank)| {
            let loss = (matched.sent > 0).then(|| matched.lost as f64 / matched.sent as f64)?;
            let (found, designed_for) = (loss.max(1e-9), bank.loss.max(1e-9));
            Some((libm::fabs(libm::log(found / designed_for)), loss))
        };
        let losses = banks.iter().zip(&self.finecomb.settings.banks).filter_map(of);
        losses.min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, loss)| loss)
    }
}

fn is_useful(sent: &Bucket, received: &Bucket, rule: Rule) -> bool {
    let same = sent.count == received.count;
    match rule {
        Rule::Lda => same,
        Rule::LdaPlus => same && received.sum.wrapping_sub(sent.sum) as i64 >= 0,
        Rule::FineCombMinus | Rule::FineComb => same && sent.digest == received.digest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::{Digest, finalise};
    use crate::finecomb::{Receiver, Settings};

    const ALL: [Deviation; 4] = [Deviation::Fixed, Deviation::Selective, Deviation::Centred, Deviation::PerBucket];

    /// Buckets of the paper's figure: {P1, P3} {P2} {P4} {P5 | P9} {P6}.
    fn figure() -> (FineComb, Interval) {
        let mut sender = FineComb::new(&Settings::one_bank(5, 1.0, 0, 0)).expect("possible");
        let mut receiver = sender.clone();
        let put = |finecomb: &mut FineComb, packets: &[(usize, u64, u64)]| {
            for (row, number, time) in packets {
                finecomb.buckets[*row].add(*time, finalise(*number));
            }
            finecomb.packets += packets.len() as u64;
        };
        put(&mut sender, &[(0, 1, 70), (1, 2, 150), (0, 3, 200), (2, 4, 250), (3, 5, 310), (4, 6, 330)]);
        put(&mut receiver, &[(0, 1, 110), (1, 2, 260), (0, 3, 310), (2, 4, 390), (4, 6, 450), (3, 9, 760)]);
        (sender, Interval::without_stash(receiver))
    }

    fn estimate(interval: &Interval, sender: &FineComb, rule: Rule) -> Estimate {
        interval.estimate(sender, rule, Solver::Elimination, Deviation::PerBucket).expect("one kind")
    }

    #[test]
    fn one_lost_and_one_added_packet_mislead_lda_but_not_finecomb() {
        let (sender, receiver) = figure();

        let lda = estimate(&receiver, &sender, Rule::Lda);
        let fine = estimate(&receiver, &sender, Rule::FineCombMinus);

        assert_eq!(lda.mean_ns, Some(970.0 / 6.0));
        assert_eq!((fine.mean_ns, fine.packets), (Some(104.0), 5));
        assert_eq!(fine.health, Health { useful: 4, recovered: 0, useless: 1, tried: 0 });
        assert_eq!(lda.loss, Some(0.0));
    }

    #[test]
    fn without_packets_everything_is_unknown() {
        let finecomb = FineComb::new(&Settings::one_bank(5, 1.0, 0, 0)).expect("possible");

        let nothing = estimate(&Interval::without_stash(finecomb.clone()), &finecomb, Rule::FineComb);

        let known = [nothing.mean_ns, nothing.deviation_ns, nothing.loss, nothing.loss_in_all];
        assert_eq!((known, nothing.packets), ([None; 4], 0));
    }

    #[test]
    fn other_settings_are_refused() {
        let (sender, _) = figure();
        let other = FineComb::new(&Settings::one_bank(5, 1.0, 0, 1)).expect("possible");

        let refused =
            Interval::without_stash(other).estimate(&sender, Rule::Lda, Solver::default(), Deviation::Centred);
        assert!(refused.is_err());
    }

    #[test]
    fn a_clock_offset_adds_to_the_mean_and_not_to_the_deviation() {
        let run = |offset: u64, deviation: Deviation| {
            let settings = Settings::one_bank(64, 1.0, 0, 3);
            let (mut sender, mut receiver) =
                (FineComb::new(&settings).expect("possible"), FineComb::new(&settings).expect("possible"));
            for number in 0..4_000_u64 {
                sender.insert(Digest(number), number * 1_000);
                receiver.insert(Digest(number), (number * 1_000 + finalise(number) % 1_000).wrapping_add(offset));
            }
            let receiver = Interval::without_stash(receiver);
            receiver.estimate(&sender, Rule::FineComb, Solver::default(), deviation).expect("one kind")
        };
        let truth = (0..4_000).map(|number| finalise(number) % 1_000).sum::<u64>() as f64 / 4_000.0;
        for deviation in ALL {
            let (plain, moved) = (run(0, deviation), run(500_000, deviation));

            assert_eq!(plain.mean_ns, Some(truth));
            assert!((moved.mean_ns.expect("packets") - truth - 500_000.0).abs() < 1e-6);
            assert_eq!(
                run(5_000_u64.wrapping_neg(), deviation).mean_ns.map(f64::round),
                Some((truth - 5_000.0).round())
            );
            if matches!(deviation, Deviation::Centred | Deviation::PerBucket) {
                let (one, other) = (plain.deviation_ns.expect("packets"), moved.deviation_ns.expect("packets"));
                assert!((one - other).abs() < 1e-3, "{deviation:?}: {one} {other}");
                // Uniform over 1,000 ns has a deviation of 289. Estimated from 64 buckets, or 32 pairs.
                assert!((one / 288.7 - 1.0).abs() < 0.3, "{deviation:?}: {one}");
            }
        }
    }

    /// Sends 1,000 packets in each of three intervals. `arrives` returns the interval in which a packet arrives, `None`
    /// if it is lost.
    fn chain(settings: &Settings, arrives: impl Fn(u64, usize) -> Option<usize>) -> (FineComb, Interval) {
        let mut senders = [(); 3].map(|()| FineComb::new(settings).expect("possible"));
        let mut receiver = Receiver::new(settings).expect("possible");
        let mut arriving: [Vec<(u64, u64)>; 3] = Default::default();
        for number in 0..3_000_u64 {
            let interval = (number / 1_000) as usize;
            senders[interval].insert(Digest(number), number * 1_000);
            if let Some(at) = arrives(number, interval) {
                arriving[at].push((number, number * 1_000 + 50 + number % 7));
            }
        }
        let mut middle = None;
        for (at, packets) in arriving.into_iter().enumerate() {
            for (number, time) in packets {
                receiver.insert(Digest(number), time);
            }
            let before = receiver.sync();
            if at == 2 {
                middle = before;
            }
        }
        let [_, sender, _] = senders;
        (sender, middle.expect("the second interval"))
    }

    #[test]
    fn each_kind_of_displaced_packet_is_recovered() {
        let truth = (1_000..2_000_u64).map(|number| 50 + number % 7).sum::<u64>() as f64 / 1_000.0;
        let settings = Settings::one_bank(64, 1.0, 5, 3);
        for (kind, displaced, to) in [
            ("before the start", 1_000, 0),
            ("after the start", 999, 1),
            ("before the end", 2_000, 1),
            ("after the end", 1_999, 2),
        ] {
            let arrives = |number, interval| Some(if number == displaced { to } else { interval });
            let (sender, receiver) = chain(&settings, arrives);
            for solver in [Solver::Elimination, Solver::Enumeration(20)] {
                let found = receiver.estimate(&sender, Rule::FineComb, solver, Deviation::PerBucket).expect("one kind");
                assert_eq!((found.mean_ns, found.loss), (Some(truth), Some(0.0)), "{kind}");
                assert_eq!((found.health.recovered, found.health.useless), (1, 0), "{kind}");
            }
            let without = estimate(&receiver, &sender, Rule::FineCombMinus);
            assert_eq!((without.health.recovered, without.health.useless), (0, 1), "{kind}");
        }
    }

    #[test]
    fn without_loss_or_displaced_packets_the_mean_is_exact_in_any_order() {
        let settings = Settings::one_bank(64, 1.0, 0, 3);
        let (sender, receiver) = chain(&settings, |_, interval| Some(interval));

        let found = estimate(&receiver, &sender, Rule::FineComb);

        let truth = (1_000..2_000_u64).map(|number| 50 + number % 7).sum::<u64>() as f64 / 1_000.0;
        assert_eq!((found.mean_ns, found.packets, found.health.useless), (Some(truth), 1_000, 0));
    }

    #[test]
    fn lost_packets_are_counted_by_every_rule() {
        let settings = Settings::one_bank(256, 1.0, 5, 3);
        let (sender, receiver) = chain(&settings, |number, interval| (number % 50 != 7).then_some(interval));
        for rule in [Rule::Lda, Rule::LdaPlus, Rule::FineCombMinus, Rule::FineComb] {
            let found = estimate(&receiver, &sender, rule);
            assert_eq!((found.loss, found.loss_in_all), (Some(0.02), Some(0.02)), "{rule:?}");
            assert!(found.health.useless > 0 && found.packets < 1_000, "{rule:?}");
        }
    }

    #[test]
    fn a_duplicate_makes_only_its_bucket_useless() {
        let settings = Settings::one_bank(64, 1.0, 0, 3);
        let (sender, mut receiver) = chain(&settings, |_, interval| Some(interval));
        receiver.finecomb.insert(Digest(1_500), 5);

        let found = estimate(&receiver, &sender, Rule::FineComb);

        assert_eq!(found.health.useless, 1);
        assert!(found.loss_in_all.is_some_and(|loss| loss < 0.0));
    }
}
