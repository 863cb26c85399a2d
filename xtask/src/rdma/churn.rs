//! Series that come and go while workers die: no value is ever shown under another metric's name.
//!
//! In the guest a service adds a series and removes its oldest, a thousand times, so that slots are retired and used again. The value of
//! each series is the number in its name. Whoever watches the raw rows as an operator compares the two, while the NIC agent is killed, killed
//! and missed for longer than its lease, and stopped and let go on. A control that uses slots again before they are retired is seen.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use client::{Client, Gauge, UpDownCounter};
use tokio::runtime;
use tonic::transport::Channel;
use wire::proto::operators::operators_client::OperatorsClient;
use wire::proto::operators::{ListRequest, RowEvent, WatchRowsRequest};

use super::{Stage, findings};
use crate::clock::Stopwatch;

/// The service, and that of the control.
const SERVICES: [&str; 2] = ["churn", "hasty"];
/// What names of series begin with; the rest is the number.
const PREFIX: &str = "churn.m";
/// Series at a time. A first region has room for 504, so that most slots are used many times.
const LIVE: usize = 16;
/// Removed series that may wait for the workers to forget them.
const WAITING: usize = 32;
/// Series come in bursts, so that many changes are under way at once and a slot that was used again too early would be read meanwhile: the host
/// agent sends a change 20 ms after the last one.
const BURST: u64 = 12;
/// Between two series of a burst.
const PACE: Duration = Duration::from_millis(15);
/// Between two bursts: rows of the new series arrive.
const PAUSE: Duration = Duration::from_millis(300);
const LOOK_EVERY: Duration = Duration::from_millis(2);
const RELEASED_WITHIN: Duration = Duration::from_mins(5);
/// After the last series: what is under way arrives.
const LINGER: Duration = Duration::from_secs(2);
/// Rows wait up to 100 ms for others to travel with.
const SENT_WITHIN: Duration = Duration::from_millis(250);
/// Wrong values that are named.
const NAMED: usize = 5;

/// Runs it in a guest.
///
/// # Errors
///
/// A value was under another metric's name, or too little was seen to say so.
pub fn run(stage: &Stage) -> Result<()> {
    stage.script("churn", 1800).map(drop)
}

/// A handle of either kind: what one slot was for another may be taken for.
enum Series {
    Gauge(Gauge),
    Steps(UpDownCounter),
}

impl Series {
    fn add(client: &Client, number: u64) -> Self {
        let name = format!("{PREFIX}{number}");
        if number.is_multiple_of(2) {
            let gauge = client.gauge(&name).register();
            gauge.set(number as f64);
            Self::Gauge(gauge)
        } else {
            let steps = client.up_down_counter(&name).register();
            steps.add(number.cast_signed());
            Self::Steps(steps)
        }
    }

    fn remove(self, client: &Client) {
        match self {
            Self::Gauge(gauge) => client.remove(gauge),
            Self::Steps(steps) => client.remove(steps),
        }
    }

    /// Writes to its slot what is meant for `number` before anybody is told that it is retired, and lets a few rows be sent.
    fn remove_hastily(self, client: &Client, number: u64) {
        match self {
            Self::Gauge(gauge) => {
                gauge.set(number as f64);
                std::thread::sleep(SENT_WITHIN);
                client.remove(gauge);
            }
            Self::Steps(steps) => {
                steps.add(number.cast_signed());
                std::thread::sleep(SENT_WITHIN);
                client.remove(steps);
            }
        }
    }
}

/// Is the service, and watches it, for `cycles` series. With `hasty` it is the control, and ends as soon as it is seen: it has to be.
///
/// # Errors
///
/// As for [`run`].
pub fn be(socket: PathBuf, operators: SocketAddr, cycles: u64, hasty: bool) -> Result<()> {
    let service = SERVICES[usize::from(hasty)];
    let client = client::connect(client::Service::new(service).socket(socket));
    let seen = Arc::new(Mutex::new(Seen::default()));
    let watched = Arc::clone(&seen);
    std::thread::Builder::new().name("watch".to_owned()).spawn(move || watch(operators, service, &watched))?;
    let mut live = VecDeque::new();
    for number in 1..=cycles {
        live.push_back(Series::add(&client, number));
        if live.len() > LIVE
            && let Some(oldest) = live.pop_front()
        {
            if hasty {
                oldest.remove_hastily(&client, number);
            } else {
                oldest.remove(&client);
            }
        }
        let clock = Stopwatch::start();
        while client.status().waiting > WAITING {
            ensure!(clock.elapsed() < RELEASED_WITHIN, "slots are not released: {:?}", client.status());
            std::thread::sleep(LOOK_EVERY);
        }
        std::thread::sleep(if number.is_multiple_of(BURST) { PAUSE } else { PACE });
        if hasty && lock(&seen).wrongs > 0 {
            break;
        }
        if number.is_multiple_of(100) {
            println!("{number} series: {}", lock(&seen).summary());
        }
    }
    std::thread::sleep(LINGER);
    let status = client.status();
    let seen = lock(&seen);
    println!("at most {cycles} series, {} regions: {}", status.regions, seen.summary());
    if hasty {
        ensure!(!seen.wrong.is_empty(), "the judge sees nothing: slots were used again before they were retired");
        println!("control: {}", seen.wrong.join("; "));
        return Ok(());
    }
    ensure!(seen.wrong.is_empty(), "{} values under a wrong name: {}", seen.wrongs, seen.wrong.join("; "));
    // All were in one region of 504 slots, most of which were used many times by the 50 that there were at a time.
    ensure!(status.regions == 1, "there are {} regions: slots were not used again", status.regions);
    ensure!(status.problems.is_empty(), "the service has problems: {:?}", status.problems);
    let own = seen.first_own.len() as u64;
    ensure!(own * 10 > cycles, "only {own} of {cycles} series were seen at all: that proves too little");
    if own * 2 < cycles {
        println!("{}only {own} of {cycles} series were seen", findings::MARK);
    }
    Ok(())
}

/// What rows have shown so far.
#[derive(Debug, Default)]
struct Seen {
    columns: Vec<Option<u64>>,
    rows: u64,
    values: u64,
    /// When each series was first seen with its own value, in nanoseconds since 1970.
    first_own: BTreeMap<u64, u64>,
    wrongs: u64,
    wrong: Vec<String>,
    streams: u64,
}

impl Seen {
    fn summary(&self) -> String {
        let Self { rows, values, first_own, wrongs, streams, .. } = self;
        let own = first_own.len();
        format!(
            "{rows} rows with {values} values in {streams} streams, {own} series seen, {wrongs} values under a wrong name"
        )
    }

    /// Compares the values of a row with the names that they are under.
    fn take(&mut self, event: &RowEvent) {
        if !event.columns.is_empty() {
            self.columns = event.columns.iter().map(|title| number(title)).collect();
        }
        self.rows += 1;
        for (number, value) in self.columns.iter().zip(&event.values) {
            let Some(number) = *number else { continue };
            if value.is_nan() {
                continue; // Not read, or not yet.
            }
            self.values += 1;
            let known = self.first_own.get(&number).copied();
            if *value == number as f64 {
                let first = self.first_own.entry(number).or_insert(event.at_unix_ns);
                *first = event.at_unix_ns.min(*first);
            } else if *value != 0.0 || known.is_some_and(|first| first < event.at_unix_ns) {
                // 0 is right until the service has written it.
                self.wrongs += 1;
                if self.wrong.len() < NAMED {
                    self.wrong.push(format!("{PREFIX}{number} is {value}"));
                }
            }
        }
    }
}

/// The number in a column's title, if it is one of ours.
fn number(title: &str) -> Option<u64> {
    title.strip_prefix(PREFIX)?.parse().ok()
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches rows for as long as the process lives.
fn watch(operators: SocketAddr, service: &str, seen: &Mutex<Seen>) {
    let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else { return };
    loop {
        // The LMAP is not there at first, and a stream may end: then it is asked for again.
        let ended = runtime.block_on(stream(operators, service, seen));
        if let Err(error) = ended {
            println!("not watching: {error:#}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

async fn stream(operators: SocketAddr, service: &str, seen: &Mutex<Seen>) -> Result<()> {
    let channel = Channel::from_shared(format!("http://{operators}"))?.connect().await?;
    let mut client = OperatorsClient::new(channel);
    let lmaps = client.list(ListRequest {}).await?.into_inner().lmaps;
    let lmap = lmaps.into_iter().find(|lmap| lmap.service == service).context("there is no LMAP")?.lmap;
    let mut rows = client.watch_rows(WatchRowsRequest { lmap, every: 1 }).await?.into_inner();
    lock(seen).streams += 1;
    while let Some(event) = rows.message().await? {
        lock(seen).take(&event);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(columns: &[&str], at_unix_ns: u64, values: &[f64]) -> RowEvent {
        let columns = columns.iter().map(|title| (*title).to_owned()).collect();
        RowEvent { columns, at_unix_ns, score: 0.0, values: values.to_vec(), lost: 0 }
    }

    #[test]
    fn a_series_has_its_own_value_or_none_or_zero_before_it_was_written() {
        let mut seen = Seen::default();

        seen.take(&row(&["churn.m7", "churn.m8", "process.cpu"], 1, &[0.0, f64::NAN, 3.0]));
        seen.take(&row(&[], 2, &[7.0, 8.0, 3.0]));

        assert_eq!((seen.wrongs, seen.values, seen.rows), (0, 3, 2));
        assert_eq!(seen.first_own.len(), 2);
    }

    #[test]
    fn the_value_of_another_series_is_wrong_and_so_is_zero_after_it_was_written() {
        let mut seen = Seen::default();

        seen.take(&row(&["churn.m7"], 1, &[9.0]));
        seen.take(&row(&[], 5, &[7.0]));
        seen.take(&row(&[], 4, &[0.0]));
        assert_eq!(seen.wrong, ["churn.m7 is 9"], "an older row may come later");

        seen.take(&row(&[], 6, &[0.0]));
        assert_eq!(seen.wrong, ["churn.m7 is 9", "churn.m7 is 0"]);
    }

    #[test]
    fn a_gauge_taken_for_steps_is_wrong() {
        let mut seen = Seen::default();

        seen.take(&row(&["churn.m7"], 1, &[8_f64.to_bits().cast_signed() as f64]));

        assert_eq!(seen.wrongs, 1);
    }
}
