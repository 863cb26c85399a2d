//! A Redis server with a varying load, and a service that registers the numbers of its INFO command as metrics.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use support::clock::Stopwatch;

use crate::clients::shop::{Process, ending_with_us};

const KEYS: u64 = 60_000;
/// Interval of reading INFO: four times per row.
const READ_EVERY: Duration = Duration::from_millis(250);
/// Length of a time slice of the load.
const SLICE: Duration = Duration::from_millis(20);
/// Prefixes and suffixes of fields of INFO that are counters.
const COUNTERS: [&str; 9] =
    ["total_", "keyspace_", "used_cpu_", "expired_", "evicted_", "rejected_", "sync_", "io_threaded_", "errorstat_"];

/// A running Redis server.
#[derive(Debug)]
pub struct Redis {
    socket: PathBuf,
    _server: Process,
}

impl Redis {
    /// Starts Debian's `redis-server` on a socket in `folder`.
    ///
    /// # Errors
    ///
    /// It is not installed, or does not respond.
    pub fn start(folder: &Path) -> Result<Self> {
        let known = Command::new("redis-server").arg("--version").output();
        ensure!(
            known.is_ok_and(|known| known.status.success()),
            "there is no redis-server: install the package of that name"
        );
        let socket = folder.join("redis.sock");
        let mut command = ending_with_us("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket).arg("--dir").arg(folder);
        let server = Process::start(&mut command, &folder.join("redis.log"))?;
        let redis = Self { socket, _server: server };
        let clock = Stopwatch::start();
        while redis.connect().and_then(|mut line| line.ask(&[b"PING"])).is_err() {
            ensure!(clock.elapsed() < Duration::from_secs(10), "redis-server does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(redis)
    }

    /// Opens a connection.
    ///
    /// # Errors
    ///
    /// The server refuses it.
    pub fn connect(&self) -> Result<Connection> {
        let stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Connection { reader: BufReader::new(stream.try_clone()?), writer: stream })
    }
}

/// A connection to the server.
#[derive(Debug)]
pub struct Connection {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Connection {
    fn send(&mut self, words: &[&[u8]]) -> Result<()> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        Ok(self.writer.write_all(&request)?)
    }

    /// Reads a reply. Returns a string; empty for a list, whose elements are skipped.
    fn answer(&mut self) -> Result<Vec<u8>> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        let (kind, rest) = line.trim_end().split_at_checked(1).context("the server hung up")?;
        match (kind, rest.parse::<i64>()) {
            ("$", Ok(length @ 0..)) => {
                let mut text = vec![0; length as usize + 2];
                self.reader.read_exact(&mut text)?;
                text.truncate(length as usize);
                Ok(text)
            }
            ("*", Ok(count @ 0..)) => {
                for _ in 0..count {
                    self.answer()?;
                }
                Ok(Vec::new())
            }
            ("-", _) => bail!("the server says {rest}"),
            _ => Ok(rest.as_bytes().to_vec()),
        }
    }

    fn ask(&mut self, words: &[&[u8]]) -> Result<Vec<u8>> {
        self.send(words)?;
        self.answer()
    }
}

/// A random number generator (SplitMix64; Steele, Lea, Flood 2014), so that a seed gives the same load.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    const fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn share(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Sends requests until `end`: about 1,500 per second in a wave of two minutes, bursts of some seconds at three times
/// that, and sometimes a background save.
///
/// # Errors
///
/// The connection broke.
pub fn load(redis: &Redis, seed: u64, end: &AtomicBool) -> Result<()> {
    let (mut line, mut dice, clock) = (redis.connect()?, Dice(seed), Stopwatch::start());
    let (mut drift, mut burst_until, mut slice) = (0.0_f64, 0.0, 0_u32);
    while !end.load(Ordering::Relaxed) {
        let at = clock.elapsed().as_secs_f64();
        drift = (drift * 0.999 + 0.02 * (dice.share() - 0.5)).clamp(-0.5, 0.5);
        // A burst of two to eight seconds about every minute and a half.
        if at > burst_until && dice.share() < SLICE.as_secs_f64() / 90.0 {
            burst_until = at + 2.0 + 6.0 * dice.share();
        }
        let wave = 1.0 + 0.5 * (at / 120.0 * std::f64::consts::TAU).sin() + drift;
        let rate = 1_500.0 * wave * if at < burst_until { 3.0 } else { 1.0 };
        let count = (rate * SLICE.as_secs_f64() * (0.5 + dice.share())) as usize;
        for _ in 0..count {
            request(&mut line, &mut dice)?;
        }
        for _ in 0..count {
            // Redis refuses a second save, and commands for a key of another type.
            let _ = line.answer();
        }
        slice += 1;
        if let Some(rest) = (SLICE * slice).checked_sub(clock.elapsed()) {
            std::thread::sleep(rest);
        }
    }
    Ok(())
}

fn request(line: &mut Connection, dice: &mut Dice) -> Result<()> {
    let key = (dice.share().powi(2) * KEYS as f64) as u64;
    let (plain, list, hash) = (format!("k{key}"), format!("l{}", key % 500), format!("h{}", key % 5_000));
    match dice.roll() % 1_000 {
        0..550 => line.send(&[b"GET", plain.as_bytes()]),
        550..800 => {
            let value = vec![b'x'; 50 + (dice.share().powi(4) * 4_000.0) as usize];
            line.send(&[b"SET", plain.as_bytes(), &value, b"EX", b"300"])
        }
        800..880 => line.send(&[b"HINCRBY", hash.as_bytes(), b"visits", b"1"]),
        880..940 => line.send(&[b"LPUSH", list.as_bytes(), plain.as_bytes()]),
        940..980 => line.send(&[b"LTRIM", list.as_bytes(), b"0", b"100"]),
        980..999 => line.send(&[b"DEL", plain.as_bytes()]),
        _ if dice.share() < 0.01 => line.send(&[b"BGSAVE"]),
        _ => line.send(&[b"LRANGE", list.as_bytes(), b"0", b"50"]),
    }
}

enum RedisMetric {
    Counter(client::Counter, f64),
    Gauge(client::Gauge),
}

/// Registers every number of INFO as a metric of the service `redis`, and updates them until `end`.
///
/// # Errors
///
/// The connection broke.
pub fn watch(redis: &Redis, socket: &Path, end: &Arc<AtomicBool>) -> Result<()> {
    let mut line = redis.connect()?;
    let uview = client::connect(client::Service::new("redis").socket(socket));
    let mut written: HashMap<String, RedisMetric> = HashMap::new();
    while !end.load(Ordering::Relaxed) {
        let info = line.ask(&[b"INFO", b"everything"])?;
        for (name, value) in numbers(&String::from_utf8_lossy(&info)) {
            let counts = COUNTERS.iter().any(|start| name.starts_with(start))
                || name.split('.').any(|part| part == "calls" || part == "usec");
            let metric = written.entry(name).or_insert_with_key(|name| {
                let title = format!("redis.{name}");
                if counts {
                    RedisMetric::Counter(uview.counter(&title).register(), value)
                } else {
                    RedisMetric::Gauge(uview.gauge(&title).register())
                }
            });
            match metric {
                RedisMetric::Gauge(gauge) => gauge.set(value),
                // Processor seconds become microseconds.
                RedisMetric::Counter(counter, before) => {
                    let scale = if value.fract() == 0.0 && before.fract() == 0.0 { 1.0 } else { 1e6 };
                    counter.add(((value - *before).max(0.0) * scale) as u64);
                    *before = value;
                }
            }
        }
        std::thread::sleep(READ_EVERY);
    }
    Ok(())
}

/// All names and values: of `name:1`, and of `cmdstat_get:calls=1,usec=2` two.
fn numbers(info: &str) -> Vec<(String, f64)> {
    let mut numbers = Vec::new();
    for (name, value) in info.lines().filter_map(|line| line.split_once(':')) {
        if let Ok(value) = value.parse::<f64>() {
            numbers.push((name.to_owned(), value));
            continue;
        }
        let parts = value.split(',').filter_map(|part| part.split_once('='));
        let parts = parts.filter_map(|(part, value)| Some((format!("{name}.{part}"), value.parse().ok()?)));
        numbers.extend(parts);
    }
    numbers.retain(|(_, value)| value.is_finite());
    numbers
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn every_number_of_info_is_read() {
        let info =
            "# Server\r\nredis_version:7.0.15\r\nused_memory:1024\r\ncmdstat_get:calls=21,usec=175\r\nrole:master\r\n";

        let found = numbers(info);

        let expected = [("used_memory", 1024.0), ("cmdstat_get.calls", 21.0), ("cmdstat_get.usec", 175.0)];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value)));
    }
}
