//! What two ends say together.

use alloc::vec::Vec;

use super::comb::{Bucket, Comb, MergeError};
use super::receiver::Interval;
use super::recovery::{Solver, candidates, of_row, recover};
use super::settings::{Rule, Sampling};
use crate::moments::{Deviation, Useful, variance};

/// What became of the buckets of all banks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Saw the same packets at both ends; at least one.
    pub useful: u64,
    /// Do so after packets that changed the interval were put right.
    pub recovered: u64,
    /// Do not.
    pub useless: u64,
    /// Subsets that were looked at to recover them.
    pub tried: u64,
}

/// Delay and loss of one interval. What is not known is `None`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean delay in nanoseconds of the packets in useful buckets. May be below 0 where clocks differ.
    pub mean_ns: Option<f64>,
    /// Its standard deviation, from at least two useful buckets.
    pub deviation_ns: Option<f64>,
    /// The variance came out below 0 and was taken as 0: the deviation says nothing.
    pub deviation_clamped: bool,
    /// The share of sampled packets that were lost, by the rule's own way, from the bank that was made for about that.
    pub loss: Option<f64>,
    /// The share of all packets, from the numbers of those that passed; below 0 where more came than were sent. Over several intervals the best,
    /// in one of little loss and much reordering the worst.
    pub loss_in_all: Option<f64>,
    /// How many packets the delay rests on.
    pub packets: u64,
    /// What became of the buckets.
    pub health: Health,
}

/// A bucket of both ends, after recovery.
struct Matched {
    useful: Vec<Option<(i64, u64)>>,
    lost: u64,
    sent: u64,
}

impl Interval {
    /// What this interval says together with what the sender saw, by `rule`.
    ///
    /// # Errors
    ///
    /// [`MergeError`] if the sender's settings are others: buckets would mean other packets.
    pub fn estimate(
        &self,
        sender: &Comb,
        rule: Rule,
        solver: Solver,
        deviation: Deviation,
    ) -> Result<Estimate, MergeError> {
        if sender.settings != self.comb.settings {
            return Err(MergeError);
        }
        let mut health = Health::default();
        let banks: Vec<Matched> = (0..sender.settings.banks.len())
            .map(|bank| self.matched(sender, bank, rule, solver, &mut health))
            .collect();
        let useful = self.useful(&banks);
        let all = useful.iter().fold((0_i128, 0_u64), |(delay, count), (difference, more, ..)| {
            (delay + i128::from(*difference), count + more)
        });
        let mean_ns = (all.1 > 0).then(|| all.0 as f64 / all.1 as f64);
        let rows: Vec<Useful> = useful
            .iter()
            .map(|&(delay, count, bank, row)| Useful { delay: delay as f64, count: count as f64, bank, row })
            .collect();
        let variance = mean_ns.and_then(|mean| variance(rows.iter().copied(), mean, deviation));
        let passed = (sender.packets as f64, self.comb.packets as f64);
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

    fn matched(&self, sender: &Comb, bank: usize, rule: Rule, solver: Solver, health: &mut Health) -> Matched {
        let buckets = sender.settings.buckets;
        let range = bank * buckets..(bank + 1) * buckets;
        let near = if rule == Rule::FineComb { candidates(&self.start[bank], &self.end[bank]) } else { Vec::new() };
        let mut matched = Matched { useful: Vec::with_capacity(buckets), lost: 0, sent: 0 };
        let (mut sent_in_all, mut received_in_all) = (0_u64, 0_u64);
        for (row, (sent, received)) in (0..).zip(sender.buckets[range.clone()].iter().zip(&self.comb.buckets[range])) {
            let mut received = *received;
            let mut same = is_useful(sent, &received, rule);
            health.useful += u64::from(same && received.count > 0);
            if !same && rule == Rule::FineComb {
                let (mended, tried) = recover(sent, &received, of_row(&near, row), solver);
                health.tried += tried;
                if let Some(mended) = mended {
                    (received, same) = (mended, true);
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
            // Without digests, what came too much in one bucket is taken from what is missing in another.
            matched.lost = sent_in_all.saturating_sub(received_in_all);
            matched.sent = sent_in_all;
        }
        matched
    }

    /// Useful rows: difference, count, bank, row. Of nested banks the one that saw the most packets, of disjoint ones all.
    fn useful(&self, banks: &[Matched]) -> Vec<(i64, u64, usize, usize)> {
        let row = |row: usize| {
            banks.iter().enumerate().filter_map(move |(bank, matched)| {
                matched.useful[row].map(|(difference, count)| (difference, count, bank, row))
            })
        };
        let rows = 0..self.comb.settings.buckets;
        match self.comb.settings.sampling {
            Sampling::Nested => rows.filter_map(|at| row(at).max_by_key(|useful| useful.1)).collect(),
            Sampling::Disjoint => rows.flat_map(row).collect(),
        }
    }

    /// That of the bank whose loss is nearest to what it was made for, on a scale of ratios.
    fn loss(&self, banks: &[Matched]) -> Option<f64> {
        let of = |(matched, bank): (&Matched, &super::Bank)| {
            let loss = (matched.sent > 0).then(|| matched.lost as f64 / matched.sent as f64)?;
            let (found, made_for) = (loss.max(1e-9), bank.loss.max(1e-9));
            Some((libm::fabs(libm::log(found / made_for)), loss))
        };
        let losses = banks.iter().zip(&self.comb.settings.banks).filter_map(of);
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

    /// Buckets as the paper's figure has them: {P1, P3} {P2} {P4} {P5 | P9} {P6}.
    fn figure() -> (Comb, Interval) {
        let mut sender = Comb::new(&Settings::one_bank(5, 1.0, 0, 0)).expect("possible");
        let mut receiver = sender.clone();
        let put = |comb: &mut Comb, packets: &[(usize, u64, u64)]| {
            for (row, number, time) in packets {
                comb.buckets[*row].add(*time, finalise(*number));
            }
            comb.packets += packets.len() as u64;
        };
        put(&mut sender, &[(0, 1, 70), (1, 2, 150), (0, 3, 200), (2, 4, 250), (3, 5, 310), (4, 6, 330)]);
        put(&mut receiver, &[(0, 1, 110), (1, 2, 260), (0, 3, 310), (2, 4, 390), (4, 6, 450), (3, 9, 760)]);
        (sender, Interval::without_stash(receiver))
    }

    fn estimate(interval: &Interval, sender: &Comb, rule: Rule) -> Estimate {
        interval.estimate(sender, rule, Solver::Elimination, Deviation::PerBucket).expect("one kind")
    }

    #[test]
    fn a_packet_lost_and_another_too_many_mislead_lda_and_not_finecomb() {
        let (sender, receiver) = figure();

        let lda = estimate(&receiver, &sender, Rule::Lda);
        let fine = estimate(&receiver, &sender, Rule::FineCombMinus);

        assert_eq!(lda.mean_ns, Some(970.0 / 6.0));
        assert_eq!((fine.mean_ns, fine.packets), (Some(104.0), 5));
        assert_eq!(fine.health, Health { useful: 4, recovered: 0, useless: 1, tried: 0 });
        assert_eq!(lda.loss, Some(0.0));
    }

    #[test]
    fn nothing_is_known_of_nothing() {
        let comb = Comb::new(&Settings::one_bank(5, 1.0, 0, 0)).expect("possible");

        let nothing = estimate(&Interval::without_stash(comb.clone()), &comb, Rule::FineComb);

        let known = [nothing.mean_ns, nothing.deviation_ns, nothing.loss, nothing.loss_in_all];
        assert_eq!((known, nothing.packets), ([None; 4], 0));
    }

    #[test]
    fn other_settings_are_refused() {
        let (sender, _) = figure();
        let other = Comb::new(&Settings::one_bank(5, 1.0, 0, 1)).expect("possible");

        let refused =
            Interval::without_stash(other).estimate(&sender, Rule::Lda, Solver::default(), Deviation::Centred);
        assert!(refused.is_err());
    }

    #[test]
    fn a_difference_of_the_clocks_moves_the_mean_by_itself_and_the_deviation_not_at_all() {
        let run = |offset: u64, deviation: Deviation| {
            let settings = Settings::one_bank(64, 1.0, 0, 3);
            let (mut sender, mut receiver) =
                (Comb::new(&settings).expect("possible"), Comb::new(&settings).expect("possible"));
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
                // Evenly spread over 1,000 ns: 289. Of 64 buckets, or 32 pairs.
                assert!((one / 288.7 - 1.0).abs() < 0.3, "{deviation:?}: {one}");
            }
        }
    }

    /// Sends so many packets in each of three intervals; `arrives` says in which one each arrives, `None` for never.
    fn chain(settings: &Settings, arrives: impl Fn(u64, usize) -> Option<usize>) -> (Comb, Interval) {
        let mut senders = [(); 3].map(|()| Comb::new(settings).expect("possible"));
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
    fn each_kind_of_displaced_packet_is_put_right() {
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
    fn a_packet_that_came_twice_spoils_its_bucket_only() {
        let settings = Settings::one_bank(64, 1.0, 0, 3);
        let (sender, mut receiver) = chain(&settings, |_, interval| Some(interval));
        receiver.comb.insert(Digest(1_500), 5);

        let found = estimate(&receiver, &sender, Rule::FineComb);

        assert_eq!(found.health.useless, 1);
        assert!(found.loss_in_all.is_some_and(|loss| loss < 0.0));
    }
}
