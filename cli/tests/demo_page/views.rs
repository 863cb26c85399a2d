//! What each view has to show of a run.

use std::collections::{BTreeMap, BTreeSet};

use demo::graph::{Service, Target};
use serde_json::{Value, json};
use support::harness::tell;

use crate::WAIT;
use crate::viewer::Viewer;

/// The function that the hog runs.
const BURNS: &str = "burn_the_processor";

fn shop() -> impl Iterator<Item = String> {
    Service::ALL.into_iter().map(|service| service.name().to_owned())
}

/// Strings of a list.
fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

/// All that is watched is listed: the services of the shop, and two streams of packets, between two of them and of
/// visitors.
pub fn services(viewer: &Viewer<'_>) {
    let streams = viewer.demo.has_link().then_some([Target::STREAM, Target::VISITORS]);
    let streams = streams.into_iter().flatten().map(|stream| format!("network.{stream}"));
    let all: BTreeSet<_> = shop().chain(streams).collect();
    let names = "[...document.querySelectorAll('.services .name span:first-child')].map((name) => name.textContent)";
    let listed = viewer
        .until("each service is listed", &format!("const all = {names}; return all.length >= {} && all", all.len()));
    assert_eq!(texts(&listed).into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), all);
    viewer.assert_fits();
}

/// A worker has them all, and what both agents keep is counted.
pub fn node(viewer: &Viewer<'_>) {
    viewer.go("#/node", "Node");
    let all = Service::ALL.len() + if viewer.demo.has_link() { 2 } else { 0 };
    let rows =
        "[...document.querySelectorAll('tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))";
    let has_all = format!("return {rows}.some(([, state, , lmaps]) => state === 'connected' && lmaps === '{all}')");
    viewer.until("a worker has each service", &has_all);
    let kept =
        format!("return {rows}.some(([what, used]) => what === 'series of services' && /^[1-9].* of /.test(used))");
    viewer.until("series are counted", &kept);
    let judged = "what === 'detectors of services that are running' && /^[1-9].* of /.test(used)";
    viewer.until("so are the NIC agent's detectors", &format!("return {rows}.some(([what, used]) => {judged})"));
    viewer.assert_fits();
}

/// The shop counts by itself: nothing is scraped.
pub fn sources(viewer: &Viewer<'_>) {
    viewer.go("#/sources", "Sources");
    viewer.shows("No endpoint is scraped");
    viewer.assert_fits();
}

/// Waits until each service of the shop has a number in this column of the receipt.
fn receipt_has(viewer: &Viewer<'_>, what: &str, column: usize) {
    let all: Vec<_> = shop().collect();
    let number = format!("Number(row.cells[{column}]?.textContent.replaceAll('\\u2009', ''))");
    let counted = format!(
        "[...document.querySelectorAll('tbody tr')].filter((row) => {number} > 0).map((row) => row.cells[0].textContent)"
    );
    viewer.until(what, &format!("const some = {counted}; return {}.every((name) => some.includes(name))", json!(all)));
}

/// Spans of each service have come.
pub fn receipt(viewer: &Viewer<'_>) {
    viewer.go("#/receipt", "Receipt");
    receipt_has(viewer, "spans of each service have come", 1);
    viewer.assert_fits();
}

/// Some of them were kept.
pub fn kept_spans(viewer: &Viewer<'_>) {
    viewer.go("#/receipt", "Receipt");
    receipt_has(viewer, "spans of each service are kept", 2);
}

/// The stream of packets has its delays, and that of visitors says who they are; without root there is none.
pub fn network(viewer: &Viewer<'_>) {
    viewer.go("#/network", "Network");
    if viewer.demo.has_link() {
        viewer.shows(Target::STREAM);
        viewer.until("the median delay", "return /median delay\\s+\\d/i.test(document.body.innerText)");
        viewer.until("delays are drawn", "return document.querySelectorAll('svg.stream').length > 1");
        let fact = |title: &str| {
            let facts = "[...document.querySelectorAll('.streams .facts div')]";
            format!("{facts}.find((of) => of.firstChild.textContent === '{title}')?.lastChild.textContent")
        };
        let named = r"/^\d+\s%127\.0\.0\.\d+ \(\d+ of \d+ bytes\)$/";
        viewer.until("the visitor who sends most", &format!("return {named}.test({})", fact("Top talker")));
        // They come from eight addresses, of which as many are in use as there are requests at once.
        // To whom most of them send stands behind it.
        let counted = format!("const count = parseInt({}); return count > 0 && count < 10", fact("Distinct sources"));
        viewer.until("distinct visitors", &counted);
    } else {
        viewer.shows("No stream of packets is measured");
    }
    viewer.assert_fits();
}

/// Requests enter at the frontend; who calls whom is what the shop's program says.
pub fn map(viewer: &Viewer<'_>) {
    viewer.go("#/map", "Map");
    let calls =
        Service::ALL.into_iter().flat_map(|from| from.calls().iter().map(move |to| format!("{from} calls {to}")));
    let mut calls: Vec<_> = calls.collect();
    calls.sort();
    let drawn =
        "[...document.querySelectorAll('svg.map .call title')].map((title) => title.textContent.split(',')[0]).sort()";
    let same = format!("return JSON.stringify({drawn}) === JSON.stringify({})", json!(calls));
    viewer.until("who calls whom is learnt", &same);
    let count = |of: &str| format!("document.querySelectorAll('svg.map {of}').length");
    let (all, entries, streams) = (count(".node:not(.entry)"), count(".node.entry"), count(".stream-edge"));
    let (services, stream) = (Service::ALL.len(), usize::from(viewer.demo.has_link()));
    let parts = format!("return {all} === {services} && {entries} > 0 && {streams} === {stream}");
    viewer.until("services, operations and the stream are drawn", &parts);
    // Six seconds after the requests, and then over two looks.
    let boxes = "[...document.querySelectorAll('svg.map .node:not(.entry) .figures')]";
    let rates = format!("return {boxes}.filter((of) => of.textContent.includes('/s')).length === {services}");
    viewer.until("each service has a rate", &rates);
    viewer.shows("Rates are of the last");
    viewer.assert_fits();
}

/// A service is in alarm: the suspected cause is first, and says why. Returns it.
pub fn suspected_cause(viewer: &Viewer<'_>) -> String {
    let first = "document.querySelector('.services .service')";
    let part = |of: &str| format!("document.querySelector('{of}').textContent");
    let seen = format!(
        "return {first}?.querySelector('.state').textContent.includes('suspected cause') \
         && [{}, {}, {}]",
        part(".services .name span:first-child"),
        part(".services .why"),
        part(".lead")
    );
    let seen = viewer.until("the suspected cause is first", &seen);
    let [suspect, why, lead] = texts(&seen)[..] else { unreachable!("{seen}") };
    assert!(why.contains(", expected ") || why.contains("Silent: "), "{why}");
    assert!(lead.starts_with(&format!("Suspected cause: {suspect}. ")), "{lead}");
    viewer.assert_fits();
    suspect.to_owned()
}

/// The score of `service` over time with its alarm, and what explains it.
pub fn service(viewer: &Viewer<'_>, service: &str) {
    let rows = "[...document.querySelectorAll('.services .service')]";
    let name = "row.querySelector('.name span:first-child').textContent";
    viewer.browser.run(&format!("{rows}.find((row) => {name} === {}).click()", json!(service)));
    viewer.heads(service);
    viewer.until("the alarm is shaded", "return document.querySelector('.chart .episode') !== null");
    viewer.until("scores are drawn", "return document.querySelector('.chart .line').getAttribute('d').length > 40");
    let row = "[...document.querySelectorAll('h2')].find((head) => head.textContent.startsWith('What st'))\
               ?.nextElementSibling.querySelector('tbody tr')";
    let cells = format!("const row = {row}; return row ? [...row.cells].map((cell) => cell.textContent) : null");
    let cells = viewer.until("a metric stands out", &cells);
    let [share, metric, seen, expected, ..] = texts(&cells)[..] else { unreachable!("{cells}") };
    assert!(share.ends_with('%') && ![metric, seen, expected].contains(&""), "{cells}");
    let made = "return document.querySelector('.heat title')?.textContent.endsWith('of the score')";
    viewer.until("the heat map has what made the score", made);
    viewer.until("each metric is shown", "return /\\d\\d metrics/.test(document.body.innerText)");
    viewer.until("γ is learnt", "return /Threshold γ\\s+[\\d.]+/.test(document.body.innerText)");
    viewer.assert_fits();
}

/// Opens the newest incident, once it is one of `service`.
pub fn open_newest_incident(viewer: &Viewer<'_>, service: &str) {
    open_incident(viewer, "all.slice(0, 1).find(is_of)", &format!("an incident of {service} is the newest"), service);
}

/// Opens the first incident of `service` in this run, which others may have followed: a browser can be seconds late.
pub fn open_first_incident(viewer: &Viewer<'_>, service: &str) {
    open_incident(viewer, "all.findLast(is_of)", &format!("there is an incident of {service}"), service);
}

/// Opens the incident that `choice` finds, once there is one.
fn open_incident(viewer: &Viewer<'_>, choice: &str, what: &str, service: &str) {
    viewer.go("#/incidents", "Incidents");
    let is_of = format!("(one) => one.querySelector('.what').textContent.includes({})", json!(service));
    let all = "[...document.querySelectorAll('.incident')]";
    let script =
        format!("const all = {all}, is_of = {is_of}, it = {choice}; if (!it) return false; it.click(); return true");
    viewer.until(what, &script);
    viewer.heads("Incident ");
}

/// Each function of a profile by its place: name, row, width as a share of all.
const FLAMES: &str = "[...document.querySelectorAll('svg.flames g')].map((box) => [box.querySelector('title').textContent, \
                      box.querySelector('rect').getAttribute('y'), Number(box.querySelector('rect').getAttribute('width')) / 1100])";

/// What an incident says of the function that burns.
enum Burning {
    /// Its widest place.
    Widest(Value),
    /// The kernel refuses to sample.
    Refused,
    /// An alarm of something else came before the hog's, so that that was sampled meanwhile.
    Disturbed,
}

/// What the incident that is shown says of the function that burns, once it says something.
fn burning(viewer: &Viewer<'_>) -> Burning {
    let burns = format!("{FLAMES}.filter(([name]) => name.includes('{BURNS}')).sort((a, b) => b[2] - a[2])[0]");
    let script = format!("return {burns} ?? document.body.innerText.includes('the kernel refuses')");
    WAIT.until("the function that burns is in the incident", || {
        viewer.demo.assert_runs("the function that burns was in the incident");
        match viewer.browser.run(&script) {
            Value::Bool(false) if viewer.demo.has_said("hang in payment is over") && !viewer.demo.is_hog_alone() => {
                Ok(Burning::Disturbed)
            }
            Value::Bool(false) => Err(viewer.browser.run("return document.body.innerText")),
            Value::Bool(true) => Ok(Burning::Refused),
            widest => Ok(Burning::Widest(widest)),
        }
    })
}

/// The incident has its suspected cause, and what the processes did: the function that burns is the widest. False if
/// another alarm came before the hog's.
pub fn incident_of_the_hog(viewer: &Viewer<'_>) -> bool {
    open_first_incident(viewer, "cart");
    viewer.shows("suspected cause");
    let drawn = "return document.querySelector('.timeline .line')?.getAttribute('d').length > 20";
    viewer.until("the time line has scores", drawn);
    let widest = match burning(viewer) {
        Burning::Widest(widest) => widest,
        Burning::Refused => {
            // CI says that profiles were not run.
            tell("no profile here: the kernel refuses");
            return true;
        }
        Burning::Disturbed => {
            tell("another alarm came before the hog's: its incident is not judged in this run");
            return false;
        }
    };
    let beside = format!("return {FLAMES}.filter(([name, row]) => row === {} && !name.includes('{BURNS}'))", widest[1]);
    let beside = viewer.browser.run(&beside);
    let width = |of: &Value| of[2].as_f64().unwrap();
    assert!(beside.as_array().unwrap().iter().all(|other| width(other) < width(&widest)), "{widest}: {beside}");
    viewer.assert_fits();
    // By its name: the next incident may have begun.
    let hash = viewer.browser.run("return location.hash");
    let name = hash.as_str().unwrap().trim_start_matches("#/incident/");
    let folded = viewer.demo.ask(&["incident", name, "--folded", "-"]);
    let lines = folded.lines().filter(|line| line.starts_with("cart")).filter_map(|line| line.rsplit_once(' '));
    let mut innermost = BTreeMap::<&str, u64>::new();
    for (stack, count) in lines {
        *innermost.entry(stack.rsplit(';').next().unwrap()).or_default() += count.parse::<u64>().unwrap();
    }
    let all: u64 = innermost.values().sum();
    let (burning, others): (Vec<_>, Vec<_>) = innermost.iter().partition(|(function, _)| function.contains(BURNS));
    let burning: u64 = burning.iter().map(|(_, count)| *count).sum();
    let next = others.iter().map(|(_, count)| **count).max().unwrap_or_default();
    // What cart's requests take beside it depends on how the demo was built, so no share of the whole is told.
    assert!(all >= 50 && burning >= 3 * next, "{burning} of {all}, {next} of the next function:\n{folded}");
    true
}

/// A trace was kept for an alarm, an error or its length, and is drawn whole.
pub fn kept_trace(viewer: &Viewer<'_>) {
    viewer.go("#/traces", "Kept traces");
    let reasoned =
        "[...document.querySelectorAll('.trace')].find((trace) => trace.querySelector('.lmap, .error, .latency'))";
    viewer.until("a trace is kept for a reason", &format!("return {reasoned} !== undefined"));
    viewer.assert_fits();
    let why = viewer
        .browser
        .run(&format!("const trace = {reasoned}; trace.click(); return trace.querySelector('.why').textContent"));
    assert!(!why.as_str().unwrap().is_empty());
    viewer.shows(&format!("Kept: {}", why.as_str().unwrap()));
    let bars = "return document.querySelectorAll('.waterfall .span rect').length > 3";
    viewer.until("its spans are bars", bars);
    viewer.assert_fits();
}

/// While payment hangs, who waits for it is in alarm, too: an incident with services by rank, and kept traces.
pub fn incident_of_several_services(viewer: &Viewer<'_>) {
    open_newest_incident(viewer, "payment");
    let table = "[...document.querySelectorAll('h2')].find((head) => head.textContent.startsWith('Services, the suspected'))\
                 ?.nextElementSibling";
    let ranks = format!("[...({table}?.querySelectorAll('tbody tr') ?? [])].map((row) => row.cells[1].textContent)");
    let ranks = viewer
        .until("several services are ranked", &format!("const ranks = {ranks}; return ranks.length > 1 && ranks"));
    assert_eq!(texts(&ranks)[..2], ["suspected cause", "rank 2"]);
    viewer.shows("What stood out");
    viewer.until("its best traces are drawn", "return document.querySelectorAll('.waterfall').length > 0");
    viewer.assert_fits();
}
