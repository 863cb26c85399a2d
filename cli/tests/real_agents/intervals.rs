//! Intervals that an operator changes, and faster fetches during an anomaly, with real agents.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use wire::proto::operators::Detector;

use crate::operator_calls::RunningService;
use crate::restarts::{Host, WARM_UP};

/// A service whose queue can grow, when it has more to do. The rate of requests does not latch, as a gauge would.
struct Queue {
    ends: Arc<AtomicBool>,
    is_long: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Queue {
    fn start(socket: &Path) -> Self {
        let (ends, is_long) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (stop, long) = (Arc::clone(&ends), Arc::clone(&is_long));
        let service = client::Service::new("shop").instance("one").socket(socket);
        let work = move || {
            let client = client::connect(service);
            let (requests, queue) = (client.counter("shop.requests").register(), client.gauge("shop.queue").register());
            for step in 0_u64.. {
                if stop.load(Relaxed) {
                    return;
                }
                let length = (step * 7919 % 101) as f64;
                let (times, longer) = if long.load(Relaxed) { (10, 10_000.0) } else { (1, 0.0) };
                requests.add(times * (1 + step % 7));
                queue.set(longer + length);
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        Self { ends, is_long, thread: Some(std::thread::spawn(work)) }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // the test sees the effects of a failure
        }
    }
}

#[test]
fn an_anomaly_is_fetched_faster_and_afterwards_only_rows_are() {
    let mut host = Host::with("adaptive: {fastest_ms: 10}");
    let _nic = host.nic_agent(0);
    host.operators.new_lmap("shop", Detector::default(), Vec::new(), 100);
    let service = Queue::start(&host.services);
    let calm = host
        .operators
        .when("shop", "armed and calm", |lmap| lmap.state == "armed" && !lmap.alarm && lmap.fetch_us == lmap.judged_us);
    assert_eq!((calm.judged_us, calm.fastest_us), (100_000, 10_000));

    service.is_long.store(true, Relaxed);
    host.operators.when("shop", "in alarm, and fetched faster", |lmap| lmap.alarm && lmap.fetch_us == 10_000);
    let (_, text) = host.uview(&["status"]);
    assert!(text.contains("shop: fetched every 10 ms since something seems wrong"), "{text}");

    service.is_long.store(false, Relaxed);
    host.operators
        .when("shop", "calm, and fetched for its rows", |lmap| !lmap.alarm && lmap.fetch_us == lmap.judged_us);
    let (code, text) = host.uview(&["lmap", "shop", "--adaptive", "off"]);
    assert!(code == Some(0) && text.contains("fetched for its rows only"), "{code:?}: {text}");
    service.is_long.store(true, Relaxed);
    let slow = host.operators.when("shop", "in alarm again", |lmap| lmap.alarm);
    assert_eq!(slow.fetch_us, 100_000);
}

#[test]
fn what_a_service_does_in_an_alarm_is_normal_once_an_operator_says_so() {
    let mut host = Host::with("models_every_s: 300");
    let _nic = host.nic_agent(0);
    host.operators.new_lmap("shop", Detector::default(), Vec::new(), 100);
    let service = Queue::start(&host.services);
    host.operators.when("shop", "armed and calm", |lmap| lmap.judges() && !lmap.alarm);
    service.is_long.store(true, Relaxed);
    let alarm = host.operators.when("shop", "in alarm", |lmap| lmap.alarm);

    let (code, text) = host.uview(&["lmap", "shop", "--normal-now"]);

    assert!(code == Some(0) && text.contains("shop: what it does now is learnt as normal"), "{code:?}: {text}");
    let calm = host.operators.when("shop", "calm with a long queue", |lmap| lmap.judges() && !lmap.alarm);
    assert!(calm.samples - alarm.samples >= WARM_UP, "it learns from rows that follow: {alarm:?} {calm:?}");
    // The other way round, it is an anomaly now.
    service.is_long.store(false, Relaxed);
    host.operators.when("shop", "in alarm without a queue", |lmap| lmap.alarm);
    let (code, text) = host.uview(&["lmap", "shops", "--normal-now"]);
    assert!(code == Some(1) && text.contains("no LMAP has that name"), "{code:?}: {text}");
}

#[test]
fn an_operator_changes_the_interval_while_the_former_one_judges_and_comes_back_without_learning() {
    let mut host = Host::with("models_every_s: 300");
    let _nic = host.nic_agent(0);
    let _service = RunningService::start("shop", &host.services);
    host.operators.armed("shop");

    let (code, text) = host.uview(&["lmap", "shop", "--interval", "100ms"]);
    assert!(code == Some(0) && text.contains("judged every 20 ms until 120 rows are learnt"), "{code:?}: {text}");
    host.operators.when("shop", "the former interval judges", |lmap| {
        lmap.state == "armed" && lmap.judged_us == 20_000 && lmap.learning_needed > 0
    });
    let learnt = host.operators.when("shop", "the new one is learnt", |lmap| lmap.judged_us == 100_000);
    assert_eq!(learnt.state, "armed");
    let (_, text) = host.uview(&["status"]);
    assert!(text.contains("shop: a row every 100 ms, set by "), "{text}");

    let (code, text) = host.uview(&["lmap", "shop", "--interval", "default"]);
    assert!(code == Some(0) && text.contains("shop: a row every 20 ms"), "{code:?}: {text}");
    assert!(!text.contains("are learnt"), "it learns nothing anew: {text}");
    let learns = Cell::new(false);
    let back = host.operators.when("shop", "judged as before", |lmap| {
        learns.set(learns.get() || lmap.learning_needed > 0);
        lmap.judged_us == 20_000
    });
    assert_eq!((back.state.as_str(), learns.get()), ("armed", false), "it learnt nothing anew: {back:?}");

    let (code, text) = host.uview(&["lmap", "shop", "--interval", "1ms"]);
    assert!(code == Some(1) && text.contains("outside 2ms to 60s: lmap.fastest_ms"), "{code:?}: {text}");
    let (_, text) = host.uview(&["lmap", "shop"]);
    assert!(text.contains("\nshop: a row every 20 ms\n"), "{text}");
}
