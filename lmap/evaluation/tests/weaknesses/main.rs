//! Weaknesses that were seen, each as a recording: without what mends it the detector does what was seen, with it not.
//!
//! `cargo run -p evaluation --example weaknesses` writes the recordings anew.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

mod cases;
mod model;

use std::path::{Path, PathBuf};

use evaluation::recording_table::{Conventions, recording_table};
use lmap::{Detector, Episode, Settings};
use model::Weakness;

/// An alarm: the row that it begins with, and the column that is named first.
type Alarm = (usize, String);

/// Fingerprints do not matter here, nor does waiting, which is judged by itself.
const CONVENTIONS: Conventions = Conventions {
    fingerprint: |title| title.len() as u64,
    saturation: |_, _, _| None,
    pool: wire::metric::is_pool,
    estimated: wire::metric::is_estimated,
    load: wire::metric::is_load,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/weaknesses/recorded")
}

/// The NIC agent's detector at the end of a recording, with its settings `changed`, and its alarms.
fn replayed(file: &Path, changed: fn(Settings) -> Settings) -> (Detector, Vec<Alarm>) {
    let recording = recording::decode(&std::fs::read(file).unwrap()).unwrap();
    let of = recording_table(recording, CONVENTIONS).unwrap();
    let mut detector =
        Detector::new(of.columns.columns, changed(Settings::live(of.interval).lasting(of.interval)), 1).unwrap();
    let (mut found, mut reasons) = (Vec::new(), Vec::new());
    for (at, row) in of.table.rows().enumerate() {
        if detector.score(row).unwrap().episode == Episode::Began {
            detector.explain(1, &mut reasons);
            found.push((at, of.table.metrics[reasons[0].column].clone()));
        }
        if let Some(job) = detector.learn() {
            detector.install(job.run());
        }
    }
    (detector, found)
}

/// The alarms of that detector.
fn alarms(file: &Path, changed: fn(Settings) -> Settings) -> Vec<Alarm> {
    replayed(file, changed).1
}

fn file(of: &Weakness) -> PathBuf {
    folder().join(format!("{}.uvrec", of.name))
}

fn recorded(of: &Weakness, changed: fn(Settings) -> Settings) -> Vec<Alarm> {
    alarms(&file(of), changed)
}

/// The first alarm in a fault of which none was an alarm without longer rows, in rows from its begin.
fn found_by_longer_rows(of: &Weakness) -> Alarm {
    let (begin, ..) = of.fault.unwrap();
    let before = recorded(of, |settings| Settings { long_rows: None, ..settings });
    assert_eq!(before, [], "what the recording shows is that it is missed");
    let (at, named) = recorded(of, |settings| settings).remove(0);
    (at.checked_sub(begin as usize).expect("no alarm before the fault"), named)
}

#[test]
fn recordings_are_those_of_the_model() {
    for of in cases::ALL {
        let file = std::fs::read(file(&of)).unwrap();
        let (stored, made) = (recording::decode(&file).unwrap(), recording::decode(&of.recorded()).unwrap());

        assert_eq!((&stored.times, &stored.spans), (&made.times, &made.spans), "{}", of.name);
        assert_eq!(stored.columns, made.columns, "{}", of.name);
        let bits = |of: recording::Recording| of.into_values().into_iter().map(f64::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(stored), bits(made), "{}", of.name);
    }
}

#[test]
fn a_gauge_of_the_service_that_jumps_by_16_deviations_is_an_alarm_on_a_busy_machine() {
    // Without limits of groups, the restless metrics of the process decide: γ is above the whole jump.
    let plain = |settings: Settings| Settings { group_margin: None, long_rows: None, ..settings };
    let (detector, before) = replayed(&file(&cases::GAUGE), plain);
    assert!(before.is_empty() && detector.gamma().is_some_and(|gamma| gamma > 16.0), "{before:?}");

    let (rows, named) = found_by_longer_rows(&cases::GAUGE);

    assert!(rows <= 10, "{rows} rows");
    assert_eq!(named, "cache.entries");
}

#[test]
fn a_leak_is_an_alarm_although_memory_grew_while_thresholds_were_learnt_beside_compilers() {
    let (rows, named) = found_by_longer_rows(&cases::LEAK);

    assert!(rows <= 30, "{rows} rows");
    assert_eq!(named, "process.memory.usage");
}

#[test]
fn what_ten_requests_of_a_row_hide_is_an_alarm_over_a_second() {
    let (rows, named) = found_by_longer_rows(&cases::TEN_REQUESTS);

    assert!(rows <= 30, "{rows} rows");
    assert_eq!(named, "http.server.request.duration.mean");
}

/// The alarms in a recording without patience with pools, and with it.
fn with_patience(of: &Weakness) -> [Vec<Alarm>; 2] {
    [recorded(of, |settings| Settings { pool_rows: None, ..settings }), recorded(of, |settings| settings)]
}

#[test]
fn pools_that_grow_in_a_burst_and_stay_as_they_are_are_no_alarm() {
    let [before, now] = with_patience(&cases::POOL);

    assert_eq!(before.len(), 1, "what the recording shows is a false alarm");
    assert_eq!(now, []);
}

#[test]
fn pools_that_go_on_growing_are_an_alarm_two_seconds_later() {
    let [before, now] = with_patience(&cases::POOL_LEAK);

    let rows = |alarms: &[Alarm]| alarms.iter().map(|(at, _)| *at).collect::<Vec<_>>();
    assert_eq!((rows(&before), rows(&now)), (vec![302], vec![322]));
}

#[test]
fn memory_that_grows_on_when_the_detector_is_armed_is_no_alarm() {
    let [before, now] = with_patience(&cases::ARMING);

    assert_eq!(before.len(), 1, "what the recording shows is a false alarm");
    assert_eq!(now, []);
}

fn without_patience_with_load(settings: Settings) -> Settings {
    Settings { load_rows: None, ..settings }
}

/// The rows with which alarms begin in a recording, without patience with load, and with it.
fn with_patience_with_load(of: &Weakness) -> [Vec<usize>; 2] {
    let rows = |changed| recorded(of, changed).into_iter().map(|(at, _)| at).collect();
    [rows(without_patience_with_load), rows(|settings| settings)]
}

#[test]
fn an_overload_that_passes_is_no_alarm() {
    let [before, now] = with_patience_with_load(&cases::OVERLOAD);

    assert!(matches!(before[..], [400..=404]), "what the recording shows is a false alarm: {before:?}");
    assert_eq!(now, Vec::<usize>::new());
}

#[test]
fn an_overload_that_lasts_is_an_alarm_two_seconds_later() {
    let [before, now] = with_patience_with_load(&cases::OVERLOAD_LASTS);

    assert!(matches!((&before[..], &now[..]), ([400..=404, ..], [420..=426, ..])), "{before:?} {now:?}");
}

#[test]
fn slower_requests_that_begin_with_an_overload_are_an_alarm_when_its_load_is_over() {
    let [before, now] = with_patience_with_load(&cases::SLOW_UNDER_LOAD);

    assert!(matches!((&before[..], &now[..]), ([400..=404, ..], [409..=416, ..])), "{before:?} {now:?}");
}

/// The recording of a service of the demo's shop.
fn shop(service: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/shop/{service}.uvrec"))
}

const SHOP: [&str; 5] = ["cart", "catalogue", "frontend", "payment", "store"];

#[test]
fn patience_with_load_ends_two_false_alarms_of_the_shop_and_delays_no_other() {
    let mut ended = Vec::new();
    for service in SHOP {
        let before = alarms(&shop(service), without_patience_with_load);
        let now = alarms(&shop(service), |settings| settings);

        assert!(now.iter().all(|alarm| before.contains(alarm)), "{service}: {now:?}, before {before:?}");
        ended.extend(before.into_iter().filter(|alarm| !now.contains(alarm)).map(|(at, _)| (service, at)));
    }

    // In the seconds after arming, when the shop answered nearly twice as many requests.
    assert_eq!(ended, [("cart", 257), ("frontend", 254)]);
}

#[test]
fn recordings_of_the_shop_have_as_many_alarms_as_without_longer_rows_and_patience_with_pools() {
    for service in SHOP {
        let count = |changed| alarms(&shop(service), changed).len();

        let before = count(|settings| Settings { long_rows: None, pool_rows: None, ..settings });

        assert_eq!(count(|settings| settings), before, "{service}");
    }
}
