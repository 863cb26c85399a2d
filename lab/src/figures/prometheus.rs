//! The peer for scraping: the hundred metrics as Prometheus text over HTTP/1.1.
//!
//! Both ends are as fast as the format allows: connections are kept alive, each has a thread, nothing is compressed or
//! logged. The scraper looks each series up in a table like Prometheus, but keeps the last value only.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::metric_set::{self, COUNTERS, GAUGES, HISTOGRAMS, Noise, ROUTES};

/// The upper bounds of Prometheus clients' default histogram, times a thousand.
const BOUNDS: [f64; 11] = [5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10000.0];
const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text\r\n\r\n";

/// A service that exposes the hundred metrics.
#[derive(Debug)]
pub struct Exposition {
    registry: Registry,
    counters: Vec<Counter>,
    gauges: Vec<Gauge<f64, AtomicU64>>,
    histograms: Vec<Histogram>,
}

impl Exposition {
    /// All metrics at zero.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let mut counters = Vec::new();
        for first in (0..COUNTERS).step_by(ROUTES) {
            let family = Family::<[(&'static str, String); 1], Counter>::default();
            for at in first..first + ROUTES {
                counters.push(family.get_or_create(&[("route", metric_set::counter(at).1)]).clone());
            }
            registry.register(metric_set::counter(first).0.replace('.', "_"), "Requests", family);
        }
        let gauges: Vec<_> = (0..GAUGES).map(|_| Gauge::default()).collect();
        for (at, gauge) in gauges.iter().enumerate() {
            registry.register(metric_set::gauge(at).replace('.', "_"), "Waiting", gauge.clone());
        }
        let histograms: Vec<_> = (0..HISTOGRAMS).map(|_| Histogram::new(BOUNDS)).collect();
        for (at, histogram) in histograms.iter().enumerate() {
            registry.register(metric_set::histogram(at).replace('.', "_"), "Durations", histogram.clone());
        }
        Self { registry, counters, gauges, histograms }
    }

    /// Writes every metric once.
    pub fn write(&self, noise: &mut Noise) {
        self.counters.iter().for_each(|counter| _ = counter.inc_by(noise.draw()));
        self.gauges.iter().for_each(|gauge| _ = gauge.set(noise.draw() as f64));
        self.histograms.iter().for_each(|histogram| histogram.observe(noise.draw() as f64));
    }

    /// Serves scrapes on a free port of the loopback interface, until this process ends.
    pub fn serve(self: &Arc<Self>) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let exposition = Arc::clone(self);
        let accept = move || {
            for stream in listener.incoming().flatten() {
                let exposition = Arc::clone(&exposition);
                // The scraper closes the connection at the end, which is no error.
                std::thread::spawn(move || _ = exposition.answer(&stream));
            }
        };
        std::thread::Builder::new().name("exposition".to_owned()).spawn(accept)?;
        Ok(address)
    }

    fn answer(&self, mut stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut requests = BufReader::new(stream);
        let (mut line, mut body, mut answer) = (String::new(), String::new(), Vec::new());
        while requests.read_line(&mut line)? > 0 {
            let is_end_of_request = line == "\r\n";
            line.clear();
            if !is_end_of_request {
                continue;
            }
            body.clear();
            text::encode(&mut body, &self.registry).map_err(|fmt::Error| io::Error::other("not written"))?;
            answer.clear();
            write!(answer, "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0\r\n")?;
            write!(answer, "Content-Length: {}\r\n\r\n{body}", body.len())?;
            stream.write_all(&answer)?;
        }
        Ok(())
    }
}

/// Scrapes one exposition.
#[derive(Debug)]
pub struct Scraper {
    stream: BufReader<TcpStream>,
    line: String,
    body: Vec<u8>,
    series: HashMap<String, usize>,
    values: Vec<f64>,
}

impl Scraper {
    /// Connects to the exporter at `address`.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::with_capacity(1 << 15, stream),
            line: String::new(),
            body: Vec::new(),
            series: HashMap::new(),
            values: Vec::new(),
        })
    }

    /// Sends a request for the text.
    pub fn request(&mut self) -> io::Result<()> {
        self.stream.get_mut().write_all(REQUEST)
    }

    /// Reads the response into the table. Returns the number of samples.
    pub fn read_response(&mut self) -> io::Result<usize> {
        let mut length = 0;
        loop {
            self.line.clear();
            if self.stream.read_line(&mut self.line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match self.line.trim_end().split_once(": ") {
                Some(("Content-Length", bytes)) => length = bytes.parse().map_err(io::Error::other)?,
                None if self.line == "\r\n" => break,
                _ => {}
            }
        }
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body)?;
        let text = std::str::from_utf8(&self.body).map_err(io::Error::other)?;
        let mut samples = 0;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let value: f64 = value.parse().map_err(io::Error::other)?;
            samples += 1;
            if let Some(place) = self.series.get(series).and_then(|at| self.values.get_mut(*at)) {
                *place = value;
            } else {
                self.series.insert(series.to_owned(), self.values.len());
                self.values.push(value);
            }
        }
        Ok(samples)
    }
}
