//! Whether a fault shows at all in what a way records: a way can say only what the program exposes. Pure.

use recording::Recording;

/// A time range in nanoseconds since 1970.
pub type Range = (u64, u64);

/// Whether a column, in half of the rows of `fault` or more and in two at least, has values that it has in none of the
/// rows outside of `faults`, each of which is meant with its grace. Fewer than two rows: the silence shows.
pub fn shows(rows: &Recording, fault: Range, faults: &[Range]) -> bool {
    let interval = rows.interval.0;
    let quiet = |time: u64| faults.iter().all(|(from, to)| time < *from || time > to.saturating_add(interval));
    let mut usual = vec![(f64::INFINITY, f64::NEG_INFINITY); rows.columns.len()];
    for (_, values) in rows.times.iter().zip(rows.rows()).filter(|(time, _)| quiet(time.0)) {
        for ((least, most), value) in usual.iter_mut().zip(values).filter(|(_, value)| value.is_finite()) {
            (*least, *most) = (least.min(*value), most.max(*value));
        }
    }
    // A row is of the interval before it.
    let of_fault = |time: u64| (fault.0.saturating_add(interval)..=fault.1.saturating_add(interval)).contains(&time);
    let mut count = 0;
    let mut outside = vec![0_usize; usual.len()];
    for (_, values) in rows.times.iter().zip(rows.rows()).filter(|(time, _)| of_fault(time.0)) {
        count += 1;
        for ((outside, (least, most)), value) in outside.iter_mut().zip(&usual).zip(values) {
            *outside += usize::from(least <= most && (value < least || value > most));
        }
    }
    count < 2 || outside.iter().any(|outside| *outside >= 2 && 2 * outside >= count)
}

#[cfg(test)]
mod tests {
    use recording::{Column, ColumnKind, Encoder, Head};
    use wire::time::{Nanos, UnixNanos};

    use super::*;

    /// Rows of a second each, from 1970 on, of one column.
    fn recorded(values: &[f64]) -> Recording {
        let column =
            Column { title: "x".to_owned(), unit: String::new(), group: String::new(), kind: ColumnKind::Gauge };
        let head = Head { service: "s".to_owned(), interval: Nanos(SECOND), columns: vec![column] };
        let (mut encoder, mut bytes) = Encoder::new(head).unwrap();
        for (at, value) in (1..).zip(values) {
            bytes.extend(encoder.push(UnixNanos(at * SECOND), &[*value]).unwrap().unwrap_or_default());
        }
        bytes.extend(encoder.finish());
        recording::decode(&bytes).unwrap()
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn it_shows_if_half_of_its_rows_are_beyond_all_others() {
        let fault = (10 * SECOND, 13 * SECOND);
        let with = |during: [f64; 4]| {
            let mut values: Vec<f64> = (0..30).map(|at| f64::from(at % 5)).collect();
            // The row of 11 s is the first whose interval is within the fault.
            values[10..14].copy_from_slice(&during);
            shows(&recorded(&values), fault, &[fault])
        };

        assert!(with([9.0, 0.0, 9.0, 0.0]));
        assert!(with([-1.0, -1.0, 0.0, f64::NAN]));
        assert!(!with([9.0, 0.0, 0.0, 0.0]), "one of four");
        assert!(!with([4.0, 4.0, 4.0, 4.0]), "as much as there is without it");
    }

    #[test]
    fn silence_shows() {
        assert!(shows(&recorded(&[1.0; 9]), (20 * SECOND, 30 * SECOND), &[]));
    }
}
