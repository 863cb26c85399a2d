//! The standard deviation of delays, estimated from sums of delays in buckets. Used by FineComb, LDA and RDA.

/// Maximum number of banks of a synopsis.
pub(crate) const MAX_BANKS: usize = 8;

/// How the deviation is estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deviation {
    /// Pairs of neighbouring rows that are both useful; σ² = F − µ², as published.
    Fixed,
    /// Pairs of successive useful rows.
    Selective,
    /// As `Selective`, with µ times the difference of counts subtracted from a pair's difference. Never below 0.
    Centred,
    /// Each useful row by itself: the most precise one, and the default.
    PerBucket,
}

/// A useful row: the sum of its packets' delays, their number, and its position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsefulRow {
    pub(crate) delay: f64,
    pub(crate) count: f64,
    /// Below [`MAX_BANKS`].
    pub(crate) bank: usize,
    pub(crate) row: usize,
}

/// σ², which may be below 0; `None` if there are too few useful rows.
pub(crate) fn variance(rows: impl Iterator<Item = UsefulRow>, mean: f64, deviation: Deviation) -> Option<f64> {
    match deviation {
        Deviation::PerBucket => of_single_rows(rows, mean),
        Deviation::Fixed => {
            let mut before: Option<UsefulRow> = None;
            let neighbours = rows.filter_map(move |row| {
                before
                    .replace(row)
                    .filter(|one| one.row / 2 == row.row / 2 && one.bank == row.bank)
                    .map(|one| (one, row))
            });
            of_pairs(neighbours, 0.0).map(|second_moment| second_moment - mean * mean)
        }
        Deviation::Selective => of_pairs(pairs(rows), 0.0).map(|second_moment| second_moment - mean * mean),
        Deviation::Centred => of_pairs(pairs(rows), mean),
    }
}

fn of_single_rows(rows: impl Iterator<Item = UsefulRow>, mean: f64) -> Option<f64> {
    let (mut squares, mut count, mut buckets) = (0.0, 0.0, 0.0);
    for row in rows {
        let off = row.delay - mean * row.count;
        squares += off * off;
        count += row.count;
        buckets += 1.0;
    }
    (buckets > 1.0).then(|| squares / count * buckets / (buckets - 1.0))
}

/// Mean square of the differences of pairs, less `mean` for each packet that one row of a pair has more.
fn of_pairs(pairs: impl Iterator<Item = (UsefulRow, UsefulRow)>, mean: f64) -> Option<f64> {
    let (mut squares, mut count) = (0.0, 0.0);
    for (one, other) in pairs {
        let difference = one.delay - other.delay - mean * (one.count - other.count);
        squares += difference * difference;
        count += one.count + other.count;
    }
    (count > 0.0).then(|| squares / count)
}

/// Pairs of rows within one bank, since banks with other probabilities have other counts.
fn pairs(rows: impl Iterator<Item = UsefulRow>) -> impl Iterator<Item = (UsefulRow, UsefulRow)> {
    let mut unpaired: [Option<UsefulRow>; MAX_BANKS] = [None; MAX_BANKS];
    rows.filter_map(move |row| {
        let before = unpaired[row.bank].take();
        if before.is_none() {
            unpaired[row.bank] = Some(row);
        }
        before.map(|one| (one, row))
    })
}
