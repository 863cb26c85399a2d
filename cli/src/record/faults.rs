//! Fault labels: read from a CSV of time ranges or from the demo's report, and appended to recordings.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use recording::{Mark, Span};
use serde::Deserialize;
use wire::time::UnixNanos;

use crate::failure::Failure;
use crate::input;

const HEADER: [&str; 4] = ["service", "fault", "from_unix_ms", "to_unix_ms"];
/// Stands for every service.
const ALL_SERVICES: &str = "*";
/// Larger files are refused.
const MAX_BYTES: u64 = 64 << 20;
/// Rows do not count for this long after a fault of the demo, as in the demo's own report.
const GRACE_MS: u64 = 10_000;

/// The fields of the JSON of `uview demo` that are used here.
#[derive(Debug, Deserialize)]
struct DemoReport {
    started_unix_ms: u64,
    faults: Vec<DemoFault>,
}

#[derive(Debug, Deserialize)]
struct DemoFault {
    service: String,
    kind: String,
    started_ms: u64,
    lasted_ms: u64,
}

/// Labelled time ranges, each of one service or of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(Vec<(String, Span)>);

impl Faults {
    /// Reads the JSON of `uview demo`, or CSV with `service,fault,from_unix_ms,to_unix_ms`, both times inclusive.
    /// Service `*` stands for every service; rows in a range without a fault do not count.
    ///
    /// # Errors
    ///
    /// [`Failure`] with the line of the mistake.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let refused = |cause: String| {
            let failure = Failure::to(format!("use the faults {}", path.display())).because(cause);
            failure.advice("a first line `service,fault,from_unix_ms,to_unix_ms`, then lines like `payment,leak,1760000000000,1760000020000`")
        };
        let text = std::fs::metadata(path).and_then(|found| match found.len() {
            ..=MAX_BYTES => std::fs::read(path),
            bytes => Err(std::io::Error::other(format!("it has {bytes} bytes, at most {MAX_BYTES} are read"))),
        });
        let text = text.map_err(|error| refused(error.to_string()))?;
        if text.trim_ascii_start().starts_with(b"{") {
            let report: DemoReport = serde_json::from_slice(&text).map_err(|error| {
                let failure = Failure::to(format!("use the faults {}", path.display())).because(error.to_string());
                failure.advice(
                    "the output of `uview demo --json FILE`, or CSV with `service,fault,from_unix_ms,to_unix_ms`",
                )
            })?;
            return Ok(Self::of_demo(&report));
        }
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_slice());
        let header = reader.headers().map_err(|error| refused(error.to_string()))?;
        if header.iter().ne(HEADER) {
            return Err(refused("its first line is different".to_owned()));
        }
        let mut spans = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|error| refused(error.to_string()))?;
            let line = record.position().map_or(0, csv::Position::line);
            let time = |place: usize| {
                let milliseconds: Option<u64> = record[place].parse().ok();
                let ns = milliseconds.and_then(|milliseconds| milliseconds.checked_mul(1_000_000)).map(UnixNanos);
                ns.ok_or_else(|| {
                    refused(format!("line {line}: {} is no time in milliseconds since 1970", HEADER[place]))
                })
            };
            let (from, to) = (time(2)?, time(3)?);
            if to < from {
                return Err(refused(format!("line {line}: it ends before it begins")));
            }
            let fault = record[1].to_owned();
            let mark = if fault.is_empty() { Mark::Ignored } else { Mark::Anomalous };
            spans.push((record[0].to_owned(), Span { from, to, mark, fault }));
        }
        Ok(Self(spans))
    }

    /// Labels of a run of the demo. During a fault of one service the rows of the others do not count, since the fault
    /// may or may not affect them.
    fn of_demo(report: &DemoReport) -> Self {
        let spans = report.faults.iter().flat_map(|fault| {
            let from = report.started_unix_ms.saturating_add(fault.started_ms);
            let to = from.saturating_add(fault.lasted_ms);
            let span = |to: u64, mark, fault: &str| Span {
                from: UnixNanos::from_millis(from),
                to: UnixNanos::from_millis(to),
                mark,
                fault: fault.to_owned(),
            };
            let own = (fault.service.clone(), span(to, Mark::Anomalous, &fault.kind));
            [own, (ALL_SERVICES.to_owned(), span(to.saturating_add(GRACE_MS), Mark::Ignored, ""))]
        });
        Self(spans.collect())
    }

    /// Appends the labels of its service to the recording at `path`, and returns how many there were.
    ///
    /// # Errors
    ///
    /// [`Failure`] if the file is no complete recording, or cannot be written.
    pub fn append_to(&self, path: &Path) -> Result<usize, Failure> {
        let what = format!("label {}", path.display());
        let Some(recording) = input::open_recording(path, &what)? else {
            let failure = Failure::to(what).because("it is no recording");
            return Err(failure.advice("a file of `uview record`; CSV has its labels in a column `label`"));
        };
        if !recording.damage.is_empty() {
            let failure =
                Failure::to(what).because("the recording is cut or damaged, and labels are appended at its end");
            return Err(failure.advice("use a complete copy of it"));
        }
        let own = self.0.iter().filter(|(service, _)| *service == recording.service || service == ALL_SERVICES);
        let spans: Vec<Span> = own.map(|(_, span)| span.clone()).collect();
        if spans.is_empty() {
            return Ok(0);
        }
        let block = recording::label_block(&spans).map_err(|error| Failure::to(what.as_str()).caused_by(&error))?;
        let append = || File::options().append(true).open(path)?.write_all(&block);
        append().map_err(|error| Failure::to(what.as_str()).caused_by(&error).advice("can you write to it?"))?;
        Ok(spans.len())
    }
}

#[cfg(test)]
mod tests {
    use recording::{Column, ColumnKind, Encoder, Head};
    use wire::time::Nanos;

    use super::*;

    fn faults(text: &str) -> Result<Faults, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("faults.csv");
        std::fs::write(&path, text).unwrap();
        Faults::open(&path)
    }

    fn recording(folder: &tempfile::TempDir) -> std::path::PathBuf {
        let column = Column { title: "a".into(), unit: String::new(), group: String::new(), kind: ColumnKind::Gauge };
        let head = Head { service: "payment".into(), interval: Nanos(1), columns: vec![column] };
        let (mut encoder, mut bytes) = Encoder::new(head).unwrap();
        assert!(encoder.push(UnixNanos::from_millis(5), &[1.0]).unwrap().is_none());
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
        assert_eq!(
            (spans[0].mark, spans[0].fault.as_str(), spans[0].to),
            (Mark::Anomalous, "leak", UnixNanos::from_millis(6))
        );
        assert_eq!((spans[1].mark, spans[1].from), (Mark::Ignored, UnixNanos::from_millis(7)));
    }

    #[test]
    fn the_report_of_the_demo_is_read_as_labels() {
        let text = r#"{"seed": 7, "started_unix_ms": 1000, "faults": [
            {"service": "payment", "kind": "leak", "started_ms": 50, "lasted_ms": 20, "noticed_ms": null}]}"#;

        let faults = faults(text).unwrap();

        let facts: Vec<_> =
            faults.0.iter().map(|(s, span)| (s.as_str(), span.from.0, span.to.0, span.fault.as_str())).collect();
        let expected = [("payment", 1_050_000_000, 1_070_000_000, "leak"), ("*", 1_050_000_000, 11_070_000_000, "")];
        assert_eq!(facts, expected);
        assert!(super::Faults::open(Path::new("/nowhere")).unwrap_err().to_string().contains("No such file"));
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

        assert!(refusal("service,kind\n").contains("its first line is different"));
        let text = refusal("service,fault,from_unix_ms,to_unix_ms\na,b,1,2\na,b,x,2\n");
        assert!(text.contains("line 3: from_unix_ms is no time"), "{text}");
        assert!(
            refusal("service,fault,from_unix_ms,to_unix_ms\na,b,3,2\n").contains("line 2: it ends before it begins")
        );
    }
}
