//! Columns that are estimates of a count: a move within their own error is no alarm, a doubling and a scan are.

use std::collections::VecDeque;

use crate::support::{Noise, gauges, run};
use lmap::{Column, ColumnKind, Detector, Episode, Model, ScoreForm, Settings};

const CLIENTS: usize = 24;
/// Intervals of which the least count is reported.
const HELD: usize = 4;
/// Rows for which the same clients are away.
const PERIOD: usize = 2;
const FLOWS: usize = 0;
const SOURCES: usize = 1;
const FAN_IN: usize = 2;
const PORTS: usize = 3;
const SHARE: usize = 5;
const DELAY: usize = 6;
const ESTIMATES: [usize; 4] = [FLOWS, SOURCES, FAN_IN, PORTS];

fn columns(estimated: bool) -> Vec<Column> {
    let mut columns = gauges(7);
    columns[DELAY].group = 1;
    for column in ESTIMATES {
        columns[column].estimated = estimated;
    }
    columns
}

/// Groups are judged, also over longer rows.
fn settings() -> Settings {
    Settings::live(0.5).lasting(0.1)
}

/// A stream of packets of clients that come and go, as a NIC agent reports it.
struct Stream {
    noise: Noise,
    rows: usize,
    away: usize,
    /// Clients at a time, if nobody is away.
    clients: usize,
    all_there: bool,
    /// How far the estimates are off, by collisions of who is there.
    off: [f64; 2],
    ports: f64,
    counts: VecDeque<usize>,
}

impl Stream {
    fn new(seed: u64) -> Self {
        let noise = Noise::new(seed);
        let (clients, off) = (CLIENTS, [0.58, -0.56]);
        Self { noise, rows: 0, away: 0, clients, all_there: false, off, ports: 1.0, counts: VecDeque::new() }
    }

    fn row(&mut self) -> Vec<f64> {
        if self.rows.is_multiple_of(PERIOD) {
            self.away = (0..CLIENTS).filter(|_| self.noise.unit() < 1.0 / 16.0).count();
        }
        self.rows += 1;
        let there = if self.all_there { self.clients } else { self.clients - self.away };
        self.counts.push_back(there);
        if self.counts.len() > HELD {
            self.counts.pop_front();
        }
        let least = self.counts.iter().min().copied().unwrap_or(there) as f64;
        let share = (1.0 + 0.05 * self.noise.normal()) / CLIENTS as f64;
        let delay = 100.0 + 3.0 * self.noise.normal();
        vec![least + self.off[0], least + self.off[1], least, self.ports, 1.0, share, delay]
    }

    /// All clients come back with other addresses, and are there for a while.
    fn roll_out(&mut self, seed: usize) {
        self.all_there = true;
        self.off = [[1.6, -0.4], [0.4, 2.0], [-1.2, 1.3]][seed % 3];
    }
}

/// A detector that has seen so many rows, in which nothing happened.
fn armed(columns: &[Column], stream: &mut Stream, rows: usize) -> Detector {
    let mut detector = Detector::new(columns.to_vec(), settings(), 1).expect("valid settings");
    let began = (0..rows).filter(|_| run(&mut detector, &stream.row()).episode == Episode::Began).count();
    assert!(began == 0 || columns == self::columns(false), "nothing happens yet");
    detector
}

/// The number of the row, of the next `rows`, in which an episode begins; the first one is 1.
fn alarm(detector: &mut Detector, stream: &mut Stream, rows: usize) -> Option<usize> {
    (1..=rows).find(|_| run(detector, &stream.row()).episode == Episode::Began)
}

#[test]
fn clients_that_come_back_with_other_addresses_are_no_alarm() {
    let mut without = 0;
    for seed in 0..12 {
        for estimated in [false, true] {
            let mut stream = Stream::new(seed);
            let mut detector = armed(&columns(estimated), &mut stream, 180);
            stream.roll_out(seed as usize);
            let found = alarm(&mut detector, &mut stream, 24);
            if estimated {
                assert_eq!(found, None, "seed {seed}: {:?}", detector.gamma());
            } else {
                without += usize::from(found.is_some());
            }
        }
    }
    assert!(without >= 6, "the rows are such that other columns raise alarms: {without} of 12");
}

#[test]
fn variances_that_are_renewed_for_long_do_not_undo_it() {
    for seed in 0..3 {
        let mut stream = Stream::new(seed);
        let mut detector = armed(&columns(true), &mut stream, 2_600);
        for rollout in 0..6 {
            stream.roll_out(rollout);
            assert_eq!(alarm(&mut detector, &mut stream, 24), None, "seed {seed}, rollout {rollout}");
            stream.all_there = false;
            assert_eq!(alarm(&mut detector, &mut stream, 100), None, "seed {seed}, after rollout {rollout}");
        }
        stream.clients = 2 * CLIENTS;
        // The least count of the intervals before is held so long.
        assert!(alarm(&mut detector, &mut stream, HELD + 1).is_some(), "seed {seed}");
    }
}

#[test]
fn a_doubling_that_lasts_and_a_scan_are_alarms_within_two_rows() {
    for seed in 0..6 {
        let mut stream = Stream::new(seed);
        let mut detector = armed(&columns(true), &mut stream, 180);
        stream.clients = 2 * CLIENTS;
        stream.counts.clear();
        assert!(alarm(&mut detector, &mut stream, 2).is_some(), "doubled, seed {seed}");

        let mut stream = Stream::new(seed);
        let mut detector = armed(&columns(true), &mut stream, 180);
        stream.ports = 20.0;
        assert!(alarm(&mut detector, &mut stream, 2).is_some(), "a scan, seed {seed}");
    }
}

#[test]
fn what_was_constant_in_training_moves_within_its_error_and_not_beyond() {
    let stream = || Stream { all_there: true, ..Stream::new(3) };
    for by in [-2.0, 1.0, 2.0] {
        let mut moved = stream();
        let mut detector = armed(&columns(true), &mut moved, 180);
        moved.off.iter_mut().for_each(|off| *off += by);
        assert_eq!(alarm(&mut detector, &mut moved, 24), None, "{by}");

        let mut moved = stream();
        let mut detector = armed(&columns(false), &mut moved, 180);
        let mut row = moved.row();
        row[FLOWS] += by;
        let is_over = (0..2).any(|_| run(&mut detector, &row).over);
        assert!(is_over, "otherwise it is a constant that moves");
    }
    let mut doubled = stream();
    let mut detector = armed(&columns(true), &mut doubled, 180);
    doubled.clients *= 2;
    doubled.counts.clear();
    assert!(alarm(&mut detector, &mut doubled, 2).is_some());
}

#[test]
fn a_model_knows_it_from_means_and_deviations_also_one_of_before() {
    for learnt_as_estimates in [true, false] {
        let restored = || {
            let mut stream = Stream::new(5);
            let model = armed(&columns(learnt_as_estimates), &mut stream, 180).model().expect("armed");
            let model = Model::decode(&model.encode()).expect("it was encoded");
            (Detector::from_model(&model, columns(true), settings(), 1).expect("the same columns"), stream)
        };
        let (mut detector, mut stream) = restored();
        stream.roll_out(1);
        assert_eq!(alarm(&mut detector, &mut stream, 24), None, "{learnt_as_estimates}");

        let (mut detector, mut stream) = restored();
        stream.clients = 2 * CLIENTS;
        stream.counts.clear();
        assert!(alarm(&mut detector, &mut stream, 2).is_some(), "{learnt_as_estimates}");
    }
}

/// Scores of 900 rows, bit for bit.
fn scores(columns: Vec<Column>, settings: Settings) -> Vec<u64> {
    let mut detector = Detector::new(columns, settings, 1).expect("valid settings");
    let mut stream = Stream::new(8);
    (0..900).map(|_| run(&mut detector, &stream.row()).score.to_bits()).collect()
}

#[test]
fn where_no_estimate_is_judged_by_its_value_nothing_changes() {
    let changed = |by: fn(&mut Column)| {
        let mut of = columns(false);
        of.iter_mut().for_each(by);
        of
    };
    // One that is not watched, increments of levels, and the paper's forms.
    let unwatched = changed(|column| column.watched = column.fingerprint != SOURCES as u64);
    let mut marked = unwatched.clone();
    marked[SOURCES].estimated = true;
    assert!(scores(marked, settings()) == scores(unwatched, settings()), "not watched");
    let levels = changed(|column| column.level = Some(true));
    let marked = levels.iter().map(|column| Column { estimated: true, ..*column }).collect();
    assert!(scores(marked, settings()) == scores(levels, settings()), "levels");
    for form in [ScoreForm::PaperAbsolute, ScoreForm::PaperRelative] {
        let of = |estimated| scores(columns(estimated), Settings::paper(form));
        assert!(of(true) == of(false), "{form:?}");
    }
    assert!(scores(columns(true), settings()) != scores(columns(false), settings()), "others change");
}

#[test]
fn other_columns_are_as_sensitive_beside_estimates() {
    for column in [SHARE, DELAY] {
        let mut stream = Stream::new(4);
        let mut detector = armed(&columns(true), &mut stream, 180);
        let found = (1..=3).find(|_| {
            let mut row = stream.row();
            row[column] *= 2.0;
            run(&mut detector, &row).episode == Episode::Began
        });
        assert!(found.is_some(), "column {column}");
    }
    assert_eq!(columns(true)[SHARE], Column::new(ColumnKind::Gauge, SHARE as u64));
}
