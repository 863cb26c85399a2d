//! Histograms with values on both sides of 0, beside the values themselves.

use std::fmt::Write as _;

use exposition::{Format, Target};

use super::{SlotValue, held, target};

/// Bounds that grow by powers of two on both sides of 0.
pub const BOUNDS: [f64; 11] = [-8.0, -4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0];

/// 500 values between −12 and 8, by splitmix64.
pub fn values(seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    };
    (0..500).map(|_| next() * 20.0 - 12.0).collect()
}

/// Count and sum of the histogram `name`, and of what it has below 0.
pub fn sides(target: &Target, name: &str) -> [Option<(u64, f64)>; 2] {
    let values = held(target);
    [name.to_owned(), format!("{name}.below_zero")].map(|name| {
        let placed = target.placed().into_iter().find(|placed| placed.series.title() == name)?;
        let Some(SlotValue::Histogram(count, sum, _)) = values.get(&name) else { return None };
        Some((*count, *sum as f64 / placed.series.parts_per_unit.get() as f64))
    })
}

/// Whether the histogram `name` says of `values` how many there are on each side of 0, what they sum up to, and up to
/// the factor `within` (and the width of a region's bucket) their 99th percentiles.
pub fn check(target: &Target, name: &str, values: &[f64], within: f64) {
    let [Some(above), Some(below)] = sides(target, name) else { unreachable!("{name}: {:?}", held(target)) };
    let sum: f64 = values.iter().sum();
    // Each is rounded to hundredths.
    assert!((above.1 - below.1 - sum).abs() < 0.02, "{name}: {above:?} {below:?}, and {sum} in all");
    let of = |is_above: bool| {
        let side = values.iter().filter(|value| (**value >= 0.0) == is_above);
        let mut side: Vec<f64> = side.copied().map(f64::abs).collect();
        side.sort_by(f64::total_cmp);
        side
    };
    for (title, (count, sum), values) in
        [(name.to_owned(), above, of(true)), (format!("{name}.below_zero"), below, of(false))]
    {
        assert_eq!(count, values.len() as u64, "{title}");
        let exact: f64 = values.iter().sum();
        assert!((sum / exact - 1.0).abs() < 0.15, "{title}: {sum}, not {exact}");
        let Some(SlotValue::Histogram(_, _, p99)) = held(target).remove(&title) else { unreachable!() };
        let (exact, factor) = (values[values.len() * 99 / 100], within * 1.25);
        assert!((exact / factor..exact * factor).contains(&p99), "{title}: {p99}, not {exact}");
    }
}

/// All `values` so far, in Prometheus' text.
fn page(values: &[f64], bounds: &[f64]) -> String {
    let mut text = String::from("# TYPE change histogram\n");
    for bound in bounds {
        let below = values.iter().filter(|value| *value <= bound).count();
        _ = writeln!(text, "change_bucket{{le=\"{bound}\"}} {below}");
    }
    let (count, sum) = (values.len(), values.iter().sum::<f64>());
    _ = writeln!(text, "change_bucket{{le=\"+Inf\"}} {count}\nchange_sum {sum}\nchange_count {count}");
    text
}

/// A target that has taken the first of `pages` while it learnt, and the third one.
fn after(pages: &[String]) -> Target {
    let mut target = target();
    for page in pages {
        if target.take(page.as_bytes(), Format::Text).unwrap() {
            target.choose();
        }
    }
    target
}

#[test]
fn each_side_has_its_count_its_sum_and_its_tail_although_the_sum_falls() {
    let batches = [1, 2, 3].map(values);
    let pages = [1, 2, 3].map(|upto| page(&batches[..upto].concat(), &BOUNDS));

    let target = after(&pages);

    assert!(batches[2].iter().sum::<f64>() < -500.0);
    check(&target, "change", &batches[2], 2.0);
    assert_eq!(target.report().columns, 6);
}

#[test]
fn a_target_that_began_anew_counts_from_nothing() {
    let batches = [1, 2, 3].map(values);
    let pages = [batches[..1].concat(), batches[..2].concat(), batches[2].clone()];

    let target = after(&pages.map(|values| page(&values, &BOUNDS)));

    check(&target, "change", &batches[2], 2.0);
}

#[test]
fn a_bucket_with_zero_inside_is_split_by_its_width_however_its_sum_moves() {
    let counts = |mean: f64| {
        let page = |n: u32| {
            format!(
                "# TYPE change histogram\nchange_bucket{{le=\"-2\"}} 0\nchange_bucket{{le=\"6\"}} {0}\n\
                 change_bucket{{le=\"+Inf\"}} {0}\nchange_sum {1}\nchange_count {0}\n",
                100 * n,
                f64::from(100 * n) * mean
            )
        };
        let [above, below] = sides(&after(&[1, 2, 3].map(page)), "change").map(Option::unwrap);
        assert!((above.1 - below.1 - 100.0 * mean).abs() < 0.01, "{above:?} {below:?}");
        (above.0, below.0)
    };

    for mean in [0.1, 1.0, 1.9, 2.0] {
        assert_eq!(counts(mean), (75, 25), "{mean}");
    }
}

#[test]
fn what_lies_below_the_first_bound_is_placed_by_the_sum() {
    let page = |n: u32| {
        format!(
            "# TYPE change histogram\nchange_bucket{{le=\"-2\"}} {0}\nchange_bucket{{le=\"0\"}} {0}\n\
             change_bucket{{le=\"1\"}} {1}\nchange_bucket{{le=\"+Inf\"}} {1}\nchange_sum {2}\nchange_count {1}\n",
            10 * n,
            30 * n,
            -90 * i64::from(n)
        )
    };

    let target = after(&[1, 2, 3].map(page));

    // Twenty in the middle of 0 and 1, and ten of -10 each.
    assert_eq!(sides(&target, "change"), [Some((20, 10.0)), Some((10, 100.0))]);
    let Some(SlotValue::Histogram(_, _, p99)) = held(&target).remove("change.below_zero") else { unreachable!() };
    assert!((8.0..12.5).contains(&p99), "{p99}");
}

#[test]
fn of_a_name_too_long_for_both_what_is_below_zero_is_left_out_and_said() {
    let name = "c".repeat(250);
    let batches = [1, 2, 3].map(values);
    let pages = [1, 2, 3].map(|upto| page(&batches[..upto].concat(), &BOUNDS).replace("change", &name));

    let target = after(&pages);

    let positive: Vec<f64> = batches[2].iter().copied().filter(|value| *value >= 0.0).collect();
    let [Some((count, sum)), None] = sides(&target, &name) else { unreachable!("{:?}", held(&target)) };
    assert_eq!(count, positive.len() as u64, "nothing of what is below 0 counts as 0");
    let exact: f64 = positive.iter().sum();
    assert!((sum / exact - 1.0).abs() < 0.15, "{sum}, not {exact}");
    let report = target.report();
    assert_eq!((report.watched, report.columns, target.slots()), (1, 3, target.placed()[0].series.kind.slots()));
    let why = &report.families[0].why;
    assert_eq!(why, "watched; 1 without values below 0: the name is too long");
}
