//! Regions that a sampler writes, which says when: it may become faster while something seems wrong.

use super::*;

/// The interval of rows and of the sampler, and the least time between two fetches.
const ROW: Nanos = Nanos::from_millis(1000);
const FETCH: Nanos = Nanos::from_millis(100);
const STEP: Nanos = Nanos::from_millis(50);
const METRICS: u32 = 6;
/// What metric 3 counts in a step: always the same.
const STEADY: u64 = 50;

/// How often the sampler writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sampler {
    /// Once per row.
    Usual,
    /// Once per row, or per fetch while the LMAP is fetched faster; first as soon as it is.
    Following,
}

/// A service with one region, which a sampler writes 350 ms after each row, in steps of 50 ms.
struct SampledLoad {
    node: Node,
    sampler: Sampler,
    /// What there is to be sampled, by slot.
    now: [u64; METRICS as usize],
    steps: u64,
    sampled: u64,
    /// Factor on what metric 1 counts.
    fault: u64,
}

impl SampledLoad {
    fn new(sampler: Sampler, fastest: Option<Nanos>) -> Self {
        let interval = |length| Interval::new(length).unwrap();
        let mut spec = lmap(metrics(METRICS), 1);
        (spec.interval, spec.fastest) = (interval(ROW), fastest.map(interval));
        let region = &mut spec.replicas[0].regions[0];
        (region.heartbeat, region.sample_times) = (false, true);
        let mut node = Node::new(quick());
        node.set(&spec);
        // The next sample is in step 7.
        let mut load = Self { node, sampler, now: [0; METRICS as usize], steps: 0, sampled: 0, fault: 1 };
        load.pass(Nanos::from_millis(350));
        load.sample();
        load
    }

    fn sample(&mut self) {
        for (slot, value) in (0..).zip(self.now) {
            self.node.store(1, slot, value);
        }
        self.node.regions[&RegionId(1)].sampled(Nanos(STEP.0 * self.steps));
        self.sampled = self.steps;
    }

    /// Lets `length` pass.
    fn pass(&mut self, length: Nanos) {
        for _ in 0..length.0 / STEP.0 {
            self.steps += 1;
            for id in 1..=METRICS {
                let (noise, slot) = (noise(self.steps << 16 | u64::from(id)), (id - 1) as usize);
                self.now[slot] = match id {
                    1 => self.now[slot] + self.fault * (50 + noise / 10),
                    3 => self.now[slot] + STEADY,
                    5 => self.now[slot] + 50 + noise,
                    _ => (50.0 + noise as f64 / 10.0).to_bits(),
                };
            }
            let is_fast = self.sampler == Sampler::Following && self.node.worker.status().fast_lmaps > 0;
            let every = if is_fast { FETCH } else { ROW };
            if self.sampled > 0 && self.steps - self.sampled >= every.0 / STEP.0 {
                self.sample();
            }
            self.node.now = Nanos(STEP.0 * self.steps);
            while self.node.worker.poll(self.node.now) == Step::Fetch {
                self.node.fetch();
            }
            self.node.act();
        }
    }

    /// The time in ms of each verdict with one of these episodes, since the last call.
    fn times(&mut self) -> [Vec<u64>; 2] {
        let messages = self.node.take_messages();
        let verdicts = messages.iter().filter_map(|message| match message {
            ToHost::Verdicts(verdicts) => Some(verdicts),
            _ => None,
        });
        let mut times = [Vec::new(), Vec::new()];
        for of in verdicts {
            for verdict in of.verdicts.iter().map(|verdict| Verdict::decode(verdict).unwrap()) {
                match verdict.episode {
                    Episode::Began => times[0].push((of.at_unix_ns - WALL_START) / 1_000_000),
                    Episode::Ended => times[1].push((of.at_unix_ns - WALL_START) / 1_000_000),
                    Episode::Quiet | Episode::On => {}
                }
            }
        }
        times
    }
}

/// One that is armed, at 201 s.
fn armed(sampler: Sampler, fastest: Option<Nanos>) -> SampledLoad {
    let mut load = SampledLoad::new(sampler, fastest);
    load.pass(Nanos::from_millis(200_650));
    assert_eq!(load.node.worker.runtimes.values().next().unwrap().reported_state(), State::Armed);
    load.node.take_messages();
    load
}

#[test]
fn with_a_sampler_that_becomes_faster_alarms_begin_and_end_sooner_and_with_one_that_does_not_they_are_those_of_rows() {
    let of = |sampler, fastest| {
        let mut load = armed(sampler, fastest);
        load.fault = 8;
        load.pass(Nanos::from_secs(16));
        load.fault = 1;
        load.pass(Nanos::from_secs(30));
        assert_eq!(load.node.worker.status().fast_lmaps, 0, "it is calm again");
        load.times()
    };

    let by_rows = of(Sampler::Usual, None);
    let [began, ended] = of(Sampler::Following, Some(FETCH));

    // The fault begins at 201 s: the row at 202 s is over γ, by the sample at 201.35 s. So are the next one and all
    // fetches of half an interval, with samples of their own.
    assert_eq!((by_rows[0].as_slice(), began.as_slice()), (&[203_000][..], &[202_500][..]));
    assert!(ended.len() == 1 && by_rows[1].len() == 1, "{ended:?} {by_rows:?}");
    assert!(ended[0] + 1_000 < by_rows[1][0], "{ended:?} {by_rows:?}");
    // One look in ten shows anything: that is no sign that all is well.
    assert_eq!(of(Sampler::Usual, Some(FETCH)), by_rows);
}

#[test]
fn what_grows_steadily_is_steady_in_all_rows_while_its_sampler_changes_its_pace() {
    for sampler in [Sampler::Usual, Sampler::Following] {
        let mut load = armed(sampler, Some(FETCH));
        load.node.watch_rows();
        load.fault = 8;
        load.pass(Nanos::from_secs(10));
        load.fault = 1;
        load.pass(Nanos::from_secs(30));

        let rows = load.node.rows();
        let per_row = (STEADY * ROW.0 / STEP.0) as f64;
        assert!(rows.len() > 30);
        assert!(rows.iter().all(|row| (row[2] - per_row).abs() < 1e-6), "{sampler:?}: {rows:?}");
    }
}

#[test]
fn what_was_counted_before_the_first_sample_is_in_no_row_and_nothing_is_spread_over_the_time_of_its_clock() {
    let mut spec = lmap(metrics(2), 1);
    spec.interval = Interval::new(ROW).unwrap();
    let region = &mut spec.replicas[0].regions[0];
    (region.heartbeat, region.sample_times) = (false, true);
    let mut node = Node::new(quick());
    node.set(&spec);
    node.watch_rows();

    let mut rows = Vec::new();
    for count in [None, None, Some(500), Some(600), Some(720)] {
        if let Some(count) = count {
            node.store(1, 0, count);
            node.store(1, 1, 2.5_f64.to_bits());
            // A second after the one before, of a clock that began an hour ago.
            node.regions[&RegionId(1)].sampled(Nanos::from_secs(3_600).plus(node.now));
        }
        node.tick();
        rows.extend(node.rows());
    }

    let missing = |column: usize| rows.iter().filter(|row| row[column].is_nan()).count();
    assert_eq!((rows.len(), missing(0), missing(1)), (5, 3, 2), "{rows:?}");
    assert_eq!((rows[3][0], rows[4][0]), (100.0, 120.0), "{rows:?}");
    assert!(rows[2..].iter().all(|row| row[1] == 2.5), "{rows:?}");
    assert_eq!(node.worker.status().silent_replicas, 0, "it is there all the time");
}
