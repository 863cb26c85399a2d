//! Scoring and learning compared with Frequent Directions in numpy.

use std::hint::black_box;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use lmap::{Settings, SketchForm};

use super::figure::{Figure, Goal};
use super::instructions;
use super::lmap::{COLUMNS, RANK, SKETCH_ROWS, armed, rows, step};
use super::pair::measure_times;
use crate::clock::processor_time;
use crate::unavailable::Unavailable;

/// Rows per turn, for which the peers take up to some tens of milliseconds.
const SCORED: u64 = 10_000;
const LEARNT: u64 = 200;
const LEARNT_BUFFERED: u64 = 1_000;

/// How the peer decomposes its sketch.
#[derive(Clone, Copy, Debug)]
pub enum Decomposition {
    /// By a thin singular value decomposition.
    Svd,
    /// By the eigenvectors of the Gram matrix of its rows, as the detector does.
    Gram,
}

impl Decomposition {
    /// The last word of its methods in `peer.py`.
    const fn method(self) -> &'static str {
        match self {
            Self::Svd => "svd",
            Self::Gram => "gram",
        }
    }

    const fn sentence(self) -> &'static str {
        match self {
            Self::Svd => "numpy.linalg.svd",
            Self::Gram => "numpy.linalg.eigh of the Gram matrix",
        }
    }

    /// How many times as fast as the buffered peer the buffered detector has to be.
    const fn min_ahead_of_buffered(self) -> f64 {
        match self {
            Self::Svd => 8.0,
            Self::Gram => 25.0,
        }
    }

    /// How many times as fast as the row-wise peer the buffered detector has to be.
    const fn min_ahead_of_row_wise(self) -> f64 {
        match self {
            Self::Svd => 50.0,
            Self::Gram => 100.0,
        }
    }
}

/// numpy in a process of its own, with one thread. It processes rows on request, and reports when it is done.
struct Numpy {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    failed: Option<std::io::Error>,
    /// Its version, and that of its BLAS.
    version: String,
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
        let mut numpy = Self { child, input, output, failed: None, version: String::new() };
        numpy.version = numpy.read_line().map_err(|_| {
            Unavailable("python3 has no numpy (`pip install numpy` brings one with OpenBLAS)".to_owned())
        })?;
        Ok(numpy)
    }

    fn read_line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// Lets it process `rows` rows by one method. Returns the processor time that it took for them.
    fn take(&mut self, method: &str, rows: u64) -> Duration {
        if self.failed.is_some() {
            return Duration::ZERO;
        }
        let answer = writeln!(self.input, "{method} {rows}").and_then(|()| self.read_line());
        match answer.and_then(|line| line.parse().map_err(std::io::Error::other)) {
            Ok(nanoseconds) => Duration::from_nanos(nanoseconds),
            Err(error) => {
                self.failed = Some(error);
                Duration::ZERO
            }
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
pub fn every_row(sketch: SketchForm) -> Settings {
    Settings { sketch, stride: 1, learning_rate: 1.0, ..Settings::default() }
}

/// What both sides do with each row.
struct Work<'a> {
    /// How often the detector decomposes its sketch; `None`: it only scores.
    ours: Option<SketchForm>,
    /// The peer's method in `peer.py`, and what that is.
    theirs: (String, String),
    /// How many times as fast the detector has to be.
    min_ahead: Option<f64>,
    /// Rows per turn.
    rows: u64,
    remark: &'a str,
}

fn against_numpy(name: &str, work: &Work<'_>) -> Result<Figure> {
    let mut numpy = Numpy::start()?;
    let rows = rows();
    let mut detector = armed(&rows, &every_row(work.ours.unwrap_or(SketchForm::Buffered)))?;
    let mut next = rows.iter().cycle();
    let (method, what) = &work.theirs;
    let mut ours = |count| {
        for row in next.by_ref().take(count) {
            if work.ours.is_some() {
                step(&mut detector, row);
            } else {
                _ = black_box(detector.score(black_box(row)));
            }
        }
    };
    let measured = measure_times(
        work.rows,
        |count| processor_time(&mut || ours(count as usize)),
        |count| numpy.take(method, count),
    );
    numpy.checked()?;
    let peer = format!("numpy in f64, one thread, m = {COLUMNS}, l = {SKETCH_ROWS}, k = {RANK}: {what}");
    let figure = Figure::new(name, "µs", &peer, measured.in_units_of(1000.0), Goal::Stated);
    let note = format!("{}{}; the peer is {}", work.remark, instructions::ours(), numpy.version);
    Ok(times_ahead(figure, work.min_ahead, &note))
}

/// `figure` with the requirement to be `min_ahead` times as fast as the peer.
pub fn times_ahead(figure: Figure, min_ahead: Option<f64>, note: &str) -> Figure {
    let note = format!("{:.1} times as fast as the peer; {note}", 1.0 / figure.ratio);
    let Some(ahead) = min_ahead else { return Figure { note, ..figure } };
    Figure { goal: format!("≥ {ahead} times as fast"), met: Some(figure.ratio * ahead <= 1.0), note, ..figure }
}

/// One row scored.
pub fn score(name: &str) -> Result<Figure> {
    let theirs = ("score".to_owned(), "p = U x, r = x − Uᵀp, weighted sum of squares".to_owned());
    against_numpy(name, &Work { ours: None, theirs, min_ahead: Some(20.0), rows: SCORED, remark: "" })
}

/// The peer's row-wise form, the paper's.
fn row_wise_peer(by: Decomposition) -> (String, String) {
    let what = format!("the same score, and {} of l rows for every row (the paper's form)", by.sentence());
    (format!("row-wise-{}", by.method()), what)
}

/// One row scored and learnt, with a decomposition for every row on both sides.
pub fn row_wise(name: &str, by: Decomposition) -> Result<Figure> {
    let (ours, theirs) = (Some(SketchForm::RowWise), row_wise_peer(by));
    let remark = "both decompose at every row, ours with `SketchForm::RowWise`; ";
    against_numpy(name, &Work { ours, theirs, min_ahead: None, rows: LEARNT, remark })
}

/// One row scored and learnt, with a decomposition of 2l rows for every l + 1 rows on both sides.
pub fn buffered(name: &str, by: Decomposition) -> Result<Figure> {
    let what = format!("the same score, and {} of 2l rows for every l + 1 rows", by.sentence());
    let (ours, theirs) = (Some(SketchForm::Buffered), (format!("buffered-{}", by.method()), what));
    let min_ahead = Some(by.min_ahead_of_buffered());
    against_numpy(name, &Work { ours, theirs, min_ahead, rows: LEARNT_BUFFERED, remark: "" })
}

/// The default detector, which is buffered, against the paper's form: two algorithms for one guarantee.
pub fn buffered_against_row_wise(name: &str, by: Decomposition) -> Result<Figure> {
    let (ours, theirs) = (Some(SketchForm::Buffered), row_wise_peer(by));
    let remark = "not the same algorithm: ours decomposes once in l + 1 rows, the peer at every row; ";
    against_numpy(name, &Work { ours, theirs, min_ahead: Some(by.min_ahead_of_row_wise()), rows: LEARNT, remark })
}
