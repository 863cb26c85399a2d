//! What a row costs: scored, learnt, and its share of a decomposition. `cargo bench -p lmap`.

use divan::{Bencher, black_box};
use lmap::{Column, ColumnKind, Detector, FrequentDirections, Settings, SketchForm};

fn main() {
    divan::main();
}

/// Columns m, rows of the sketch l, rank k: μView measures 141 metrics per service.
const SHAPES: [(usize, usize, usize); 4] = [(64, 25, 12), (141, 25, 12), (256, 50, 12), (1_000, 50, 10)];

/// Rows that follow three common causes, each column with noise of its own.
fn rows(count: usize, columns: usize) -> Vec<Vec<f64>> {
    let mut state = 1_u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 24) - 0.5
    };
    let row = |_| {
        let causes = [noise(), noise(), noise()];
        (0..columns).map(|column| causes[column % 3] * (1 + column % 7) as f64 + noise()).collect()
    };
    (0..count).map(row).collect()
}

/// An armed detector of the given shape that learns every row, or none.
fn armed((columns, sketch_rows, rank): (usize, usize, usize), learning_rate: f64, stride: u32) -> Detector {
    let settings = Settings {
        rank: Some(rank),
        sketch_rows: Some(sketch_rows),
        provisional_rows: None,
        fit_again_rows: Vec::new(),
        growth_rows: 0,
        learning_rate,
        stride,
        ..Settings::default()
    };
    let columns_ = (0..columns as u64).map(|fingerprint| Column::new(ColumnKind::Gauge, fingerprint)).collect();
    let mut detector = Detector::new(columns_, settings, 1).expect("valid settings");
    for row in rows(120, columns) {
        let _ = detector.score(&row);
        if let Some(job) = detector.learn() {
            detector.install(job.run());
        }
    }
    detector
}

/// Hot: a thousand at a time, or the clock and what sleeps in a core cost more than the score.
#[divan::bench(args = SHAPES, sample_size = 1_000)]
fn score(bencher: Bencher<'_, '_>, shape: (usize, usize, usize)) {
    let mut detector = armed(shape, 0.0, 1);
    let row = rows(1, shape.0).remove(0);

    bencher.bench_local(move || detector.score(black_box(&row)));
}

/// Every row learnt, decompositions included: the most that learning can cost.
#[divan::bench(args = SHAPES)]
fn score_and_learn_every_row(bencher: Bencher<'_, '_>, shape: (usize, usize, usize)) {
    score_and_learn(bencher, shape, 1);
}

/// The default stride.
#[divan::bench(args = SHAPES)]
fn score_and_learn_every_fifth_row(bencher: Bencher<'_, '_>, shape: (usize, usize, usize)) {
    score_and_learn(bencher, shape, 5);
}

/// A thousand rows at a time, so that decompositions count with their share.
fn score_and_learn(bencher: Bencher<'_, '_>, shape: (usize, usize, usize), stride: u32) {
    let mut detector = armed(shape, 1.0, stride);
    let rows = rows(1_000, shape.0);

    bencher.counter(divan::counter::ItemsCount::new(rows.len())).bench_local(move || {
        for row in &rows {
            let _ = black_box(detector.score(black_box(row)));
            if let Some(job) = detector.learn() {
                detector.install(job.run());
            }
        }
    });
}

/// Rounds of all LMAPs of a node: each scores a row of its own and learns by the default stride. Items are rounds; a
/// sample has so many that every LMAP decomposes once.
#[divan::bench(args = [(256, 64, 12), (100, 1_000, 12)], sample_count = 20, sample_size = 1)]
fn rounds(bencher: Bencher<'_, '_>, (count, columns, rank): (usize, usize, usize)) {
    const ROUNDS: usize = 26 * 5;
    let mut detectors: Vec<Detector> = (0..count).map(|_| armed((columns, 25, rank), 1.0, 5)).collect();
    let rows = rows(ROUNDS, columns);

    bencher.counter(divan::counter::ItemsCount::new(ROUNDS)).bench_local(move || {
        for round in 0..ROUNDS {
            for (index, detector) in detectors.iter_mut().enumerate() {
                let _ = black_box(detector.score(black_box(&rows[(round + index) % ROUNDS])));
                if let Some(job) = detector.learn() {
                    detector.install(job.run());
                }
            }
        }
    });
}

/// The decomposition of a full buffer of 2l rows, a part of them left by the one before: the worst step.
#[divan::bench(args = SHAPES)]
fn shrink(bencher: Bencher<'_, '_>, (columns, sketch_rows, _): (usize, usize, usize)) {
    let rows = rows(4 * sketch_rows, columns);
    let mut sketch = FrequentDirections::new(columns, sketch_rows, SketchForm::Buffered).expect("a valid shape");
    let mut last = rows.iter().cycle();
    let almost_full = 2 * sketch_rows - 1;
    for row in last.by_ref().take(3 * sketch_rows) {
        sketch.append(row).expect("finite rows");
    }
    while sketch.rows().count() < almost_full {
        sketch.append(&rows[sketch.rows().count()]).expect("finite rows");
    }

    bencher.with_inputs(|| sketch.clone()).bench_local_refs(|sketch| sketch.append(black_box(&rows[0])));
}

/// A fit on so many rows of 141 columns, everything chosen from the rows.
#[divan::bench(args = [120, 600, 2_000], sample_count = 5)]
fn fit(bencher: Bencher<'_, '_>, count: usize) {
    let rows = rows(count, 141);
    let settings =
        Settings { provisional_rows: None, warm_up_rows: count, fit_again_rows: Vec::new(), ..Settings::default() };
    let job = || {
        let columns = (0..141).map(|fingerprint| Column::new(ColumnKind::Gauge, fingerprint)).collect();
        let mut detector = Detector::new(columns, settings.clone(), 1).expect("valid settings");
        let mut learn = |row: &Vec<f64>| detector.score(row).ok().and_then(|_| detector.learn());
        rows.iter().find_map(&mut learn).expect("a fit is due at the last row")
    };

    bencher.with_inputs(job).bench_local_values(lmap::Job::run);
}
