//! The queue: bounded, in order, and fair.
#![expect(clippy::panic, reason = "a test that cannot go on fails")]
#![expect(dead_code, reason = "each test file uses a part of what they share")]

mod fixtures;

use std::collections::BTreeMap;

use fixtures::{gauge, point};
use proptest::prelude::*;
use remote_write::queue::{LimitError, Queue, QueueLimits};
use remote_write::series::{Point, ServiceNumber};
use wire::time::Nanos;

const A: ServiceNumber = ServiceNumber(1);
const B: ServiceNumber = ServiceNumber(2);

fn limits() -> QueueLimits {
    QueueLimits { batch: 4, ..QueueLimits::default() }
}

/// Queues a sample of `service` at `second`; nothing may be lost.
fn push(queue: &mut Queue, service: ServiceNumber, second: u64) {
    let point = point(&gauge(u64::from(service.0), service.0), 1000 * second as i64, 1.0);
    queue.push(service, &[point], Nanos::from_secs(second), |lost| panic!("{lost:?}"));
}

fn take(queue: &mut Queue) -> Vec<(u32, i64)> {
    let batch = queue.take();
    let points = batch.iter().flat_map(|batch| &batch.points);
    let taken = points.map(|point| (point.series.owner.service.0, point.at_ms / 1000)).collect();
    if let Some(batch) = &batch {
        queue.release(batch);
    }
    taken
}

#[test]
fn the_oldest_go_first_and_a_service_in_alarm_before_all_others_but_not_without_them() {
    let mut queue = Queue::new(limits()).unwrap();
    for second in 1..=4 {
        push(&mut queue, A, second);
        push(&mut queue, B, second);
    }
    queue.set_alarm(B, true);

    assert_eq!(take(&mut queue), [(1, 1), (2, 1), (2, 2), (2, 3)]);
    queue.set_alarm(B, false);
    assert_eq!(take(&mut queue), [(1, 2), (1, 3), (1, 4), (2, 4)]);
    assert_eq!(take(&mut queue), []);
    assert_eq!((queue.bytes(), queue.len()), (0, 0));
}

#[test]
fn the_newest_go_first_where_the_receiver_takes_them_out_of_order_and_a_service_is_in_alarm() {
    let mut queue = Queue::new(QueueLimits { out_of_order: true, batch: 2, ..limits() }).unwrap();
    for second in 1..=4 {
        push(&mut queue, A, second);
    }
    queue.set_alarm(A, true);

    assert_eq!(take(&mut queue), [(1, 3), (1, 4)]);
    queue.set_alarm(A, false);
    assert_eq!(take(&mut queue), [(1, 1), (1, 2)]);
}

#[test]
fn samples_wait_for_others_unless_a_service_is_in_alarm_or_a_request_is_full() {
    let mut queue = Queue::new(limits()).unwrap();
    assert_eq!(queue.due(), None);

    push(&mut queue, A, 5);
    assert_eq!(queue.due(), Some(Nanos::from_secs(6)));
    queue.set_alarm(A, true);
    assert_eq!(queue.due(), Some(Nanos::from_secs(5)));
    queue.set_alarm(A, false);
    (6..9).for_each(|second| push(&mut queue, A, second));
    assert_eq!(queue.due(), Some(Nanos::from_secs(5)));
}

#[test]
fn what_waited_too_long_is_lost() {
    let mut queue = Queue::new(QueueLimits { age: Nanos::from_secs(10), ..limits() }).unwrap();
    (0..20).for_each(|second| push(&mut queue, A, second));
    let mut lost = 0;

    queue.expire(Nanos::from_secs(20), |points| lost += points.len());

    assert_eq!((lost, queue.len()), (10, 10));
    assert_eq!(take(&mut queue)[0], (1, 10));
}

#[test]
fn one_that_floods_loses_its_own_oldest() {
    let mut queue = Queue::new(QueueLimits { bytes: 65_536, ..limits() }).unwrap();
    let (quiet, loud) = (gauge(1, 1), gauge(2, 2));
    let mut lost: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
    for second in 0..1000_i64 {
        let mut count = |points: &[Point]| {
            for point in points {
                lost.entry(point.series.owner.service.0).or_default().push(point.at_ms);
            }
        };
        if second % 10 == 0 {
            queue.push(A, &[point(&quiet, second, 1.0)], Nanos(second as u64), &mut count);
        }
        let many: Vec<_> = (0..20).map(|n| point(&loud, 20 * second + n, 1.0)).collect();
        queue.push(B, &many, Nanos(second as u64), &mut count);
        assert!(queue.bytes() <= 65_536);
    }

    assert_eq!(lost.keys().copied().collect::<Vec<_>>(), [2]);
    assert!(lost[&2].windows(2).all(|pair| pair[0] < pair[1]), "the oldest first");
}

#[test]
fn more_than_there_is_room_for_at_all_is_lost_and_limits_are_checked() {
    let mut queue = Queue::new(QueueLimits { bytes: 65_536, ..limits() }).unwrap();
    let series = gauge(1, 1);
    let many: Vec<_> = (0..10_000).map(|n| point(&series, n, 1.0)).collect();
    let mut lost = 0;
    queue.push(A, &many, Nanos::ZERO, |points| lost += points.len());

    assert_eq!(lost + queue.len(), 10_000);
    assert!(queue.len() >= 1000 && queue.bytes() <= 65_536);
    let refused = |limits| Queue::new(limits).unwrap_err();
    assert_eq!(refused(QueueLimits { bytes: 1, ..limits() }), LimitError::Bytes(1));
    let day = Nanos::from_secs(86_400);
    assert_eq!(refused(QueueLimits { age: day, ..limits() }), LimitError::Age(day));
    assert!(matches!(refused(QueueLimits { batch: 0, ..limits() }), LimitError::Batch { .. }));
}

#[derive(Clone, Debug)]
enum QueueAction {
    Push(u32, usize),
    Alarm(u32, bool),
    Take,
    Expire,
}

fn act() -> impl Strategy<Value = QueueAction> {
    prop_oneof![
        4 => (1..5_u32, 1..2500_usize).prop_map(|(service, count)| QueueAction::Push(service, count)),
        1 => (1..5_u32, any::<bool>()).prop_map(|(service, alarm)| QueueAction::Alarm(service, alarm)),
        2 => Just(QueueAction::Take),
        1 => Just(QueueAction::Expire),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_happens_memory_is_bounded_every_sample_is_somewhere_and_times_rise(
        acts in proptest::collection::vec(act(), 1..60), seconds in 1..200_u64,
    ) {
        let limits = QueueLimits { bytes: 200_000, age: Nanos::from_secs(500), batch: 1500, ..limits() };
        let mut queue = Queue::new(limits).unwrap();
        let all: Vec<_> = (1..5).map(|service| gauge(u64::from(service), service)).collect();
        let (mut pushed, mut lost, mut sent) = (0, 0, 0);
        let mut last: BTreeMap<u64, i64> = BTreeMap::new();
        let mut at = 0_i64;
        for (step, act) in (0..).zip(acts) {
            let now = Nanos::from_secs(step * seconds);
            match act {
                QueueAction::Push(service, count) => {
                    let series = &all[service as usize - 1];
                    let points: Vec<_> = (0..count as i64).map(|n| point(series, at + n, 0.5)).collect();
                    at += count as i64;
                    pushed += count;
                    queue.push(ServiceNumber(service), &points, now, |points| lost += points.len());
                }
                QueueAction::Alarm(service, alarm) => queue.set_alarm(ServiceNumber(service), alarm),
                QueueAction::Expire => queue.expire(now, |points| lost += points.len()),
                QueueAction::Take => {
                    let Some(batch) = queue.take() else { continue };
                    prop_assert!(queue.bytes() <= limits.bytes);
                    for point in &batch.points {
                        let before = last.insert(point.series.number, point.at_ms);
                        prop_assert!(before.is_none_or(|before| before < point.at_ms));
                    }
                    sent += batch.points.len();
                    queue.release(&batch);
                }
            }
            prop_assert!(queue.bytes() <= limits.bytes);
            prop_assert_eq!(pushed, lost + sent + queue.len());
        }
    }
}
