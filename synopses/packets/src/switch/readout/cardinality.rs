//! From the registers of ST-HLL to distinct flows. The window is the switch's own, up to its time at the poll, whatever
//! was read before: a poll that is lost costs nothing of the next ones.

use synopses::cardinality::{Cardinality as _, Hash, Settings, SettingsError, StHll, StHllSettings, Tally};
use thiserror::Error;

use super::{FrameInterval, FramePolls, ProgramCheck, ReadoutError, TakenTimes};
use crate::flows::LastingCount;
use crate::switch::Constants;
use crate::switch::registers::{CardinalityBlock, FrameBlock};

/// The fewest and the most bits of a register's number: above that, none are left for laps of 32 bits of slots.
const REGISTER_BITS: [u64; 2] = [6, 16];
/// The most bits of a slot in nanoseconds.
const MAX_SLOT_SHIFT: u64 = 32;

/// Why constants describe no ST-HLL.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum CardinalityError {
    /// A constant that ST-HLL needs is missing.
    #[error("{program} has no constant {name}")]
    Missing {
        /// The program of the constants.
        program: &'static str,
        /// The constant's name.
        name: &'static str,
    },
    /// More or fewer bits than a program can have.
    #[error("{name} is {found}, {least} to {most} are possible in a switch")]
    Bits {
        /// The constant's name.
        name: &'static str,
        /// The value that it has.
        found: u64,
        /// The least that is possible.
        least: u64,
        /// The most that is possible.
        most: u64,
    },
    /// The library refuses the settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

/// Distinct flows of a switch at the end of one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CardinalityInterval {
    /// Frames since the poll before.
    pub frames: FrameInterval,
    /// Distinct flows of the window; `None` before the switch has run for twice as long, as the registers then have
    /// other ages than the estimate takes them to have.
    pub flows: Option<f64>,
    /// The same in which it does not show that all clients change their addresses at once, as on a host
    /// ([`LastingInterval`](crate::flows::LastingInterval)).
    pub lasting: Option<f64>,
}

/// Makes counts of distinct flows of the registers of ST-HLL.
#[derive(Debug)]
pub struct CardinalityReadout {
    polls: FramePolls,
    settings: StHllSettings,
    window_ns: u64,
    lasting: LastingCount,
    /// The slot at the latest poll, and what was taken for the switch's time then.
    slot: u64,
    switch_ns: u64,
    /// Why that is not its time, as long as no packets came that say otherwise.
    apart: Option<ReadoutError>,
    /// Whether the switch had started again at the latest poll.
    started_again: bool,
}

impl CardinalityReadout {
    /// Before the first poll of a switch whose program has these constants. Intervals end at multiples of
    /// `interval_ns`, at least 1.
    ///
    /// # Errors
    ///
    /// [`CardinalityError`] if the constants are not those of ST-HLL.
    pub fn new(constants: &Constants, interval_ns: u64) -> Result<Self, CardinalityError> {
        let program = constants.program();
        let bits = |name, [least, most]: [u64; 2]| {
            let found = constants.value(name).ok_or(CardinalityError::Missing { program, name })?;
            let is_possible = (least..=most).contains(&found);
            if is_possible { Ok(found) } else { Err(CardinalityError::Bits { name, found, least, most }) }
        };
        let registers = 1_usize << bits("REGISTER_BITS", REGISTER_BITS)?;
        let slot_ns = 1_u64 << bits("SLOT_SHIFT", [0, MAX_SLOT_SHIFT])?;
        let window_ns = slot_ns * (registers as u64 / 2);
        // Registers are made already, so that the seed of the hash does not matter. A switch's time begins with it.
        let common = Settings { registers, window_ns, start_ns: 0, hash: Hash::Seeded(0) };
        let settings = StHllSettings::plus(common);
        StHll::new(settings)?;
        let check = ProgramCheck { program, checksum: constants.checksum() };
        Ok(Self {
            polls: FramePolls::new(check, interval_ns),
            settings,
            window_ns,
            // Registers are up to twice as old as the window.
            lasting: LastingCount::new(2 * window_ns),
            slot: 0,
            switch_ns: 0,
            apart: None,
            started_again: false,
        })
    }

    /// The program that it reads.
    #[must_use]
    pub const fn program(&self) -> &'static str {
        self.polls.program.program
    }

    /// Registers of the program.
    #[must_use]
    pub const fn registers(&self) -> usize {
        self.settings.common.registers
    }

    /// The window of the program in nanoseconds.
    #[must_use]
    pub const fn window_ns(&self) -> u64 {
        self.window_ns
    }

    /// Whether the switch had started again at the latest poll, as its time had gone back. Until it has been polled for
    /// the first time, nobody knows. That its count of frames alone has gone back says less: so it has after an outage
    /// of more than 2^31 frames.
    #[must_use]
    pub const fn has_started_again(&self) -> bool {
        self.started_again
    }

    /// Takes what was read at `now_ns`, when the switch's own time was `switch_ns`: the sketch first, then the frames.
    /// `None`: this is the first poll, or the first one after the switch has started again.
    ///
    /// # Errors
    ///
    /// [`ReadoutError`] if the switch runs something else, or has registers that no program has; or if its packets did
    /// not come when its time is said to have been, by more than a window and what a poll takes. By such a time flows
    /// would be too few, or would never fade. That holds until packets come that agree with it.
    pub fn read(
        &mut self,
        frames: &FrameBlock,
        block: &CardinalityBlock,
        now_ns: u64,
        switch_ns: u64,
    ) -> Result<Option<CardinalityInterval>, ReadoutError> {
        let (slot, before_ns) = (self.slot, self.switch_ns);
        (self.slot, self.switch_ns, self.started_again) = (block.slot, switch_ns, false);
        let is_first = self.polls.latest.is_none();
        let went_back = slot > block.slot;
        let Some(frames) = self.polls.take(frames, now_ns, went_back)? else {
            self.lasting.reset();
            (self.apart, self.started_again) = (None, went_back && !is_first);
            return Ok(None);
        };
        if block.slot > slot {
            self.apart = self.check_time(before_ns).err();
        }
        if let Some(apart) = &self.apart {
            self.lasting.reset();
            return Err(apart.clone());
        }
        let synopsis = self.synopsis(block)?;
        // The window is the synopsis' own, so that it always answers.
        let estimate = synopsis.estimate(switch_ns, self.window_ns).ok();
        let flows = estimate.filter(|estimate| estimate.warm).map(|estimate| estimate.count);
        let lasting = flows.map(|flows| self.lasting.end_interval(switch_ns, flows));
        Ok(Some(CardinalityInterval { frames, flows, lasting }))
    }

    /// Refuses what is taken for the switch's time if the latest packet, which came since the poll before, came more
    /// than a window before that by it, or is still to come.
    fn check_time(&self, before_ns: u64) -> Result<(), ReadoutError> {
        let slot_ns = 2 * self.window_ns / self.registers() as u64;
        let taken = TakenTimes { before_ns, now_ns: self.switch_ns };
        taken.check(self.slot.saturating_mul(slot_ns), slot_ns, self.window_ns)
    }

    /// The library's type with the registers of a switch.
    ///
    /// # Errors
    ///
    /// [`ReadoutError::Registers`] if no program has such registers.
    fn synopsis(&self, block: &CardinalityBlock) -> Result<StHll, ReadoutError> {
        let mask = self.registers() as u32 - 1;
        let rank = |(register, word): (u32, &u32)| {
            let lap = (block.slot as u32).wrapping_sub(register) & !mask;
            // Of another lap: the register was reset since. What is too large for a byte is no rank either.
            if word & !mask == lap { u8::try_from(word & mask).unwrap_or(u8::MAX) } else { 0 }
        };
        let ranks: Vec<u8> = (0..).zip(&block.laps_and_ranks).map(rank).collect();
        let [inserted, late, dropped] = [block.inserted, block.late, block.dropped].map(u64::from);
        let tally = Tally { inserted, late, dropped, overdue: 0 };
        Ok(StHll::of_ranks(self.settings, tally, block.slot, &ranks)?)
    }
}

#[cfg(test)]
mod tests {
    use synopses::digest::{Digest, DigestKey};

    use super::super::BACK;
    use super::*;
    use crate::switch::programs;

    const SECOND: u64 = 1_000_000_000;
    /// Registers of the sketch, and bits of its slot: a window of 0.54 s.
    const REGISTERS: usize = 256;
    const SLOT_SHIFT: u32 = 22;
    const WINDOW: u64 = (REGISTERS as u64 / 2) << SLOT_SHIFT;

    fn settings() -> StHllSettings {
        let common = Settings { registers: REGISTERS, window_ns: WINDOW, start_ns: 0, hash: Hash::Seeded(3) };
        StHllSettings::plus(common)
    }

    fn constants() -> Constants {
        programs::st_hll(settings(), &DigestKey::new(7)).expect("possible")
    }

    /// A switch whose sketch is the library's.
    struct Sketched {
        synopsis: StHll,
        frames: FrameBlock,
    }

    impl Sketched {
        fn new() -> Self {
            let frames = FrameBlock { checksum: constants().checksum(), frames: 10, ..FrameBlock::default() };
            Self { synopsis: StHll::new(settings()).expect("possible"), frames }
        }

        /// So many flows from number `first` on send a packet each, in each hundredth of this half of a second.
        fn half(&mut self, half: u64, first: u64, flows: u64) {
            for part in 0..50 {
                for flow in first..first + flows {
                    let digest = Digest(flow.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                    self.synopsis.insert(digest, half * SECOND / 2 + part * SECOND / 100);
                    self.frames.frames = self.frames.frames.wrapping_add(1);
                }
            }
        }

        fn block(&self) -> CardinalityBlock {
            let (slot, mask) = (self.synopsis.slot(), REGISTERS as u32 - 1);
            let word = |(register, rank): (u32, &u8)| ((slot as u32).wrapping_sub(register) & !mask) | u32::from(*rank);
            let laps_and_ranks = (0..).zip(self.synopsis.ranks()).map(word).collect();
            let tally = self.synopsis.tally();
            let (late, dropped) = (tally.late as u32, tally.dropped as u32);
            CardinalityBlock { laps_and_ranks, slot, inserted: tally.inserted as u32, late, dropped }
        }

        /// Reads it at this time of both clocks.
        fn poll(
            &self,
            readout: &mut CardinalityReadout,
            at_ns: u64,
        ) -> Result<Option<CardinalityInterval>, ReadoutError> {
            readout.read(&self.frames, &self.block(), at_ns, at_ns)
        }

        /// Likewise, where it is no first poll.
        fn interval(&self, readout: &mut CardinalityReadout, at_ns: u64) -> CardinalityInterval {
            self.poll(readout, at_ns).expect("its own constants").expect("an interval")
        }
    }

    fn readout() -> CardinalityReadout {
        CardinalityReadout::new(&constants(), SECOND).expect("constants of ST-HLL")
    }

    #[test]
    fn flows_are_those_of_the_library_and_fade_when_none_come() {
        let (mut readout, mut switch) = (readout(), Sketched::new());
        assert_eq!((readout.window_ns(), readout.registers()), (WINDOW, REGISTERS));
        assert_eq!(switch.poll(&mut readout, SECOND), Ok(None));
        (2..8).for_each(|half| switch.half(half, 0, 100));

        let interval = switch.interval(&mut readout, 4 * SECOND);
        let expected = switch.synopsis.estimate(4 * SECOND, WINDOW).expect("its window").count;
        assert_eq!((interval.flows, interval.lasting), (Some(expected), Some(expected)));
        assert!((expected / 100.0 - 1.0).abs() < 0.3, "{expected}");
        let frames = FrameInterval { packets: 30_000, refused: 0, lost_polls: 2 };
        assert_eq!(interval.frames, frames);

        let silent = switch.interval(&mut readout, 7 * SECOND);
        assert_eq!((silent.flows, silent.lasting, silent.frames.packets), (Some(0.0), Some(0.0), 0));
    }

    #[test]
    fn nothing_is_said_before_the_switch_has_run_for_two_windows() {
        let (mut readout, mut switch) = (readout(), Sketched::new());
        assert_eq!(switch.poll(&mut readout, 0), Ok(None));
        (0..2).for_each(|half| switch.half(half, 0, 100));

        let early = switch.interval(&mut readout, 2 * WINDOW - 1);
        assert_eq!((early.flows, early.lasting, early.frames.packets), (None, None, 10_000));
        assert!(switch.interval(&mut readout, 2 * WINDOW).flows.is_some());
    }

    #[test]
    fn that_all_clients_change_their_addresses_is_left_out_while_both_are_in_registers() {
        let (mut readout, mut switch) = (readout(), Sketched::new());
        assert_eq!(switch.poll(&mut readout, SECOND), Ok(None));
        (2..8).for_each(|half| switch.half(half, 0, 100));
        let before = switch.interval(&mut readout, 4 * SECOND);

        switch.half(8, 1_000, 100);
        let during = switch.interval(&mut readout, 4 * SECOND + SECOND / 2);

        assert!(during.flows > before.flows.map(|flows| 1.2 * flows), "{before:?}, {during:?}");
        assert_eq!(during.lasting, before.flows);
    }

    #[test]
    fn a_switch_that_started_again_begins_anew() {
        let (mut readout, mut switch) = (readout(), Sketched::new());
        (2..8).for_each(|half| switch.half(half, 0, 100));
        assert_eq!(switch.poll(&mut readout, 4 * SECOND), Ok(None));

        // It has counted further than before already, but its time began anew.
        let mut other = Sketched::new();
        other.frames.frames = switch.frames.frames;
        other.half(0, 0, 10);
        assert_eq!(other.poll(&mut readout, 5 * SECOND), Ok(None));
        // And before its first frame.
        let empty = Sketched { frames: FrameBlock::default(), ..Sketched::new() };
        assert_eq!(empty.poll(&mut readout, 6 * SECOND), Ok(None));
        assert!(readout.has_started_again());
        (12..14).for_each(|half| switch.half(half, 0, 100));
        assert_eq!(switch.interval(&mut readout, 7 * SECOND).frames.lost_polls, 0);
        assert!(!readout.has_started_again());
    }

    #[test]
    fn frames_that_went_back_alone_begin_anew_and_do_not_say_that_the_switch_started_again() {
        let (mut readout, mut switch) = (readout(), Sketched::new());
        (2..8).for_each(|half| switch.half(half, 0, 100));
        assert_eq!(switch.poll(&mut readout, 4 * SECOND), Ok(None));

        // An outage of so many frames.
        switch.frames.frames = switch.frames.frames.wrapping_add(BACK);
        (8..10).for_each(|half| switch.half(half, 0, 100));
        assert_eq!(switch.poll(&mut readout, 5 * SECOND), Ok(None));
        assert!(!readout.has_started_again());

        (10..12).for_each(|half| switch.half(half, 0, 100));
        assert!(switch.interval(&mut readout, 6 * SECOND).flows.is_some());
    }

    #[test]
    fn a_time_that_is_not_the_switchs_is_refused_until_packets_agree_with_it() {
        let (mut readout, mut switch) = (readout(), Sketched::new());
        let poll = |readout: &mut CardinalityReadout, switch: &Sketched, now: u64, switch_ns: u64| {
            readout.read(&switch.frames, &switch.block(), now * SECOND, switch_ns)
        };
        (2..4).for_each(|half| switch.half(half, 0, 100));
        let hour = 3_600 * SECOND;
        assert_eq!(poll(&mut readout, &switch, 2, 2 * SECOND + hour), Ok(None), "nobody knows yet");
        assert!(!readout.has_started_again());

        // An hour ahead: every flow would be gone.
        (4..6).for_each(|half| switch.half(half, 0, 100));
        let refused = poll(&mut readout, &switch, 3, 3 * SECOND + hour).expect_err("no packet came then").to_string();
        assert!(refused.starts_with("packets came since the poll before, the latest at 29"), "{refused}");
        let expected = format!("{} ns at that poll and {} ns at this one", 2 * SECOND + hour, 3 * SECOND + hour);
        assert!(refused.ends_with(&expected), "{refused}");
        // Also without packets, of which the window has some.
        assert!(poll(&mut readout, &switch, 4, 4 * SECOND + hour).is_err());

        // Its own time again. Then one that is behind: flows would never fade.
        (8..10).for_each(|half| switch.half(half, 0, 100));
        assert!(poll(&mut readout, &switch, 5, 5 * SECOND).is_err(), "not since the poll before");
        (10..12).for_each(|half| switch.half(half, 0, 100));
        let interval = poll(&mut readout, &switch, 6, 6 * SECOND).expect("its time").expect("an interval");
        assert!(interval.flows.is_some_and(|flows| (flows / 100.0 - 1.0).abs() < 0.3), "{interval:?}");
        (12..14).for_each(|half| switch.half(half, 0, 100));
        assert!(matches!(poll(&mut readout, &switch, 7, 2 * SECOND), Err(ReadoutError::Time { .. })));
    }

    #[test]
    fn ranks_of_another_lap_are_empty_and_impossible_ones_are_refused() {
        let (mut readout, switch) = (readout(), Sketched::new());
        let mut block = CardinalityBlock { slot: 1_000, ..switch.block() };
        block.laps_and_ranks = (0..REGISTERS as u32).map(|register| ((1_000 - register) & !255) | 5).collect();
        let of = |readout: &CardinalityReadout, block: &CardinalityBlock| {
            readout
                .synopsis(block)
                .map(|synopsis| synopsis.ranks().iter().map(|rank| usize::from(*rank == 5)).sum::<usize>())
        };

        assert_eq!(of(&readout, &block), Ok(REGISTERS));
        // Another slot: one register was reset. Another lap: all were.
        assert_eq!(of(&readout, &CardinalityBlock { slot: 1_001, ..block.clone() }), Ok(REGISTERS - 1));
        assert_eq!(of(&readout, &CardinalityBlock { slot: 1_256, ..block.clone() }), Ok(0));
        block.laps_and_ranks[7] |= 255;
        let first = readout.read(&switch.frames, &block, SECOND, SECOND);
        assert_eq!(first, Ok(None), "it looks at frames only");
        let refused = readout.read(&switch.frames, &block, 2 * SECOND, 2 * SECOND);
        assert!(matches!(refused, Err(ReadoutError::Registers(_))), "{refused:?}");
    }

    #[test]
    fn another_program_is_refused_with_what_may_be_wrong() {
        let (mut readout, switch) = (readout(), Sketched::new());
        let other = FrameBlock { checksum: 7, ..switch.frames };

        let refused = readout.read(&other, &switch.block(), SECOND, SECOND).expect_err("another program").to_string();

        assert!(refused.ends_with("or keys that were set in the switch without their CHECKSUM"), "{refused}");
        assert!(refused.contains("0x7, st-hll with the agent's constants has 0x"), "{refused}");
    }

    #[test]
    fn constants_of_other_programs_are_no_st_hll() {
        let fridge = programs::fridge(synopses::fridge::Settings::default(), &DigestKey::new(7)).expect("a fridge");
        let error = CardinalityReadout::new(&fridge, SECOND).expect_err("no sketch").to_string();
        assert_eq!(error, "fridge has no constant REGISTER_BITS");

        let mut wide = Constants::new("st-hll");
        wide.text_macro("REGISTER_BITS", 17);
        let error = CardinalityReadout::new(&wide, SECOND).expect_err("too wide").to_string();
        assert_eq!(error, "REGISTER_BITS is 17, 6 to 16 are possible in a switch");
    }
}
