//! Scoring and learning compared with other implementations: Frequent Directions in numpy, a Random Cut Forest.

use std::hint::black_box;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, anyhow, ensure};
use lmap::Settings;
use rcf3::{Forest, RcfError};

use super::lmap::{COLUMNS, RANK, ROWS, SKETCH_ROWS, armed, rows, step};
use super::pair::measure;
use super::{Figure, Goal, Unavailable};

/// Rows per turn, for which the peers take up to some tens of milliseconds.
const SCORED: u64 = 10_000;
const LEARNT: u64 = 200;
const LEARNT_BUFFERED: u64 = 1_000;
const TREES: usize = 50;
const SAMPLES: usize = 256;

/// numpy in a process of its own, with one thread. It processes rows on request, and reports when it is done.
struct Numpy {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    failed: Option<std::io::Error>,
}

impl Numpy {
    /// Starts the first `python3` in the path that has numpy.
    fn start() -> Result<Self> {
        Self::of("python3").or_else(|_| Self::of("/usr/bin/python3"))
    }

    fn of(python: &str) -> Result<Self> {
        let shape = [COLUMNS, SKETCH_ROWS, RANK].map(|number| number.to_string());
        let mut python = Command::new(python);
        python.args(["-c", include_str!("peer.py")]).args(shape);
        for threads in ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"] {
            python.env(threads, "1");
        }
        let child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.map_err(|error| Unavailable(format!("python3 cannot be started: {error}")))?;
        let input = child.stdin.take().context("the input is piped")?;
        let output = BufReader::new(child.stdout.take().context("the output is piped")?);
        let mut numpy = Self { child, input, output, failed: None };
        if numpy.read_ready().is_err() {
            return Err(Unavailable("python3 has no numpy (Debian: apt-get install python3-numpy)".to_owned()).into());
        }
        Ok(numpy)
    }

    fn read_ready(&mut self) -> std::io::Result<()> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Lets it process `rows` rows by one method.
    fn take(&mut self, way: &str, rows: u64) {
        if self.failed.is_none() {
            self.failed = writeln!(self.input, "{way} {rows}").and_then(|()| self.read_ready()).err();
        }
    }

    fn checked(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), |error| Err(anyhow!(error).context("numpy has ended")))
    }
}

impl Drop for Numpy {
    fn drop(&mut self) {
        let _ = self.child.kill(); // gone already: that is what was wanted
        let _ = self.child.wait();
    }
}

/// Settings with which every row is learnt, like the peers.
fn every_row() -> Settings {
    Settings { stride: 1, learning_rate: 1.0, ..Settings::default() }
}

fn against_numpy(name: &str, way: &str, (peer, ahead): (&str, f64), rows_per_turn: u64) -> Result<Figure> {
    let mut numpy = Numpy::start()?;
    let rows = rows();
    let learns = way != "score";
    let mut detector = armed(&rows, &every_row())?;
    let mut next = rows.iter().cycle();
    let measured = measure(
        rows_per_turn,
        |count| {
            for row in next.by_ref().take(count as usize) {
                if learns {
                    step(&mut detector, row);
                } else {
                    _ = black_box(detector.score(black_box(row)));
                }
            }
        },
        |count| numpy.take(way, count),
    );
    numpy.checked()?;
    let peer = format!("numpy, one thread, m = {COLUMNS}, l = {SKETCH_ROWS}, k = {RANK}: {peer}");
    Ok(times_ahead(Figure::new(name, "µs", &peer, measured.in_units_of(1000.0), Goal::Stated), ahead))
}

/// `figure` with the requirement to be `ahead` times as fast as the peer.
fn times_ahead(figure: Figure, ahead: f64) -> Figure {
    let met = figure.ratio * ahead <= 1.0;
    let note = format!("{:.0} times as fast as the peer", 1.0 / figure.ratio);
    Figure { goal: format!("≥ {ahead} times as fast"), met, note, ..figure }
}

/// One row scored.
pub fn score(name: &str) -> Result<Figure> {
    against_numpy(name, "score", ("p = U x, r = x − Uᵀp, weighted sum of squares", 20.0), SCORED)
}

/// One row scored and learnt, against a decomposition for every row.
pub fn row_wise(name: &str) -> Result<Figure> {
    let peer = "the same score, and one singular value decomposition of l rows for every row (the paper's form)";
    against_numpy(name, "row-wise", (peer, 50.0), LEARNT)
}

/// One row scored and learnt, against a decomposition when 2l rows are there.
pub fn buffered(name: &str) -> Result<Figure> {
    let peer = "the same score, and one singular value decomposition of 2l rows for every l + 1 rows";
    against_numpy(name, "buffered", (peer, 8.0), LEARNT_BUFFERED)
}

/// One row scored and learnt, against a forest that does both.
pub fn forest(name: &str) -> Result<Figure> {
    let refused = |error: RcfError| anyhow!("the forest refuses: {error}");
    let rows = rows();
    let single: Vec<Vec<f32>> = rows.iter().map(|row| row.iter().map(|value| *value as f32).collect()).collect();
    let forest = Forest::builder(COLUMNS).num_trees(TREES).capacity(SAMPLES).shingle_size(1).seed(1);
    let mut forest = forest.build().map_err(refused)?;
    for row in &single {
        forest.update(row).map_err(refused)?;
    }
    let mut detector = armed(&rows, &every_row())?;
    let (mut next, mut theirs) = (rows.iter().cycle(), single.iter().cycle());
    let mut failed = None;
    let measured = measure(
        LEARNT,
        |count| next.by_ref().take(count as usize).for_each(|row| step(&mut detector, row)),
        |count| {
            for row in theirs.by_ref().take(count as usize) {
                let scored = forest.score(black_box(row)).map(|score| _ = black_box(score));
                failed = scored.and_then(|()| forest.update(row)).err().or(failed.take());
            }
        },
    );
    failed.map_or(Ok(()), |error| Err(refused(error)))?;
    ensure!(rows.len() == ROWS, "there are {} rows", rows.len());
    let peer = format!("the crate rcf3, {TREES} trees of {SAMPLES} samples, {COLUMNS} columns: score and update");
    Ok(times_ahead(Figure::new(name, "µs", &peer, measured.in_units_of(1000.0), Goal::Stated), 50.0))
}
