//! From the registers of PRECISION to the heavy flows of an epoch: the latest one that is over at the poll. Flows have
//! no names there, only digests, so that what is said of them is about nobody.

use synopses::rap::{MAX_EPOCH_SHIFT, SettingsError};
use thiserror::Error;

use super::{FrameInterval, FramePolls, ProgramCheck, ReadoutError, TakenTimes};
use crate::flows::MIN_SHARE_PACKETS;
use crate::switch::Constants;
use crate::switch::registers::{FrameBlock, HeavyBlock};

/// The most rows of a stage that are read of a switch.
const MAX_ROWS: u64 = 4096;
/// A heavy flow has one packet of so many.
const HEAVY_SHARE: u64 = 100;
/// Packets of an epoch below which heavy flows are not counted: of fewer, nine may be a hundredth.
const MIN_HEAVY_PACKETS: u64 = 10 * HEAVY_SHARE;

/// Why constants describe no PRECISION that can be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeavyError {
    /// A constant that PRECISION needs is missing.
    #[error("{program} has no constant {name}")]
    Missing {
        /// The program of the constants.
        program: &'static str,
        /// The constant's name.
        name: &'static str,
    },
    /// More rows than an agent reads, or none.
    #[error("{0} rows of a stage, 1 to {MAX_ROWS} are read of a switch")]
    Rows(u64),
    /// The library refuses the settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

/// Heavy flows of a switch at the end of one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwitchHeavyFlows {
    /// Frames since the poll before.
    pub frames: FrameInterval,
    /// Those of the latest epoch that is over; `None` if none is yet, or if the next but one began before it was read
    /// for the first time.
    pub flows: Option<HeavyFlows>,
    /// Epochs that were lost so: 1 or 0.
    pub overrun: u64,
}

/// Heavy flows of an epoch, by what each has at least.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeavyFlows {
    /// Packets of the epoch.
    pub packets: u64,
    /// Packets of the heaviest flow; 0 without packets.
    pub heaviest: u64,
    /// The share of the heaviest flow in this epoch, or in the one that was read before if it was larger, as on a host
    /// ([`HeavyInterval`](crate::flows::HeavyInterval)). `None` below [`MIN_SHARE_PACKETS`].
    pub lasting_share: Option<f64>,
    /// Flows with at least a hundredth of the packets each. `None` below 1,000 packets.
    pub heavy: Option<u64>,
}

impl HeavyFlows {
    /// What `block` has of an epoch.
    fn of(block: &HeavyBlock, epoch: u64) -> Self {
        let set = (epoch & 1) as usize;
        let packets = u64::from(block.inserted[set]);
        let entries = block.entries[set].iter().filter(|entry| entry.epoch == epoch as u32 && entry.flow.count > 0);
        // An entry may change hands between two arrays, by a packet that is late.
        let least = entries.map(|entry| entry.flow.since.min(entry.flow.count).min(packets));
        let heavy = least.clone().filter(|least| least * HEAVY_SHARE >= packets).count() as u64;
        Self {
            packets,
            heaviest: least.max().unwrap_or(0),
            lasting_share: None,
            heavy: (packets >= MIN_HEAVY_PACKETS).then_some(heavy),
        }
    }

    /// The share of the heaviest one.
    fn share(&self) -> Option<f64> {
        (self.packets >= MIN_SHARE_PACKETS).then(|| self.heaviest as f64 / self.packets as f64)
    }
}

/// Makes heavy flows of the registers of PRECISION.
#[derive(Debug)]
pub struct HeavyReadout {
    polls: FramePolls,
    rows: usize,
    epoch_shift: u32,
    /// The latest epoch of the switch at the latest poll.
    latest: u64,
    /// What was taken for its time then, in nanoseconds.
    switch_ns: u64,
    /// Why that is not its time, as long as no packets came that say otherwise.
    apart: Option<ReadoutError>,
    /// Whether the switch had started again at the latest poll.
    started_again: bool,
    /// The epoch that was read last, and its flows.
    read: Option<(u64, HeavyFlows)>,
    /// The share of the heaviest flow in the epoch that was read before it.
    share_before: Option<f64>,
}

impl HeavyReadout {
    /// Before the first poll of a switch whose program has these constants. Intervals end at multiples of
    /// `interval_ns`, at least 1.
    ///
    /// # Errors
    ///
    /// [`HeavyError`] if the constants are not those of PRECISION.
    pub fn new(constants: &Constants, interval_ns: u64) -> Result<Self, HeavyError> {
        let program = constants.program();
        let value = |name| constants.value(name).ok_or(HeavyError::Missing { program, name });
        let shift = u32::try_from(value("EPOCH_SHIFT")?).unwrap_or(u32::MAX);
        let epoch_shift = Some(shift).filter(|shift| *shift <= MAX_EPOCH_SHIFT).ok_or(SettingsError::Epoch(shift))?;
        let rows = value("ROWS")?;
        if !(1..=MAX_ROWS).contains(&rows) {
            return Err(HeavyError::Rows(rows));
        }
        let check = ProgramCheck { program, checksum: constants.checksum() };
        Ok(Self {
            polls: FramePolls::new(check, interval_ns),
            rows: rows as usize,
            epoch_shift,
            latest: 0,
            switch_ns: 0,
            apart: None,
            started_again: false,
            read: None,
            share_before: None,
        })
    }

    /// The program that it reads.
    #[must_use]
    pub const fn program(&self) -> &'static str {
        self.polls.program.program
    }

    /// Rows of a stage in an epoch.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Length of an epoch in nanoseconds.
    #[must_use]
    pub const fn epoch_ns(&self) -> u64 {
        1 << self.epoch_shift
    }

    /// Whether the switch had started again at the latest poll, as its epochs had gone back. Until it has been polled
    /// for the first time, nobody knows.
    #[must_use]
    pub const fn has_started_again(&self) -> bool {
        self.started_again
    }

    /// Takes what was read at `now_ns`: the switch's own time, `switch_ns`, first, then the entries, then the frames.
    /// `None`: this is the first poll, or the first one after the switch has started again.
    ///
    /// # Errors
    ///
    /// [`ReadoutError`] if the switch runs something else: the next poll begins anew. Or if its packets did not come
    /// when its time is said to have been, by more than an epoch and what a poll takes: by such a time another epoch
    /// would be read, or none. That holds until packets come that agree with it.
    pub fn read(
        &mut self,
        frames: &FrameBlock,
        block: &HeavyBlock,
        now_ns: u64,
        switch_ns: u64,
    ) -> Result<Option<SwitchHeavyFlows>, ReadoutError> {
        let (latest, before_ns) = (self.latest, self.switch_ns);
        self.latest = block.epochs[0].max(block.epochs[1]);
        (self.switch_ns, self.started_again) = (switch_ns, false);
        let (is_first, went_back) = (self.polls.latest.is_none(), latest > self.latest);
        let Some(frames) = self.polls.take(frames, now_ns, went_back)? else {
            (self.read, self.share_before, self.apart) = (None, None, None);
            self.started_again = went_back && !is_first;
            return Ok(None);
        };
        if self.latest > latest {
            let (taken, epoch_ns) = (TakenTimes { before_ns, now_ns: switch_ns }, self.epoch_ns());
            self.apart = taken.check(self.latest.saturating_mul(epoch_ns), epoch_ns, epoch_ns).err();
        }
        if let Some(apart) = &self.apart {
            (self.read, self.share_before) = (None, None);
            return Err(apart.clone());
        }
        let Some(epoch) = (switch_ns >> self.epoch_shift).checked_sub(1) else {
            return Ok(Some(SwitchHeavyFlows { frames, flows: None, overrun: 0 }));
        };
        let there = block.epochs[(epoch & 1) as usize];
        if there > epoch {
            // The next but one began meanwhile. What was read at the poll before was at rest then.
            let flows = self.read.filter(|(read, _)| *read == epoch).map(|(_, flows)| flows);
            return Ok(Some(SwitchHeavyFlows { frames, flows, overrun: flows.is_none().into() }));
        }
        // Of an epoch without packets, the set is still that of an earlier one.
        let flows = if there == epoch { HeavyFlows::of(block, epoch) } else { HeavyFlows::default() };
        Ok(Some(SwitchHeavyFlows { frames, flows: Some(self.lasting(epoch, flows)), overrun: 0 }))
    }

    /// With the larger one of the shares of this epoch and of the one that was read before. An epoch that is read once
    /// more is compared with the same one.
    fn lasting(&mut self, epoch: u64, flows: HeavyFlows) -> HeavyFlows {
        if let Some((_, before)) = self.read.filter(|(read, _)| *read != epoch) {
            self.share_before = before.share();
        }
        let lasting_share = flows.share().map(|share| share.max(self.share_before.unwrap_or(share)));
        let flows = HeavyFlows { lasting_share, ..flows };
        self.read = Some((epoch, flows));
        flows
    }
}

#[cfg(test)]
mod tests {
    use synopses::digest::{Digest, DigestKey};
    use synopses::rap::{Admission, EpochPrecision, EpochSettings, HeavyHitter, HeavyHitters as _, WaySettings};

    use super::super::BACK;
    use super::*;
    use crate::switch::programs;
    use crate::switch::registers::HeavyEntry;

    const SECOND: u64 = 1_000_000_000;
    const SHIFT: u32 = 30;
    const EMPTY: HeavyHitter = HeavyHitter { digest: Digest(0), count: 0, since: 0 };

    fn settings() -> EpochSettings {
        let table = WaySettings { ways: 2, rows: 64, admission: Admission::PowerOfTwo, seed: 3 };
        EpochSettings { table, epoch_shift: SHIFT }
    }

    fn constants() -> Constants {
        programs::precision(settings(), &DigestKey::new(7)).expect("possible")
    }

    /// A switch whose tables are the library's.
    struct Tabled {
        tables: EpochPrecision,
        frames: FrameBlock,
    }

    impl Tabled {
        fn new() -> Self {
            let frames = FrameBlock { checksum: constants().checksum(), ..FrameBlock::default() };
            Self { tables: EpochPrecision::new(settings()).expect("possible"), frames }
        }

        /// So many packets of a flow in an epoch.
        fn send(&mut self, epoch: u64, flow: u64, packets: u32) {
            for _ in 0..packets {
                self.tables.insert(Digest(flow.wrapping_mul(0x9e37_79b9_7f4a_7c15)), (epoch << SHIFT) + 5);
            }
            self.frames.frames += packets;
        }

        /// Entries of other epochs lie about.
        fn block(&self) -> HeavyBlock {
            let tables = self.tables.tables();
            let old = HeavyEntry { epoch: 77, flow: tables[0].1.top(1).pop().unwrap_or(EMPTY) };
            let entries = tables.map(|(epoch, table)| {
                let entries = table.entries().map(|flow| HeavyEntry { epoch: epoch as u32, flow });
                entries.chain([old]).collect()
            });
            let inserted = tables.map(|(_, table)| table.tally().inserted as u32);
            HeavyBlock { epochs: tables.map(|(epoch, _)| epoch), inserted, entries }
        }

        /// Reads it in an epoch, of both clocks.
        fn poll(&self, readout: &mut HeavyReadout, epoch: u64) -> Result<Option<SwitchHeavyFlows>, ReadoutError> {
            let switch_ns = (epoch << SHIFT) + 1_000;
            readout.read(&self.frames, &self.block(), switch_ns, switch_ns)
        }

        /// Likewise, where it is no first poll.
        fn flows(&self, readout: &mut HeavyReadout, epoch: u64) -> HeavyFlows {
            let flows = self.poll(readout, epoch).expect("its own constants").expect("an interval").flows;
            flows.expect("an epoch that is over")
        }
    }

    fn readout() -> HeavyReadout {
        HeavyReadout::new(&constants(), SECOND).expect("constants of PRECISION")
    }

    #[test]
    fn heavy_flows_are_those_of_the_latest_epoch_that_is_over() {
        let (mut readout, mut switch) = (readout(), Tabled::new());
        assert_eq!((readout.program(), readout.rows()), ("precision", 64));
        assert_eq!(switch.poll(&mut readout, 5), Ok(None));
        switch.send(5, 1, 600);
        switch.send(5, 2, 390);
        switch.send(5, 3, 10);
        (10..30).for_each(|flow| switch.send(5, flow, 1));
        switch.send(6, 4, 900);

        let flows = switch.flows(&mut readout, 6);
        let share = 600.0 / 1_020.0;
        let expected = HeavyFlows { packets: 1_020, heaviest: 600, lasting_share: Some(share), heavy: Some(2) };
        assert_eq!(flows, expected, "a hundredth are eleven packets");
        // Once more, and then the next one, of which fewer are there than are needed to count heavy ones.
        assert_eq!(switch.flows(&mut readout, 6), expected);
        let next = switch.flows(&mut readout, 7);
        assert_eq!((next.packets, next.heaviest, next.lasting_share, next.heavy), (900, 900, Some(1.0), None));
    }

    #[test]
    fn a_share_that_falls_lasts_for_an_epoch_more() {
        let (mut readout, mut switch) = (readout(), Tabled::new());
        assert_eq!(switch.poll(&mut readout, 5), Ok(None));
        for (epoch, heaviest, lasting) in [(5, 80, 0.8), (6, 40, 0.8), (7, 40, 0.4), (8, 60, 0.6)] {
            switch.send(epoch, 1, heaviest);
            (10..110 - u64::from(heaviest)).for_each(|flow| switch.send(epoch, flow, 1));

            for _ in 0..2 {
                assert_eq!(switch.flows(&mut readout, epoch + 1).lasting_share, Some(lasting), "epoch {epoch}");
            }
        }
    }

    #[test]
    fn an_epoch_without_packets_has_no_share_and_one_that_is_gone_is_an_overrun() {
        let (mut readout, mut switch) = (readout(), Tabled::new());
        assert_eq!(switch.poll(&mut readout, 5), Ok(None));
        switch.send(5, 1, 100);

        assert_eq!(switch.flows(&mut readout, 8), HeavyFlows::default());
        switch.send(10, 1, 100);
        let late = switch.poll(&mut readout, 9).expect("its own constants").expect("an interval");
        assert_eq!((late.flows, late.overrun), (None, 1), "epoch 8 has made room for epoch 10");
        // Before the end of the first epoch.
        let early = switch.poll(&mut readout, 0).expect("its own constants").expect("an interval");
        assert_eq!((early.flows, early.overrun), (None, 0));
    }

    #[test]
    fn a_switch_that_started_again_begins_anew() {
        let (mut readout, mut switch) = (readout(), Tabled::new());
        switch.send(5, 1, 100);
        assert_eq!(switch.poll(&mut readout, 6), Ok(None));

        // It has counted further than before already, but its epochs began anew.
        let mut other = Tabled::new();
        other.send(0, 1, 200);
        assert!(!readout.has_started_again(), "nobody knows");
        assert_eq!(other.poll(&mut readout, 1), Ok(None));
        assert!(readout.has_started_again());
        assert_eq!(other.flows(&mut readout, 1).heaviest, 200);
        assert!(!readout.has_started_again());

        // Frames alone: an outage of so many.
        other.frames.frames = other.frames.frames.wrapping_add(BACK);
        assert_eq!(other.poll(&mut readout, 1), Ok(None));
        assert!(!readout.has_started_again());
    }

    #[test]
    fn an_epoch_that_was_read_already_is_given_again_if_the_next_but_one_begins_meanwhile() {
        let (mut readout, mut switch) = (readout(), Tabled::new());
        assert_eq!(switch.poll(&mut readout, 5), Ok(None));
        switch.send(5, 1, 80);
        (10..30).for_each(|flow| switch.send(5, flow, 1));
        switch.send(6, 1, 100);
        let before = switch.flows(&mut readout, 6);
        assert_eq!((before.packets, before.lasting_share), (100, Some(0.8)));

        // The time was asked for at the end of epoch 6, and the registers were read when epoch 7 had begun.
        switch.send(7, 1, 10);
        let again = switch.poll(&mut readout, 6).expect("its own constants").expect("an interval");
        assert_eq!((again.flows, again.overrun, again.frames.packets), (Some(before), 0, 10));
        assert_eq!(switch.flows(&mut readout, 7).lasting_share, Some(1.0));
    }

    #[test]
    fn a_time_that_is_not_the_switchs_is_refused_until_packets_agree_with_it() {
        let (mut readout, mut switch) = (readout(), Tabled::new());
        switch.send(5, 1, 100);
        assert_eq!(switch.poll(&mut readout, 1_000), Ok(None), "nobody knows yet");

        switch.send(6, 1, 100);
        let refused = switch.poll(&mut readout, 1_001).expect_err("no packet came then");
        assert!(matches!(refused, ReadoutError::Time { latest_ns, .. } if latest_ns == 6 << SHIFT), "{refused}");
        assert!(switch.poll(&mut readout, 1_002).is_err(), "nothing has come that says otherwise");

        // Its own time again. Then one that is behind.
        switch.send(7, 1, 100);
        assert!(switch.poll(&mut readout, 8).is_err(), "not since the poll before");
        switch.send(8, 1, 100);
        assert_eq!(switch.flows(&mut readout, 9).heaviest, 100);
        switch.send(9, 1, 100);
        assert!(matches!(switch.poll(&mut readout, 2), Err(ReadoutError::Time { .. })));
    }

    #[test]
    fn constants_of_another_program_and_sizes_that_are_not_read_are_refused() {
        let error = |constants: &Constants| HeavyReadout::new(constants, SECOND).expect_err("refused").to_string();
        let of = |shift, rows| {
            let mut other = Constants::new("precision");
            other.text_macro("EPOCH_SHIFT", shift);
            other.number("ROWS", 32, rows);
            error(&other)
        };

        assert_eq!(of(41, 64), "an epoch of 2^41 ns, at most 2^40 is possible");
        assert_eq!(of(30, 4097), "4097 rows of a stage, 1 to 4096 are read of a switch");
        assert_eq!(of(30, 0), "0 rows of a stage, 1 to 4096 are read of a switch");
        let fridge = programs::fridge(synopses::fridge::Settings::default(), &DigestKey::new(7)).expect("a fridge");
        assert_eq!(error(&fridge), "fridge has no constant EPOCH_SHIFT");
    }
}
