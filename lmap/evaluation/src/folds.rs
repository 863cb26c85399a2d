//! k-fold: settings are chosen on some services or machines, and judged on those left out. Pure.
//!
//! A set's units are dealt to the folds by service. A set of one service is cut into blocks of time instead, with about
//! the same number of events in each, half way between two events. Training rows stay the unit's own: no setting is
//! chosen by them.

use crate::data_set::DataSet;
use crate::table::Label;
use crate::unit::Unit;

/// Where a unit stands among all sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitIndex {
    /// Index of its set.
    pub set: usize,
    /// Index within its set.
    pub unit: usize,
}

/// Which rows belong to which fold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folds {
    count: usize,
    sets: Vec<SetFolds>,
}

/// The folds of one set.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SetFolds {
    /// The fold of each unit.
    Units(Vec<usize>),
    /// Each unit's test rows are cut into blocks.
    Blocks,
}

impl Folds {
    /// Deals the services of `sets`, by name, to `count` folds in turn. What stands before the last `_` of a unit's
    /// name is its service: `cart_monday` and `cart_tuesday` are in one fold.
    #[must_use]
    pub fn new(sets: &[DataSet], count: usize) -> Self {
        let set = |set: &DataSet| {
            let service = |name: &str| name.rsplit_once('_').map_or(name, |(service, _)| service).to_owned();
            let services: Vec<String> = set.units.iter().map(|unit| service(&unit.name)).collect();
            let mut names = services.clone();
            names.sort();
            names.dedup();
            if names.len() < 2 {
                return SetFolds::Blocks;
            }
            let fold = |service: &String| names.partition_point(|name| name < service) % count;
            SetFolds::Units(services.iter().map(fold).collect())
        };
        Self { count, sets: sets.iter().map(set).collect() }
    }

    /// Number of folds.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The fold of each test row of the unit at `place`.
    #[must_use]
    pub fn of(&self, place: UnitIndex, unit: &Unit) -> Vec<usize> {
        match &self.sets[place.set] {
            SetFolds::Units(folds) => vec![folds[place.unit]; unit.labels.len()],
            SetFolds::Blocks => blocks(unit, self.count),
        }
    }
}

/// Blocks of time in order, cut half way between the last event of one and the first of the next.
fn blocks(unit: &Unit, count: usize) -> Vec<usize> {
    let events = unit.events();
    let block = |event: usize| event * count / events.len();
    let mut out = Vec::with_capacity(unit.labels.len());
    for (event, pair) in events.windows(2).enumerate() {
        let border = usize::midpoint(pair[0].1, pair[1].0);
        out.resize(border, block(event));
    }
    out.resize(unit.labels.len(), events.len().checked_sub(1).map_or(0, block));
    out
}

/// The unit with the rows of `fold` ignored, `None` if those are all of its rows. `rows`: the fold of each row.
#[must_use]
pub fn without(unit: &Unit, rows: &[usize], fold: usize) -> Option<Unit> {
    if rows.iter().all(|of| *of == fold) {
        return None;
    }
    let label = |(label, of): (&Label, &usize)| if *of == fold { Label::Ignored } else { *label };
    Some(Unit { labels: unit.labels.iter().zip(rows).map(label).collect(), ..unit.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::Columns;
    use crate::data_set;
    use crate::table::read;

    fn unit(labels: &str) -> Unit {
        let lines: Vec<String> = labels.chars().map(|label| format!("1,{label}")).collect();
        let test = read(format!("a,label\n{}", lines.join("\n")).as_bytes()).unwrap();
        Unit::new("u".to_owned(), (&test, &test), &Columns::gauges(&test.metrics, |_| 0), &[]).unwrap()
    }

    fn set(names: &[&str]) -> Vec<DataSet> {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            for half in ["train", "test"] {
                std::fs::write(folder.path().join(format!("{name}.{half}.csv")), "a,label\n1,0\n").unwrap();
            }
        }
        data_set::open(folder.path()).unwrap()
    }

    #[test]
    fn a_service_is_in_one_fold_on_all_its_days() {
        let folds = Folds::new(&set(&["cart_1", "cart_2", "pay_1", "pay_2", "shop_2"]), 2);

        let of = |unit| folds.of(UnitIndex { set: 0, unit }, &super::tests::unit("00"))[0];
        assert_eq!([0, 1, 2, 3, 4].map(of), [0, 0, 1, 1, 0]);
    }

    #[test]
    fn one_service_is_cut_into_blocks_of_time_between_its_events() {
        let unit = unit("0100110000001200");
        let folds = Folds::new(&set(&["redis"]), 3);

        let rows = folds.of(UnitIndex { set: 0, unit: 0 }, &unit);

        assert_eq!(rows, [0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2]);
        assert_eq!(without(&unit, &rows, 1).unwrap().events(), [(1, 2), (12, 13)]);
        assert_eq!(without(&unit, &[1; 16], 1), None);
        assert_eq!(blocks(&super::tests::unit("000"), 3), [0, 0, 0]);
    }
}
