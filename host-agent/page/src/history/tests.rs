//! History at falling resolution: nothing is twice, no peak is lost, the budget holds.

use proptest::prelude::*;

use super::*;

const START: u32 = 1_700_000_040;

fn quiet(service: &str, second: u32, highest: f32) -> Observation<'_> {
    Observation { service, second, highest, gamma: 3.0, alarm: Alarm::Quiet, rank: 0, points_at: "", reasons: &[] }
}

fn record(history: &mut History, observed: &Observation<'_>) {
    history.record(observed);
}

fn reason(column: &str, share: f64, seen: f64) -> Reason {
    Reason { column: column.to_owned(), unit: "s".to_owned(), share, seen, expected: 0.02, ..Reason::default() }
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
fn scores_from_before_a_threshold_was_learnt_are_none() {
    let mut history = History::new(1 << 20);
    record(&mut history, &Observation { gamma: f32::NAN, ..quiet("cart", START, 0.0) });
    record(&mut history, &quiet("cart", START + 1, 2.0));

    let recent: Vec<_> = history.recent("cart", 9).collect();

    assert!(recent.len() == 2 && recent[0].is_nan(), "{recent:?}");
    assert_eq!(recent[1], 2.0);
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

/// A summary during an alarm of the cart.
fn on(second: u32, highest: f32, reasons: &[Reason]) -> Observation<'_> {
    Observation { alarm: Alarm::On, reasons, ..quiet("cart", second, highest) }
}

#[test]
fn an_episode_has_its_peak_its_best_rank_and_the_metrics_that_made_all_of_it() {
    let mut history = History::new(1 << 20);
    let lasting = [reason("work.duration.mean", 0.9, 0.28), reason("runtime.tasks", 0.05, 38.0)];
    let transient = [reason("runtime.tasks", 0.9, 37.0), reason("work.duration.mean", 0.1, 0.02)];

    record(&mut history, &quiet("cart", START, 1.0));
    record(&mut history, &Observation { rank: 2, ..on(START + 1, 90.0, &transient) });
    record(&mut history, &Observation { rank: 1, ..on(START + 2, 36.0, &lasting) });
    record(&mut history, &Observation { rank: 3, ..on(START + 3, 30.0, &lasting) });
    // Of a row below γ, what stands out there is not what made the alarm.
    record(&mut history, &Observation { rank: 3, ..on(START + 4, 1.0, &[reason("quiet", 1.0, 1.0)]) });
    let open = history.episodes("cart").next().unwrap().clone();
    record(&mut history, &quiet("cart", START + 5, 1.0));

    let episodes: Vec<_> = history.episodes("cart").collect();
    assert_eq!((open.to, episodes.len()), (None, 1));
    let Episode { from, to, peak, rank, .. } = episodes[0];
    assert_eq!((*from, *to, *peak, *rank), (START + 1, Some(START + 5), 90.0, 1));
    let named: Vec<_> = episodes[0].metrics().into_iter().map(|of| (of.title, of.seen, of.share)).collect();
    // (0.1 + 2 × 0.9) / 3, as it was in the row of which it made most.
    let [(title, seen, share), (other, ..)] = &named[..] else { unreachable!("{named:?}") };
    assert_eq!((title.as_str(), seen.as_str(), other.as_str()), ("work.duration.mean", "280 ms", "runtime.tasks"));
    assert!((*share - 1.9 / 3.0).abs() < 1e-9, "{share}");
    assert_eq!(open.metrics(), episodes[0].metrics(), "also while it goes on");
}

#[test]
fn a_short_episode_has_the_rows_of_the_summary_with_which_it_is_over() {
    let mut history = History::new(1 << 20);
    let reasons = [reason("queue.depth", 0.9, 7.0)];
    record(&mut history, &on(START, 1.0, &[]));
    record(&mut history, &Observation { alarm: Alarm::Quiet, ..on(START + 1, 12.0, &reasons) });

    let episode = history.episodes("cart").next().unwrap();

    assert_eq!((episode.to, episode.peak), (Some(START + 1), 12.0));
    assert_eq!(episode.metrics()[0].title, "queue.depth");
}

#[test]
fn what_is_followed_of_episodes_that_go_on_is_bounded_by_the_services_that_share_it() {
    let budget = 1 << 20;
    let mut history = History::new(budget);
    for service in 0..30 {
        record(&mut history, &quiet(&format!("service-{service}"), START, 1.0));
    }
    for second in 1..200 {
        let many: Vec<_> = (0..16).map(|of| reason(&format!("{}.{second}.{of}", "x".repeat(200)), 0.06, 1.0)).collect();
        for service in 0..30 {
            let service = format!("service-{service}");
            record(&mut history, &Observation { service: &service, ..on(START + second, 9.0, &many) });
            assert!(history.bytes() <= budget && history.episode_bytes <= budget / EPISODES_SHARE);
        }
    }

    let mut begins = (0..30).map(|service| history.episodes(&format!("service-{service}")).next().unwrap().from);
    assert!(begins.all(|from| from == START + 1), "none made room for another one");
}

/// The heat map of `service`: titles with the seconds since the start, sorted.
fn heat(history: &History, service: &str) -> Vec<(String, Vec<u32>)> {
    let seconds = |row: &HeatRow| row.cells.iter().map(|cell| cell.second - START).collect::<Vec<u32>>();
    let mut rows: Vec<_> = history.heat(service).map(|row| (row.title.to_string(), seconds(row))).collect();
    rows.sort();
    rows
}

/// A score above γ of `service`, which each of the columns made in part.
fn above(history: &mut History, service: &str, second: u32, parts: &[(&str, f32)]) {
    record(history, &quiet(service, second, 9.0));
    history.explain(service, second, parts.iter().copied());
}

#[test]
fn what_made_scores_above_the_threshold_is_remembered_for_ten_minutes_by_the_second() {
    let mut history = History::new(1 << 20);
    above(&mut history, "cart", START, &[("a", 8.0), ("b", 1.0), ("faint", 0.09), ("none", f32::NAN)]);
    above(&mut history, "cart", START, &[("a", 7.0), ("b", 2.0)]);
    above(&mut history, "cart", START + 1, &[("a", f32::INFINITY)]);
    history.explain("nobody", START, [("a", 8.0)].into_iter());

    let of = |title: &str, seconds: &[u32]| (title.to_owned(), seconds.to_vec());
    assert_eq!(heat(&history, "cart"), [of("a", &[0, 1]), of("b", &[0])]);
    let parts: Vec<_> = history.heat("cart").flat_map(|row| &row.cells).map(|cell| cell.part).collect();
    assert_eq!(parts, [8.0, f32::MAX, 2.0], "the largest of a second");
    assert!(heat(&history, "nobody").is_empty());

    record(&mut history, &quiet("cart", START + REACH + 1, 1.0));
    assert_eq!(heat(&history, "cart"), [of("a", &[1])]);
    record(&mut history, &quiet("cart", START + REACH + 2, 1.0));
    assert!(heat(&history, "cart").is_empty() && history.heat_bytes == 0);
}

#[test]
fn the_heat_map_shows_what_is_remembered() {
    let script = crate::assets::asset("/heat.js").unwrap().text;

    assert!(script.contains(&format!("const KEPT = {REACH};")));
    assert!(script.contains(&format!("const FAINTEST = {},", heat::FAINTEST)));
}

#[test]
fn of_many_columns_those_that_were_above_the_threshold_last_are_remembered() {
    let mut history = History::new(1 << 20);
    for second in 0..10_000 {
        let once = format!("once.{second}");
        above(&mut history, "cart", START + second, &[(once.as_str(), 5.0), ("lasting", 4.0)]);
        assert!(history.bytes() <= 1 << 20);
    }

    let rows = heat(&history, "cart");
    assert_eq!(rows.len(), 32);
    let lasting = &rows[0].1;
    assert_eq!((rows[0].0.as_str(), lasting.len(), lasting[0]), ("lasting", 601, 9_399));
    assert_eq!((rows[1].0.as_str(), rows[31].0.as_str()), ("once.9969", "once.9999"));
}

#[test]
fn where_many_are_above_the_threshold_what_made_it_reaches_back_less_for_all() {
    let mut history = History::new(256 << 10);
    for second in 0..300 {
        for service in 0..40 {
            let name = format!("service-{service}");
            above(&mut history, &name, START + second, &[("a", 5.0), ("b", 4.0), ("c", 1.0)]);
            assert!(history.bytes() <= 256 << 10 && history.heat_bytes <= 32 << 10, "{}", history.heat_bytes);
        }
    }

    let first: Vec<u32> = (0..39).map(|service| heat(&history, &format!("service-{service}"))[0].1[0]).collect();
    let (least, most) = (first.iter().min().unwrap(), first.iter().max().unwrap());
    assert!(*least > 260 && *most < 290 && most - least <= 1, "{first:?}");
}

#[test]
fn what_a_service_that_is_gone_had_is_forgotten_with_it() {
    let mut history = History::new(16 << 20);
    above(&mut history, "gone", START, &[("a", 5.0)]);
    assert!(history.heat_bytes > 0);
    for service in 0..MAX_SERVICES {
        record(&mut history, &quiet(&format!("service-{service}"), START + GONE_AFTER, 1.0));
    }
    assert_eq!(history.heat_bytes, 0, "another one has its place");

    above(&mut history, "service-1", START + GONE_AFTER, &[("a", 5.0)]);
    record(&mut history, &quiet("later", START + GONE_AFTER + FORGET_AFTER, 1.0));
    assert_eq!(history.heat_bytes, 0, "all are gone for a day");
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

#[test]
fn the_page_says_how_many_services_are_remembered() {
    let overview = crate::assets::asset("/overview.js").unwrap().text;

    assert!(overview.contains(&format!("const REMEMBERED = {MAX_SERVICES};")));
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
            let reasons = [reason(&"long ".repeat(40), 0.9, 1.0)];
            record(&mut history, &Observation { alarm, reasons: &reasons, ..quiet(&service, second, highest) });
            let title = format!("{}{gap}", "long ".repeat(gap as usize));
            history.explain(&service, second, [(title.as_str(), highest), ("short", 1.0)].into_iter());
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
