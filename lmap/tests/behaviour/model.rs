//! A model file: what comes back, and what is refused.

use crate::support::{Service, detector, gauges, run};
use lmap::{Column, Detector, Model, ModelError, ScoreForm, Settings, SketchForm, State};
use proptest::prelude::*;

const M: usize = 9;

fn trained(settings: Settings) -> (Detector, Service) {
    let (mut detector, mut service) = (detector(M, settings), Service::new(M, 7));
    for _ in 0..300 {
        let _ = run(&mut detector, &service.row());
    }
    (detector, service)
}

fn bytes() -> Vec<u8> {
    trained(Settings::default()).0.model().expect("armed").encode()
}

/// `bytes` with the checksum that they should have.
fn signed(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32fast::hash(&bytes[20..]);
    bytes[16..20].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn a_detector_from_a_model_scores_as_the_one_it_was_taken_from() {
    let row_wise = Settings { sketch: SketchForm::RowWise, ..Settings::paper(ScoreForm::PaperAbsolute) };
    for settings in [Settings::default(), row_wise, Settings::paper(ScoreForm::PaperRelative)] {
        let settings = Settings { learning_rate: 0.0, ..settings };
        let (mut first, mut service) = trained(settings);
        let model = Model::decode(&first.model().unwrap().encode()).unwrap();
        let mut second = Detector::from_model(&model, gauges(M), Settings::default(), 9).unwrap();
        assert_eq!(second.state(), State::Armed);
        first.gap(); // both begin without a row before
        let learnt = first.counts().learnt;

        for t in 0..200 {
            let row = service.row();
            let (a, b) = (first.score(&row).unwrap(), second.score(&row).unwrap());

            assert!((a.raw - b.raw).abs() <= 1e-9 * a.raw, "row {t}: {} and {}", a.raw, b.raw);
            assert!((a.score - b.score).abs() <= 1e-9 * a.score && a.over == b.over);
        }
        assert_eq!(first.counts().learnt, learnt);
    }
}

/// Where nothing moves, variances inside of the basis fall towards 0.
#[test]
fn a_model_of_a_service_in_which_nothing_moves_can_be_read_again() {
    let mut detector = detector(M, Settings::default());
    for t in 0..2000 {
        let _ = run(&mut detector, &[5.0; M]);
        let bytes = detector.model().map(|model| model.encode());
        let read = bytes.map_or(Ok(()), |bytes| Model::decode(&bytes).map(drop));
        assert_eq!(read, Ok(()), "after {t} rows");
    }
}

#[test]
fn a_model_can_go_to_fewer_columns_than_it_has_directions_and_from_there_to_others() {
    let model = trained(Settings { rank: Some(6), ..Settings::default() }).0.model().unwrap();
    let mut fewer = Detector::warm(&model, gauges(3), Settings::default(), 1).unwrap();
    let mut service = Service::new(3, 7);
    for _ in 0..500 {
        let _ = run(&mut fewer, &service.row());
        if let Some(model) = fewer.model() {
            assert_eq!(Model::decode(&model.encode()), Ok(model));
        }
    }
}

#[test]
fn a_model_survives_its_bytes_bit_by_bit() {
    let model = trained(Settings::default()).0.model().unwrap();

    let again = Model::decode(&model.encode()).unwrap();

    assert_eq!(again, model);
    assert_eq!(again.encode(), model.encode());
    assert_eq!(again.fingerprints().collect::<Vec<_>>(), (0..M as u64).collect::<Vec<_>>());
}

#[test]
fn a_model_says_how_far_apart_its_rows_were_if_whoever_made_it_does_and_of_earlier_files_nobody_knows() {
    let model = trained(Settings::default()).0.model().unwrap();
    assert_eq!(model.interval_ms(), None);
    let silent = model.encode();

    for (seconds, millis) in [(0.001, 1), (0.1, 100), (1.0, 1_000), (1.0004, 1_000), (3600.0, 3_600_000)] {
        let stated = model.clone().of_rows_every(seconds).encode();

        assert_eq!(Model::decode(&stated).unwrap().interval_ms(), Some(millis), "{seconds} s");
        // A release that knows no interval skips these three bytes, and the checksum.
        let differ: Vec<usize> = (0..silent.len()).filter(|&at| silent[at] != stated[at]).collect();
        assert!(differ.iter().all(|at| (16..20).contains(at) || (25..28).contains(at)), "{differ:?}");
    }
    for nothing in [0.0, -1.0, f64::NAN, f64::INFINITY, 20_000.0] {
        assert_eq!(model.clone().of_rows_every(nothing), model, "{nothing}");
    }
    let (fast, slow) = (model.clone().of_rows_every(0.1), model.clone().of_rows_every(1.0));
    let merged = |models: &[&Model]| Model::merge(models).unwrap().interval_ms();
    assert_eq!((merged(&[&fast, &fast]), merged(&[&fast, &slow]), merged(&[&fast, &model])), (Some(100), None, None));
}

#[test]
fn columns_are_matched_by_fingerprint() {
    let (mut first, mut service) = trained(Settings::default());
    let model = first.model().unwrap();
    let mut columns: Vec<Column> = gauges(M).into_iter().rev().collect();
    columns.insert(3, Column::new(lmap::ColumnKind::Gauge, 999)); // additional
    let mut second = Detector::from_model(&model, columns.clone(), Settings::default(), 1).unwrap();
    first.gap();

    let row = service.row();
    let mut turned: Vec<f64> = row.iter().rev().copied().collect();
    turned.insert(3, 1e12);
    let (a, b) = (first.score(&row).unwrap(), second.score(&turned).unwrap());

    // In another order, single precision adds up to something else.
    assert!((a.raw - b.raw).abs() <= 1e-6 * a.raw);
    assert_eq!(second.unwatched().collect::<Vec<_>>(), [3]);
    assert_eq!(model.absent(&columns), 0);
}

#[test]
fn an_absent_column_is_a_missing_value_and_no_alarm() {
    let (first, mut service) = trained(Settings::default());
    let model = first.model().unwrap();
    let mut columns = gauges(M);
    columns.remove(4);
    assert_eq!(model.absent(&columns), 1);
    let mut without = Detector::from_model(&model, columns, Settings::default(), 1).unwrap();
    let mut never_there = Detector::from_model(&model, gauges(M), Settings::default(), 1).unwrap();

    let (mut over, mut over_never_there) = (0, 0);
    for _ in 0..200 {
        let mut row = service.row();
        row[4] = f64::NAN;
        over_never_there += u32::from(run(&mut never_there, &row).over);
        row.remove(4);
        over += u32::from(run(&mut without, &row).over);
    }

    assert!(over < 20 && over_never_there < 20, "{over} and {over_never_there} of 200 rows");
}

#[test]
fn a_column_that_has_not_been_there_explains_nothing() {
    let (first, mut service) = trained(Settings::default());
    let model = first.model().unwrap();
    let (mut reasons, mut explained) = (Vec::new(), 0);

    for absent in 0..M {
        let mut detector = Detector::from_model(&model, gauges(M), Settings::default(), 1).unwrap();
        for moved in 0..M {
            let mut row = service.row();
            row[moved] *= 1.5;
            row[absent] = f64::NAN;
            let _ = run(&mut detector, &row);
            detector.explain(M, &mut reasons);
            explained += reasons.len();
            assert!(reasons.iter().all(|reason| reason.column != absent), "{reasons:?}");
        }
    }

    assert!(explained >= M * M);
}

#[test]
fn a_model_of_another_service_is_refused() {
    let model = trained(Settings::default()).0.model().unwrap();
    let columns = (100..103).map(|fingerprint| Column::new(lmap::ColumnKind::Gauge, fingerprint)).collect();

    let error = Detector::from_model(&model, columns, Settings::default(), 1).unwrap_err();

    assert_eq!(error, ModelError::Columns { columns: 3, known: M });
}

#[test]
fn other_versions_truncated_and_changed_files_are_refused() {
    let good = bytes();
    let mut newer = good.clone();
    newer[8] = 4;
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let longer = [good.as_slice(), &[0]].concat();

    assert_eq!(Model::decode(&newer), Err(ModelError::Version { found: 4, expected: 3 }));
    assert!(matches!(Model::decode(&flipped), Err(ModelError::Checksum { .. })));
    assert!(matches!(Model::decode(&longer), Err(ModelError::Length { .. })));
    assert_eq!(Model::decode(b"GIF89a, surely"), Err(ModelError::Magic));
    for length in 0..good.len() {
        assert!(Model::decode(&good[..length]).is_err());
    }
}

/// Where columns begin in a file, and the bytes of one.
const COLUMNS: usize = 20 + 8 + 7 * 8 + 6 * 4 + 3 * 8 + 14 * 8;
const COLUMN: usize = 50;

#[test]
fn a_model_from_before_groups_or_longer_rows_had_limits_is_read() {
    let new = bytes();
    let (head, rest) = new.split_at(COLUMNS);
    let (columns, rest) = rest.split_at(M * COLUMN);
    for (version, kept) in [(1, 34), (2, 42)] {
        let of_columns = columns.chunks_exact(COLUMN).flat_map(|column| &column[..kept]);
        let mut old: Vec<u8> = head.iter().chain(of_columns).chain(rest).copied().collect();
        old[8] = version;
        let length = (old.len() - 20) as u32;
        old[12..16].copy_from_slice(&length.to_le_bytes());

        // This one was trained without limits, so that nothing of it is lost.
        assert_eq!(Model::decode(&signed(old)), Model::decode(&new), "version {version}");
    }
}

#[test]
fn limits_of_longer_rows_without_how_many_rows_these_are_and_impossible_ones_are_refused() {
    let long_rows = |rows: u16, limit: f64| {
        let mut bytes = bytes();
        bytes[20 + 3..20 + 5].copy_from_slice(&rows.to_le_bytes());
        bytes[COLUMNS + COLUMN - 8..COLUMNS + COLUMN].copy_from_slice(&limit.to_le_bytes());
        Model::decode(&signed(bytes))
    };

    assert!(long_rows(0, 0.0).is_ok() && long_rows(10, 2.0).is_ok() && long_rows(1000, 2.0).is_ok());
    for (rows, limit) in [(0, 2.0), (1, 2.0), (1001, 2.0), (10, 0.1), (10, -2.0)] {
        let refused = long_rows(rows, limit);
        assert!(matches!(refused, Err(ModelError::Value { .. })), "{rows} {limit}: {refused:?}");
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused_before_anything_is_allocated() {
    let good = bytes();
    let sizes = 20 + 8 + 7 * 8; // columns, rank, rows of the sketch, rows stored

    for (index, size) in [(0, 65_536_u32), (0, 10), (1, 8), (2, 4), (3, 60), (3, 1)] {
        let mut bytes = good.clone();
        bytes[sizes + 4 * index..sizes + 4 * index + 4].copy_from_slice(&size.to_le_bytes());

        let refused = Model::decode(&signed(bytes)).unwrap_err();

        assert!(matches!(refused, ModelError::Length { .. } | ModelError::Value { .. }), "{index}: {refused}");
    }
}

#[test]
fn numbers_that_are_not_finite_are_refused_wherever_they_are() {
    let good = bytes();
    let rest = COLUMNS + M * COLUMN;
    let rules = (28..84).step_by(8);
    let scalars = (108..COLUMNS).step_by(8);
    let of_columns = (0..M).flat_map(|column| (0..5).map(move |number| COLUMNS + column * COLUMN + 10 + number * 8));
    let arrays = (rest..good.len()).step_by(8);

    for place in rules.chain(scalars).chain(of_columns).chain(arrays) {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut bytes = good.clone();
            bytes[place..place + 8].copy_from_slice(&value.to_le_bytes());

            let refused = Model::decode(&signed(bytes));

            assert!(matches!(refused, Err(ModelError::Value { .. })), "{value} at {place}: {refused:?}");
        }
    }
}

proptest! {
    #[test]
    fn a_changed_model_is_refused_or_scores_finitely(
        changes in prop::collection::vec((20_usize..6_000, any::<u8>()), 1..6), rows in any::<u64>(),
    ) {
        let mut bytes = bytes();
        for (place, value) in changes {
            let place = 20 + place % (bytes.len() - 20);
            bytes[place] = value;
        }
        let Ok(model) = Model::decode(&signed(bytes)) else { return Ok(()) };
        let Ok(mut detector) = Detector::from_model(&model, gauges(M), Settings::default(), 1) else { return Ok(()) };
        let mut service = Service::new(M, rows);

        for _ in 0..400 {
            let verdict = run(&mut detector, &service.row());

            prop_assert!(verdict.score.is_finite() && verdict.score >= 0.0);
        }
    }

    #[test]
    fn any_bytes_are_a_model_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(Model::decode(&bytes).is_err());
    }
}
