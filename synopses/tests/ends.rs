//! The two ends of a path agree on tables, or count everything: no loss of a message, restart or liar makes an estimate
//! smaller than the truth.

use std::collections::BTreeMap;

use proptest::prelude::*;
use synopses::digest::Digest;
use synopses::disaggregated::{
    Counting, EndCount, EndReport, EpochTable, Fragment, LoadTable, NoEstimate, Path, PathOwner, PathTaker,
    PlanSettings, Settings, TableRefused, combine, plan,
};

const OWNER: u32 = 1;
const TAKER: u32 = 2;
/// Errors that make K = 1 the best choice for the traffic of these tests.
const PLAN: PlanSettings = PlanSettings { counters: 64, error: 1.0 };

/// What goes wrong in an epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Trouble {
    /// The owner does not get the taker's report.
    report_lost: bool,
    /// 0: the table arrives; 1: it is lost; 2: it arrives an epoch later; 3: it arrives twice.
    table: u8,
    acknowledgement_lost: bool,
    /// Before the epoch's messages, or after them.
    owner_restarts: Option<bool>,
    taker_restarts: Option<bool>,
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let rare = || prop::option::weighted(0.15, any::<bool>());
    (prop::bool::weighted(0.2), 0_u8..4, prop::bool::weighted(0.3), rare(), rare()).prop_map(
        |(report_lost, table, acknowledgement_lost, owner_restarts, taker_restarts)| Trouble {
            report_lost,
            table,
            acknowledgement_lost,
            owner_restarts,
            taker_restarts,
        },
    )
}

/// A NIC at an end of the path.
struct End {
    fragment: Fragment,
    counting: Counting,
    table: Option<EpochTable>,
    position: usize,
    passed: u64,
    /// Whether it has counted since the epoch began.
    whole: bool,
    /// Its report of the epoch before.
    report: Option<EndReport>,
}

impl End {
    fn new(id: u32) -> Self {
        let settings = Settings { id, counters: PLAN.counters, rows: 1, seed: id.into() };
        let fragment = Fragment::new(settings).expect("possible");
        let position = usize::from(id == TAKER);
        Self { fragment, counting: Counting::All, table: None, position, passed: 0, whole: false, report: None }
    }

    fn begin(&mut self, now: u32, table: Option<&EpochTable>) {
        self.report = now.checked_sub(1).and_then(|last| self.end(last));
        self.table = table.cloned();
        self.counting = table.map_or(Counting::All, |table| Counting::Chosen(table.run));
        self.fragment.rotate(now);
        (self.passed, self.whole) = (0, true);
    }

    /// A packet of a flow between both ends passes.
    fn pass(&mut self, flow: Digest) {
        self.passed += 1;
        let chosen = |table: &EpochTable| table.path.select(flow).contains(self.position);
        if self.table.as_ref().is_none_or(chosen) {
            self.fragment.insert(flow, 1);
        }
    }

    /// A packet passes that only this end sees.
    fn pass_alone(&mut self, flow: Digest) {
        self.passed += 1;
        self.fragment.insert(flow, 1);
    }

    fn end(&self, epoch: u32) -> Option<EndReport> {
        self.whole.then_some(EndReport { epoch, passed: self.passed })
    }

    fn count(&self, flow: Digest) -> Option<EndCount> {
        self.whole.then(|| EndCount { counting: self.counting, count: self.fragment.estimate(flow) })
    }
}

/// Both ends, and the message that is late.
struct World {
    owner: (End, PathOwner),
    taker: (End, PathTaker),
    late: Option<EpochTable>,
    runs: u64,
}

impl World {
    fn new() -> Self {
        Self {
            owner: (End::new(OWNER), PathOwner::new(OWNER, TAKER, PLAN, 0, 0)),
            taker: (End::new(TAKER), PathTaker::new(TAKER, OWNER)),
            late: None,
            runs: 0,
        }
    }

    fn restart(&mut self, now: u32, trouble: Trouble, after: bool) {
        if trouble.owner_restarts == Some(after) {
            self.runs += 1;
            self.owner = (End::new(OWNER), PathOwner::new(OWNER, TAKER, PLAN, self.runs, now));
        }
        if trouble.taker_restarts == Some(after) {
            self.taker = (End::new(TAKER), PathTaker::new(TAKER, OWNER));
        }
    }

    /// The messages of an epoch: reports, the table, its acknowledgement.
    fn exchange(&mut self, now: u32, trouble: Trouble) {
        let ((owner, plans), (taker, takes)) = (&mut self.owner, &mut self.taker);
        if let Some(late) = self.late.take() {
            let epoch = late.epoch;
            assert_eq!(takes.take(now, late), Err(TableRefused::Late { epoch, now }));
        }
        let reports = owner.report.zip(taker.report).filter(|_| !trouble.report_lost);
        let Some(table) = reports.and_then(|(own, other)| plans.plan(now, own, other, now.into())).cloned() else {
            return;
        };
        let epoch = table.epoch;
        match trouble.table {
            1 => return,
            2 => {
                self.late = Some(table);
                return;
            }
            3 => assert_eq!(takes.take(now, table.clone()), Ok(())),
            _ => {}
        }
        assert_eq!(takes.take(now, table), Ok(()), "one table for each epoch");
        if !trouble.acknowledgement_lost {
            plans.acknowledged(now, epoch);
        }
    }

    fn epoch(&mut self, now: u32, trouble: Trouble, flows: &[u64], alone: u64) {
        self.owner.0.begin(now, self.owner.1.agreed(now));
        self.taker.0.begin(now, self.taker.1.table(now));
        let (before, after) = flows.split_at(flows.len() / 2);
        for flow in before {
            self.pass(*flow);
        }
        (0..alone).for_each(|flow| self.owner.0.pass_alone(Digest(1 << 32 | flow)));
        self.restart(now, trouble, false);
        self.exchange(now, trouble);
        self.restart(now, trouble, true);
        for flow in after {
            self.pass(*flow);
        }
    }

    fn pass(&mut self, flow: u64) {
        self.owner.0.pass(Digest(flow));
        self.taker.0.pass(Digest(flow));
    }
}

proptest! {
    #[test]
    fn whatever_is_lost_late_or_restarted_an_estimate_is_at_least_the_truth(
        epochs in prop::collection::vec((trouble(), prop::collection::vec(0_u64..20, 0..60), 0_u64..50), 1..20),
    ) {
        let mut world = World::new();
        for (now, (trouble, flows, alone)) in (0..).zip(&epochs) {
            world.epoch(now, *trouble, flows, *alone);
            let mut truth = BTreeMap::<u64, u64>::new();
            for flow in flows {
                *truth.entry(*flow).or_default() += 1;
            }
            let restarted = trouble.owner_restarts.or(trouble.taker_restarts).is_some();
            // An epoch is estimated in the next one, when the table of the one after may have been made.
            let mut later = world.owner.1.clone();
            if let (Some(own), Some(other)) = (world.owner.0.end(now), world.taker.0.end(now)) {
                let _ = later.plan(now + 1, own, other, 0);
            }
            for (flow, size) in truth {
                let ends = [world.owner.0.count(Digest(flow)), world.taker.0.count(Digest(flow))];
                for table in [world.owner.1.table(now), later.table(now), world.taker.1.table(now)] {
                    let found = combine(table, Digest(flow), ends);
                    prop_assert!(found.is_ok() || restarted, "epoch {now}, flow {flow}: {found:?}");
                    prop_assert!(found.is_err() || found.as_ref().is_ok_and(|found| found.count >= size));
                }
            }
        }
    }

    #[test]
    fn without_trouble_flows_are_counted_at_the_less_loaded_end_and_stay_there(alone in 200_u64..400) {
        let mut world = World::new();
        let flows: Vec<u64> = (0..150).collect();
        for now in 0..10 {
            world.epoch(now, Trouble::default(), &flows, alone);
            if now >= 3 {
                // The busier end has a millionth of the weight, and with these seeds one flow in one of ten epochs.
                let (owner, taker) = (world.owner.0.fragment.load(), world.taker.0.fragment.load());
                prop_assert!(owner <= alone + 1 && owner + taker == alone + 150, "epoch {}: {}, {}", now, owner, taker);
            }
        }
    }

    #[test]
    fn no_report_of_a_liar_is_too_much_for_a_plan(loads: [u64; 2], error: f64, seed: u64, counters: u32) {
        let loads = [(OWNER, loads[0]), (TAKER, loads[1])].into_iter().collect::<LoadTable>();
        let path = plan(&[OWNER, TAKER], &loads, PlanSettings { counters, error }, seed).expect("two ends");

        prop_assert!((1..=2).contains(&path.count()));
        prop_assert_eq!(path.select(Digest(seed)).positions().count(), path.count());
    }

    #[test]
    fn tables_are_taken_once_and_for_the_next_epoch_only(now in 0_u32..u32::MAX - 2, apart in -3_i64..4, bytes: Vec<u8>) {
        let table = |epoch: u32, seed: u64, ends: [u32; 2]| {
            EpochTable { run: 7, epoch, path: Path::random(&ends, 1, seed).expect("possible") }
        };
        let mut end = PathTaker::new(TAKER, OWNER);
        let epoch = (i64::from(now) + apart).clamp(0, u32::MAX.into()) as u32;
        prop_assert_eq!(end.take(now, table(epoch, 1, [OWNER, TAKER])).is_ok(), epoch == now + 1);
        for others in [[TAKER, OWNER], [OWNER, 3], [3, TAKER]] {
            prop_assert_eq!(end.take(now, table(now + 1, 2, others)), Err(TableRefused::Ends([OWNER, TAKER])));
        }
        prop_assert_eq!(end.take(now, table(now + 1, 1, [OWNER, TAKER])), Ok(()));
        let second = Err(TableRefused::Second(now + 1));
        prop_assert_eq!(end.take(now, table(now + 1, 2, [OWNER, TAKER])), second.clone());
        prop_assert_eq!(end.take(now, EpochTable { run: 8, ..table(now + 1, 1, [OWNER, TAKER]) }), second);
        let encoded = end.table(now + 1).expect("taken").encode();
        let decoded = EpochTable::decode(7, &encoded).expect("encoded");
        prop_assert_eq!(end.take(now, decoded), Ok(()), "the same again");
        // Any other bytes are a table or an error.
        let _ = EpochTable::decode(7, &bytes);
    }
}

#[test]
fn a_run_makes_no_table_for_an_epoch_that_an_earlier_one_may_have_made_one_for() {
    let report = |epoch| EndReport { epoch, passed: 1 };
    let mut owner = PathOwner::new(OWNER, TAKER, PLAN, 1, 10);

    assert!(owner.plan(10, report(9), report(9), 0).is_none(), "the epoch of the start");
    assert_eq!(owner.plan(11, report(10), report(10), 0).map(|table| table.epoch), Some(12));
    assert!(owner.plan(12, report(11), report(10), 0).is_none(), "loads of different epochs");
    assert!(owner.plan(10, report(9), report(9), 0).is_none(), "a clock that was set back");
    assert_eq!(owner.plan(11, report(10), report(10), 5).map(|table| table.path.seed()), Some(0), "the same again");

    assert!(owner.agreed(12).is_none(), "nobody else has it");
    owner.acknowledged(12, 12);
    assert!(owner.agreed(12).is_none(), "too late");
    owner.acknowledged(11, 12);
    assert!(owner.agreed(12).is_some());
}

#[test]
fn counts_are_combined_only_of_ends_that_are_known_to_have_counted() {
    let path = Path::weighted(&[OWNER, TAKER], 1, &[1e-300, 1.0], 3).expect("possible");
    let table = EpochTable { run: 5, epoch: 1, path };
    let end = |counting, count| Some(EndCount { counting, count });
    let found = |table, ends| combine(table, Digest(1), ends).map(|found| found.count);
    let (run, other) = (Counting::Chosen(5), Counting::Chosen(6));
    let none = Err(NoEstimate::Skipped { touched: 0, chosen: 1 });

    assert_eq!(found(Some(&table), [end(run, 0), end(run, 9)]), Ok(9), "the owner was not chosen");
    assert_eq!(found(Some(&table), [end(Counting::All, 8), end(run, 9)]), Ok(8));
    assert_eq!(found(None, [end(run, 0), end(Counting::All, 9)]), Ok(9));
    assert_eq!(found(Some(&table), [end(run, 0), None]), none);
    assert_eq!(found(Some(&table), [end(run, 0), end(other, 9)]), none, "tables of different runs");
    assert_eq!(found(None, [end(run, 1), end(run, 9)]), Err(NoEstimate::Skipped { touched: 0, chosen: 1 }));
}
