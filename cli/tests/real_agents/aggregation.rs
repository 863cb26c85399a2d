//! How replicas become one column: declared by the service, overridden by an operator, seen in what is recorded.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::WAIT;
use crate::restarts::Host;

/// One replica of a shop, whose queue has a length that does not change.
struct Replica {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Replica {
    fn start(instance: &str, queue: f64, socket: &Path) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let (stop, service) = (Arc::clone(&ends), client::Service::new("shop").instance(instance).socket(socket));
        let work = move || {
            let client = client::connect(service);
            let depth = client.gauge("shop.queue").aggregation("max").register();
            let slow = client.gauge("shop.slow").read_every(Duration::from_millis(100)).register();
            let (requests, errors) =
                (client.counter("shop.requests").register(), client.counter("shop.errors").register());
            while !stop.load(Relaxed) {
                depth.set(queue);
                slow.set(queue);
                requests.add(8);
                errors.add(2);
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        Self { ends, thread: Some(std::thread::spawn(work)) }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // the test sees the effects of a failure
        }
    }
}

/// The line of a metric in the list.
fn line(host: &Host, metric: &str) -> String {
    let (_, text) = host.uview(&["metric", "shop"]);
    let line = text.lines().find(|line| line.starts_with(metric)).unwrap_or_default();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn two_replicas_are_put_together_as_they_declare_until_an_operator_says_otherwise() {
    let mut host = Host::with("models_every_s: 300, aggregations: [{metrics: shop.slow, aggregation: p25}]");
    let _nic = host.nic_agent(0);
    let _replicas = [("one", 3.0), ("two", 11.0)].map(|(name, queue)| Replica::start(name, queue, &host.services));
    host.operators.when("shop", "both replicas are watched", |lmap| lmap.replicas == 2 && lmap.samples > 0);

    assert_eq!(line(&host, "shop.queue"), "shop.queue gauge max service 20 ms");
    assert_eq!(line(&host, "shop.slow"), "shop.slow gauge p25 configuration 100 ms");
    host.operators.row("shop", "the larger queue", |row| row.get("shop.queue") == Some(&11.0));
    host.operators.row("shop", "the lower quartile", |row| row.get("shop.slow") == Some(&5.0));

    for (aggregation, value) in [("p50", 7.0), ("max - min", 8.0), ("min", 3.0)] {
        let (code, text) = host.uview(&["metric", "shop", "shop.queue", "--aggregation", aggregation]);
        assert!(code == Some(0) && text.contains("operator"), "{code:?}: {text}");
        host.operators.row("shop", aggregation, |row| row.get("shop.queue") == Some(&value));
    }
    let (code, text) = host.uview(&["metric", "shop", "shop.queue", "-a", "max - mode"]);
    assert!(code == Some(1) && text.contains("at 6: mode is not known: min, max, sum, mean"), "{code:?}: {text}");
    assert_eq!(line(&host, "shop.queue"), "shop.queue gauge min operator 20 ms");

    let derive = ["metric", "shop", "shop.failed", "--derive", "shop.errors / shop.requests"];
    let (code, text) = host.uview(&derive);
    assert!(code == Some(0) && text.contains("derived"), "{code:?}: {text}");
    host.operators
        .row("shop", "a quarter fails", |row| row.get("shop.failed").is_some_and(|share| (share - 0.25).abs() < 0.05));
    let (code, text) = host.uview(&["metric", "shop", "shop.failed", "--derive", "shop.errors / shop.request"]);
    assert!(code == Some(1) && text.contains("at 14: shop.request is not known"), "{code:?}: {text}");
    let (_, text) = host.uview(&["metric", "shop", "shop.failed", "--delete"]);
    assert_eq!(text, "not watched\n");

    let (_, text) = host.uview(&["metric", "shop", "shop.queue"]);
    assert!(text.contains("max") && text.contains("service"), "{text}");
    WAIT.until("it is recorded as it was declared", || {
        let mut recorded = None;
        host.operators.row("shop", "a row", |row| {
            recorded = row.get("shop.queue").copied();
            true
        });
        recorded.filter(|value| *value == 11.0)
    });
}
