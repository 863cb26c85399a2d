//! `uview watch --preload`: a program is started with the library that sees its connections, or it is said why not.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use support::harness::not_run;

use crate::WAIT;
use crate::watch::Program;

/// The library of this build: cargo puts it where it puts this test, if it builds it.
fn library() -> Option<PathBuf> {
    let path = std::env::current_exe().unwrap().with_file_name("libuview_preload.so");
    path.is_file().then_some(path)
}

fn refused(program: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    command.args(["watch", "--private"]).arg(format!("--preload={}", library().unwrap().display()));
    let output = command.args(["--", program]).output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_program_that_nothing_can_be_preloaded_into_is_not_started() {
    if library().is_none() {
        return not_run("uview watch --preload: `cargo build -p uview-preload`");
    }
    let text = refused("/usr/bin/passwd");
    assert!(text.contains("changes its rights at its start") && text.contains("uview watch --name NAME"), "{text}");
    let text = refused("no-such-program-at-all");
    assert!(text.contains("is in no folder of PATH"), "{text}");
}

/// A program that would leave a file beside itself, linked statically. `None` if nothing here links so.
fn built_statically(folder: &Path) -> Option<PathBuf> {
    let (source, program) = (folder.join("static.c"), folder.join("static"));
    let text = r#"
#include <stdio.h>
int main(int count, char **names) {
    char path[4096];
    snprintf(path, sizeof path, "%s.ran", names[count - 1]);
    return fclose(fopen(path, "w"));
}
"#;
    std::fs::write(&source, text).unwrap();
    let output = Command::new("cc").arg("-static").arg("-o").arg(&program).arg(&source).output().ok()?;
    output.status.success().then_some(program)
}

#[test]
fn a_static_program_is_not_started_and_it_is_said_that_nothing_is_preloaded() {
    if library().is_none() {
        return not_run("uview watch --preload of a static program: `cargo build -p uview-preload`");
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = built_statically(folder.path()) else {
        return not_run("uview watch --preload of a static program: it needs cc and a static libc (Debian: libc6-dev)");
    };

    let text = refused(program.to_str().unwrap());

    assert!(text.contains("is linked statically: no loader, nothing is preloaded"), "{text}");
    assert!(text.contains("uview watch --name NAME"), "{text}");
    assert!(!program.with_extension("ran").exists(), "it was started");
    assert!(Command::new(&program).status().unwrap().success());
    assert!(program.with_extension("ran").exists(), "it would have left a file");
}

#[test]
fn a_redis_is_started_and_its_requests_are_metrics_of_its_service() {
    let there = Command::new("redis-server").arg("--version").output().is_ok();
    let Some(library) = library().filter(|_| there) else {
        return not_run("uview watch --preload with Redis: it needs redis-server and `cargo build -p uview-preload`");
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("redis.sock");
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    command.args(["watch", "--private", "--interval-ms", "100"]).arg(format!("--preload={}", library.display()));
    command.args(["--", "redis-server", "--port", "0", "--save", "", "--logfile", "/dev/null", "--unixsocket"]);
    command.arg(&socket).env_remove("UVIEW_RUNTIME_DIR").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut watch = Program(command.spawn().unwrap());
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let greeting = lines.find(|line| line.contains("watching pid")).unwrap();
    assert!(greeting.starts_with("redis-server: watching pid"), "{greeting}");
    let run = greeting.rsplit(' ').next().unwrap().to_owned();
    std::thread::spawn(move || lines.for_each(drop));
    let ping = || {
        let output = Command::new("redis-cli").arg("-s").arg(&socket).arg("PING").output().unwrap();
        output.status.success().then_some(())
    };
    WAIT.until("Redis answers", ping);

    let reported = || {
        ping();
        let mut top = Command::new(env!("CARGO_BIN_EXE_uview"));
        let output = top.args(["status", "--json", "--runtime-dir", &run]).output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let lmaps = status["lmaps"].as_array()?.iter().filter(|lmap| lmap["service"] == "redis-server");
        lmaps.clone().any(|lmap| lmap["replicas"].as_u64() == Some(2)).then(|| lmaps.count())
    };
    assert_eq!(WAIT.until("the library and the watch are replicas of one service", reported), 1);
    kill_process(Pid::from_child(&watch.0), Signal::INT).unwrap();
    assert_eq!(watch.0.wait().unwrap().code(), Some(0));
    assert!(ping().is_none(), "Redis has ended with the watch");
}
