//! A real PostgreSQL: a process for each connection, which the postmaster accepts and never reads.

mod common;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Agent, Program, WAIT, library, output, there_are};

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// The ids of its own user: it refuses to run as root.
fn user() -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let fields: Vec<_> = users.lines().find(|line| line.starts_with("postgres:"))?.split(':').collect();
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
}

struct Postgres {
    folder: PathBuf,
    user: (u32, u32),
    program: Program,
}

impl Postgres {
    fn start(agent: &Agent, user: (u32, u32)) -> Self {
        let folder = agent.folder().to_owned();
        // Where its user may read it.
        let copy = folder.join("libuview_preload.so");
        fs::copy(library(), &copy).expect("the folder is ours");
        let data = folder.join("data");
        let by_user = |command: &mut Command| {
            command.uid(user.0).gid(user.1).current_dir("/");
        };
        let mut initdb = Command::new(Path::new(PROGRAMS).join("initdb"));
        by_user(initdb.args(["--no-sync", "--auth=trust", "-U", "postgres", "-D"]).arg(&data));
        output(&mut initdb);
        let mut command = agent.watch(&format!("{PROGRAMS}/postgres"));
        command.env("LD_PRELOAD", copy).arg("-D").arg(&data).arg("-k").arg(&folder);
        by_user(command.args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "log_min_messages=panic"]));
        let started = Self { folder, user, program: Program::start(&mut command) };
        WAIT.until("PostgreSQL listens", || started.sql("SELECT 1"));
        started
    }

    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(Path::new(PROGRAMS).join(program));
        command.uid(self.user.0).gid(self.user.1).current_dir("/").arg("-h").arg(&self.folder).args(["-U", "postgres"]);
        command
    }

    fn sql(&self, text: &str) -> Result<String, String> {
        let output = self.client("psql").args(["-Atqc", text, "postgres"]).output().expect("psql starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Waits until all is published that was counted before. That no connection is left does not say so: what began and
    /// ended between two looks at the levels was never seen in them. One more, which is seen to come and to go, does.
    #[track_caller]
    fn settles(&self, agent: &Agent) {
        let psql = self.client("psql").arg("postgres").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let mut psql = psql.expect("psql starts");
        agent.reaches("server.connection.count", 1);
        drop(psql.stdin.take());
        assert!(psql.wait().expect("it is ours").success());
        agent.reaches("server.connection.count", 0);
    }
}

#[test]
fn each_process_counts_for_the_postmaster_also_when_one_is_killed() {
    let Some(user) = user().filter(|_| there_are(&["postgres", "initdb", "psql", "pgbench"])) else { return };
    let agent = Agent::start();
    let mut postgres = Postgres::start(&agent, user);
    output(postgres.client("pgbench").args(["-i", "-q", "postgres"]));
    // Its connections, and what it asks before and after, are the same each time.
    let turns_of = |transactions: &str| {
        postgres.settles(&agent);
        let before = agent.sum("server.requests");
        output(postgres.client("pgbench").args(["-n", "-S", "-c", "4", "-t", transactions, "postgres"]));
        postgres.settles(&agent);
        agent.sum("server.requests") - before
    };

    let few = turns_of("100");
    let many = turns_of("400");

    assert_eq!(many - few, 4 * 300, "a transaction of one SELECT is a turn");
    let values = agent.values();
    assert_eq!(values["server.requests{outcome=\"unknown\"}"], values["server.request.duration"]);
    assert_eq!(agent.sum("server.unseen"), 0);
    assert_eq!(agent.replicas().len(), 1, "only the postmaster has registered");

    let mut sleeping = postgres.client("psql");
    let mut sleeping = sleeping.args(["-c", "SELECT pg_sleep(600)", "postgres"]).stderr(Stdio::null()).spawn();
    let query = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(600)%'";
    let pid = WAIT.until("it sleeps", || postgres.sql(query).ok().filter(|pid| !pid.is_empty()));
    agent.reaches("server.connection.count", 1);
    output(Command::new("kill").args(["-KILL", &pid]));
    let _ = sleeping.as_mut().expect("psql starts").wait();
    WAIT.until("PostgreSQL starts its processes again", || postgres.sql("SELECT 1"));
    postgres.settles(&agent);
    let before = agent.sum("server.requests");
    postgres.sql("SELECT 1").expect("it answers");
    // The start of the connection, and the query.
    agent.reaches("server.requests", before + 2);
    assert!(postgres.program.0.try_wait().expect("it is ours").is_none());
}
