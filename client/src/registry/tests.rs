//! Which messages are sent, and when a slot may be reused for another series.

use std::collections::BTreeSet;

use proptest::prelude::*;
use wire::histogram::Scale;
use wire::metric::Group;

use super::*;

fn spec(name: &str, kind: Kind) -> MetricSpec {
    let (labels, group, shards) = (Vec::new(), Group::Service, Shards::ONE);
    MetricSpec {
        name: name.into(),
        labels,
        kind,
        unit: None,
        group,
        parts_per_unit: 1,
        shards,
        aggregation: None,
        read_every_ms: 0,
    }
}

fn labelled(name: &str, value: &str) -> MetricSpec {
    MetricSpec { labels: vec![("path".into(), value.into())], ..spec(name, Kind::Counter) }
}

fn small() -> Limits {
    Limits { series: 1000, label_sets_per_metric: 3, regions: 2, first_region: RegionSize::ONE_PAGE, spans: 8 }
}

fn registry(limits: Limits) -> Registry {
    Registry::new("test", limits)
}

/// All messages that are not yet sent.
fn drain(registry: &mut Registry) -> Vec<ServiceMessage> {
    std::iter::from_fn(|| registry.next_message().map(|(message, _)| message)).collect()
}

fn series_of(messages: &[ServiceMessage]) -> Vec<PlacedSeries> {
    let series = messages.iter().filter_map(|message| match message {
        ServiceMessage::AddSeries(series) => Some(series.iter().flatten().cloned()),
        _ => None,
    });
    series.flatten().collect()
}

fn retired_in(messages: &[ServiceMessage]) -> Vec<registration::SlotRun> {
    let runs = messages.iter().filter_map(|message| match message {
        ServiceMessage::Retire(runs) => Some(runs.clone()),
        _ => None,
    });
    runs.flatten().collect()
}

fn causes(registry: &Registry) -> Vec<&Cause> {
    registry.problems.kept().iter().map(|problem| &problem.cause).collect()
}

#[test]
fn the_same_name_labels_and_kind_share_a_slot_and_others_do_not() {
    let mut registry = registry(small());

    let first = registry.register(&labelled("requests", "/a"), false);
    let again = registry.register(&labelled("requests", "/a"), false);
    let other = registry.register(&labelled("requests", "/b"), false);

    assert!(first.run.same(&again.run));
    assert!(!first.run.same(&other.run));
    assert_eq!(registry.series(), 2);
}

#[test]
fn a_name_means_one_thing_only() {
    let mut registry = registry(small());
    let seconds = MetricSpec { unit: Some("s".into()), ..spec("a", Kind::Histogram(Scale::DEFAULT)) };
    assert!(registry.register(&seconds, false).series.is_some());

    let finer = Kind::Histogram(Scale::new(3, 32).unwrap());
    let conflicts = [
        spec("a", Kind::Counter),
        labelled("a", "other labels do not help"),
        MetricSpec { kind: finer, ..seconds.clone() },
        MetricSpec { unit: Some("By".into()), ..seconds.clone() },
        MetricSpec { parts_per_unit: 1000, ..seconds.clone() },
    ];
    for conflict in &conflicts {
        let binding = registry.register(conflict, false);
        assert!(binding.run.is_detached() && binding.series.is_none(), "{conflict:?}");
        assert_eq!(binding.run.words().len(), conflict.kind.slots() as usize);
    }

    assert!(causes(&registry).iter().all(|cause| matches!(cause, Cause::Conflict { .. })));
    assert_eq!(
        causes(&registry)[0].to_string(),
        "metric a is not registered as a counter: it is a histogram of 2^2 buckets per power of two up to 2^32 in s already"
    );
    let without_unit = MetricSpec { unit: None, ..seconds };
    assert!(registry.register(&without_unit, false).series.is_some(), "who states no unit contradicts none");
    assert_eq!(registry.detached(), conflicts.len() as u64);
}

#[test]
fn label_sets_beyond_the_limit_share_the_series_that_the_service_registered_for_them_itself() {
    let mut registry = registry(small());
    let own = MetricSpec { labels: vec![("otel.metric.overflow".into(), "true".into())], ..spec("a", Kind::Counter) };
    let own = registry.register(&own, false);

    let further: Vec<_> = (0..5).map(|n| registry.register(&labelled("a", &format!("/{n}")), false)).collect();

    assert!(further[2].run.same(&own.run) && further[4].run.same(&own.run));
    assert_eq!(registry.series(), 4, "three label sets, and the one of all others");
}

#[test]
fn a_sharded_counter_takes_a_cache_line_for_each_shard_and_is_no_ordinary_counter() {
    let mut registry = registry(small());
    let sharded = MetricSpec { shards: Shards::new(4).unwrap(), ..spec("a", Kind::Counter) };

    let binding = registry.register(&sharded, false);
    let ordinary = registry.register(&spec("a", Kind::Counter), false);
    registry.opened();

    assert_eq!(binding.run.words().len(), 32);
    assert!(ordinary.run.is_detached());
    let conflict = "metric a is not registered as a counter: it is a counter of 4 shards already";
    assert_eq!(causes(&registry)[0].to_string(), conflict);
    assert_eq!(series_of(&drain(&mut registry))[0].run().slots, 32);
}

#[test]
fn an_invalid_name_gives_a_handle_that_nobody_reads() {
    let mut registry = registry(small());
    let bad = [
        spec("", Kind::Counter),
        spec("9 lives", Kind::Gauge),
        MetricSpec { labels: vec![("a".into(), "\n".into())], ..spec("a", Kind::Counter) },
        MetricSpec { unit: Some("µs and more".into()), ..spec("a", Kind::Counter) },
    ];

    for spec in &bad {
        assert!(registry.register(spec, false).run.is_detached());
    }

    assert_eq!(causes(&registry).len(), bad.len());
    assert!(causes(&registry).iter().all(|cause| matches!(cause, Cause::Name { .. })));
    assert_eq!((registry.series(), registry.regions().0), (0, 0));
}

#[test]
fn a_full_region_is_followed_by_a_second_one_and_full_regions_by_handles_that_nobody_reads() {
    let mut registry = registry(small());
    let in_region = |registry: &Registry, binding: &Binding| {
        let live = &registry.live[&binding.series.expect("it has a series")];
        live.placed.region
    };

    let binding: Vec<_> = (0..1000).map(|n| registry.register(&spec(&format!("m{n}"), Kind::Counter), false)).collect();

    // 504 slots in the first page, 1,016 in the two pages of the second region.
    assert_eq!(in_region(&registry, &binding[503]), 0);
    assert_eq!(in_region(&registry, &binding[504]), 1);
    assert_eq!(registry.regions(), (2, 4096 + 8192));
    let histogram = Kind::Histogram(Scale::new(5, 48).unwrap());
    let too_large = registry.register(&spec("large", histogram), false);
    assert!(too_large.run.is_detached(), "1,000 series are there already");
    assert!(matches!(causes(&registry)[..], [Cause::Series { limit: 1000 }]));

    let mut registry = self::registry(Limits { regions: 1, ..small() });
    for n in 0..504 {
        assert!(!registry.register(&spec(&format!("m{n}"), Kind::Counter), false).run.is_detached());
    }
    assert!(registry.register(&spec("more", Kind::Counter), false).run.is_detached());
    assert!(matches!(causes(&registry)[..], [Cause::Regions { limit: 1 }]));
}

#[test]
fn a_run_that_is_longer_than_the_usual_region_gets_a_region_of_its_size() {
    let mut registry = registry(small());
    let histogram = Kind::Histogram(Scale::new(5, 48).unwrap());

    let binding = registry.register(&spec("large", histogram), false);

    assert!(!binding.run.is_detached());
    assert_eq!(binding.run.words().len(), histogram.slots() as usize);
    assert_eq!(registry.regions(), (1, 12288));
}

#[test]
fn label_sets_beyond_the_limit_count_together() {
    let mut registry = registry(small());

    let binding: Vec<_> = (0..10).map(|n| registry.register(&labelled("requests", &n.to_string()), false)).collect();
    let other = registry.register(&labelled("errors", "a"), false);

    assert!(!binding[2].run.same(&binding[3].run));
    assert!(binding[3..].iter().all(|beyond| beyond.run.same(&binding[3].run)));
    assert!(!other.run.is_detached(), "another metric has its own limit");
    let overflow = &registry.live[&binding[3].series.unwrap()].placed.series;
    assert_eq!(overflow.title(), r#"requests{otel.metric.overflow="true"}"#);
    assert_eq!(registry.problems.kept()[0].times, 7);

    registry.remove(&binding[9]);
    assert!(registry.register(&labelled("requests", "9"), false).run.same(&binding[3].run), "others count there too");
}

#[test]
fn a_hundred_thousand_metrics_are_asked_for_and_as_many_as_allowed_are_made() {
    let mut registry = registry(Limits::default());

    let handles: Vec<_> =
        (0..100_000).map(|n| registry.register(&spec(&format!("m{n}"), Kind::Counter), false)).collect();

    assert_eq!(registry.series(), 4096);
    assert_eq!(registry.detached(), 100_000 - 4096);
    assert_eq!(registry.problems.kept().len(), 1);
    assert_eq!(registry.problems.kept()[0].times, 100_000 - 4096);
    for binding in &handles {
        binding.run.words()[0].fetch_add(1, Relaxed);
    }
    assert!(handles.iter().all(|binding| binding.run.words()[0].load(Relaxed) == 1), "every one of them works");
}

#[test]
fn everything_is_said_once_per_connection_and_in_an_order_that_makes_sense() {
    let mut registry = registry(small());
    for n in 0..700 {
        let _ = registry.register(&spec(&format!("m{n}"), Kind::Counter), false);
    }
    assert!(drain(&mut registry).is_empty(), "there is no connection");

    registry.opened();
    let first = drain(&mut registry);
    assert!(registry.is_synced());
    assert!(drain(&mut registry).is_empty());
    registry.closed();
    assert!(!registry.is_synced());
    registry.opened();
    let second = drain(&mut registry);

    assert_eq!(first, second);
    assert!(matches!(first[0], ServiceMessage::AddRegion { region: 0, .. }));
    assert!(matches!(first[1], ServiceMessage::AddRegion { region: 1, .. }));
    let places: BTreeSet<_> = series_of(&first).iter().map(PlacedSeries::run).collect();
    assert_eq!(places.len(), 700);
}

#[test]
fn what_is_registered_later_is_said_later() {
    let mut registry = registry(small());
    registry.opened();
    let _ = registry.register(&spec("a", Kind::Counter), false);
    assert_eq!(drain(&mut registry).len(), 2);

    let _ = registry.register(&spec("a", Kind::Counter), false);
    assert!(registry.is_synced(), "it was there already");
    let _ = registry.register(&spec("b", Kind::Counter), false);

    assert_eq!(series_of(&drain(&mut registry)).len(), 1);
}

#[test]
fn slots_are_used_again_only_after_the_agents_release_and_the_last_handle() {
    let mut registry = registry(small());
    registry.opened();
    let old = registry.register(&spec("old", Kind::Counter), false);
    old.run.words()[0].store(9, Relaxed);
    let place = series_of(&drain(&mut registry))[0].run();

    registry.remove(&old);
    let second = registry.register(&spec("second", Kind::Counter), false);
    assert_ne!(registry.live[&second.series.unwrap()].placed.run(), place, "not released");
    assert_eq!(retired_in(&drain(&mut registry)), [place]);

    registry.released([place]);
    let third = registry.register(&spec("third", Kind::Counter), false);
    assert_ne!(registry.live[&third.series.unwrap()].placed.run(), place, "a handle can still write there");
    assert_eq!(registry.pending_release(), 1);

    drop(old);
    let fourth = registry.register(&spec("fourth", Kind::Counter), false);
    assert_eq!(registry.live[&fourth.series.unwrap()].placed.run(), place);
    assert_eq!(fourth.run.words()[0].load(Relaxed), 0, "a new series starts at 0");
    assert_eq!(registry.regions[0].generation, Generation(3));
    assert_eq!(registry.pending_release(), 0);
}

#[test]
fn what_no_agent_heard_of_needs_no_release() {
    let mut registry = registry(small());
    let binding = registry.register(&spec("a", Kind::Counter), false);
    registry.remove(&binding);
    drop(binding);

    registry.opened();
    let _ = registry.register(&spec("b", Kind::Counter), false);
    let messages = drain(&mut registry);

    assert!(retired_in(&messages).is_empty());
    let [only] = &series_of(&messages)[..] else { panic!("one series is live") };
    assert_eq!(only.first, Slot(0));
}

#[test]
fn what_was_retired_without_a_connection_is_said_on_the_next_one_before_its_name_is_taken_again() {
    let mut registry = registry(small());
    let binding = registry.register(&spec("a", Kind::Counter), false);
    registry.opened();
    let place = series_of(&drain(&mut registry))[0].run();
    registry.closed();

    registry.remove(&binding);
    drop(binding);
    let again = registry.register(&spec("a", Kind::Counter), false);
    registry.released([place]);
    assert_ne!(registry.live[&again.series.unwrap()].placed.run(), place, "it cannot have been released");
    registry.opened();
    registry.released([place]);
    let messages = drain(&mut registry);

    assert_eq!(retired_in(&messages), [place], "a release before the retirement was said counts for nothing");
    let order: Vec<_> = messages.iter().map(std::mem::discriminant).collect();
    let retired = order.iter().position(|m| *m == std::mem::discriminant(&ServiceMessage::Retire(vec![])));
    let added = order.iter().position(|m| *m == std::mem::discriminant(&ServiceMessage::AddSeries(vec![])));
    assert!(retired < added);

    // Not answered on this connection either: said again on the next.
    registry.closed();
    registry.opened();
    assert_eq!(retired_in(&drain(&mut registry)), [place]);
    registry.released([place]);
    assert_eq!(registry.pending_release(), 0);
}

#[test]
fn an_agent_cannot_release_what_is_in_use() {
    let mut registry = registry(small());
    registry.opened();
    let binding = registry.register(&spec("a", Kind::Counter), false);
    let place = series_of(&drain(&mut registry))[0].run();

    registry.released([place, registration::SlotRun { region: 77, first: Slot(u32::MAX), slots: u32::MAX }]);
    let other = registry.register(&spec("b", Kind::Counter), false);

    assert_ne!(registry.live[&other.series.unwrap()].placed.run(), place);
    assert!(!binding.run.same(&other.run));
}

#[test]
fn a_handle_of_another_client_or_one_that_nobody_reads_removes_nothing() {
    let (mut registry, mut other) = (registry(small()), registry(small()));
    let _ = registry.register(&spec("a", Kind::Counter), false);
    let foreign = other.register(&spec("b", Kind::Counter), false);
    let detached = registry.register(&spec("", Kind::Counter), false);

    registry.remove(&foreign);
    registry.remove(&detached);

    assert_eq!(registry.series(), 1);
}

#[test]
fn a_child_shares_what_is_there_and_gets_nothing_new() {
    let mut registry = registry(small());
    let parents = registry.register(&spec("a", Kind::Counter), false);

    assert!(registry.register(&spec("a", Kind::Counter), true).run.same(&parents.run));
    assert!(registry.register(&spec("b", Kind::Counter), true).run.is_detached());
    assert!(matches!(causes(&registry)[..], [Cause::Forked]));
}

proptest! {
    /// D2 from the service's side, with an agent that releases when it likes and connections that come and go.
    #[test]
    fn no_slot_means_two_things_to_anybody_who_may_read_it(steps in prop::collection::vec((0_u8..8, any::<prop::sample::Index>()), 1..300)) {
        let mut registry = registry(Limits { regions: 1, ..small() });
        let mut handles: Vec<Binding> = Vec::new();
        // What a worker may read: slots → series title. Announced to the agent, not released by it.
        let mut read: BTreeMap<registration::SlotRun, String> = BTreeMap::new();
        let mut retired: BTreeSet<registration::SlotRun> = BTreeSet::new();
        let mut name = 0;

        for (step, which) in steps {
            match step {
                0..=2 => {
                    name += 1;
                    let kind = if step == 0 { Kind::Histogram(Scale::DEFAULT) } else { Kind::Counter };
                    handles.push(registry.register(&spec(&format!("m{name}"), kind), false));
                }
                3 | 4 if !handles.is_empty() => {
                    let binding = handles.swap_remove(which.index(handles.len()));
                    registry.remove(&binding);
                }
                5 => registry.opened(),
                6 => { registry.closed(); retired.clear(); }
                7 if !retired.is_empty() => {
                    let place = *which.get(&retired.iter().copied().collect::<Vec<_>>());
                    retired.remove(&place);
                    read.remove(&place);
                    registry.released([place]);
                }
                _ => {}
            }
            for message in drain(&mut registry) {
                match message {
                    ServiceMessage::AddSeries(series) => for placed in series.into_iter().flatten() {
                        let (run, title) = (placed.run(), placed.series.title());
                        for (other, metric_type) in &read {
                            let apart = other.first.0 + other.slots <= run.first.0 || run.first.0 + run.slots <= other.first.0;
                            prop_assert!(apart || *metric_type == title, "{run:?} is {title} and {metric_type}");
                        }
                        read.insert(run, title);
                    },
                    ServiceMessage::Retire(runs) => retired.extend(runs),
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn a_series_is_announced_with_what_is_declared_about_it() {
    let mut registry = registry(small());
    let queue = || spec("queue", Kind::Gauge);
    registry.register(&MetricSpec { aggregation: Some("p90".into()), read_every_ms: 5000, ..queue() }, false);
    registry.register(&queue(), false);
    let (_, refused) = registry.bind(&MetricSpec { aggregation: Some("max".into()), ..queue() }, false);
    let unknown = MetricSpec { aggregation: Some("max - min".into()), ..spec("age", Kind::Gauge) };
    let (_, unknown) = registry.bind(&unknown, false);
    registry.opened();

    let announced = series_of(&drain(&mut registry));

    let declared: Vec<_> = announced.iter().map(|placed| placed.declared.to_message()).collect();
    assert_eq!(declared, [("p90".to_owned(), 5000)]);
    assert_eq!(
        refused.unwrap().to_string(),
        "metric queue is not registered as aggregated by max: it is aggregated by p90, read every 5s already"
    );
    assert!(unknown.unwrap().to_string().contains("max - min cannot be declared by a service"));
}
