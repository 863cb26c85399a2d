//! Samplers: the ledger balances, times rise, the baseline has no holes, the budget holds.

use std::collections::BTreeMap;

use hooks::sampling::{
    ColumnId, Row, RuleError, Sample, SampleLossReason, Sampler, SamplingPolicy, SamplingRule, Series,
    SuppressionReason,
};
use proptest::prelude::*;
use wire::time::{Nanos, UnixNanos};

fn ids(count: u64) -> Vec<ColumnId> {
    (0..count).map(ColumnId).collect()
}

fn sampler(rule: SamplingRule, columns: u64) -> Sampler {
    let mut sampler = Sampler::new(rule).expect("a valid rule");
    sampler.set_columns(&ids(columns), UnixNanos(0), |sample| assert_eq!(sample.value, Some(0.0), "nothing has begun"));
    sampler
}

fn feed(sampler: &mut Sampler, second: u64, values: &[f64], score: f64) -> Vec<Sample> {
    let mut out = Vec::new();
    let row = Row { at: UnixNanos::from_secs(second), values, score: Some(score) };
    sampler.row(&row, |sample| out.push(sample)).expect("as wide as announced");
    out
}

fn dense(samples: &[Sample]) -> Vec<(u64, u64, Option<f64>)> {
    let dense = samples.iter().filter(|sample| sample.series == Series::Dense);
    dense.map(|sample| (sample.at_ms / 1_000, sample.column.0, sample.value)).collect()
}

fn rule(policy: SamplingPolicy) -> SamplingRule {
    SamplingRule { policy, budget: None, ..SamplingRule::default() }
}

#[test]
fn a_score_sends_the_rows_before_it_once_and_some_after_it() {
    let policy = SamplingPolicy::Score { theta: 1.0 };
    let mut sampler = sampler(SamplingRule { pre_trigger_rows: 3, hold_rows: 2, ..rule(policy) }, 1);
    let scores = [0.1, 0.1, 0.1, 0.1, 0.1, 1.5, 0.1, 0.1, 0.1, 0.1, 1.5];

    let sent = (0_u64..).zip(scores).map(|(second, score)| feed(&mut sampler, second, &[second as f64], score));
    let seconds: Vec<Vec<u64>> =
        sent.map(|samples| dense(&samples).iter().map(|(second, ..)| *second).collect()).collect();

    let none: Vec<u64> = Vec::new();
    assert_eq!(seconds[..5], [const { Vec::<u64>::new() }; 5]);
    assert_eq!(seconds[5], [2, 3, 4, 5]);
    assert_eq!(seconds[6..10], [vec![6], vec![7], none.clone(), none]);
    assert_eq!(seconds[10], [8, 9, 10]);
    assert_eq!(sampler.dense().suppressed(SuppressionReason::Policy), 2);
    assert!(sampler.dense().balances());
}

#[test]
fn a_dead_band_sends_a_column_when_it_moved_since_it_was_sent() {
    let mut sampler = sampler(rule(SamplingPolicy::OnChange), 2);

    let sent: Vec<_> = [[1.0, 5.0], [1.0, 6.0], [1.0, 6.0], [2.0, f64::NAN], [2.0, 6.0]]
        .iter()
        .enumerate()
        .map(|(second, values)| dense(&feed(&mut sampler, second as u64, values, 0.0)).len())
        .collect();

    assert_eq!(sent, [2, 1, 0, 1, 0]);
    assert_eq!((sampler.dense().seen, sampler.dense().in_flight), (9, 4));
}

#[test]
fn the_baseline_is_steady_whatever_the_policy_does() {
    for policy in [SamplingPolicy::Every, SamplingPolicy::Score { theta: 1.0 }] {
        let mut sampler = sampler(rule(policy), 1);

        let all: Vec<_> = (7..400).flat_map(|second| feed(&mut sampler, second, &[1.0], 0.0)).collect();

        let baseline = all.iter().filter(|sample| sample.series == Series::Baseline);
        let seconds: Vec<_> = baseline.map(|sample| sample.at_ms / 1_000).collect();
        let expected: Vec<_> = core::iter::once(7).chain((30..400).step_by(30)).collect();
        assert_eq!(seconds, expected);
        assert!(sampler.baseline().balances());
    }
}

#[test]
fn a_series_ends_when_its_column_is_gone_and_only_then() {
    let mut sampler = sampler(rule(SamplingPolicy::Every), 2);
    feed(&mut sampler, 1, &[1.0, f64::NAN], 0.0);

    let mut ends = Vec::new();
    sampler.set_columns(&[ColumnId(1), ColumnId(9)], UnixNanos::from_secs(1), |sample| ends.push(sample));
    let more = feed(&mut sampler, 2, &[1.0, 2.0], 0.0);
    sampler.gone(UnixNanos::from_secs(3), |sample| ends.push(sample));

    let stale = |series, column, at_ms| Sample { series, column: ColumnId(column), at_ms, value: None };
    // The first mark is later than the sample of the same time; column 1 was in no baseline row.
    let expected = [
        stale(Series::Baseline, 0, 1_001),
        stale(Series::Dense, 0, 1_001),
        stale(Series::Dense, 1, 3_000),
        stale(Series::Dense, 9, 3_000),
    ];
    assert_eq!(ends, expected);
    assert_eq!(more.len(), 2);
}

#[test]
fn what_a_clock_that_was_set_back_brings_is_lost_and_counted() {
    let mut sampler = sampler(rule(SamplingPolicy::Every), 1);
    feed(&mut sampler, 10, &[1.0], 0.0);

    assert!(feed(&mut sampler, 9, &[2.0], 0.0).is_empty());
    assert!(feed(&mut sampler, 10, &[3.0], 0.0).is_empty());
    assert_eq!(feed(&mut sampler, 11, &[4.0], 0.0).len(), 1);

    assert_eq!(sampler.dense().lost(SampleLossReason::OutOfOrder), 2);
    assert_eq!(sampler.baseline().lost(SampleLossReason::OutOfOrder), 2);
}

#[test]
fn acknowledged_and_refused_samples_stay_in_the_ledger() {
    let mut sampler = sampler(rule(SamplingPolicy::Every), 2);
    (0..10).for_each(|second| drop(feed(&mut sampler, second, &[1.0, 2.0], 0.0)));

    let ledger = sampler.ledger_mut(Series::Dense);
    ledger.acknowledge(15);
    ledger.lose(SampleLossReason::Refused, 2);

    let ledger = sampler.dense();
    assert_eq!((ledger.seen, ledger.sent, ledger.in_flight, ledger.lost(SampleLossReason::Refused)), (20, 15, 3, 2));
    assert!(ledger.balances());
}

#[test]
fn thresholds_are_steered_to_the_budget() {
    let policy = SamplingPolicy::Either { theta: 1.0, delta: 0.1 };
    let mut sampler = sampler(SamplingRule { policy, budget: Some(0.05), ..SamplingRule::default() }, 4);
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 24)
    };

    for second in 0..20_000 {
        let values = [random(), random(), random(), random()];
        feed(&mut sampler, second, &values, random() * 0.8);
    }

    let ledger = sampler.dense();
    let share = ledger.in_flight as f64 / ledger.seen as f64;
    assert!((0.04..=0.05).contains(&share), "{share}");
    // Little is wanted that is not affordable: the thresholds do the work, not the allowance.
    assert!((ledger.suppressed(SuppressionReason::Budget) as f64) < 0.02 * ledger.seen as f64, "{ledger:?}");
    let (theta, delta) = sampler.thresholds();
    // Scores are below 0.8, and each that counts brings 35 rows with it: θ lies just below the highest.
    assert!(delta.unwrap() > 0.5 && (0.7..0.85).contains(&theta.unwrap()), "{theta:?} {delta:?}");
}

#[test]
fn a_rule_out_of_range_and_a_row_of_another_width_are_refused() {
    let rule = SamplingRule::default();
    assert!(matches!(
        Sampler::new(SamplingRule { baseline: Nanos::from_secs(61), ..rule }),
        Err(RuleError::Baseline(_))
    ));
    assert!(Sampler::new(SamplingRule { budget: Some(0.0), ..rule }).is_err());
    assert!(Sampler::new(SamplingRule { policy: SamplingPolicy::Score { theta: f64::NAN }, ..rule }).is_err());
    assert!(Sampler::new(SamplingRule { pre_trigger_rows: 10_001, ..rule }).is_err());

    let mut sampler = sampler(rule, 2);
    let row = Row { at: UnixNanos(1), values: &[1.0], score: None };
    let error = sampler.row(&row, |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "a row has 1 values, expected one for each of 2 columns");
}

fn policy() -> impl Strategy<Value = SamplingPolicy> {
    prop_oneof![
        Just(SamplingPolicy::Every),
        Just(SamplingPolicy::OnChange),
        Just(SamplingPolicy::DeadBand { delta: 1.0 }),
        Just(SamplingPolicy::Score { theta: 1.0 }),
        Just(SamplingPolicy::Either { theta: 1.0, delta: 1.0 }),
    ]
}

proptest! {
    #[test]
    fn the_ledger_balances_times_rise_and_the_budget_holds(
        policy in policy(),
        budget in proptest::option::of(0.01..1.0_f64),
        (before, hold) in (0..6_usize, 0..4_u32),
        rows in proptest::collection::vec((0..40_u64, 0..4_u64, 0.0..2.0_f64, proptest::collection::vec(0..4_u8, 3)), 1..120),
    ) {
        let rule = SamplingRule { policy, budget, pre_trigger_rows: before, hold_rows: hold, ..SamplingRule::default() };
        let mut sampler = sampler(rule, 3);
        let mut last: BTreeMap<(Series, ColumnId), u64> = BTreeMap::new();
        let (mut now, mut in_flight, mut seen) = (1_000_u64, BTreeMap::new(), 0);
        for (step, action, score, values) in rows {
            // Mostly forwards, now and then back or not at all.
            now = if action == 0 { now.saturating_sub(step / 4) } else { now + step };
            let values: Vec<f64> = values.iter().map(|v| if *v == 3 { f64::NAN } else { f64::from(*v) }).collect();
            let mut out = Vec::new();
            if action == 3 && step == 0 {
                let columns: Vec<_> = (now..now + 3).map(ColumnId).collect();
                sampler.set_columns(&columns, UnixNanos::from_secs(now), |sample| out.push(sample));
            } else {
                let row = Row { at: UnixNanos::from_secs(now), values: &values, score: Some(score) };
                sampler.row(&row, |sample| out.push(sample)).unwrap();
                seen += values.iter().filter(|value| !value.is_nan()).count() as u64;
            }
            for sample in out {
                let before = last.insert((sample.series, sample.column), sample.at_ms);
                prop_assert!(before.is_none_or(|before| before < sample.at_ms), "{:?} after {:?}", sample, before);
                *in_flight.entry(sample.series).or_insert(0) += u64::from(sample.value.is_some());
            }
            for (series, ledger) in [(Series::Baseline, sampler.baseline()), (Series::Dense, sampler.dense())] {
                prop_assert!(ledger.balances(), "{:?}", ledger);
                prop_assert_eq!(ledger.seen, seen);
                prop_assert_eq!(ledger.in_flight, in_flight.get(&series).copied().unwrap_or(0));
            }
            if let Some(budget) = budget {
                prop_assert!(sampler.dense().in_flight as f64 <= budget * seen as f64);
            }
        }
    }
}
