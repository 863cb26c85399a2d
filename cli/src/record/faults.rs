//! What was wrong when: a CSV of spans of time, and its way into recordings.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use recording::{Mark, Span};

use crate::failure::Failure;
use crate::input;

const HEADER: [&str; 4] = ["service", "fault", "from_unix_ms", "to_unix_ms"];
/// Every service.
const ALL: &str = "*";

/// Spans of time, each of a service or of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(Vec<(String, Span)>);

impl Faults {
    /// Reads lines `service,fault,from_unix_ms,to_unix_ms`, both times included. Service `*` is every service; without a fault the rows do
    /// not count.
    ///
    /// # Errors
    ///
    /// [`Failure`] with the line.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let refused = |cause: String| {
            let failure = Failure::to(format!("use the faults {}", path.display())).because(cause);
            failure.advice("a first line `service,fault,from_unix_ms,to_unix_ms`, then lines like `payment,leak,1760000000000,1760000020000`")
        };
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .from_path(path)
            .map_err(|error| refused(error.to_string()))?;
        let header = reader.headers().map_err(|error| refused(error.to_string()))?;
        if header.iter().ne(HEADER) {
            return Err(refused("its first line is another".to_owned()));
        }
        let mut spans = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|error| refused(error.to_string()))?;
            let line = record.position().map_or(0, csv::Position::line);
            let time = |place: usize| {
                let milliseconds: Option<u64> = record[place].parse().ok();
                let ns = milliseconds.and_then(|milliseconds| milliseconds.checked_mul(1_000_000));
                ns.ok_or_else(|| {
                    refused(format!("line {line}: {} is no time in milliseconds since 1970", HEADER[place]))
                })
            };
            let (from_unix_ns, to_unix_ns) = (time(2)?, time(3)?);
            if to_unix_ns < from_unix_ns {
                return Err(refused(format!("line {line}: it ends before it begins")));
            }
            let fault = record[1].to_owned();
            let mark = if fault.is_empty() { Mark::Ignored } else { Mark::Anomalous };
            spans.push((record[0].to_owned(), Span { from_unix_ns, to_unix_ns, mark, fault }));
        }
        Ok(Self(spans))
    }

    /// Appends the spans of its service to the recording at `path`, and says how many there were.
    ///
    /// # Errors
    ///
    /// [`Failure`] if it is no recording, or cannot be written.
    pub fn append_to(&self, path: &Path) -> Result<usize, Failure> {
        let what = format!("label {}", path.display());
        let Some(recording) = input::open_recording(path, &what)? else {
            let failure = Failure::to(what).because("it is no recording");
            return Err(failure.advice("a file of `uview record`; a CSV has its labels in a column `label`"));
        };
        if !recording.damage.is_empty() {
            let failure =
                Failure::to(what).because("the recording is cut or damaged, and labels are appended to its end");
            return Err(failure.advice("a whole copy of it"));
        }
        let own = self.0.iter().filter(|(service, _)| *service == recording.service || service == ALL);
        let spans: Vec<Span> = own.map(|(_, span)| span.clone()).collect();
        if spans.is_empty() {
            return Ok(0);
        }
        let block = recording::label_block(&spans).map_err(|error| Failure::to(what.as_str()).caused_by(&error))?;
        let append = || File::options().append(true).open(path)?.write_all(&block);
        append().map_err(|error| Failure::to(what.as_str()).caused_by(&error).advice("may you write it?"))?;
        Ok(spans.len())
    }
}

#[cfg(test)]
mod tests {
    use recording::{Column, ColumnKind, Encoder, Head};

    use super::*;

    fn faults(text: &str) -> Result<Faults, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("faults.csv");
        std::fs::write(&path, text).unwrap();
        Faults::open(&path)
    }

    fn recording(folder: &tempfile::TempDir) -> std::path::PathBuf {
        let column = Column { title: "a".into(), unit: String::new(), group: String::new(), kind: ColumnKind::Gauge };
        let head = Head { service: "payment".into(), interval_ns: 1, columns: vec![column] };
        let (mut encoder, mut bytes) = Encoder::new(head).unwrap();
        assert!(encoder.push(5_000_000, &[1.0]).unwrap().is_none());
        bytes.extend(encoder.finish());
        let path = folder.path().join("payment.uvrec");
        std::fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn a_recording_gets_the_spans_of_its_service_and_those_of_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = recording(&folder);
        let text = "service,fault,from_unix_ms,to_unix_ms\npayment,leak,4,6\nstore,hang,4,6\n*,,7,9\n";

        let count = faults(text).unwrap().append_to(&path).unwrap();

        let spans = recording::decode(&std::fs::read(&path).unwrap()).unwrap().spans;
        assert_eq!((count, spans.len()), (2, 2));
        assert_eq!((spans[0].mark, spans[0].fault.as_str(), spans[0].to_unix_ns), (Mark::Anomalous, "leak", 6_000_000));
        assert_eq!((spans[1].mark, spans[1].from_unix_ns), (Mark::Ignored, 7_000_000));
    }

    #[test]
    fn a_recording_that_is_cut_is_not_appended_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = recording(&folder);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();

        let refusal = faults("service,fault,from_unix_ms,to_unix_ms\n*,x,1,2\n").unwrap().append_to(&path).unwrap_err();

        assert!(refusal.to_string().contains("cut or damaged"), "{refusal}");
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let refusal = |text: &str| faults(text).unwrap_err().to_string();

        assert!(refusal("service,kind\n").contains("its first line is another"));
        let text = refusal("service,fault,from_unix_ms,to_unix_ms\na,b,1,2\na,b,x,2\n");
        assert!(text.contains("line 3: from_unix_ms is no time"), "{text}");
        assert!(
            refusal("service,fault,from_unix_ms,to_unix_ms\na,b,3,2\n").contains("line 2: it ends before it begins")
        );
    }
}
