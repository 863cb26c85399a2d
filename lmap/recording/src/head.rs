//! The head of a recording: service, interval, columns.

use thiserror::Error;
use wire::time::Nanos;

use crate::bytes::{FormatError, Reader, put_number, put_text};

/// Maximum number of columns.
pub(crate) const MAX_COLUMNS: usize = 65_536;
/// Maximum length of a name, in bytes.
const MAX_TEXT: usize = 4096;
/// Maximum length of all names together, so that they fit into a block.
const MAX_TEXTS: usize = 16 << 20;

/// The kind of value in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ColumnKind {
    /// The increment since the row before.
    Increment = 0,
    /// A state, which may drift or latch.
    Gauge = 1,
    /// A statistic of an interval, such as a mean or a percentile: not a state that could drift.
    Statistic = 2,
}

impl ColumnKind {
    fn of(code: u8) -> Option<Self> {
        [Self::Increment, Self::Gauge, Self::Statistic].into_iter().find(|kind| *kind as u8 == code)
    }
}

/// One column of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Metric, statistic and labels. A model identifies the column by it.
    pub title: String,
    /// Unit in UCUM; may be empty.
    pub unit: String,
    /// The group that explanations count it under: service, cpu, memory, io, network; may be empty.
    pub group: String,
    /// The kind of value.
    pub kind: ColumnKind,
}

/// Describes the rows that follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The name of the service.
    pub service: String,
    /// Time between two rows, at least 1 ns.
    pub interval: Nanos,
    /// The columns of a row; each title once.
    pub columns: Vec<Column>,
}

/// Why a head cannot be recorded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeadError {
    /// No columns, or too many.
    #[error("{0} columns: 1 to {MAX_COLUMNS} can be recorded")]
    Columns(usize),
    /// Two columns have the same title.
    #[error("two columns are called `{0}`")]
    Twice(String),
    /// A name is too long.
    #[error("a name has {0} bytes, at most {MAX_TEXT} are possible")]
    Text(usize),
    /// All names together do not fit into a block.
    #[error("the names have {0} bytes together, at most {MAX_TEXTS} are possible")]
    Texts(usize),
    /// The interval is 0.
    #[error("the time between two rows is 0")]
    Interval,
    /// Service or interval differ from those of the file.
    #[error("the file is of {was}, it cannot continue with {is}")]
    Other {
        /// Service and interval of the file.
        was: String,
        /// Service and interval of the new head.
        is: String,
    },
}

impl Head {
    /// Validates the head.
    ///
    /// # Errors
    ///
    /// [`HeadError`] with the first problem.
    pub fn checked(self) -> Result<Self, HeadError> {
        if !(1..=MAX_COLUMNS).contains(&self.columns.len()) {
            return Err(HeadError::Columns(self.columns.len()));
        }
        if self.interval == Nanos::ZERO {
            return Err(HeadError::Interval);
        }
        let texts = self.columns.iter().flat_map(|column| [&column.title, &column.unit, &column.group]);
        let lengths = texts.chain([&self.service]).map(String::len);
        if let Some(length) = lengths.clone().find(|length| *length > MAX_TEXT) {
            return Err(HeadError::Text(length));
        }
        let all = lengths.sum();
        if all > MAX_TEXTS {
            return Err(HeadError::Texts(all));
        }
        let mut titles: Vec<&str> = self.columns.iter().map(|column| column.title.as_str()).collect();
        titles.sort_unstable();
        match titles.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(HeadError::Twice(pair[0].to_owned())),
            None => Ok(self),
        }
    }

    /// Checks that `next` has the same service and interval.
    pub(crate) fn goes_on_with(&self, next: &Self) -> Result<(), HeadError> {
        let name = |head: &Self| format!("{} every {} ns", head.service, head.interval.0);
        if self.service == next.service && self.interval == next.interval {
            return Ok(());
        }
        Err(HeadError::Other { was: name(self), is: name(next) })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_text(&mut out, &self.service);
        put_number(&mut out, self.interval.0);
        put_number(&mut out, self.columns.len() as u64);
        for column in &self.columns {
            out.push(column.kind as u8);
            put_text(&mut out, &column.title);
            put_text(&mut out, &column.unit);
            put_text(&mut out, &column.group);
        }
        out
    }

    /// Rows refer to their head by this checksum, so that a wrong head with as many columns is detected.
    pub(crate) fn checksum(&self) -> u32 {
        crc32fast::hash(&self.encode())
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(payload);
        let service = reader.text(MAX_TEXT, "the service's name")?;
        let interval = Nanos(reader.number()?);
        let count = reader.size(MAX_COLUMNS, "the number of columns")?;
        let mut columns = Vec::new();
        for _ in 0..count {
            let kind = ColumnKind::of(reader.byte()?).ok_or(FormatError("a column's kind"))?;
            let title = reader.text(MAX_TEXT, "a column's title")?;
            let unit = reader.text(MAX_TEXT, "a column's unit")?;
            let group = reader.text(MAX_TEXT, "a column's group")?;
            columns.push(Column { title, unit, group, kind });
        }
        reader.end()?;
        Self { service, interval, columns }.checked().map_err(|error| match error {
            HeadError::Interval => FormatError("the time between rows"),
            HeadError::Twice(_) => FormatError("a column's title"),
            _ => FormatError("the number of columns"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(titles: &[&str]) -> Head {
        let column = |title: &&str| Column {
            title: (*title).to_owned(),
            unit: "s".to_owned(),
            group: "cpu".to_owned(),
            kind: ColumnKind::Statistic,
        };
        Head { service: "cart".to_owned(), interval: Nanos(5), columns: titles.iter().map(column).collect() }
    }

    #[test]
    fn a_head_survives_its_bytes_and_no_cut() {
        let bytes = head(&["a", "b{route=\"/ü\"}"]).encode();

        assert_eq!(Head::decode(&bytes), Ok(head(&["a", "b{route=\"/ü\"}"])));
        for cut in 0..bytes.len() {
            assert!(Head::decode(&bytes[..cut]).is_err(), "{cut} bytes");
        }
    }

    #[test]
    fn what_cannot_be_recorded_is_said() {
        let of = |head: Head| head.checked().unwrap_err().to_string();

        assert_eq!(of(head(&[])), "0 columns: 1 to 65536 can be recorded");
        assert_eq!(of(head(&["a", "b", "a"])), "two columns are called `a`");
        assert_eq!(of(Head { interval: Nanos::ZERO, ..head(&["a"]) }), "the time between two rows is 0");
        assert_eq!(of(head(&[&"x".repeat(5000)])), "a name has 5000 bytes, at most 4096 are possible");
    }
}
