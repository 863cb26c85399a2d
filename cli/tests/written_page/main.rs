//! The live page in a real Chromium, of services that a test writes: 10,000 of them, and states that are short or rare
//! with real agents.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

mod stage;

use std::time::Duration;

use page::documents;
use page::feed::Stream;
use page::map::{Counts, Map, MapSnapshot};
use page::traces::{Outcome, Side, Span, Traces};
use page::viewed::Availability;
use serde_json::{Value, json};
use support::wait::Wait;
use support::webdriver::{Browser, Driver, ESCAPE};
use wire::proto::operators::{
    Incident, IncidentLog, IncidentService, IncidentSummary, IncidentsReply, LmapStatus, Reason,
};
use wire::time::Nanos;

use stage::{BEGAN, Stage, lmap};

/// How tests wait for a condition: five minutes, for busy machines.
const WAIT: Wait = Wait::up_to(Duration::from_mins(5)).pausing(Duration::from_millis(50));
/// What is said not to run where there is no browser.
const TESTS: &str = "a written page in a browser";
/// A zone without summer time.
const ZONE: &str = "Asia/Kolkata";
/// Address of the incident that began with the first look.
const INCIDENT: &str = "20261127-064215-000";

/// Waits until a script returns `wanted`. A failure says what it returned instead.
#[track_caller]
fn gives(browser: &Browser<'_>, script: &str, wanted: &Value) {
    WAIT.until(script, || {
        let given = browser.run(&format!("return {script}"));
        if given == *wanted { Ok(()) } else { Err(given) }
    });
}

/// Waits until the page has `text`. A failure says what it has.
#[track_caller]
fn shows(browser: &Browser<'_>, text: &str) {
    WAIT.until(text, || {
        let shown = browser.run("return document.body.innerText");
        if shown.as_str().is_some_and(|shown| shown.contains(text)) { Ok(()) } else { Err(shown) }
    });
}

fn go(browser: &Browser<'_>, hash: &str) {
    browser.run(&format!("location.hash = {}", json!(hash)));
}

const ROWS: &str = "document.querySelectorAll('.service').length";
const FIRST: &str = "document.querySelector('.service .name span').textContent";

#[test]
fn of_ten_thousand_services_500_are_drawn_the_filter_finds_the_last_and_only_a_new_order_is_sorted() {
    let Some(driver) = Driver::start_for(TESTS) else { return };
    let stage = Stage::open();
    let all = |score| {
        let one = |number: u32| LmapStatus { scores: vec![score], ..lmap(number, &format!("service-{number:05}")) };
        (1..=10_000).map(one).collect::<Vec<_>>()
    };
    stage.show(all(1.0));
    let browser = driver.browser();
    browser.open(&stage.url());

    gives(&browser, ROWS, &json!(500));
    shows(&browser, "The 500 most urgent services of 10\u{2009}000 are shown");
    let place = "[...document.querySelectorAll('.service')].indexOf(document.activeElement)";
    browser.press("jj");
    gives(&browser, place, &json!(1));
    browser.press("/service-10000");
    gives(&browser, &format!("[{ROWS}, {FIRST}]"), &json!([1, "service-10000"]));
    browser.press(ESCAPE);
    gives(&browser, ROWS, &json!(500));

    browser.run(
        "const sort = Array.prototype.sort; window.sorts = 0; \
         Array.prototype.sort = function (...by) { if (this.length >= 10000) window.sorts += 1; return sort.apply(this, by); }",
    );
    stage.show(all(2.0));
    gives(&browser, "document.querySelector('.ratio span').textContent", &json!("0.50"));
    assert_eq!(browser.run("return window.sorts"), json!(0), "nothing is more urgent than before");
    let mut alarming = all(2.0);
    let last = alarming.last_mut().unwrap();
    (last.alarm, last.rank, last.incident_unix_ns) = (true, 1, BEGAN.0);
    stage.show(alarming);
    gives(&browser, FIRST, &json!("service-10000"));
    assert_eq!(browser.run("return window.sorts"), json!(1));
    assert_eq!(browser.errors(), Vec::<Value>::new());
}

/// What a part of the page says by title.
const FACTS: &str = "Object.fromEntries([...document.querySelectorAll('.facts div')].map((of) => [...of.children].map((of) => of.textContent)))";

#[test]
fn a_service_says_how_far_it_has_learnt_and_which_replicas_are_silent() {
    let Some(driver) = Driver::start_for(TESTS) else { return };
    let stage = Stage::open();
    let silent = |number, service, replicas: &[&str]| LmapStatus {
        silent_replicas: replicas.iter().map(|name| (*name).to_owned()).collect(),
        ..lmap(number, service)
    };
    let novice =
        LmapStatus { state: "learning".to_owned(), gamma: 0.0, rows: 30, ..silent(1, "novice", &["novice-2"]) };
    stage.show(vec![novice, silent(2, "one", &["a"]), silent(3, "several", &["a", "b"])]);
    let browser = driver.browser();
    browser.open(&stage.url());

    let says = |service: &str| {
        let row =
            format!("[...document.querySelectorAll('.service')].find((of) => of.innerText.startsWith('{service}'))");
        format!("{row}?.querySelector('.state').lastChild.textContent")
    };
    gives(&browser, &says("one"), &json!("1 silent replica"));
    gives(&browser, &says("several"), &json!("2 silent replicas"));
    go(&browser, "#/service/1");
    gives(&browser, &format!("{FACTS}.Learning"), &json!("30 of 120 rows"));
    gives(&browser, &format!("{FACTS}.Replicas"), &json!("2, silent: novice-2"));
    go(&browser, "#/service/2");
    gives(&browser, &format!("{FACTS}.Learning"), &json!("done, goes on"));
    let colours =
        "new Set(['.facts', '.chart'].map((of) => getComputedStyle(document.querySelector(of)).backgroundColor)).size";
    gives(&browser, colours, &json!(1));
}

#[test]
fn a_sparkline_begins_with_the_first_score_that_has_a_threshold() {
    let Some(driver) = Driver::start_for(TESTS) else { return };
    let stage = Stage::open();
    let learning = || LmapStatus { state: "learning".to_owned(), gamma: 0.0, scores: vec![0.0], ..lmap(1, "cart") };
    let browser = driver.browser();
    stage.show(vec![learning()]);
    browser.open(&stage.url());
    shows(&browser, "learning, 120 of 120 rows");

    for _ in 0..3 {
        stage.show(vec![learning()]);
    }
    for _ in 0..3 {
        stage.show(vec![lmap(1, "cart")]);
    }

    let points = "(document.querySelector('.spark .line')?.getAttribute('d').match(/[ML]/g) ?? []).length";
    gives(&browser, points, &json!(3));
    // A viewer that begins now gets all of them at once.
    browser.open(&stage.url());
    gives(&browser, points, &json!(3));
}

/// A map of two services where requests are not counted, and a stream of packets between them that loses half.
fn map() -> String {
    let counts = |requests| Counts { requests, ..Counts::default() };
    let snapshot = |requests| MapSnapshot {
        calls: Some([(("shop".into(), "depot".into()), counts(requests))].into()),
        calls_from: 16,
        paths: [(("shop".into(), "GET /".into()), vec!["shop".into(), "depot".into()])].into(),
        ..MapSnapshot::default()
    };
    let mut map = Map::default();
    map.take(snapshot(0), Nanos(0));
    map.take(snapshot(16), Nanos::from_secs(10));
    map.json(|_| false, &[Stream { lmap: 3, service: "network.shop-depot".to_owned() }])
}

#[test]
fn a_stream_in_alarm_is_an_alarm_on_the_map_beside_the_calls_and_boxes_without_figures_have_names_only() {
    let Some(driver) = Driver::start_for(TESTS) else { return };
    let stage = Stage::open();
    let stream = LmapStatus { alarm: true, rank: 1, incident_unix_ns: BEGAN.0, ..lmap(3, "network.shop-depot") };
    stage.show(vec![lmap(1, "shop"), lmap(2, "depot"), stream]);
    stage.write("/api/map", map());
    let loss = Reason {
        column: "network.loss".to_owned(),
        metric: "network.loss".to_owned(),
        unit: "1".to_owned(),
        seen: 0.5,
        expected: 0.01,
        ..Reason::default()
    };
    stage.write("/api/metrics/3", documents::metrics(BEGAN, None, &[loss], Availability::Free));
    let browser = driver.browser();
    browser.open(&stage.url());

    go(&browser, "#/map");
    gives(&browser, "document.querySelector('.stream-edge.alarm text')?.textContent", &json!("▲ 50 % lost"));
    let red = "getComputedStyle(document.querySelector('.stream-edge.alarm path')).stroke === \
               getComputedStyle(document.querySelector('.stream-edge.alarm text')).fill";
    gives(&browser, red, &json!(true));
    let height =
        |of: &str| format!("Number(document.querySelector('{of}').getAttribute('d').match(/^M[\\d.]+ ([\\d.]+)/)[1])");
    let (call, stream) = (height(".call:not([data-ends^=entry])"), height(".stream-edge path"));
    gives(&browser, &format!("{call} - {stream}"), &json!(14));
    let named = "[...document.querySelectorAll('.node:not(.entry)')].map((of) => \
                 [of.querySelector('.name').textContent, of.querySelector('.name').getAttribute('text-anchor'), of.querySelector('.figures')])";
    let [shop, depot] = ["shop", "depot"].map(|name| json!([name, "middle", null]));
    gives(&browser, &format!("{named}.sort()"), &json!([depot, shop]));
    gives(&browser, "document.querySelector('svg.map').textContent.includes('–')", &json!(false));
    assert_eq!(browser.errors(), Vec::<Value>::new());
}

/// An incident of payment that goes on, with a log record of a trace.
fn incident() -> Incident {
    let metric = Reason { column: "queue.depth".to_owned(), about: "tenant 7".to_owned(), ..Reason::default() };
    let payment = IncidentService {
        service: "payment".to_owned(),
        rank: 1,
        began_unix_ns: BEGAN.0,
        metrics: vec![metric],
        ..IncidentService::default()
    };
    let log = IncidentLog {
        at_unix_ns: BEGAN.0,
        service: "payment".to_owned(),
        trace: format!("{:032x}", 7),
        ..IncidentLog::default()
    };
    Incident {
        id: INCIDENT.to_owned(),
        node: "node-3".to_owned(),
        began_unix_ns: BEGAN.0,
        services: vec![payment],
        logs: vec![log],
        kept_logs: 1,
        ..Incident::default()
    }
}

/// A kept trace that begins with the incident.
fn traces() -> Traces {
    let mut traces = Traces::new(1 << 20);
    let span = Span {
        id: 1,
        parent: None,
        service: "payment".into(),
        name: "POST /pay".into(),
        side: Side::Server,
        start: BEGAN,
        end: BEGAN.plus(Nanos::from_millis(5)),
        outcome: Outcome::Fine,
        kept: None,
    };
    traces.add(7, span);
    traces
}

#[test]
fn times_have_their_zone_and_an_incident_has_those_of_its_file() {
    let Some(driver) = Driver::start_for(TESTS) else { return };
    let stage = Stage::open();
    stage.show(vec![LmapStatus { alarm: true, rank: 1, incident_unix_ns: BEGAN.0, ..lmap(1, "payment") }]);
    let summary = IncidentSummary { id: INCIDENT.to_owned(), began_unix_ns: BEGAN.0, ..IncidentSummary::default() };
    let list = IncidentsReply { node: "node-3".to_owned(), incidents: vec![summary], in_memory: true };
    stage.write("/api/incidents", documents::incidents(&list));
    stage.write(&format!("/api/incident/{INCIDENT}"), documents::incident(&incident(), |_| None));
    stage.write("/api/traces", documents::traces(&traces(), documents::Keeping::Tail));
    stage.write(&format!("/api/trace/{:032x}", 7), documents::trace(&traces(), 7, None).unwrap());
    let browser = driver.browser();
    browser.pretend_zone(ZONE);
    browser.open(&stage.url());

    gives(&browser, "document.querySelector('.open time')?.textContent.endsWith('06:42 UTC')", &json!(true));
    go(&browser, "#/service/1");
    shows(&browser, "Times are UTC+5:30.");
    go(&browser, "#/traces");
    shows(&browser, "Times are UTC+5:30.");
    gives(&browser, "document.querySelector('.trace time').textContent", &json!("12:12:15"));
    go(&browser, &format!("#/trace/{:032x}", 7));
    shows(&browser, "at 12:12:15 UTC+5:30.");
    go(&browser, &format!("#/incident/{INCIDENT}"));
    shows(&browser, "06:42:15 UTC. It goes on.");
    assert!(incidents::draw::page(&incident()).contains("06:42:15"), "as its file");
    shows(&browser, "tenant 7");
    let links = "['#/service/1', '#/trace/00000000000000000000000000000007'].map((to) => \
                 document.querySelector(`td a[href='${to}']`) !== null)";
    gives(&browser, links, &json!([true, true]));
    assert_eq!(browser.errors(), Vec::<Value>::new());
}

#[test]
fn on_a_phone_the_row_of_views_fades_where_there_are_more() {
    let Some(driver) = Driver::start_for(TESTS) else { return };
    let stage = Stage::open();
    stage.show(vec![lmap(1, "cart")]);
    let browser = driver.browser();
    browser.open(&stage.url());
    let faded = "['before', 'after'].map((edge) => document.querySelector('nav').classList.contains(edge))";

    browser.pretend((1280, 900), "light");
    gives(&browser, faded, &json!([false, false]));
    browser.pretend((360, 780), "light");
    gives(&browser, faded, &json!([false, true]));
    gives(&browser, "getComputedStyle(document.querySelector('nav')).maskImage.includes('gradient')", &json!(true));
    go(&browser, "#/sources");
    gives(&browser, faded, &json!([true, false]));
}
