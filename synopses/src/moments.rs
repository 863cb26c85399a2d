//! The deviation of single delays from sums of many: shared by what adds delays up in buckets.

/// No synopsis has more banks of buckets.
pub(crate) const MOST_BANKS: usize = 8;

/// How the deviation is estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deviation {
    /// Pairs of neighbouring rows of which both are useful; σ² = F − µ², as published.
    Fixed,
    /// Pairs of useful rows, one after the other.
    Selective,
    /// The same, with µ times the difference of their counts taken from the difference of a pair. Never below 0.
    Centred,
    /// Every useful row for itself: the most precise, and the default.
    PerBucket,
}

/// A useful row: the delay of its packets in all, their number, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Useful {
    pub(crate) delay: f64,
    pub(crate) count: f64,
    /// Below [`MOST_BANKS`].
    pub(crate) bank: usize,
    pub(crate) row: usize,
}

/// σ², which may come out below 0; `None` if it takes more buckets than there are.
pub(crate) fn variance(rows: impl Iterator<Item = Useful>, mean: f64, deviation: Deviation) -> Option<f64> {
    match deviation {
        Deviation::PerBucket => of_single_rows(rows, mean),
        Deviation::Fixed => {
            let mut before: Option<Useful> = None;
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

fn of_single_rows(rows: impl Iterator<Item = Useful>, mean: f64) -> Option<f64> {
    let (mut squares, mut count, mut buckets) = (0.0, 0.0, 0.0);
    for row in rows {
        let off = row.delay - mean * row.count;
        squares += off * off;
        count += row.count;
        buckets += 1.0;
    }
    (buckets > 1.0).then(|| squares / count * buckets / (buckets - 1.0))
}

/// Mean square of the differences of pairs, less `mean` for each packet that one of a pair has more.
fn of_pairs(pairs: impl Iterator<Item = (Useful, Useful)>, mean: f64) -> Option<f64> {
    let (mut squares, mut count) = (0.0, 0.0);
    for (one, other) in pairs {
        let difference = one.delay - other.delay - mean * (one.count - other.count);
        squares += difference * difference;
        count += one.count + other.count;
    }
    (count > 0.0).then(|| squares / count)
}

/// Pairs of rows of one bank: with other probabilities the difference of the counts would not be around 0.
fn pairs(rows: impl Iterator<Item = Useful>) -> impl Iterator<Item = (Useful, Useful)> {
    let mut waiting: [Option<Useful>; MOST_BANKS] = [None; MOST_BANKS];
    rows.filter_map(move |row| {
        let before = waiting[row.bank].take();
        if before.is_none() {
            waiting[row.bank] = Some(row);
        }
        before.map(|one| (one, row))
    })
}
