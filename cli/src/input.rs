//! Reads rows: a file of CSV, Parquet or a recording, recognized by its first bytes; or a recording in memory.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use evaluation::columns::Columns;
use evaluation::recording_table::{self, Conventions};
use evaluation::table::{self, Table};
use nic_agent::{fingerprint, saturation};
use recording::{Recording, RecordingError};
use wire::metric::{is_estimated, is_load, is_pool};
use wire::time::Nanos;

use crate::failure::Failure;
use crate::output;

/// What the NIC agent makes of names of columns.
const CONVENTIONS: Conventions = Conventions {
    fingerprint,
    saturation: |name, unit, interval_ns| saturation(name, unit, Nanos(interval_ns), 1),
    pool: is_pool,
    estimated: is_estimated,
    load: is_load,
};
/// Larger files are refused.
const MAX_BYTES: u64 = 1 << 30;

/// The rows of a file, in memory.
#[derive(Clone, Debug)]
pub struct Input {
    /// The file name without its folder; of several files, the first one.
    pub name: String,
    /// The service of the rows; by default the file name up to the first dot.
    pub service: String,
    /// The rows of the file.
    pub table: Table,
    /// Kind and group of each metric.
    pub columns: Columns,
    /// Seconds between rows, if the file has that information.
    pub interval: Option<f64>,
}

/// Reads `path`. The file `columns` has kind and group of the metrics of CSV or Parquet; a recording has its own.
/// Damage in a recording is reported on stderr. Columns get the same fingerprints as in the NIC agent, so that a model
/// trained on a file with the same titles can start a live LMAP.
///
/// # Errors
///
/// [`Failure`] to do `what`, with line and column of the mistake.
pub fn open(path: &Path, columns: Option<&Path>, what: &str) -> Result<Input, Failure> {
    let name = path.file_name().map_or_else(|| path.to_string_lossy(), |name| name.to_string_lossy()).into_owned();
    if let Some(recording) = open_recording(path, what)? {
        if columns.is_some() {
            let failure = Failure::to(what)
                .because(format!("{} is a recording, which has the kinds of its metrics", path.display()));
            return Err(failure.advice("leave --columns out"));
        }
        return rows_of(recording, name, &path.display().to_string(), what);
    }
    let table = table::open(path).map_err(|error| Failure::to(what).caused_by(&error).advice(error.advice()))?;
    let columns = match columns {
        None => Columns::gauges(&table.metrics, fingerprint),
        Some(path) => Columns::open(path, &table.metrics, fingerprint).map_err(|error| {
            let failure = Failure::to("read the kinds of the metrics").caused_by(&error);
            failure.advice("lines like `http.requests,counter,service`; without --columns all metrics are gauges")
        })?,
    };
    let service = name.split('.').next().unwrap_or_default().to_owned();
    Ok(Input { name, service, table, columns, interval: None })
}

/// The rows of a recording, which messages call `name`. Damage is reported on stderr.
///
/// # Errors
///
/// [`Failure`] to do `what`, if it holds no row.
pub fn of_recording(recording: Recording, name: &str, what: &str) -> Result<Input, Failure> {
    rows_of(recording, name.to_owned(), name, what)
}

/// The rows of a recording, which is at `place`, by its short `name`.
fn rows_of(recording: Recording, name: String, place: &str, what: &str) -> Result<Input, Failure> {
    report_damage(&name, &recording);
    let rows = recording_table::recording_table(recording, CONVENTIONS).ok_or_else(|| {
        let failure = Failure::to(what).because(format!("{place} holds no row"));
        failure.advice("`uview record` for a longer time: a block is written after 512 rows or 30 s")
    })?;
    Ok(Input { name, service: rows.service, table: rows.table, columns: rows.columns, interval: Some(rows.interval) })
}

/// Reads several files of one service and joins them in the order of their times.
///
/// # Errors
///
/// [`Failure`] to do `what`, if a file cannot be read, or the files do not fit together.
pub fn open_all(paths: &[PathBuf], columns: Option<&Path>, what: &str) -> Result<Input, Failure> {
    let mut inputs = paths.iter().map(|path| open(path, columns, what)).collect::<Result<Vec<_>, _>>()?;
    if inputs.len() == 1
        && let Some(only) = inputs.pop()
    {
        return Ok(only);
    }
    let Some(first) = inputs.first().cloned() else {
        return Err(Failure::to(what).because("no file is named"));
    };
    if let Some(other) = inputs.iter().find(|other| other.interval != first.interval) {
        let cause = format!("{} and {} do not have the same time between rows", first.name, other.name);
        return Err(Failure::to(what)
            .because(cause)
            .advice("recordings of one service and interval, or CSV and Parquet files only"));
    }
    let columns: Vec<Columns> = inputs.iter().map(|input| input.columns.clone()).collect();
    let metrics: Vec<Vec<String>> = inputs.iter().map(|input| input.table.metrics.clone()).collect();
    let tables = inputs.into_iter().map(|input| input.table).collect();
    let table = Table::join(tables).ok_or_else(|| {
        let failure =
            Failure::to(what).because("one of several files has no column `time`, so that their order is unknown");
        failure.advice("a column `time` in seconds in each of them, or one file at a time")
    })?;
    let columns = join(&table.metrics, &metrics, &columns);
    Ok(Input { table, columns, ..first })
}

/// Kind and group of each of `names`, from the first file that has it.
fn join(names: &[String], metrics: &[Vec<String>], columns: &[Columns]) -> Columns {
    let mut out = Columns { columns: Vec::new(), counters: Vec::new(), groups: Vec::new() };
    for (place, name) in names.iter().enumerate() {
        let found = metrics.iter().zip(columns).find_map(|(metrics, columns)| {
            let at = metrics.iter().position(|metric| metric == name)?;
            Some((columns, at))
        });
        let Some((known, at)) = found else { continue };
        let mut column = known.columns[at];
        let group = known.groups.get(usize::from(column.group)).cloned().unwrap_or_default();
        column.group = out.groups.iter().position(|other| *other == group).unwrap_or_else(|| {
            out.groups.push(group);
            out.groups.len() - 1
        }) as u16;
        out.columns.push(column);
        if known.counters.binary_search(&at).is_ok() {
            out.counters.push(place);
        }
    }
    out
}

/// Reads a recording; `None` if the file is something else.
///
/// # Errors
///
/// [`Failure`] to do `what`, if the file cannot be read, or is a recording that cannot be decoded.
pub fn open_recording(path: &Path, what: &str) -> Result<Option<Recording>, Failure> {
    let refused = |error: std::io::Error| {
        Failure::to(what)
            .because(format!("{} cannot be opened", path.display()))
            .caused_by(&error)
            .advice("is the path right, and may you read it?")
    };
    let mut file = File::open(path).map_err(refused)?;
    let mut bytes = Vec::new();
    file.by_ref().take(8).read_to_end(&mut bytes).map_err(refused)?;
    if !recording::is_recording(&bytes) {
        return Ok(None);
    }
    let read = file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(refused)?;
    if read as u64 >= MAX_BYTES {
        let failure = Failure::to(what).because(format!("{} has more than {MAX_BYTES} bytes", path.display()));
        return Err(failure.advice("`uview record --every N` for longer times"));
    }
    decode(&bytes, &path.display().to_string(), what).map(Some)
}

/// Decodes a recording, which is at `place`.
///
/// # Errors
///
/// [`Failure`] to do `what`, if the bytes are no recording, or nothing of it can be read.
pub fn decode(bytes: &[u8], place: &str, what: &str) -> Result<Recording, Failure> {
    recording::decode(bytes).map_err(|error| {
        let advice = match error {
            RecordingError::Version { .. } | RecordingError::Kind { .. } => "use the release that recorded it",
            RecordingError::NoHead { .. } => "record again: without its beginning the rest cannot be decoded",
            RecordingError::TooLarge => "`uview record --every N`, or shorter recordings",
            _ => "is this the right file, and was it copied completely?",
        };
        Failure::to(what).because(format!("{place} cannot be used")).caused_by(&error).advice(advice)
    })
}

/// Reports on stderr what is missing from a recording: damaged blocks, a missing end, lost rows.
pub fn report_damage(name: &str, recording: &Recording) {
    let rows = recording.times.len();
    for damage in &recording.damage {
        output::print_stderr(&format!("uview: {name}: {damage}; {rows} rows are left"));
    }
    if recording.damage.is_empty() && !recording.complete {
        output::print_stderr(&format!("uview: {name} has no end, the recorder was interrupted; it has {rows} rows"));
    }
    if recording.lost_rows > 0 {
        output::print_stderr(&format!("uview: {name}: {} rows were lost while recording", recording.lost_rows));
    }
}
