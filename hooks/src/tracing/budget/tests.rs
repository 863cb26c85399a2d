//! What each policy, and other nodes, get of a budget.

use proptest::prelude::*;

use super::*;

/// Every policy wants `kilobytes` of traces of 1 kB in each of `seconds` seconds; what each got.
fn demand(budget: &mut Budget, policies: &[Policy], kilobytes: u64, seconds: u64) -> Vec<u64> {
    let mut got = vec![0; policies.len()];
    for step in 0..seconds * 10 {
        let now = Nanos::from_millis(step * 100);
        for _ in 0..kilobytes / 10 {
            for (got, policy) in got.iter_mut().zip(policies) {
                *got += 1_000 * u64::from(budget.spend(Payer::Own(*policy), 1_000, now));
            }
        }
    }
    got
}

#[test]
fn under_lasting_demand_policies_yield_in_the_stated_order() {
    let mut budget = Budget::new(BudgetRule::default(), Nanos::ZERO).unwrap();

    let got = demand(&mut budget, &Policy::ALL, 500, 1_000);

    // Each wants 500 MB, the budget is 1,000 MB and the burst of 10: the floor and errors have all they want, the
    // others nothing.
    let [floor, error, lmap, latency, code] = got[..] else { panic!("{got:?}") };
    assert!(floor > 495_000_000 && error > 490_000_000, "{got:?}");
    assert!(lmap < 20_000_000 && latency <= lmap && code <= latency, "{got:?}");
}

#[test]
fn floor_and_errors_have_a_share_that_nobody_takes() {
    let mut budget = Budget::new(BudgetRule::default(), Nanos::ZERO).unwrap();
    demand(&mut budget, &[Policy::Lmap, Policy::Latency], 5_000, 100);
    let now = Nanos::from_secs(100);

    let floor = (0..3_000).filter(|_| budget.spend(Payer::Own(Policy::Floor), 1_000, now)).count();
    let error = (0..3_000).filter(|_| budget.spend(Payer::Own(Policy::Error), 1_000, now)).count();

    // 2 MB each, and what stayed in the common pot below the LMAPs' reserve.
    assert!(floor >= 2_000 && error >= 2_000, "{floor} {error}");
}

#[test]
fn what_others_decided_is_charged_and_debts_are_bounded() {
    let mut budget = Budget::new(BudgetRule::default(), Nanos::ZERO).unwrap();

    budget.charge(100_000_000, Nanos::ZERO);

    // Half of the common bucket of 6 MB.
    assert!((budget.left() - 0.5).abs() < 1e-9, "{}", budget.left());
    assert!((budget.forgiven() - 97_000_000.0).abs() < 1.0, "{}", budget.forgiven());
}

#[test]
fn late_spans_of_own_traces_are_owed_in_full_up_to_a_burst() {
    let mut budget = Budget::new(BudgetRule::default(), Nanos::ZERO).unwrap();

    assert!(budget.late(Payer::Own(Policy::Lmap), 9_000_000, Nanos::ZERO));
    assert!((budget.left() - -0.5).abs() < 1e-9 && budget.forgiven() < 1.0, "{}", budget.left());
    assert!(!budget.spend(Payer::Own(Policy::Lmap), 1, Nanos::from_secs(3)));
    assert!(budget.spend(Payer::Own(Policy::Lmap), 1, Nanos::from_secs(8)));

    // More than a burst is not kept, and owed by nobody.
    let left = budget.left();
    assert!(!budget.late(Payer::Own(Policy::Lmap), 100_000_000, Nanos::from_secs(8)));
    assert!((budget.left() - left).abs() < 1e-9 && budget.forgiven() < 1.0, "{}", budget.left());
    assert!((budget.refused() - 100_000_000.0).abs() < 1.0, "{}", budget.refused());
    assert!(budget.late(Payer::Own(Policy::Lmap), 6_000_000, Nanos::from_secs(8)), "within a burst");
}

#[test]
fn own_policies_have_half_of_the_common_budget_however_much_other_nodes_keep() {
    let mut budget = Budget::new(BudgetRule::default(), Nanos::ZERO).unwrap();
    let mut got = 0_u64;

    for step in 0..10_000 {
        let now = Nanos::from_millis(step * 100);
        budget.charge(10_000_000, now);
        for _ in 0..100 {
            got += 1_000 * u64::from(budget.spend(Payer::Own(Policy::Lmap), 1_000, now));
        }
    }

    // Half of 600 kB/s for 1,000 s, and what the floor and errors do not use.
    assert!(got > 300_000_000, "{got}");
}

/// Bytes kept in `seconds`, if 200 traces a second are selected by an error in their first
/// span of 1 kB, and 20 kB of each follow after `delay` tenths of a second, while LMAPs want 500 kB a second.
fn early_errors(budget: &mut Budget, seconds: u64, delay: usize) -> u64 {
    let mut late = std::collections::VecDeque::from(vec![0_u64; delay]);
    let mut kept = 0;
    for step in 0..seconds * 10 {
        let now = Nanos::from_millis(step * 100);
        let follow = late.pop_front().unwrap_or(0);
        let follow = (0..follow).filter(|_| budget.late(Payer::Own(Policy::Error), 20_000, now)).count() as u64;
        let selected = (0..20).filter(|_| budget.spend(Payer::Own(Policy::Error), 1_000, now)).count() as u64;
        late.push_back(selected);
        let lmap = (0..50).filter(|_| budget.spend(Payer::Own(Policy::Lmap), 1_000, now)).count() as u64 * 1_000;
        kept += selected * 1_000 + follow * 20_000 + lmap;
    }
    kept
}

#[test]
fn errors_that_select_traces_early_pay_for_what_follows_themselves() {
    let mut budget = Budget::new(BudgetRule::default(), Nanos::ZERO).unwrap();

    let kept = early_errors(&mut budget, 1_000, 10);

    // 1 MB/s for 1,000 s, the burst, and what was selected while it was not known what follows.
    assert!(kept < 1_050_000_000, "{kept}, forgiven {}", budget.forgiven());

    // SDKs send a batch every five seconds.
    let mut budget = Budget::new(BudgetRule::default(), Nanos::ZERO).unwrap();
    let kept = early_errors(&mut budget, 1_000, 50);
    assert!(kept < 1_050_000_000, "{kept}, forgiven {}", budget.forgiven());
}

#[test]
fn a_burst_of_errors_keeps_a_burst_and_what_is_owed_however_much_follows_their_first_spans() {
    let mut budget = Budget::new(BudgetRule::default(), Nanos::ZERO).unwrap();

    // All at once, before anything is known of what follows: 2 MB of their own, and 90 % of 6.
    let selected = (0..20_000).filter(|_| budget.spend(Payer::Own(Policy::Error), 1_000, Nanos::ZERO)).count();
    assert!((7_395..7_410).contains(&selected), "{selected}");
    // 100 kB each, within a second: 740 MB.
    let follows = |_: &usize| budget.late(Payer::Own(Policy::Error), 100_000, Nanos::from_secs(1));
    let followed = (0..selected).filter(follows).count() as u64;

    let kept = selected as u64 * 1_000 + followed * 100_000;
    // The burst of 10 MB without the floor's 2, as much of it again on credit, and a second.
    assert!(kept > 14_000_000 && kept <= 17_000_000, "{kept}");
    assert!(budget.forgiven() < 1.0 && budget.refused() > 720_000_000.0, "{}", budget.refused());
    // Once it is paid, errors are selected again.
    assert!(!budget.spend(Payer::Own(Policy::Error), 1_000, Nanos::from_secs(2)));
    assert!(budget.spend(Payer::Own(Policy::Error), 1_000, Nanos::from_secs(20)));
}

#[test]
fn late_spans_of_errors_are_owed_by_the_errors_bucket_first() {
    let mut budget = Budget::new(BudgetRule::default(), Nanos::ZERO).unwrap();

    // 2 MB of its own, and what it may take of 6 MB: 90 %.
    assert!(budget.late(Payer::Own(Policy::Error), 2_000_000, Nanos::ZERO));
    assert!((budget.left() - 1.0).abs() < 1e-9, "{}", budget.left());
    assert!(budget.late(Payer::Own(Policy::Error), 5_400_000, Nanos::ZERO));
    assert!((budget.left() - 0.1).abs() < 1e-9, "{}", budget.left());
    // A debt of its own is no debt of others.
    assert!(budget.late(Payer::Own(Policy::Error), 2_000_000, Nanos::ZERO));
    assert!((budget.left() - 0.1).abs() < 1e-9, "{}", budget.left());
    assert!(!budget.spend(Payer::Own(Policy::Error), 1, Nanos::ZERO));
    assert!(budget.late(Payer::Own(Policy::Error), 600_000, Nanos::ZERO));
    assert!(budget.left().abs() < 1e-9 && budget.forgiven() < 1.0, "{}", budget.left());
}

/// Bytes that traces by own verdicts and by those of others got, if they want so many kilobytes a second for
/// 1,000 s, and triggers 100.
fn verdicts(own: u64, of_others: u64) -> [u64; 3] {
    let mut budget = Budget::new(BudgetRule::default(), Nanos::ZERO).unwrap();
    let mut got = [0; 3];
    let payers = [
        (Payer::Others(Peers::one(0)), of_others),
        (Payer::Own(Policy::Lmap), own),
        (Payer::Own(Policy::Trigger), 100),
    ];
    for step in 0..10_000 {
        let now = Nanos::from_millis(step * 100);
        for (got, (payer, kilobytes)) in got.iter_mut().zip(payers) {
            *got += (0..kilobytes / 10).filter(|_| budget.spend(payer, 1_000, now)).count() as u64 * 1_000;
        }
    }
    got
}

#[test]
fn a_peer_with_whatever_number_of_verdicts_takes_nothing_from_own_ones() {
    // 1 MB/s: the floor and errors want nothing, so that all of it is common.
    let [others, own, triggers] = verdicts(600, 10_000);
    assert!(own > 590_000_000 && triggers > 90_000_000, "all that they want: {own} {triggers}, others {others}");

    let [others, own, triggers] = verdicts(10_000, 10_000);
    assert!(own > 900_000_000, "it comes first: {own}, others {others}, triggers {triggers}");

    let [others, ..] = verdicts(0, 800);
    assert!(others > 790_000_000, "what nobody else wants: {others}");
}

/// Bytes that verdicts of each of these peers got, which want so many kilobytes a second for 1,000 s, beside decisions
/// of others.
fn of_peers<const N: usize>(kilobytes: [u64; N], decisions: u64) -> [u64; N] {
    let mut budget = Budget::new(BudgetRule::default(), Nanos::ZERO).unwrap();
    let mut got = [0; N];
    for step in 0..10_000 {
        let now = Nanos::from_millis(step * 100);
        if decisions > 0 {
            budget.charge(decisions * 100, now);
        }
        for ((got, kilobytes), number) in got.iter_mut().zip(kilobytes).zip(0..) {
            let payer = Payer::Others(Peers::one(number));
            *got += (0..kilobytes / 10).filter(|_| budget.spend(payer, 1_000, now)).count() as u64 * 1_000;
        }
        // What nobody here wants is no part of this.
        (0..10).for_each(|_| _ = budget.spend(Payer::Own(Policy::Trigger), 10_000, now));
    }
    got
}

#[test]
fn a_peer_that_finds_everything_anomalous_leaves_other_peers_theirs() {
    // Their half is of what the floor and errors leave: 300 kB/s.
    let [loud, quiet] = of_peers([10_000, 100], 0);
    assert!(quiet > 95_000_000, "all that it wants: {quiet}, the loud one {loud}");
    let [loud, one, other] = of_peers([10_000, 1_000, 1_000], 0);
    assert!(one.min(other) > 90_000_000, "an equal share: {one} {other}, the loud one {loud}");
    let [loud, quiet] = of_peers([10_000, 50], 10_000);
    assert!(quiet > 47_000_000, "beside decisions, too: {quiet}, the loud one {loud}");
    let [alone] = of_peers([10_000], 0);
    assert!(alone > 290_000_000, "who is alone has all of it: {alone}");
}

#[test]
fn decisions_and_verdicts_of_others_take_half_of_the_common_budget_together() {
    let mut budget = Budget::new(BudgetRule::default(), Nanos::ZERO).unwrap();
    let mut got = 0;

    for step in 0..10_000 {
        let now = Nanos::from_millis(step * 100);
        budget.charge(1_000_000, now);
        (0..100).for_each(|_| _ = budget.spend(Payer::Others(Peers::one(0)), 10_000, now));
        assert!(budget.late(Payer::Others(Peers::one(0)), 1_000_000, now), "decisions of others are carried out whole");
        got += (0..100).filter(|_| budget.spend(Payer::Own(Policy::Lmap), 1_000, now)).count() as u64 * 1_000;
    }

    assert!(got > 500_000_000, "{got}");
}

#[test]
fn a_budget_of_nothing_or_of_more_than_all_is_refused() {
    let rule = BudgetRule::default();

    assert!(Budget::new(BudgetRule { floor_share: 0.7, error_share: 0.7, ..rule }, Nanos::ZERO).is_err());
    assert!(Budget::new(BudgetRule { floor_share: f64::NAN, ..rule }, Nanos::ZERO).is_err());
    assert!(Budget::new(BudgetRule { bytes_per_s: 0, ..rule }, Nanos::ZERO).is_err());
}

/// Something that arrives: a trace that a policy wants, or a late span of one.
fn arrival() -> impl Strategy<Value = (bool, usize, u64, u64)> {
    let bytes = prop_oneof![8 => 1..20_000_u64, 2 => 20_000..LARGEST];
    (any::<bool>(), 1..5_usize, bytes, prop_oneof![9 => Just(0), 1 => 0..5_000_u64])
}

/// Largest trace, and largest late span.
const LARGEST: u64 = 4_000_000;

proptest! {
    /// Whatever is asked for in whatever order, and whatever follows: rate × time, the burst that was saved, one that
    /// is owed, and one trace for each of two buckets.
    #[test]
    fn what_is_kept_stays_within_the_budget_and_one_burst(
        arrivals in proptest::collection::vec(arrival(), 1..600), floor in 0.0..0.5, error in 0.0..0.5_f64,
    ) {
        let rule = BudgetRule { floor_share: floor, error_share: error, ..BudgetRule::default() };
        let mut budget = Budget::new(rule, Nanos::ZERO).unwrap();
        let (mut now, mut kept, mut largest) = (0, 0, 0);
        for (is_late, policy, bytes, wait) in arrivals {
            now += wait;
            let (payer, at) = (Payer::Own(Policy::ALL[policy]), Nanos::from_millis(now));
            let is_kept = if is_late { budget.late(payer, bytes, at) } else { budget.spend(payer, bytes, at) };
            kept += bytes * u64::from(is_kept);
            largest = largest.max(if is_late { 0 } else { bytes });
            let saved_and_owed = 2.0 * 1e7;
            let most = 1e6 * (now as f64 / 1e3) + saved_and_owed + 2.0 * largest as f64;
            prop_assert!(kept as f64 <= most + 1.0, "{kept} of {most}");
            prop_assert!(budget.forgiven() == 0.0);
        }
    }
}

#[test]
fn what_nobody_needs_takes_only_what_is_spare() {
    let rule = BudgetRule { bytes_per_s: 1_000, floor_share: 0.0, error_share: 0.0, ..BudgetRule::default() };
    let mut budget = Budget::new(rule, Nanos::ZERO).unwrap();

    // A burst is 10,000 bytes: a fifth of it is spare.
    let spare = (0..100).filter(|_| budget.spend_spare(100, Nanos::ZERO)).count();
    assert_eq!(spare, 20);
    let requested = (0..100).filter(|_| budget.spend(Payer::Own(Policy::Trigger), 100, Nanos::ZERO)).count();
    assert_eq!(requested, 20, "what services request has the next fifth");
    assert!(!budget.spend_spare(100, Nanos::from_secs(2)), "2,000 bytes came back, and 4,000 are gone");
    assert!(budget.spend_spare(100, Nanos::from_secs(3)));
}
