//! The most memory that a detector takes, whatever its rows are.

use crate::column::Column;
use crate::constants::Constant;
use crate::estimates::Errors;
use crate::frequent_directions::capacity;
use crate::groups::MAX_GROUPS;
use crate::lanes::{padded, padded_narrow};
use crate::latch::Latches;
use crate::long_rows::LongRows;
use crate::pools::Pools;
use crate::rows::Mark;
use crate::saturation::Saturations;
use crate::settings::{ScoreForm, Settings};
use crate::standard::Role;

/// Default rows l of a sketch: at least this, and at least twice the rank.
pub(crate) const MIN_SKETCH_ROWS: usize = 25;
/// Arrays that begin a cache line, ends of lists, and what else does not grow with columns.
const FIXED_BYTES: usize = 4 << 10;
/// Matrices of the size of the smaller Gram matrix that a decomposition has at a time: that one, its vectors, a copy of
/// these to mix rows by, and one more to work in.
const MATRICES: usize = 4;

/// The most memory of a detector of some columns, in bytes. What it takes at a time is
/// [`Detector::memory_bytes`](crate::Detector::memory_bytes).
///
/// Rank k and rows l are those of rows without any structure: k is a quarter of the rows of the last fit, or all
/// columns but one, and l twice that, unless the settings have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// While it learns, without a fitted pipeline: rows to learn from, the newest rows, and spare ones.
    pub learning: usize,
    /// A fitted pipeline: sketch, basis, variances. While the detector learns on, it has both.
    pub fitted: usize,
    /// A job while it runs, besides the rows or the sketch that it was given: copies of the rows, decompositions, and
    /// the result until it is installed.
    pub job: usize,
}

impl Footprint {
    /// The footprint of `columns` columns with `settings`. O(1).
    #[must_use]
    pub fn of(columns: usize, settings: &Settings) -> Self {
        let (m, rows) = (columns, settings.last_fit_rows().max(settings.rows_kept));
        let learning = rows * (size_of::<f64>() * m + size_of::<Mark>())
            + settings.spare_rows * (size_of::<f64>() * padded(m) + size_of::<Mark>())
            + m * (2 * size_of::<f64>() + size_of::<Column>() + size_of::<u32>())
            + Saturations::MAX_BYTES;
        let pipeline = Sizes::of(m, rows, settings);
        Self {
            learning: learning + FIXED_BYTES,
            fitted: pipeline.fitted() + FIXED_BYTES,
            job: pipeline.job(rows) + FIXED_BYTES,
        }
    }
}

/// Shape of the largest pipeline that can be fitted.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    columns: usize,
    /// Padded row of double precision, in bytes.
    row: usize,
    /// Padded row of single precision, in bytes.
    narrow_row: usize,
    rank: usize,
    /// Rows that the sketch has room for.
    sketch_rows: usize,
    /// Groups that are judged by themselves, at most.
    groups: usize,
    /// Copies in double precision for the paper's forms: 0 or 1.
    exact: usize,
    /// Whether rows of an episode are judged a second time: 0 or 1.
    novelty: usize,
}

impl Sizes {
    fn of(columns: usize, rows: usize, settings: &Settings) -> Self {
        let rank = largest_rank(columns, rows, settings);
        let sketch_rows = settings.sketch_rows.unwrap_or(MIN_SKETCH_ROWS.max(2 * rank));
        Self {
            columns,
            row: size_of::<f64>() * padded(columns),
            narrow_row: size_of::<f32>() * padded_narrow(columns),
            rank,
            sketch_rows: capacity(sketch_rows, settings.sketch),
            groups: settings.group_margin.map_or(0, |_| MAX_GROUPS.min(columns)),
            exact: usize::from(settings.score != ScoreForm::Scaled),
            novelty: usize::from(settings.novelty && settings.score == ScoreForm::Scaled),
        }
    }

    fn fitted(self) -> usize {
        let Self { columns, row, narrow_row, rank, sketch_rows, exact, novelty, .. } = self;
        // Squares that the sketch forgot, means, deviations, V, z; weights, residuals, onsets.
        let per_column = 5 * row + 3 * narrow_row + exact * row;
        // What a row says that is new, its residuals, and what is known in both directions.
        let novelty = novelty * (row + 3 * narrow_row + columns + rank * size_of::<f32>());
        let lists = Pools::COLUMN_BYTES
            + size_of::<Role>()
            + size_of::<u32>()
            + size_of::<Constant>()
            + Latches::GAUGE_BYTES
            + size_of::<u8>()
            + LongRows::COLUMN_BYTES
            + Errors::COLUMN_BYTES;
        let directions = rank * (narrow_row + exact * row + 3 * size_of::<f64>() + Errors::DIRECTION_BYTES);
        sketch_rows * row + directions + per_column + columns * lists + novelty
    }

    /// Of `rows` rows. The largest is a fit while it judges unseen rows: it has the rows in order, as features, without
    /// those left out and these, and standardised; two pipelines; and a decomposition, which copies its sketch.
    fn job(self, rows: usize) -> usize {
        let Self { columns, row, rank, sketch_rows, groups, .. } = self;
        // At the end, groups have three copies of what each row was, and of the longer one, in place of rows apart and
        // standardised.
        let apart = (size_of::<f64>() * columns + row).max(6 * size_of::<f64>() * groups);
        let copies = rows * (2 * size_of::<f64>() * columns + apart + 8 * size_of::<f64>());
        let side = padded(sketch_rows.min(columns).max(rows.min(columns)));
        let decomposition = MATRICES * side * side * size_of::<f64>() + sketch_rows * row + 2 * rank * row;
        copies + 2 * self.fitted() + decomposition.max(rows * row)
    }
}

/// The largest rank that a fit to `rows` rows can choose.
fn largest_rank(columns: usize, rows: usize, settings: &Settings) -> usize {
    let most = settings.sketch_rows.map_or(columns, |sketch_rows| sketch_rows.min(columns));
    settings.rank.unwrap_or(rows / 4).min(most.saturating_sub(1)).max(1)
}
