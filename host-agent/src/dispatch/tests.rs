//! What slow hooks and watchers lose, and how many there may be.

use std::collections::BTreeSet;

use wire::control::{Episode, Features, Verdict};
use wire::id::{Epoch, ReplicaId};
use wire::metric::{Series, Statistic};
use wire::name::{Labels, ServiceName};
use wire::proto::control::Row;
use wire::time::UnixNanos;

use super::*;
use crate::control_plane::testing::{self, counter};

fn event(lmap: u32, score: f64) -> Event {
    let event = testing::event("cart", Episode::Quiet, UnixNanos(0));
    let verdict = Verdict { lmap: LmapId(lmap), score, gamma: Some(10.0), ..event.verdict };
    Event { verdict, ..event }
}

fn all() -> Filter {
    Filter { lmaps: BTreeSet::new(), min_share: 0.0, ..Filter::default() }
}

fn row_of(item: &RowItem) -> &Row {
    let RowItem::Row(row) = item else { panic!("{item:?}") };
    &row.row
}

fn score(taken: &Delivery<Arc<Event>>) -> f64 {
    taken.item.verdict.score
}

fn score_of(item: &HookItem) -> f64 {
    let HookItem::Verdict(event) = item else { panic!("{item:?}") };
    event.verdict.score
}

#[test]
fn a_slow_hook_loses_its_own_oldest_verdicts_and_learns_how_many() {
    let mut dispatch = Dispatch::new(8);
    let slow = dispatch.register(all(), 2).unwrap();
    let fast = dispatch.register(all(), 2).unwrap();
    let mut seen = Vec::new();

    for score in 1..=5 {
        let woken = dispatch.dispatch(event(1, f64::from(score)));
        assert_eq!(woken, [slow, fast]);
        seen.extend(dispatch.take(fast).map(|taken| (taken.sequence, taken.lost)));
    }

    assert_eq!(seen, [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0)]);
    let first = dispatch.take(slow).unwrap();
    assert_eq!((first.sequence, first.lost, score(&first)), (4, 3, 4.0));
    let second = dispatch.take(slow).unwrap();
    assert_eq!((second.sequence, second.lost, score(&second)), (5, 0, 5.0));
    assert!(dispatch.take(slow).is_none());
    assert_eq!(dispatch.delivered(), DeliveryCounts { verdicts: 7, lost_verdicts: 3, ..DeliveryCounts::default() });
}

#[test]
fn a_hook_of_the_agent_itself_takes_no_place_of_others_and_leaves_them_none() {
    let mut dispatch = Dispatch::new(1);
    let first = dispatch.register(all(), 2).unwrap();

    let own = dispatch.register_own(all(), 2);
    assert_eq!(dispatch.dispatch(event(1, 1.0)), [first, own]);
    assert!(dispatch.register(all(), 2).is_err());
    dispatch.unregister_own(own);
    dispatch.unregister_own(own);

    assert!(dispatch.register(all(), 2).is_err());
    dispatch.unregister(first);
    assert!(dispatch.register(all(), 2).is_ok() && dispatch.register(all(), 2).is_err());
}

#[test]
fn a_hook_gets_verdicts_of_its_lmaps_above_its_share_and_every_begin_and_end() {
    let mut dispatch = Dispatch::new(8);
    let filter = Filter { lmaps: BTreeSet::from([LmapId(1)]), min_share: 1.0, ..Filter::default() };
    let hook = dispatch.register(filter, 8).unwrap();
    let mut began = event(1, 0.0);
    began.verdict.episode = Episode::Began;
    let mut silent = event(1, 0.0);
    silent.verdict.silent = vec![ReplicaId(1)];
    let mut learning = event(1, 50.0);
    learning.verdict.gamma = None;

    assert!(dispatch.dispatch(event(2, 20.0)).is_empty());
    assert!(dispatch.dispatch(event(1, 9.9)).is_empty());
    assert!(dispatch.dispatch(learning).is_empty());
    assert_eq!(dispatch.dispatch(event(1, 10.0)), [hook]);
    assert_eq!(dispatch.dispatch(began), [hook]);
    assert_eq!(dispatch.dispatch(silent), [hook]);
}

#[test]
fn rows_are_subscribed_at_the_smallest_stride_and_thinned_for_other_watchers() {
    let mut dispatch = Dispatch::new(8);
    let seldom = dispatch.watch(LmapId(1), 10, 4).unwrap();
    let often = dispatch.watch(LmapId(1), 2, 4).unwrap();
    assert_eq!(dispatch.rows_every(LmapId(1)), 2);
    let row = |at| Row { at_unix_ns: at, score: 0.0, values: Vec::new() };
    let batch = RowBatch { lmap: LmapId(1), epoch: Epoch(1), columns: Arc::new([]), rows: (1..=10).map(row).collect() };

    assert_eq!(dispatch.rows(&batch), [seldom, often]);

    let mut taken = |id| std::iter::from_fn(|| dispatch.take_row(id)).collect::<Vec<_>>();
    assert_eq!(taken(seldom).iter().map(|taken| row_of(&taken.item).at_unix_ns).collect::<Vec<_>>(), [5, 10]);
    let rows = taken(often);
    assert_eq!(rows.len(), 4);
    assert_eq!((rows[0].lost, rows[0].sequence), (6, 7));
    assert_eq!(dispatch.unregister(often), Some(LmapId(1)));
    assert_eq!(dispatch.rows_every(LmapId(1)), 10);
    assert_eq!(dispatch.unregister(seldom), Some(LmapId(1)));
    assert_eq!(dispatch.rows_every(LmapId(1)), 0);
    assert!(dispatch.is_empty());
}

#[test]
fn a_resumed_hook_gets_what_follows_the_last_verdict_received() {
    let mut dispatch = Dispatch::new(8);
    let hook = dispatch.register(all(), 4).unwrap();
    let first = dispatch.stream(hook).unwrap();
    (1..=4).for_each(|score| drop(dispatch.dispatch(event(1, f64::from(score)))));
    (1..=3).for_each(|_| drop(dispatch.take(hook).unwrap()));
    dispatch.detach(hook, first, Nanos::from_secs(10));
    drop(dispatch.dispatch(event(1, 5.0)));
    let rest = |dispatch: &mut Dispatch, stream| {
        let next = || {
            let taken = dispatch.take_for(hook, stream).unwrap()?;
            Some((taken.sequence, taken.lost, score_of(&taken.item)))
        };
        std::iter::from_fn(next).collect::<Vec<_>>()
    };

    // Three verdicts were sent, one was received.
    let second = dispatch.resume(hook, 1).unwrap();
    assert!(dispatch.take_for(hook, first).is_err(), "the first stream is over");
    assert_eq!(rest(&mut dispatch, second), [(2, 0, 2.0), (3, 0, 3.0), (4, 0, 4.0), (5, 0, 5.0)]);

    // The last 20 were not received. Four of them are still queued, the others are lost.
    (6..=25).for_each(|score| {
        drop(dispatch.dispatch(event(1, f64::from(score))));
        drop(dispatch.take(hook));
    });
    let third = dispatch.resume(hook, 5).unwrap();
    assert_eq!(rest(&mut dispatch, third), [(22, 16, 22.0), (23, 0, 23.0), (24, 0, 24.0), (25, 0, 25.0)]);

    // The end of an earlier stream does not end this one.
    dispatch.detach(hook, second, Nanos::from_secs(10));
    assert_eq!(dispatch.expire_detached(Nanos::from_secs(100)), []);
    dispatch.detach(hook, third, Nanos::from_secs(100));
    assert_eq!(dispatch.expire_detached(Nanos::from_secs(159)), []);
    assert_eq!(dispatch.expire_detached(Nanos::from_secs(160)), [hook]);
    assert_eq!(dispatch.resume(hook, 25), Err(UnknownHook(hook.0)));
}

#[test]
fn hooks_are_bounded() {
    let mut dispatch = Dispatch::new(1);
    dispatch.register(all(), 0).unwrap();

    assert_eq!(dispatch.register(all(), 1), Err(TooManyHooks(1)));
    assert_eq!(dispatch.watch(LmapId(1), 1, 1), Err(TooManyHooks(1)));
}

#[test]
fn somebody_with_all_the_hooks_that_they_may_have_leaves_some_to_others() {
    let mut dispatch = Dispatch::new(100);
    let own = dispatch.register(all(), 1).unwrap();
    let mut taken = Vec::new();
    while dispatch.check_share("user 65534", 16).is_ok() {
        let id = dispatch.watch(LmapId(1), 1, 1).unwrap();
        dispatch.set_owner(id, "user 65534");
        taken.push(id);
    }

    assert_eq!(taken.len(), 12);
    assert_eq!(dispatch.check_share("user 1000", 16), Ok(()));
    let refused = dispatch.check_share("user 65534", 16).unwrap_err().to_string();
    assert!(refused.starts_with("user 65534 would have 13 of 16 hooks and watchers with 3 free"), "{refused}");
    dispatch.unregister(own);
    assert!(dispatch.check_share("user 65534", 16).is_err(), "the agent's own do not count");
    dispatch.unregister(taken[3]);
    assert_eq!(dispatch.check_share("user 65534", 16), Ok(()));
}

#[test]
fn rows_that_wait_for_a_watcher_are_bounded_in_bytes() {
    let mut dispatch = Dispatch::new(8);
    let watcher = dispatch.watch(LmapId(1), 1, 4096).unwrap();
    let row = Row { at_unix_ns: 0, score: 0.0, values: vec![0.0; 10_000] };
    let batch = RowBatch { lmap: LmapId(1), epoch: Epoch(1), columns: Arc::new([]), rows: vec![row; 50] };

    dispatch.rows(&batch);

    let rows: Vec<_> = std::iter::from_fn(|| dispatch.take_row(watcher)).collect();
    let bytes: usize = rows.iter().map(|taken| watchers::row_bytes(&taken.item)).sum();
    assert!(rows.len() == 13 && bytes <= Dispatch::WATCHER_BYTES, "{} rows, {bytes} bytes", rows.len());
    assert_eq!((rows[0].lost, dispatch.delivered().lost_rows), (37, 37));
    assert_eq!(dispatch.row_bytes, 0);
    dispatch.row_bytes = Dispatch::ALL_WATCHER_BYTES;
    dispatch.rows(&batch);
    assert_eq!(dispatch.watchers[&watcher].queue.items.len(), 1, "where all have too much, each has one");
}

#[test]
fn verdicts_of_hooks_that_see_different_ones_are_bounded_in_bytes_and_the_largest_hook_pays() {
    let mut dispatch = Dispatch::new(64);
    let of = |lmap: u32| Filter { lmaps: BTreeSet::from([LmapId(lmap)]), min_share: 0.0, ..Filter::default() };
    let small = dispatch.register(of(0), 16).unwrap();
    dispatch.dispatch(event(0, 1.0));
    let hooks: Vec<_> = (1..=12).map(|lmap| dispatch.register(of(lmap), Dispatch::MAX_QUEUE).unwrap()).collect();
    let keys = (b'a'..=b'p').map(|key| char::from(key).to_string()).collect::<Vec<_>>();
    let value = "v".repeat(230);
    let labels = Labels::new(keys.iter().map(|key| (key.as_str(), value.as_str()))).unwrap();
    let series = Series { labels, ..counter("calls") };
    let long = |lmap: u32| {
        let reason = testing::reason(series.clone(), Statistic::Increment, [0.0, 0.0]);
        Event { reasons: vec![reason], ..event(lmap, 1.0) }
    };

    for round in 0..8_000 {
        dispatch.dispatch(long(1 + round % 3));
    }
    let of_three = dispatch.event_bytes;
    assert!((2 * Dispatch::HOOK_BYTES..=3 * Dispatch::HOOK_BYTES + 5_000).contains(&of_three), "{of_three}");
    for round in 0..40_000 {
        dispatch.dispatch(long(1 + round % 12));
    }

    assert!(dispatch.event_bytes <= Dispatch::ALL_HOOK_BYTES, "{}", dispatch.event_bytes);
    assert!(dispatch.event_bytes > Dispatch::ALL_HOOK_BYTES / 10 * 9, "{}", dispatch.event_bytes);
    assert_eq!(dispatch.take(small).unwrap().lost, 0, "who has little loses nothing");
    let taken = dispatch.take(hooks[0]).unwrap();
    assert_eq!(taken.lost + 1, taken.sequence, "what is lost is counted");
    dispatch.unregister(small);
    for hook in hooks {
        dispatch.unregister(hook);
    }
    assert_eq!(dispatch.event_bytes, 0);
}

fn with_features(lmap: u32) -> Event {
    let mut event = event(lmap, 1.0);
    event.verdict.features = Some(Features { values: vec![1.0; 1000], residuals: vec![0.5; 1000] });
    event.columns = Some((0..1000).map(|column| format!("c{column}")).collect());
    event
}

#[test]
fn a_row_comes_with_the_verdict_to_those_who_ask_and_nobody_else_pays_for_it() {
    let mut dispatch = Dispatch::new(8);
    let asks = dispatch.register(Filter { features: true, ..all() }, 8).unwrap();
    let other = dispatch.register(all(), 8).unwrap();

    dispatch.dispatch(with_features(1));

    let bytes = |dispatch: &Dispatch, id| dispatch.hooks[&id].bytes;
    assert!(bytes(&dispatch, asks) >= bytes(&dispatch, other) + 12_000, "{} bytes", bytes(&dispatch, asks));
    let (with, without) = (dispatch.take(asks).unwrap().item, dispatch.take(other).unwrap().item);
    assert_eq!(with.verdict.features.as_ref().map(|features| features.values.len()), Some(1000));
    assert_eq!((&without.verdict.features, &without.columns), (&None, &None));
}

#[test]
fn a_slow_hook_that_asks_for_rows_loses_its_oldest_and_stays_within_its_bytes() {
    let mut dispatch = Dispatch::new(8);
    let slow = dispatch.register(Filter { features: true, ..all() }, Dispatch::MAX_QUEUE).unwrap();

    (0..3000).for_each(|_| drop(dispatch.dispatch(with_features(1))));

    assert!(dispatch.hooks[&slow].bytes <= Dispatch::HOOK_BYTES);
    let first = dispatch.take(slow).unwrap();
    assert!(first.lost > 1000 && first.sequence == first.lost + 1, "{} lost", first.lost);
    assert_eq!(dispatch.delivered().lost_verdicts, first.lost);
}

#[test]
fn rows_are_wanted_while_a_stream_is_attached_that_asks_for_them() {
    let mut dispatch = Dispatch::new(8);
    let filter = Filter { lmaps: BTreeSet::from([LmapId(1)]), features: true, ..all() };
    assert!(!dispatch.wants_features(LmapId(1)));

    let hook = dispatch.register(filter, 8).unwrap();
    dispatch.register(all(), 8).unwrap();
    assert_eq!([1, 2].map(|lmap| dispatch.wants_features(LmapId(lmap))), [true, false]);

    dispatch.detach(hook, dispatch.stream(hook).unwrap(), Nanos::ZERO);
    assert!(!dispatch.wants_features(LmapId(1)));
}

/// What the changes in a hook's queue say: the LMAP, its successor, and whether nothing follows.
fn changes(dispatch: &mut Dispatch, hook: HookId) -> Vec<(u32, Option<u32>, bool)> {
    let stream = dispatch.stream(hook).unwrap();
    let taken = std::iter::from_fn(|| dispatch.take_for(hook, stream).unwrap());
    let change = |taken: Delivery<HookItem>| match taken.item {
        HookItem::Change(of) => Some((of.deleted.0, of.successor.map(|lmap| lmap.0), of.last)),
        HookItem::Verdict(_) => None,
    };
    taken.filter_map(change).collect()
}

#[test]
fn a_hook_is_told_of_each_deleted_lmap_that_it_lists_and_ends_with_the_last() {
    let mut dispatch = Dispatch::new(8);
    let cart = ServiceName::new("cart").unwrap();
    let two = BTreeSet::from([LmapId(1), LmapId(2)]);
    let hook = dispatch.register(Filter { lmaps: two, ..all() }, 8).unwrap();
    let of_all = dispatch.register(all(), 8).unwrap();

    assert_eq!(dispatch.lmap_deleted(LmapId(1), &cart, "why"), [hook]);
    assert_eq!(changes(&mut dispatch, hook), [(1, None, false)]);
    assert!(!dispatch.is_over(hook));

    dispatch.dispatch(event(2, 1.0));
    dispatch.lmap_deleted(LmapId(2), &cart, "why");
    assert!(!dispatch.is_over(hook), "its last words are not taken");
    assert_eq!(changes(&mut dispatch, hook), [(2, None, true)]);
    assert!(dispatch.is_over(hook) && !dispatch.is_over(of_all));
    assert!(dispatch.lmap_created(LmapId(3), &cart).is_empty());
}

#[test]
fn whoever_follows_goes_on_with_the_next_lmap_of_the_service_after_being_told() {
    let mut dispatch = Dispatch::new(8);
    let (cart, other) = (ServiceName::new("cart").unwrap(), ServiceName::new("other").unwrap());
    let filter = Filter { lmaps: BTreeSet::from([LmapId(1)]), follow: true, ..all() };
    let hook = dispatch.register(filter, 8).unwrap();
    let watcher = dispatch.watch(LmapId(1), 1, 8).unwrap();
    dispatch.follow(watcher);

    dispatch.lmap_deleted(LmapId(1), &cart, "why");
    assert!(dispatch.lmap_created(LmapId(2), &other).is_empty());
    assert_eq!(dispatch.lmap_created(LmapId(3), &cart), [hook, watcher]);

    assert_eq!(changes(&mut dispatch, hook), [(1, None, false), (1, Some(3), false)]);
    assert!(dispatch.dispatch(event(2, 1.0)).is_empty());
    assert_eq!(dispatch.dispatch(event(3, 1.0)), [hook]);
    assert_eq!((dispatch.rows_every(LmapId(1)), dispatch.rows_every(LmapId(3))), (0, 1));
    assert!(!dispatch.is_over(hook) && !dispatch.is_over(watcher));
}

#[test]
fn a_row_watcher_ends_after_the_rows_that_wait_and_the_word_that_its_lmap_is_deleted() {
    let mut dispatch = Dispatch::new(8);
    let watcher = dispatch.watch(LmapId(1), 1, 8).unwrap();
    let row = Row { at_unix_ns: 1, score: 0.0, values: vec![1.0] };
    let columns: Arc<[String]> = Arc::from(["a".to_owned()]);
    dispatch.rows(&RowBatch { lmap: LmapId(1), epoch: Epoch(1), columns, rows: vec![row] });

    dispatch.lmap_deleted(LmapId(1), &ServiceName::new("cart").unwrap(), "why");

    assert!(matches!(dispatch.take_row(watcher).unwrap().item, RowItem::Row(_)) && !dispatch.is_over(watcher));
    let RowItem::Change(change) = dispatch.take_row(watcher).unwrap().item else { panic!("a row") };
    assert_eq!((change.reason, change.last, dispatch.is_over(watcher)), ("why", true, true));
}
