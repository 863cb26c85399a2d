use std::io::Write as _;

use super::*;

#[track_caller]
fn refused(text: &str) -> String {
    read(text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn metrics_are_what_is_not_time_label_or_fault() {
    let table = read("time,cpu,label,mem,fault\n1,0.5,0,3,\n2,,1,4,leak\n3,NaN,2,inf,\n".as_bytes()).unwrap();

    assert_eq!(table.metrics, ["cpu", "mem"]);
    assert_eq!(table.times.as_deref(), Some(&[1.0, 2.0, 3.0][..]));
    assert_eq!(table.labels.as_deref(), Some(&[Label::Normal, Label::Anomalous, Label::Ignored][..]));
    assert_eq!(table.faults.as_ref().map(|faults| faults[1].as_str()), Some("leak"));
    let rows: Vec<&[f64]> = table.rows().collect();
    assert_eq!(rows[0], [0.5, 3.0]);
    assert!(rows[1][0].is_nan() && rows[2].iter().all(|value| value.is_nan()));
    assert_eq!((table.missing, table.not_finite), (1, 2));
}

#[test]
fn a_bad_cell_is_named_by_line_column_and_name() {
    assert_eq!(refused("a,b\n1,2\n\n3,x y\n"), "line 4, column 2 (`b`): `x y` is not a number");
    assert_eq!(refused("a,b\r\n1,2\r\n\r\n3,x\r\n"), "line 4, column 2 (`b`): `x` is not a number");
    assert_eq!(refused("time,b\nnow,2\n"), "line 2, column 1 (`time`): `now` is not a time in seconds");
    assert!(refused("b,label\n1,7\n").starts_with("line 2, column 2 (`label`): `7` is not a label"));
}

#[test]
fn a_ragged_line_is_named_with_both_lengths() {
    assert_eq!(refused("a,b\n1,2\n1\n"), "line 3 has 1 cells, the first line has 2");
    assert_eq!(refused("a,b\n1,2,3\n"), "line 2 has 3 cells, the first line has 2");
}

#[test]
fn a_file_without_names_metrics_or_rows_is_refused() {
    assert!(refused("").contains("empty"));
    assert!(refused("1,2,3\n4,5,6\n").contains("all its cells are numbers: 1,2,3"));
    assert!(refused("a,,c\n").contains("column 2 has no name"));
    assert!(refused("a,b,a\n").contains("columns 1 and 3 are both called `a`"));
    assert!(refused("time,label,fault\n1,0,\n").contains("no column is a metric"));
    assert!(refused("a,b\n").contains("no rows after the header"));
    assert!(refused("a;b\n1;2\n").contains("`;`"));
}

#[test]
fn a_byte_order_mark_and_carriage_returns_do_no_harm() {
    let table = read("\u{feff}time,a\r\n1,2\r\n".as_bytes()).unwrap();

    assert_eq!((table.metrics.len(), table.times.is_some()), (1, true));
}

#[test]
fn bytes_that_are_no_text_are_an_error_with_a_line() {
    let error = read(&b"a,b\n1,2\n\xff,3\n"[..]).unwrap_err();

    assert_eq!(error.to_string(), "line 3 is not text in UTF-8");
}

#[test]
fn control_characters_of_a_file_do_not_reach_the_terminal() {
    let text = refused(&format!("a\n\"\u{1b}[31m{}\"\n", "x".repeat(1000)));

    assert!(!text.contains('\u{1b}') && text.len() < 200, "{text:?}");
}

#[test]
fn gzip_is_recognised_by_its_bytes_and_a_cut_archive_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.csv");
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(b"a,b\n1,2\n").unwrap();
    let bytes = encoder.finish().unwrap();

    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(open(&path).unwrap().rows().len(), 1);
    std::fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
    assert!(matches!(open(&path), Err(TableError::Read(_))));
    assert!(matches!(open(&directory.path().join("nothing")), Err(TableError::Open { .. })));
}
