//! What the library adds to a call: the same program with and without it, by turns in one run.
//!
//! `cargo bench -p uview-preload`
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::time::Instant;

const ROUNDS: usize = 7;
const TURNS: u32 = 200_000;
const CALLS: u32 = 1_000_000;
const CONNECTIONS: u32 = 20_000;
const FILES: u32 = 200_000;

/// Calls among which what is added is divided. Of a turn, those of the server: its client's two, whose bytes are
/// counted only, make it seem to be more.
const WHAT: [(&str, f64); 4] = [
    ("turn: a read and a write", 2.0),
    ("read of a file", 1.0),
    ("connection: a connect, an accept and two closes", 4.0),
    ("open and close of a file", 1.0),
];

/// Nanoseconds of a turn of Redis: a read and a write of an accepted connection, and as much by its client.
///
/// Before others: from here on a thread of the library publishes.
fn turn() -> f64 {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).expect("the folder is there");
    let mut client = UnixStream::connect(&path).expect("it listens");
    let (mut server, _) = listener.accept().expect("it has connected");
    let (question, answer) = (b"*2\r\n$3\r\nGET\r\n$5\r\nkey:1\r\n", b"$5\r\nvalue\r\n");
    let mut buffer = [0; 64];
    // Registered, so that counts go to the region.
    for _ in 0..30 {
        turns_of(1_000, &mut client, &mut server, question, answer, &mut buffer);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let start = Instant::now();
    turns_of(TURNS, &mut client, &mut server, question, answer, &mut buffer);
    start.elapsed().as_nanos() as f64 / f64::from(TURNS)
}

fn turns_of(
    turns: u32,
    client: &mut UnixStream,
    server: &mut UnixStream,
    question: &[u8],
    answer: &[u8],
    buffer: &mut [u8],
) {
    for _ in 0..turns {
        client.write_all(question).expect("it is open");
        let _ = server.read(buffer).expect("it is open");
        server.write_all(answer).expect("it is open");
        let _ = client.read(buffer).expect("it is open");
    }
}

/// Nanoseconds of a read of a file, which is no connection.
fn file() -> f64 {
    let mut zeros = File::open("/dev/zero").expect("it is there");
    let mut buffer = [0; 8];
    let start = Instant::now();
    for _ in 0..CALLS {
        let _ = zeros.read(&mut buffer).expect("it has no end");
    }
    start.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

/// Nanoseconds of a connection that is accepted and closed, and opened and closed by its client.
fn connection() -> f64 {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).expect("the folder is there");
    let start = Instant::now();
    for _ in 0..CONNECTIONS {
        let client = UnixStream::connect(&path).expect("it listens");
        let (server, _) = listener.accept().expect("it has connected");
        drop(server);
        drop(client);
    }
    start.elapsed().as_nanos() as f64 / f64::from(CONNECTIONS)
}

/// Nanoseconds of a file that is opened and closed, which is no connection.
fn closed_file() -> f64 {
    let start = Instant::now();
    for _ in 0..FILES {
        drop(File::open("/dev/zero").expect("it is there"));
    }
    start.elapsed().as_nanos() as f64 / f64::from(FILES)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    if std::env::args().any(|argument| argument == "--measure") {
        println!("{} {} {} {}", turn(), file(), connection(), closed_file());
        return;
    }
    let program = std::env::current_exe().expect("a program knows where it is");
    let library = program.with_file_name("libuview_preload.so");
    assert!(library.is_file(), "{} is not there", library.display());
    let measure = |with: bool| -> Vec<f64> {
        let mut command = Command::new(&program);
        command.arg("--measure").env("UVIEW_SOCKET", "/nonexistent");
        if with {
            command.env("LD_PRELOAD", &library);
        }
        let output = command.output().expect("it starts").stdout;
        let text = String::from_utf8(output).expect("it prints text");
        text.split_whitespace().map(|word| word.parse().expect("a number")).collect()
    };
    let rounds: Vec<_> = (0..ROUNDS).map(|_| [measure(false), measure(true)]).collect();
    for (at, (what, calls)) in WHAT.into_iter().enumerate() {
        let [without, with] = [0_usize, 1].map(|loaded| median(rounds.iter().map(|round| round[loaded][at]).collect()));
        let added = (with - without) / calls;
        println!(
            "{what}: {without:.0} ns without, {with:.0} ns with, {:.3} times; {added:.1} ns a call",
            with / without
        );
    }
}
