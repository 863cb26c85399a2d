//! History at falling resolution: nothing is twice, no peak is lost, the budget holds.

use proptest::prelude::*;

use super::*;

const START: u32 = 1_700_000_040;

fn quiet(service: &str, second: u32, highest: f32) -> Observation<'_> {
    Observation { service, second, highest, gamma: 3.0, alarm: Alarm::Quiet, rank: 0, points_at: "" }
}

fn record(history: &mut History, observed: &Observation<'_>) {
    history.record(observed, Vec::new);
}

fn metric(title: &str) -> Metric {
    Metric { title: title.to_owned(), seen: "180 ms".to_owned(), expected: "20 ms".to_owned(), share: 0.9 }
}

#[test]
fn a_day_is_remembered_the_last_minutes_by_the_second() {
    let mut history = History::new(1 << 20);
    for second in START..START + 100_000 {
        record(&mut history, &quiet("cart", second, 1.0));
    }

    let buckets = history.buckets("cart");

    let of = |step| buckets.iter().filter(|(of, _)| *of == step).count();
    assert_eq!((of(1), of(10)), (300, 330));
    assert_eq!(buckets.last().unwrap().1.second, START + 99_999);
    assert!(START + 100_000 - buckets[0].1.second >= 86_000, "a day");
}

#[test]
fn more_services_reach_back_less_and_the_budget_holds() {
    let mut history = History::new(256 << 10);
    for second in START..START + 2_000 {
        record(&mut history, &quiet("first", second, 1.0));
    }
    let alone = history.buckets("first").len();
    for number in 0..20 {
        record(&mut history, &quiet(&format!("service-{number}"), START + 2_000, 1.0));
    }

    assert!(history.buckets("first").len() < alone);
    assert!(history.bytes() <= 256 << 10, "{}", history.bytes());
}

#[test]
fn an_episode_has_its_peak_with_its_metrics_and_its_best_rank() {
    let mut history = History::new(1 << 20);
    let on = |second, highest, rank| Observation { alarm: Alarm::On, rank, ..quiet("cart", second, highest) };

    record(&mut history, &quiet("cart", START, 1.0));
    history.record(&on(START + 1, 5.0, 2), || vec![metric("a")]);
    history.record(&on(START + 2, 9.0, 1), || vec![metric("b")]);
    history.record(&on(START + 3, 7.0, 3), || vec![metric("c")]);
    let goes_on = history.episodes("cart").next().unwrap().to;
    record(&mut history, &quiet("cart", START + 4, 1.0));

    let episodes: Vec<_> = history.episodes("cart").collect();
    assert_eq!((goes_on, episodes.len()), (None, 1));
    let Episode { from, to, peak, rank, metrics, .. } = episodes[0];
    assert_eq!((*from, *to, *peak, *rank), (START + 1, Some(START + 4), 9.0, 1));
    assert_eq!(metrics[0].title, "b");
}

#[test]
fn services_that_are_gone_are_forgotten_after_a_day_when_others_come() {
    let mut history = History::new(1 << 20);
    record(&mut history, &quiet("old", START, 1.0));
    record(&mut history, &quiet("young", START + 86_300, 1.0));
    // Looked for once in ten minutes.
    record(&mut history, &quiet("new", START + 86_900, 1.0));

    assert!(history.buckets("old").is_empty());
    assert_eq!((history.buckets("young").len(), history.buckets("new").len()), (1, 1));
}

#[test]
fn where_all_are_there_still_newcomers_have_no_history_and_take_no_ones() {
    let mut history = History::new(16 << 20);
    for second in 0..3 {
        for service in 0..MAX_SERVICES + 100 {
            record(&mut history, &quiet(&format!("service-{service}"), START + second, 1.0));
        }
    }
    assert_eq!(history.buckets("service-0").len(), 3);
    assert!(history.buckets(&format!("service-{MAX_SERVICES}")).is_empty());

    record(&mut history, &quiet("later", START + 2 + GONE_AFTER, 1.0));

    assert_eq!(history.buckets("later").len(), 1, "one that is gone gives way");
}

/// Seconds between two observations, a score, and whether there is an alarm.
fn steps() -> impl Strategy<Value = Vec<(u32, f32, bool)>> {
    let gap = prop_oneof![8 => 0..3_u32, 1 => 3..400_u32];
    proptest::collection::vec((gap, 0.0..100.0_f32, proptest::bool::weighted(0.1)), 1..900)
}

proptest! {
    #[test]
    fn no_second_is_twice_and_no_peak_that_is_reached_is_lost(steps in steps()) {
        let mut history = History::new(1 << 20);
        let (mut second, mut seen) = (START, Vec::new());
        for (gap, highest, alarm) in steps {
            second += gap;
            let alarm = if alarm { Alarm::On } else { Alarm::Quiet };
            record(&mut history, &Observation { alarm, ..quiet("cart", second, highest) });
            seen.push((second, highest));
        }

        let buckets = history.buckets("cart");

        for pair in buckets.windows(2) {
            let ((step, first), (_, next)) = (pair[0], pair[1]);
            prop_assert!(first.second + step <= next.second, "{first:?} of {step} s overlaps {next:?}");
        }
        for (step, bucket) in &buckets {
            let inside = seen.iter().filter(|(at, _)| (bucket.second..bucket.second + step).contains(at));
            let highest = inside.map(|(_, score)| *score).fold(f32::MIN, f32::max);
            prop_assert!(bucket.highest >= highest, "{bucket:?} hides {highest}");
            prop_assert!(seen.iter().any(|(_, score)| *score == bucket.highest));
        }
        let last = seen.last().unwrap();
        prop_assert_eq!(buckets.last().unwrap().1.second, last.0);
    }

    #[test]
    fn it_never_takes_more_than_its_budget(
        budget in 30_000..300_000_usize,
        observed in proptest::collection::vec((0..40_u8, 0..30_u32, 0.0..9.0_f32, any::<bool>()), 1..600),
    ) {
        let (mut history, mut second) = (History::new(budget), START);
        for (service, gap, highest, alarm) in observed {
            second += gap;
            let alarm = if alarm { Alarm::On } else { Alarm::Quiet };
            let service = format!("service-{service}");
            let observed = Observation { alarm, ..quiet(&service, second, highest) };
            history.record(&observed, || vec![metric(&"long ".repeat(40))]);
            prop_assert!(history.bytes() <= budget, "{} of {budget}", history.bytes());
        }
    }

    #[test]
    fn a_clock_that_is_set_back_neither_fails_nor_loses_what_comes(back in 1..5_000_u32) {
        let mut history = History::new(1 << 20);
        record(&mut history, &quiet("cart", START, 1.0));
        record(&mut history, &quiet("cart", START - back, 8.0));
        record(&mut history, &quiet("cart", START + 1, 2.0));

        let highest: Vec<_> = history.recent("cart", 9).collect();
        prop_assert_eq!(highest, vec![8.0, 2.0]);
    }
}
