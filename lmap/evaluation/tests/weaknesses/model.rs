//! A model of services at which weaknesses of the detector were seen, and the recordings made of it. Only additions and
//! multiplications, so that every machine makes the same rows.

use recording::{Column, ColumnKind, Encoder, Head, Mark, Span};
use wire::time::{Nanos, UnixNanos};

/// Titles, units, groups and kinds of a service's columns.
const COLUMNS: [(&str, &str, &str, ColumnKind); 19] = [
    ("http.server.request.duration.count", "", "service", ColumnKind::Increment),
    ("http.server.request.duration.mean", "s", "service", ColumnKind::Statistic),
    ("http.server.request.duration.p99", "s", "service", ColumnKind::Statistic),
    ("http.server.active_requests", "{request}", "service", ColumnKind::Gauge),
    ("cache.entries", "{entry}", "service", ColumnKind::Gauge),
    ("process.cpu.time{cpu.mode=\"user\"}", "s", "cpu", ColumnKind::Increment),
    ("process.cpu.time{cpu.mode=\"system\"}", "s", "cpu", ColumnKind::Increment),
    ("process.cpu.wait_time", "s", "cpu", ColumnKind::Increment),
    ("process.context_switches{type=\"voluntary\"}", "", "cpu", ColumnKind::Increment),
    ("process.context_switches{type=\"involuntary\"}", "", "cpu", ColumnKind::Increment),
    ("process.thread.count", "{thread}", "cpu", ColumnKind::Gauge),
    ("process.memory.usage", "By", "memory", ColumnKind::Gauge),
    ("process.memory.virtual", "By", "memory", ColumnKind::Gauge),
    ("process.paging.faults{type=\"minor\"}", "", "memory", ColumnKind::Increment),
    ("process.disk.io{direction=\"write\"}", "By", "io", ColumnKind::Increment),
    ("process.unix.file_descriptor.count", "{file}", "io", ColumnKind::Gauge),
    ("process.network.io{direction=\"receive\"}", "By", "network", ColumnKind::Increment),
    ("process.network.io{direction=\"transmit\"}", "By", "network", ColumnKind::Increment),
    ("process.network.connection.count", "{connection}", "network", ColumnKind::Gauge),
];
/// Bytes of a page of memory.
const PAGE: f64 = 4096.0;
/// When recordings begin.
const BEGIN: UnixNanos = UnixNanos::from_millis(1_700_000_000_000);

/// Uniform numbers in \[0, 1) from a seed (xorshift64*).
#[derive(Debug)]
pub struct Noise(u64);

impl Noise {
    /// Numbers of one seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About normal: the sum of twelve uniform numbers.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// A whole number from 0 to `limit` − 1.
    pub fn below(&mut self, limit: u32) -> f64 {
        (f64::from(limit) * self.unit()).floor()
    }

    /// How many of four times `mean` happen with a probability of a quarter.
    fn count(&mut self, mean: f64) -> f64 {
        (0..(4.0 * mean).round() as u32).filter(|_| self.unit() < 0.25).count() as f64
    }
}

/// What a service meets in one row.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// Requests that are expected.
    pub requests: f64,
    /// Seconds by which each request takes longer.
    pub slower: f64,
    /// How busy other programs keep the machine: 0 idle, 1 two compilers.
    pub busy: f64,
    /// Pages of memory that it takes and keeps.
    pub pages: f64,
    /// Threads, connections and descriptors that it has taken beyond those of its start.
    pub pool: f64,
    /// Requests that wait.
    pub queue: f64,
    /// Entries of its cache beyond the usual.
    pub entries: f64,
}

impl Default for Conditions {
    fn default() -> Self {
        Self { requests: 10.0, slower: 0.0, busy: 0.0, pages: 0.0, pool: 0.0, queue: 0.0, entries: 0.0 }
    }
}

/// A recording to be made: its rows, what each meets, and the fault in it.
#[derive(Debug)]
pub struct Weakness {
    /// Names the file.
    pub name: &'static str,
    /// Decides the noise.
    pub seed: u64,
    /// Number of rows, 100 ms each.
    pub rows: u32,
    /// What row i meets.
    pub conditions: fn(u32, &mut Noise) -> Conditions,
    /// First and last row of the fault, and its kind; or of what is no fault.
    pub fault: Option<(u32, u32, &'static str)>,
}

/// A service, row by row.
#[derive(Debug)]
struct Service {
    noise: Noise,
    memory: f64,
}

impl Service {
    fn row(&mut self, at: Conditions) -> Vec<f64> {
        let noise = &mut self.noise;
        let requests = noise.count(at.requests);
        // Other programs take the processor in bursts of a row.
        let taken = if noise.unit() < 0.08 * at.busy { noise.unit() } else { 0.0 };
        let durations: Vec<f64> = (0..requests as u32)
            .map(|_| {
                let skewed = noise.unit();
                (2000.0 + 4000.0 * skewed * skewed * skewed + 1e6 * at.slower).round()
            })
            .collect();
        let (sum, most) = (durations.iter().sum::<f64>(), durations.iter().copied().fold(0.0, f64::max));
        let missing = |value: f64| if requests == 0.0 { f64::NAN } else { value };
        let faults = noise.count(0.3) + at.pages + (60.0 * taken * noise.unit()).round();
        self.memory += at.pages;
        let sent = (0..requests as u32).map(|_| 400.0 + (200.0 * noise.unit()).round()).sum::<f64>();
        let microseconds = |value: f64| value.max(0.0).round() / 1e6;
        vec![
            requests,
            missing(microseconds(sum / requests)),
            missing(microseconds((most / 250.0).ceil() * 250.0)),
            noise.count(0.5) + at.queue,
            50.0 + noise.normal().round() + at.entries,
            microseconds(420.0 * requests + 100.0 * noise.normal() + 900.0 * taken),
            microseconds(160.0 * requests + 60.0 * noise.normal() + 700.0 * taken),
            microseconds(30.0 + 12.0 * noise.normal() + 60_000.0 * taken),
            (3.0 * requests + 2.0 * noise.normal()).max(0.0).round(),
            noise.count(0.5) + (40.0 * taken).round(),
            8.0 + at.pool,
            self.memory * PAGE,
            48_000.0 * PAGE,
            faults,
            PAGE * noise.count(0.5),
            20.0 + noise.count(0.25) + at.pool,
            requests * 180.0,
            sent,
            6.0 + noise.count(0.25) + at.pool,
        ]
    }
}

impl Weakness {
    /// The recording, as a file.
    pub fn recorded(&self) -> Vec<u8> {
        let column = |&(title, unit, group, kind): &(&str, &str, &str, ColumnKind)| Column {
            title: title.to_owned(),
            unit: unit.to_owned(),
            group: group.to_owned(),
            kind,
        };
        let columns = COLUMNS.iter().map(column).collect();
        let head = Head { service: self.name.to_owned(), interval: Nanos::from_millis(100), columns };
        let (mut encoder, mut file) = Encoder::new(head).expect("the columns have names of their own");
        let mut conditions = Noise::new(self.seed + 1_000);
        let mut service = Service { noise: Noise::new(self.seed), memory: 9_000.0 };
        let time = |row: u32| UnixNanos(BEGIN.0 + u64::from(row) * Nanos::from_millis(100).0);
        for row in 0..self.rows {
            let values = service.row((self.conditions)(row, &mut conditions));
            file.extend(encoder.push(time(row), &values).expect("one value per column").unwrap_or_default());
        }
        file.extend(encoder.finish());
        let span = |&(from, to, fault): &(u32, u32, &str)| Span {
            from: time(from),
            to: time(to),
            mark: Mark::Anomalous,
            fault: fault.to_owned(),
        };
        let spans: Vec<Span> = self.fault.iter().map(span).collect();
        file.extend(recording::label_block(&spans).expect("its rows are in order"));
        file
    }
}
