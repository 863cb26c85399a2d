//! Text: the specifications' examples in other words, and what exporters write.

use exposition::{Format, FormatError, RefusedSamples};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::{SlotValue, after, held, target};

/// Prometheus text with everything that its specification shows: help with escapes, timestamps, samples without a
/// type, escaped labels, special numbers, a histogram and a summary.
fn classic(scrape: u32) -> String {
    let n = f64::from(scrape);
    format!(
        r#"# HELP http_requests_total Requests, by method and \\ code.
# TYPE http_requests_total counter
http_requests_total{{method="post",code="200"}} {requests} 1395066363000
http_requests_total{{method="post",code="400"}}    3 1395066363000

# Escapes in labels:
msdos_file_access_time_seconds{{path="C:\\DIR\\{{FILE}}.TXT",error="Cannot find file:\n\"FILE.TXT\""}} {access}

# No type, no labels:
metric_without_type {plain}
something_weird{{problem="division by zero"}} +Inf -3982045
# TYPE rpc_duration_seconds histogram
rpc_duration_seconds_bucket{{le="0.05"}} {b1}
rpc_duration_seconds_bucket{{le="0.1"}} {b2}
rpc_duration_seconds_bucket{{le="+Inf"}} {b3}
rpc_duration_seconds_sum {sum}
rpc_duration_seconds_count {b3}
# TYPE gc_seconds summary
gc_seconds{{quantile="0.5"}} {median}
gc_seconds{{quantile="0.99"}} NaN
gc_seconds_sum {sum}
gc_seconds_count {b3}
"#,
        requests = 1_000.0 + 7.0 * n,
        access = 1.458e3 * n,
        plain = 12.47 * n,
        b1 = 10.0 * n,
        b2 = 12.0 * n,
        b3 = 13.0 * n,
        sum = 1.5 * n,
        median = 0.01 * n,
    )
}

#[test]
fn prometheus_text_becomes_counters_gauges_and_histograms() {
    let held = after(&[classic(1), classic(2), classic(3)], Format::Text);

    let of = |title: &str| held.get(title).cloned();
    assert_eq!(of(r#"http_requests_total{code="200",method="post"}"#), Some(SlotValue::Counter(7)));
    assert_eq!(of(r#"http_requests_total{series="other"}"#), Some(SlotValue::Counter(0)));
    assert_eq!(of("metric_without_type"), Some(SlotValue::Gauge(12.47 * 3.0)));
    assert_eq!(of(r#"gc_seconds{quantile="0.5"}"#), Some(SlotValue::Gauge(0.03)));
    assert_eq!(of("gc_seconds_sum"), Some(SlotValue::Counter(1_500_000)), "in microseconds");
    assert_eq!(of("gc_seconds_count"), Some(SlotValue::Counter(13)));
    let Some(SlotValue::Histogram(count, sum, p99)) = of("rpc_duration_seconds") else { panic!("{held:?}") };
    // The one beyond the last bound takes what the sum leaves.
    assert_eq!((count, sum), (13, 1_500), "in parts of 1 ms");
    assert!((0.9..1.3).contains(&p99), "{p99}");
    let weird = held.keys().find(|title| title.starts_with("something_weird"));
    assert_eq!(weird, None, "it never changed");
    // A line feed in a label is not for a column.
    assert!(!held.keys().any(|title| title.starts_with("msdos")), "{held:?}");
}

#[test]
fn open_metrics_has_an_end_exemplars_times_of_creation_and_information() {
    let page = |n: u32| {
        format!(
            "# TYPE acme_http_requests counter\n# UNIT acme_http_requests requests\n\
             acme_http_requests_total{{path=\"/a\"}} {n} 1604.5 # {{trace_id=\"KOO5S4vxi0o\"}} 0.67\n\
             acme_http_requests_created{{path=\"/a\"}} 1605281325.0\n\
             # TYPE acme_depth gauge\nacme_depth {n}\n\
             # TYPE build info\nbuild_info{{version=\"1.{n}\"}} 1\n\
             # TYPE feature stateset\nfeature{{feature=\"a\"}} 1\n# EOF\n"
        )
    };

    let held = after(&[page(1), page(2), page(5)], Format::OpenMetrics);

    let titles: Vec<_> = held.into_iter().collect();
    let expected = [
        ("acme_depth".to_owned(), SlotValue::Gauge(5.0)),
        (r#"acme_http_requests_total{path="/a"}"#.to_owned(), SlotValue::Counter(3)),
        (r#"acme_http_requests_total{series="other"}"#.to_owned(), SlotValue::Counter(0)),
    ];
    assert_eq!(titles, expected);
}

#[test]
fn what_is_no_exposition_is_refused_with_its_line() {
    for (text, open_metrics, line) in [
        ("a 1\nb\n", false, Some(2)),
        ("a{x=\"1\" 3\n", false, Some(1)),
        ("a 1 2 3\n", false, Some(1)),
        ("<html>\n", false, Some(1)),
        ("# TYPE a nonsense\n", false, Some(1)),
        ("a 1\n# EOF\nb 1\n", true, Some(2)),
        ("a 1\n", true, None),
    ] {
        let format = if open_metrics { Format::OpenMetrics } else { Format::Text };
        let error = target().take(text.as_bytes(), format).unwrap_err();
        match (line, error) {
            (Some(expected), FormatError::Line { line, .. }) => assert_eq!(line, expected, "{text}"),
            (None, FormatError::NoEnd) => {}
            (_, error) => panic!("{text}: {error:?}"),
        }
    }
    assert_eq!(target().take(b"", Format::Text), Ok(false), "an empty page has no samples");
}

#[test]
fn what_a_client_library_writes_is_read_back() {
    let mut registry = Registry::default();
    let (requests, depth) = (Family::<[(&str, &str); 1], Counter>::default(), Gauge::<i64>::default());
    let duration = Histogram::new([0.01, 0.1, 1.0]);
    registry.register("requests", "Requests.", requests.clone());
    registry.register("depth", "Depth of the queue.", depth.clone());
    registry.register_with_unit("duration", "Durations.", Unit::Seconds, duration.clone());
    let mut target = target();
    for scrape in 1..=3 {
        requests.get_or_create(&[("path", "a \"quoted\" {path}")]).inc_by(5);
        depth.set(scrape);
        duration.observe(0.05 * scrape as f64);
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        if target.take(page.as_bytes(), Format::OpenMetrics).unwrap() {
            target.choose();
        }
    }

    let held = held(&target);

    assert_eq!(held["depth"], SlotValue::Gauge(3.0));
    assert_eq!(held[r#"requests_total{path="a \"quoted\" {path}"}"#], SlotValue::Counter(5));
    let SlotValue::Histogram(count, sum, p99) = held["duration_seconds"] else { panic!("{held:?}") };
    // 0.15 s.
    assert_eq!((count, sum), (1, 1_500), "in parts of 0.1 ms");
    assert!((0.1..0.2).contains(&p99), "{p99}");
}

#[test]
fn a_series_that_is_absent_is_missing_and_a_restart_does_not_fall() {
    let page = |requests: u32, depth: Option<u32>| {
        let depth = depth.map(|depth| format!("depth {depth}\n")).unwrap_or_default();
        format!("# TYPE requests_total counter\nrequests_total {requests}\n# TYPE depth gauge\n{depth}")
    };
    let pages = [page(100, Some(1)), page(105, Some(2)), page(115, Some(3)), page(4, None)];

    let held = after(&pages, Format::Text);

    assert_eq!(held["requests_total"], SlotValue::Counter(14), "10, and 4 since the restart");
    assert!(matches!(held["depth"], SlotValue::Gauge(depth) if depth.is_nan()), "{held:?}");
}

#[test]
fn a_label_set_that_comes_later_is_in_the_rest_and_a_family_that_comes_later_is_learnt() {
    let page = |n: u32, more: &str| format!("# TYPE a_total counter\na_total{{code=\"200\"}} {}\n{more}", 10 * n);
    let error = |n: u32| format!("a_total{{code=\"500\"}} {n}\n");
    let family = |n: u32| format!("# TYPE b gauge\nb {n}\n");
    let mut target = target();
    let mut take = |page: String| {
        let chooses = target.take(page.as_bytes(), Format::Text).unwrap();
        if chooses {
            target.choose();
        }
        held(&target)
    };

    for n in 1..=2 {
        take(page(n, ""));
    }
    let with_error = take(page(3, &error(3)));
    take(page(4, &(error(3) + &family(1))));
    let with_family = take(page(5, &(error(4) + &family(2))));

    assert_eq!(with_error[r#"a_total{series="other"}"#], SlotValue::Counter(3));
    assert_eq!(with_family[r#"a_total{series="other"}"#], SlotValue::Counter(4));
    assert_eq!(with_family["b"], SlotValue::Gauge(2.0));
    assert_eq!(with_family[r#"a_total{code="200"}"#], SlotValue::Counter(30), "what was watched goes on");
}

#[test]
fn a_target_whose_names_change_all_the_time_is_bounded_and_what_is_watched_goes_on() {
    let page = |n: u32| {
        let names = (0..300)
            .map(|at| format!("# TYPE s_{n}_{at} info\ns_{n}_{at} 1\n# TYPE g_{n}_{at} gauge\ng_{n}_{at} {at}\n"));
        format!("a_total {n}\n{}", names.collect::<Vec<_>>().concat())
    };
    let mut target = target();

    for n in 1..=100 {
        if target.take(page(n).as_bytes(), Format::Text).unwrap() {
            target.choose();
        }
        assert!(target.report().exposed <= 1_000 && target.report().families.len() <= 1_000, "{n}");
    }

    assert!(held(&target).contains_key("a_total"));
    let families = target.report().families;
    let page = |name: &str| name.split('_').nth(1).and_then(|page| page.parse().ok()).unwrap_or(0);
    assert!(families.iter().any(|family| page(&family.name) > 50), "old ones make room: {}", families.len());
}

#[test]
fn more_samples_than_are_looked_at_are_counted() {
    let page = (0..1_500).map(|at| format!("series_{at} 1")).collect::<Vec<_>>().join("\n");
    let mut target = target();

    target.take(page.as_bytes(), Format::Text).unwrap();

    assert_eq!(target.last_scrape(), (1_500, RefusedSamples { too_many: 500, ..RefusedSamples::default() }));
    assert_eq!(target.report().exposed, 1_000);
}
