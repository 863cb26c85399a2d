//! The operators' API with TLS, and the error messages when TLS fails.

use std::path::PathBuf;
use std::process::{Command, Output};

use support::certificates::{Authority, Subject};
use tempfile::TempDir;

use crate::{Agent, addresses};

/// The name in the agent's certificate.
const NAME: &str = "agent.example";

/// A host agent, and certificates: the authorities `ours` and `theirs`, and the clients `operator` (valid), `stranger`
/// (signed by `theirs`) and `late` (expired).
struct Node {
    operators: String,
    folder: TempDir,
    _agent: Agent,
}

impl Node {
    /// Starts the agent. `tls` is the section operators.tls of its configuration; @ stands for the folder of
    /// certificates.
    fn start(tls: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let [ours, theirs] = ["ours", "theirs"].map(|name| {
            let authority = Authority::new(name);
            authority.write(at, name);
            authority
        });
        for (name, subject) in [
            ("agent", Subject::new(&[NAME, "127.0.0.1"])),
            ("elsewhere", Subject::new(&[NAME])),
            ("old", Subject::new(&["127.0.0.1"]).expired()),
            ("operator", Subject::new(&["operator.example"])),
            ("late", Subject::new(&[]).expired()),
        ] {
            subject.signed_by(&ours).write(at, name);
        }
        Subject::new(&[]).signed_by(&theirs).write(at, "stranger");
        let any = "listen: 127.0.0.1:0";
        let run = at.join("run");
        let tls = tls.replace('@', &format!("{}/", at.display()));
        let text = format!(
            "runtime_dir: {}\naccess: {{viewers: {{certificates: [operator.example]}}}}\nmetrics: {{{any}}}\n\
             operators: {{{any}, insecure: true, tls: {tls}}}\n",
            run.display()
        );
        let config = at.join("host.yaml");
        std::fs::write(&config, text).unwrap();
        let agent = Agent::start("host-agent", &config);
        let operators = addresses(&run)["operators_listen"].as_str().unwrap().to_owned();
        Self { operators, folder, _agent: agent }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `uview` with the words of `command`, where @ stands for the folder of certificates. It finds the agent by
    /// the runtime directory.
    fn uview(&self, command: &str) -> Output {
        let words = command.replace('@', &format!("{}/", self.folder.path().display()));
        let mut uview = Command::new(env!("CARGO_BIN_EXE_uview"));
        uview.args(words.split_whitespace()).env("UVIEW_RUNTIME_DIR", self.path("run")).env("NO_COLOR", "1");
        uview.output().unwrap()
    }

    /// The error message of `uview`, which has to fail with `code`.
    #[track_caller]
    fn error_message(&self, command: &str, code: i32) -> String {
        let output = self.uview(command);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{command}: {text}");
        assert!(output.stdout.is_empty(), "{command}");
        text
    }
}

#[track_caller]
fn assert_contains(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "`{word}` is not in\n{text}");
    }
}

const WITH_TLS: &str = "{certificate: @agent.pem, key: @agent.key}";
const WITH_CLIENTS: &str = "{certificate: @agent.pem, key: @agent.key, client_ca: @ours.pem}";
const OPERATOR: &str = "--tls-ca @ours.pem --tls-cert @operator.pem --tls-key @operator.key";

#[test]
fn operators_reach_a_port_with_tls_by_its_address_by_its_name_and_by_the_runtime_directory() {
    let node = Node::start(WITH_TLS);
    let operators = &node.operators;

    for command in [
        "status --json --tls-ca @ours.pem".to_owned(),
        format!("status --json --operators https://{operators} --tls-ca @ours.pem"),
        format!("status --json --operators {operators} --tls-ca @ours.pem --tls-name {NAME}"),
    ] {
        let output = node.uview(&command);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(2), "{command}: no worker is connected, that is a problem");
        assert_eq!(status["problems"].as_array().map(Vec::len), Some(1), "{command}: {status}");
    }
    let top = node.uview("top --once --tls-ca @ours.pem");
    assert_eq!(top.status.code(), Some(0));
    assert_contains(&String::from_utf8(top.stdout).unwrap(), &["● live"]);
    let check = node.uview("check --tls-ca @ours.pem");
    assert_contains(&String::from_utf8(check.stdout).unwrap(), &["+ fine     host agent", "answers at"]);
}

#[test]
fn an_agent_that_requires_client_certificates_gets_them() {
    let node = Node::start(WITH_CLIENTS);

    let output = node.uview(&format!("top --once {OPERATOR}"));

    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_contains(&String::from_utf8(output.stdout).unwrap(), &["● live"]);
}

#[test]
fn a_client_with_no_certificate_or_a_wrong_one_gets_the_reason() {
    let node = Node::start(WITH_CLIENTS);
    let with = |name| format!("status --tls-ca @ours.pem --tls-cert @{name}.pem --tls-key @{name}.key");

    let nobody = node.error_message("status --tls-ca @ours.pem", 4);
    let stranger = node.error_message(&with("stranger"), 4);
    let late = node.error_message(&with("late"), 4);

    assert_contains(&nobody, &["requires a client certificate", "--tls-cert FILE --tls-key FILE", "client_ca"]);
    assert_contains(
        &stranger,
        &["refuses the certificate", "stranger.pem", "not signed by the authority", "client_ca"],
    );
    assert_contains(&late, &["refuses the certificate", "late.pem", "has expired"]);
    let check = node.uview("check --tls-ca @ours.pem");
    assert_contains(
        &String::from_utf8(check.stdout).unwrap(),
        &["requires a client certificate", "fix: --tls-cert FILE"],
    );
}

#[test]
fn an_untrusted_agent_is_refused_with_the_reason() {
    let elsewhere = Node::start("{certificate: @elsewhere.pem, key: @elsewhere.key}");
    let old = Node::start("{certificate: @old.pem, key: @old.key}");

    let authority = elsewhere.error_message("status --tls-ca @theirs.pem", 4);
    let name = elsewhere.error_message("status --tls-ca @ours.pem", 4);
    let expired = old.error_message("status --tls-ca @ours.pem", 4);

    assert_contains(&authority, &[&elsewhere.operators, "not signed by the authority in", "theirs.pem", "--tls-ca"]);
    assert_contains(&name, &["is not for `127.0.0.1`", NAME, "--tls-name"]);
    assert_contains(&expired, &["its certificate has expired", "the right time"]);
    let trusted = elsewhere.uview(&format!("top --once --tls-ca @ours.pem --tls-name {NAME}"));
    assert_eq!(trusted.status.code(), Some(0));
}

#[test]
fn tls_on_one_side_only_is_diagnosed() {
    let (with, without) = (Node::start(WITH_TLS), Node::start("null"));

    let plain = with.error_message(&format!("status --operators {}", with.operators), 4);
    let tls = without.error_message("top --once --tls-ca @ours.pem", 4);

    assert_contains(&plain, &["it speaks TLS", "--tls-ca FILE"]);
    assert_contains(&tls, &["it does not speak TLS", "without --tls-ca", "operators.tls"]);
    let check = with.uview(&format!("check --operators {}", with.operators));
    assert_contains(&String::from_utf8(check.stdout).unwrap(), &["it speaks TLS", "fix: --tls-ca FILE"]);
}

#[test]
fn an_agent_that_is_gone_is_not_taken_for_one_without_tls() {
    let node = Node::start("null");
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();

    for tls in ["", "--tls-ca @ours.pem"] {
        let text = node.error_message(&format!("status --operators {gone} {tls}"), 4);
        assert_contains(&text, &["does not answer at", "refused"]);
    }
}

#[test]
fn files_that_are_no_certificates_are_named_before_anything_is_tried() {
    let node = Node::start("null");
    let pair = |certificate, key| format!("check --tls-ca @ours.pem --tls-cert @{certificate} --tls-key @{key}");

    for (command, words) in [
        ("status --tls-ca @nothing.pem".to_owned(), ["cannot read", "nothing.pem", "No such file"]),
        ("top --tls-ca @ours.pem --tls-name a_b/c".to_owned(), ["a_b/c", "no name", "--tls-name"]),
        ("check --tls-ca @host.yaml".to_owned(), ["host.yaml", "no certificate", "BEGIN CERTIFICATE"]),
        (pair("operator.key", "operator.key"), ["operator.key", "no certificate", "BEGIN CERTIFICATE"]),
        (pair("operator.pem", "operator.pem"), ["operator.pem", "no private key", "BEGIN PRIVATE KEY"]),
        (pair("operator.pem", "stranger.key"), ["operator.pem", "stranger.key", "cannot be used with"]),
    ] {
        assert_contains(&node.error_message(&command, 1), &words);
    }
}

#[test]
fn incomplete_tls_arguments_are_a_wrong_command_line() {
    let node = Node::start("null");
    let operators = &node.operators;

    for (command, word) in [
        ("status --tls-ca @ours.pem --tls-cert @operator.pem".to_owned(), "--tls-key"),
        ("status --tls-name agent.example".to_owned(), "--tls-ca"),
        (format!("status --operators https://{operators}"), "--tls-ca FILE"),
        (format!("status --operators http://{operators} --tls-ca @ours.pem"), "https://"),
    ] {
        assert_contains(&node.error_message(&command, 64), &[word]);
    }
}
