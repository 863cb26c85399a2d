//! From the registers of reordering by prefix to intervals as the host's own path has them, from poll to poll.
//!
//! A host sets the counts of its records to 0 at the end of an interval. Those of a switch grow until their record is
//! given up and reported. So what an interval has of a prefix are the new reports, and what its records have now, less
//! what was counted of its records before.

use std::collections::BTreeMap;

use synopses::reordering::{Prefix, PrefixTally, Report, SettingsError};
use thiserror::Error;

use super::{BACK, FrameInterval, FramePolls, ProgramCheck, ReadoutError};
use crate::flows::ReorderingInterval;
use crate::switch::Constants;
use crate::switch::registers::{FrameBlock, RING, ReorderingBlock};

/// Stages of heavy flows, if there are any.
const STAGES: u64 = 2;
/// The most records that are read of a switch.
const MAX_RECORDS: usize = 1024;
/// The most prefixes of an interval: those of reports and of records.
const MAX_PREFIXES: usize = RING + MAX_RECORDS;

/// Why constants describe no reordering by prefix that can be read.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ReorderingError {
    /// A constant that reordering needs is missing.
    #[error("{program} has no constant {name}")]
    Missing {
        /// The program of the constants.
        program: &'static str,
        /// The constant's name.
        name: &'static str,
    },
    /// More records than an agent reads.
    #[error("{0} records of flows, at most {MAX_RECORDS} are read of a switch")]
    Records(u64),
    /// Flows that were given up without a report are missing in every share.
    #[error("REPORT_ALL is {0}: of flows in order nothing is reported, and shares would be too large; 1 is needed")]
    Reports(u64),
    /// The library refuses the tally.
    #[error(transparent)]
    Tally(#[from] SettingsError),
}

/// Packets out of order in a switch, in one interval.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchReordering {
    /// Frames since the poll before.
    pub frames: FrameInterval,
    /// What the host's own path says of an interval; `None` with an overrun. No program tells fragments apart.
    pub reordering: Option<ReorderingInterval>,
    /// Reports that were overwritten before they were read.
    pub overrun: u64,
}

/// Packets checked of a prefix, and those out of order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CheckedPackets {
    packets: u64,
    events: u64,
}

impl CheckedPackets {
    fn add(&mut self, report: &Report) {
        self.packets += u64::from(report.packets);
        self.events += u64::from(report.out_of_order);
    }

    fn plus(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, events: self.events + other.events }
    }

    /// What is there beyond `other`, each for itself.
    fn beyond(self, other: Self) -> Self {
        let (packets, events) = (self.packets.saturating_sub(other.packets), self.events.saturating_sub(other.events));
        Self { packets, events }
    }

    fn at_most(self, other: Self) -> Self {
        Self { packets: self.packets.min(other.packets), events: self.events.min(other.events) }
    }
}

/// What earlier intervals have of flows that were not reported until then.
#[derive(Clone, Copy, Debug, Default)]
struct CountedRecords {
    /// Of records that there were at the latest poll.
    records: CheckedPackets,
    /// Of records that were given up while that poll went on: their reports came too late for it.
    owed: CheckedPackets,
}

/// Makes intervals of the registers of reordering by prefix.
#[derive(Debug)]
pub struct ReorderingReadout {
    polls: FramePolls,
    samples: usize,
    rows: usize,
    tally: PrefixTally,
    /// Reports at the latest poll.
    reports: u32,
    counted: BTreeMap<u64, CountedRecords>,
}

impl ReorderingReadout {
    /// Before the first poll of a switch whose program has these constants. Intervals end at multiples of
    /// `interval_ns`, at least 1.
    ///
    /// # Errors
    ///
    /// [`ReorderingError`] if the constants are not those of reordering by prefix, or not all flows are reported.
    pub fn new(constants: &Constants, interval_ns: u64) -> Result<Self, ReorderingError> {
        let program = constants.program();
        let value = |name| constants.value(name).ok_or(ReorderingError::Missing { program, name });
        let report_all = value("REPORT_ALL")?;
        if report_all != 1 {
            return Err(ReorderingError::Reports(report_all));
        }
        let (samples, rows) = (value("BUCKETS")?, constants.value("ROWS").unwrap_or(0));
        let all = rows.saturating_mul(STAGES).saturating_add(samples);
        if all > MAX_RECORDS as u64 {
            return Err(ReorderingError::Records(all));
        }
        let check = ProgramCheck { program, checksum: constants.checksum() };
        Ok(Self {
            polls: FramePolls::new(check, interval_ns),
            samples: samples as usize,
            rows: rows as usize,
            // There is room for all prefixes, so that the seed does not matter.
            tally: PrefixTally::new(MAX_PREFIXES, 0)?,
            reports: 0,
            counted: BTreeMap::new(),
        })
    }

    /// The program that it reads.
    #[must_use]
    pub const fn program(&self) -> &'static str {
        self.polls.program.program
    }

    /// Records of samples, and rows of heavy flows in each stage.
    #[must_use]
    pub const fn sizes(&self) -> (usize, usize) {
        (self.samples, self.rows)
    }

    /// Takes what was read at `now_ns`: reports and records first, then the frames. At most `most` prefixes are listed.
    /// `None`: this is the first poll, or the first one after the switch has started again.
    ///
    /// # Errors
    ///
    /// [`ReadoutError`] if the switch runs something else. The next poll begins anew.
    pub fn read(
        &mut self,
        frames: &FrameBlock,
        block: &ReorderingBlock,
        now_ns: u64,
        most: usize,
    ) -> Result<Option<SwitchReordering>, ReadoutError> {
        let before = core::mem::replace(&mut self.reports, block.reports);
        let new = block.reports.wrapping_sub(before);
        let counted = core::mem::take(&mut self.counted);
        let frames = self.polls.take(frames, now_ns, new >= BACK)?;
        // While the ring was read, newer reports replaced the oldest ones.
        let places = (RING as u32).saturating_sub(block.written.wrapping_sub(block.reports));
        let overrun = u64::from(new.saturating_sub(places));
        let Some(frames) = frames.filter(|_| overrun == 0) else {
            self.count_records(block);
            return Ok(frames.map(|frames| SwitchReordering { frames, reordering: None, overrun }));
        };
        let mut reported = BTreeMap::<u64, CheckedPackets>::new();
        for age in 1..=new {
            let place = block.reports.wrapping_sub(age) as usize % RING;
            if let Some(report) = block.ring.get(place) {
                reported.entry(report.prefix.0).or_default().add(report);
            }
        }
        self.count_records(block);
        let reordering = Some(self.interval(reported, counted, most));
        Ok(Some(SwitchReordering { frames, reordering, overrun }))
    }

    /// From now on, what records have by now is counted.
    fn count_records(&mut self, block: &ReorderingBlock) {
        for record in block.records.iter().filter(|record| record.packets > 0) {
            self.counted.entry(record.prefix.0).or_default().records.add(record);
        }
    }

    /// What there is of each prefix in new reports and in records, less what was counted before.
    fn interval(
        &mut self,
        mut all: BTreeMap<u64, CheckedPackets>,
        before: BTreeMap<u64, CountedRecords>,
        most: usize,
    ) -> ReorderingInterval {
        for (prefix, counted) in &self.counted {
            let sum = all.entry(*prefix).or_default();
            *sum = sum.plus(counted.records);
        }
        for (prefix, CountedRecords { records, owed }) in before {
            let sum = all.entry(prefix).or_default();
            let less = records.plus(owed);
            // A record that was given up after the ring was read. What was owed before should have come by now.
            let owed = less.beyond(*sum).at_most(records);
            if owed != CheckedPackets::default() {
                self.counted.entry(prefix).or_default().owed = owed;
            }
            *sum = sum.beyond(less);
        }
        self.tally.reset();
        let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        for (prefix, CheckedPackets { packets, events }) in all.into_iter().filter(|(_, checked)| checked.packets > 0) {
            // Packets and events of a record are read one after the other.
            let (packets, out_of_order) = (number(packets), number(events.min(packets)));
            self.tally.insert(Report { prefix: Prefix(prefix), packets, out_of_order });
        }
        ReorderingInterval::of(&self.tally, 0, most)
    }
}

#[cfg(test)]
mod tests {
    use synopses::digest::DigestKey;
    use synopses::reordering::{Reports, Settings};

    use super::*;
    use crate::switch::programs;

    const SECOND: u64 = 1_000_000_000;
    /// Prefixes of IPv4: 10.0.1.0/24, and the next ones.
    const TEN: u64 = 1 << 63 | 10 << 16;

    fn constants(reports: Reports) -> Constants {
        let settings = Settings { buckets: 4, reports, ..Settings::default() };
        programs::samples(settings, &DigestKey::new(7)).expect("possible")
    }

    fn report(number: u64, packets: u32, out_of_order: u32) -> Report {
        Report { prefix: Prefix(TEN + number), packets, out_of_order }
    }

    /// A switch with four records.
    struct Watched {
        readout: ReorderingReadout,
        frames: FrameBlock,
        block: ReorderingBlock,
        second: u64,
    }

    impl Watched {
        fn new() -> Self {
            let constants = constants(Reports::Always);
            let block = ReorderingBlock {
                reports: u32::MAX - 3,
                ring: vec![report(0, 0, 0); RING],
                written: u32::MAX - 3,
                records: vec![report(0, 0, 0); 4],
            };
            Self {
                readout: ReorderingReadout::new(&constants, SECOND).expect("constants of reordering"),
                frames: FrameBlock { frames: 1, checksum: constants.checksum(), ..FrameBlock::default() },
                block,
                second: 0,
            }
        }

        /// Gives up a record, which goes to nobody.
        fn give_up(&mut self, at: usize) {
            let given = core::mem::replace(&mut self.block.records[at], report(0, 0, 0));
            self.report(given);
        }

        fn report(&mut self, given: Report) {
            self.block.ring[self.block.reports as usize % RING] = given;
            self.block.reports = self.block.reports.wrapping_add(1);
            self.block.written = self.block.reports;
        }

        fn poll(&mut self) -> Option<SwitchReordering> {
            self.second += 1;
            self.frames.frames += 10;
            let Self { readout, frames, block, second } = self;
            readout.read(frames, block, *second * SECOND, 10).expect("its own constants")
        }

        /// Packets checked and out of order of all prefixes, and the worst ones with enough packets.
        fn interval(&mut self) -> (u64, u64, Vec<(String, u64, u64)>) {
            let found = self.poll().and_then(|interval| interval.reordering).expect("an interval");
            let worst = found.worst.iter().map(|of| (of.prefix.to_string(), of.checked, of.out_of_order)).collect();
            (found.checked, found.out_of_order, worst)
        }
    }

    #[test]
    fn an_interval_has_what_records_have_more_and_what_was_reported_less_what_was_counted_before() {
        let mut switch = Watched::new();
        switch.block.records[0] = report(1, 30, 3);
        assert_eq!(switch.poll(), None);

        switch.block.records[0] = report(1, 50, 4);
        switch.block.records[1] = report(2, 17, 17);
        let worst = vec![("10.0.2.0/24".to_owned(), 17, 17), ("10.0.1.0/24".to_owned(), 20, 1)];
        assert_eq!(switch.interval(), (37, 18, worst));

        // Both went to others; one of them to a flow of the other's prefix, which was given up, too.
        switch.block.records[0] = report(1, 51, 4);
        switch.give_up(0);
        switch.give_up(1);
        switch.report(report(1, 15, 0));
        switch.block.records[1] = report(1, 4, 0);
        assert_eq!(switch.interval(), (20, 0, vec![("10.0.1.0/24".to_owned(), 20, 0)]));
        assert_eq!(switch.interval(), (0, 0, Vec::new()));
    }

    #[test]
    fn a_record_that_is_given_up_while_records_are_read_is_not_counted_twice() {
        let mut switch = Watched::new();
        switch.block.records[0] = report(1, 30, 3);
        assert_eq!(switch.poll(), None);

        // Its report comes behind the ring that was read.
        switch.block.records[0] = report(2, 5, 0);
        assert_eq!(switch.interval(), (5, 0, Vec::new()));
        switch.report(report(1, 40, 5));
        assert_eq!(switch.interval(), (10, 2, Vec::new()));
        // What never comes is not waited for.
        switch.block.records[0] = report(3, 1, 0);
        assert_eq!(switch.interval(), (1, 0, Vec::new()));
        assert_eq!(switch.interval().0, 0);
        switch.block.records[1] = report(2, 20, 0);
        assert_eq!(switch.interval().0, 20);
    }

    #[test]
    fn reports_that_were_overwritten_are_an_overrun_and_the_next_interval_is_whole() {
        let mut switch = Watched::new();
        assert_eq!(switch.poll(), None);

        (0..1_020).for_each(|_| switch.report(report(1, 2, 0)));
        // Ten more came while the ring was read.
        switch.block.written = switch.block.reports.wrapping_add(10);
        switch.block.records[2] = report(2, 100, 0);
        let interval = switch.poll().expect("an interval");
        assert_eq!((interval.overrun, interval.reordering, interval.frames.packets), (6, None, 10));

        switch.block.written = switch.block.reports;
        switch.block.records[2] = report(2, 103, 0);
        (0..1_024).for_each(|_| switch.report(report(1, 2, 0)));
        assert_eq!(switch.interval(), (2_051, 0, vec![("10.0.1.0/24".to_owned(), 2_048, 0)]));
    }

    #[test]
    fn a_switch_that_started_again_begins_anew() {
        let mut switch = Watched::new();
        switch.block.records[0] = report(1, 30, 3);
        assert_eq!(switch.poll(), None);

        (switch.block.reports, switch.block.written) = (5, 5);
        switch.block.records[0] = report(1, 2, 0);
        assert!(switch.poll().is_some(), "a ring that wraps is no start");
        (switch.block.reports, switch.block.written) = (1, 1);
        assert_eq!(switch.poll(), None);
        switch.block.records[0] = report(1, 20, 0);
        assert_eq!(switch.interval(), (18, 0, vec![("10.0.1.0/24".to_owned(), 18, 0)]));
    }

    #[test]
    fn programs_that_do_not_report_all_flows_or_have_too_many_are_refused() {
        let of = |constants: &Constants| ReorderingReadout::new(constants, SECOND);
        let error = of(&constants(Reports::Suspicious)).expect_err("it reports few").to_string();
        assert!(error.starts_with("REPORT_ALL is 0: of flows in order nothing is reported"), "{error}");

        let wide = Settings { buckets: 2_000, reports: Reports::Always, ..Settings::default() };
        let wide = programs::samples(wide, &DigestKey::new(7)).expect("possible");
        let error = of(&wide).expect_err("too many").to_string();
        assert_eq!(error, "2000 records of flows, at most 1024 are read of a switch");
        let fridge = programs::fridge(synopses::fridge::Settings::default(), &DigestKey::new(7)).expect("a fridge");
        assert_eq!(of(&fridge).expect_err("no flows").to_string(), "fridge has no constant REPORT_ALL");
    }
}
