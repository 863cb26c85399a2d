//! A demo as somebody starts it who wants to watch.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use demo::fault::{Kind, Pace, plan};
use demo::graph::{Service, Target};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::WAIT;

/// What its output has before the page's address.
const ADDRESS: &str = "watch it live, in one browser (another: `uview open`): ";

/// TCP addresses (IPv4) at which a process listens, from `/proc`.
fn listeners(process: u32) -> Vec<SocketAddr> {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let targets = descriptors.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_str()?.to_owned()));
    let sockets = targets.filter_map(|target| Some(target.strip_prefix("socket:[")?.trim_end_matches(']').to_owned()));
    let sockets: BTreeSet<String> = sockets.collect();
    let table = fs::read_to_string(format!("/proc/{process}/net/tcp")).unwrap_or_default();
    let listening = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        // State 0A: it listens. The ninth column after it is the socket's number.
        let (local, state, socket) = (columns.get(1)?, columns.get(3)?, columns.get(9)?);
        let (host, port) = local.split_once(':').filter(|_| *state == "0A" && sockets.contains(*socket))?;
        let host = u32::from_str_radix(host, 16).ok()?.to_le_bytes();
        Some(SocketAddr::from((Ipv4Addr::from(host), u16::from_str_radix(port, 16).ok()?)))
    };
    table.lines().skip(1).filter_map(listening).collect()
}

/// The page of metrics at `address`; `None` if it has none.
fn metrics_at(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    // A port that waits for more says nothing.
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.ends_with("# EOF\n").then_some(answer)
}

/// The program whose demo is judged: a release, or what the tests have built. The demo runs in a folder of its own, so
/// that a path is to be one from the root.
#[expect(clippy::disallowed_methods, reason = "which program is judged can only be said by the environment")]
fn program() -> PathBuf {
    let Some(named) = std::env::var_os("UVIEW_PROGRAM") else { return env!("CARGO_BIN_EXE_uview").into() };
    let program = PathBuf::from(named);
    let found = program.canonicalize();
    let folder = std::env::current_dir().unwrap();
    assert!(found.is_ok(), "UVIEW_PROGRAM names {}, seen from {}: {found:?}", program.display(), folder.display());
    found.unwrap()
}

/// A running demo. Its children end with it.
pub struct Demo {
    child: RefCell<Child>,
    folder: TempDir,
}

impl Drop for Demo {
    fn drop(&mut self) {
        let mut child = self.child.borrow_mut();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Of the seeds with which `pace` begins with these faults, a hog in the cart, which calls nobody, the one with this
/// number, from 0.
fn seed(pace: &Pace, first: &[Kind], number: usize) -> u64 {
    let begins = |seed: &u64| {
        let plan = plan(*seed, pace);
        let hog = plan.iter().find(|planned| planned.kind == Kind::CpuHog);
        plan.iter().zip(first).all(|(planned, kind)| planned.kind == *kind)
            && hog.is_some_and(|hog| hog.service == Target::Service(Service::Cart))
    };
    (0..100_000).filter(begins).nth(number).unwrap()
}

impl Demo {
    /// Starts it with `arguments`, which mean `pace`. The first faults are `first`; runs of other `number`s have other
    /// seeds.
    pub fn start(arguments: &[&str], pace: &Pace, first: &[Kind], number: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let temporary = folder.path().join("tmp");
        fs::create_dir(&temporary).unwrap();
        let file = |name| File::create(folder.path().join(name)).unwrap();
        let mut command = Command::new(program());
        command.arg("demo").args(arguments).args(["--seed", &seed(pace, first, number).to_string()]);
        command.current_dir(folder.path()).env("TMPDIR", temporary).stdout(file("stdout")).stderr(file("stderr"));
        Self { child: RefCell::new(command.spawn().unwrap()), folder }
    }

    fn printed(&self, file: &str) -> String {
        fs::read_to_string(self.folder.path().join(file)).unwrap()
    }

    /// Fails if it has ended before `what` was seen.
    #[track_caller]
    pub fn assert_runs(&self, what: &str) {
        let ended = self.child.borrow_mut().try_wait().unwrap();
        let printed = || format!("{}\n{}", self.printed("stdout"), self.printed("stderr"));
        assert!(ended.is_none(), "the demo has ended before {what}: {ended:?}:\n{}", printed());
    }

    /// Waits until it has printed `text`, and returns what it has printed.
    #[track_caller]
    pub fn says(&self, text: &str) -> String {
        WAIT.until(&format!("the demo prints {text}"), || {
            self.assert_runs(text);
            let printed = self.printed("stdout");
            if printed.contains(text) { Ok(printed) } else { Err(printed) }
        })
    }

    /// Whether it has printed `text`.
    pub fn has_said(&self, text: &str) -> bool {
        self.printed("stdout").contains(text)
    }

    /// Whether the first alarm of all is that of a hog in the cart, which comes first.
    pub fn is_hog_alone(&self) -> bool {
        let printed = self.printed("stdout");
        let before_fault = printed.split("fault 1: cpu-hog in cart").next().unwrap_or_default();
        let first = printed.lines().find(|line| line.contains(" in alarm"));
        !before_fault.contains(" in alarm") && first.is_some_and(|line| line.contains("cart in alarm"))
    }

    /// The address of its page that it prints, which is good for one browser.
    #[track_caller]
    pub fn first_address(&self) -> String {
        self.says(ADDRESS).split_once(ADDRESS).unwrap().1.lines().next().unwrap().to_owned()
    }

    /// Whether packets go over a link between two services, which takes root: once it has said so.
    #[track_caller]
    pub fn has_link(&self) -> bool {
        WAIT.until("the demo has a link, or says why not", || {
            self.assert_runs("it said whether it has a link");
            let printed = self.printed("stdout");
            let is_open = printed.contains("starting the link");
            (is_open || printed.contains("slow-link is skipped")).then_some(is_open)
        })
    }

    /// A new folder that ends with the demo.
    pub fn folder(&self, name: &str) -> PathBuf {
        let folder = self.folder.path().join(name);
        fs::create_dir(&folder).unwrap();
        folder
    }

    /// Where `agent`, which is a command of `uview`, exports its metrics, and what: the only TCP port at which it
    /// listens that answers so.
    #[track_caller]
    pub fn metrics_page(&self, agent: &str) -> (SocketAddr, String) {
        WAIT.until(&format!("metrics of {agent}"), || {
            self.assert_runs(agent);
            let mut listeners = listeners(self.process(agent)?).into_iter();
            listeners.find_map(|address| Some((address, metrics_at(address)?)))
        })
    }

    /// The process of one of its agents: it runs `uview AGENT --config FILE` with a file in its folder.
    fn process(&self, agent: &str) -> Option<u32> {
        let folder = self.folder.path().to_str().unwrap();
        let runs = |pid: &u32| {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let arguments: Vec<_> = command.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
            arguments.get(1).is_some_and(|first| first == agent) && arguments.iter().any(|one| one.starts_with(folder))
        };
        let names = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
        names.filter_map(|name| name.to_str()?.parse().ok()).find(runs)
    }

    /// What `uview ARGUMENTS` prints of its agent.
    #[track_caller]
    pub fn ask(&self, arguments: &[&str]) -> String {
        let folders = fs::read_dir(self.folder.path().join("tmp")).unwrap();
        let run: PathBuf = folders.map(|entry| entry.unwrap().path().join("run")).find(|run| run.is_dir()).unwrap();
        let mut command = Command::new(program());
        let output = command.args(arguments).env("UVIEW_RUNTIME_DIR", run).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Ends it as Ctrl-C does, while somebody watches.
    pub fn interrupt(&self) {
        let mut child = self.child.borrow_mut();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let ended = WAIT.until("the demo ends", || child.try_wait().unwrap());
        assert_eq!(ended.code(), Some(1), "{}", self.printed("stderr"));
    }
}
