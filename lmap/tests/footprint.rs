//! What a detector says of its memory is what it has allocated, and what is stated as the most is never exceeded: while
//! it learns, in each of its jobs, and after the last fit, on rows without any structure, which give the largest rank.

use lmap::{Column, ColumnKind, Detector, Footprint, Saturation, ScoreForm, Settings};

/// A detector knows its memory to this share,
const KNOWN_TO: f64 = 0.05;
/// and to these bytes: itself, its settings, and ends of lists.
const OF_FIXED_SIZE: f64 = 4096.0;

/// The most memory that was seen of a detector, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct PeakMemory {
    /// Before the first fit.
    learning: usize,
    /// After the last fit.
    fitted: usize,
    /// At any time, but in jobs.
    all: usize,
    /// In a job, besides what the detector has.
    job: usize,
    rank: usize,
}

fn live() -> usize {
    usize::try_from(allocations::live()).expect("no more is freed than was asked for")
}

/// Noise in all columns; a few are constants.
fn fill(row: &mut [f64], state: &mut u64) {
    for (column, value) in row.iter_mut().enumerate() {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let noise = (*state >> 40) as f64 / f64::from(1 << 24);
        *value = if column % 50 == 49 { 3.0 } else { noise + column as f64 };
    }
}

/// Runs a detector of `columns` columns past its last fit. Checks at each row what it says of its memory.
fn life(columns: usize, settings: &Settings) -> PeakMemory {
    let kind = |fingerprint| if fingerprint % 2 == 0 { ColumnKind::Gauge } else { ColumnKind::Increment };
    // As many as are judged by themselves, and more.
    let rule = |fingerprint| (fingerprint < 20).then_some(Saturation { least: f64::MAX, rows: 32 });
    let group = |fingerprint| (fingerprint % 16) as u16;
    let column = |fingerprint| Column {
        saturation: rule(fingerprint),
        group: group(fingerprint),
        pool: fingerprint % 3 == 0,
        load: fingerprint % 5 == 0,
        ..Column::new(kind(fingerprint), fingerprint)
    };
    let all = (0..columns as u64).map(column).collect();
    let (mut row, mut state, mut seen, settings) = (vec![0.0; columns], 1, PeakMemory::default(), settings.clone());
    let last = settings.fit_again_rows.last().copied().unwrap_or(settings.warm_up_rows);
    let before = live();
    let mut detector = Detector::new(all, settings, 5).expect("columns and settings are valid");
    for t in 0..last + 200 {
        fill(&mut row, &mut state);
        let _ = detector.score(&row).expect("a row of its columns");
        let job = detector.learn();
        let (now, said) = (live() - before, detector.memory_bytes());
        let off = (now as f64 - said as f64).abs();
        assert!(off <= KNOWN_TO * now as f64 + OF_FIXED_SIZE, "row {t} of {columns}: {now} bytes, it says {said}");
        assert!(detector.used_bytes() <= said);
        seen.all = seen.all.max(now);
        if detector.shape().is_none() {
            seen.learning = seen.learning.max(now);
        }
        if let Some(job) = job {
            allocations::take_peak();
            let done = job.run();
            let peak = usize::try_from(allocations::take_peak()).expect("a peak is above what lived before");
            seen.job = seen.job.max(peak - before - now);
            let _ = detector.install(done);
        }
    }
    seen.fitted = live() - before;
    seen.rank = detector.shape().expect("it is armed").0;
    assert_eq!(detector.next_fit(), None, "the last fit is over");
    seen
}

fn check(columns: usize, settings: &Settings) {
    let (seen, most) = (life(columns, settings), Footprint::of(columns, settings));
    println!("{columns} columns: {seen:?}, at most {most:?}");
    assert!(seen.learning <= most.learning, "{columns} columns while they learn: {seen:?}, at most {most:?}");
    assert!(seen.fitted <= most.fitted + columns * 100, "{columns} columns after the last fit: {seen:?}, {most:?}");
    assert!(seen.all <= most.learning + most.fitted, "{columns} columns: {seen:?}, at most {most:?}");
    assert!(seen.job <= most.job, "{columns} columns in a job: {seen:?}, at most {most:?}");
    // What is stated is not beyond what such rows take.
    assert!(seen.learning as f64 >= 0.95 * most.learning as f64 - OF_FIXED_SIZE, "{columns}: {seen:?}, {most:?}");
    assert!(2 * seen.fitted >= most.fitted && 2 * seen.job >= most.job, "{columns}: {seen:?}, {most:?}");
}

#[test]
fn a_detector_takes_what_it_says_and_no_more_than_is_stated() {
    let settings = Settings::live(1.0);
    for columns in [8, 74, 150, 300] {
        check(columns, &settings);
    }
    // A basis of a thousand columns takes long to find.
    check(1_000, &Settings { fit_again_rows: vec![240], ..settings });
}

#[test]
fn what_lasts_is_in_what_is_stated() {
    let settings = Settings::live(0.1).lasting(0.1);
    assert_eq!((settings.long_rows, settings.pool_rows), (Some(10), Some(20)));
    for columns in [8, 150] {
        check(columns, &settings);
    }
}

#[test]
fn other_settings_are_in_what_is_stated() {
    let settings = Settings { fit_again_rows: vec![300], ..Settings::live(1.0) };
    check(100, &Settings { rank: Some(20), sketch_rows: Some(60), ..settings.clone() });
    check(100, &Settings { score: ScoreForm::PaperAbsolute, ..settings });
}
