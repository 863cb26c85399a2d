//! Gauges that latch at run time: a pool that grew under a burst and never shrinks, descriptors that stay open.
//!
//! Such a gauge is a level that training could not detect. Judged by its value, it would be in alarm for ever after one
//! step, and hide later faults. So a gauge that has rested at another value (within a few deviations of training) for a
//! number of rows gets a second centre there, and is judged by the nearer of the two. Its step was an alarm, its return
//! is none, and the trained value stays normal. Rates and durations do not latch: columns of increments, and columns
//! set to be no levels, are excluded.
//!
//! A process that starts again has its gauges elsewhere: memory, connections, descriptors. With the model of the
//! process before it, a gauge is not judged until it rests somewhere, for as many rows at most as it takes to latch.
//! The same holds for what replicas keep when some of them come or go, but there is a bound then: what is beyond twice
//! the trained value counts at once.

use crate::column::{Column, ColumnKind};
use crate::intake::Intake;
use crate::pools::TIMES;
use crate::standard::{Role, Standard};

/// A gauge rests while it stays within this many deviations of training around its place.
const STILL: f64 = 4.0;
/// Weight of a new value in the place of a resting gauge.
const FOLLOW: f64 = 0.1;

/// After a start, a gauge that has stayed at its place for so many rows is where it belongs.
const ARRIVED: usize = 10;

/// Why a gauge is not judged until it has come to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    /// It has, or nothing has changed.
    Over,
    /// Its process has just started, with the model of one before it.
    OfProcess,
    /// Replicas have come or gone.
    OfReplicas,
}

/// The state of one gauge.
#[derive(Clone, Copy, Debug)]
struct Gauge {
    column: u32,
    arrival: Arrival,
    /// The value at which it rests, NaN before the first row; and for how many rows.
    place: f64,
    rows: usize,
    /// The second centre, once there is one.
    centre: f64,
}

impl Gauge {
    /// Whether `value` says nothing yet, of a gauge that had this mean in training.
    fn is_unjudged(&self, value: f64, mean: f64) -> bool {
        match self.arrival {
            Arrival::Over => false,
            Arrival::OfProcess => true,
            Arrival::OfReplicas => value.abs() <= TIMES * mean.abs(),
        }
    }
}

/// The gauges of a pipeline that can latch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latches {
    gauges: Vec<Gauge>,
    rows: usize,
    /// Rows for which gauges may still arrive.
    arrival: usize,
}

impl Latches {
    /// Bytes of a gauge that can latch.
    pub(crate) const GAUGE_BYTES: usize = size_of::<Gauge>();

    /// Every watched gauge that is not a level. `rows`: how long a gauge has to rest; `None`: no gauge latches.
    pub(crate) fn new(columns: &[Column], roles: &[Role], levels: &[u32], rows: Option<usize>) -> Self {
        let Some(rows) = rows else { return Self::default() };
        let may = |at: usize, column: &Column| {
            let state = column.kind == ColumnKind::Gauge && column.level != Some(false);
            state && roles.get(at) == Some(&Role::Watched) && levels.binary_search(&(at as u32)).is_err()
        };
        let gauges = columns.iter().enumerate().filter(|(at, column)| may(*at, column));
        let (arrival, place, centre) = (Arrival::Over, f64::NAN, f64::NAN);
        let gauge = |(at, _)| Gauge { column: at as u32, arrival, place, rows: 0, centre };
        let mut gauges: Vec<_> = gauges.map(gauge).collect();
        gauges.shrink_to_fit();
        Self { gauges, rows, arrival: 0 }
    }

    /// Of a process that has just started, with the model of one before it.
    pub(crate) fn of_new_process(mut self) -> Self {
        self.gauges.iter_mut().for_each(|gauge| gauge.arrival = Arrival::OfProcess);
        self.arrival = self.rows;
        self
    }

    /// Replicas have come or gone, so that the gauge of `column` is to come to rest anew.
    pub(crate) fn arrive(&mut self, column: u32) {
        let place = self.gauges.binary_search_by_key(&column, |gauge| gauge.column);
        if let Some(gauge) = place.ok().and_then(|place| self.gauges.get_mut(place)) {
            (gauge.arrival, gauge.place, gauge.rows) = (Arrival::OfReplicas, f64::NAN, 0);
            self.arrival = self.rows;
        }
    }

    /// Goes on where `before` was with the gauge of `column`, if both have it.
    pub(crate) fn go_on_from(&mut self, before: &Self, column: u32) {
        let place = |gauges: &[Gauge]| gauges.binary_search_by_key(&column, |gauge| gauge.column).ok();
        if let (Some(own), Some(known)) = (place(&self.gauges), place(&before.gauges)) {
            self.gauges[own] = before.gauges[known];
        }
    }

    /// Updates the gauges with the newest row, and sets z of latched gauges by the nearer centre. Never allocates.
    pub(crate) fn step(&mut self, intake: &Intake, standard: &Standard, z: &mut [f64]) {
        self.arrival = self.arrival.saturating_sub(1);
        let may_arrive = self.arrival > 0;
        let (values, mean, inverse) = (intake.row(), &standard.mean[..], &standard.inverse[..]);
        for gauge in &mut self.gauges {
            let column = gauge.column as usize;
            let value = values[column];
            if value.is_nan() {
                continue;
            }
            let deviations = |centre: f64| (value - centre) * inverse[column];
            if deviations(gauge.place).abs() <= STILL {
                gauge.rows += 1;
                gauge.place += FOLLOW * (value - gauge.place);
            } else {
                (gauge.place, gauge.rows) = (value, 0);
            }
            let elsewhere = ((gauge.place - mean[column]) * inverse[column]).abs() > STILL;
            let arrived = gauge.rows >= ARRIVED && gauge.is_unjudged(value, mean[column]);
            if elsewhere && (arrived || gauge.rows >= self.rows) {
                gauge.centre = gauge.place;
            }
            if arrived || !may_arrive {
                gauge.arrival = Arrival::Over;
            }
            if gauge.is_unjudged(value, mean[column]) {
                z[column] = 0.0;
                continue;
            }
            // Hardly any has a second centre.
            if !gauge.centre.is_nan() && deviations(gauge.centre).abs() < deviations(mean[column]).abs() {
                z[column] = standard.soft(deviations(gauge.centre));
            }
        }
    }

    /// The place of `column` is its second centre if it has rested there for `rows` rows.
    pub(crate) fn settle(&mut self, column: usize, rows: usize) {
        let place = self.gauges.binary_search_by_key(&(column as u32), |gauge| gauge.column);
        if let Some(gauge) = place.ok().and_then(|place| self.gauges.get_mut(place))
            && gauge.rows >= rows
        {
            gauge.centre = gauge.place;
        }
    }

    /// The second centre of `column`, if `value` is nearer to it than to the trained mean.
    pub(crate) fn centre(&self, column: usize, value: f64, mean: f64) -> Option<f64> {
        let at = self.gauges.binary_search_by_key(&(column as u32), |gauge| gauge.column).ok()?;
        let centre = self.gauges[at].centre;
        ((value - centre).abs() < (value - mean).abs()).then_some(centre)
    }

    /// The columns of a row with these values that say nothing yet; `mean` has those of training.
    pub(crate) fn unjudged<'a>(&'a self, values: &'a [f64], mean: &'a [f64]) -> impl Iterator<Item = usize> + 'a {
        let columns = self.gauges.iter().map(|gauge| (gauge, gauge.column as usize));
        columns.filter(|(gauge, at)| gauge.is_unjudged(values[*at], mean[*at])).map(|(_, at)| at)
    }

    /// The second centre of each gauge that has one.
    pub(crate) fn centres(&self) -> impl Iterator<Item = (usize, f64)> {
        let latched = self.gauges.iter().filter(|gauge| !gauge.centre.is_nan());
        latched.map(|gauge| (gauge.column as usize, gauge.centre))
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<Gauge>() * self.gauges.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Counts;
    use crate::standard::StandardRule;

    const ROWS: usize = 20;

    struct GaugeFixture {
        latches: Latches,
        standard: Standard,
        intake: Intake,
    }

    impl GaugeFixture {
        /// A column that was 9, 10 or 11 in training.
        fn new(column: Column) -> Self {
            let rows: Vec<f64> = (0..90).map(|row| 9.0 + f64::from(row % 3)).collect();
            let rule = StandardRule { clip: 50.0, deviation_floor: 0.05, constant_below: 0.0, watch_constants: false };
            let standard = Standard::fit(&rows, 1, rule);
            let latches = Latches::new(&[column], &standard.roles, &[], Some(ROWS));
            Self { latches, standard, intake: Intake::new(1) }
        }

        fn z(&mut self, value: f64) -> f64 {
            self.intake.take(&[value], None, &mut Counts::default()).unwrap();
            let mut z = [0.0; 8];
            self.standard.row(&[value], &mut z);
            self.latches.step(&self.intake, &self.standard, &mut z);
            z[0]
        }
    }

    fn gauge() -> Column {
        Column::new(ColumnKind::Gauge, 0)
    }

    #[test]
    fn a_gauge_that_stands_still_elsewhere_is_judged_by_where_it_stands() {
        let mut fixture = GaugeFixture::new(gauge());

        let z: Vec<f64> = (0..40).map(|row| fixture.z(50.0 + f64::from(row % 3))).collect();

        assert!(z[..ROWS].iter().all(|z| *z > 40.0), "the step is seen: {z:?}");
        assert!(z[ROWS + 1..].iter().all(|z| z.abs() < 4.0), "then it is where it stands: {z:?}");
        assert!(fixture.z(10.0).abs() < 4.0, "its return is no step");
        assert!(fixture.z(80.0) > 20.0, "and what comes next is seen");
    }

    #[test]
    fn a_gauge_that_keeps_moving_does_not_latch() {
        let mut fixture = GaugeFixture::new(gauge());

        for row in 0..200 {
            assert!(fixture.z(50.0 + f64::from(row) * 5.0) > 40.0);
        }
    }

    #[test]
    fn after_a_start_a_gauge_is_judged_from_where_it_comes_to_rest() {
        let mut fixture = GaugeFixture::new(gauge());
        fixture.latches = core::mem::take(&mut fixture.latches).of_new_process();

        let start: Vec<f64> = (0..5).map(|row| fixture.z(20.0 + f64::from(row) * 10.0)).collect();
        let rest: Vec<f64> = (0..ARRIVED).map(|row| fixture.z(70.0 + (row % 3) as f64)).collect();

        assert!(start.iter().chain(&rest).all(|z| z.abs() < 4.0), "{start:?} {rest:?}");
        assert!(fixture.z(71.0).abs() < 4.0);
        assert!(fixture.z(100.0) > 20.0, "what comes next is seen");
    }

    #[test]
    fn after_a_start_a_gauge_that_never_rests_is_judged_all_the_same() {
        let mut fixture = GaugeFixture::new(gauge());
        fixture.latches = core::mem::take(&mut fixture.latches).of_new_process();

        let z: Vec<f64> = (0..ROWS + 5).map(|row| fixture.z(20.0 + row as f64 * 10.0)).collect();

        assert!(z[..ROWS - 1].iter().all(|z| *z == 0.0) && z[ROWS..].iter().all(|z| *z > 20.0), "{z:?}");
    }

    #[test]
    fn after_a_change_of_replicas_a_gauge_is_judged_from_where_it_comes_to_rest_and_at_once_beyond_twice_its_value() {
        let mut fixture = GaugeFixture::new(gauge());
        fixture.latches.arrive(0);

        let fewer: Vec<f64> = (0..=ARRIVED).map(|row| fixture.z(3.0 + 0.1 * (row % 3) as f64)).collect();

        assert!(fewer.iter().all(|z| z.abs() < 4.0), "{fewer:?}");
        assert!(fixture.z(3.1).abs() < 4.0 && fixture.z(10.0).abs() < 4.0, "both places are usual");
        assert!(fixture.z(18.0) > 7.0, "and what comes next is seen");

        fixture.latches.arrive(0);
        let far: Vec<f64> = (0..ROWS - 1).map(|_| fixture.z(21.0)).collect();
        assert!(far.iter().all(|z| *z > 10.0), "more than twice as much is no change of replicas: {far:?}");
    }

    #[test]
    fn after_a_change_of_replicas_a_gauge_that_never_rests_is_judged_all_the_same() {
        let mut fixture = GaugeFixture::new(gauge());
        fixture.latches.arrive(0);

        let z: Vec<f64> = (0..ROWS + 5).map(|row| fixture.z(if row % 2 == 0 { 1.0 } else { 19.0 })).collect();

        assert!(z[..ROWS - 1].iter().all(|z| *z == 0.0) && z[ROWS..].iter().all(|z| z.abs() > 8.0), "{z:?}");
    }

    #[test]
    fn a_duration_does_not_latch() {
        let mut fixture = GaugeFixture::new(Column { level: Some(false), ..gauge() });

        assert!((0..100).all(|_| fixture.z(50.0) > 40.0));
    }
}
