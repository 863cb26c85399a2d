//! Scoring and learning touch no allocator between jobs.

use lmap::{Column, ColumnKind, Detector, Episode, Job, Saturation, Settings};

/// A wave, noise, a value now and then missing, a fault now and then.
fn fill(row: &mut [f64], t: u32, state: &mut u64) {
    for (column, value) in row.iter_mut().enumerate() {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let noise = (*state >> 40) as f64 / f64::from(1 << 24);
        let fault = if t.is_multiple_of(97) && column == 3 { 1e9 } else { 0.0 };
        *value = (f64::from(t) / 20.0 + column as f64).sin() + noise + fault;
        if state.is_multiple_of(61) {
            *value = f64::NAN;
        }
    }
}

/// What 6,000 rows have allocated, and what they have led to.
#[derive(Debug)]
struct RunCounts {
    allocated: u64,
    /// Episodes that began in the two faults.
    began: u32,
    fits: u32,
    shrinks: u32,
}

/// 6,000 rows of 40 columns, with jobs that take twelve rows.
fn run(columns: Vec<Column>, settings: Settings) -> (RunCounts, Detector) {
    let has_pool = columns[20].pool;
    let mut detector = Detector::new(columns, settings, 5).expect("these settings are possible");
    let (mut row, mut state, mut reasons, mut shares) =
        (vec![0.0; 40], 1, Vec::with_capacity(8), Vec::with_capacity(8));
    let (mut columns, mut all) = (Vec::with_capacity(40), (Vec::with_capacity(8), Vec::with_capacity(8)));
    let mut all_columns = Vec::with_capacity(40);
    let mut waiting = None::<(Job, u32)>;
    let mut counts = RunCounts { allocated: 0, began: 0, fits: 0, shrinks: 0 };

    for t in 1..6_000 {
        fill(&mut row, t, &mut state);
        // It grows for a moment, by less than it holds.
        if has_pool {
            row[20] += if (3_200..3_260).contains(&t) { 105.0 } else { 100.0 };
        }
        // Two faults, the second while the first goes on.
        for (column, rows) in [(5, 3_000..3_040), (7, 3_020..3_040)] {
            if rows.contains(&t) {
                row[column] = 1e3;
            }
        }
        let before = allocations::calls().allocations;
        if t % 500 == 0 {
            detector.gap();
        }
        detector.prefetch();
        let verdict = detector.score(&row).expect("a row of as many columns");
        detector.explain(5, &mut reasons);
        detector.group_shares(&mut shares);
        detector.column_shares(&mut columns);
        detector.explain_at_once(5, &mut all.0, &mut all.1, Some(&mut all_columns));
        let job = detector.learn();
        counts.allocated += allocations::calls().allocations - before;
        assert_eq!((&all.0, &all.1, &all_columns), (&reasons, &shares, &columns), "row {t}");
        assert!(verdict.score.is_finite());
        counts.began += u32::from(verdict.episode == Episode::Began && (3_000..3_040).contains(&t));
        if let Some(job) = job {
            counts.fits += u32::from(matches!(job, Job::Fit(_)));
            counts.shrinks += u32::from(matches!(job, Job::Shrink(_)));
            waiting = Some((job, t + 12)); // longer than the spare room lasts
        }
        if let Some((job, _)) = waiting.take_if(|(_, due)| *due <= t) {
            detector.install(job.run());
        }
    }
    if let Some((job, _)) = waiting {
        detector.install(job.run());
    }
    (counts, detector)
}

fn gauge(fingerprint: u64) -> Column {
    let saturation = (fingerprint == 0).then_some(Saturation { least: 0.0, rows: 20 });
    Column { saturation, ..Column::new(ColumnKind::Gauge, fingerprint) }
}

#[test]
fn scoring_and_learning_allocate_nothing_between_jobs() {
    let settings = Settings { rows_kept: 120, automatic_fit_rows: Some(700), novelty: true, ..Settings::default() };

    let (counts, detector) = run((0..40).map(gauge).collect(), settings);

    assert_eq!(counts.allocated, 0);
    assert_eq!(counts.began, 2, "each fault begins an episode");
    assert!(counts.fits >= 4 && counts.shrinks > 10, "{counts:?}"); // so it was tried in every state
    assert!(detector.counts().lost > 0);
}

#[test]
fn nor_do_longer_rows_of_groups_and_patience_with_pools_and_load() {
    let column = |at: u64| Column {
        group: (at / 10) as u16,
        pool: (20..24).contains(&at),
        load: (30..32).contains(&at),
        ..gauge(at)
    };
    let lasting = Settings::live(0.1).lasting(0.1);
    let settings = Settings { rows_kept: 120, automatic_fit_rows: Some(700), ..lasting };

    let (counts, detector) = run((0..40).map(column).collect(), settings);

    assert_eq!(counts.allocated, 0);
    assert!(counts.fits >= 4 && counts.shrinks > 5, "{counts:?}");
    let judged = detector.model().expect("it is armed, and nothing is in flight");
    assert_eq!((judged.long_rows(), detector.settings().pool_rows), (Some(10), Some(20)));
}
