//! `uview eval`: output, figures and errors.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::{Command, Output};

use tempfile::TempDir;

fn uview(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_uview")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn assert_refused(output: &Output, words: &[&str]) {
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(output.stdout.is_empty());
    for word in words.iter().chain(&["try:"]) {
        assert!(errors.contains(word), "`{word}` is not in\n{errors}");
    }
}

/// Rows of four metrics that follow a load, one of them a counter. If `labelled`, `errors` is far too high from row 200
/// to row 214.
fn rows(count: u32, labelled: bool) -> String {
    let mut random = count;
    let mut noise = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(random >> 8) / f64::from(1 << 24) - 0.5
    };
    let mut text = format!("time,requests,latency,errors,queue{}\n", if labelled { ",label,fault" } else { "" });
    let mut requests = 0.0;
    for row in 0..count {
        let faulty = labelled && (200..215).contains(&row);
        let load = 100.0 + 20.0 * (f64::from(row) / 30.0).sin() + 6.0 * noise();
        requests += load.round();
        let errors = if faulty { 40.0 } else { 2.0 } + noise();
        let (latency, queue) = (load / 5.0 + 2.0 * noise(), load / 10.0 + noise());
        let _ = write!(text, "{row},{requests},{latency:.3},{errors:.3},{queue:.3}");
        let label = match (labelled, faulty) {
            (false, _) => "",
            (true, false) => ",0,",
            (true, true) => ",1,errors",
        };
        text += label;
        text.push('\n');
    }
    text
}

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

const KINDS: &str = "metric,kind,group\nrequests,counter,work\n";
const INTERPRETATION: &str = "unit,first_row,end_row,metrics\na,200,215,errors\n";

fn shop() -> TempDir {
    let (train, test) = (rows(400, false), rows(300, true));
    folder(&[
        ("shop/a.train.csv", &train),
        ("shop/a.test.csv", &test),
        ("shop/columns.csv", KINDS),
        ("shop/interpretation.csv", INTERPRETATION),
        ("notes/readme.txt", "no data"),
    ])
}

#[test]
fn an_evaluation_prints_a_table_and_writes_figures_under_their_names() {
    let data = shop();
    let (folder, json) = (data.path().to_str().unwrap(), data.path().join("out.json"));

    let output = uview(&["eval", folder, "--json", json.to_str().unwrap()]);

    let (errors, shown) = (text(&output.stderr), text(&output.stdout));
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(shown.contains("shop: 1 units with 1 events") && shown.contains("VUS-PR"), "{shown}");
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let names = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<String>>();
    let expected = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    assert_eq!(names(&result), expected(&["shop"]));
    let detectors = ["lmap", "lmap-paper", "pca", "max-z", "norm-z", "rcf"];
    let prepared = ["lmap-paper", "pca", "max-z", "norm-z", "rcf"].map(|name| format!("{name}+prepared"));
    let detectors = detectors.iter().copied().chain(prepared.iter().map(String::as_str));
    assert_eq!(names(&result["shop"]), expected(&detectors.collect::<Vec<_>>()));
    let figures =
        ["best_f1", "f1_at_gamma", "fpr_at_gamma", "auc_pr", "auc_roc", "events_found", "vus_pr", "hit1", "hit3"];
    for (name, detector) in result["shop"].as_object().unwrap() {
        assert_eq!(names(detector), expected(&figures), "{name}");
    }
    for name in ["lmap", "max-z"] {
        let detector = &result["shop"][name];
        assert!(detector["auc_pr"].as_f64().unwrap() > 0.9, "{name}: {detector}");
        assert_eq!((&detector["events_found"], &detector["hit1"]), (&1.0.into(), &1.0.into()), "{name}");
    }
}

#[test]
fn with_folds_figures_are_of_settings_chosen_on_other_rows() {
    let (train, test) = (rows(400, false), rows(300, true));
    let data = folder(&[
        ("shop/a.train.csv", &train),
        ("shop/a.test.csv", &test),
        ("shop/b.train.csv", &train),
        ("shop/b.test.csv", &test),
    ]);
    let folder = data.path().to_str().unwrap();

    let json = uview(&["eval", folder, "--folds", "2", "--json", "-"]);
    let studies = uview(&["eval", folder, "--folds", "2", "--study", "ablation,episodes"]);

    let (result, shown) = (text(&json.stdout), text(&studies.stdout));
    let result: serde_json::Value = serde_json::from_str(&result).unwrap();
    let chosen = ["lmap", "lmap, default", "pca+prepared", "pca+prepared, in hindsight", "rcf+prepared, default"];
    for name in chosen.into_iter().chain(["pca"]) {
        assert!(result["shop"][name]["auc_pr"].is_f64(), "{name}: {result}");
    }
    assert!(result["shop"]["pca, default"].is_null(), "no setting was chosen for it");
    assert!(shown.starts_with("| lmap | default | fold 1 | fold 2 | in hindsight |\n"), "{shown}");
    assert!(shown.contains("| **no change** |") && shown.contains("| 2 of 3 |"), "{shown}");
}

#[test]
fn an_evaluation_is_the_same_every_time() {
    let data = shop();
    let folder = data.path().join("shop");
    let arguments = ["eval", folder.to_str().unwrap(), "--json", "-"];

    assert_eq!(text(&uview(&arguments).stdout), text(&uview(&arguments).stdout));
}

#[test]
fn without_an_interpretation_hit_rates_are_null() {
    let data = shop();
    std::fs::remove_file(data.path().join("shop/interpretation.csv")).unwrap();

    let output = uview(&["eval", data.path().to_str().unwrap(), "--json", "-"]);

    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(result["shop"]["lmap"]["hit1"].is_null() && result["shop"]["lmap"]["vus_pr"].is_f64());
}

#[test]
fn a_study_is_a_table_in_markdown() {
    let data = shop();

    let output = uview(&["eval", data.path().to_str().unwrap(), "--study", "warm-up"]);

    let shown = text(&output.stdout);
    assert!(shown.contains("| | shop |\n| --- | --- |\n| 30 |"), "{shown}");
    assert!(shown.contains("| 600 | – |"), "the unit has only 400 rows:\n{shown}");
}

#[test]
fn a_mistake_in_the_data_is_an_error_with_advice() {
    let (train, test) = (rows(50, false), rows(300, true));
    let (broken, quiet) = (test.replacen("\n7,", "\nseven,", 1), test.replace(",1,errors", ",0,"));
    let eval = |files: &[(&str, &str)]| uview(&["eval", folder(files).path().to_str().unwrap()]);

    assert_refused(&eval(&[("readme", "")]), &["has no files UNIT.train.csv", ".test.csv"]);
    assert_refused(&eval(&[("a.train.csv", &train)]), &["a.train.csv exists, but not", "a.test.csv"]);
    assert_refused(&eval(&[("a.train.csv", &train), ("a.test.csv", &train)]), &["a.test.csv", "no column `label`"]);
    assert_refused(
        &eval(&[("a.train.csv", &train), ("a.test.csv", &broken)]),
        &["a.test.csv", "line 9, column 1 (`time`)", "`seven`"],
    );
    assert_refused(&eval(&[("a.train.csv", &train), ("a.test.csv", &quiet)]), &["no test row is labelled 1"]);
    let few = rows(5, false);
    assert_refused(
        &eval(&[("a.train.csv", &few), ("a.test.csv", &test)]),
        &["lmap cannot be trained on a", "5 training rows"],
    );
    assert_refused(&uview(&["eval", "/nonexistent"]), &["/nonexistent", "No such file"]);
}
