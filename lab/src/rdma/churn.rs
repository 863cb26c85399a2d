//! Series churn while workers are killed: no value is ever attributed to another metric.
//!
//! In the guest a service adds a series and removes its oldest, a thousand times, so that slots are retired and reused.
//! The value of each series is the number in its name. An operator subscribes to the raw rows and compares the two,
//! while the NIC agent is killed and restarted, is absent for longer than its lease, and is stopped and continued. A
//! negative control, which reuses slots before they are retired, must be detected.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use client::{Client, Gauge, UpDownCounter};
use support::clock::Stopwatch;
use tokio::runtime;
use tonic::transport::Endpoint;
use wire::proto::operators::operators_client::OperatorsClient;
use wire::proto::operators::{ListRequest, RowEvent, WatchRowsRequest};

use super::{TestContext, findings};

/// The service, and that of the control.
const SERVICES: [&str; 2] = ["churn", "hasty"];
/// Prefix of the names of series; the rest is the number.
const PREFIX: &str = "churn.m";
/// Series at the same time. A first region has 504 slots, so that most slots are used many times.
const LIVE: usize = 16;
/// Maximal number of removed series whose slots are not released yet.
const WAITING: usize = 32;
/// Series per burst. In a burst many changes are in flight at once, so that a slot reused too early would be read: the
/// host agent sends a change 20 ms after the last one.
const BURST: u64 = 12;
/// Pause between two series of a burst.
const PACE: Duration = Duration::from_millis(15);
/// Pause between two bursts, in which rows of the new series arrive.
const PAUSE: Duration = Duration::from_millis(300);
const LOOK_EVERY: Duration = Duration::from_millis(2);
const RELEASED_WITHIN: Duration = Duration::from_mins(5);
/// Pause after the last series, for rows in flight.
const LINGER: Duration = Duration::from_secs(2);
/// Rows are batched for up to 100 ms.
const SENT_WITHIN: Duration = Duration::from_millis(250);
/// Maximal number of wrong values to print.
const NAMED: usize = 5;

/// Runs the test in a guest.
///
/// # Errors
///
/// A value was attributed to another metric, or too few rows arrived to tell.
pub fn run(context: &TestContext) -> Result<()> {
    context.script("churn", 1800).map(drop)
}

/// A handle of either kind, so that slots change their kind when they are reused.
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

    /// Writes the value of `number` to its slot before the slot is retired, and waits for a few rows: the injected bug
    /// of the negative control.
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

/// Runs the service and compares its rows, for `cycles` series. With `hasty` it is the negative control, which ends as
/// soon as its bug is detected.
///
/// # Errors
///
/// As for [`run`].
pub fn run_service(socket: PathBuf, operators: String, cycles: u64, hasty: bool) -> Result<()> {
    let service = SERVICES[usize::from(hasty)];
    let client = client::connect(client::Service::new(service).socket(socket));
    let observed = Arc::new(Mutex::new(RowObservations::default()));
    let watched = Arc::clone(&observed);
    std::thread::Builder::new().name("watch".to_owned()).spawn(move || watch(&operators, service, &watched))?;
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
        while client.status().pending_release > WAITING {
            ensure!(clock.elapsed() < RELEASED_WITHIN, "slots are not released: {:?}", client.status());
            std::thread::sleep(LOOK_EVERY);
        }
        std::thread::sleep(if number.is_multiple_of(BURST) { PAUSE } else { PACE });
        if hasty && lock(&observed).wrongs > 0 {
            break;
        }
        if number.is_multiple_of(100) {
            println!("{number} series: {}", lock(&observed).summary());
        }
    }
    std::thread::sleep(LINGER);
    let status = client.status();
    let observed = lock(&observed);
    println!("at most {cycles} series, {} regions: {}", status.regions, observed.summary());
    if hasty {
        ensure!(!observed.wrong.is_empty(), "the judge sees nothing: slots were used again before they were retired");
        println!("control: {}", observed.wrong.join("; "));
        return Ok(());
    }
    ensure!(observed.wrong.is_empty(), "{} values under a wrong name: {}", observed.wrongs, observed.wrong.join("; "));
    // All were in one region of 504 slots, so that 50 series at a time used most of them many times.
    ensure!(status.regions == 1, "there are {} regions: slots were not used again", status.regions);
    ensure!(status.problems.is_empty(), "the service has problems: {:?}", status.problems);
    let own = observed.first_own.len() as u64;
    ensure!(own * 10 > cycles, "only {own} of {cycles} series were seen at all: that proves too little");
    if own * 2 < cycles {
        println!("{}only {own} of {cycles} series were seen", findings::MARK);
    }
    Ok(())
}

/// Results of comparing rows.
#[derive(Debug, Default)]
struct RowObservations {
    columns: Vec<Option<u64>>,
    rows: u64,
    values: u64,
    /// When each series first had its own value, in nanoseconds since 1970.
    first_own: BTreeMap<u64, u64>,
    wrongs: u64,
    wrong: Vec<String>,
    streams: u64,
}

impl RowObservations {
    fn summary(&self) -> String {
        let Self { rows, values, first_own, wrongs, streams, .. } = self;
        let own = first_own.len();
        format!(
            "{rows} rows with {values} values in {streams} streams, {own} series observed, {wrongs} values under a wrong name"
        )
    }

    /// Compares the values of a row with the names of its columns.
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
                // 0 is correct until the service has written its value.
                self.wrongs += 1;
                if self.wrong.len() < NAMED {
                    self.wrong.push(format!("{PREFIX}{number} is {value}"));
                }
            }
        }
    }
}

/// The number in a column's title, if it is a series of this test.
fn number(title: &str) -> Option<u64> {
    title.strip_prefix(PREFIX)?.parse().ok()
}

fn lock(observed: &Mutex<RowObservations>) -> MutexGuard<'_, RowObservations> {
    observed.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Subscribes to rows for as long as the process runs.
fn watch(operators: &str, service: &str, observed: &Mutex<RowObservations>) {
    let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else { return };
    loop {
        // Subscribes again if the LMAP does not exist yet, or if the stream ended.
        let ended = runtime.block_on(stream(operators, service, observed));
        if let Err(error) = ended {
            println!("not watching: {error:#}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

async fn stream(operators: &str, service: &str, observed: &Mutex<RowObservations>) -> Result<()> {
    let channel = Endpoint::from_shared(operators.to_owned())?.connect().await?;
    let mut client = OperatorsClient::new(channel);
    let lmaps = client.list(ListRequest {}).await?.into_inner().lmaps;
    let lmap = lmaps.into_iter().find(|lmap| lmap.service == service).context("there is no LMAP")?.lmap;
    let mut rows =
        client.watch_rows(WatchRowsRequest { lmap, every: 1, ..WatchRowsRequest::default() }).await?.into_inner();
    lock(observed).streams += 1;
    while let Some(event) = rows.message().await? {
        lock(observed).take(&event);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(columns: &[&str], at_unix_ns: u64, values: &[f64]) -> RowEvent {
        let columns = columns.iter().map(|title| (*title).to_owned()).collect();
        RowEvent { columns, at_unix_ns, score: 0.0, values: values.to_vec(), ..RowEvent::default() }
    }

    #[test]
    fn a_series_has_its_own_value_or_none_or_zero_before_it_was_written() {
        let mut observed = RowObservations::default();

        observed.take(&row(&["churn.m7", "churn.m8", "process.cpu"], 1, &[0.0, f64::NAN, 3.0]));
        observed.take(&row(&[], 2, &[7.0, 8.0, 3.0]));

        assert_eq!((observed.wrongs, observed.values, observed.rows), (0, 3, 2));
        assert_eq!(observed.first_own.len(), 2);
    }

    #[test]
    fn the_value_of_another_series_is_wrong_and_so_is_zero_after_it_was_written() {
        let mut observed = RowObservations::default();

        observed.take(&row(&["churn.m7"], 1, &[9.0]));
        observed.take(&row(&[], 5, &[7.0]));
        observed.take(&row(&[], 4, &[0.0]));
        assert_eq!(observed.wrong, ["churn.m7 is 9"], "an older row may come later");

        observed.take(&row(&[], 6, &[0.0]));
        assert_eq!(observed.wrong, ["churn.m7 is 9", "churn.m7 is 0"]);
    }

    #[test]
    fn a_gauge_taken_for_steps_is_wrong() {
        let mut observed = RowObservations::default();

        observed.take(&row(&["churn.m7"], 1, &[8_f64.to_bits().cast_signed() as f64]));

        assert_eq!(observed.wrongs, 1);
    }
}
