//! Writes the recording of one service to a file, or to whoever reads it.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;

use recording::{Column, Encoder, Head, HeadError, RowError};
use thiserror::Error;
use wire::proto::operators::RowEvent;
use wire::time::{Nanos, UnixNanos};

use super::pipe::Pipe;

/// What messages call the standard output in place of a file.
const STDOUT: &str = "the standard output";

/// Where recordings go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Files of this folder, which has to exist.
    Folder(PathBuf),
    /// The standard output, which takes one recording.
    Stdout,
}

/// Where a recording goes, and its size limit.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Where the recording goes.
    pub destination: Destination,
    /// Bytes of one recording; the last block may exceed it.
    pub most_bytes: u64,
}

/// The result of recording one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingSummary {
    /// The name of the service.
    pub service: String,
    /// The path of the file; words for the standard output.
    pub path: PathBuf,
    /// Rows in the file.
    pub rows: u64,
    /// Values in the file, missing ones included.
    pub values: u64,
    /// Columns of the last row.
    pub columns: usize,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Why the recording ended early; `None` if it ended as requested.
    pub note: Option<String>,
}

/// Why the recording of a service failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The file exists already.
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    /// The file cannot be written, for example because the disk is full.
    #[error("{} cannot be written", .path.display())]
    Write {
        /// The path of the file.
        path: PathBuf,
        /// What the operating system reported.
        #[source]
        cause: io::Error,
    },
    /// There are too many columns, or their titles are too long.
    #[error("its columns cannot be recorded")]
    Head(#[from] HeadError),
    /// The agent sent a row that does not fit its columns.
    #[error("the agent sent a row that does not fit")]
    Row(#[from] RowError),
}

impl SinkError {
    /// What the user can do.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Exists(_) => "--out DIR with another folder: recordings are never overwritten",
            Self::Write { .. } => "is the disk full, and can you write there? The rows written so far can be read",
            Self::Head(_) => "record fewer metrics, or shorten their names",
            Self::Row(_) => "are agent and command of the same release? `uview --version`",
        }
    }
}

/// What blocks are written to.
#[derive(Debug)]
enum Output {
    File(File),
    Pipe(Pipe),
}

impl Output {
    fn write(&mut self, block: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.write_all(block),
            Self::Pipe(pipe) => pipe.write_all(block),
        }
    }

    /// Waits until a file is on the disk.
    fn sync(&self) -> io::Result<()> {
        match self {
            Self::File(file) => file.sync_all(),
            Self::Pipe(_) => Ok(()),
        }
    }
}

/// Takes rows and writes blocks. A file is created with the first row.
#[derive(Debug)]
pub struct Sink {
    head: Head,
    limits: Limits,
    path: PathBuf,
    open: Option<(Output, Encoder)>,
    bytes: u64,
    values: u64,
}

impl Sink {
    /// A sink for a service. It creates no file yet.
    #[must_use]
    pub fn new(service: &str, interval: Nanos, limits: Limits) -> Self {
        let path = match &limits.destination {
            Destination::Folder(folder) => folder.join(format!("{}.uvrec", file_name(service))),
            Destination::Stdout => PathBuf::from(STDOUT),
        };
        let head = Head { service: service.to_owned(), interval, columns: Vec::new() };
        Self { head, limits, path, open: None, bytes: 0, values: 0 }
    }

    /// Sets the columns of the rows that follow.
    ///
    /// # Errors
    ///
    /// [`SinkError`] if the columns cannot be recorded, or the file cannot be written.
    pub fn columns(&mut self, columns: Vec<Column>) -> Result<(), SinkError> {
        self.head.columns = columns;
        let bytes = match &mut self.open {
            Some((_, encoder)) if encoder.head() == &self.head => return Ok(()),
            Some((_, encoder)) => encoder.change(self.head.clone())?,
            None => {
                let (encoder, bytes) = Encoder::new(self.head.clone())?;
                self.open = Some((self.create()?, encoder));
                bytes
            }
        };
        self.write(&bytes)
    }

    /// Creates the file, or takes the standard output.
    fn create(&self) -> Result<Output, SinkError> {
        let created = match self.limits.destination {
            Destination::Folder(_) => File::create_new(&self.path).map(Output::File),
            Destination::Stdout => Pipe::stdout().map(Output::Pipe),
        };
        created.map_err(|cause| match cause.kind() {
            io::ErrorKind::AlreadyExists => SinkError::Exists(self.path.clone()),
            _ => SinkError::Write { path: self.path.clone(), cause },
        })
    }

    /// Takes a row. Returns false if the file has reached its size limit.
    ///
    /// # Errors
    ///
    /// [`SinkError`] if the row does not fit its columns, or the file cannot be written.
    pub fn row(&mut self, row: &RowEvent) -> Result<bool, SinkError> {
        let Some((_, encoder)) = &mut self.open else {
            return Err(RowError { found: row.values.len(), expected: 0 }.into());
        };
        encoder.lost(row.lost);
        let block = encoder.push(UnixNanos(row.at_unix_ns), &row.values)?;
        self.values += row.values.len() as u64;
        if let Some(block) = block {
            self.write(&block)?;
        }
        Ok(self.bytes < self.limits.most_bytes)
    }

    /// Writes the buffered rows.
    ///
    /// # Errors
    ///
    /// [`SinkError::Write`] if the file cannot be written.
    pub fn flush(&mut self) -> Result<(), SinkError> {
        let block = self.open.as_mut().map(|(_, encoder)| encoder.flush());
        self.write(&block.unwrap_or_default())
    }

    /// Writes the buffered rows and the end of the recording. `note` is the reason if it ends early.
    ///
    /// # Errors
    ///
    /// [`SinkError::Write`] if the file cannot be written.
    pub fn end(mut self, note: Option<&str>) -> Result<RecordingSummary, SinkError> {
        let mut rows = 0;
        if let Some((mut output, encoder)) = self.open.take() {
            rows = encoder.rows();
            let block = encoder.finish();
            self.bytes += block.len() as u64;
            let written = output.write(&block).and_then(|()| output.sync());
            written.map_err(|cause| SinkError::Write { path: self.path.clone(), cause })?;
        }
        Ok(RecordingSummary {
            columns: self.head.columns.len(),
            service: self.head.service,
            path: self.path,
            rows,
            values: self.values,
            bytes: self.bytes,
            note: note.map(str::to_owned),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        let Some((output, _)) = &mut self.open else { return Ok(()) };
        self.bytes += bytes.len() as u64;
        output.write(bytes).map_err(|cause| SinkError::Write { path: self.path.clone(), cause })
    }
}

/// The file name for a service: without path separators, and not hidden.
fn file_name(service: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = service.chars().map(safe).take(200).collect();
    if name.is_empty() || name.starts_with('.') { format!("_{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use recording::ColumnKind;

    use super::*;

    fn columns(titles: &[&str]) -> Vec<Column> {
        let column = |title: &&str| Column {
            title: (*title).to_owned(),
            unit: String::new(),
            group: String::new(),
            kind: ColumnKind::Gauge,
        };
        titles.iter().map(column).collect()
    }

    fn row(at: u64, values: &[f64]) -> RowEvent {
        RowEvent { at_unix_ns: at, values: values.to_vec(), lost: u64::from(at == 5), ..RowEvent::default() }
    }

    fn sink(folder: &tempfile::TempDir, most_bytes: u64) -> Sink {
        let destination = Destination::Folder(folder.path().to_owned());
        Sink::new("a/b", Nanos(1), Limits { destination, most_bytes })
    }

    #[test]
    fn flushed_rows_can_be_read_before_the_end_and_all_rows_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = sink(&folder, 1 << 20);
        sink.columns(columns(&["a", "b"])).unwrap();
        for at in 0..10 {
            assert!(sink.row(&row(at, &[at as f64, 1.0])).unwrap());
        }
        sink.flush().unwrap();
        let path = folder.path().join("a_b.uvrec");
        let halfway = recording::decode(&std::fs::read(&path).unwrap()).unwrap();
        sink.columns(columns(&["b"])).unwrap();
        assert!(sink.row(&row(10, &[2.0])).unwrap());

        let recorded = sink.end(None).unwrap();

        assert_eq!((halfway.times.len(), halfway.complete, halfway.lost_rows), (10, false, 1));
        let whole = recording::decode(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!((whole.times.len(), whole.complete), (11, true));
        assert_eq!((recorded.rows, recorded.values, recorded.columns), (11, 21, 1));
        assert_eq!(recorded.bytes, std::fs::metadata(&path).unwrap().len());
    }

    #[test]
    fn a_file_is_never_overwritten_and_a_full_one_ends() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = sink(&folder, 100);
        first.columns(columns(&["a"])).unwrap();
        let full = (0..2000).find(|at| !first.row(&row(*at, &[(*at as f64).sqrt()])).unwrap());

        let again = sink(&folder, 100).columns(columns(&["a"])).unwrap_err();

        assert!(full.is_some());
        assert!(matches!(&again, SinkError::Exists(_)) && again.advice().contains("--out"), "{again}");
    }

    #[test]
    fn a_service_name_cannot_leave_the_folder() {
        assert_eq!(file_name("../etc/passwd"), "_.._etc_passwd");
        assert_eq!(file_name("payment"), "payment");
    }
}
