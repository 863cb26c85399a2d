//! The programs, each with its load and its exporter, in a folder of their own. Nothing of the distribution's services
//! is used but the programs.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use procfs::process::{Process as Proc, all_processes};
use rustix::process::{Pid, Signal, kill_process};
use support::clock::Stopwatch;

use super::cgroup::Cgroup;
use super::probe;
use super::schedule::Program;
use crate::clients::shop::{Process, ending_with_us, free};

/// Limit for a program to listen, and for a command of its set-up.
const START: Duration = Duration::from_mins(1);
/// How long an answer to a first request is waited for.
const PATIENCE: Duration = Duration::from_millis(200);
/// A load's part of a core, in percent, so that the programs are busy and not saturated.
const LOAD_PERCENT: u32 = 10;
/// Where Debian has programs that are in nobody's PATH.
pub const FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/lib/postgresql/15/bin"];
/// More requests than a run has time for.
const FOR_EVER: &str = "2000000000";

/// The path of a program.
pub fn program(name: &str) -> Option<PathBuf> {
    let found = Command::new("sh").args(["-c", "command -v \"$0\"", name]).output().ok();
    let found = found.and_then(|output| String::from_utf8(output.stdout).ok());
    let in_path = found.map(|path| PathBuf::from(path.trim_end()));
    in_path.into_iter().chain(FOLDERS.map(|folder| Path::new(folder).join(name))).find(|path| path.is_file())
}

impl Program {
    /// What it takes: the program, its load, its exporter.
    pub const fn needs(self) -> &'static [&'static str] {
        match self {
            Self::Redis => &["redis-server", "redis-cli", "redis-benchmark", "prometheus-redis-exporter"],
            Self::Nginx => &["nginx", "wrk", "prometheus-nginx-exporter"],
            Self::Postgres => &["postgres", "initdb", "psql", "pgbench", "prometheus-postgres-exporter"],
        }
    }

    /// Why it cannot be run here.
    pub fn missing(self) -> Option<String> {
        let missing: Vec<_> = self.needs().iter().filter(|name| program(name).is_none()).copied().collect();
        if !missing.is_empty() {
            return Some(format!("not installed: {}", missing.join(", ")));
        }
        let is_root = rustix::process::geteuid().is_root();
        (self == Self::Postgres && !is_root).then(|| "root starts it as the user `postgres`".to_owned())
    }
}

/// A command of the program called `name`, which ends with this process.
pub fn command(name: &str) -> Result<Command> {
    Ok(ending_with_us(program(name).with_context(|| format!("{name} is not installed"))?))
}

/// As [`command`], by the user postgres.
fn as_postgres(name: &str) -> Result<Command> {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig", "KILL", "--"]);
    command.arg(program(name).with_context(|| format!("{name} is not installed"))?);
    Ok(command)
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed ({}): {text}", output.status);
    Ok(())
}

/// Waits until somebody listens.
pub fn listens(address: SocketAddr) -> Result<()> {
    let clock = Stopwatch::start();
    while TcpStream::connect(address).is_err() {
        ensure!(clock.elapsed() < START, "no process listens at {address}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A program that runs, with its load.
#[derive(Debug)]
pub struct RunningProgram {
    pub program: Program,
    folder: PathBuf,
    pub address: SocketAddr,
    process: Process,
    load: Vec<Process>,
    /// Whose limit can be lowered; or why there is none.
    pub memory: Result<Cgroup, String>,
    cpu: Result<Cgroup, String>,
    /// Where its exporter answers.
    pub exporter: SocketAddr,
    pub exporter_process: Process,
    /// Whether the load has to be there.
    loaded: bool,
}

impl RunningProgram {
    /// Starts it below `folder`, with its exporter and without load.
    pub fn start(program: Program, folder: &Path) -> Result<Self> {
        let folder = folder.join(program.name());
        fs::create_dir(&folder)?;
        let [address, exporter] = free()?;
        prepare(program, &folder, address)?;
        let memory = Cgroup::new("memory", program.name());
        let cpu = Cgroup::new("cpu", program.name());
        if let Ok(cpu) = &cpu {
            cpu.set("cpu.cfs_quota_us", &(LOAD_PERCENT * 1000).to_string())?;
        }
        let process = start(program, &folder, address, memory.as_ref().ok())?;
        let exporter_process = start_exporter(program, &folder, address, exporter)?;
        let load = Vec::new();
        let loaded = false;
        let mut this =
            Self { program, folder, address, process, load, memory, cpu, exporter, exporter_process, loaded };
        if program == Program::Postgres {
            let mut pgbench = this.client("pgbench")?;
            succeed(pgbench.args(["--initialize", "--quiet", "--scale", "5"]))?;
            succeed(this.client("psql")?.args(["--command", probe::TABLE]))?;
        }
        this.loaded = true;
        this.tend()?;
        Ok(this)
    }

    /// A part of its command line that no other process has.
    pub fn words(&self) -> String {
        match self.program {
            Program::Redis => format!("redis-server {}", self.address),
            Program::Nginx | Program::Postgres => configuration(self.program, &self.folder),
        }
    }

    /// Its process and the children of that.
    pub fn processes(&self) -> Vec<u32> {
        let root = self.process.id();
        let is_child = |process: &Proc| process.stat().is_ok_and(|stat| stat.ppid as u32 == root);
        let all = all_processes().into_iter().flatten().filter_map(Result::ok);
        std::iter::once(root).chain(all.filter(is_child).map(|process| process.pid as u32)).collect()
    }

    /// Sends `signal` to all of them.
    pub fn signal(&self, signal: Signal) {
        for process in self.processes() {
            // Fails if it has ended meanwhile.
            _ = Pid::from_raw(process as i32).map(|pid| kill_process(pid, signal));
        }
    }

    /// Kills it, and starts it anew at once.
    pub fn restart(&mut self) -> Result<()> {
        // After SIGKILL, PostgreSQL would find its own memory in use.
        let signal = if self.program == Program::Postgres { Signal::QUIT } else { Signal::KILL };
        self.signal(signal);
        let clock = Stopwatch::start();
        while self.process.runs() {
            ensure!(clock.elapsed() < START, "{} does not end", self.program);
            std::thread::sleep(Duration::from_millis(5));
        }
        self.start_again()
    }

    fn start_again(&mut self) -> Result<()> {
        self.process = start(self.program, &self.folder, self.address, self.memory.as_ref().ok())?;
        Ok(())
    }

    /// Starts it again if it has ended.
    pub fn revive(&mut self) -> Result<()> {
        if self.process.runs() { Ok(()) } else { self.start_again() }
    }

    /// Starts its load again if a part of it has ended, as it does when the program ends.
    pub fn tend(&mut self) -> Result<()> {
        let is_whole = !self.load.is_empty() && self.load.iter_mut().all(Process::runs);
        if self.loaded && !is_whole && self.takes_requests() {
            self.load.clear();
            self.load = self.loads()?;
        }
        Ok(())
    }

    /// Whether it listens, and does not read its data first, as Redis does: a benchmark would end at once.
    fn takes_requests(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(self.address) else { return false };
        if self.program != Program::Redis {
            return true;
        }
        let mut answer = [0; 5];
        stream.set_read_timeout(Some(PATIENCE)).is_ok()
            && stream.write_all(b"PING\r\n").is_ok()
            && stream.read_exact(&mut answer).is_ok()
            && answer == *b"+PONG"
    }

    fn loads(&self) -> Result<Vec<Process>> {
        let commands = match self.program {
            Program::Redis => {
                let of = |words: &[&str]| -> Result<Command> {
                    let mut benchmark = self.client("redis-benchmark")?;
                    benchmark.args(["-c", "4", "-n", FOR_EVER, "-r", "10000"]).args(words);
                    Ok(benchmark)
                };
                vec![of(&["-d", "64", "-t", "set"])?, of(&["-t", "get"])?]
            }
            Program::Nginx => {
                let mut wrk = self.client("wrk")?;
                wrk.args(["-t1", "-c8", "-d", "24h"]).arg(format!("http://{}/page.html", self.address));
                vec![wrk]
            }
            Program::Postgres => {
                let mut pgbench = self.client("pgbench")?;
                pgbench.args(["--no-vacuum", "--client=4", "--jobs=1", "--time=86400", "--rate=100"]);
                vec![pgbench]
            }
        };
        let log = self.folder.join("load.log");
        let start = |mut command: Command| {
            let process = Process::start(&mut command, &log)?;
            if let Ok(cpu) = &self.cpu {
                cpu.add(process.id())?;
            }
            Ok(process)
        };
        commands.into_iter().map(start).collect()
    }

    /// A command of a client with its address.
    pub fn client(&self, name: &str) -> Result<Command> {
        let (host, port) = (self.address.ip().to_string(), self.address.port().to_string());
        let mut client = command(name)?;
        match name {
            "pgbench" | "psql" => {
                client.args(["--host", &host, "--port", &port, "--username", "postgres"]);
                client.env("PGDATABASE", "postgres");
            }
            "wrk" => {}
            _ => _ = client.args(["-h", &host, "-p", &port]),
        }
        Ok(client)
    }

    /// The command of a flood of connections, each for one request.
    pub fn flood(&self) -> Result<Command> {
        Ok(match self.program {
            Program::Redis => {
                let mut benchmark = self.client("redis-benchmark")?;
                benchmark.args(["-c", "400", "-k", "0", "-n", FOR_EVER, "-t", "get"]);
                benchmark
            }
            Program::Nginx => {
                let mut wrk = self.client("wrk")?;
                wrk.args(["-t1", "-c400", "-d", "24h", "-H", "Connection: close"]);
                wrk.arg(format!("http://{}/page.html", self.address));
                wrk
            }
            Program::Postgres => {
                let mut pgbench = self.client("pgbench")?;
                pgbench.args(["--no-vacuum", "--connect", "--select-only", "--client=60", "--time=86400"]);
                pgbench
            }
        })
    }

    /// The command of clients that make it need more memory.
    pub fn growth(&self) -> Result<Command> {
        Ok(if self.program == Program::Redis {
            let mut benchmark = self.client("redis-benchmark")?;
            benchmark.args(["-c", "8", "-n", FOR_EVER, "-r", "100000000", "-d", "65536", "-t", "set"]);
            benchmark
        } else {
            let mut pgbench = self.client("pgbench")?;
            let script = self.folder.join("growth.sql");
            let sort = "SET work_mem = '1GB'; SELECT count(*) FROM (SELECT DISTINCT md5(n::text) FROM \
                        generate_series(1, 3000000) n) AS sorted;\n";
            fs::write(&script, sort)?;
            pgbench.args(["--no-vacuum", "--client=4", "--time=86400", "--file"]).arg(script);
            pgbench
        })
    }
}

impl Drop for RunningProgram {
    /// Workers of nginx outlive their master if that is killed alone.
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// The part of its command line that says where its configuration or data is.
fn configuration(program: Program, folder: &Path) -> String {
    let file = if program == Program::Nginx { "nginx.conf" } else { "data" };
    folder.join(file).display().to_string()
}

/// Writes what it needs before its first start.
fn prepare(program: Program, folder: &Path, address: SocketAddr) -> Result<()> {
    match program {
        Program::Redis => {}
        Program::Nginx => {
            let shown = folder.display();
            let user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" };
            let text = format!(
                "{user}daemon off;\nworker_processes 2;\npid {shown}/nginx.pid;\nerror_log {shown}/error.log;\nevents {{\n  \
                 worker_connections 1024;\n}}\nhttp {{\n  access_log {shown}/access.log;\n  server {{\n    listen {address};\n    \
                 location / {{ root {shown}; }}\n    location /status {{ stub_status; access_log off; }}\n  }}\n}}\n"
            );
            fs::write(configuration(program, folder), text)?;
            fs::write(folder.join("page.html"), "x".repeat(16 << 10))?;
        }
        Program::Postgres => {
            succeed(Command::new("chown").arg("postgres").arg(folder))?;
            let mut initdb = as_postgres("initdb")?;
            let data = configuration(program, folder);
            succeed(initdb.args(["--auth=trust", "--no-sync", "--pgdata", &data]).current_dir(folder))?;
        }
    }
    Ok(())
}

/// Starts it in the cgroup, and waits until it listens.
fn start(program: Program, folder: &Path, address: SocketAddr, cgroup: Option<&Cgroup>) -> Result<Process> {
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let mut command = match program {
        Program::Redis => {
            let mut redis = command("redis-server")?;
            redis.args(["--bind", &host, "--port", &port, "--save", "", "--appendonly", "yes", "--dir"]);
            redis.arg(folder);
            redis
        }
        Program::Nginx => {
            let mut nginx = command("nginx")?;
            nginx.args(["-e", "stderr", "-c", &configuration(program, folder)]);
            nginx
        }
        Program::Postgres => {
            let mut postgres = as_postgres("postgres")?;
            postgres.args(["-D", &configuration(program, folder), "-h", &host, "-p", &port]);
            for setting in ["shared_buffers=32MB", "max_connections=100"] {
                postgres.args(["-c", setting]);
            }
            postgres.arg("-c").arg(format!("unix_socket_directories={}", folder.display())).current_dir(folder);
            postgres
        }
    };
    let process = Process::start(&mut command, &folder.join("program.log"))?;
    if let Some(cgroup) = cgroup {
        // Before it has children, since setpriv has not yet become the program, or has only just.
        cgroup.add(process.id())?;
    }
    listens(address).with_context(|| format!("{program} does not start, see {}", folder.display()))?;
    Ok(process)
}

fn start_exporter(program: Program, folder: &Path, of: SocketAddr, at: SocketAddr) -> Result<Process> {
    let mut command = match program {
        Program::Redis => {
            let mut exporter = command("prometheus-redis-exporter")?;
            exporter.arg(format!("--redis.addr=redis://{of}")).arg(format!("--web.listen-address={at}"));
            exporter
        }
        Program::Nginx => {
            let mut exporter = command("prometheus-nginx-exporter")?;
            exporter.arg(format!("-nginx.scrape-uri=http://{of}/status")).arg(format!("-web.listen-address={at}"));
            exporter.arg("-nginx.retries=10");
            exporter
        }
        Program::Postgres => {
            let mut exporter = command("prometheus-postgres-exporter")?;
            exporter.arg(format!("--web.listen-address={at}"));
            exporter.env("DATA_SOURCE_NAME", format!("postgresql://postgres@{of}/postgres?sslmode=disable"));
            exporter
        }
    };
    let process = Process::start(&mut command, &folder.join("exporter.log"))?;
    listens(at).with_context(|| format!("the exporter of {program} does not start"))?;
    Ok(process)
}
