//! The books as a file: one line that says what it is and how to check it, then JSON. Pure.
//!
//! ```text
//! uview receipt 1 5f3a90c1 2481
//! {"since":…,"runs":[…],"waiting":{…},"days":[…]}
//! ```
//!
//! The first number is the version, the second the CRC-32 of what follows the line, the third its bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use hooks::receipt::{BookLimits, Line, Page, Requests};
use hooks::time::UnixNanos;
use hooks::tracing::{Dropped, Gone, Loss, Policy, Tally};
use serde::{Deserialize, Serialize};
use wire::time::Nanos;

/// A longer file is not read: eight days of a thousand services take 8 MB at the most.
pub const MAX_BYTES: usize = 32 << 20;
/// Runs that are remembered.
pub(super) const MOST_RUNS: usize = 64;
const MAGIC: &str = "uview receipt";
const VERSION: u32 = 1;
/// Of spans, bytes (a petabyte) and nanoseconds (13 days) on one day: what every reader of JSON has as a whole number, and thousands can be added up.
const MOST: u64 = 1 << 50;
/// Bytes of a name of a service or of something that grows.
const NAME_BYTES: usize = 256;
/// Names of what grows on one day.
const GROWN: usize = 1_024;

/// One run of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// When it began, in nanoseconds since 1970.
    pub began: u64,
    /// When its books were last written: what it did afterwards is not in them.
    pub written: u64,
    /// It ended in order, and there is no afterwards.
    pub ended: bool,
}

/// What is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Nothing is known of before.
    pub since: UnixNanos,
    /// The last runs, the oldest first, at most 64.
    pub runs: Vec<Run>,
    /// Spans that wait for a decision, by service.
    pub waiting: BTreeMap<Arc<str>, Tally>,
    /// Days, the oldest first.
    pub pages: Vec<Page>,
}

/// Bytes that are no books, or none of ours.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoredError {
    /// The first line is another.
    #[error("it does not begin with \"{MAGIC}\": it is of something else")]
    Foreign,
    /// A newer agent's.
    #[error("its version is {0}, and this agent reads {VERSION}")]
    Version(u32),
    /// More bytes than are read.
    #[error("it has {0} bytes, and {MAX_BYTES} are read at the most")]
    TooLong(usize),
    /// It ends early, or bytes of it are others than were written.
    #[error("{0}: it was cut off or changed")]
    Torn(String),
    /// The JSON.
    #[error("it does not hold: {0}")]
    Json(#[from] serde_json::Error),
    /// A value that cannot be.
    #[error("{what} is {found}: {wanted}")]
    Range {
        /// Of what.
        what: &'static str,
        /// The value.
        found: String,
        /// What is needed.
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
    days: Vec<Day>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Day {
    /// Since 1970.
    number: u64,
    services: BTreeMap<String, Service>,
    grown: BTreeMap<String, u64>,
}

/// Reasons and policies go by their names, so that others may be added between them.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Service {
    seen: Pair,
    kept: BTreeMap<String, Pair>,
    dropped: BTreeMap<String, Pair>,
    lost: BTreeMap<String, Pair>,
    /// All and failed ones.
    requests: Pair,
    kept_requests: Pair,
    alarms: u64,
    alarm_ns: u64,
}

impl Stored {
    /// As it is written.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let body = Body {
            since: self.since.0,
            runs: self.runs.clone(),
            waiting: self.waiting.iter().map(|(name, tally)| (name.to_string(), pair(*tally))).collect(),
            days: self.pages.iter().map(Day::of).collect(),
        };
        // Numbers and strings: nothing in it can fail.
        let mut body = serde_json::to_vec(&body).unwrap_or_default();
        body.push(b'\n');
        let head = format!("{MAGIC} {VERSION} {:08x} {}\n", crc32fast::hash(&body), body.len());
        [head.into_bytes(), body].concat()
    }

    /// Reads what was written. Takes no more than a few times the memory of `bytes`.
    ///
    /// # Errors
    ///
    /// [`StoredError`], if it was not written by an agent of this version, or is not as it was written.
    pub fn decode(bytes: &[u8]) -> Result<Self, StoredError> {
        if bytes.len() > MAX_BYTES {
            return Err(StoredError::TooLong(bytes.len()));
        }
        let body: Body = serde_json::from_slice(checked(bytes)?)?;
        let stored = Self {
            since: UnixNanos(body.since),
            waiting: body
                .waiting
                .into_iter()
                .map(|(name, pair)| Ok((named(name)?, tally(pair)?)))
                .collect::<Result<_, StoredError>>()?,
            pages: body.days.into_iter().map(Day::page).collect::<Result<_, _>>()?,
            runs: body.runs,
        };
        let (waiting, most) = (stored.waiting.len(), BookLimits::default().services + 1);
        hold("the number of services that wait", &waiting, waiting <= most, "at most 1001 are written")?;
        hold("the number of runs", &stored.runs.len(), stored.runs.len() <= MOST_RUNS, "at most 64 are written")?;
        let days: Vec<_> = stored.pages.iter().map(|page| page.day).collect();
        hold("the number of days", &days.len(), days.len() <= BookLimits::default().days, "at most 8 are written")?;
        hold(
            "the order of days",
            &format!("{days:?}"),
            days.is_sorted_by(|a, b| a < b),
            "each is after the one before",
        )?;
        Ok(stored)
    }
}

/// What follows the first line, if that says so.
fn checked(bytes: &[u8]) -> Result<&[u8], StoredError> {
    let end = bytes.iter().take(128).position(|byte| *byte == b'\n').ok_or(StoredError::Foreign)?;
    let (head, body) = (&bytes[..end], &bytes[end + 1..]);
    let rest = head.strip_prefix(MAGIC.as_bytes()).and_then(|rest| core::str::from_utf8(rest).ok());
    let mut words = rest.ok_or(StoredError::Foreign)?.split_ascii_whitespace();
    let version: u32 = words.next().and_then(|word| word.parse().ok()).ok_or(StoredError::Foreign)?;
    if version != VERSION {
        return Err(StoredError::Version(version));
    }
    let crc = words.next().and_then(|word| u32::from_str_radix(word, 16).ok()).ok_or(StoredError::Foreign)?;
    let length: usize = words.next().and_then(|word| word.parse().ok()).ok_or(StoredError::Foreign)?;
    if body.len() != length {
        return Err(StoredError::Torn(format!("{} bytes follow its first line, which says {length}", body.len())));
    }
    let found = crc32fast::hash(body);
    if found != crc {
        return Err(StoredError::Torn(format!("its checksum is {found:08x}, its first line says {crc:08x}")));
    }
    Ok(body)
}

fn hold(what: &'static str, found: &dyn ToString, holds: bool, wanted: &'static str) -> Result<(), StoredError> {
    if holds { Ok(()) } else { Err(StoredError::Range { what, found: found.to_string(), wanted }) }
}

fn number(value: u64) -> Result<u64, StoredError> {
    hold("a number", &value, value <= MOST, "at most 2^50 is written")?;
    Ok(value)
}

fn named(name: String) -> Result<Arc<str>, StoredError> {
    let wanted = "1 to 256 bytes without control characters are written";
    let holds = (1..=NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control);
    hold("a name", &format!("{name:?}"), holds, wanted)?;
    Ok(name.into())
}

/// As it can be read again, whatever a clock that jumped has made of it.
fn most(value: u64) -> u64 {
    value.min(MOST)
}

fn pair(tally: Tally) -> Pair {
    (most(tally.spans), most(tally.bytes))
}

fn tally((spans, bytes): Pair) -> Result<Tally, StoredError> {
    Ok(Tally { spans: number(spans)?, bytes: number(bytes)? })
}

fn requests((all, failed): Pair) -> Result<Requests, StoredError> {
    Ok(Requests { all: number(all)?, failed: number(failed)? })
}

/// What is not zero, by its reason's name.
fn by_name<T>(
    all: impl IntoIterator<Item = T>,
    name: impl Fn(&T) -> &'static str,
    of: impl Fn(&T) -> Tally,
) -> BTreeMap<String, Pair> {
    let all = all.into_iter().map(|why| (name(&why).to_owned(), pair(of(&why))));
    all.filter(|(_, found)| *found != (0, 0)).collect()
}

/// Puts each of `found` where the reason of its name is.
fn into_places<T: Copy>(
    found: BTreeMap<String, Pair>,
    all: &[T],
    name: impl Fn(T) -> &'static str,
    mut put: impl FnMut(T, Tally),
) -> Result<(), StoredError> {
    for (by, pair) in found {
        let wanted = "a newer agent's, or none of an agent";
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

    fn page(self) -> Result<Page, StoredError> {
        let Self { number: day, services, grown } = self;
        number(day)?;
        // The others go by one name more; alarms are booked apart from spans.
        let most = 2 * (BookLimits::default().services + 1);
        hold("the number of services of a day", &services.len(), services.len() <= most, "at most 2002 are written")?;
        hold("the number of counts of a day", &grown.len(), grown.len() <= GROWN, "at most 1024 are written")?;
        let line = |(name, service): (String, Service)| Ok::<_, StoredError>((named(name)?, service.line()?));
        let services = services.into_iter().map(line).collect::<Result<_, _>>()?;
        let by = |(name, by)| Ok::<_, StoredError>((named(name)?, number(by)?));
        Ok(Page { day, services, grown: grown.into_iter().map(by).collect::<Result<_, _>>()? })
    }
}

impl Service {
    fn of(line: &Line) -> Self {
        Self {
            seen: pair(line.seen),
            kept: by_name(Policy::ALL, |policy| policy.name(), |policy| line.kept[*policy as usize]),
            dropped: by_name(Dropped::ALL, |why| why.name(), |why| line.gone[Gone::Dropped(*why).place()]),
            lost: by_name(Loss::ALL, |why| why.name(), |why| line.gone[Gone::Lost(*why).place()]),
            requests: (most(line.requests.all), most(line.requests.failed)),
            kept_requests: (most(line.kept_requests.all), most(line.kept_requests.failed)),
            alarms: most(line.alarms),
            alarm_ns: most(line.alarm_time.0),
        }
    }

    fn line(self) -> Result<Line, StoredError> {
        let mut line = Line {
            seen: tally(self.seen)?,
            requests: requests(self.requests)?,
            kept_requests: requests(self.kept_requests)?,
            alarms: number(self.alarms)?,
            alarm_time: Nanos(number(self.alarm_ns)?),
            ..Line::default()
        };
        let (kept, gone) = (&mut line.kept, &mut line.gone);
        into_places(self.kept, &Policy::ALL, Policy::name, |policy, tally| kept[policy as usize] = tally)?;
        let mut put = |why: Gone, tally| gone[why.place()] = tally;
        into_places(self.dropped, &Dropped::ALL, Dropped::name, |why, tally| put(Gone::Dropped(why), tally))?;
        into_places(self.lost, &Loss::ALL, Loss::name, |why, tally| put(Gone::Lost(why), tally))?;
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of everything something else.
    fn stored() -> Stored {
        let tally = |n: u64| Tally { spans: n, bytes: 100 * n };
        let line = Line {
            seen: tally(90),
            kept: core::array::from_fn(|n| tally(n as u64)),
            gone: core::array::from_fn(|n| tally(10 + n as u64)),
            requests: Requests { all: 30, failed: 3 },
            kept_requests: Requests { all: 4, failed: 2 },
            alarms: 5,
            alarm_time: Nanos::from_secs(61),
        };
        let page = |day| Page {
            day,
            services: [("payment".into(), line), ("cart".into(), Line::default())].into(),
            grown: [("cpu_ms".into(), 4_200)].into(),
        };
        Stored {
            since: UnixNanos(17),
            runs: vec![Run { began: 17, written: 29, ended: true }, Run { began: 31, written: 37, ended: false }],
            waiting: [("payment".into(), tally(3))].into(),
            pages: vec![page(20_000), page(20_002)],
        }
    }

    fn refused(bytes: &[u8]) -> String {
        Stored::decode(bytes).unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_is_read_again() {
        assert_eq!(Stored::decode(&stored().encode()).unwrap(), stored());
        assert_eq!(Stored::decode(&Stored::default().encode()).unwrap(), Stored::default());
    }

    #[test]
    fn whatever_is_written_can_be_read() {
        let line = Line { alarm_time: Nanos(u64::MAX), seen: Tally { spans: u64::MAX, bytes: 1 }, ..Line::default() };
        let page =
            Page { day: 1, services: [("payment".into(), line)].into(), grown: [("cpu_ms".into(), u64::MAX)].into() };
        let jumped = Stored { pages: vec![page], ..stored() };

        let read = Stored::decode(&jumped.encode()).unwrap();

        let line = read.pages[0].services["payment"];
        assert_eq!(
            (line.alarm_time.0, line.seen, read.pages[0].grown["cpu_ms"]),
            (MOST, Tally { spans: MOST, bytes: 1 }, MOST)
        );
    }

    #[test]
    fn whatever_is_cut_off_or_changed_is_noticed() {
        let whole = stored().encode();

        for length in 0..whole.len() {
            assert!(Stored::decode(&whole[..length]).is_err(), "{length}");
        }
        for place in 0..whole.len() {
            let mut changed = whole.clone();
            changed[place] ^= 1;
            // The first line may be written in other ways: what is read is the same in any case.
            assert!(Stored::decode(&changed).is_ok_and(|read| read == stored()) || Stored::decode(&changed).is_err());
            let body = place > whole.iter().position(|byte| *byte == b'\n').unwrap();
            assert!(!body || Stored::decode(&changed).is_err(), "{place}");
        }
        let cut = refused(&whole[..whole.len() - 1]);
        assert!(cut.contains("bytes follow its first line") && cut.contains("cut off"), "{cut}");
    }

    #[test]
    fn what_is_of_another_version_or_something_else_is_named() {
        let text = String::from_utf8(stored().encode()).unwrap();

        assert_eq!(
            refused(text.replacen("receipt 1", "receipt 2", 1).as_bytes()),
            "its version is 2, and this agent reads 1"
        );
        assert!(refused(b"pid: 1\n").contains("something else"));
        assert!(refused(&vec![0; MAX_BYTES + 1]).contains("33554433 bytes"));
    }

    /// With the checksum that it ought to have.
    fn with(body: &str) -> Vec<u8> {
        format!("{MAGIC} 1 {:08x} {}\n{body}", crc32fast::hash(body.as_bytes()), body.len()).into_bytes()
    }

    #[test]
    fn values_that_cannot_be_are_refused_with_what_was_found() {
        let text = String::from_utf8(stored().encode()).unwrap();
        let body = text.split_once('\n').unwrap().1;
        assert!(Stored::decode(&with(body)).is_ok());

        for (from, to, said) in [
            ("4200", "1125899906842625", "a number is 1125899906842625: at most 2^50"),
            ("20002", "20000", "the order of days is [20000, 20000]"),
            ("\"cart\"", "\"ca\\nrt\"", "a name is \"ca\\nrt\""),
            ("evicted", "eaten", "a reason is \"eaten\""),
            ("\"since\"", "\"sins\"", "unknown field `sins`"),
        ] {
            let wrong = body.replace(from, to);
            assert!(wrong != body && refused(&with(&wrong)).contains(said), "{from}: {}", refused(&with(&wrong)));
        }
        let many = Stored { runs: vec![Run { began: 1, written: 1, ended: false }; MOST_RUNS + 1], ..stored() };
        assert!(refused(&many.encode()).contains("the number of runs is 65"));
        let page = Page { day: 0, ..Page::default() };
        let days = (0..9).map(|day| Page { day, ..page.clone() }).collect();
        assert!(refused(&Stored { pages: days, ..stored() }.encode()).contains("the number of days is 9"));
    }
}
