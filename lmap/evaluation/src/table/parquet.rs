//! Reads a table from Parquet, as written by DuckDB, pandas and Arrow's tools. Columns of numbers only; nested columns
//! are rejected by name.

use std::fs::File;
use std::panic::{self, AssertUnwindSafe};

use parquet::basic::{LogicalType, TimeUnit};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::types::Type;

use super::{Label, MAX_BYTES, Role, Table, TableError, roles, shortened};

/// pandas writes its numbering of rows as a column.
const PANDAS_INDEX: &str = "__index_level_";
/// Maximum number of values.
const MAX_VALUES: u64 = MAX_BYTES / 8;

/// Reads a file.
///
/// # Errors
///
/// [`TableError`] with row and column where it has one.
pub(super) fn read(file: File) -> Result<Table, TableError> {
    // A reader of damaged files is only as careful as the crate that it comes from.
    panic::catch_unwind(AssertUnwindSafe(|| read_whole(file)))
        .unwrap_or_else(|_| Err(TableError::Parquet(ParquetError::General("it is damaged".to_owned()))))
}

fn read_whole(file: File) -> Result<Table, TableError> {
    let reader = SerializedFileReader::new(file)?;
    let metadata = reader.metadata().file_metadata();
    let fields = metadata.schema_descr().root_schema().get_fields();
    let is_metric_or_known = |field: &&std::sync::Arc<Type>| !field.name().starts_with(PANDAS_INDEX);
    let kept: Vec<&Type> = fields.iter().filter(is_metric_or_known).map(AsRef::as_ref).collect();
    if let Some(nested) = kept.iter().find(|field| !field.is_primitive()) {
        return Err(TableError::Nested(shortened(nested.name())));
    }
    let names: Vec<String> = kept.iter().map(|field| field.name().to_owned()).collect();
    let roles = roles(&names)?;
    let rows = u64::try_from(metadata.num_rows()).unwrap_or(0);
    if rows.saturating_mul(names.len() as u64) > MAX_VALUES {
        return Err(TableError::TooLarge);
    }
    let units: Vec<f64> = kept.iter().map(|field| per_second(field)).collect();
    let mut table = Table::empty(&names, &roles);
    for (at, row) in reader.get_row_iter(None)?.enumerate() {
        take_row(&mut table, &row?, &roles, &units).map_err(|(column, cell, expected)| TableError::Value {
            row: at + 1,
            name: names[column].clone(),
            cell,
            expected,
        })?;
    }
    if table.values.is_empty() { Err(TableError::NoRows) } else { Ok(table) }
}

/// Takes a row, or says of which of its columns what cannot be taken, and what it should have been.
fn take_row(table: &mut Table, row: &Row, roles: &[Role], units: &[f64]) -> Result<(), (usize, String, &'static str)> {
    let cells = row.get_column_iter().filter(|(name, _)| !name.starts_with(PANDAS_INDEX));
    for (column, ((_, field), (role, unit))) in cells.zip(roles.iter().zip(units)).enumerate() {
        take_cell(table, field, *role, *unit).map_err(|expected| (column, shortened(&field.to_string()), expected))?;
    }
    Ok(())
}

fn take_cell(table: &mut Table, field: &Field, role: Role, unit: f64) -> Result<(), &'static str> {
    match (role, field) {
        (Role::Label | Role::Fault, Field::Str(text)) => table.take(text.trim(), role),
        (_, Field::Null) => table.take("", role),
        (Role::Metric, _) => {
            let value = number(field).ok_or("a number")?;
            table.not_finite += usize::from(!value.is_finite());
            table.values.push(if value.is_finite() { value } else { f64::NAN });
            Ok(())
        }
        (Role::Time, _) => {
            let seconds = number(field).map(|value| value / unit).filter(|seconds| seconds.is_finite());
            table.times.get_or_insert_default().push(seconds.ok_or("a time in seconds, or a timestamp")?);
            Ok(())
        }
        (Role::Label, _) => {
            let label = match number(field) {
                Some(0.0) => Label::Normal,
                Some(1.0) => Label::Anomalous,
                Some(2.0) => Label::Ignored,
                _ => return Err("a label (0 normal, 1 anomalous, 2 does not count)"),
            };
            table.labels.get_or_insert_default().push(label);
            Ok(())
        }
        (Role::Fault, _) => Err("a fault's name"),
    }
}

/// How many of a column's steps are a second: 1 unless it holds timestamps.
fn per_second(field: &Type) -> f64 {
    match field.get_basic_info().logical_type_ref() {
        Some(LogicalType::Timestamp(time)) => match time.unit {
            TimeUnit::MILLIS => 1e3,
            TimeUnit::MICROS => 1e6,
            TimeUnit::NANOS => 1e9,
        },
        _ => 1.0,
    }
}

/// A field's value; of a timestamp as it is counted.
#[expect(clippy::cast_precision_loss, reason = "a metric beyond 2⁵³ loses its last digits as in any other file")]
fn number(field: &Field) -> Option<f64> {
    Some(match field {
        Field::Bool(value) => f64::from(u8::from(*value)),
        Field::Byte(value) => f64::from(*value),
        Field::Short(value) => f64::from(*value),
        Field::Int(value) => f64::from(*value),
        Field::Long(value) | Field::TimestampMillis(value) | Field::TimestampMicros(value) => *value as f64,
        Field::UByte(value) => f64::from(*value),
        Field::UShort(value) => f64::from(*value),
        Field::UInt(value) => f64::from(*value),
        Field::ULong(value) => *value as f64,
        Field::Float16(value) => f64::from(*value),
        Field::Float(value) => f64::from(*value),
        Field::Double(value) => *value,
        Field::Decimal(_) => field.to_string().parse().ok()?,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;

    use parquet::basic::Compression;
    use parquet::column::writer::ColumnWriter;
    use parquet::data_type::ByteArray;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;
    use crate::table;

    /// A file of three rows with every kind of column that the schema names.
    fn written(schema: &str, compression: Compression) -> tempfile::NamedTempFile {
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = SerializedFileWriter::new(file.reopen().unwrap(), schema, properties).unwrap();
        let mut rows = writer.next_row_group().unwrap();
        while let Some(mut column) = rows.next_column().unwrap() {
            // The second value of an optional column is missing.
            let (here, longs) = (Some(&[1_i16, 0, 1][..]), [1_500_000_000_i64, 2_500_000_000, 3_500_000_000]);
            match column.untyped() {
                ColumnWriter::Int64ColumnWriter(to) => to.write_batch(&longs, None, None),
                ColumnWriter::Int32ColumnWriter(to) => to.write_batch(&[0, 1, 2], None, None),
                ColumnWriter::BoolColumnWriter(to) => to.write_batch(&[true, false, true], None, None),
                ColumnWriter::DoubleColumnWriter(to) => to.write_batch(&[0.5, f64::INFINITY], here, None),
                ColumnWriter::ByteArrayColumnWriter(to) => {
                    to.write_batch(&["", "leak", "x"].map(ByteArray::from), None, None)
                }
                _ => panic!("no test writes that"),
            }
            .unwrap();
            column.close().unwrap();
        }
        rows.close().unwrap();
        writer.close().unwrap();
        file
    }

    const ALL: &str = "message m {
        required int64 time (TIMESTAMP(NANOS,true));
        optional double cpu;
        required boolean ready;
        required int32 label;
        required binary fault (UTF8);
        required int64 __index_level_0__;
    }";

    #[test]
    fn metrics_times_labels_and_faults_are_read_as_from_text() {
        for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::LZ4_RAW] {
            let table = table::open(written(ALL, compression).path()).unwrap();

            assert_eq!(table.metrics, ["cpu", "ready"]);
            assert_eq!(table.times.as_deref(), Some(&[1.5, 2.5, 3.5][..]));
            assert_eq!(table.labels.as_deref(), Some(&[Label::Normal, Label::Anomalous, Label::Ignored][..]));
            assert_eq!(table.faults.as_ref().map(|faults| faults[1].as_str()), Some("leak"));
            let rows: Vec<&[f64]> = table.rows().collect();
            assert_eq!((rows[0], rows[1][1], rows[2][1]), (&[0.5, 1.0][..], 0.0, 1.0));
            assert!(rows[1][0].is_nan() && rows[2][0].is_nan());
            assert_eq!((table.missing, table.not_finite), (1, 1));
        }
    }

    #[test]
    fn times_are_seconds_unless_they_are_timestamps() {
        let schema = "message m { required int64 time; required boolean a; }";

        let table = table::open(written(schema, Compression::UNCOMPRESSED).path()).unwrap();

        assert_eq!(table.times.unwrap()[0], 1.5e9);
    }

    #[test]
    fn what_is_no_number_is_named_by_row_and_column() {
        let text = "message m { required binary host (UTF8); required boolean a; }";
        let nested = "message m { required boolean a; required group tags { required int32 b; } }";
        let refused = |schema| table::open(written(schema, Compression::UNCOMPRESSED).path()).unwrap_err().to_string();

        assert_eq!(refused(text), "row 1, column `host`: `\\\"\\\"` is not a number");
        assert_eq!(refused(nested), "column `tags` holds more than one value in a row");
    }

    #[test]
    fn damaged_files_are_errors_wherever_they_are_damaged() {
        let whole = std::fs::read(written(ALL, Compression::SNAPPY).path()).unwrap();
        for at in 4..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0xA5;
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&bytes).unwrap();
            // It may as well be another value.
            let _ = table::open(file.path());
        }
        for kept in [4, 5, whole.len() / 2, whole.len() - 1] {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&whole[..kept]).unwrap();
            let error = table::open(file.path()).unwrap_err();
            assert!(matches!(error, TableError::Parquet(_)) && !error.advice().is_empty(), "{error}");
        }
    }
}
