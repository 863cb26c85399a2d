//! What a look and a viewer cost: 100 services, each with a new summary of ten scores.

use page::feed::{Feed, News, Revisions};
use page::history::History;
use wire::proto::operators::{LmapStatus, StatusReply};
use wire::time::{Nanos, Timestamp, UnixNanos};

const SERVICES: u32 = 100;

fn main() {
    divan::main();
}

/// The status at `second`: every service has a new summary.
fn status(second: u64) -> StatusReply {
    let lmap = |id: u32| LmapStatus {
        lmap: id,
        service: format!("service-{id}"),
        state: "armed".to_owned(),
        rows: 120,
        rows_needed: 120,
        gamma: 12.5,
        scores: (0..10).map(|number| 1.0 + number as f32 + (second % 7) as f32).collect(),
        columns: 100,
        replicas: 1,
        interval_us: 100_000,
        worker: Some(0),
        at_unix_ns: second * 1_000_000_000,
        ..LmapStatus::default()
    };
    StatusReply { version: "0.1.0".to_owned(), lmaps: (0..SERVICES).map(lmap).collect(), ..StatusReply::default() }
}

fn now(second: u64) -> Timestamp {
    Timestamp { monotonic: Nanos::from_secs(second), wall: UnixNanos::from_secs(second) }
}

/// A feed that has seen five minutes.
fn feed() -> Feed {
    let mut feed = Feed::new(History::new(16 << 20));
    (1..300).for_each(|second| assert_eq!(feed.look(&status(second), Revisions::default(), now(second)), News::Event));
    feed
}

/// One look, once a second for all viewers; every other one finds nothing new.
#[divan::bench]
fn look(bencher: divan::Bencher<'_, '_>) {
    let (mut feed, mut second) = (feed(), 300);
    bencher
        .with_inputs(|| {
            second += 1;
            (status(second), now(second))
        })
        .bench_local_refs(|(status, now)| feed.look(status, Revisions::default(), *now));
}

/// One look that nobody sees, once a second.
#[divan::bench]
fn remember(bencher: divan::Bencher<'_, '_>) {
    let (mut feed, mut second) = (feed(), 300);
    bencher
        .with_inputs(|| {
            second += 1;
            (status(second), now(second))
        })
        .bench_local_refs(|(status, now)| feed.remember(&status.lmaps, *now));
}

/// The look at the same status again.
#[divan::bench]
fn look_at_nothing_new(bencher: divan::Bencher<'_, '_>) {
    let (mut feed, status) = (feed(), status(299));
    bencher.bench_local(|| feed.look(&status, Revisions::default(), now(299)));
}

/// What one viewer costs for each event, beside its socket: the event, copied in pieces.
#[divan::bench]
fn viewer(bencher: divan::Bencher<'_, '_>) {
    let mut feed = feed();
    let seen = feed.next(None).map_or(0, |event| event.sequence) - 1;
    bencher
        .counter(divan::counter::BytesCount::new(feed.next(Some(seen)).map_or(0, |event| event.text.len())))
        .bench_local(|| {
            let event = feed.next(Some(seen));
            event.map(|event| event.text.as_bytes().chunks(16 << 10).map(<[u8]>::to_vec).collect::<Vec<_>>())
        });
}

/// A snapshot for a viewer that begins.
#[divan::bench]
fn snapshot(bencher: divan::Bencher<'_, '_>) {
    let (mut feed, mut second) = (feed(), 300);
    bencher.bench_local(|| {
        // A snapshot serves for eight events.
        for _ in 0..9 {
            second += 1;
            assert_eq!(feed.look(&status(second), Revisions::default(), now(second)), News::Event);
        }
        feed.next(None)
    });
}
