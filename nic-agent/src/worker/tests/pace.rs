//! Faster fetches while something seems wrong, and intervals that change at run time.

use super::*;

const METRICS: u32 = 6;
/// The interval of rows here, and the least time between two fetches.
const ROW: Nanos = Nanos::from_millis(1000);
const FETCH: Nanos = Nanos::from_millis(100);

fn interval(length: Nanos) -> Interval {
    Interval::new(length).unwrap()
}

fn spec(row: Nanos, fastest: Option<Nanos>) -> LmapSpec {
    let fastest = fastest.map(interval);
    LmapSpec { interval: interval(row), fastest, ..lmap(metrics(METRICS), 1) }
}

/// A load on `lmap-1`, in steps of 100 ms: counters grow a tenth of their increments, gauges hover.
struct Load {
    node: Node,
    steps: u64,
    /// Added to the gauge in slot 3.
    fault: f64,
    is_beating: bool,
}

impl Load {
    fn new(settings: WorkerSettings, spec: &LmapSpec) -> Self {
        let mut node = Node::new(settings);
        node.set(spec);
        Self { node, steps: 0, fault: 0.0, is_beating: true }
    }

    /// Lets `length` pass.
    fn pass(&mut self, length: Nanos) {
        for _ in 0..length.0 / FETCH.0 {
            self.steps += 1;
            for id in 1..=METRICS {
                let noise = noise(self.steps << 16 | u64::from(id));
                if id % 2 == 1 {
                    self.node.add(1, id - 1, 100 + noise);
                } else {
                    let fault = if id == 4 { self.fault } else { 0.0 };
                    self.node.store(1, id - 1, (50.0 + fault + noise as f64 / 10.0).to_bits());
                }
            }
            if self.is_beating {
                self.node.regions.values().for_each(Region::beat);
            }
            self.node.now = Nanos(FETCH.0 * self.steps);
            while self.node.worker.poll(self.node.now) == Step::Fetch {
                self.node.fetch();
            }
            self.node.act();
        }
    }

    /// READs of regions while `length` passes.
    fn reads_in(&mut self, length: Nanos) -> u64 {
        let reads = |load: &Self| load.node.worker.status().counters.fetched_regions;
        let before = reads(self);
        self.pass(length);
        reads(self) - before
    }

    /// The times of the verdicts with this episode, since the last call for any.
    fn times(&mut self, episode: Episode) -> Vec<u64> {
        let messages = self.node.messages.iter().filter_map(|message| match message {
            ToHost::Verdicts(verdicts) => Some(verdicts),
            _ => None,
        });
        let of = |verdicts: &proto::Verdicts| {
            let mut all = verdicts.verdicts.iter().map(|verdict| Verdict::decode(verdict).unwrap());
            all.any(|verdict| verdict.episode == episode).then(|| (verdicts.at_unix_ns - WALL_START) / 1_000_000)
        };
        messages.filter_map(of).collect()
    }

    fn state(&self) -> State {
        self.node.worker.runtimes.values().next().unwrap().reported_state()
    }

    fn judged(&self) -> Nanos {
        self.node.worker.runtimes.values().next().unwrap().interval().length()
    }
}

/// An LMAP that is armed, with a row a second; faster while something seems wrong, if `adaptive`.
fn armed(adaptive: bool) -> Load {
    let mut load = Load::new(quick(), &spec(ROW, adaptive.then_some(FETCH)));
    load.pass(Nanos::from_secs(200));
    assert_eq!(load.state(), State::Armed);
    load.node.take_messages();
    load
}

#[test]
fn a_fault_is_fetched_faster_noticed_sooner_and_then_fetched_for_its_rows_again() {
    let (mut faster, mut rows) = (armed(true), armed(false));
    assert_eq!((faster.reads_in(ROW), rows.reads_in(ROW)), (1, 1), "nothing is wrong");

    let mut times = Vec::new();
    for load in [&mut faster, &mut rows] {
        load.pass(Nanos::from_millis(300));
        load.fault = 5000.0;
        load.pass(Nanos::from_secs(15));
        let reads = load.reads_in(ROW);
        load.fault = 0.0;
        load.pass(Nanos::from_secs(30));
        times.push((load.times(Episode::Began), load.times(Episode::Ended), reads));
    }

    // The fault begins at 201.3 s: the row at 202 s is over, and all fetches of half an interval after it are, too.
    assert_eq!(times[0].0, [202_500]);
    assert_eq!(times[1].0, [203_000]);
    // It ends at 217.3 s. Rows end it with their fifth quiet one.
    assert!(times[0].1.len() == 1 && times[1].1.len() == 1, "{times:?}");
    assert!(times[0].1[0] + 1_500 < times[1].1[0], "{times:?}");
    assert_eq!((times[0].2, times[1].2), (10, 1));
    assert_eq!((faster.reads_in(ROW), faster.node.worker.status().fast_lmaps), (1, 0), "it is calm again");
    assert_eq!(faster.node.worker.status().early_alarms, [1, 1]);
}

#[test]
fn rows_scores_and_what_is_learnt_are_as_if_nobody_fetched_between() {
    let (mut faster, mut rows) = (armed(true), armed(false));
    let mut seen = Vec::new();
    for load in [&mut faster, &mut rows] {
        load.node.watch_rows();
        load.fault = 300.0;
        load.pass(Nanos::from_secs(4));
        load.fault = 0.0;
        load.pass(Nanos::from_secs(60));
        seen.push(load.node.rows());
    }

    assert!(faster.node.worker.status().extra_regions > 50);
    assert_eq!(seen[0], seen[1]);
    let gamma = |load: &Load| load.node.worker.runtimes.values().find_map(|of| of.detectors()?.gamma());
    assert_eq!(gamma(&faster), gamma(&rows));
}

#[test]
fn a_replica_that_misses_its_heartbeat_is_looked_at_sooner() {
    let mut silent = Vec::new();
    for adaptive in [true, false] {
        let mut load = armed(adaptive);
        load.pass(Nanos::from_millis(300));
        load.is_beating = false;
        load.pass(Nanos::from_secs(5));
        let began = load.times(Episode::Began);
        assert_eq!(load.state(), State::Silent);
        load.node.take_messages();
        load.is_beating = true;
        load.pass(Nanos::from_secs(5));
        assert!(load.times(Episode::Began).is_empty(), "what was wrong before the gap is no evidence after it");
        silent.push((began, load.times(Episode::Ended)));
    }

    let [(began, ended), (began_by_rows, ended_by_rows)] = &silent[..] else { panic!("{silent:?}") };
    assert!(began[0] < began_by_rows[0] && ended[0] < ended_by_rows[0], "{silent:?}");
}

#[test]
fn extra_reads_are_bounded_and_refusals_are_counted() {
    let settings = WorkerSettings { extra_reads_per_s: 8.0, ..quick() };
    let mut load = Load::new(settings, &spec(ROW, Some(FETCH)));
    load.pass(Nanos::from_secs(200));

    load.fault = 5000.0;
    assert_eq!(load.reads_in(Nanos::from_secs(5)), 5, "nine more a second would be too many");

    assert!(load.node.worker.status().refused_extra >= 3);
}

#[test]
fn an_open_alarm_goes_on_under_a_new_configuration_and_is_not_doubled() {
    let mut load = armed(true);
    load.fault = 5000.0;
    load.pass(Nanos::from_secs(5));

    load.node.set(&spec(ROW, None));
    load.pass(Nanos::from_secs(5));
    assert_eq!(load.reads_in(ROW), 1);
    load.node.set(&spec(ROW, Some(FETCH)));
    load.pass(Nanos::from_secs(5));
    assert!(load.reads_in(ROW) == 10);

    assert_eq!(load.times(Episode::Began).len(), 1);
    assert!(load.times(Episode::Ended).is_empty());
}

#[test]
fn the_former_interval_judges_until_the_new_one_is_learnt_and_coming_back_takes_no_learning() {
    let mut load = armed(false);

    load.node.set(&spec(Nanos::from_millis(200), None));
    load.pass(Nanos::from_secs(2));
    assert_eq!((load.judged(), load.state()), (ROW, State::Armed), "the former one judges");
    assert_eq!(load.node.worker.status().learning_intervals, 1);
    load.pass(Nanos::from_secs(10));
    assert_eq!((load.judged(), load.state()), (Nanos::from_millis(200), State::Armed));

    load.node.set(&spec(ROW, None));
    load.pass(Nanos::from_secs(3));
    assert_eq!((load.judged(), load.state()), (ROW, State::Armed), "it was known");
    load.node.set(&spec(Nanos::from_millis(200), None));
    load.pass(Nanos::from_secs(1));
    assert_eq!(load.judged(), Nanos::from_millis(200), "and so was this one");
    let verdicts = load.node.verdicts();
    assert!(verdicts.iter().all(|verdict| verdict.episode == Episode::Quiet), "{verdicts:?}");
    assert!(verdicts.iter().all(|verdict| verdict.state == State::Armed), "it was never blind");
}

#[test]
fn an_alarm_that_is_on_goes_on_at_a_known_interval_and_waits_for_one_that_is_learnt() {
    let mut load = armed(false);
    load.node.set(&spec(Nanos::from_millis(200), None));
    load.pass(Nanos::from_secs(12));
    load.node.set(&spec(ROW, None));
    load.pass(Nanos::from_secs(3));
    load.node.take_messages();

    load.fault = 5000.0;
    load.pass(Nanos::from_secs(4));
    load.node.set(&spec(Nanos::from_millis(500), None));
    load.pass(Nanos::from_secs(15));
    assert_eq!(load.judged(), ROW, "what is learnt in an alarm is no normal that could take over");
    load.node.set(&spec(Nanos::from_millis(200), None));
    load.pass(Nanos::from_secs(3));
    assert_eq!(load.judged(), Nanos::from_millis(200), "what is known takes over at once");
    assert_eq!((load.times(Episode::Began).len(), load.times(Episode::Ended).len()), (1, 0));

    load.fault = 0.0;
    load.pass(Nanos::from_secs(5));
    assert_eq!((load.times(Episode::Began).len(), load.times(Episode::Ended).len()), (1, 1));
}

#[test]
fn no_increment_spans_two_intervals() {
    for (before, after) in [(ROW, 200), (Nanos::from_millis(200), 1000)] {
        let mut load = Load::new(quick(), &spec(before, None));
        load.pass(Nanos::from_secs(1));
        load.node.watch_rows();
        // It has not learnt anything, so that the new interval begins at once.
        load.pass(Nanos::from_millis(300));
        load.node.rows();
        load.node.set(&spec(Nanos::from_millis(after), None));
        load.pass(Nanos::from_secs(4));

        let rows = load.node.rows();
        let per_100_ms = |row: &Vec<f64>| row[0] / (after as f64 / 100.0);
        assert!(rows.len() > 2 && rows[0][0].is_nan(), "{rows:?}");
        assert!(rows[1..].iter().all(|row| (100.0..200.0).contains(&per_100_ms(row))), "{rows:?}");
    }
}

#[test]
fn models_of_other_intervals_share_the_bound_of_those_that_are_retained() {
    let mut load = Load::new(WorkerSettings { max_retained_model_bytes: 100, ..quick() }, &spec(ROW, None));
    load.pass(Nanos::from_secs(200));
    load.node.set(&spec(Nanos::from_millis(200), None));
    load.pass(Nanos::from_secs(12));
    assert_eq!(load.judged(), Nanos::from_millis(200));

    let status = load.node.worker.status();
    assert_eq!(status.evicted_models, 1, "that of a second takes more");
    load.node.set(&spec(ROW, None));
    load.pass(Nanos::from_secs(3));
    assert_eq!(load.judged(), Nanos::from_millis(200), "so it has to be learnt again");
}

#[test]
fn what_another_worker_learnt_at_the_new_interval_is_used_at_once() {
    let mut other = Load::new(quick(), &spec(Nanos::from_millis(200), None));
    other.pass(Nanos::from_secs(30));
    let learnt = other.node.worker.model(&ServiceName::new("cart").unwrap()).unwrap().encode();

    let mut load = armed(false);
    let configured = proto::Lmap { learnt, ..(&spec(Nanos::from_millis(200), None)).into() };
    load.node.change(FromHost::SetLmap(configured)).unwrap();
    load.pass(Nanos::from_secs(1));

    assert_eq!((load.judged(), load.state()), (Nanos::from_millis(200), State::Armed));
}
