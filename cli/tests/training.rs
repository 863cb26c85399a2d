//! `train`, `model show` and `replay` with models, policies and recordings, and the errors of each.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

use std::fmt::Write as _;
use std::process::{Command, Output};

use recording::{Column, ColumnKind, Encoder, Head, Mark, Span, label_block};
use serde_json::Value;
use tempfile::TempDir;
use wire::time::{Nanos, UnixNanos};

fn uview(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    command.args(arguments).env_remove("UVIEW_RUNTIME_DIR").env("NO_COLOR", "1").output().unwrap()
}

/// The output of a command, which has to succeed.
#[track_caller]
fn output_of(arguments: &[&str]) -> String {
    let output = uview(arguments);
    let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "stdout:\n{stdout}\nstderr:\n{stderr}");
    stdout
}

/// The error message of a command, which has to fail with prose and advice.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let output = uview(arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(matches!(output.status.code(), Some(1 | 64)), "{:?}: {text}", output.status);
    for dump in ["panicked", "RUST_BACKTRACE", "Error {", "Some(", "Err("] {
        assert!(!text.contains(dump), "`{dump}` is in\n{text}");
    }
    assert!(text.contains("try:") || text.contains("--help"), "no advice in\n{text}");
    text
}

/// A folder for one test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn with(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        std::fs::write(self.0.path().join(name), bytes).unwrap();
        self.path(name)
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.0.path().join(name)).unwrap()).unwrap()
    }
}

/// A source of noise in −0.5 to 0.5.
struct Noise(u32);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(self.0 >> 8) / f64::from(1 << 24) - 0.5
    }
}

const START: u64 = 1_760_000_000_000_000_000;
const INTERVAL: u64 = 100_000_000;

/// Requests and latency follow a wave, `copy` is twice the requests, `limit` stands still; from row 450 to 469 latency
/// is far too high.
fn row(number: u64, noise: &mut Noise) -> [f64; 5] {
    let wave = (number as f64 / 30.0).sin();
    let requests = (100.0 + 30.0 * wave + 6.0 * noise.next()).round();
    let more = if (450..470).contains(&number) { 0.08 } else { 0.0 };
    [requests, 0.02 + 0.004 * wave + 0.002 * noise.next() + more, 2.0 * requests, 512.0, noise.next()]
}

const TITLES: [&str; 5] = ["requests", "latency.mean", "copy", "limit", "queue"];

/// 600 rows of a service; its fault is labelled.
fn recorded() -> Vec<u8> {
    let column = |(place, title): (usize, &&str)| Column {
        title: (*title).to_owned(),
        unit: String::new(),
        group: "service".to_owned(),
        kind: [
            ColumnKind::Increment,
            ColumnKind::Statistic,
            ColumnKind::Increment,
            ColumnKind::Gauge,
            ColumnKind::Gauge,
        ][place],
    };
    let head = Head {
        service: "payment".to_owned(),
        interval: Nanos(INTERVAL),
        columns: TITLES.iter().enumerate().map(column).collect(),
    };
    let (mut encoder, mut file) = Encoder::new(head).unwrap();
    let mut noise = Noise(1);
    for number in 0..600 {
        let row = row(number, &mut noise);
        file.extend(encoder.push(UnixNanos(START + number * INTERVAL), &row).unwrap().unwrap_or_default());
    }
    file.extend(encoder.finish());
    let span = |from: u64, to: u64, mark, fault: &str| Span {
        from: UnixNanos(START + from * INTERVAL),
        to: UnixNanos(START + to * INTERVAL),
        mark,
        fault: fault.to_owned(),
    };
    file.extend(label_block(&[span(450, 469, Mark::Anomalous, "latency"), span(470, 475, Mark::Ignored, "")]).unwrap());
    file
}

/// CSV of `rows` lines, each made by `line`.
fn csv(titles: &str, rows: u32, mut line: impl FnMut(u32) -> String) -> String {
    let mut text = format!("{titles}\n");
    for number in 0..rows {
        let _ = writeln!(text, "{}", line(number));
    }
    text
}

#[test]
fn a_recording_is_trained_on_in_one_command_and_its_model_starts_a_detector() {
    let folder = Folder::new();
    let (file, model, json) = (folder.with("payment.uvrec", recorded()), folder.path("a.model"), folder.path("a.json"));

    let text = output_of(&["train", &file, "--out", &model, "--json", &json]);
    let replayed = output_of(&["replay", &file, "--model", &model]);
    let shown = output_of(&["model", "show", &model, "--names", &file]);

    for word in [
        "payment: 600 rows of 5 metrics, every 100 ms",
        "574 normal rows: 402 for training, 172 held out",
        "20 labelled as faults, 6 ignored",
        "k by explained variance",
        "1 of 1 with an alarm",
        "constant: 1 metric (limit)",
        "redundant: 1 metric (copy)",
        "with 95 % confidence",
    ] {
        assert!(text.contains(word), "`{word}` is not in\n{text}");
    }
    let figures = folder.json("a.json");
    assert!(figures["chosen"]["recall"].as_f64().unwrap() > 0.9, "{figures}");
    assert_eq!(figures["redundant"][0][1], "requests");
    assert!(
        replayed.contains("armed from the first row by the model") && replayed.contains("labels: 1 of 1 events found"),
        "{replayed}"
    );
    for word in
        ["a model of 5 metrics, trained on 574 rows, every 100 ms", "latency.mean", "constant", "99 % percentile"]
    {
        assert!(shown.contains(word), "`{word}` is not in\n{shown}");
    }
}

/// A recording of the demo's shop that is part of the project.
fn example(service: &str) -> std::path::PathBuf {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    root.join(format!("examples/shop/{service}.uvrec"))
}

const SHOP: [&str; 5] = ["cart", "catalogue", "frontend", "payment", "store"];

#[test]
fn rows_of_the_shop_take_at_most_two_bytes_per_value_and_all_of_them_a_megabyte() {
    let mut whole = 0;
    for service in SHOP {
        let bytes = std::fs::read(example(service)).unwrap();
        whole += bytes.len();
        let recording = recording::decode(&bytes).unwrap();
        assert!(recording.complete && recording.damage.is_empty() && recording.service == service);
        let (columns, interval) = (recording.columns.clone(), recording.interval);
        let head = Head { service: recording.service.clone(), interval, columns };
        let (mut encoder, mut again) = Encoder::new(head).unwrap();
        for (time, row) in recording.times.iter().zip(recording.rows()) {
            again.extend(encoder.push(*time, row).unwrap().unwrap_or_default());
        }
        again.extend(encoder.finish());
        let values = recording.columns.len() * recording.times.len();
        for written in [bytes.len(), again.len()] {
            let per_value = written as f64 / values as f64;
            assert!(per_value <= 2.0, "{service}: {per_value:.2} bytes per value");
        }
    }
    assert!(whole <= 1 << 20, "{whole} bytes");
}

#[test]
fn the_shop_that_is_part_of_the_project_trains_in_one_command() {
    let folder = Folder::new();
    for (service, faults) in [("cart", 1), ("catalogue", 1), ("frontend", 0), ("payment", 2), ("store", 1)] {
        let (file, model, json) = (example(service), folder.path("a.model"), folder.path("a.json"));

        output_of(&["train", file.to_str().unwrap(), "--out", &model, "--json", &json]);

        // An agent fits a trained model no more: what it is to judge by has to be in there.
        let read = lmap::Model::decode(&std::fs::read(&model).unwrap()).unwrap();
        assert_eq!(read.long_rows(), Some(10), "{service}");
        let figures = folder.json("a.json");
        let found = (&figures["chosen"]["events_found"], &figures["chosen"]["events"]);
        assert_eq!(found, (&Value::from(faults), &Value::from(faults)), "{service}: {figures}");
        assert!(figures["chosen"]["quiet_over"].as_u64().unwrap() <= 15, "{service}: {figures}");
    }
}

#[test]
fn a_grid_keeps_the_best_f1_and_the_report_needs_nothing_else() {
    let folder = Folder::new();
    let (file, model, report) =
        (folder.with("payment.uvrec", recorded()), folder.path("a.model"), folder.path("report"));
    let arguments = ["train", &file, "--out", &model, "--report", &report, "--json", "-"];
    let sizes = ["--ranks", "1,2,3", "--sketch-rows", "25,50", "--percentiles", "95,99"];

    let figures: Value = serde_json::from_str(&output_of(&[&arguments[..], &sizes].concat())).unwrap();

    let points = figures["points"].as_array().unwrap();
    assert_eq!(points.len(), 17, "the default, then with k by variance, 1, 2 and 3 two l and two q each");
    let f1 = |point: &Value| point["f1"].as_f64().unwrap();
    let best = points.iter().map(f1).fold(0.0, f64::max);
    assert_eq!(f1(&figures["chosen"]), best);
    let page = std::fs::read_to_string(folder.0.path().join("report/index.html")).unwrap();
    for word in
        ["<svg", "held out, fault", "k: directions of the basis", "l: rows of the sketch", "recall", "follows requests"]
    {
        assert!(page.contains(word), "`{word}` is not in the page");
    }
    for outside in ["<script", "<link", "<img", "url(", "@import", "src=", "could not be drawn"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn without_labels_a_model_is_trained_and_nothing_is_said_of_faults() {
    let folder = Folder::new();
    let mut noise = Noise(3);
    let text = csv("a,b", 200, |number| format!("{},{}", (f64::from(number) / 9.0).sin() + noise.next(), noise.next()));
    let (file, model) = (folder.with("a.csv", text), folder.path("a.model"));

    let text = output_of(&["train", &file, "--out", &model, "--grid", "--time-limit-s", "60"]);

    assert!(text.contains("no labels: all rows count as normal"), "{text}");
    assert!(text.contains("by the rate of quiet rows over γ"), "{text}");
    assert!(!text.contains("faults:"), "{text}");
}

#[test]
fn several_recordings_are_one_training_and_csv_without_time_cannot_be() {
    let folder = Folder::new();
    let file = folder.with("a.uvrec", recorded());
    let plain = folder.with("b.csv", csv("requests", 50, |number| number.to_string()));
    let more =
        csv("time,requests,queue", 200, |number| format!("{},{number},{}", f64::from(number) / 10.0, number % 7));
    let more = folder.with("c.csv", more);
    let model = folder.path("a.model");

    let twice = output_of(&["train", &file, &file, "--out", &model]);

    assert!(twice.contains("1200 rows of 5 metrics"), "{twice}");
    assert!(refused(&["train", &file, &more, "--out", &model]).contains("same time between rows"));
    assert!(refused(&["train", &plain, &plain, "--out", &model]).contains("no column `time`"));
}

#[test]
fn one_metric_constants_huge_values_and_cells_that_are_no_numbers_can_be_trained() {
    let folder = Folder::new();
    let mut noise = Noise(5);
    let wave: Vec<String> =
        (0..300).map(|number| ((f64::from(number) / 9.0).sin() + noise.next()).to_string()).collect();
    let one = csv("a", 300, |number| wave[number as usize].clone());
    let constant = csv("a,b", 300, |_| "5,0".to_owned());
    let huge =
        csv("a,b", 300, |number| format!("{}1e308,{}", if number % 3 == 0 { "-" } else { "" }, wave[number as usize]));
    let strange = csv("a,b,c", 300, |number| {
        let cell = ["NaN", "inf", "-inf", "", "5e-324"][number as usize % 5];
        format!("{cell},{},{}", wave[number as usize], if number > 250 { cell } else { &wave[number as usize] })
    });
    let model = folder.path("a.model");

    for (name, text, word) in [
        ("one.csv", one, "300 rows of 1 metrics"),
        ("constant.csv", constant, "! no metric changes"),
        ("huge.csv", huge, "300 rows of 2 metrics"),
        ("strange.csv", strange, "are not finite and count as missing"),
    ] {
        let file = folder.with(name, text);

        let trained = output_of(&["train", &file, "--out", &model]);
        let shown: Value = serde_json::from_str(&output_of(&["model", "show", &model, "--json"])).unwrap();
        let replayed = output_of(&["replay", &file, "--model", &model, "--json", "-"]);

        assert!(trained.contains(word), "{name}: `{word}` is not in\n{trained}");
        assert!(shown["gamma"].as_f64().is_some_and(|gamma| gamma > 0.0), "{name}: {shown}");
        let replayed: Value = serde_json::from_str(&replayed).unwrap();
        let scores = replayed["scores"].as_array().unwrap();
        assert!(
            scores.iter().all(|score| score.as_f64().is_some_and(|score| score.is_finite() && score >= 0.0)),
            "{name}"
        );
    }
}

#[test]
fn four_thousand_metrics_are_trained() {
    let folder = Folder::new();
    let titles: Vec<String> = (0..4096).map(|metric| format!("m{metric}")).collect();
    let mut noise = Noise(7);
    let text =
        csv(&titles.join(","), 40, |_| (0..4096).map(|_| format!("{:.3}", noise.next())).collect::<Vec<_>>().join(","));
    let (file, model) = (folder.with("wide.csv", text), folder.path("wide.model"));

    let trained = output_of(&["train", &file, "--out", &model]);

    assert!(trained.contains("40 rows of 4096 metrics") && trained.contains("normal rows are few"), "{trained}");
}

#[test]
fn too_few_rows_and_faults_only_are_refused_with_their_number() {
    let folder = Folder::new();
    let three = folder.with("three.csv", "a,b\n1,2\n2,1\n3,5\n");
    let faulty = folder.with("faulty.csv", csv("a,label", 50, |number| format!("{number},1")));
    let model = folder.path("a.model");

    assert!(refused(&["train", &three, "--out", &model]).contains("3 of 3 rows are normal, at least 12"));
    assert!(refused(&["train", &faulty, "--out", &model]).contains("0 of 50 rows are normal"));
    assert!(!std::path::Path::new(&model).exists(), "nothing is written if nothing was learnt");
}

#[test]
fn a_recording_that_is_cut_gives_its_whole_blocks_and_says_what_is_lost() {
    let folder = Folder::new();
    let whole = recorded();
    let end = whole.len() - 200;
    let (file, model) = (folder.with("cut.uvrec", &whole[..end]), folder.path("a.model"));
    let beginning = folder.with("beginning.uvrec", &whole[..40]);

    let output = uview(&["train", &file, "--out", &model]);

    let warnings = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{warnings}");
    assert!(warnings.contains("cut inside its last block") && warnings.contains("512 rows are left"), "{warnings}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("512 rows of 5 metrics") && text.contains("no labels"), "{text}");
    assert!(refused(&["train", &beginning, "--out", &model]).contains("cut before it says what its columns are"));
    assert!(
        refused(&[
            "label",
            &file,
            "--faults",
            &folder.with("f.csv", "service,fault,from_unix_ms,to_unix_ms\n*,a,1,2\n")
        ])
        .contains("cut or damaged")
    );
}

#[test]
fn metrics_that_come_later_and_a_gap_of_hours_are_taken_as_they_are() {
    let column = |title: &str| Column {
        title: title.to_owned(),
        unit: String::new(),
        group: String::new(),
        kind: ColumnKind::Gauge,
    };
    let head = |titles: &[&str]| Head {
        service: "cart".to_owned(),
        interval: Nanos(INTERVAL),
        columns: titles.iter().copied().map(column).collect(),
    };
    let (mut encoder, mut file) = Encoder::new(head(&["a", "gone"])).unwrap();
    let mut noise = Noise(9);
    for number in 0..200 {
        file.extend(
            encoder
                .push(UnixNanos(START + number * INTERVAL), &[noise.next(), noise.next()])
                .unwrap()
                .unwrap_or_default(),
        );
    }
    file.extend(encoder.change(head(&["a", "new"])).unwrap());
    let later = START + 3 * 3600 * 1_000_000_000;
    for number in 0..200 {
        file.extend(
            encoder
                .push(UnixNanos(later + number * INTERVAL), &[noise.next(), noise.next()])
                .unwrap()
                .unwrap_or_default(),
        );
    }
    file.extend(encoder.finish());
    let folder = Folder::new();
    let (file, model) = (folder.with("cart.uvrec", file), folder.path("a.model"));

    let trained = output_of(&["train", &file, "--out", &model]);
    let replayed = output_of(&["replay", &file]);

    assert!(trained.contains("400 rows of 3 metrics, every 100 ms"), "{trained}");
    for word in ["400 rows of 3 metrics", "empty cells: 400", "gaps in time: 1"] {
        assert!(replayed.contains(word), "`{word}` is not in\n{replayed}");
    }
}

#[test]
fn files_of_the_wrong_kind_are_refused_by_what_they_are() {
    let folder = Folder::new();
    let recording = folder.with("a.uvrec", recorded());
    let model = folder.path("a.model");
    output_of(&["train", &recording, "--out", &model]);
    let bytes = std::fs::read(&model).unwrap();
    let cut = folder.with("cut.model", &bytes[..bytes.len() / 2]);
    let mut changed = bytes.clone();
    changed[100] ^= 1;
    let changed = folder.with("changed.model", changed);
    let mut newer = bytes;
    newer[8] = 99;
    let newer = folder.with("newer.model", newer);
    let show = |file: &str| refused(&["model", "show", file]);

    assert!(show(&recording).contains("this is a recording: `uview train` trains a model on it"));
    assert!(show(&folder.with("text.model", "hello")).contains("not a model file"));
    assert!(show(&folder.path("none.model")).contains("cannot be read"));
    assert!(show(&cut).contains("bytes are expected") || show(&cut).contains("are expected"));
    assert!(show(&changed).contains("checksum"));
    assert!(show(&newer).contains("version 99"));
    assert!(refused(&["train", &model, "--out", &folder.path("b.model")]).contains("is not text in UTF-8"));
    let kinds = folder.with("columns.csv", "metric,kind,group\nrequests,counter,\n");
    let refusal = refused(&["train", &recording, "--columns", &kinds, "--out", &model]);
    assert!(refusal.contains("is a recording, which has the kinds of its metrics"), "{refusal}");
}

const POLICIES: &str = "\
- name: as the agent judges
- {name: never, percentile: 99, episode_margin: 900}
- {name: library, base: library, episode: {need: 1, of: 1}}
- {name: paper, base: relative, rank: 2}
- {name: budget, rows_per_alarm: 2000}
";

#[test]
fn policies_say_what_would_have_been_caught_and_what_it_would_have_cost() {
    let folder = Folder::new();
    let (file, policies) = (folder.with("a.uvrec", recorded()), folder.with("policies.yaml", POLICIES));
    let json = folder.path("out.json");

    let table = output_of(&["replay", &file, "--policy", &policies, "--json", &json]);

    for word in ["judged by 5 policies", "as the agent judges", "1 of 1", "0 of 1", "rows sent"] {
        assert!(table.contains(word), "`{word}` is not in\n{table}");
    }
    let result = folder.json("out.json");
    let policy = |place: usize| &result["policies"][place];
    assert_eq!((&policy(0)["events_found"], &policy(0)["events_judged"]), (&Value::from(1), &Value::from(1)));
    assert_eq!((&policy(1)["events_found"], &policy(1)["alarms"]), (&Value::from(0), &Value::from(0)));
    assert_eq!(policy(3)["rank"], 2);
    let sent = policy(0)["rows_sent"].as_u64().unwrap();
    assert!((20..300).contains(&sent), "{table}");
    assert!(policy(2)["alarms"].as_u64() >= policy(0)["alarms"].as_u64(), "{table}");
}

#[test]
fn policies_with_a_mistake_are_refused_by_name() {
    let folder = Folder::new();
    let file = folder.with("a.uvrec", recorded());
    let refusal = |text: &str| refused(&["replay", &file, "--policy", &folder.with("p.yaml", text)]);

    assert!(refusal("- {name: a, percentil: 3}\n").contains("percentil"));
    assert!(refusal("- {name: a}\n- {name: a}\n").contains("two policies are called `a`"));
    assert!(refusal("- {rank: 3}\n").contains("policy 1 has no name"));
    assert!(refusal("[]").contains("it lists 0 policies"));
    assert!(refusal("- {name: far, clip: 0.1}\n").contains("clip is 0.1"));
    let both = uview(&["replay", &file, "--policy", "p.yaml", "--rank", "3"]);
    assert_eq!(both.status.code(), Some(64));
}

#[test]
fn a_model_trained_here_is_one_that_the_agents_take() {
    // The operators' call NewLmap hands a model's bytes to the NIC agent, which makes a detector of them as this does.
    let folder = Folder::new();
    let (file, model) = (folder.with("payment.uvrec", recorded()), folder.path("a.model"));
    output_of(&["train", &file, "--out", &model]);

    let read = lmap::Model::decode(&std::fs::read(&model).unwrap()).unwrap();

    let column = |title: &&str| lmap::Column::new(lmap::ColumnKind::Gauge, nic_agent::fingerprint(title));
    let columns: Vec<lmap::Column> = TITLES.iter().map(column).collect();
    assert_eq!(read.absent(&columns), 0);
    let detector = lmap::Detector::from_model(&read, columns, lmap::Settings::live(0.1), 1).unwrap();
    assert_eq!(detector.state(), lmap::State::Armed);
}
