//! Since when a column stands out.

use crate::support::{Service, detector, run};
use lmap::Settings;

/// After an hour of ordinary rows at 1 s three of many columns move: what is named began with them, and not with some
/// outlier long before. A row of many columns scores nearly the same as any other, so that a fixed share of γ would
/// call every one unusual.
#[test]
fn a_beginning_is_of_this_fault_however_many_columns_there_are() {
    for columns in [8, 40, 141, 300] {
        let mut service = Service::new(columns, columns as u64);
        let mut detector = detector(columns, Settings::default());
        for _ in 0..3_600 {
            let _ = run(&mut detector, &service.row());
        }

        let mut named = Vec::new();
        for at in 0..12_u32 {
            let mut row = service.row();
            row[..3].iter_mut().for_each(|value| *value += 40.0);
            let _ = run(&mut detector, &row);
            detector.explain(3, &mut named);
            let mut found: Vec<_> = named.iter().map(|reason| reason.column).collect();
            found.sort_unstable();
            assert_eq!(found, [0, 1, 2], "{columns} columns, row {at} of the fault");
            // Up to five ordinary rows belong to a run, and so may an outlier in the rows before.
            let longest = named.iter().map(|reason| reason.since_rows).max();
            assert!(longest <= Some(at + 30), "{columns} columns, row {at} of the fault: {named:?}");
            assert!(named.iter().any(|reason| reason.since_rows == at), "{columns} columns, row {at}: {named:?}");
        }
    }
}
