//! Pages that no library writes: the same series twice, types that change, numbers that are none of a counter.

use exposition::{Exclusion, Format, RefusedSamples, TargetReport};

use super::{SlotValue, after, held, target};

/// Series without a column, by reason, without those of which there is none.
fn excluded(report: &TargetReport) -> Vec<(&'static str, usize)> {
    let counts = Exclusion::REASONS.into_iter().zip(report.excluded.counts());
    counts.filter(|(_, count)| *count > 0).collect()
}

#[test]
fn of_a_sample_that_comes_twice_the_first_counts_and_the_others_are_counted() {
    // The third has its labels in another order, and is the same series.
    let page = |n: u32| {
        let (first, second) = (n * 10, n * 1_000);
        format!(
            "a_total{{x=\"1\",y=\"2\"}} {first}\na_total{{x=\"1\",y=\"2\"}} {second}\na_total{{y=\"2\",x=\"1\"}} {second}\n"
        )
    };
    let mut target = target();

    for n in 1..=3 {
        if target.take(page(n).as_bytes(), Format::Text).unwrap() {
            target.choose();
        }
        assert_eq!(target.last_scrape(), (3, RefusedSamples { duplicate: 2, ..RefusedSamples::default() }), "{n}");
    }

    assert_eq!(held(&target)[r#"a_total{x="1",y="2"}"#], SlotValue::Counter(10));
}

#[test]
fn names_that_are_longer_than_is_kept_are_counted_as_such() {
    let page = format!("{} 1\nshort 1\n", "n".repeat(3_000));
    let mut target = target();

    target.take(page.as_bytes(), Format::Text).unwrap();

    assert_eq!(target.last_scrape(), (2, RefusedSamples { too_long: 1, ..RefusedSamples::default() }));
    assert_eq!(target.report().exposed, 1);
}

#[test]
fn a_series_whose_type_changes_goes_on_as_what_it_was() {
    let page = |n: u32, kind: &str| format!("# TYPE a counter\na {n}\n# TYPE b {kind}\nb {n}\n");

    let held = after(&[page(1, "counter"), page(2, "counter"), page(5, "gauge"), page(9, "gauge")], Format::Text);

    assert_eq!((&held["a"], &held["b"]), (&SlotValue::Counter(7), &SlotValue::Counter(7)), "{held:?}");
}

#[test]
fn numbers_that_no_counter_or_histogram_has_neither_count_nor_end_it() {
    let page = |n: u32, value: &str| {
        format!(
            "# TYPE a_total counter\na_total {value}\n# TYPE h histogram\nh_bucket{{le=\"1\"}} {value}\n\
             h_bucket{{le=\"+Inf\"}} {n}\nh_sum {value}\nh_count {n}\nsteady_total {n}\n"
        )
    };
    let mut pages = vec![page(1, "1"), page(2, "2")];
    pages.extend(["NaN", "-Inf", "+Inf", "-7", "1e15", "3"].iter().zip(3..).map(|(value, n)| page(n, value)));

    let held = after(&pages, Format::Text);

    assert_eq!(held["steady_total"], SlotValue::Counter(6), "{held:?}");
    assert!(held.contains_key("a_total") && held.contains_key("h"), "{held:?}");
}

#[test]
fn counts_that_do_not_fit_are_no_reason_to_end() {
    let page = |n: &str| {
        format!("# TYPE h histogram\nh_bucket{{le=\"1\"}} {n}\nh_bucket{{le=\"+Inf\"}} {n}\nh_sum {n}\nh_count {n}\n")
    };
    let mut target = target();

    // It panicked where additions are checked: counts of two scrapes did not fit into one word.
    for n in ["1", "2", "1e308", "3", "1e308", "4", "1e19"] {
        if target.take(page(n).as_bytes(), Format::Text).unwrap() {
            target.choose();
        }
        target.store(|_, _| {});
    }

    assert!(target.is_chosen());
}

#[test]
fn labels_that_contradict_the_type_refuse_the_scrape_or_leave_the_series_out() {
    for page in [
        "# TYPE h histogram\nh_bucket{le=\"many\"} 1\nh_bucket{le=\"+Inf\"} 1\n",
        "# TYPE h histogram\nh_bucket 1\n",
        "# TYPE s summary\ns{quantile=\"half\"} 1\n",
        "# TYPE h histogram\nh_bucket{le=\"2\"} 9\nh_bucket{le=\"1\"} 5\nh_bucket{le=\"+Inf\"} 1\nh_count 3\n",
    ] {
        let mut target = target();
        for _ in 0..3 {
            if target.take(page.as_bytes(), Format::Text) == Ok(true) {
                target.choose();
            }
        }
        let values = held(&target);
        assert!(!values.contains_key("h_bucket") && !values.contains_key("s"), "{page}: {values:?}");
    }
}

#[test]
fn label_sets_that_no_column_may_have_are_in_the_rest_of_their_name_whenever_they_came() {
    let many = (0..17).map(|at| format!("l{at}=\"x\"")).collect::<Vec<_>>().join(",");
    let long = format!("path=\"{}\"", "x".repeat(257));
    let page = |n: u32, more: &str| {
        format!(
            "# TYPE a_total counter\na_total{{code=\"200\"}} {n}\na_total{{{many}}} {}\na_total{{{long}}} {}\n{more}\
             # TYPE b_total counter\nb_total{{{long}}} {n}\n",
            10 * n,
            100 * n
        )
    };
    let mut target = target();
    let mut take = |page: String| {
        if target.take(page.as_bytes(), Format::Text).unwrap() {
            target.choose();
        }
        (held(&target), target.report())
    };

    take(page(1, ""));
    take(page(2, ""));
    let (values, _) = take(page(3, ""));
    assert_eq!(values[r#"a_total{series="other"}"#], SlotValue::Counter(110), "{values:?}");
    assert_eq!(values[r#"a_total{code="200"}"#], SlotValue::Counter(1));

    let later = format!("a_total{{later=\"{}\"}} 1000\n", "y".repeat(300));
    let (values, report) = take(page(4, &later));
    assert_eq!(values[r#"a_total{series="other"}"#], SlotValue::Counter(1_220), "{values:?}");

    let why = |name: &str| report.families.iter().find(|family| family.name == name).unwrap().why.clone();
    assert_eq!(why("a_total"), "3 summed up, 1 watched");
    // Nothing else of its name has a column.
    assert_eq!(why("b_total"), "labels that no column may have");
    assert_eq!((report.watched, report.summed), (1, 3));
    assert_eq!(excluded(&report), [("labels", 1)]);
}

#[test]
fn each_series_without_a_column_is_counted_by_its_reason() {
    let page = |n: u32| {
        format!(
            "a_total{{code=\"200\"}} {n}\nlimit 7\nother_limit 8\nstarted_timestamp_seconds 17{n}0000000\ndepth {n}\n\
             # TYPE build info\nbuild_info{{version=\"1\"}} 1\n"
        )
    };
    let mut target = target();
    assert!(excluded(&target.report()).is_empty());
    for n in 1..=2 {
        if target.take(page(n).as_bytes(), Format::Text).unwrap() {
            target.choose();
        }
    }

    let report = target.report();

    assert_eq!(excluded(&report), [("constant", 2), ("time_of_day", 1), ("type", 1)]);
    assert_eq!((report.exposed, report.watched), (5, 2));
    assert_eq!(target.excluded(), report.excluded);
}
