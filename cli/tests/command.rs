//! The command line: output on stdout and stderr, and exit codes.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clap::Parser as _;
use support::workspace;
use tempfile::TempDir;
use uview_cli::Arguments;

fn uview(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    command.args(arguments).env_remove("UVIEW_RUNTIME_DIR").env("NO_COLOR", "1");
    command.output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn assert_ends_with(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "stdout:\n{}\nstderr:\n{}", stdout(output), stderr(output));
}

/// Checks that stderr has these words, and neither a Debug dump nor a backtrace.
#[track_caller]
fn assert_is_prose(output: &Output, words: &[&str]) {
    let text = stderr(output);
    for word in words {
        assert!(text.contains(word), "`{word}` is not in\n{text}");
    }
    for dump in ["panicked", "RUST_BACKTRACE", "Error {", "Os {", "Some(", "Err("] {
        assert!(!text.contains(dump), "`{dump}` is in\n{text}");
    }
}

/// 400 rows of four metrics with a wave and some noise; requests fail from row 301 to row 320 (counted from 1).
fn metrics_with_a_fault() -> String {
    let mut text = "time,requests,latency_ms,errors,queue,label,fault\n".to_owned();
    let mut random = 1_u32;
    let mut noise = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(random >> 8) / f64::from(1 << 24) - 0.5
    };
    let (mut requests, mut errors) = (0.0, 0.0);
    for row in 0..400 {
        let faulty = (300..320).contains(&row);
        let load = 100.0 + 20.0 * (f64::from(row) / 40.0).sin() + 6.0 * noise();
        requests += load.round();
        errors += if faulty { 40.0 + (10.0 * noise()).round() } else { (noise() + 0.5).round() };
        let (latency, queue) = (load / 5.0 + 2.0 * noise(), load / 10.0 + noise());
        let fault = if faulty { "1,errors" } else { "0," };
        let _ = writeln!(text, "{row},{requests},{latency:.3},{errors},{queue:.3},{fault}");
    }
    text
}

fn directory_with(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn path(directory: &TempDir, name: &str) -> String {
    directory.path().join(name).to_str().unwrap().to_owned()
}

const KINDS: &str = "metric,kind,group\nrequests,counter,service\nerrors,counter,errors\n";

#[test]
fn help_names_every_subcommand_and_exit_code() {
    let output = uview(&["--help"]);

    assert_ends_with(&output, 0);
    let text = stdout(&output);
    for word in
        ["demo", "host-agent", "nic-agent", "replay", "top", "check", "status", "Exit codes:", "64  wrong command line"]
    {
        assert!(text.contains(word), "`{word}` is not in\n{text}");
    }
}

#[test]
fn the_agents_print_their_default_configuration() {
    for agent in ["host-agent", "nic-agent"] {
        let output = uview(&[agent, "--print-default-config"]);

        assert_ends_with(&output, 0);
        assert!(stdout(&output).contains("level:"), "{}", stdout(&output));
    }
}

#[test]
fn a_mistake_in_a_configuration_is_named_with_its_line() {
    let directory = directory_with(&[("a.yaml", "log:\n  level: info\n  colour: blue\n")]);
    let file = path(&directory, "a.yaml");

    for agent in ["host-agent", "nic-agent"] {
        let output = uview(&[agent, "--config", &file]);

        assert_ends_with(&output, 1);
        assert_is_prose(&output, &["colour", "line 3", "--print-default-config"]);
    }
}

#[test]
fn a_host_agent_without_a_writable_runtime_directory_prints_what_to_do() {
    let directory = directory_with(&[("a.yaml", "runtime_dir: /proc/self/nothing\n")]);

    let output = uview(&["host-agent", "--config", &path(&directory, "a.yaml")]);

    assert_ends_with(&output, 1);
    assert_is_prose(&output, &["cannot write /proc/self/nothing", "install -d", "runtime_dir"]);
}

#[test]
fn a_wrong_command_line_ends_with_64_and_a_suggestion() {
    let output = uview(&["stauts"]);

    assert_ends_with(&output, 64);
    assert!(stderr(&output).contains("'status'"), "{}", stderr(&output));
    assert_ends_with(&uview(&["replay"]), 64);
    assert_ends_with(&uview(&[]), 64);
}

#[test]
fn replay_finds_an_injected_fault_and_names_its_metric() {
    let directory = directory_with(&[("a.csv", &metrics_with_a_fault()), ("columns.csv", KINDS)]);
    let (file, columns) = (path(&directory, "a.csv"), path(&directory, "columns.csv"));
    let (json, plot) = (path(&directory, "out.json"), path(&directory, "out.svg"));

    let output = uview(&["replay", &file, "--columns", &columns, "--json", &json, "--plot", &plot]);

    assert_ends_with(&output, 0);
    let text = stdout(&output);
    assert!(text.contains("labels: 1 of 1 events found"), "{text}");
    assert!(text.contains("errors"), "{text}");
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(result["armed_row"], 141); // as the NIC agent: 20 rows to settle, 120 to learn
    assert_eq!(result["scores"].as_array().map(Vec::len), Some(400));
    let found = result["labels"]["events"][0]["found_after_rows"].as_u64().unwrap();
    assert!(found <= 2, "{text}");
    let episodes = result["episodes"].as_array().unwrap();
    let hit = episodes.iter().find(|e| e["first_row"].as_u64().is_some_and(|row| (301..=303).contains(&row))).unwrap();
    assert_eq!(hit["top_metrics"][0]["metric"], "errors");
    let svg = std::fs::read_to_string(&plot).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("labelled event") && svg.trim_end().ends_with("</svg>"));
}

#[test]
fn replay_uses_the_settings_of_the_agent_or_of_its_arguments() {
    let directory = directory_with(&[("a.csv", &metrics_with_a_fault()), ("columns.csv", KINDS)]);
    let (file, columns) = (path(&directory, "a.csv"), path(&directory, "columns.csv"));
    let replay = |flags: &[&str]| {
        let output = uview(&[&["replay", &file, "--columns", &columns, "--json", "-"], flags].concat());
        assert_ends_with(&output, 0);
        serde_json::from_str::<serde_json::Value>(&stdout(&output)).unwrap()
    };

    let library = replay(&["--settings", "library"]);
    let absolute = replay(&["--form", "absolute", "--rank", "2", "--sketch-rows", "10", "--percentile", "95"]);
    let relative = replay(&["--form", "relative", "--learning-rate", "0.5"]);

    assert_eq!(library["armed_row"], 121);
    assert_eq!((&absolute["rank"], &absolute["sketch_rows"]), (&2.into(), &10.into()));
    assert!(absolute["judged_by"].as_str().unwrap().contains("absolute"));
    let largest = |result: &serde_json::Value| {
        result["scores"].as_array().unwrap().iter().filter_map(serde_json::Value::as_f64).fold(0.0, f64::max)
    };
    assert!(largest(&absolute) > 1.0);
    assert!((0.1..=1.0).contains(&largest(&relative)), "{}", largest(&relative));
}

#[test]
fn arguments_that_contradict_each_other_or_the_file_are_refused() {
    let directory = directory_with(&[("a.csv", &metrics_with_a_fault())]);
    let file = path(&directory, "a.csv");

    let interval = uview(&["replay", &file, "--interval-ms", "100"]);
    let paper = uview(&["replay", &file, "--form", "absolute", "--settings", "agent"]);
    let percentile = uview(&["replay", &file, "--percentile", "120"]);
    let rank = uview(&["replay", &file, "--rank", "30", "--sketch-rows", "10"]);

    for output in [&interval, &paper, &percentile, &rank] {
        assert_ends_with(output, 1);
        assert!(output.stdout.is_empty());
    }
    assert_is_prose(&interval, &["step of `time` is 1 s", "--interval-ms is 0.1 s", "leave --interval-ms out"]);
    assert_is_prose(&paper, &["settings of their own", "leave --settings out"]);
    assert_is_prose(&percentile, &["percentile is 120", "at most 100"]);
    assert_is_prose(&rank, &["rank 30", "10 rows"]);
    assert_ends_with(&uview(&["replay", &file, "--form", "absolute", "--model", &file]), 64);
}

#[test]
fn a_saved_model_judges_the_next_file_from_its_first_row() {
    let text = metrics_with_a_fault();
    let lines: Vec<&str> = text.lines().collect();
    let healthy = lines[..=290].join("\n");
    let next = [&lines[..1], &lines[291..]].concat().join("\n");
    let directory = directory_with(&[("a.csv", &healthy), ("b.csv", &next), ("columns.csv", KINDS)]);
    let file = |name| path(&directory, name);
    let columns = file("columns.csv");

    let learnt = uview(&["replay", &file("a.csv"), "--columns", &columns, "--save-model", &file("m")]);
    let judged = uview(&["replay", &file("b.csv"), "--columns", &columns, "--model", &file("m"), "--json", "-"]);

    assert_ends_with(&learnt, 0);
    assert_ends_with(&judged, 0);
    let result: serde_json::Value = serde_json::from_str(&stdout(&judged)).unwrap();
    assert_eq!(result["armed_row"], 1);
    assert_eq!(result["labels"]["events_found"], 1);
}

#[test]
fn a_bad_cell_is_an_error_with_line_and_column() {
    let text = metrics_with_a_fault().replacen("\n17,", "\nseventeen,", 1);
    let directory = directory_with(&[("a.csv", &text), ("b.csv", "a,b\n1,2\n3\n"), ("c.csv", "time,label\n1,0\n")]);

    let cell = uview(&["replay", &path(&directory, "a.csv")]);
    let ragged = uview(&["replay", &path(&directory, "b.csv")]);
    let empty = uview(&["replay", &path(&directory, "c.csv")]);

    for output in [&cell, &ragged, &empty] {
        assert_ends_with(output, 1);
        assert!(output.stdout.is_empty());
    }
    assert_is_prose(&cell, &["line 19, column 1 (`time`)", "`seventeen`", "try:"]);
    assert_is_prose(&ragged, &["line 3 has 1 cells, the first line has 2"]);
    assert_is_prose(&empty, &["no column is a metric"]);
}

#[test]
fn too_few_rows_and_a_missing_file_are_errors_in_prose() {
    let short: String = metrics_with_a_fault().lines().take(60).collect::<Vec<_>>().join("\n");
    let directory = directory_with(&[("a.csv", &short)]);

    let few = uview(&["replay", &path(&directory, "a.csv")]);
    let missing = uview(&["replay", &path(&directory, "nothing.csv")]);

    assert_ends_with(&few, 1);
    assert_is_prose(&few, &["the file has 59 rows", "needs 140", "--model"]);
    assert_ends_with(&missing, 1);
    assert_is_prose(&missing, &["nothing.csv cannot be opened", "No such file"]);
}

#[test]
fn a_model_that_is_none_or_of_other_metrics_is_refused() {
    let table = metrics_with_a_fault();
    let others = table.replacen("requests,latency_ms,errors,queue", "a,b,c,d", 1);
    let directory = directory_with(&[("a.csv", &table), ("b.csv", &others), ("columns.csv", KINDS)]);
    let file = |name| path(&directory, name);
    assert_ends_with(&uview(&["replay", &file("a.csv"), "--save-model", &file("m")]), 0);

    let none = uview(&["replay", &file("a.csv"), "--model", &file("columns.csv")]);
    let stranger = uview(&["replay", &file("b.csv"), "--model", &file("m")]);

    assert_ends_with(&none, 1);
    assert_is_prose(&none, &["not a model file"]);
    assert_ends_with(&stranger, 1);
    assert_is_prose(&stranger, &["none of 4 columns"]);
}

#[test]
fn check_prints_json_that_a_program_can_read() {
    let directory = tempfile::tempdir().unwrap();

    let output = uview(&["check", "--json", "--runtime-dir", directory.path().to_str().unwrap()]);

    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let code = match report["verdict"].as_str().unwrap() {
        "fine" | "missing" => 0,
        "broken" => 1,
        other => panic!("{other}"),
    };
    assert_ends_with(&output, code);
    let findings = report["findings"].as_array().unwrap();
    let agent = findings.iter().find(|finding| finding["name"] == "host agent").unwrap();
    assert_eq!(agent["level"], "missing");
    assert!(agent["fix"].as_str().is_some_and(|fix| fix.contains("uview host-agent")));
}

#[test]
fn a_runtime_directory_that_cannot_be_used_is_broken() {
    let output = uview(&["check", "--runtime-dir", "/proc/self/nothing"]);

    assert_ends_with(&output, 1);
    assert!(stdout(&output).contains("x BROKEN"), "{}", stdout(&output));
}

#[test]
fn without_an_agent_top_and_status_end_with_4() {
    let directory = tempfile::tempdir().unwrap();
    let runtime_dir = directory.path().to_str().unwrap();

    for arguments in
        [["top", "--once", "--runtime-dir", runtime_dir], ["status", "--json", "--runtime-dir", runtime_dir]]
    {
        let output = uview(&arguments);

        assert_ends_with(&output, 4);
        assert!(output.stdout.is_empty());
        assert_is_prose(&output, &["no host agent is running there", "host-agent.json does not exist", "uview demo"]);
    }
}

#[test]
fn the_environment_names_the_runtime_directory() {
    let directory = tempfile::tempdir().unwrap();
    let there = directory.path().join("from-the-environment");

    let output =
        Command::new(env!("CARGO_BIN_EXE_uview")).arg("status").env("UVIEW_RUNTIME_DIR", &there).output().unwrap();

    assert_ends_with(&output, 4);
    assert_is_prose(&output, &["from-the-environment"]);
}

#[test]
fn top_without_a_terminal_names_the_alternative() {
    let output = uview(&["top", "--runtime-dir", Path::new("/nonexistent").to_str().unwrap()]);

    assert_ends_with(&output, 1);
    assert_is_prose(&output, &["no terminal", "--once"]);
}

#[test]
fn configurations_of_both_agents_are_checked_without_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.yaml");
    let run = folder.path().join("run");
    let check = |agent: &str, text: &str| {
        std::fs::write(&file, text).unwrap();
        uview(&[agent, "--config", file.to_str().unwrap(), "--check-config"])
    };

    let any = "metrics: {listen: 127.0.0.1:0}\n";
    let host = check("host-agent", &format!("runtime_dir: {}\n{any}", run.display()));
    assert_ends_with(&host, 0);
    assert!(stdout(&host).contains("\n0 errors, ") && !run.exists());
    let nic = check("nic-agent", any);
    assert_ends_with(&nic, 0);
    for agent in ["host-agent", "nic-agent"] {
        let wrong =
            check(agent, &format!("{any}log: {{level: 'info,x=loud'}}\naccess: {{operators: {{users: [no-such]}}}}\n"));
        assert_ends_with(&wrong, 1);
        let text = stdout(&wrong);
        assert!(text.contains("error    log.level") && text.contains("error    access.operators.users"), "{text}");
    }
}

/// The pages in `folder` and its folders, with their text.
fn pages(folder: &Path) -> Vec<(PathBuf, String)> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| match path.extension() {
        Some(extension) if extension == "md" => vec![(path.clone(), std::fs::read_to_string(&path).unwrap())],
        _ if path.is_dir() => pages(&path),
        _ => Vec::new(),
    };
    paths.flat_map(of).collect()
}

/// The lines of a page's blocks of `console` that call uview, without their prompt.
fn prompted(page: &str) -> Vec<String> {
    let blocks = page.split("```console\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0));
    let lines = blocks.flat_map(str::lines).filter_map(|line| line.strip_prefix("$ ").or(line.strip_prefix("# ")));
    let calls = lines.filter_map(|line| match line.strip_prefix("kubectl uview ") {
        Some(of_plugin) => Some(format!("uview kubectl {of_plugin}")),
        None => line.starts_with("uview ").then(|| line.to_owned()),
    });
    calls.collect()
}

/// The words of the call in `line`, as a shell takes it apart. No other program of the line is found.
fn words(line: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("uview() {{ printf '%s\\n' uview \"$@\" > words; }}\n{line}\nwait");
    Command::new("/bin/sh").args(["-c", &script]).env("PATH", "").current_dir(&folder).output().unwrap();
    std::fs::read_to_string(folder.path().join("words")).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn lines_after_a_prompt_in_the_book_are_calls_that_uview_takes() {
    let page = "```console\n$ uview metric a --derive 'b / c'   # d\nuview says\n$ ls\n```\n$ uview e\n";
    assert_eq!(words(&prompted(page)[0]), ["uview", "metric", "a", "--derive", "b / c"]);
    assert_eq!(prompted(page).len(), 1);
    let calls = pages(&workspace().join("docs"));
    let calls = calls.iter().flat_map(|(path, text)| prompted(text).into_iter().map(move |line| (path, line)));

    let mut seen = 0;
    for (path, line) in calls {
        let taken = Arguments::try_parse_from(words(&line));
        assert!(taken.is_ok(), "{}: {line}\n{}", path.display(), taken.unwrap_err());
        seen += 1;
    }

    assert!(seen > 30, "{seen}");
}

#[test]
fn the_page_on_lmaps_shows_what_the_replay_of_its_recording_prints() {
    let page = std::fs::read_to_string(workspace().join("docs/how-an-lmap-works.md")).unwrap();
    let (_, shown) = page.split_once("It prints, among others:\n\n```\n").unwrap();
    let (shown, _) = shown.split_once("```").unwrap();

    let printed = stdout(&uview(&["replay", workspace().join("examples/shop/cart.uvrec").to_str().unwrap()]));

    assert!(shown.lines().count() > 5, "{shown}");
    for line in shown.lines() {
        assert!(printed.lines().any(|of| of == line), "{line}\n{printed}");
    }
}
