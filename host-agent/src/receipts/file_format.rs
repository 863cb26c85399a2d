//! The ledger's file format: a header line with a checksum, then JSON. Pure.
//!
//! ```text
//! uview receipt 1 5f3a90c1 2481
//! {"since":…,"runs":[…],"waiting":{…},"days":[…]}
//! ```
//!
//! The header's numbers are the version, the CRC-32 of the body, and the body's length in bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use hooks::receipt::{LedgerLimits, Line, LogLine, Page, Requests};
use hooks::tracing::{DiscardReason, DropReason, LogPolicy, LossReason, Policy, Tally};
use serde::{Deserialize, Serialize};
use wire::time::{Nanos, UnixNanos};

use crate::stored_file::{FileHeader, FileHeaderError};

/// Longer files are refused. Eight days of a thousand services take at most 8 MB.
pub const MAX_BYTES: usize = 32 << 20;
/// Runs that are kept.
pub(super) const MAX_RUNS: usize = 64;
const HEADER: FileHeader = FileHeader { magic: "uview receipt", version: 1 };
/// Limit of spans, bytes (1 PB) and nanoseconds (13 days) per day: exact in every JSON reader, and sums of thousands do
/// not overflow.
const MAX: u64 = 1 << 50;
/// Limit of a service's or counter's name, in bytes.
const NAME_BYTES: usize = 256;
/// Counters per day.
const GROWN: usize = 1_024;

/// One run of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Start, in nanoseconds since 1970.
    pub began: u64,
    /// Last write, in nanoseconds since 1970. Whatever happened later is not recorded.
    pub written: u64,
    /// Whether it ended in order, so that nothing is missing.
    pub ended: bool,
}

/// Contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredReceipt {
    /// Begin of the record.
    pub since: UnixNanos,
    /// The latest runs, oldest first, at most 64.
    pub runs: Vec<Run>,
    /// Spans buffered at the time of writing, by service.
    pub waiting: BTreeMap<Arc<str>, Tally>,
    /// Log records buffered at the time of writing, by service.
    pub waiting_logs: BTreeMap<Arc<str>, Tally>,
    /// Days, oldest first.
    pub pages: Vec<Page>,
}

/// Why a file cannot be read as a ledger.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoredReceiptError {
    /// The header line, or what follows it, is not as it should be.
    #[error(transparent)]
    Header(#[from] FileHeaderError),
    /// More bytes than `MAX_BYTES`.
    #[error("it has {0} bytes, over the limit of {MAX_BYTES}")]
    TooLong(usize),
    /// The body is not valid JSON.
    #[error("it is not valid JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A value is out of range.
    #[error("{what} is {found}: {wanted}")]
    Range {
        /// Name of the value.
        what: &'static str,
        /// The value in the file.
        found: String,
        /// The expected range.
        wanted: &'static str,
    },
}

/// Spans and bytes.
type Pair = (u64, u64);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    since: u64,
    runs: Vec<Run>,
    waiting: BTreeMap<String, Pair>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    waiting_logs: BTreeMap<String, Pair>,
    days: Vec<Day>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Day {
    /// Days since 1970.
    number: u64,
    services: BTreeMap<String, Service>,
    grown: BTreeMap<String, u64>,
}

/// Reasons and policies are stored by name, so that new ones can be inserted.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Service {
    seen: Pair,
    kept: BTreeMap<String, Pair>,
    dropped: BTreeMap<String, Pair>,
    lost: BTreeMap<String, Pair>,
    /// All requests, and failed ones.
    requests: Pair,
    kept_requests: Pair,
    alarms: u64,
    alarm_ns: u64,
    /// Left out where log records pass through: files of earlier releases have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    logs: Option<Logs>,
}

/// Log records of a service.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Logs {
    seen: Pair,
    kept: BTreeMap<String, Pair>,
    dropped: BTreeMap<String, Pair>,
    lost: BTreeMap<String, Pair>,
}

impl StoredReceipt {
    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let body = Body {
            since: self.since.0,
            runs: self.runs.clone(),
            waiting: by_service(&self.waiting),
            waiting_logs: by_service(&self.waiting_logs),
            days: self.pages.iter().map(Day::of).collect(),
        };
        // Numbers and strings always serialise.
        let mut body = serde_json::to_vec(&body).unwrap_or_default();
        body.push(b'\n');
        HEADER.seal(&body)
    }

    /// Parses a file. Takes at most a few times the memory of `bytes`.
    ///
    /// # Errors
    ///
    /// [`StoredReceiptError`] if an agent of this version did not write it, or if it was damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, StoredReceiptError> {
        if bytes.len() > MAX_BYTES {
            return Err(StoredReceiptError::TooLong(bytes.len()));
        }
        let body: Body = serde_json::from_slice(HEADER.unseal(bytes)?)?;
        let stored = Self {
            since: UnixNanos(body.since),
            waiting: tallies(body.waiting)?,
            waiting_logs: tallies(body.waiting_logs)?,
            pages: body.days.into_iter().map(Day::page).collect::<Result<_, _>>()?,
            runs: body.runs,
        };
        let waiting = stored.waiting.len().max(stored.waiting_logs.len());
        let most = LedgerLimits::default().services + 1;
        hold("the number of services with buffered spans", &waiting, waiting <= most, "must be at most 1001")?;
        hold("the number of runs", &stored.runs.len(), stored.runs.len() <= MAX_RUNS, "must be at most 64")?;
        let days: Vec<_> = stored.pages.iter().map(|page| page.day).collect();
        hold("the number of days", &days.len(), days.len() <= LedgerLimits::default().days, "must be at most 8")?;
        hold("the order of days", &format!("{days:?}"), days.is_sorted_by(|a, b| a < b), "must be ascending")?;
        Ok(stored)
    }
}

fn hold(what: &'static str, found: &dyn ToString, holds: bool, wanted: &'static str) -> Result<(), StoredReceiptError> {
    if holds { Ok(()) } else { Err(StoredReceiptError::Range { what, found: found.to_string(), wanted }) }
}

fn number(value: u64) -> Result<u64, StoredReceiptError> {
    hold("a number", &value, value <= MAX, "must be at most 2^50")?;
    Ok(value)
}

fn named(name: String) -> Result<Arc<str>, StoredReceiptError> {
    let wanted = "must be 1 to 256 bytes without control characters";
    let holds = (1..=NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control);
    hold("a name", &format!("{name:?}"), holds, wanted)?;
    Ok(name.into())
}

/// Clamped, so that it can be read again even after a clock jumped.
fn most(value: u64) -> u64 {
    value.min(MAX)
}

fn pair(tally: Tally) -> Pair {
    (most(tally.spans), most(tally.bytes))
}

fn tally((spans, bytes): Pair) -> Result<Tally, StoredReceiptError> {
    Ok(Tally { spans: number(spans)?, bytes: number(bytes)? })
}

fn by_service(tallies: &BTreeMap<Arc<str>, Tally>) -> BTreeMap<String, Pair> {
    tallies.iter().map(|(name, tally)| (name.to_string(), pair(*tally))).collect()
}

fn tallies(found: BTreeMap<String, Pair>) -> Result<BTreeMap<Arc<str>, Tally>, StoredReceiptError> {
    found.into_iter().map(|(name, pair)| Ok((named(name)?, tally(pair)?))).collect()
}

fn requests((all, failed): Pair) -> Result<Requests, StoredReceiptError> {
    Ok(Requests { all: number(all)?, failed: number(failed)? })
}

/// Non-zero tallies by the reason's name.
fn by_name<T>(
    all: impl IntoIterator<Item = T>,
    name: impl Fn(&T) -> &'static str,
    of: impl Fn(&T) -> Tally,
) -> BTreeMap<String, Pair> {
    let all = all.into_iter().map(|why| (name(&why).to_owned(), pair(of(&why))));
    all.filter(|(_, found)| *found != (0, 0)).collect()
}

/// Calls `put` for each entry of `found` with the reason of that name.
fn into_places<T: Copy>(
    found: BTreeMap<String, Pair>,
    all: &[T],
    name: impl Fn(T) -> &'static str,
    mut put: impl FnMut(T, Tally),
) -> Result<(), StoredReceiptError> {
    for (by, pair) in found {
        let wanted = "unknown, perhaps of a newer agent";
        let Some(why) = all.iter().find(|why| name(**why) == by) else {
            return hold("a reason", &format!("{by:?}"), false, wanted);
        };
        put(*why, tally(pair)?);
    }
    Ok(())
}

impl Day {
    fn of(page: &Page) -> Self {
        Self {
            number: page.day,
            services: page.services.iter().map(|(name, line)| (name.to_string(), Service::of(line))).collect(),
            grown: page.grown.iter().map(|(name, by)| (name.to_string(), most(*by))).collect(),
        }
    }

    fn page(self) -> Result<Page, StoredReceiptError> {
        let Self { number: day, services, grown } = self;
        number(day)?;
        // One more for `_other`, and twice that: alarms are recorded separately from spans.
        let most = 2 * (LedgerLimits::default().services + 1);
        hold("the number of services of a day", &services.len(), services.len() <= most, "must be at most 2002")?;
        hold("the number of counters of a day", &grown.len(), grown.len() <= GROWN, "must be at most 1024")?;
        let line = |(name, service): (String, Service)| Ok::<_, StoredReceiptError>((named(name)?, service.line()?));
        let services = services.into_iter().map(line).collect::<Result<_, _>>()?;
        let by = |(name, by)| Ok::<_, StoredReceiptError>((named(name)?, number(by)?));
        Ok(Page { day, services, grown: grown.into_iter().map(by).collect::<Result<_, _>>()? })
    }
}

impl Service {
    fn of(line: &Line) -> Self {
        Self {
            seen: pair(line.seen),
            kept: by_name(Policy::ALL, |policy| policy.name(), |policy| line.kept[*policy as usize]),
            dropped: dropped(&line.gone),
            lost: lost(&line.gone),
            requests: (most(line.requests.all), most(line.requests.failed)),
            kept_requests: (most(line.kept_requests.all), most(line.kept_requests.failed)),
            alarms: most(line.alarms),
            alarm_ns: most(line.alarm_time.0),
            logs: (line.logs != LogLine::default()).then(|| Logs::of(&line.logs)),
        }
    }

    fn line(self) -> Result<Line, StoredReceiptError> {
        let mut line = Line {
            seen: tally(self.seen)?,
            requests: requests(self.requests)?,
            kept_requests: requests(self.kept_requests)?,
            alarms: number(self.alarms)?,
            alarm_time: Nanos(number(self.alarm_ns)?),
            ..Line::default()
        };
        let kept = &mut line.kept;
        into_places(self.kept, &Policy::ALL, Policy::name, |policy, tally| kept[policy as usize] = tally)?;
        put_gone((self.dropped, self.lost), &mut line.gone)?;
        line.logs = self.logs.map_or(Ok(LogLine::default()), Logs::line)?;
        Ok(line)
    }
}

impl Logs {
    fn of(line: &LogLine) -> Self {
        let kept = by_name(LogPolicy::ALL, |policy| policy.name(), |policy| line.kept[*policy as usize]);
        Self { seen: pair(line.seen), kept, dropped: dropped(&line.gone), lost: lost(&line.gone) }
    }

    fn line(self) -> Result<LogLine, StoredReceiptError> {
        let mut line = LogLine { seen: tally(self.seen)?, ..LogLine::default() };
        let kept = &mut line.kept;
        into_places(self.kept, &LogPolicy::ALL, LogPolicy::name, |policy, tally| kept[policy as usize] = tally)?;
        put_gone((self.dropped, self.lost), &mut line.gone)?;
        Ok(line)
    }
}

type Removals = [Tally; DiscardReason::COUNT];

fn dropped(gone: &Removals) -> BTreeMap<String, Pair> {
    by_name(DropReason::ALL, |why| why.name(), |why| gone[DiscardReason::Dropped(*why).place()])
}

fn lost(gone: &Removals) -> BTreeMap<String, Pair> {
    by_name(LossReason::ALL, |why| why.name(), |why| gone[DiscardReason::Lost(*why).place()])
}

fn put_gone(
    (dropped, lost): (BTreeMap<String, Pair>, BTreeMap<String, Pair>),
    gone: &mut Removals,
) -> Result<(), StoredReceiptError> {
    let mut put = |why: DiscardReason, tally| gone[why.place()] = tally;
    into_places(dropped, &DropReason::ALL, DropReason::name, |why, tally| put(DiscardReason::Dropped(why), tally))?;
    into_places(lost, &LossReason::ALL, LossReason::name, |why, tally| put(DiscardReason::Lost(why), tally))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receipt with distinct values everywhere.
    fn stored() -> StoredReceipt {
        let tally = |n: u64| Tally { spans: n, bytes: 100 * n };
        let line = Line {
            seen: tally(90),
            kept: core::array::from_fn(|n| tally(n as u64)),
            gone: core::array::from_fn(|n| tally(10 + n as u64)),
            requests: Requests { all: 30, failed: 3 },
            kept_requests: Requests { all: 4, failed: 2 },
            alarms: 5,
            alarm_time: Nanos::from_secs(61),
            logs: LogLine {
                seen: tally(50),
                kept: core::array::from_fn(|n| tally(30 + n as u64)),
                gone: core::array::from_fn(|n| tally(40 + n as u64)),
            },
        };
        let page = |day| Page {
            day,
            services: [("payment".into(), line), ("cart".into(), Line::default())].into(),
            grown: [("cpu_ms".into(), 4_200)].into(),
        };
        StoredReceipt {
            since: UnixNanos(17),
            runs: vec![Run { began: 17, written: 29, ended: true }, Run { began: 31, written: 37, ended: false }],
            waiting: [("payment".into(), tally(3))].into(),
            waiting_logs: [("cart".into(), tally(4))].into(),
            pages: vec![page(20_000), page(20_002)],
        }
    }

    fn refused(bytes: &[u8]) -> String {
        StoredReceipt::decode(bytes).unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_is_read_again() {
        assert_eq!(StoredReceipt::decode(&stored().encode()).unwrap(), stored());
        assert_eq!(StoredReceipt::decode(&StoredReceipt::default().encode()).unwrap(), StoredReceipt::default());
    }

    #[test]
    fn a_file_without_log_records_is_that_of_earlier_releases() {
        let mut stored = StoredReceipt { waiting_logs: BTreeMap::new(), ..stored() };
        let lines = stored.pages.iter_mut().flat_map(|page| page.services.values_mut());
        lines.for_each(|line| line.logs = LogLine::default());

        let text = String::from_utf8(stored.encode()).unwrap();

        assert!(!text.contains("logs"), "{text}");
        assert_eq!(StoredReceipt::decode(text.as_bytes()).unwrap(), stored);
    }

    #[test]
    fn whatever_is_written_can_be_read() {
        let line = Line { alarm_time: Nanos(u64::MAX), seen: Tally { spans: u64::MAX, bytes: 1 }, ..Line::default() };
        let page =
            Page { day: 1, services: [("payment".into(), line)].into(), grown: [("cpu_ms".into(), u64::MAX)].into() };
        let jumped = StoredReceipt { pages: vec![page], ..stored() };

        let read = StoredReceipt::decode(&jumped.encode()).unwrap();

        let line = read.pages[0].services["payment"];
        assert_eq!(
            (line.alarm_time.0, line.seen, read.pages[0].grown["cpu_ms"]),
            (MAX, Tally { spans: MAX, bytes: 1 }, MAX)
        );
    }

    #[test]
    fn whatever_is_cut_off_or_changed_is_noticed() {
        let whole = stored().encode();

        for length in 0..whole.len() {
            assert!(StoredReceipt::decode(&whole[..length]).is_err(), "{length}");
        }
        for place in 0..whole.len() {
            let mut changed = whole.clone();
            changed[place] ^= 1;
            // The header may be written differently and still mean the same.
            assert!(
                StoredReceipt::decode(&changed).is_ok_and(|read| read == stored())
                    || StoredReceipt::decode(&changed).is_err()
            );
            let body = place > whole.iter().position(|byte| *byte == b'\n').unwrap();
            assert!(!body || StoredReceipt::decode(&changed).is_err(), "{place}");
        }
        let cut = refused(&whole[..whole.len() - 1]);
        assert!(cut.contains("bytes follow the header") && cut.contains("truncated"), "{cut}");
    }

    #[test]
    fn what_is_of_another_version_or_something_else_is_named() {
        let text = String::from_utf8(stored().encode()).unwrap();

        assert_eq!(
            refused(text.replacen("receipt 1", "receipt 2", 1).as_bytes()),
            "it has version 2, this agent reads 1"
        );
        assert!(refused(b"pid: 1\n").contains("does not begin with \"uview receipt\""));
        assert!(refused(&vec![0; MAX_BYTES + 1]).contains("33554433 bytes"));
    }

    /// A file with a valid checksum.
    fn with(body: &str) -> Vec<u8> {
        HEADER.seal(body.as_bytes())
    }

    #[test]
    fn values_that_cannot_be_are_refused_with_what_was_found() {
        let text = String::from_utf8(stored().encode()).unwrap();
        let body = text.split_once('\n').unwrap().1;
        assert!(StoredReceipt::decode(&with(body)).is_ok());

        for (from, to, said) in [
            ("4200", "1125899906842625", "a number is 1125899906842625: must be at most 2^50"),
            ("20002", "20000", "the order of days is [20000, 20000]"),
            ("\"cart\"", "\"ca\\nrt\"", "a name is \"ca\\nrt\""),
            ("evicted", "eaten", "a reason is \"eaten\""),
            ("\"since\"", "\"sins\"", "unknown field `sins`"),
        ] {
            let wrong = body.replace(from, to);
            assert!(wrong != body && refused(&with(&wrong)).contains(said), "{from}: {}", refused(&with(&wrong)));
        }
        let many = StoredReceipt { runs: vec![Run { began: 1, written: 1, ended: false }; MAX_RUNS + 1], ..stored() };
        assert!(refused(&many.encode()).contains("the number of runs is 65"));
        let page = Page { day: 0, ..Page::default() };
        let days = (0..9).map(|day| Page { day, ..page.clone() }).collect();
        assert!(refused(&StoredReceipt { pages: days, ..stored() }.encode()).contains("the number of days is 9"));
    }
}
