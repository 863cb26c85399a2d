//! A file of rows, as commands take it: CSV, Parquet or a recording, which is told by its first bytes.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use evaluation::columns::Columns;
use evaluation::recorded;
use evaluation::table::{self, Table};
use nic_agent::fingerprint;
use recording::{Recording, RecordingError};

use crate::failure::Failure;
use crate::output;

/// Larger files are not read.
const MOST_BYTES: u64 = 1 << 30;

/// A file in memory.
#[derive(Clone, Debug)]
pub struct Input {
    /// Its name without the folder; of several files the first one's.
    pub name: String,
    /// Whose rows; the file's name where it does not say.
    pub service: String,
    /// Its rows.
    pub table: Table,
    /// What its metrics are.
    pub columns: Columns,
    /// Seconds between rows, if the file says so.
    pub interval: Option<f64>,
}

/// Reads `path`. `columns` says what the metrics of CSV or Parquet are; a recording says that itself. What is damaged in a recording is told on stderr.
/// Columns are named in models as the NIC agent names them, so that a model of a file with the same titles starts a live LMAP.
///
/// # Errors
///
/// [`Failure`] to do `what`, with the place of the mistake.
pub fn open(path: &Path, columns: Option<&Path>, what: &str) -> Result<Input, Failure> {
    let name = path.file_name().map_or_else(|| path.to_string_lossy(), |name| name.to_string_lossy()).into_owned();
    if let Some(recording) = open_recording(path, what)? {
        if columns.is_some() {
            let failure =
                Failure::to(what).because(format!("{} is a recording, which knows its metrics", path.display()));
            return Err(failure.advice("leave --columns out"));
        }
        tell_of_damage(&name, &recording);
        let rows = recorded::ready(recording, fingerprint).ok_or_else(|| {
            let failure = Failure::to(what).because(format!("{} holds no row", path.display()));
            failure.advice("`uview record` for a longer time: a block is written after 512 rows or 30 s")
        })?;
        return Ok(Input {
            name,
            service: rows.service,
            table: rows.table,
            columns: rows.columns,
            interval: Some(rows.interval),
        });
    }
    let table = table::open(path).map_err(|error| Failure::to(what).caused_by(&error).advice(error.advice()))?;
    let columns = match columns {
        None => Columns::gauges(&table.metrics, fingerprint),
        Some(path) => Columns::open(path, &table.metrics, fingerprint).map_err(|error| {
            let failure = Failure::to("tell what the metrics are").caused_by(&error);
            failure.advice("lines like `http.requests,counter,service`, or leave --columns out: all are gauges then")
        })?,
    };
    let service = name.split('.').next().unwrap_or_default().to_owned();
    Ok(Input { name, service, table, columns, interval: None })
}

/// Reads several files of one service as one, in the order of their times.
///
/// # Errors
///
/// [`Failure`] to do `what`, if one cannot be read, or they do not go together.
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
        let cause = format!("{} and {} do not come with the same time between rows", first.name, other.name);
        return Err(Failure::to(what)
            .because(cause)
            .advice("recordings of one service and interval, or CSV and Parquet files only"));
    }
    let columns: Vec<Columns> = inputs.iter().map(|input| input.columns.clone()).collect();
    let metrics: Vec<Vec<String>> = inputs.iter().map(|input| input.table.metrics.clone()).collect();
    let tables = inputs.into_iter().map(|input| input.table).collect();
    let table = Table::join(tables).ok_or_else(|| {
        let failure =
            Failure::to(what).because("one of several files has no column `time`: nobody knows what follows what");
        failure.advice("a column `time` in seconds in each of them, or one file at a time")
    })?;
    let columns = join(&table.metrics, &metrics, &columns);
    Ok(Input { table, columns, ..first })
}

/// What is known about `names`, each from the first file that has it.
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
/// [`Failure`] to do `what`, if it cannot be read, or is a recording that cannot be used.
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
    let read = file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(refused)?;
    if read as u64 >= MOST_BYTES {
        let failure = Failure::to(what).because(format!("{} has more than {MOST_BYTES} bytes", path.display()));
        return Err(failure.advice("`uview record --every N` for longer times"));
    }
    recording::decode(&bytes).map(Some).map_err(|error| {
        let advice = match error {
            RecordingError::Version { .. } | RecordingError::Kind { .. } => "the release that it was recorded with",
            RecordingError::NoHead { .. } => "record again: nothing of it can be told apart without its beginning",
            RecordingError::TooLarge => "`uview record --every N`, or shorter recordings",
            _ => "is this the file that you meant, and was it copied whole?",
        };
        Failure::to(what).because(format!("{} cannot be used", path.display())).caused_by(&error).advice(advice)
    })
}

/// Says what is lost. Nobody should take half a recording for a whole one.
pub fn tell_of_damage(name: &str, recording: &Recording) {
    let rows = recording.times_unix_ns.len();
    for damage in &recording.damage {
        output::tell(&format!("uview: {name}: {damage}; {rows} rows are left"));
    }
    if recording.damage.is_empty() && !recording.complete {
        output::tell(&format!("uview: {name} has no end: whoever recorded was stopped; {rows} rows are there"));
    }
    if recording.lost_rows > 0 {
        output::tell(&format!("uview: {name}: {} rows did not arrive when it was recorded", recording.lost_rows));
    }
}
