//! The live page in a real Chromium, of two real agents: each view, with names that would be markup.

mod clicks;
mod held;
mod links;
mod senders;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use serde_json::{Value, json};

pub use self::senders::exposing;
use self::senders::{
    Agents, MARKUP, TRACES, UNREADABLE, agents, checkout, export, fail, log, neighbour, send, shop, shown, stream,
    succeed,
};
use crate::hostile_text::{HOSTILE, ODD};
use crate::incidents::{Replica, noted_changes};
use crate::webdriver::{Browser, Driver, ENTER, ESCAPE};
use crate::{WAIT, lmap};

/// What `uview open` prints, with these arguments.
fn address(run: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    let command = command.args(["open", "--print"]).args(arguments).env("UVIEW_RUNTIME_DIR", run);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Waits until the page has `text`; a failure says what it has.
fn shows(browser: &Browser<'_>, text: &str) {
    let mut shown = Value::Null;
    for _ in 0..2_400 {
        shown = browser.run("return document.body.innerText");
        if shown.as_str().is_some_and(|shown| shown.contains(text)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    unreachable!("{text} is not on the page:\n{shown:#}");
}

/// Goes to a view by its address within the page, and looks whether it fits this screen, and whether text became
/// markup.
fn view(browser: &Browser<'_>, hash: &str, text: &str) {
    browser.run(&format!("location.hash = {}", json!(hash)));
    shows(browser, text);
    for (size, scheme) in [((1280, 900), "light"), ((1280, 900), "dark"), ((360, 780), "dark"), ((360, 780), "light")] {
        browser.pretend(size, scheme);
        let fits = browser.run("return document.documentElement.scrollWidth <= window.innerWidth");
        assert_eq!(fits, Value::Bool(true), "{hash} is wider than {size:?}");
    }
    let foreign = browser.run("return [document.images.length, document.scripts.length, window.hit ?? 0]");
    assert_eq!(foreign, json!([0, 1, 0]), "{hash}");
    assert_eq!(browser.errors(), Vec::<Value>::new(), "{hash}");
}

/// Opens the first of a list by keys. Returns its address within the page. Other lists may be above it.
fn open_first(browser: &Browser<'_>, opened: &str) -> String {
    WAIT.until("the first of the list is open", || {
        let hash = browser.run("return location.hash");
        if let Some(hash) = hash.as_str().filter(|hash| hash.starts_with(opened)) {
            return Some(hash.to_owned());
        }
        browser.press("j");
        let focused = browser.run("return document.activeElement?.getAttribute('href')");
        if focused.as_str().is_some_and(|leads| leads.starts_with(opened)) {
            browser.press(ENTER);
        }
        None
    })
}

/// The list of incidents, and the one that is there with its evidence: a restart, a log record, a trace, a stream. It
/// is a file, too.
fn incidents(browser: &Browser<'_>) {
    view(browser, "#/incidents", &shown(ODD));
    let hash = open_first(browser, "#/incident/");
    shows(browser, "What was normal before");
    view(browser, &hash, &shown(ODD));
    WAIT.until("the time line has scores", || {
        let drawn = browser.run("return document.querySelector('.timeline .line').getAttribute('d').length > 40");
        (drawn == Value::Bool(true)).then_some(())
    });
    shows(browser, "payment: payment-2 was started again");
    let marks = browser.run("return document.querySelectorAll('.timeline .change.first').length");
    assert!(marks.as_u64() >= Some(1), "what was changed first is a mark on the time line");
    shows(browser, "Kept by error: ");
    shows(browser, "Kept log records");
    shows(browser, &shown(HOSTILE));
    shows(browser, "Streams of packets");
    let rows = "[...document.querySelectorAll('h2')].find((of) => of.textContent === 'Streams of packets').nextSibling";
    WAIT.until("the stream's figures are there", || {
        let text = browser.run(&format!("return {rows}.innerText"));
        let text = text.as_str()?;
        ["shop-depot", "network.loss", "network.delay.p99", "12"].iter().all(|of| text.contains(of)).then_some(())
    });
    view(browser, &hash, "On ");
    saved(browser);
    browser.press(ESCAPE);
    assert_eq!(browser.run("return location.hash"), json!("#/incidents"));
}

/// The file behind *Save as a file*.
fn saved(browser: &Browser<'_>) {
    let link = "document.querySelector('a[download]')";
    let is_file = browser.run(&format!("return /^incident-[0-9-]+\\.html$/.test({link}.download)"));
    assert_eq!(is_file, Value::Bool(true));
    let file = format!(
        "return fetch({link}.href).then((of) => of.text().then((text) => [of.status, of.headers.get('content-type'), text]))"
    );
    let file = browser.run(&file);
    assert_eq!((&file[0], &file[1]), (&json!(200), &json!("text/html; charset=utf-8")));
    let text = file[2].as_str().unwrap();
    assert!(text.contains("queue.depth") && text.contains("payment-2 was started again"), "{text}");
    for markup in ["<script", "<img", "alert('"] {
        assert!(!text.contains(markup), "{markup} is in the file");
    }
}

/// The profile of an incident: the widest box below the others is of `function`.
pub fn shows_profile(run: &Path, incident: &str, function: &str) {
    let Some(driver) = Driver::start_for("a profile in a browser") else { return };
    let browser = driver.browser();
    browser.open(&address(run, &[]));
    view(&browser, &format!("#/incident/{incident}"), "What its processes did");
    shows(&browser, "sampled at");
    let of =
        format!("[...document.querySelectorAll('svg.flames g')].filter((of) => of.textContent.includes('{function}'))");
    let widest =
        browser.run(&format!("return Math.max(...{of}.map((of) => of.querySelector('rect').width.baseVal.value))"));
    let whole = browser.run("return document.querySelector('svg.flames').viewBox.baseVal.width");
    let (widest, whole) = (widest.as_f64().unwrap(), whole.as_f64().unwrap());
    assert!(widest >= 0.9 * whole, "{function} is {widest} wide, of {whole}");
}

/// Operations and services of a shop as a map.
fn map(browser: &Browser<'_>, otlp: &str) {
    WAIT.until("requests are accepted", || shop(otlp));
    view(browser, "#/map", "4 services");
    WAIT.until("the map has rates", || {
        let says = browser.run("return document.querySelector('.lead').innerText");
        says.as_str()?.contains("Rates are of the last").then_some(())
    });
    WAIT.until("an operation leads to the shop, which calls three others", || {
        let parts = "['.node', '.node.entry', '.call'].map((of) => document.querySelectorAll(`svg.map ${of}`).length)";
        (browser.run(&format!("return {parts}")) == json!([5, 1, 4])).then_some(())
    });
    // Half of the calls failed, of which one in sixteen is counted.
    WAIT.until("calls fail on the map", || {
        let says = browser.run("return document.querySelector('svg.map .call.failing title')?.textContent");
        says.as_str()?.contains("% failed").then_some(())
    });
    WAIT.until("the stream is an edge with its delay and loss", || {
        let says = browser.run("return document.querySelector('svg.map .stream-edge text')?.textContent");
        (says == json!("4.00 ms · 1.0 % lost")).then_some(())
    });
    WAIT.until("payment is in alarm on the map, as the suspected cause", || {
        let node = "document.querySelector('svg.map .node.alarm.suspect')";
        let said = browser.run(&format!("return {node}?.getAttribute('aria-label')"));
        let text = browser.run(&format!("return {node}?.textContent"));
        let is_said = said.as_str()?.starts_with("payment. Suspected cause.");
        (is_said && text.as_str()?.contains("▲ suspected cause")).then_some(())
    });
    let labels = browser.run("return [...document.querySelectorAll('svg.map .node')].map((of) => of.dataset.key)");
    for key in [format!("operation shop {MARKUP}"), format!("service {MARKUP}")] {
        assert!(labels.as_array().is_some_and(|labels| labels.contains(&json!(key))), "{labels}");
    }
    view(browser, "#/map", "Packets between services");
    // The operation comes first, then the shop, which calls.
    browser.press("j");
    browser.press("j");
    browser.press(ENTER);
    view(browser, "#/map", "Failed, about");
    browser.press("/nobody");
    shows(browser, "No service matches the filter.");
    browser.run("document.activeElement.blur()");
}

/// What a stream says openly, the histogram of its delays, and the ranking of its clients.
fn network(browser: &Browser<'_>) {
    view(browser, "#/network", "shop-depot");
    let facts = "[...document.querySelectorAll('.streams .facts div:has(dt)')].map((of) => [...of.children].map((of) => of.textContent))";
    let about = format!("10.0.0.8 (53 of 100 packets) {}", shown(ODD));
    WAIT.until("each figure is shown", || {
        let facts = browser.run(&format!("return {facts}"));
        let is =
            |name: &str, value: &str| facts.as_array()?.iter().find(|of| of[0] == name && of[1] == value).map(drop);
        is("Median delay", "4.00 ms")?;
        is("95 % of delays", "9.00 ms")?;
        is("99 % of delays", "12.0 ms")?;
        is("Mean one-way delay", "–")?;
        is("Lost", "1.0 %")?;
        is("Unanswered", "2.3 %")?;
        is("Distinct sources", "1\u{2009}234")?;
        is("Distinct flows", "56\u{2009}789")?;
        let talker = facts.as_array()?.iter().find(|of| of[0] == "Top talker")?[1].as_str()?;
        talker.strip_prefix("53 %")?.starts_with(&about).then_some(())
    });
    WAIT.until("labels make a histogram of delays, and a ranking of clients", || {
        let bars = browser.run("return document.querySelectorAll('svg.histogram .bar').length");
        let rows = "[...document.querySelectorAll('h3 + .wide tbody tr')].map((row) => row.children[1].textContent)";
        let rows = browser.run(&format!("return {rows}"));
        let second = rows[1].as_str()?.starts_with(&format!("client=\"{}", shown(ODD)));
        (bars == 2 && rows[0] == "client=\"10.0.0.8\"" && second).then_some(())
    });
    let shares = browser.run("return document.querySelector('svg.histogram').getAttribute('aria-label')");
    assert_eq!(shares, json!("up to 1.00 ms: 25 %, longer: 75 %"));
    let quantiles = browser.run("return document.querySelector('svg.stream').getAttribute('aria-label')");
    assert_eq!(quantiles, json!("p50 4.00 ms, p95 9.00 ms, p99 12.0 ms"));
    WAIT.until("lines of delays and losses have whole names, also where a line ends at the right", || {
        let right = "of.ownerSVGElement.querySelector('.grid').x2.baseVal.value + 6 + of.getBBox().width";
        let names = browser.run(&format!(
            "return [...document.querySelectorAll('svg.stream .line + text')].map((of) => \
             [of.textContent, {right} <= of.ownerSVGElement.viewBox.baseVal.width])"
        ));
        let wanted = ["median", "95 %", "99 %", "lost", "unanswered"].map(|name| json!([name, true]));
        (names == json!(wanted)).then_some(())
    });
}

/// What became of the spans, and what the agent used.
fn receipt(browser: &Browser<'_>, otlp: &str) {
    WAIT.until("requests are accepted", || succeed(otlp));
    // Names that are not printable are counted together.
    view(browser, "#/receipt", "_other");
    let row = "[...document.querySelectorAll('tbody tr')].find((of) => of.children[0].textContent === 'quiet')";
    let titles = "[...document.querySelectorAll('thead th')].map((of) => of.textContent)";
    WAIT.until("spans that nothing selects were dropped", || {
        let dropped = browser.run(&format!("return {row}?.children[{titles}.indexOf('Dropped')].textContent"));
        let why = browser.run(&format!("return {row}?.children[{titles}.indexOf('Dropped')].firstChild.title"));
        (dropped == "50" && why == "aged 50").then_some(())
    });
    for pattern in
        ["dropped, 0 lost", "The host agent used [\\d.]+ m?s of processor time", "has [\\d.]+ MB in memory now"]
    {
        let is_said = browser.run(&format!("return /{pattern}/.test(document.body.innerText)"));
        assert_eq!(is_said, Value::Bool(true), "{pattern}");
    }
}

/// What is scraped and exported, and its metrics.
fn sources(browser: &Browser<'_>, run: &Path, otlp: &str) {
    WAIT.until("metrics are accepted", || export(otlp));
    view(browser, "#/sources", "exporter");
    shows(browser, &format!("line 1 is no sample: its value is no number: `{}`", shown(UNREADABLE)));
    shows(browser, "watching");
    let scraped = WAIT.until("the scraped service has an LMAP", || lmap(run, "scraped")?["lmap"].as_u64());
    browser.run("document.querySelectorAll('details:not([open]) summary').forEach((of) => of.click())");
    WAIT.until("families are listed", || {
        export(otlp)?;
        let names = browser
            .run("return [...document.querySelectorAll('details tbody tr')].map((of) => of.children[0].textContent)");
        let names = names.as_array()?;
        ["depth", "served_total", "exported.depth"].iter().all(|name| names.contains(&json!(name))).then_some(())
    });
    view(browser, "#/sources", "unreadable");
    view(browser, &format!("#/service/{scraped}"), &shown(ODD));
}

/// Keys: views by their number, the list of keys, and the way back within a list.
fn keys(browser: &Browser<'_>) {
    let views = ["", "map", "incidents", "traces", "network", "receipt", "node", "sources"];
    for (number, view) in (1..).zip(views) {
        browser.press(&format!("{number}"));
        assert_eq!(browser.run("return location.hash"), json!(format!("#/{view}")));
    }
    browser.press("?");
    assert_eq!(browser.run("return document.getElementById('keys').open"), Value::Bool(true));
    shows(browser, "next, previous");
    browser.press(ESCAPE);
    WAIT.until("the list of keys is closed", || {
        (browser.run("return document.getElementById('keys').open") == Value::Bool(false)).then_some(())
    });
    browser.press("1");
    WAIT.until("k goes back to the first of the list", || {
        browser.run("document.activeElement.blur()");
        browser.press("jjk");
        let place = "[...document.querySelectorAll('.service, .trace')].indexOf(document.activeElement)";
        (browser.run(&format!("return {place}")) == 0).then_some(())
    });
}

/// Score and alarms of a week, of which a Prometheus has two days.
fn week(browser: &Browser<'_>) {
    browser.run("[...document.querySelectorAll('[data-span]')].find((of) => of.textContent === '7 days').click()");
    WAIT.until("two days are drawn", || {
        let drawn = browser.run("return document.querySelector('.chart .line').getAttribute('d').split('L').length");
        (drawn.as_u64()? > 180).then_some(())
    });
    let alarming = browser.run("return document.querySelector('.chart .over').getAttribute('d').length > 1000");
    assert_eq!(alarming, Value::Bool(true));
    shows(browser, "scraped by a Prometheus, to 15 min");
    let lasted = browser.run("return document.body.innerText.includes('30 min')");
    assert_eq!(lasted, Value::Bool(true), "two steps with an alarm are one");
    browser.run("document.querySelector('[data-span]').click()");
}

/// Workers, problems, other nodes, one of which does not answer, and what the agents keep of what they may.
fn node(browser: &Browser<'_>, folder: &Path, gossip: &str) {
    let _neighbour = neighbour(folder, gossip);
    view(browser, "#/node", "Reads by");
    view(browser, "#/node", "127.0.0.1:1");
    shows(browser, "not heard");
    // The name of the neighbour, and what the target says that cannot be read.
    view(browser, "#/node", &shown(ODD));
    shows(browser, &shown(UNREADABLE));
    // What the NIC agent says with its summaries.
    view(browser, "#/node", "Budget of the NIC agent of worker 0");
    shows(browser, "buffers of regions");
    // The part of a row after its name: series that are there, of those that may be.
    let row = |name: &str| {
        let text = browser.run("return document.body.innerText.replaceAll('\\u2009', '')");
        Some(text.as_str()?.split_once(name)?.1.trim_start().to_owned())
    };
    let series = WAIT.until("series are counted", || row("series of services"));
    let used: u32 = series.split(' ').next().unwrap().parse().unwrap();
    assert!(used > 0 && series[used.to_string().len()..].starts_with(" of 262144 series"), "{series}");
    let resident = row("\nall").unwrap();
    assert!(resident.contains("resident"), "{resident}");
}

/// Two services in alarm, one of which points at the other; before that, a replica of the other was started again.
struct Fault {
    broken: Arc<AtomicBool>,
    _services: [Replica; 3],
}

impl Fault {
    /// Starts the services, and waits until they and the stream are armed.
    fn prepare(run: &Path, ready: &Value) -> Self {
        let (sound, broken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let socket = || run.join("services.sock");
        let first = Replica::start(socket(), "payment-1", ODD, &broken);
        let second = Replica::start(socket(), "payment-2", ODD, &sound);
        let calling = checkout(socket(), &broken);
        stream(socket());
        WAIT.until("all LMAPs are armed", || {
            let is_armed = |service| Some(lmap(run, service)?["state"] == "armed");
            let all = is_armed("payment")? && is_armed("checkout")? && is_armed("network.shop-depot")?;
            // Both, and what its spans say.
            (all && lmap(run, "payment")?["replicas"] == 3).then_some(())
        });
        let before = WAIT.until("changes are counted", || noted_changes(ready));
        second.end();
        WAIT.until("it is noted that payment-2 is gone", || (noted_changes(ready)? > before).then_some(()));
        let again = Replica::start(socket(), "payment-2", ODD, &sound);
        WAIT.until("it is noted that payment-2 is back", || (noted_changes(ready)? >= before + 2).then_some(()));
        Self { broken, _services: [first, again, calling] }
    }
}

/// The overview, with the suspected cause and who points at it, and the service itself.
fn overview_and_service(browser: &Browser<'_>) {
    shows(browser, "suspected cause");
    shows(browser, "Points at payment.");
    view(browser, "#/", &shown(ODD));
    WAIT.until("the sparkline of payment is drawn, above γ", || {
        let row = "[...document.querySelectorAll('.service')].find((of) => of.innerText.startsWith('payment'))";
        let drawn =
            browser.run(&format!("return {row}.querySelector('.spark .over').getAttribute('d').split('L').length"));
        let said = browser.run(&format!("return {row}.querySelector('.spark').getAttribute('aria-label')"));
        let ratio: f64 = said.as_str()?.strip_prefix("score ")?.strip_suffix(" times γ")?.parse().ok()?;
        (drawn.as_u64()? > 20 && ratio > 1.0).then_some(())
    });
    let hash = open_first(browser, "#/service/");
    shows(browser, "Threshold γ");
    view(browser, &hash, &shown(ODD));
    let budget =
        "[...document.querySelectorAll('.facts dt')].find((of) => of.textContent === 'Budget of γ').nextSibling";
    let budget = browser.run(&format!("return {budget}.textContent"));
    assert!(budget.as_str().is_some_and(|of| of.contains(" alarms a day, factor ")), "{budget}");
    WAIT.until("scores are drawn", || {
        let drawn = browser.run("return document.querySelector('.chart .line')?.getAttribute('d').length > 20");
        (drawn == Value::Bool(true)).then_some(())
    });
    week(browser);
    shows(browser, "goes on");
    WAIT.until("each metric is shown, also those that explain nothing", || {
        let text = browser.run("return document.body.innerText");
        (0..4).all(|number| text.as_str().is_some_and(|text| text.contains(&format!("calm.{number}")))).then_some(())
    });
    WAIT.until("the heat map shows what made the score", || {
        let title = browser.run("return document.querySelector('.heat title')?.textContent");
        title.as_str()?.contains("of the score").then_some(())
    });
}

/// Whoever opens the view when the alarm is over finds in its heat map what was above γ.
fn heat_of_before(browser: &Browser<'_>, run: &Path, fault: &Fault) {
    fault.broken.store(false, Relaxed);
    let id = WAIT.until("the alarm of payment is over", || {
        let payment = lmap(run, "payment")?;
        payment["lmap"].as_u64().filter(|_| payment["alarm"] == false)
    });
    view(browser, &format!("#/service/{id}"), "Threshold γ");

    browser.reload();

    let cells = "[...document.querySelectorAll('.heat')].filter((of) => of.textContent.includes('queue.depth'))";
    let is_before = "(of) => Number(of.dataset.second) < Math.floor(performance.timeOrigin / 1000) - 1";
    let dark = "(of) => Number(of.getAttribute('fill-opacity')) > 0.5";
    WAIT.until("the alarm's seconds are dark, from before the page was loaded", || {
        let alarm = "document.querySelectorAll('.heat-alarm').length > 0";
        let drawn = browser.run(&format!("return {alarm} && {cells}.filter({is_before}).some({dark})"));
        (drawn == Value::Bool(true)).then_some(())
    });
}

/// A kept trace, and its link to the tracing backend.
fn traces(browser: &Browser<'_>) {
    view(browser, "#/traces", &shown(HOSTILE));
    let hash = format!("#/trace/{:032x}", 0xabc);
    view(browser, &hash, "ended in an error");
    assert_eq!(browser.run("return document.querySelectorAll('.span rect').length"), json!(2));
    let link = browser.run("return document.querySelector('.lead a').href");
    assert_eq!(link, json!(format!("{TRACES}{:032x}", 0xabc)));
    browser.press(ESCAPE);
    assert_eq!(browser.run("return location.hash"), json!("#/traces"));
    open_first(browser, "#/trace/");
}

#[test]
fn a_browser_shows_each_view_and_nothing_that_a_service_says_becomes_markup() {
    let Some(driver) = Driver::start_for("the page in a browser") else { return };
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let Agents { host, ready, otlp, gossip, nic: _nic } = agents(folder.path());
    WAIT.until("spans are accepted", || send(&otlp));
    // Metrics of payment's requests are learnt with its others.
    WAIT.until("a failed request is accepted", || fail(&otlp, 0xdee));
    let (url, browser) = (address(&run, &[]), driver.browser());

    browser.open(&url);
    shows(&browser, "live");
    assert_eq!(
        browser.run("return location.pathname + location.search"),
        json!("/"),
        "the token is not in the address"
    );
    assert_eq!(browser.run("return document.cookie"), json!(""), "scripts do not see the cookie");
    let other = driver.browser();
    other.open(&url);
    shows(&other, "used before");
    drop(other);
    view(&browser, "#/network", "network.streams");
    view(&browser, "#/", "");
    let fault = Fault::prepare(&run, &ready);
    shows(&browser, "All is quiet");
    fault.broken.store(true, Relaxed);
    WAIT.until("payment is in alarm", || (lmap(&run, "payment")?["alarm"] == true).then_some(()));
    WAIT.until("a log record is accepted", || log(&otlp));
    WAIT.until("a failed request is accepted", || fail(&otlp, 0xdef));

    overview_and_service(&browser);
    clicks::of_an_alarm(&browser, &run);
    held::while_somebody_selects(&browser, &run);
    incidents(&browser);
    links::of_others(&driver, &run);
    traces(&browser);
    map(&browser, &otlp);
    network(&browser);
    receipt(&browser, &otlp);
    sources(&browser, &run, &otlp);
    held::while_somebody_has_the_focus(&browser);
    heat_of_before(&browser, &run, &fault);
    keys(&browser);
    node(&browser, folder.path(), &gossip);
    browser.press(ESCAPE);
    shows(&browser, "payment");
    browser.press("/nobody");
    shows(&browser, "No service matches the filter.");

    assert_eq!(host.end(), Some(0), "viewers do not keep the agent from ending");
    shows(&browser, "no answer for");
}
