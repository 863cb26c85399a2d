//! Pictures of the live page for the book, of one run of the demo: `docs/page-NAME.png`.

use std::fs;

use demo::fault::{Kind, Pace};
use demo::graph::Target;
use serde_json::json;
use support::webdriver::Driver;

use crate::running::Demo;
use crate::viewer::{DESK, PHONE, Viewer};
use crate::views::{open_first_incident, open_newest_incident};

/// The most bytes of a picture.
const MOST: usize = 150_000;

/// Takes a picture of what is shown now, on a screen of this size.
#[track_caller]
fn shoot(viewer: &Viewer<'_>, name: &str, size: (u32, u32), scheme: &str) {
    viewer.browser.pretend(size, scheme);
    let scroll = "[document.documentElement, document.querySelector('nav')].forEach((of) => { of.style.scrollbarWidth = 'none'; })";
    viewer.browser.run(&format!("{scroll}; document.activeElement?.blur()"));
    // Charts follow the size, and are there after the next frame.
    viewer
        .browser
        .run("return new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(() => drawn(true))))");
    let png = viewer.browser.screenshot();
    println!("{name}: {} kB", png.len() / 1000);
    assert!(png.len() <= MOST, "{name} has {} bytes", png.len());
    fs::write(support::workspace().join(format!("docs/page-{name}.png")), png).unwrap();
    viewer.browser.pretend(DESK, "light");
}

/// Scrolls to a heading.
fn scroll_to(viewer: &Viewer<'_>, heading: &str) {
    let of = format!("[...document.querySelectorAll('h2')].find((head) => head.textContent === {})", json!(heading));
    viewer.until(heading, &format!("return {of} !== undefined"));
    viewer.browser.run(&format!("window.scrollTo(0, {of}.getBoundingClientRect().top + window.scrollY - 72)"));
}

/// Opens the view of a service.
fn open_service(viewer: &Viewer<'_>, service: &str) {
    let name = "row.querySelector('.name span:first-child').textContent";
    let row =
        format!("[...document.querySelectorAll('.services .service')].find((row) => {name} === {})", json!(service));
    viewer.until(service, &format!("const row = {row}; row?.click(); return row !== undefined"));
    viewer.heads(service);
}

/// The incident of a hog: the function that burned.
fn of_the_hog(viewer: &Viewer<'_>) {
    open_first_incident(viewer, "cart");
    let burns = "[...document.querySelectorAll('svg.flames title')].some((of) => of.textContent.includes('burn_the_processor'))";
    viewer.until("the function that burns is in its profile", &format!("return {burns}"));
    scroll_to(viewer, "What its processes did");
    shoot(viewer, "profile", (1200, 560), "light");
}

/// While the store is slow: `viewer` sees the overview, others see the store and the map since before.
fn of_the_slow_store(viewer: &Viewer<'_>, store: &Viewer<'_>, map: &Viewer<'_>) {
    let first = "document.querySelector('.services .service')?.textContent";
    let alarms = "[...document.querySelectorAll('.services .service.alarm .ratio')].map((of) => Number.parseFloat(of.textContent))";
    let is_found = format!(
        "const alarms = {alarms}; return alarms.length > 2 && alarms.every((score) => score > 1) \
         && {first}.startsWith('store') && {first}.includes('suspected cause')"
    );
    viewer.until("the store is suspected, two others wait for it", &is_found);
    shoot(viewer, "overview", (1200, 720), "light");
    shoot(viewer, "phone", PHONE, "light");
    map.until("the map marks it", "return document.querySelectorAll('svg.map .suspect').length === 1");
    shoot(map, "map", (1200, 640), "light");
    shoot(map, "dark", (1200, 640), "dark");
    map.go("#/traces", "Kept traces");
    let newest = "document.querySelector('.trace')?.textContent.includes('store: score')";
    map.until("traces are kept since the store is slow", &format!("return {newest}"));
    shoot(map, "traces", (1200, 640), "light");
    viewer.demo.says("latency in store is over");
    shoot(store, "service", (1200, 1100), "light");
    open_newest_incident(viewer, "store");
    viewer.until("its traces", "return document.querySelectorAll('.waterfall').length > 0");
    viewer.until("its end", "return /Until \\d\\d:/.test(document.body.innerText)");
    shoot(viewer, "incident", (1200, 1080), "light");
}

/// What was kept of it: traces, spans of each service; the node.
fn of_its_end(viewer: &Viewer<'_>) {
    viewer.go("#/traces", "Kept traces");
    let slow = "[...document.querySelectorAll('.trace')].find((trace) => /store: score.*work.duration/.test(trace.textContent) \
                && /^1\\d\\d ms$/.test(trace.querySelector('.took').textContent))";
    viewer.until("a slow trace", &format!("const slow = {slow}; slow?.click(); return slow !== undefined"));
    viewer.until("its spans", "return document.querySelectorAll('.waterfall .span.server').length > 4");
    shoot(viewer, "trace", (1200, 520), "light");
    viewer.go("#/receipt", "Receipt");
    viewer.shows("frontend");
    shoot(viewer, "receipt", (1200, 560), "light");
    viewer.go("#/node", "Node");
    viewer.shows("series of services");
    shoot(viewer, "node", (1200, 900), "light");
}

#[test]
#[ignore = "it draws docs/page-*.png anew, in about three minutes: `cargo test -p uview-cli --test demo_page -- --ignored pictures`"]
fn pictures_for_the_book() {
    let driver = Driver::start_for("pictures").unwrap();
    let demo = Demo::start(&[], &Pace::FULL, &[Kind::CpuHog, Kind::Latency, Kind::SlowLink], 0);
    let viewer = Viewer::open(&driver, &demo, &demo.first_address());
    demo.says("LMAPs armed");
    assert!(demo.has_link(), "the network view is of a link between namespaces: it takes root");
    let another = || Viewer::open(&driver, &demo, demo.ask(&["open", "--print"]).trim());
    let (store, map, network) = (another(), another(), another());
    // Before the first fault: charts, and quiet seconds of the heat map, begin when they are opened.
    open_service(&store, "store");
    map.go("#/map", "Map");
    network.go("#/network", "Network");

    demo.says("fault 1: cpu-hog in cart");
    of_the_hog(&viewer);
    viewer.go("#/", "");
    demo.says("fault 2: latency in store");
    of_the_slow_store(&viewer, &store, &map);
    of_its_end(&viewer);
    demo.says(&format!("slow-link in {} is over", Target::Link));
    shoot(&network, "network", (1200, 760), "light");

    demo.interrupt();
}
