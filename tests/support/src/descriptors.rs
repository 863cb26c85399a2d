//! A process that runs out of descriptors, and what a server has to do meanwhile.

use std::fs::File;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::clock::Stopwatch;
use crate::virtual_time::AT_ONCE;
use crate::wait::Wait;

/// Descriptors of a process that shall run out of them.
const MAX_FILES: u64 = 64;
/// Attempts to accept that are waited for.
const ATTEMPTS: u32 = 5;
/// How it waits for a condition.
const WAIT: Wait = Wait::up_to(Duration::from_secs(30));

/// Lowers this process's limit of descriptors.
///
/// # Panics
///
/// The system refuses it.
pub fn lower_limit() {
    let limit = Rlimit { current: Some(MAX_FILES), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).expect("any process may lower its limit");
}

/// Takes all descriptors that are left. They are free again when the files are dropped.
///
/// # Panics
///
/// Something else than the limit ends it.
#[must_use]
pub fn take_all() -> Vec<File> {
    let mut taken = Vec::new();
    let error = loop {
        match File::open("/dev/null") {
            Ok(file) => taken.push(file),
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), Some(Errno::MFILE.raw_os_error()));
    taken
}

/// A request after which the connection stays open, and its answer.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// The whole request.
    pub request: &'static [u8],
    /// How the answer begins.
    pub answer: &'static [u8],
}

impl Exchange {
    /// Asks once more, and reads until so many `answers` are in `bytes`.
    async fn ask(self, stream: &mut TcpStream, bytes: &mut Vec<u8>, answers: usize) {
        stream.write_all(self.request).await.expect("it is open");
        while bytes.windows(self.answer.len()).filter(|window| *window == self.answer).count() < answers {
            let read = timeout(AT_ONCE, stream.read_buf(bytes)).await.expect("an answer");
            assert!(read.expect("it is open") > 0, "it was closed after {bytes:?}");
        }
    }
}

/// Proves that a server waits between attempts to accept while descriptors lack, serves who is connected, and goes on
/// afterwards; three requests are answered. It listens at `address`, runs on this thread, rests for `pause` after an
/// attempt, and says how many `failed`. The limit has to be lowered before.
///
/// # Panics
///
/// The server does something else.
pub async fn run_out(address: SocketAddr, exchange: Exchange, pause: Duration, failed: impl Fn() -> u64) {
    let (mut connected, mut said) = (TcpStream::connect(address).await.expect("it listens"), Vec::new());
    exchange.ask(&mut connected, &mut said, 1).await;
    // Nothing is awaited from here on until all descriptors are taken: the server, on this thread, accepts nothing.
    let newcomer = std::net::TcpStream::connect(address).expect("it listens");
    newcomer.set_nonblocking(true).expect("it is a socket");
    let taken = take_all();

    let clock = Stopwatch::start();
    WAIT.until_async("attempts to accept", async || failed() >= u64::from(ATTEMPTS)).await;
    let elapsed = clock.elapsed();
    exchange.ask(&mut connected, &mut said, 2).await;
    drop(taken);

    assert!(elapsed >= pause * (ATTEMPTS - 1), "{ATTEMPTS} attempts in {elapsed:?}");
    let mut newcomer = TcpStream::from_std(newcomer).expect("a runtime");
    exchange.ask(&mut newcomer, &mut Vec::new(), 1).await;
}
