//! What lasts: longer rows, also between two rows.

use crate::support::{Noise, run};
use lmap::{BetweenRow, Column, ColumnKind, Detector, InterimBuffer, Settings};

/// Columns of the process, which are restless, and of the service itself, which are calm.
const RESTLESS: usize = 24;
const CALM: usize = 4;

fn columns() -> Vec<Column> {
    let column = |at| Column { group: u16::from(at >= RESTLESS), ..Column::new(ColumnKind::Gauge, at as u64) };
    (0..RESTLESS + CALM).map(column).collect()
}

fn settings(long_rows: Option<usize>) -> Settings {
    Settings { long_rows, group_margin: Some(3.0), fit_again_rows: Vec::new(), ..Settings::default() }
}

/// A row in which the process has bursts now and then, and the service's own first gauge is `shift` deviations higher.
fn row(noise: &mut Noise, shift: f64) -> Vec<f64> {
    let size = if noise.unit() < 0.05 { 12.0 } else { 1.0 };
    let restless = (0..RESTLESS).map(|_| 100.0 + size * noise.normal()).collect::<Vec<_>>();
    let mut row: Vec<f64> = restless.into_iter().chain((0..CALM).map(|_| 50.0 + noise.normal())).collect();
    row[RESTLESS] += shift;
    row
}

/// An armed detector that has seen 400 rows, and what makes the next ones.
fn armed(long_rows: Option<usize>) -> (Detector, Noise) {
    let mut detector = Detector::new(columns(), settings(long_rows), 1).expect("valid settings");
    let mut noise = Noise::new(5);
    for _ in 0..400 {
        let _ = run(&mut detector, &row(&mut noise, 0.0));
    }
    (detector, noise)
}

/// Too little for any row by itself.
const SHIFT: f64 = 6.0;

#[test]
fn a_look_at_a_whole_row_sees_what_has_lasted_as_the_row_will() {
    let (mut detector, mut noise) = armed(Some(10));
    let (mut plain, _) = armed(None);
    let (mut buffer, mut before) = (InterimBuffer::default(), row(&mut noise, 0.0));
    let _ = (run(&mut detector, &before), run(&mut plain, &before));

    let mut raised = 0;
    for t in 0..10 {
        let next = row(&mut noise, SHIFT);
        let between = |part| BetweenRow { values: &next, before: &before, part };
        let look = detector.look(between(1.0), &mut buffer).expect("armed");
        let _ = detector.look(between(0.2), &mut buffer).expect("it changes nothing");

        let (verdict, without) = (run(&mut detector, &next), run(&mut plain, &next));

        assert!((look.score - verdict.raw).abs() <= 1e-9 * verdict.raw, "row {t}: {look:?}, {verdict:?}");
        raised += u32::from(look.over && without.raw < verdict.raw / 1.2);
        before = next;
    }
    assert!(raised >= 3, "{raised} rows are over by longer rows alone");
}
