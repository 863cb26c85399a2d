//! One service's recording on its way to a file.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;

use recording::{Column, Encoder, Head, HeadError, RowError};
use thiserror::Error;
use wire::proto::operators::RowEvent;

/// Where files go, and how large they get.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The folder; it is there.
    pub folder: PathBuf,
    /// Bytes of one file, by a block.
    pub most_bytes: u64,
}

/// What became of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Who.
    pub service: String,
    /// Its file.
    pub path: PathBuf,
    /// Rows in it.
    pub rows: u64,
    /// Values in it, missing ones included.
    pub values: u64,
    /// Columns of the last row.
    pub columns: usize,
    /// Its size.
    pub bytes: u64,
    /// Why it ended, if nobody wanted it to.
    pub note: Option<String>,
}

/// Why a service cannot be recorded any more.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SinkError {
    /// There is one of that name already.
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    /// The disk is full, or the folder is not ours.
    #[error("{} cannot be written", .path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// Columns that cannot be recorded.
    #[error("its columns cannot be recorded")]
    Head(#[from] HeadError),
    /// The agent sent a row that does not fit its columns.
    #[error("the agent sent a row that does not fit")]
    Row(#[from] RowError),
}

impl SinkError {
    /// What can be done.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Exists(_) => "--out DIR, with another folder: a recording is never written over",
            Self::Write { .. } => "is there room, and may you write there? What was written so far can be read",
            Self::Head(_) => "record a part of the services' metrics, or shorter names",
            Self::Row(_) => "is agent and command the same release? `uview --version`",
        }
    }
}

/// Takes rows, writes blocks. The file begins with the first row.
#[derive(Debug)]
pub struct Sink {
    head: Head,
    limits: Limits,
    path: PathBuf,
    open: Option<(File, Encoder)>,
    bytes: u64,
    values: u64,
}

impl Sink {
    /// Nothing is written yet.
    #[must_use]
    pub fn new(service: &str, interval_ns: u64, limits: Limits) -> Self {
        let path = limits.folder.join(format!("{}.uvrec", file_name(service)));
        let head = Head { service: service.to_owned(), interval_ns, columns: Vec::new() };
        Self { head, limits, path, open: None, bytes: 0, values: 0 }
    }

    /// Rows from now on have these columns.
    ///
    /// # Errors
    ///
    /// [`SinkError`] if they cannot be recorded, or written.
    pub fn columns(&mut self, columns: Vec<Column>) -> Result<(), SinkError> {
        self.head.columns = columns;
        let bytes = match &mut self.open {
            Some((_, encoder)) if encoder.head() == &self.head => return Ok(()),
            Some((_, encoder)) => encoder.change(self.head.clone())?,
            None => {
                let (encoder, bytes) = Encoder::new(self.head.clone())?;
                let file = File::create_new(&self.path).map_err(|cause| match cause.kind() {
                    io::ErrorKind::AlreadyExists => SinkError::Exists(self.path.clone()),
                    _ => SinkError::Write { path: self.path.clone(), cause },
                })?;
                self.open = Some((file, encoder));
                bytes
            }
        };
        self.write(&bytes)
    }

    /// Takes a row; false if the file is full.
    ///
    /// # Errors
    ///
    /// [`SinkError`] if it does not fit its columns, or cannot be written.
    pub fn row(&mut self, row: &RowEvent) -> Result<bool, SinkError> {
        let Some((_, encoder)) = &mut self.open else {
            return Err(RowError { found: row.values.len(), expected: 0 }.into());
        };
        encoder.lost(row.lost);
        let block = encoder.push(row.at_unix_ns, &row.values)?;
        self.values += row.values.len() as u64;
        if let Some(block) = block {
            self.write(&block)?;
        }
        Ok(self.bytes < self.limits.most_bytes)
    }

    /// Writes the rows that wait.
    ///
    /// # Errors
    ///
    /// [`SinkError::Write`].
    pub fn flush(&mut self) -> Result<(), SinkError> {
        let block = self.open.as_mut().map(|(_, encoder)| encoder.flush());
        self.write(&block.unwrap_or_default())
    }

    /// Writes the rows that wait, and the end. `note` says why, if nobody wanted it.
    ///
    /// # Errors
    ///
    /// [`SinkError::Write`].
    pub fn end(mut self, note: Option<&str>) -> Result<Recorded, SinkError> {
        let mut rows = 0;
        if let Some((mut file, encoder)) = self.open.take() {
            rows = encoder.rows();
            let block = encoder.finish();
            self.bytes += block.len() as u64;
            let written = file.write_all(&block).and_then(|()| file.sync_all());
            written.map_err(|cause| SinkError::Write { path: self.path.clone(), cause })?;
        }
        Ok(Recorded {
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
        let Some((file, _)) = &mut self.open else { return Ok(()) };
        self.bytes += bytes.len() as u64;
        file.write_all(bytes).map_err(|cause| SinkError::Write { path: self.path.clone(), cause })
    }
}

/// A service's name as that of a file: nothing that leads elsewhere or is hidden.
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
        Sink::new("a/b", 1, Limits { folder: folder.path().to_owned(), most_bytes })
    }

    #[test]
    fn what_was_flushed_is_there_before_the_end_and_everything_after_it() {
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

        assert_eq!((halfway.times_unix_ns.len(), halfway.complete, halfway.lost_rows), (10, false, 1));
        let whole = recording::decode(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!((whole.times_unix_ns.len(), whole.complete), (11, true));
        assert_eq!((recorded.rows, recorded.values, recorded.columns), (11, 21, 1));
        assert_eq!(recorded.bytes, std::fs::metadata(&path).unwrap().len());
    }

    #[test]
    fn a_file_is_never_written_over_and_a_full_one_ends() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = sink(&folder, 100);
        first.columns(columns(&["a"])).unwrap();
        let full = (0..2000).find(|at| !first.row(&row(*at, &[(*at as f64).sqrt()])).unwrap());

        let again = sink(&folder, 100).columns(columns(&["a"])).unwrap_err();

        assert!(full.is_some());
        assert!(matches!(&again, SinkError::Exists(_)) && again.advice().contains("--out"), "{again}");
    }

    #[test]
    fn a_name_is_no_way_out_of_the_folder() {
        assert_eq!(file_name("../etc/passwd"), "_.._etc_passwd");
        assert_eq!(file_name("payment"), "payment");
    }
}
