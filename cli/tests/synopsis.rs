//! `uview synopsis` on generated captures.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use packets::file::Writer;
use packets::generator::{Traffic, TrafficSettings, segment};
use packets::{Frame, Link, View, identity, parse};
use synopses::digest::DigestKey;

fn uview(arguments: &[&str], files: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    command.arg("synopsis").args(arguments);
    for file in files {
        command.arg(file);
    }
    command.output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it prints text")
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

/// Writes the frames of `traffic` to which `kept` assigns a time.
fn written(traffic: &Traffic, path: PathBuf, mut kept: impl FnMut(usize, &Frame<'_>) -> Option<u64>) -> PathBuf {
    let mut frames: Vec<(u64, Frame<'_>)> =
        traffic.frames().enumerate().filter_map(|(number, frame)| Some((kept(number, &frame)?, frame))).collect();
    frames.sort_by_key(|frame| frame.0);
    let mut writer = Writer::new(File::create(&path).expect("a file"), Link::Ethernet, 96).expect("a file");
    for (time_ns, frame) in frames {
        writer.write(&Frame { time_ns, ..frame }).expect("a file");
    }
    path
}

fn traffic() -> Traffic {
    Traffic::new(&TrafficSettings { connections: 400, segments: 20, queries: 400, ..TrafficSettings::default() })
}

#[test]
fn a_fridge_reports_the_delay_of_handshakes_as_text_json_and_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let traffic = traffic();
    let capture = written(&traffic, folder.path().join("a.pcap"), |_, frame| Some(frame.time_ns));
    let picture = folder.path().join("a.svg");
    let mut truth = traffic.handshakes_ns().to_vec();
    truth.sort_unstable();

    let printed = uview(&["fridge", "--svg", picture.to_str().unwrap(), "--pcap"], &[&capture]);
    let found = json(&uview(&["fridge", "--json", "--pcap"], &[&capture]));

    let words = text(&printed.stdout);
    assert!(printed.status.success() && words.contains("400 requests") && words.contains("50 %"), "{words}");
    assert!(std::fs::read_to_string(picture).unwrap().starts_with("<svg"));
    let median = &found["quantiles"][1];
    assert_eq!((median["share"].as_f64(), found["requests"].as_u64()), (Some(0.5), Some(400)));
    let ratio = median["delay_ns"].as_f64().unwrap() / truth[200] as f64;
    assert!((ratio - 1.0).abs() < 0.06, "{ratio}");
    assert_eq!(found["cdf"].as_array().map(Vec::len), Some(101));
}

#[test]
fn without_a_response_delays_are_unknown_and_the_exit_code_is_2() {
    let folder = tempfile::tempdir().unwrap();
    let capture = written(&traffic(), folder.path().join("a.pcap"), |_, frame| Some(frame.time_ns));

    let output = uview(&["fridge", "--filter", "udp", "--pcap"], &[&capture]);

    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stdout).contains("delays are unknown"), "{}", text(&output.stdout));
    let drawn = uview(&["fridge", "--filter", "udp", "--svg", "/nowhere/a.svg", "--pcap"], &[&capture]);
    assert_eq!(drawn.status.code(), Some(1));
}

#[test]
fn finecomb_and_lda_report_loss_and_mean_delay() {
    let folder = tempfile::tempdir().unwrap();
    let traffic = traffic();
    let sender = written(&traffic, folder.path().join("sender.pcap"), |_, frame| Some(frame.time_ns));
    let (mut lost, mut delays) = (0, Vec::new());
    let receiver = written(&traffic, folder.path().join("receiver.pcap"), |number, frame| {
        if number % 100 == 57 {
            lost += 1;
            return None;
        }
        let delay = 2_000_000 + (number as u64 * 7_919) % 1_000_000;
        delays.push(delay as f64);
        Some(frame.time_ns + delay)
    });
    let truth = delays.iter().sum::<f64>() / delays.len() as f64;

    for kind in ["finecomb", "lda"] {
        let output = uview(
            &[kind, "--json", "--interval", "500", "--pcap", sender.to_str().unwrap(), "--receiver"],
            &[&receiver],
        );
        let found = json(&output);
        let sent = found["sent"].as_f64().unwrap();
        assert!(output.status.success());
        assert!((found["loss"].as_f64().unwrap() - f64::from(lost) / sent).abs() < 1e-9, "{found}");
        let mean = found["mean_ns"].as_f64().unwrap();
        assert!((mean / truth - 1.0).abs() < 0.02 || kind == "lda", "{kind}: {mean} {truth}");
        assert!(found["intervals"].as_array().is_some_and(|rows| rows.len() >= 4), "{found}");
    }
    let words = uview(&["finecomb", "--pcap", sender.to_str().unwrap(), "--receiver"], &[&receiver]);
    assert!(text(&words.stdout).contains("% lost"), "{}", text(&words.stdout));
}

#[test]
fn rda_reports_exact_mean_and_loss_between_two_captures_as_text_json_and_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let traffic = traffic();
    // Only the first copy of a packet counts, so that each packet is written once.
    let (key, mut names) = (DigestKey::new(1), BTreeSet::new());
    let is_first =
        |frame: Frame<'_>| parse(&frame, View::Outer).is_ok_and(|packet| names.insert(identity::digest(&packet, &key)));
    let once: Vec<bool> = traffic.frames().map(is_first).collect();
    let sender =
        written(&traffic, folder.path().join("sender.pcap"), |number, frame| once[number].then_some(frame.time_ns));
    let (mut delays, mut lost) = (Vec::new(), 0);
    let receiver = written(&traffic, folder.path().join("receiver.pcap"), |number, frame| {
        if !once[number] {
            return None;
        }
        if number % 100 == 7 {
            lost += 1;
            return None;
        }
        let delay = 2_000_000 + (number as u64 * 7_919) % 1_000_000;
        delays.push(delay as f64);
        Some(frame.time_ns + delay)
    });
    let picture = folder.path().join("a.svg");
    let sender = sender.to_str().unwrap();
    let arguments = ["rda", "--interval", "500", "--svg", picture.to_str().unwrap(), "--pcap", sender];

    let output = uview(&[&arguments[..], &["--json", "--receiver"]].concat(), &[&receiver]);
    let found = json(&output);
    let words = uview(&[&arguments[..], &["--receiver"]].concat(), &[&receiver]);

    assert!(output.status.success(), "{found}");
    assert_eq!((found["lost"].as_u64(), found["complete"].as_bool()), (Some(lost), Some(true)));
    let truth = delays.iter().sum::<f64>() / delays.len() as f64;
    let mean = found["mean_ns"].as_f64().unwrap();
    assert!((mean / truth - 1.0).abs() < 1e-9, "{mean} {truth}");
    let rows = found["intervals"].as_array().unwrap();
    let late: u64 = rows.iter().map(|row| row["late"].as_u64().unwrap()).sum();
    assert!(late > 0 && rows.iter().all(|row| row["odd"] == 0), "{found}");
    assert!(text(&words.stdout).contains(&format!("{lost} lost")), "{}", text(&words.stdout));
    assert!(std::fs::read_to_string(picture).unwrap().starts_with("<svg"));
}

#[test]
fn rda_marks_captures_without_common_packets_and_clocks_that_differ() {
    let folder = tempfile::tempdir().unwrap();
    let other =
        TrafficSettings { connections: 300, segments: 20, queries: 400, seed: 99, ..TrafficSettings::default() };
    let sender = written(&traffic(), folder.path().join("sender.pcap"), |_, frame| Some(frame.time_ns));
    let unrelated = written(&Traffic::new(&other), folder.path().join("other.pcap"), |_, frame| Some(frame.time_ns));
    let early = written(&traffic(), folder.path().join("early.pcap"), |_, frame| Some(frame.time_ns - 3_000_000_000));
    for (receiver, caution) in [(unrelated, "half of the packets are missing"), (early, "CAUTION")] {
        let output = uview(&["rda", "--pcap", sender.to_str().unwrap(), "--receiver"], &[&receiver]);

        assert!(!output.status.success() && text(&output.stdout).contains(caution), "{}", text(&output.stdout));
    }
}

#[test]
fn what_cannot_be_measured_is_an_error_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let capture = written(&traffic(), folder.path().join("a.pcap"), |_, frame| Some(frame.time_ns));
    let cut = folder.path().join("cut.pcap");
    std::fs::write(&cut, &std::fs::read(&capture).unwrap()[..5_000]).unwrap();
    for (arguments, file, expected) in [
        (vec!["fridge", "--pcap"], Path::new("/etc/hostname"), "neither a pcap nor a pcapng"),
        (vec!["fridge", "--memory", "0", "--pcap"], &capture, "0 slots"),
        (vec!["finecomb", "--pcap"], &capture, "only one capture"),
        (vec!["rda", "--pcap"], &capture, "only one capture"),
        (vec!["finecomb", "--interval", "0", "--receiver", "x", "--pcap"], &capture, "--interval is 0"),
        (vec!["fridge", "--filter", "upd", "--pcap"], &capture, "unknown condition"),
        (vec!["fridge", "--interface"], Path::new("no-such-one"), "there is no interface"),
    ] {
        let output = uview(&arguments, &[file]);
        assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}");
        assert!(text(&output.stderr).contains(expected), "{arguments:?}: {}", text(&output.stderr));
    }
    // A truncated capture is read as far as possible.
    let output = uview(&["fridge", "--pcap"], &[&cut]);
    assert!(text(&output.stderr).contains("ends within a frame"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("TCP handshakes"));
}

#[test]
fn reordering_heavy_hitters_and_distinct_items_are_reported_as_text_and_json() {
    let folder = tempfile::tempdir().unwrap();
    let traffic = traffic();
    let capture = written(&traffic, folder.path().join("a.pcap"), |_, frame| Some(frame.time_ns));
    let (mut sources, mut bytes) = (BTreeSet::new(), BTreeMap::<_, u64>::new());
    for frame in traffic.frames() {
        let Ok(packet) = parse(&frame, View::Outer) else { continue };
        let payload = match packet.transport {
            packets::Transport::Tcp(tcp) => tcp.payload,
            packets::Transport::Udp(udp) => udp.length,
        };
        sources.insert(packet.source.address);
        *bytes.entry(packet.destination.port).or_default() += packet.header_bytes as u64 + u64::from(payload);
    }
    let most = bytes.iter().max_by_key(|(_, bytes)| **bytes).unwrap();

    let heavy = json(&uview(&["heavy-hitters", "--by", "port", "--json", "--top", "3", "--pcap"], &[&capture]));
    let (top, total) = (&heavy["top"][0], heavy["total"].as_u64().unwrap());
    assert_eq!(top["party"], format!("port {}", most.0));
    assert_eq!((top["least"].as_u64(), total), (Some(*most.1), bytes.values().sum()));
    let words = text(&uview(&["heavy-hitters", "--by", "port", "--pcap"], &[&capture]).stdout);
    assert!(words.contains(&format!("port {}", most.0)) && words.contains("bytes in all"), "{words}");

    // One interval that is longer than the traffic.
    let distinct = json(&uview(&["cardinality", "--interval", "60000", "--json", "--pcap"], &[&capture]));
    let found = distinct["intervals"][0]["sources"].as_f64().unwrap();
    assert!((found / sources.len() as f64 - 1.0).abs() < 0.12, "{distinct}, {}", sources.len());
    let seconds = uview(&["cardinality", "--pcap"], &[&capture]);
    assert!(seconds.status.success() && text(&seconds.stdout).lines().count() > 4, "{}", text(&seconds.stdout));

    let reordered = json(&uview(&["reordering", "--json", "--pcap"], &[&capture]));
    assert!(reordered["out_of_order"].as_u64() > Some(0) && reordered["checked"].as_u64() > Some(400), "{reordered}");
    let words = text(&uview(&["reordering", "--pcap"], &[&capture]).stdout);
    assert!(words.contains("checked packets were out of order") && words.contains("/24"), "{words}");
    let wide = text(&uview(&["reordering", "--prefix", "8", "--pcap"], &[&capture]).stdout);
    assert!(wide.contains(".0.0.0/8") && !wide.contains("/24"), "{wide}");
    let none = uview(&["reordering", "--prefix", "33", "--pcap"], &[&capture]);
    assert!(none.status.code() == Some(1) && text(&none.stderr).contains("prefixes of 33 bits"));
    // Without packets, nothing is known.
    assert_eq!(uview(&["reordering", "--filter", "dst port 1", "--pcap"], &[&capture]).status.code(), Some(2));
    assert_eq!(uview(&["heavy-hitters", "--top", "0", "--pcap"], &[&capture]).status.code(), Some(1));
}

/// Begin of captures of strangers.
const BEGIN_NS: u64 = 1_700_000_000_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// A capture in which each packet is of a flow, a source and a port of its own, and comes at one of `times_ns`.
fn strangers(path: PathBuf, times_ns: impl Iterator<Item = u64>) -> PathBuf {
    let mut writer = Writer::new(File::create(&path).expect("a file"), Link::Ethernet, 96).expect("a file");
    let mut bytes = segment(b"");
    for (stranger, time_ns) in (0_u32..).zip(times_ns) {
        bytes[26..30].copy_from_slice(&(10 << 24 | stranger).to_be_bytes());
        bytes[36..38].copy_from_slice(&(stranger as u16).to_be_bytes());
        let frame = Frame { bytes: &bytes, length: bytes.len() as u32, time_ns, link: Link::Ethernet };
        writer.write(&frame).expect("a file");
    }
    writer.finish().expect("a file");
    path
}

/// The rows of the intervals of a second.
fn seconds(capture: &Path) -> Vec<serde_json::Value> {
    let found = json(&uview(&["cardinality", "--interval", "1000", "--json", "--pcap"], &[capture]));
    found["intervals"].as_array().expect("rows").clone()
}

#[test]
fn each_interval_has_its_own_flows_and_none_of_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let number = 5_000;
    let times_ns = (0..12 * number).map(|stranger| BEGIN_NS + stranger * (SECOND_NS / number));
    let capture = strangers(folder.path().join("a.pcap"), times_ns);

    let rows = seconds(&capture);

    assert!(rows.len() == 12 && rows.iter().all(|row| row["packets"] == number), "{rows:?}");
    // One estimate is off by 3.4 %, a mean of twelve independent ones by 1 %. An eighth more would show.
    for what in ["flows", "sources", "ports"] {
        let counts = rows.iter().map(|row| row[what].as_f64().unwrap());
        let mean = counts.sum::<f64>() / 12.0 / number as f64;
        assert!((mean - 1.0).abs() < 0.05, "{what}: {mean}");
    }
}

#[test]
fn a_burst_at_the_begin_of_an_interval_counts_in_it_and_an_interval_that_a_capture_cuts_has_no_others() {
    let folder = tempfile::tempdir().unwrap();
    // Wherever the begin of the intervals lies in a slot of their counts.
    for begin_ns in (0..5).map(|part| BEGIN_NS + part * 31_000_007) {
        // 5,000 in the first millisecond of two seconds, then 500 in a tenth of the third.
        let burst = |second: u64| (0..5_000).map(move |number| begin_ns + second * SECOND_NS + number * 200);
        let cut = (0..500).map(|number| begin_ns + 2 * SECOND_NS + number * 200_000);
        let capture = strangers(folder.path().join("a.pcap"), burst(0).chain(burst(1)).chain(cut));

        let rows = seconds(&capture);

        assert_eq!(rows.len(), 3, "{rows:?}");
        for (row, number) in rows.iter().zip([5_000_u32, 5_000, 500]) {
            assert_eq!(row["packets"], number);
            // Five standard errors.
            let is_all = |what: &str| (row[what].as_f64().unwrap() / f64::from(number) - 1.0).abs() < 0.2;
            assert!(["flows", "sources", "ports"].into_iter().all(is_all), "{number} packets: {row}");
        }
    }
}

/// Packets of each flow, by its name.
fn flow_sizes<'a>(frames: impl Iterator<Item = Frame<'a>>) -> BTreeMap<String, u64> {
    let mut sizes = BTreeMap::new();
    for frame in frames {
        if let Ok(packet) = parse(&frame, View::Outer) {
            *sizes.entry(identity::FlowKey::of(&packet).to_string()).or_default() += 1;
        }
    }
    sizes
}

#[test]
fn a_fragment_reports_the_largest_flows_as_text_json_and_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let traffic = traffic();
    let sender = written(&traffic, folder.path().join("sender.pcap"), |_, frame| Some(frame.time_ns));
    let is_lost = |number: usize| number.is_multiple_of(10);
    let receiver = written(&traffic, folder.path().join("receiver.pcap"), |number, frame| {
        (!is_lost(number)).then_some(frame.time_ns)
    });
    let sent = flow_sizes(traffic.frames());
    let received =
        flow_sizes(traffic.frames().enumerate().filter(|(number, _)| !is_lost(*number)).map(|(_, frame)| frame));
    let picture = folder.path().join("a.svg");
    let sizes = |truth: &BTreeMap<String, u64>| {
        let mut sizes: Vec<u64> = truth.values().copied().collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes
    };

    // With so many counters hardly two flows share both of theirs.
    let large = ["fragment", "--memory", "4096", "--top", "5", "--json"];
    let alone = json(&uview(&[&large[..], &["--pcap"]].concat(), &[&sender]));
    let flows = alone["flows"].as_array().unwrap();
    let found: Vec<u64> = flows.iter().map(|flow| flow["packets"].as_u64().unwrap()).collect();
    assert_eq!(found, sizes(&sent)[..5], "{alone}");
    for flow in flows {
        let truth = sent[flow["flow"].as_str().unwrap()];
        assert!(flow["packets"] == truth && flow["at_least"].as_u64().unwrap() >= truth - 1, "{flow}");
    }

    // A packet that was lost between the two points is in one of them.
    let pcap = ["--pcap", sender.to_str().unwrap(), "--receiver"];
    let both = json(&uview(&[&large[..], &pcap].concat(), &[&receiver]));
    for flow in both["flows"].as_array().unwrap() {
        let name = flow["flow"].as_str().unwrap();
        assert!(flow["packets"] == received[name] && flow["counts"][0] == sent[name], "{flow}");
    }
    assert_eq!(both["points"][1]["packets"], received.values().sum::<u64>());

    // With few counters, too, no size is too small.
    let few = json(&uview(&["fragment", "--memory", "16", "--top", "256", "--json", "--pcap"], &[&sender]));
    let few = few["flows"].as_array().unwrap();
    assert!(few.len() == 256, "{} flows", few.len());
    assert!(few.iter().all(|flow| flow["packets"].as_u64() >= sent.get(flow["flow"].as_str().unwrap()).copied()));

    let printed = uview(&[&["fragment", "--svg", picture.to_str().unwrap()][..], &pcap].concat(), &[&receiver]);
    let words = text(&printed.stdout);
    assert!(words.contains("2 rows of 6144 counters, 49 KiB at each end") && words.contains("receiver: "), "{words}");
    let drawn = std::fs::read_to_string(picture).unwrap();
    assert!(
        drawn.starts_with("<svg") && drawn.contains(words.lines().last().unwrap().split("  ").last().unwrap()),
        "{words}"
    );
}

#[test]
fn a_fragment_in_which_no_flow_stands_out_is_marked() {
    let folder = tempfile::tempdir().unwrap();
    let capture = written(&traffic(), folder.path().join("a.pcap"), |_, frame| Some(frame.time_ns));
    for (arguments, code, expected) in [
        (&["--memory", "1"][..], 2, "CAUTION: no flow stands out"),
        (&["--filter", "dst port 1"], 2, "CAUTION: no packet matches the filter"),
        (&["--memory", "0"], 1, "2 rows of 0 counters"),
        (&["--top", "257"], 1, "--top is 257"),
        (&["--filter", "dst port 1", "--svg", "/nowhere/a.svg"], 1, "there is no flow"),
    ] {
        let output = uview(&[&["fragment"][..], arguments, &["--pcap"]].concat(), &[&capture]);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}
