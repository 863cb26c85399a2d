//! `uview model set` and `unset`.

use std::fs::File;
use std::process::{Command, Stdio};

use super::fake_agent::{FakeAgent, status};
use super::{ANY_PORT, uview};

/// A small model of two columns.
fn model() -> Vec<u8> {
    let columns = (0..2).map(|column| lmap::Column::new(lmap::ColumnKind::Gauge, column)).collect();
    let mut detector = lmap::Detector::new(columns, lmap::Settings::default(), 1).unwrap();
    let mut row = 0_u64;
    while detector.model().is_none() {
        row += 1;
        let _ = detector.score(&[(row * 7919 % 101) as f64, (row * 104_729 % 97) as f64]).unwrap();
        if let Some(job) = detector.learn() {
            detector.install(job.run());
        }
    }
    detector.model().unwrap().encode()
}

#[test]
fn a_model_comes_from_a_file_or_the_input_and_what_it_does_not_know_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (file, broken) = (folder.path().join("a.model"), folder.path().join("b.model"));
    let whole = model();
    std::fs::write(&file, &whole).unwrap();
    std::fs::write(&broken, &whole[..whole.len() - 1]).unwrap();
    let [file, broken] = [&file, &broken].map(|path| path.to_str().unwrap());
    let agent = FakeAgent::start(ANY_PORT, status());
    let address = agent.address.to_string();
    let set = |service: &str, file: &str, input: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
        command.args(["model", "set", service, file, "--operators", &address]).stdin(input);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };

    for (name, input) in [(file, Stdio::null()), ("-", File::open(file).unwrap().into())] {
        let (code, text) = set("payment", name, input);
        assert!(code == Some(0) && text.contains("payment: judged by this model from its next row on\n"), "{text}");
        assert!(text.contains("it does not know 7 of 9: queue\\u{a} and 6 more\n"), "{text}");
    }
    for (service, file, why) in [
        ("cart", file, "does not know 4 of the 5 columns of cart"),
        ("store", file, "no LMAP has that name"),
        ("payment", broken, "was it copied completely?"),
        ("payment", "-", "the standard input cannot be used"),
        ("payment", "nowhere.model", "cannot be read"),
    ] {
        let (code, text) = set(service, file, Stdio::null());
        assert!(code == Some(1) && text.contains(why), "{service}, {file}, {code:?}: {text}");
    }
    agent.stop();
}

#[test]
fn a_model_is_taken_back_where_there_is_one() {
    let mut reply = status();
    reply.lmaps[1].model_by = "user 7\n".to_owned();
    let agent = FakeAgent::start(ANY_PORT, reply);
    let address = agent.address.to_string();
    let text = |arguments: &[&str]| {
        let output = uview(&[arguments, &["--operators", &address]].concat());
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };

    assert!(text(&["model", "unset", "payment"]).starts_with("payment: learns by itself again, from what it had"));
    assert_eq!(text(&["model", "unset", "cart"]), "cart: nobody gave it a model: it learns by itself\n");
    assert!(text(&["model", "unset", "store"]).contains("no LMAP has that name"));
    let shown = text(&["status"]);
    assert!(shown.contains("payment: judged by a model that user 7\\u{a} gave it"), "{shown}");
    agent.stop();
}
