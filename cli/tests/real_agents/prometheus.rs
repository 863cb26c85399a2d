//! A program that only exposes metrics is watched: its endpoint is scraped, series are chosen, and the LMAP of its
//! service names the one that jumps. When it ends, that is an alarm, too.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::Value;

use crate::otlp_metrics::noise;
use crate::{ANY, Agent, HEARTBEAT_MS, WAIT, addresses, ask};

const FILES: u64 = 40;
const CODES: [&str; 5] = ["200", "201", "301", "404", "500"];
const GAUGES: u64 = 150;
const BOUNDS: [&str; 8] = ["0.005", "0.01", "0.05", "0.1", "0.5", "1", "5", "+Inf"];

/// A program with about 500 series. Its values move with each scrape, the same in each run.
#[derive(Debug, Default)]
struct Program {
    scrapes: AtomicU64,
    /// Whether requests fail from now on.
    fails: AtomicBool,
    failed: AtomicU64,
    /// Whether it takes requests and never answers.
    hangs: AtomicBool,
    has_ended: AtomicBool,
}

impl Program {
    fn page(&self) -> String {
        let scrape = self.scrapes.fetch_add(1, Ordering::Relaxed) + 1;
        if self.fails.load(Ordering::Relaxed) {
            self.failed.fetch_add(40 + noise(scrape, 10), Ordering::Relaxed);
        }
        let mut text = String::from("# HELP shop_requests_total Requests.\n# TYPE shop_requests_total counter\n");
        for file in 0..FILES {
            for (code, part) in CODES.iter().zip([1, 8, 9, 50, 1_000_000]) {
                let count = (scrape * (10 + file) + noise(scrape + file, 5)) / part;
                _ = writeln!(text, "shop_requests_total{{path=\"/{file}\",code=\"{code}\"}} {count}");
            }
        }
        text.push_str("# TYPE shop_depth gauge\n");
        for queue in 0..GAUGES {
            _ = writeln!(text, "shop_depth{{queue=\"{queue}\"}} {}", 20 + noise(scrape * 1_000 + queue, 10));
        }
        text.push_str("# TYPE shop_duration_seconds histogram\n");
        for path in 0..10_u64 {
            let values = scrape * (20 + path);
            for (place, bound) in (1_u64..).zip(BOUNDS) {
                let below = values * place / BOUNDS.len() as u64;
                _ = writeln!(text, "shop_duration_seconds_bucket{{path=\"/{path}\",le=\"{bound}\"}} {below}");
            }
            _ = writeln!(text, "shop_duration_seconds_sum{{path=\"/{path}\"}} {}", values as f64 * 0.07);
            _ = writeln!(text, "shop_duration_seconds_count{{path=\"/{path}\"}} {values}");
        }
        let failed = self.failed.load(Ordering::Relaxed);
        _ = writeln!(text, "# TYPE shop_errors_total counter\nshop_errors_total{{kind=\"payment\"}} {failed}");
        _ = writeln!(text, "# TYPE shop_info gauge\nshop_info{{version=\"1\"}} 1\nshop_limit 4096");
        text
    }

    /// Answers requests of one connection until the program ends.
    fn answer(&self, stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let mut writer = stream;
        loop {
            let mut line = String::new();
            loop {
                line.clear();
                if reader.read_line(&mut line).ok()? == 0 {
                    return None;
                }
                if line == "\r\n" {
                    break;
                }
            }
            if self.has_ended.load(Ordering::Relaxed) {
                return None;
            }
            while self.hangs.load(Ordering::Relaxed) {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            let page = self.page();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\n\r\n",
                page.len()
            );
            writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(page.as_bytes())).ok()?;
        }
    }

    fn start() -> (Arc<Self>, SocketAddr) {
        let program = Arc::new(Self::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let own = Arc::clone(&program);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if own.has_ended.load(Ordering::Relaxed) {
                    return;
                }
                let program = Arc::clone(&own);
                std::thread::spawn(move || program.answer(stream));
            }
        });
        (program, address)
    }
}

/// The LMAP of the service.
fn lmap(runtime_dir: &Path) -> Option<Value> {
    crate::lmap(runtime_dir, "shop")
}

/// The alarm whose reasons name `metric`.
fn alarm(runtime_dir: &Path, metric: &str) -> Option<Value> {
    crate::alarm(runtime_dir, "shop", metric)
}

/// Both agents, and a program whose endpoint they watch.
struct Watched {
    folder: tempfile::TempDir,
    program: Arc<Program>,
    _agents: [Agent; 2],
}

impl Watched {
    /// Once the LMAP is armed.
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let (host_config, nic_config) = (folder.path().join("host.yaml"), folder.path().join("nic.yaml"));
        let (program, address) = Program::start();
        let text = format!(
            "runtime_dir: {}\nmetrics: {ANY}\nlmap: {{interval_ms: 100}}\n\
             services: {{heartbeat_ms: {HEARTBEAT_MS}}}\nsources: {{prometheus: {{targets: [{{service: shop, url: 'http://{address}/metrics', interval_ms: 100, \
             learn_scrapes: 30}}]}}}}\n",
            run.display()
        );
        std::fs::write(&host_config, text).unwrap();
        let host = Agent::start("host-agent", &host_config);
        let ready = addresses(&run);
        let (control, regions) = (ready["control"].as_str().unwrap(), ready["regions"].as_str().unwrap());
        let text = format!("control: {{address: '{control}'}}\nregions_socket: {regions}\nmetrics: {ANY}\n");
        std::fs::write(&nic_config, text).unwrap();
        let nic = Agent::start("nic-agent", &nic_config);
        WAIT.until("the LMAP is armed", || lmap(&run).filter(|lmap| lmap["state"] == "armed"));
        Self { folder, program, _agents: [host, nic] }
    }

    fn runtime_dir(&self) -> PathBuf {
        self.folder.path().join("run")
    }
}

#[test]
fn a_program_that_only_exposes_metrics_is_watched_and_its_errors_are_named() {
    let watched = Watched::start();
    let (run, program) = (watched.runtime_dir(), &watched.program);
    let sources = ask(&run, &["sources"]).unwrap();
    let shop = &sources[0];
    assert_eq!((&shop["state"], &shop["failed_scrapes"]), (&"watching".into(), &0.into()), "{shop}");
    let number = |name: &str| shop[name].as_u64().unwrap();
    assert!(number("samples") > 450 && number("columns") <= 150 && number("watched") > 20, "{shop}");
    let why = |family: &str| {
        let families = shop["families"].as_array().unwrap();
        families.iter().find(|of| of["name"] == family).unwrap()["why"].as_str().unwrap().to_owned()
    };
    assert_eq!((why("shop_limit").as_str(), why("shop_errors_total").as_str()), ("constant", "summed up"));
    assert!(why("shop_requests_total").contains("8 watched"), "{}", why("shop_requests_total"));

    program.fails.store(true, Ordering::Relaxed);
    WAIT.until("the alarm names the errors", || alarm(&run, "shop_errors_total"));

    // Long before the deadline of five seconds: a failed scrape in fifty rows would be no alarm.
    program.hangs.store(true, Ordering::Relaxed);
    WAIT.until("the alarm names the scrapes without an answer", || alarm(&run, "scrape_failures"));
    program.hangs.store(false, Ordering::Relaxed);
    WAIT.until("the alarm is over", || lmap(&run).filter(|lmap| lmap["alarm"] == false));

    program.has_ended.store(true, Ordering::Relaxed);
    WAIT.until("the alarm names the failed scrapes", || alarm(&run, "scrape_failures"));
    let status = ask(&run, &["status"]).unwrap();
    let problems = status["problems"].as_array().unwrap();
    assert!(problems.iter().any(|problem| problem.as_str().unwrap().contains("is down since")), "{problems:?}");
}

#[test]
fn a_program_that_restarts_is_another_replica_and_no_anomaly() {
    let watched = Watched::start();
    let run = watched.runtime_dir();
    let before = lmap(&run).unwrap();

    watched.program.scrapes.store(0, Ordering::Relaxed);
    let after = WAIT.until("another LMAP judges by what was learnt", || {
        lmap(&run).filter(|lmap| lmap["lmap"] != before["lmap"] && lmap["state"] == "armed")
    });

    assert_eq!((&after["alarm"], &after["alarms"]), (&false.into(), &0.into()), "{after}");
    let sources = ask(&run, &["sources"]).unwrap();
    assert_eq!(sources[0]["restarts"], 1, "{sources}");
}
