//! This program as a second process, which takes commands on its standard input and writes results to its standard
//! output.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _, stdin};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use prost::Message as _;
use region::OwnedRegion;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use wire::id::RegionId;
use wire::layout::RegionSize;
use wire::proto::control::QueuePair;
use wire::rdma::Endpoint;

use super::super::{accepted, device, library, psn, region, store};
use crate::verbs::{Device, DeviceChoice, DeviceError, RegisterError, RegisteredRegion, UnusableDevice, VerbsHost};

/// Prefix of a child's own lines; the test harness writes other lines.
const MARK: &str = "CHILD ";

/// A second process, killed when dropped.
pub struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts this program as the ignored test `role`, as user `uid`.
    pub fn start(role: &str, uid: u32) -> Self {
        let name = format!("verbs::tests::device::child::{role}");
        let program = std::env::current_exe().expect("a program has a name");
        let mut child = Command::new(program)
            .args([&name, "--exact", "--ignored", "--nocapture"])
            .uid(uid)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("processes are left");
        let (input, output) = (child.stdin.take().expect("it is piped"), child.stdout.take().expect("it is piped"));
        Self { child, input, output: BufReader::new(output) }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn write_line(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the child reads");
    }

    /// Reads the next line of the child itself.
    pub fn read_line(&mut self) -> String {
        let mut line = String::new();
        while self.output.read_line(&mut line).expect("the child writes text") > 0 {
            if let Some((_, text)) = line.split_once(MARK) {
                return text.trim().to_owned();
            }
            line.clear();
        }
        panic!("the child writes nothing more")
    }

    /// Kills it at once.
    pub fn kill(mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
    }

    /// Waits until it ends. Returns whether its test passed.
    pub fn passes(mut self) -> bool {
        self.child.wait().expect("a child can be waited for").success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub fn line(end: &Endpoint) -> String {
    let bytes: Vec<_> = QueuePair::from(end).encode_to_vec().iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.concat()
}

pub fn end(line: &str) -> Endpoint {
    let bytes: Vec<_> =
        (0..line.len()).step_by(2).map(|at| u8::from_str_radix(&line[at..at + 2], 16).unwrap()).collect();
    Endpoint::decode(Some(&QueuePair::decode(bytes.as_slice()).unwrap())).unwrap()
}

/// Where the region of a [`host`] is.
pub fn registered(line: &str) -> RegisteredRegion {
    let (address, rkey) = line.split_once(' ').unwrap();
    RegisteredRegion { address: address.parse().unwrap(), rkey: rkey.parse().unwrap() }
}

fn print_line(line: &str) {
    println!("{MARK}{line}");
}

#[test]
#[ignore = "is started by others: a host with a region whose first slot is 7, which answers one worker after the other"]
fn host() {
    let (mut host, service) = (VerbsHost::new(&device()).unwrap(), region());
    store(&service, 7);
    let RegisteredRegion { address, rkey } = host.register(RegionId(1), &accepted(&service)).unwrap();
    print_line(&format!("{address} {rkey}"));
    for worker in stdin().lines().map_while(Result::ok) {
        print_line(&line(&host.answer(psn(), &end(&worker)).unwrap()));
    }
}

#[test]
#[ignore = "is started by others: a service whose first slot counts as long as it lives"]
fn service() {
    let region = region();
    print_line(&region.as_fd().as_raw_fd().to_string());
    for count in 1.. {
        store(&region, count);
        region.beat();
        std::thread::yield_now();
    }
}

/// An agent that may lock 64 KiB, with two regions of 32 KiB registered and a third one that is not yet.
fn agent() -> (VerbsHost, [OwnedRegion; 3]) {
    let hard = getrlimit(Resource::Memlock).maximum;
    setrlimit(Resource::Memlock, Rlimit { current: Some(64 << 10), maximum: hard }).unwrap();
    let mut host = VerbsHost::new(&device()).unwrap();
    let size = RegionSize::new(32 << 10).unwrap();
    let regions = [(); 3].map(|()| OwnedRegion::create("test", size).unwrap());
    host.register(RegionId(1), &accepted(&regions[0])).unwrap();
    host.register(RegionId(2), &accepted(&regions[1])).unwrap();
    (host, regions)
}

#[test]
#[ignore = "is started by others: an agent without the right to lock more"]
fn limited() {
    let (mut host, regions) = agent();

    let error = host.register(RegionId(3), &accepted(&regions[2])).unwrap_err();

    assert!(matches!(error, RegisterError::MemoryLimit { limit: 65536, needed: 98304, .. }), "{error}");
    // The others are as they were, and a place that was given back can be used.
    assert_eq!(host.regions(), 2);
    host.deregister(RegionId(1)).unwrap();
    host.register(RegionId(3), &accepted(&regions[2])).unwrap();
    print_line(&error.to_string());
}

#[test]
#[ignore = "is started by others: an agent with the right to lock more, CAP_IPC_LOCK"]
fn privileged() {
    let (mut host, regions) = agent();

    host.register(RegionId(3), &accepted(&regions[2])).unwrap();
}

#[test]
#[ignore = "is started by others: a user without a right to the device"]
fn stranger() {
    let error = Device::open(&library(), &DeviceChoice::default()).unwrap_err();

    assert!(
        matches!(&error, DeviceError::Unusable(all) if matches!(all[..], [UnusableDevice::Open { .. }])),
        "{error}"
    );
    print_line(&error.to_string());
}

/// Opens a descriptor of another process for reading and writing.
pub fn open_of(process: u32, descriptor: &str) -> std::os::fd::OwnedFd {
    let path = format!("/proc/{process}/fd/{descriptor}");
    fs::OpenOptions::new().read(true).write(true).open(path).expect("root may open it").into()
}
