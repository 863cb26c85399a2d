//! An LMAP over two services with real agents: it notices that their requests do not belong together any more, which
//! neither service shows alone; and what becomes of it when a service is gone, a NIC agent is killed, and it is
//! deleted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use wire::proto::operators::{HookEvent, LmapStatus, RegisterHookRequest};

use crate::WAIT;
use crate::operator_calls::Noise;
use crate::restarts::{Host, WARM_UP};

/// Two services: requests to the front make requests to stock, but for some noise, as long as they are not `apart`.
/// Then stock has as many as ever, at times of its own.
struct Shop {
    ends: Arc<AtomicBool>,
    apart: Arc<AtomicBool>,
    /// Whether stock is there.
    stocked: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A load that stays for a few milliseconds, between nothing and 396 requests per millisecond.
struct Load {
    noise: Noise,
    now: u64,
    left: u64,
}

impl Load {
    fn next(&mut self) -> u64 {
        if self.left == 0 {
            (self.now, self.left) = (4 * self.noise.draw(), 5 + self.noise.draw() / 5);
        }
        self.left -= 1;
        self.now
    }
}

impl Shop {
    fn open(socket: &Path) -> Self {
        let (ends, apart, stocked) = <(Arc<AtomicBool>, Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        let shared = (Arc::clone(&ends), Arc::clone(&apart), Arc::clone(&stocked));
        let socket: PathBuf = socket.to_owned();
        let connect = move |name: &str| {
            let client = client::connect(client::Service::new(name).instance("one").socket(&socket));
            let requests = client.counter("requests").register();
            (client, requests)
        };
        let work = move || {
            let (ends, apart, stocked) = shared;
            let load = |seed| Load { noise: Noise(seed), now: 0, left: 0 };
            let (mut front_load, mut own_load, mut noise) = (load(1), load(2), Noise(3));
            let ((_front, front), mut stock) = (connect("front"), None::<(_, client::Counter)>);
            while !ends.load(Relaxed) {
                let (here, own) = (front_load.next(), own_load.next());
                front.add(here + noise.draw());
                match &stock {
                    Some((_, requests)) => requests.add(noise.draw() + if apart.load(Relaxed) { own } else { here }),
                    None if stocked.load(Relaxed) => stock = Some(connect("stock")),
                    None => {}
                }
                if !stocked.load(Relaxed) {
                    stock = None;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        Self { ends, apart, stocked, thread: Some(std::thread::spawn(work)) }
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // the test sees the effects of a failure
        }
    }
}

/// Makes the LMAP before there is any stock, and waits until it judges both.
fn watched(host: &mut Host, shop: &Shop) {
    let (code, text) = host.uview(&["lmap", "both", "front/requests", "stock", "--interval", "50ms"]);
    assert!(code == Some(0) && text.contains("stock: replicas 0, series 0, MISSING for"), "{code:?}: {text}");
    host.operators.when("both", "it goes on with one of them", |lmap| lmap.columns == 1 && lmap.samples > 0);
    shop.stocked.store(true, Relaxed);
    for service in ["both", "front", "stock"] {
        let learnt =
            |lmap: &LmapStatus| lmap.judges() && lmap.samples > 3 * WARM_UP && lmap.unwatched == 0 && !lmap.alarm;
        host.operators.when(service, "it has learnt", learnt);
    }
}

#[test]
fn an_lmap_over_two_services_notices_what_neither_shows_alone() {
    let mut host = Host::with("models_every_s: 1");
    let _nic = host.nic_agent(0);
    let shop = Shop::open(&host.services);
    watched(&mut host, &shop);
    let (_, text) = host.uview(&["lmap", "both"]);
    assert!(text.contains("watches front/requests\n  watches stock/requests\n"), "{text}");
    let crate::operator_calls::Operators { runtime, client } = &mut host.operators;
    let id = {
        let list = runtime.block_on(client.list(wire::proto::operators::ListRequest {})).unwrap().into_inner();
        list.lmaps.into_iter().find(|lmap| lmap.service == "both").unwrap().lmap
    };
    let hook = RegisterHookRequest { lmaps: vec![id], min_share: 1.0, ..RegisterHookRequest::default() };
    let mut hook = runtime.block_on(client.register_hook(hook)).unwrap().into_inner();
    let before = ["front", "stock"].map(|service| host.operators.when(service, "judged", LmapStatus::judges).alarms);

    shop.apart.store(true, Relaxed);

    let noticed = host.operators.when("both", "requests do not belong together", |lmap| {
        lmap.alarm && lmap.reasons.iter().any(|reason| reason.column == "stock/requests")
    });
    let after = ["front", "stock"].map(|service| host.operators.when(service, "judged", LmapStatus::judges));
    println!("{noticed:?}\n{after:?}");
    let alone: Vec<_> = after.iter().zip(before).map(|(lmap, before)| lmap.alarms - before).collect();
    assert_eq!(alone, [0, 0], "each has as many requests as ever: {after:?}");
    assert_eq!(noticed.rank, 0, "it is no service that could be the cause");
    let event: HookEvent = WAIT.until("the hook is told", || {
        let event = host.operators.runtime.block_on(hook.message()).unwrap().unwrap();
        (event.episode == "on" || event.episode == "began").then_some(event)
    });
    assert_eq!((event.lmap, event.service.as_str()), (id, "both"));
    assert!(
        !event.concerned.is_empty() && event.concerned.iter().all(|name| name == "front" || name == "stock"),
        "{event:?}"
    );
    let (_, text) = host.uview(&["status"]);
    assert!(text.contains("both: watches front, stock\n") && text.contains("both: alarm, score"), "{text}");
}

#[test]
fn it_goes_on_without_a_service_and_by_its_name_on_another_worker_until_it_is_deleted() {
    let mut host = Host::with("models_every_s: 1");
    let nic = host.nic_agent(0);
    let shop = Shop::open(&host.services);
    watched(&mut host, &shop);

    shop.stocked.store(false, Relaxed);
    let missing = |lmap: &wire::proto::operators::LmapStatus| {
        lmap.members.iter().any(|member| member.service == "stock" && member.missing_for_ms.is_some())
    };
    let gone = host.operators.when("both", "stock is missing", |lmap| missing(lmap) && lmap.replicas == 1);
    let on = host.operators.when("both", "it goes on", |lmap| lmap.samples > gone.samples + 20);
    assert!(on.judges() && on.columns == 2 && !on.alarm, "columns without values are as expected: {on:?}");
    shop.stocked.store(true, Relaxed);
    let back = host.operators.when("both", "stock is back", |lmap| !missing(lmap) && lmap.replicas == 2);
    let on = host.operators.when("both", "it goes on", |lmap| lmap.samples > back.samples + 20);
    assert!(on.judges() && on.unwatched == 0, "nothing is learnt anew: {on:?}");

    // Another worker goes on with what was learnt, also after the host agent has started anew.
    drop(nic);
    let _nic = host.nic_agent(1);
    let moved = host.operators.when("both", "judged elsewhere", |lmap| lmap.judges() && lmap.worker == Some(1));
    println!("armed after {} rows", moved.samples);
    host.kill();
    host.restart();
    let (code, text) = host.uview(&["lmap", "both"]);
    assert!(code == Some(1) && text.contains("no LMAP has that name"), "{code:?}: {text}");
    let (code, text) = host.uview(&["lmap", "both", "front/requests", "stock", "--interval", "50ms"]);
    assert_eq!(code, Some(0), "{text}");
    host.operators.when("both", "judged again", LmapStatus::judges);

    let (code, text) = host.uview(&["lmap", "both", "--interval", "60ms", "front"]);
    assert!(code == Some(0) && text.contains("both: a row every 60 ms, set by"), "{code:?}: {text}");
    let (code, text) = host.uview(&["lmap", "both", "--delete"]);
    assert_eq!((code, text.as_str()), (Some(0), "not watched\n"));
    host.operators.when("stock", "the service's own goes on", |lmap| lmap.samples > 0);
    let (_, text) = host.uview(&["lmap"]);
    assert_eq!(text, "no LMAP watches several services\n");
}
