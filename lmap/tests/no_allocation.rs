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

#[test]
fn scoring_and_learning_allocate_nothing_between_jobs() {
    let mut columns: Vec<Column> = (0..40).map(|fingerprint| Column::new(ColumnKind::Gauge, fingerprint)).collect();
    columns[0].saturation = Some(Saturation { least: 0.0, rows: 20 });
    let settings = Settings { rows_kept: 120, automatic_fit_rows: Some(700), novelty: true, ..Settings::default() };
    let mut detector = Detector::new(columns, settings, 5).unwrap();
    let (mut row, mut state, mut reasons, mut shares) =
        (vec![0.0; 40], 1, Vec::with_capacity(8), Vec::with_capacity(8));
    let (mut columns, mut all) = (Vec::with_capacity(40), (Vec::with_capacity(8), Vec::with_capacity(8)));
    let mut all_columns = Vec::with_capacity(40);
    let (mut waiting, mut fits, mut shrinks) = (None::<(Job, u32)>, 0, 0);
    let (mut allocated, mut began) = (0, 0);

    for t in 1..6_000 {
        fill(&mut row, t, &mut state);
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
        let verdict = detector.score(&row).unwrap();
        detector.explain(5, &mut reasons);
        detector.group_shares(&mut shares);
        detector.column_shares(&mut columns);
        detector.explain_at_once(5, &mut all.0, &mut all.1, Some(&mut all_columns));
        let job = detector.learn();
        allocated += allocations::calls().allocations - before;
        assert_eq!((&all.0, &all.1, &all_columns), (&reasons, &shares, &columns), "row {t}");
        assert!(verdict.score.is_finite());
        began += u32::from(verdict.episode == Episode::Began && (3_000..3_040).contains(&t));
        if let Some(job) = job {
            fits += u32::from(matches!(job, Job::Fit(_)));
            shrinks += u32::from(matches!(job, Job::Shrink(_)));
            waiting = Some((job, t + 12)); // longer than the spare room lasts
        }
        if let Some((job, _)) = waiting.take_if(|(_, due)| *due <= t) {
            detector.install(job.run());
        }
    }

    assert_eq!(allocated, 0);
    assert_eq!(began, 2, "each fault begins an episode");
    assert!(fits >= 4 && shrinks > 10, "{fits} fits, {shrinks} shrinks"); // so it was tried in every state
    assert!(detector.counts().lost > 0);
}
