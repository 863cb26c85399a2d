//! What is recorded: whose rows, how often, and what their columns are.

use thiserror::Error;

use crate::bytes::{Malformed, Reader, put_number, put_text};

/// More columns than this are a mistake, not a service.
pub(crate) const MOST_COLUMNS: usize = 65_536;
/// Bytes of a name.
const MOST_TEXT: usize = 4096;
/// Bytes of all names together, which fit into a block.
const MOST_TEXTS: usize = 16 << 20;

/// What a column's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ColumnKind {
    /// What was added since the row before.
    Increment = 0,
    /// A state, which may drift or latch.
    Gauge = 1,
    /// What an interval was like, such as a mean or a percentile: no state that could drift.
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
    /// Metric, statistic and labels; what a model knows the column by.
    pub title: String,
    /// As UCUM has it; may be empty.
    pub unit: String,
    /// What an explanation counts it for: service, cpu, memory, io, network; may be empty.
    pub group: String,
    /// What its value is.
    pub kind: ColumnKind,
}

/// What is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Whose rows.
    pub service: String,
    /// Nanoseconds between two rows, at least 1.
    pub interval_ns: u64,
    /// What a row consists of; each title once.
    pub columns: Vec<Column>,
}

/// A head that cannot be recorded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeadError {
    /// Nothing to record, or far too much.
    #[error("{0} columns, from 1 to {MOST_COLUMNS} can be recorded")]
    Columns(usize),
    /// Two columns of one title.
    #[error("two columns are called `{0}`")]
    Twice(String),
    /// A name without end.
    #[error("a name has {0} bytes, {MOST_TEXT} are possible")]
    Text(usize),
    /// All names together do not fit into a block.
    #[error("the names have {0} bytes, {MOST_TEXTS} are possible")]
    Texts(usize),
    /// Rows that take no time.
    #[error("the time between two rows is 0")]
    Interval,
    /// The service, or the time between rows, is another than that of the file.
    #[error("the file is of {was}, it cannot go on with {is}")]
    Other {
        /// Service and interval before.
        was: String,
        /// Service and interval now.
        is: String,
    },
}

impl Head {
    /// The head, if it can be recorded.
    ///
    /// # Errors
    ///
    /// [`HeadError`] says what is in the way.
    pub fn checked(self) -> Result<Self, HeadError> {
        if !(1..=MOST_COLUMNS).contains(&self.columns.len()) {
            return Err(HeadError::Columns(self.columns.len()));
        }
        if self.interval_ns == 0 {
            return Err(HeadError::Interval);
        }
        let texts = self.columns.iter().flat_map(|column| [&column.title, &column.unit, &column.group]);
        let lengths = texts.chain([&self.service]).map(String::len);
        if let Some(length) = lengths.clone().find(|length| *length > MOST_TEXT) {
            return Err(HeadError::Text(length));
        }
        let all = lengths.sum();
        if all > MOST_TEXTS {
            return Err(HeadError::Texts(all));
        }
        let mut titles: Vec<&str> = self.columns.iter().map(|column| column.title.as_str()).collect();
        titles.sort_unstable();
        match titles.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(HeadError::Twice(pair[0].to_owned())),
            None => Ok(self),
        }
    }

    /// That `next` is of the same service and interval.
    pub(crate) fn goes_on_with(&self, next: &Self) -> Result<(), HeadError> {
        let name = |head: &Self| format!("{} every {} ns", head.service, head.interval_ns);
        if self.service == next.service && self.interval_ns == next.interval_ns {
            return Ok(());
        }
        Err(HeadError::Other { was: name(self), is: name(next) })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_text(&mut out, &self.service);
        put_number(&mut out, self.interval_ns);
        put_number(&mut out, self.columns.len() as u64);
        for column in &self.columns {
            out.push(column.kind as u8);
            put_text(&mut out, &column.title);
            put_text(&mut out, &column.unit);
            put_text(&mut out, &column.group);
        }
        out
    }

    /// What rows name their head by: of two with as many columns, the wrong one is noticed.
    pub(crate) fn checksum(&self) -> u32 {
        crc32fast::hash(&self.encode())
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        let service = reader.text(MOST_TEXT, "the service's name")?;
        let interval_ns = reader.number()?;
        let count = reader.size(MOST_COLUMNS, "the number of columns")?;
        let mut columns = Vec::new();
        for _ in 0..count {
            let kind = ColumnKind::of(reader.byte()?).ok_or(Malformed("a column's kind"))?;
            let title = reader.text(MOST_TEXT, "a column's title")?;
            let unit = reader.text(MOST_TEXT, "a column's unit")?;
            let group = reader.text(MOST_TEXT, "a column's group")?;
            columns.push(Column { title, unit, group, kind });
        }
        reader.end()?;
        Self { service, interval_ns, columns }.checked().map_err(|error| match error {
            HeadError::Interval => Malformed("the time between rows"),
            HeadError::Twice(_) => Malformed("a column's title"),
            _ => Malformed("the number of columns"),
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
        Head { service: "cart".to_owned(), interval_ns: 5, columns: titles.iter().map(column).collect() }
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

        assert_eq!(of(head(&[])), "0 columns, from 1 to 65536 can be recorded");
        assert_eq!(of(head(&["a", "b", "a"])), "two columns are called `a`");
        assert_eq!(of(Head { interval_ns: 0, ..head(&["a"]) }), "the time between two rows is 0");
        assert_eq!(of(head(&[&"x".repeat(5000)])), "a name has 5000 bytes, 4096 are possible");
    }
}
