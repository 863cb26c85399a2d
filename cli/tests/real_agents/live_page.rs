//! The live page in a real Chromium, of two real agents: each view, with names that would be markup.
#![expect(clippy::disallowed_methods, reason = "spans say when they were")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::webdriver::{Browser, Driver, ENTER, ESCAPE};
use crate::{ANY, Agent, addresses, eventually, free_port};

/// A label of a metric, and names of a span and its service.
const HOSTILE: &str = "<img src=x onerror=window.hit=1><script>window.hit=1</script>\u{202e}";
/// The same as it is shown.
const SHOWN: &str = "<img src=x onerror=window.hit=1><script>window.hit=1</script>\\u{202e}";

/// A service with a metric that jumps once `broken`.
pub fn serve(socket: PathBuf, broken: &'static AtomicBool) {
    std::thread::spawn(move || {
        let uview = client::connect(client::Service::new("payment").instance("payment-1").socket(socket));
        let calm: Vec<_> = (0..4).map(|number| uview.gauge(&format!("calm.{number}")).register()).collect();
        let queue = uview.gauge("queue.depth").label("route", HOSTILE).register();
        for tick in 0_u64.. {
            let noise = (tick.wrapping_mul(6_364_136_223_846_793_005) >> 40) % 100;
            for gauge in &calm {
                gauge.set(50.0 + noise as f64);
            }
            queue.set(if broken.load(Relaxed) { 50_000.0 + 1_000.0 * noise as f64 } else { noise as f64 });
            std::thread::sleep(Duration::from_millis(2));
        }
    });
}

/// A service that looks like a stream of packets from the shop to its depot, 1 % of which are lost.
fn stream(socket: PathBuf) {
    std::thread::spawn(move || {
        let service = client::Service::new("network.shop-depot").instance("shop-depot").socket(socket);
        let uview = client::connect(service.without_process_metrics());
        let delay = uview.gauge("network.delay.p50").unit("s").register();
        let loss = uview.gauge("network.loss").unit("1").register();
        loop {
            delay.set(0.004);
            loss.set(0.01);
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

/// Spans of one service: its name, and trace, id, parent and status code of each.
fn resource(service: &str, spans: impl Iterator<Item = (u32, u32, u32, u32)>) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let id = |number| if number == 0 { String::new() } else { format!("{number:016x}") };
    let span = |(trace, span, parent, code): (u32, u32, u32, u32)| {
        let start = now - 9_000_000 + 4_000_000 * u64::from(parent > 0);
        json!({
            "traceId": format!("{trace:032x}"), "spanId": id(span), "parentSpanId": id(parent), "name": HOSTILE, "kind": 2,
            "startTimeUnixNano": start.to_string(), "endTimeUnixNano": now.to_string(), "status": { "code": code },
        })
    };
    let name = json!({ "key": "service.name", "value": { "stringValue": service } });
    let spans: Vec<_> = spans.map(span).collect();
    json!({ "resource": { "attributes": [name] }, "scopeSpans": [{ "spans": spans }] })
}

/// Sends spans; `None` if they are not accepted.
fn post(otlp: &str, resources: &[Value]) -> Option<()> {
    let body = json!({ "resourceSpans": resources }).to_string();
    let mut stream = std::net::TcpStream::connect(otlp).ok()?;
    let head = "POST /v1/traces HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json";
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).ok()?;
    let mut answer = [0; 15];
    std::io::Read::read_exact(&mut stream, &mut answer).ok()?;
    answer.starts_with(b"HTTP/1.1 200").then_some(())
}

/// Sends a failed request of two spans.
fn send(otlp: &str) -> Option<()> {
    post(otlp, &[resource(HOSTILE, [(0xabc, 1, 0, 2), (0xabc, 2, 1, 2)].into_iter())])
}

/// Sends 200 requests of a shop, each of which calls its depot: paths are learnt from one in sixteen.
fn shop(otlp: &str) -> Option<()> {
    let requests = 0x1000..0x10c8_u32;
    let shop = resource("shop", requests.clone().map(|trace| (trace, 1, 0, 0)));
    // Each other call fails.
    let depot = resource("depot", requests.map(|trace| (trace, 2, 1, if trace % 2 == 0 { 2 } else { 1 })));
    post(otlp, &[shop, depot])
}

/// A Prometheus that has scores of two days: one each quarter of an hour, 20 times γ.
fn prometheus() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let values: Vec<_> = (0..192).map(|ago| json!([now - 172_800 + 900 * ago, "20"])).collect();
    let body = json!({ "status": "success", "data": { "resultType": "matrix", "result": [{ "metric": {}, "values": values }] } });
    let body = body.to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json";
            _ = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        }
    });
    address
}

/// Both agents in `folder`. Rows are taken every 20 ms, so that an LMAP is armed after a few seconds.
fn agents(folder: &Path, otlp: &str) -> [Agent; 2] {
    let run = folder.join("run");
    let (host_config, nic_config) = (folder.join("host.yaml"), folder.join("nic.yaml"));
    let host = format!(
        "runtime_dir: {}\nmetrics: {ANY}\nprocess_metrics: {{enabled: false}}\nlmap: {{interval_ms: 20}}\n\
         page: {{prometheus: {{url: 'http://{}'}}}}\n\
         otlp: {{upstream: {{endpoint: 'http://127.0.0.1:1'}}, listen_grpc: 127.0.0.1:0, listen_http: '{otlp}', \
         traces: {{keep: tail, order_key: 00112233445566778899aabbccddeeff, decision_wait_ms: 1000, floor: 0, \
         latency: false}}}}\ncoherence: {{peers: ['127.0.0.1:1'], listen: 127.0.0.1:0, insecure: true}}\n",
        run.display(),
        prometheus()
    );
    std::fs::write(&host_config, host).unwrap();
    let host = Agent::start("host-agent", &host_config);
    let ready = addresses(&run);
    let (control, regions) = (ready["control"].as_str().unwrap(), ready["regions"].as_str().unwrap());
    let nic = format!("control: {{address: '{control}'}}\nregions_socket: {regions}\ntransport: shm\nmetrics: {ANY}\n");
    std::fs::write(&nic_config, nic).unwrap();
    [host, Agent::start("nic-agent", &nic_config)]
}

/// What `uview open` prints.
fn address(run: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    let output = command.args(["open", "--print"]).env("UVIEW_RUNTIME_DIR", run).output().unwrap();
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

/// Opens the first of a list by keys. Returns its address within the page. Again, if the list was drawn anew between
/// the keys, which takes the focus.
fn open_first(browser: &Browser<'_>, opened: &str) -> String {
    eventually("the first of the list is open", || {
        browser.press("j");
        browser.press(ENTER);
        let hash = browser.run("return location.hash");
        hash.as_str().filter(|hash| hash.starts_with(opened)).map(str::to_owned)
    })
}

/// The list of incidents, and the one that is there.
fn incidents(browser: &Browser<'_>) {
    view(browser, "#/incidents", SHOWN);
    let hash = open_first(browser, "#/incident/");
    shows(browser, "What was normal before");
    view(browser, &hash, SHOWN);
    eventually("the time line has scores", || {
        let drawn = browser.run("return document.querySelector('.timeline .line').getAttribute('d').length > 40");
        (drawn == Value::Bool(true)).then_some(())
    });
    browser.press(ESCAPE);
    assert_eq!(browser.run("return location.hash"), json!("#/incidents"));
}

/// Operations and services of a shop as a map, and its stream of packets.
fn map_and_network(browser: &Browser<'_>, otlp: &str, services: PathBuf) {
    view(browser, "#/network", "network.streams");
    stream(services);
    eventually("requests are accepted", || shop(otlp));
    view(browser, "#/map", "2 services");
    eventually("the map has rates", || {
        let says = browser.run("return document.querySelector('.lead').innerText");
        says.as_str()?.contains("Rates are of the last").then_some(())
    });
    eventually("an operation leads to the shop, which calls its depot", || {
        let parts = "['.node', '.node.entry', '.call'].map((of) => document.querySelectorAll(`svg.map ${of}`).length)";
        (browser.run(&format!("return {parts}")) == json!([3, 1, 2])).then_some(())
    });
    // Half of the calls failed, of which one in sixteen is counted.
    eventually("calls fail on the map", || {
        let says = browser.run("return document.querySelector('svg.map .call.failing title')?.textContent");
        says.as_str()?.contains("% failed").then_some(())
    });
    eventually("the stream is an edge with its delay and loss", || {
        let says = browser.run("return document.querySelector('svg.map .stream-edge text')?.textContent");
        (says == json!("4.00 ms · 1.0 % lost")).then_some(())
    });
    view(browser, "#/map", "Packets between services");
    // The operation comes first, then the shop, which calls.
    browser.press("j");
    browser.press("j");
    browser.press(ENTER);
    view(browser, "#/map", "Failed, about");
    browser.press("/nobody");
    shows(browser, "No service matches the filter.");
    browser.run("document.activeElement.blur()");
    view(browser, "#/network", "shop-depot");
}

/// The score of a week, of which a Prometheus has two days.
fn week(browser: &Browser<'_>) {
    browser.run("[...document.querySelectorAll('[data-span]')].find((of) => of.textContent === '7 days').click()");
    eventually("two days are drawn", || {
        let drawn = browser.run("return document.querySelector('.chart .line').getAttribute('d').split('L').length");
        (drawn.as_u64()? > 180).then_some(())
    });
    let alarming = browser.run("return document.querySelector('.chart .over').getAttribute('d').length > 1000");
    assert_eq!(alarming, Value::Bool(true));
    browser.run("document.querySelector('[data-span]').click()");
}

/// Workers, another node that does not answer, and what the agent keeps of what it may.
fn node(browser: &Browser<'_>) {
    view(browser, "#/node", "Reads by");
    view(browser, "#/node", "127.0.0.1:1");
    shows(browser, "not heard");
    // The part of a row after its name: series that are there, of those that may be.
    let row = |name: &str| {
        let text = browser.run("return document.body.innerText.replaceAll('\\u2009', '')");
        Some(text.as_str()?.split_once(name)?.1.trim_start().to_owned())
    };
    let series = eventually("series are counted", || row("series of services"));
    let used: u32 = series.split(' ').next().unwrap().parse().unwrap();
    assert!(used > 0 && series[used.to_string().len()..].starts_with(" of 262144 series"), "{series}");
    let resident = row("\nall").unwrap();
    assert!(resident.contains("resident"), "{resident}");
}

#[test]
fn a_browser_shows_each_view_and_nothing_that_a_service_says_becomes_markup() {
    static BROKEN: AtomicBool = AtomicBool::new(false);
    let Some(driver) = Driver::start() else {
        // Not `println!`, which the test's harness swallows.
        return writeln!(std::io::stderr(), "NOT RUN: the page in a browser: it needs chromium and chromedriver")
            .unwrap();
    };
    let folder = tempfile::tempdir().unwrap();
    let (run, otlp) = (folder.path().join("run"), free_port().to_string());
    let [host, _nic] = agents(folder.path(), &otlp);
    serve(run.join("services.sock"), &BROKEN);
    eventually("spans are accepted", || send(&otlp));
    let (url, browser) = (address(&run), driver.browser());

    browser.open(&url);
    shows(&browser, "payment");
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
    shows(&browser, "All is quiet");
    eventually("the LMAP is armed", || {
        let lmap = crate::lmap(&run, "payment")?;
        (lmap["state"] == "armed").then_some(())
    });
    BROKEN.store(true, Relaxed);
    shows(&browser, "suspected cause");

    view(&browser, "#/", SHOWN);
    let hash = open_first(&browser, "#/service/");
    shows(&browser, "Threshold γ");
    view(&browser, &hash, SHOWN);
    eventually("scores are drawn", || {
        let drawn = browser.run("return document.querySelector('.chart .line')?.getAttribute('d').length > 20");
        (drawn == Value::Bool(true)).then_some(())
    });
    week(&browser);
    shows(&browser, "goes on");
    eventually("each metric is shown, also those that explain nothing", || {
        let text = browser.run("return document.body.innerText");
        (0..4).all(|number| text.as_str().is_some_and(|text| text.contains(&format!("calm.{number}")))).then_some(())
    });
    eventually("the heat map shows what made the score", || {
        let title = browser.run("return document.querySelector('.heat title')?.textContent");
        title.as_str()?.contains("of the score").then_some(())
    });
    incidents(&browser);
    view(&browser, "#/traces", SHOWN);
    let hash = open_first(&browser, "#/trace/");
    assert_eq!(hash, format!("#/trace/{:032x}", 0xabc));
    view(&browser, &hash, "ended in an error");
    assert_eq!(browser.run("return document.querySelectorAll('.span rect').length"), json!(2));
    map_and_network(&browser, &otlp, run.join("services.sock"));
    // Names that are not printable are counted together.
    view(&browser, "#/receipt", "_other");
    node(&browser);
    view(&browser, "#/sources", "No endpoint is scraped");
    browser.press(ESCAPE);
    shows(&browser, "payment");
    browser.press("/nobody");
    shows(&browser, "No service matches the filter.");

    assert_eq!(host.end(), Some(0), "viewers do not keep the agent from ending");
    shows(&browser, "no answer for");
}
