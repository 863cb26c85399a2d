//! `status`, `receipt`, `top` and `record` with a fake agent that replies, stops, and returns.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

mod fake_agent;
mod models;
mod recordings;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use fake_agent::{FakeAgent, status};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use wire::proto::operators::{
    Incident, IncidentChange, IncidentLog, IncidentService, IncidentSpan, IncidentSummary, IncidentTrace,
    IncidentsReply, Reason,
};

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Time limit for each step of the live view; generous, for busy machines.
const PATIENCE: Duration = Duration::from_secs(30);

fn uview(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_uview")).args(arguments).env("NO_COLOR", "1").output().unwrap()
}

#[test]
fn status_prints_an_alarm_as_text_and_json_and_ends_with_2() {
    let directory = tempfile::tempdir().unwrap();
    let agent = FakeAgent::start(ANY_PORT, status());
    let ready = serde_json::json!({ "pid": std::process::id(), "operators": agent.address.to_string() });
    std::fs::write(directory.path().join("host-agent.json"), ready.to_string()).unwrap();
    let runtime_dir = directory.path().to_str().unwrap();

    let text = uview(&["status", "--runtime-dir", runtime_dir]);
    let json = uview(&["status", "--json", "--runtime-dir", runtime_dir]);

    assert_eq!((text.status.code(), json.status.code()), (Some(2), Some(2)));
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("ALARM") && text.contains("payment: alarm, score 99.5, γ 10.0"), "{text}");
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["lmaps"][1]["service"], "payment");
    assert_eq!(json["lmaps"][1]["reasons"][0]["seen"], 37.0);
    assert_eq!(json["problems"].as_array().map(Vec::len), Some(1));
    agent.stop();
}

#[test]
fn open_prints_the_address_and_names_it_to_the_browser_in_a_file_of_its_own() {
    use std::os::unix::fs::PermissionsExt as _;

    let directory = tempfile::tempdir().unwrap();
    let incident = Incident { id: "20261127-064215-123".to_owned(), ..Incident::default() };
    let agent = FakeAgent::with_incident(ANY_PORT, incident, IncidentsReply::default());
    let script = "#!/bin/sh\nout=$(dirname \"$0\")\necho \"$1\" > $out/argument\ncat \"$1\" > $out/text\nstat -c %a \"$(dirname \"$1\")\" > $out/mode\n";
    let opener = directory.path().join("xdg-open");
    std::fs::write(&opener, script).unwrap();
    std::fs::set_permissions(&opener, std::fs::Permissions::from_mode(0o755)).unwrap();
    let address = format!("http://{}", agent.address);
    let open = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
        command.args(["open", "--operators", &address]).args(arguments).env("DISPLAY", ":0");
        command.env("PATH", format!("{}:/usr/bin:/bin", directory.path().display())).output().unwrap()
    };
    let left = |name: &str| std::fs::read_to_string(directory.path().join(name));

    let printed = open(&["--print"]);
    assert_eq!(printed.stdout, b"http://127.0.0.1:9705/open?token=00ff\n");
    assert!(left("argument").is_err(), "no browser is started");
    let opened = open(&[]);

    assert_eq!((opened.status.code(), opened.stdout), (Some(0), printed.stdout));
    assert!(!left("argument").unwrap().contains("token"), "everybody may read the arguments of a process");
    assert!(left("text").unwrap().contains("url=http://127.0.0.1:9705/open?token=00ff"));
    assert_eq!(left("mode").unwrap(), "700\n");
    assert!(!std::path::Path::new(left("argument").unwrap().trim()).exists(), "nothing is left");

    let opened = open(&["20261127-0642"]);
    assert_eq!(opened.stdout, b"http://127.0.0.1:9705/open?token=00ff&incident=20261127-064215-123\n");
    let text = left("text").unwrap();
    assert!(text.contains("url=http://127.0.0.1:9705/open?token=00ff&amp;incident=20261127-064215-123\""), "{text}");
    let none = open(&["1999", "--print"]);
    assert!(!none.status.success() && none.stdout.is_empty(), "{none:?}");
    assert!(String::from_utf8_lossy(&none.stderr).contains("no incident 1999"), "{none:?}");
    agent.stop();
}

#[test]
fn trigger_asks_for_the_traces_of_a_service_and_says_why_an_agent_declines() {
    let agent = FakeAgent::start(ANY_PORT, status());
    let address = agent.address.to_string();
    let trigger = |arguments: &[&str]| {
        let output = uview(&[&["trigger", "--operators", &address], arguments].concat());
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };

    let (code, text) = trigger(&["checkout", "--for", "2m", "--operation", "POST /pay", "--reason", "it is slow"]);
    // A second for each letter of operation and reason.
    let said = "checkout: traces with a span POST /pay of the last 19.0 s and the next 2 min 0 s are kept on this node";
    assert!(code == Some(0) && text.starts_with(said), "{code:?}: {text}");
    for (declined, why) in [
        (&["cart"][..], "no span of cart has come"),
        (&["checkout", "--for", "11m"], "1s to 600s are possible"),
        (&["checkout", "--operation", "full"], "8 requests for traces go on"),
    ] {
        let (code, text) = trigger(declined);
        assert!(code == Some(1) && text.contains(why) && !text.contains("same release"), "{code:?}: {text}");
    }
    assert_eq!(trigger(&["checkout", "--for", "soon"]).0, Some(64));
    agent.stop();
}

#[test]
fn whatever_an_agent_says_it_neither_moves_the_cursor_nor_adds_a_line() {
    let hostile = |what: &str| format!("{what}\n{what}: all is well\u{1b}[2J\u{9b}\u{202e}\u{200b}\u{7}\0");
    let mut reply = status();
    (reply.version, reply.problems) = (hostile("version"), vec![hostile("problem")]);
    reply.workers[0].transport = hostile("transport");
    let lmap = &mut reply.lmaps[1];
    (lmap.service, lmap.state, lmap.points_at) = (hostile("service"), hostile("state"), hostile("peer"));
    (lmap.silent_replicas, lmap.rank) = (vec![hostile("replica")], 1);
    (lmap.reasons[0].column, lmap.reasons[0].unit) = (hostile("column"), hostile("unit"));
    let agent = FakeAgent::start(ANY_PORT, reply);
    let address = agent.address.to_string();

    for command in [&["status"][..], &["status", "--json"], &["top", "--once"], &["check"]] {
        let output = uview(&[command, &["--operators", &address]].concat());

        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let odd = text.chars().find(|&c| c != '\n' && !wire::printable::is_printable(c));
        assert_eq!(odd, None, "{command:?}: {text:?}");
        assert!(!text.lines().any(|line| line.contains(": all is well") && !line.contains("\\u{a}")), "{text}");
        assert!(text.contains("service\\u{a}") || text.contains("service\\\\u{a}") || command[0] == "check", "{text}");
    }
    agent.stop();
}

#[test]
fn an_incident_of_a_hostile_agent_is_text_on_the_terminal_and_in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let hostile =
        |what: &str| format!("{what}\n{what}: all is well\u{1b}[2J\u{202e}</style><script>window.hit=1</script>");
    let service = IncidentService {
        service: hostile("service"),
        points_at: hostile("peer"),
        silent_replicas: vec![hostile("replica")],
        metrics: vec![Reason { column: hostile("column"), unit: hostile("unit"), ..Reason::default() }],
        ..IncidentService::default()
    };
    let change = IncidentChange { text: hostile("change"), kind: hostile("kind"), ..IncidentChange::default() };
    let span = IncidentSpan { service: hostile("service"), name: hostile("span"), ..IncidentSpan::default() };
    let trace = IncidentTrace {
        id: hostile("trace"),
        policy: hostile("policy"),
        reason: hostile("reason"),
        spans: vec![span],
        ..IncidentTrace::default()
    };
    let log = IncidentLog {
        service: hostile("logger"),
        text: hostile("text"),
        reason: hostile("why"),
        level: hostile("level"),
        ..IncidentLog::default()
    };
    let incident = Incident {
        id: "20261127-064215-123".to_owned(),
        node: hostile("node"),
        cause: hostile("cause"),
        services: vec![service],
        changes: vec![change],
        traces: vec![trace],
        logs: vec![log],
        ..Incident::default()
    };
    let summary = IncidentSummary {
        id: hostile("id"),
        cause: hostile("cause"),
        services: vec![hostile("service")],
        ..IncidentSummary::default()
    };
    let listed = IncidentsReply { node: hostile("node"), incidents: vec![summary], in_memory: false };
    let agent = FakeAgent::with_incident(ANY_PORT, incident, listed);
    let address = agent.address.to_string();
    let page = directory.path().join("incident.html");
    let file = ["incident", "2026", "--html", page.to_str().unwrap()];

    for command in [&["incidents"][..], &["incidents", "--json"], &["incident"], &["incident", "--json"], &file] {
        let output = uview(&[command, &["--operators", &address]].concat());

        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let odd = text.chars().find(|&c| c != '\n' && !wire::printable::is_printable(c));
        assert_eq!(odd, None, "{command:?}: {text:?}");
        assert!(!text.lines().any(|line| line.contains(": all is well") && !line.contains("\\u{a}")), "{text}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("cause\\u{a}cause: all is well") && page.ends_with("</html>\n"));
    assert!(!page.contains("<script") && page.matches("</style>").count() == 1);

    let none = uview(&["incident", "1999", "--operators", &address]);
    let said = String::from_utf8(none.stderr).unwrap();
    assert!(!none.status.success() && said.contains("no incident 1999"), "{said}");
    agent.stop();
}

#[test]
fn a_receipt_is_a_table_json_and_a_self_contained_page() {
    let directory = tempfile::tempdir().unwrap();
    let agent = FakeAgent::start(ANY_PORT, status());
    let address = agent.address.to_string();
    let page = directory.path().join("receipt.html");

    let text = uview(&["receipt", "--operators", &address]);
    let json = uview(&["receipt", "--json", "--operators", &address]);
    let written = uview(&["receipt", "--html", page.to_str().unwrap(), "--operators", &address]);

    assert!(text.status.success() && json.status.success() && written.status.success(), "{text:?} {written:?}");
    let text = String::from_utf8(text.stdout).unwrap();
    for part in [
        "node-1, recorded since 2024-10-04 00:00 UTC",
        "2024-10-04",
        "2024-10-05",
        "38 of 40",
        "2.0 of 40",
        "lost spans evicted 7",
        "cpu ms 4.2 s",
        "5: evicted 2, killed 3",
        "restarted at 2024-10-04 01:00:05 UTC; the previous run ended normally at 2024-10-04 01:00:00 UTC",
        "the previous run was killed: nothing is recorded after 2024-10-04 02:00:00 UTC",
        "12 spans are buffered",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["days"][1]["total"]["seen_spans"], 10_000);
    assert_eq!(json["days"][1]["services"][0]["head_failed_requests"], 2.0);
    assert_eq!(json["days"][1]["total"]["lost_spans"]["killed"], 3);
    assert_eq!((&json["runs"][1]["ended_in_order"], json["waiting_spans"]["cart"].as_u64()), (&false.into(), Some(12)));
    assert_eq!(json["days"][0]["node"]["sent_bytes.traces"], 9_000);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("&lt;pay&gt;") && !page.contains("<pay>"), "{page}");
    for outside in ["<script", "<link", "<img", "url(", "@import", "src=", "http"] {
        assert!(!page.contains(outside), "{outside}");
    }
    agent.stop();
}

#[test]
fn top_once_prints_one_picture() {
    let agent = FakeAgent::start(ANY_PORT, status());

    let output = uview(&["top", "--once", "--operators", &agent.address.to_string()]);

    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    for word in ["● live", "▲ ALARM", "payment", "99.5", "http.server.errors: 37, 0.5", "● armed", "cart"] {
        assert!(text.contains(word), "`{word}` is not in\n{text}");
    }
    assert!(!text.contains('\u{1b}'));
    agent.stop();
}

#[test]
fn another_server_on_the_port_is_an_error_in_prose() {
    let listener = std::net::TcpListener::bind(ANY_PORT).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(b"220 ready when you are\r\n");
        }
    });

    let output = uview(&["status", "--operators", &address]);

    assert_eq!(output.status.code(), Some(4));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("does not answer at") && text.contains(&address), "{text}");
}

/// `uview top` in a terminal of its own.
struct Terminal {
    child: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    unread: String,
}

impl Terminal {
    fn start(arguments: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = File::options().read(true).write(true).open(name).unwrap();
        tcsetwinsize(&slave, Winsize { ws_row: 24, ws_col: 140, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_uview"))
            .arg("top")
            .args(arguments)
            .env("TERM", "xterm-256color")
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave.try_clone().unwrap()))
            .stderr(Stdio::from(slave))
            .spawn()
            .unwrap();
        let keyboard = File::from(master);
        let mut output = keyboard.try_clone().unwrap();
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keyboard, screen, unread: String::new() }
    }

    /// Waits until `word` is written after the last wait.
    #[track_caller]
    fn wait_for(&mut self, word: &str) {
        while !self.unread.contains(word) {
            let bytes = self.screen.recv_timeout(PATIENCE);
            assert!(bytes.is_ok(), "`{word}` was not written:\n{:?}", self.unread);
            self.unread.push_str(&String::from_utf8_lossy(&bytes.unwrap_or_default()));
        }
        self.unread.clear();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_live_view_shows_services_reports_a_lost_agent_and_reconnects() {
    let agent = FakeAgent::start(ANY_PORT, status());
    let address = agent.address;
    let mut terminal = Terminal::start(&["--operators", &address.to_string()]);

    terminal.wait_for("payment");
    agent.stop();
    terminal.wait_for("AGENT");
    let mut reply = status();
    reply.lmaps[0].service = "come-again".to_owned();
    let agent = FakeAgent::start(address, reply);
    terminal.wait_for("come-again");
    terminal.keyboard.write_all(b"\r").unwrap();
    terminal.wait_for("expected");
    terminal.keyboard.write_all(b"q").unwrap();

    assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
    agent.stop();
}
