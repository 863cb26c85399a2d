//! Guarantees of the paper on fridges, on seeded traces: estimates are unbiased, and their variance is within the
//! bound.

use simulation::{ALL, BINS, Moments, Shape, Trace, literal, own};
use synopses::digest::Digest;
use synopses::fridge::{Combination, Counter, Duplicates, Fridge, Report, Sample, Settings, Stamp, combine};

#[path = "fridge/simulation.rs"]
mod simulation;

type BinMoments = Moments<{ ALL + 1 }>;

fn single(trace: &Trace, settings: Settings, seeds: u64, weigh: impl Fn(&Report) -> Sample) -> BinMoments {
    (0..seeds).map(|seed| trace.single(Settings { seed, ..settings }, &weigh)).collect()
}

#[test]
fn counts_are_unbiased_in_every_bin_and_in_all_for_both_counters() {
    for (slots, probability) in [(64, 1.0), (64, 1.0 / 16.0), (256, 0.25), (1024, 1.0), (1024, 0.25)] {
        let trace = Trace::new(Shape::of_lifetimes(slots, probability, 0.4), 1);
        for counter in [Counter::Accepted, Counter::Arrivals] {
            let settings = Settings { slots, probability, counter, ..Settings::default() };
            let moments = single(&trace, settings, 1_000, own);
            for (at, truth) in trace.truth.into_iter().enumerate() {
                let off = moments.off(at, truth);
                let ratio = moments.mean(at) / truth;
                assert!(
                    off.abs() < 4.0,
                    "M {slots}, p {probability}, {counter:?}, bin {at}: {ratio} × truth, {off} sigma"
                );
            }
            assert!((moments.mean(ALL) / trace.truth[ALL] - 1.0).abs() < 0.01, "{}", moments.mean(ALL));
        }
    }
}

#[test]
fn the_chance_of_one_counter_with_the_other_is_far_off() {
    let (slots, probability) = (1024, 0.25);
    let trace = Trace::new(Shape::of_lifetimes(slots, probability, 0.4), 1);
    let settings = Settings { slots, probability, ..Settings::default() };
    let moments = single(&trace, settings, 200, literal(slots, probability));

    let last = BINS.len() - 1;
    assert!(moments.off(last, trace.truth[last]) < -10.0);
    assert!(moments.mean(last) / trace.truth[last] < 0.35);
}

#[test]
fn whatever_share_is_answered_counts_stay_unbiased() {
    let of_lifetimes = |answered| Shape::of_lifetimes(256, 0.5, answered);
    let flooded = Shape { orphans: 10, ..Shape::new(2_000, 111, 0.4) };
    for shape in [of_lifetimes(1.0), of_lifetimes(0.4), flooded] {
        let trace = Trace::new(shape, 2);
        let settings = Settings { slots: 256, probability: 0.5, ..Settings::default() };
        let moments = single(&trace, settings, 1_000, own);
        for (at, truth) in trace.truth.into_iter().enumerate() {
            assert!(moments.off(at, truth).abs() < 4.0, "{shape:?}, bin {at}: {}", moments.off(at, truth));
        }
    }
}

#[test]
fn the_variance_is_at_most_the_sum_of_the_inverse_chances_less_one() {
    let (slots, probability) = (1024, 0.25);
    let trace = Trace::new(Shape::of_lifetimes(slots, probability, 0.4), 3);
    let moments = single(&trace, Settings { slots, probability, ..Settings::default() }, 1_000, own);

    for (at, bound) in trace.variance_bound(slots, probability).into_iter().enumerate() {
        let ratio = (moments.variance(at) / bound).sqrt();
        assert!((0.85..1.1).contains(&ratio), "bin {at}: {ratio} of the deviation stated");
    }
}

#[test]
fn retransmissions_hardly_bias_the_delays_of_other_requests() {
    let trace = Trace::new(Shape::retransmitting(0.82), 4);
    let settings = Settings { slots: 4_096, ..Settings::default() };
    let moments = single(&trace, settings, 200, own);
    for (at, truth) in trace.truth.into_iter().enumerate() {
        let (ratio, noise) = (moments.mean(at) / truth, moments.noise(at) / truth);
        assert!((ratio - 1.0).abs() < 0.03 + 2.0 * noise, "bin {at}: {ratio} ± {noise}");
    }
}

#[test]
fn a_counter_that_counted_copies_would_overstate_long_delays() {
    let trace = Trace::new(Shape::retransmitting(0.82), 4);
    let moments: BinMoments = (0..100).map(|seed| trace.with_copies_counted(4_096, seed)).collect();

    let last = BINS.len() - 1;
    assert!(moments.mean(last) / trace.truth[last] > 1.3, "{}", moments.mean(last) / trace.truth[last]);
}

/// Weighted answers per pair of which the last copy was answered. Every `each`th request comes again after 300 others,
/// and is answered 20 later. And how much of it is to be expected: the chance not to meet those copies that were not
/// counted because their request was still there.
fn copies(each: u64, runs: u64) -> (f64, f64) {
    let (requests, slots) = (2_000_u64, 512);
    let (mut sum, mut pairs, mut resident) = (0.0, 0.0, 0);
    for seed in 0..runs {
        let settings =
            Settings { slots, probability: 0.5, duplicates: Duplicates::Overwrite, seed, ..Settings::default() };
        let mut fridge = Fridge::new(settings).expect("possible");
        let digest = |number: u64| Digest(number.wrapping_mul(0xd129_90b7_c3a8_f5e5));
        let before = |now: u64, by: u64| now.checked_sub(by).filter(|number| *number < requests && number % each == 0);
        for now in 0..requests + 400 {
            if now < requests {
                fridge.insert(digest(now), now << 10);
            }
            if let Some(number) = before(now, 300) {
                fridge.insert(digest(number), now << 10);
            }
            if let Some(number) = before(now, 320) {
                sum += fridge.match_response(digest(number), now << 10).map_or(0.0, |report| report.weight());
                pairs += 1.0;
            }
        }
        resident += fridge.tally().duplicate_requests;
    }
    let uncounted = resident as f64 / pairs * 20.0 / each as f64;
    (sum / pairs, (uncounted * (-1.0 / slots as f64).ln_1p()).exp())
}

#[test]
fn with_one_fate_for_all_copies_the_last_one_is_kept_with_probability_p() {
    let (ratio, _) = copies(20, 2_000);

    assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
}

#[test]
fn where_every_request_comes_twice_copies_that_are_not_counted_are_missing_in_the_weights() {
    // A copy of a pending request evicts nothing. But it might have evicted a request that arrived in between, had they
    // shared a slot.
    let (ratio, expected) = copies(1, 600);

    assert!((0.98..0.995).contains(&expected), "{expected}");
    assert!((ratio - expected).abs() < 0.004, "{ratio}, expected {expected}");
}

fn several(trace: &Trace, parts: &[(usize, f64)], stamp: Stamp, how: Combination, seeds: u64) -> BinMoments {
    let run = |seed| trace.estimate(combine(&trace.several(parts, stamp, seed), parts.len(), how));
    (0..seeds).map(run).collect()
}

#[test]
fn samples_of_several_fridges_are_unbiased_together_and_better_than_the_published_weights() {
    let trace = Trace::new(Shape::new(12_000, 4_000, 0.4), 5);
    for (parts, stamp) in [
        (&[(512, 0.45), (512, 0.05)][..], Stamp::Arrivals),
        (&[(512, 0.45), (512, 0.05)], Stamp::Accepted),
        (&[(256, 0.3), (256, 0.05), (512, 0.1)], Stamp::Arrivals),
    ] {
        let total = several(&trace, parts, stamp, Combination::HtTotal, 400);
        let published = several(&trace, parts, stamp, Combination::Ivw, 400);
        let mean = several(&trace, parts, stamp, Combination::Mean, 400);
        for (at, truth) in trace.truth.into_iter().enumerate() {
            assert!(total.off(at, truth).abs() < 4.0, "{parts:?}, bin {at}: {} sigma", total.off(at, truth));
            let (ours, others) = (total.error(at, truth), published.error(at, truth).min(mean.error(at, truth)));
            assert!(ours >= 0.5 || ours <= 1.1 * others, "{parts:?}, bin {at}: {ours}, others {others}");
        }
    }
}

#[test]
fn the_published_weights_pull_tails_down() {
    let trace = Trace::new(Shape::second(65_000), 6);
    let of = |how| several(&trace, &[(512, 0.45), (512, 0.05)], Stamp::Arrivals, how, 200);
    let (published, total) = (of(Combination::Ivw), of(Combination::HtTotal));

    let last = BINS.len() - 1;
    let (truth, ratio) = (trace.truth[last], published.mean(last) / trace.truth[last]);
    assert!(published.off(last, truth) < -5.0 && ratio < 0.95, "{ratio}");
    for (at, truth) in trace.truth.into_iter().enumerate() {
        assert!(total.off(at, truth).abs() < 4.0, "bin {at}: {}", total.mean(at) / truth);
    }
}
