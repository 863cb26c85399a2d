use super::*;

const MILLISECOND: u64 = 1_000_000;

fn fridge(settings: Settings) -> Fridge {
    Fridge::new(settings).expect("valid settings")
}

fn small() -> Settings {
    Settings { slots: 64, tick_shift: 0, ..Settings::default() }
}

/// The digest of a request that belongs into slot `index` of `fridge`, counting from `from`.
fn digest_for(fridge: &Fridge, index: usize, from: u64) -> Digest {
    (from..from + 100_000)
        .map(Digest)
        .find(|digest| fridge.spot(*digest).index == index)
        .expect("every slot has digests")
}

#[test]
fn a_request_with_nothing_in_between_weighs_exactly_one_over_p() {
    for (counter, probability) in [(Counter::Accepted, 0.25), (Counter::Arrivals, 0.25), (Counter::Accepted, 1.0)] {
        let mut fridge = fridge(Settings { probability, counter, ..small() });
        let admitted = (0..100_000).map(Digest).find(|digest| u64::from(fridge.spot(*digest).coin) < fridge.threshold);
        let digest = admitted.expect("a quarter of all digests enter");

        fridge.insert(digest, 5);
        let report = fridge.match_response(digest, 25).expect("nothing came in between");

        assert_eq!((report.delay_ns, report.insertions, report.fridge), (20, 0, 0));
        assert!((report.weight() - 1.0 / probability).abs() < 1e-12, "{}", report.weight());
        assert_eq!(report.weight(), report.total_weight());
    }
}

#[test]
fn with_two_slots_a_sample_weighs_two_to_the_insertions_survived() {
    let mut fridge = fridge(Settings { slots: 2, ..small() });
    let waiting = digest_for(&fridge, 0, 0);
    fridge.insert(waiting, 0);
    let mut other = 1_000;
    for _ in 0..5 {
        let digest = digest_for(&fridge, 1, other);
        fridge.insert(digest, 1);
        other = digest.0 + 1;
    }

    let report = fridge.match_response(waiting, 2).expect("all others are in the other slot");

    assert_eq!(report.insertions, 5);
    assert!((report.weight() - 32.0).abs() < 1e-9);
}

#[test]
fn at_the_end_of_its_lifetime_a_sample_weighs_e_over_p() {
    for (counter, x) in [(Counter::Accepted, 1 << 12), (Counter::Arrivals, 1 << 14)] {
        let fridge = fridge(Settings { slots: 1 << 12, probability: 0.25, counter, ..Settings::default() });

        let weight = libm::exp(fridge.weighing.ln_weight(x));

        assert!((weight / (4.0 * core::f64::consts::E) - 1.0).abs() < 1e-3, "{weight}");
    }
}

#[test]
fn weights_grow_with_the_insertions_and_are_clamped_and_counted() {
    let mut fridge = fridge(Settings { slots: 2, ..small() });
    let weights: std::vec::Vec<_> = (0..80).map(|x| fridge.weighing.ln_weight(x)).collect();

    assert!(weights.is_sorted());
    assert_eq!(fridge.tally.clamped(weights[79]), weights[79]);
    assert_eq!(fridge.tally.clamped(fridge.weighing.ln_weight(90)), 60.0);
    assert_eq!(fridge.tally().weight_clamped, 1);
}

#[test]
fn a_response_is_counted_as_what_it_was() {
    let mut fridge = fridge(small());

    assert_eq!(fridge.match_response(Digest(1), 0), None);
    fridge.insert(Digest(2), 10);
    assert!(fridge.match_response(Digest(2), 10).is_some_and(|report| report.delay_ns == 0));
    assert_eq!(fridge.match_response(Digest(2), 11), None);
    fridge.insert(Digest(3), 10);
    assert_eq!(fridge.match_response(Digest(3), 9), None);
    assert_eq!(fridge.match_response(Digest(3), 12), None);

    let tally = fridge.tally();
    assert_eq!((tally.responses, tally.matched, tally.unmatched, tally.clock_anomaly), (5, 1, 3, 1));
}

#[test]
fn an_empty_slot_matches_nobody_even_where_the_hash_is_zero() {
    let prints = Prints::new(Duplicates::Overwrite);

    assert_eq!(prints.of(0), 1);
    assert!(!prints.matches(Slot::default().print, prints.of(0)));
    assert_eq!(Prints::new(Duplicates::Discard).of(1 << 31), 1);
}

#[test]
fn whoever_loses_the_coin_touches_no_slot_and_counts_as_an_arrival_only() {
    for (counter, counted) in [(Counter::Accepted, 0), (Counter::Arrivals, 1)] {
        let mut fridge = fridge(Settings { probability: 1e-3, counter, ..small() });
        let refused = (0..100_000).map(Digest).find(|digest| u64::from(fridge.spot(*digest).coin) >= fridge.threshold);
        let refused = refused.expect("most digests do not enter");

        fridge.insert(refused, 0);

        assert!(fridge.slots.iter().all(|slot| *slot == Slot::default()));
        assert_eq!((fridge.insertions, fridge.tally().admitted), (counted, 0));
        // A copy that loses must not match what came before it.
        fridge.insert(refused, 5);
        assert_eq!(fridge.match_response(refused, 9), None);
    }
}

#[test]
fn a_copy_of_a_waiting_request_is_no_insertion() {
    for duplicates in [Duplicates::Overwrite, Duplicates::KeepFirst, Duplicates::Discard] {
        let mut fridge = fridge(Settings { duplicates, ..small() });
        fridge.insert(Digest(1), 100);
        fridge.insert(Digest(1), 350);

        let report = fridge.match_response(Digest(1), 400);

        let tally = fridge.tally();
        assert_eq!((fridge.insertions, tally.admitted, tally.duplicate_requests), (1, 1, 1));
        match duplicates {
            Duplicates::Overwrite => assert!(report.is_some_and(|report| report.delay_ns == 50)),
            Duplicates::KeepFirst => assert!(report.is_some_and(|report| report.delay_ns == 300)),
            Duplicates::Discard => assert_eq!((report, tally.ambiguous), (None, 1)),
        }
        // Gone in any case, and fresh when it comes again.
        assert_eq!(fridge.match_response(Digest(1), 400), None);
        fridge.insert(Digest(1), 500);
        assert!(fridge.match_response(Digest(1), 501).is_some());
    }
}

#[test]
fn a_copy_that_loses_a_random_coin_takes_the_older_one_with_it() {
    let settings = Settings { coin: Coin::Random, probability: 0.5, ..small() };
    let (mut kept, mut gone) = (0, 0);
    for seed in 0..400 {
        let mut fridge = fridge(Settings { seed, ..settings });
        fridge.insert(Digest(1), 0);
        if fridge.tally().admitted == 0 {
            continue;
        }
        fridge.insert(Digest(1), 0);
        match fridge.match_response(Digest(1), 1) {
            Some(_) => kept += 1,
            None => gone += 1,
        }
    }

    assert!(kept > 60 && gone > 60, "{kept} kept, {gone} gone of about 100 each");
}

#[test]
fn counters_and_ticks_may_wrap_in_between() {
    let run = |insertions: u64, start_ns: u64| {
        let mut fridge = fridge(Settings { slots: 256, tick_shift: 10, ..Settings::default() });
        fridge.insertions = insertions;
        let mut reports = std::vec::Vec::new();
        for number in 0..2_000 {
            let now = start_ns + number * MILLISECOND;
            fridge.insert(Digest(number), now);
            if let Some(asked) = number.checked_sub(100) {
                reports.extend(fridge.match_response(Digest(asked), now + 512));
            }
        }
        reports
    };
    let plain = run(0, 0);

    assert!(plain.len() > 1_000);
    assert_eq!(run((1 << 32) - 5, 0), plain);
    assert_eq!(run(u64::from(u32::MAX), ((1 << 32) - 5) << 10), plain);
}

#[test]
fn what_waits_and_cannot_be_answered_any_more_is_evicted_and_counted() {
    let mut fridge = fridge(small());
    (0..1_000).for_each(|number| fridge.insert(Digest(number), 0));

    let tally = fridge.tally();
    let waiting = fridge.slots.iter().filter(|slot| slot.print != 0).count() as u64;
    assert_eq!((tally.requests, tally.admitted, tally.evicted), (1_000, 1_000, 1_000 - waiting));
    assert_eq!(fridge.memory_bytes(), 64 * 12);
}

#[test]
fn memory_is_twelve_bytes_per_slot() {
    for (slots, bytes) in [(1 << 10, 12 << 10), (1 << 12, 48 << 10), (1 << 16, 768 << 10)] {
        assert_eq!(fridge(Settings { slots, ..Settings::default() }).memory_bytes(), bytes);
    }
}
