//! What the library takes of a real Redis' throughput: three servers that run at once, one of them watched, are asked
//! by turns in slices of some milliseconds. A machine that is slower for a while is slower for all three, so the ratio
//! of two neighbouring slices does not see it; two servers without the library say what noise is left.
//!
//! `cargo bench -p uview-preload --bench redis`, with `redis-server` on the `PATH`
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::wait::Wait;

/// Rounds of one slice of each server.
const ROUNDS: usize = 500;
/// Requests of a slice on each connection.
const REQUESTS: u32 = 250;
/// Connections to each server, which has their requests at once.
const CONNECTIONS: usize = 8;
const QUESTION: &[u8] = b"*2\r\n$3\r\nGET\r\n$5\r\nkey:1\r\n";
const ANSWER: &[u8] = b"$5\r\nvalue\r\n";

/// A server, which ends with it, and connections to it.
struct Redis {
    process: Child,
    connections: Vec<UnixStream>,
}

impl Redis {
    /// Starts one in `folder`, with `library` preloaded.
    fn start(folder: &Path, name: &str, library: Option<&Path>) -> Option<Self> {
        let socket = folder.join(name);
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket).arg("--dir").arg(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        if let Some(library) = library {
            command.env("LD_PRELOAD", library).env("UVIEW_SOCKET", "/nonexistent");
        }
        let process = command.spawn().ok()?;
        let mut redis = Self { process, connections: Vec::new() };
        let wait = Wait::up_to(Duration::from_mins(1));
        for _ in 0..CONNECTIONS {
            redis.connections.push(wait.until("Redis listens", || UnixStream::connect(&socket)));
        }
        let first = redis.connections.first_mut().expect("there are connections");
        first.write_all(b"*3\r\n$3\r\nSET\r\n$5\r\nkey:1\r\n$5\r\nvalue\r\n").expect("it is open");
        let mut done = [0; 5];
        first.read_exact(&mut done).expect("Redis answers");
        assert_eq!(&done, b"+OK\r\n", "the key is set");
        Some(redis)
    }

    /// Nanoseconds of a request in a slice.
    fn slice(&mut self) -> f64 {
        let mut answer = [0; ANSWER.len()];
        let start = Instant::now();
        for _ in 0..REQUESTS {
            for connection in &mut self.connections {
                connection.write_all(QUESTION).expect("it is open");
            }
            for connection in &mut self.connections {
                connection.read_exact(&mut answer).expect("Redis answers");
            }
        }
        let took = start.elapsed().as_nanos() as f64;
        assert_eq!(answer, ANSWER, "Redis has the key");
        took / f64::from(REQUESTS) / CONNECTIONS as f64
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The values at a quarter, the half and three quarters of all.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[values.len() * quarter / 4])
}

fn main() {
    let program = std::env::current_exe().expect("a program knows where it is");
    let library = program.with_file_name("libuview_preload.so");
    assert!(library.is_file(), "{} is not there", library.display());
    let folder = tempfile::tempdir().expect("a folder can be made");
    let servers = [("without", None), ("with", Some(library.as_path())), ("again", None)];
    let started = servers.map(|(name, library)| Redis::start(folder.path(), name, library));
    let [Some(without), Some(with), Some(again)] = started else {
        println!("not run: redis-server does not start");
        return;
    };
    let mut servers = [without, with, again];
    // The library registers, and caches fill.
    for _ in 0..ROUNDS / 10 {
        for server in &mut servers {
            server.slice();
        }
    }
    let mut rounds: Vec<[f64; 3]> = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        // Each is as often the first, and as often after each of the others.
        let order = [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1], [2, 0, 1], [1, 0, 2]][round % 6];
        let mut took = [0.0; 3];
        for at in order {
            took[at] = servers[at].slice();
        }
        rounds.push(took);
    }
    for (at, name) in ["without the library", "with it", "without it, another server"].into_iter().enumerate() {
        let [low, middle, high] = quartiles(rounds.iter().map(|took| took[at]).collect());
        println!("{name}: {middle:.0} ns a request, half of the slices {low:.0} to {high:.0}");
    }
    for (at, name) in [(1, "with the library"), (2, "the other server")] {
        let [low, middle, high] = quartiles(rounds.iter().map(|took| took[at] / took[0]).collect());
        println!("{name}: {middle:.3} times, half of the rounds {low:.3} to {high:.3}");
    }
}
