//! From the registers of a fridge, or of several ones, to the intervals of the host's own path. An interval is from
//! poll to poll: a poll that is lost makes the next interval longer.

use synopses::fridge::{FridgeSpec, FridgesWeighing, Histogram, HistogramShape, Sample, Settings, Tally, Weighing};
use thiserror::Error;

use super::{BACK, ProgramCheck, ReadoutError, RefusedFrames};
use crate::delays::{DelaysError, Interval};
use crate::switch::programs::MAX_FRIDGES;
use crate::switch::registers::{FrameBlock, FridgeBlock, FridgeCounts, RING};
use crate::switch::{Constants, MAX_ENTRIES};

/// Coins of a fridge are below this.
const ALWAYS: f64 = (1_u64 << 32) as f64;
/// The fewest fridges of a program of several.
const MIN_FRIDGES: usize = 2;
/// Slots of each of several fridges, and the upper end of its interval of coins.
static PARTS: [[&str; 2]; MAX_FRIDGES] =
    [["SLOTS_0", "BELOW_0"], ["SLOTS_1", "BELOW_1"], ["SLOTS_2", "BELOW_2"], ["SLOTS_3", "BELOW_3"]];

/// Why constants describe no fridge.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum FridgeError {
    /// A constant that a fridge needs is missing.
    #[error("{program} has no constant {name}")]
    Missing {
        /// The program of the constants.
        program: &'static str,
        /// The constant's name.
        name: &'static str,
    },
    /// More slots than a switch can have.
    #[error("{0} slots, at most {MAX_ENTRIES} are possible in a switch")]
    Slots(u64),
    /// Fewer or more fridges than a program has.
    #[error("{0} fridges, {MIN_FRIDGES} to {MAX_FRIDGES} are possible in a switch")]
    Fridges(u64),
    /// The library refuses the settings.
    #[error(transparent)]
    Delays(#[from] DelaysError),
}

/// What a poll gave.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "an interval that is not written is lost"]
pub enum Reading {
    /// The first poll, or the first one after the switch has started again. The next interval begins.
    Begun,
    /// An interval has ended.
    Interval(Box<SwitchInterval>),
}

/// An interval of a switch.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchInterval {
    /// What the host's own path says of an interval.
    pub delays: Interval,
    /// Frames that could not be parsed, although they should.
    pub refused: u64,
    /// Samples that were overwritten before they were read. The figures of such an interval are of the latest ones.
    pub overrun: u64,
    /// Ends of intervals at which nothing was read: the interval is so many intervals longer.
    pub lost_polls: u64,
}

/// Counters at the latest poll.
#[derive(Clone, Copy, Debug)]
struct Poll {
    frames: FrameBlock,
    counts: FridgeCounts,
    now_ns: u64,
}

/// How samples are weighted.
#[derive(Clone, Debug)]
enum SampleWeighing {
    /// By the chance in the only fridge.
    Single(Weighing),
    /// By the chance in any of several fridges.
    Several(FridgesWeighing),
}

impl SampleWeighing {
    fn sample(&self, ticks: u32, insertions: u32, tally: &mut Tally) -> Sample {
        match self {
            Self::Single(weighing) => {
                let report = weighing.report(ticks, insertions, tally);
                Sample { delay_ns: report.delay_ns, weight: report.weight() }
            }
            Self::Several(weighing) => weighing.sample(ticks, insertions, tally),
        }
    }
}

/// The constants of a program with one fridge or several.
#[derive(Clone, Copy, Debug)]
struct FridgeConstants<'a>(&'a Constants);

impl FridgeConstants<'_> {
    fn value(self, name: &'static str) -> Result<u64, FridgeError> {
        self.0.value(name).ok_or(FridgeError::Missing { program: self.0.program(), name })
    }

    fn slots(self, name: &'static str) -> Result<usize, FridgeError> {
        let slots = self.value(name)?;
        usize::try_from(slots).ok().filter(|slots| *slots <= MAX_ENTRIES).ok_or(FridgeError::Slots(slots))
    }

    fn tick_shift(self) -> Result<u32, FridgeError> {
        Ok(u32::try_from(self.value("TICK_SHIFT")?).unwrap_or(u32::MAX))
    }

    /// How samples are weighted, and the probability with which a request enters.
    fn weighing(self) -> Result<(SampleWeighing, f64), FridgeError> {
        if let Some(count) = self.0.value("FRIDGES") {
            let weighing = FridgesWeighing::new(self.fridges(count)?, self.tick_shift()?).map_err(DelaysError::from)?;
            let probability = weighing.probability();
            return Ok((SampleWeighing::Several(weighing), probability));
        }
        let settings = Settings {
            slots: self.slots("SLOTS")?,
            probability: self.value("THRESHOLD")? as f64 / ALWAYS,
            tick_shift: self.tick_shift()?,
            ..Settings::default()
        };
        let weighing = Weighing::new(settings).map_err(DelaysError::from)?;
        Ok((SampleWeighing::Single(weighing), settings.probability))
    }

    fn fridges(self, count: u64) -> Result<Vec<FridgeSpec>, FridgeError> {
        let possible = usize::try_from(count).ok().filter(|count| (MIN_FRIDGES..=MAX_FRIDGES).contains(count));
        let parts = possible.and_then(|count| PARTS.get(..count));
        let (mut fridges, mut from) = (Vec::new(), 0);
        for &[slots, below] in parts.ok_or(FridgeError::Fridges(count))? {
            let (slots, below) = (self.slots(slots)?, self.value(below)?);
            // An end before that of the fridge before gives 0, which is no probability.
            fridges.push(FridgeSpec { slots, probability: below.saturating_sub(from) as f64 / ALWAYS });
            from = below;
        }
        Ok(fridges)
    }
}

/// Makes intervals of a fridge's registers, or of those of several. It has a histogram of 4 KiB, whatever the switch
/// has.
#[derive(Clone, Debug)]
pub struct FridgeReadout {
    program: ProgramCheck,
    probability: f64,
    interval_ns: u64,
    weighing: SampleWeighing,
    histogram: Histogram,
    latest: Option<Poll>,
}

impl FridgeReadout {
    /// Before the first poll of a switch whose program has these constants. Intervals end at multiples of
    /// `interval_ns`, at least 1.
    ///
    /// # Errors
    ///
    /// [`FridgeError`] if the constants are not those of a fridge or of several ones.
    pub fn new(constants: &Constants, interval_ns: u64) -> Result<Self, FridgeError> {
        let of = FridgeConstants(constants);
        let (weighing, probability) = of.weighing()?;
        let shape = HistogramShape { tick_shift: of.tick_shift()?, fineness: 3 };
        Ok(Self {
            program: ProgramCheck { program: constants.program(), checksum: constants.checksum() },
            probability,
            interval_ns: interval_ns.max(1),
            weighing,
            histogram: Histogram::new(shape).map_err(DelaysError::from)?,
            latest: None,
        })
    }

    /// The program that it reads.
    #[must_use]
    pub const fn program(&self) -> &'static str {
        self.program.program
    }

    /// Takes what was read at `now_ns`: the fridge first, then the frames.
    ///
    /// # Errors
    ///
    /// [`ReadoutError`] if the switch runs something else. The next poll begins anew.
    pub fn read(&mut self, frames: &FrameBlock, fridge: &FridgeBlock, now_ns: u64) -> Result<Reading, ReadoutError> {
        let before = self.latest.take();
        self.program.check(frames)?;
        self.latest = Some(Poll { frames: *frames, counts: fridge.counts, now_ns });
        let Some(before) = before.filter(|before| !started_again(before, frames, &fridge.counts)) else {
            return Ok(Reading::Begun);
        };
        let lost_polls = (now_ns / self.interval_ns).saturating_sub(before.now_ns / self.interval_ns).saturating_sub(1);
        let (weight_clamped, overrun) = self.take_samples(fridge, before.counts.matched);
        let tally = Tally { weight_clamped, ..since(&fridge.counts, &before.counts) };
        let refused = RefusedFrames::between(&before.frames, frames);
        let packets = u64::from(frames.frames.wrapping_sub(before.frames.frames)).saturating_sub(refused.all);
        let length_ns = now_ns.saturating_sub(before.now_ns);
        let delays = Interval::of(&self.histogram, tally, packets, length_ns, self.probability);
        let refused = refused.broken;
        Ok(Reading::Interval(Box::new(SwitchInterval { delays, refused, overrun, lost_polls })))
    }

    /// Puts the samples since number `from` into an empty histogram. Returns how many weights were clamped, and how
    /// many samples were overwritten.
    fn take_samples(&mut self, fridge: &FridgeBlock, from: u32) -> (u64, u64) {
        self.histogram.clear();
        let (mut tally, matched) = (Tally::default(), fridge.counts.matched);
        let new = matched.wrapping_sub(from);
        // While the ring was read, newer samples replaced the oldest ones.
        let places = (RING as u32).saturating_sub(fridge.written.wrapping_sub(matched));
        let kept = new.min(places);
        for age in (1..=kept).rev() {
            let place = matched.wrapping_sub(age) as usize % RING;
            self.histogram.insert(self.weighing.sample(fridge.ticks[place], fridge.insertions[place], &mut tally));
        }
        (tally.weight_clamped, u64::from(new - kept))
    }
}

/// Whether a counter went back.
fn started_again(before: &Poll, frames: &FrameBlock, counts: &FridgeCounts) -> bool {
    let back = |now: u32, before: u32| now.wrapping_sub(before) >= BACK;
    let pairs = counts.all().into_iter().zip(before.counts.all());
    back(frames.frames, before.frames.frames) || pairs.into_iter().any(|(now, before)| back(now, before))
}

/// What was counted between two polls. What a program does not count is 0.
fn since(now: &FridgeCounts, before: &FridgeCounts) -> Tally {
    let more = |now: u32, before: u32| u64::from(now.wrapping_sub(before));
    Tally {
        requests: more(now.requests, before.requests),
        admitted: more(now.insertions, before.insertions),
        duplicate_requests: more(now.duplicates, before.duplicates),
        evicted: more(now.evicted, before.evicted),
        responses: more(now.responses, before.responses),
        matched: more(now.matched, before.matched),
        unmatched: more(now.unmatched, before.unmatched),
        clock_anomaly: more(now.clock_anomaly, before.clock_anomaly),
        ..Tally::default()
    }
}

#[cfg(test)]
mod tests {
    use synopses::digest::DigestKey;
    use synopses::fridge::FridgesSettings;

    use super::*;
    use crate::packet::ParseError;
    use crate::switch::programs;

    const SECOND: u64 = 1_000_000_000;

    /// A switch whose samples all have the same delay.
    fn readout() -> (FridgeReadout, FrameBlock, FridgeBlock) {
        let settings = Settings { slots: 256, probability: 0.5, ..Settings::default() };
        let constants = programs::fridge(settings, &DigestKey::new(7)).expect("a fridge");
        let frames = FrameBlock { checksum: constants.checksum(), frames: 10, ..FrameBlock::default() };
        let counts = FridgeCounts::default();
        let fridge =
            FridgeBlock { counts, ticks: Box::new([1_000; RING]), insertions: Box::new([0; RING]), written: 0 };
        (FridgeReadout::new(&constants, SECOND).expect("constants of a fridge"), frames, fridge)
    }

    /// Adds frames with as many requests and responses.
    fn go_on(frames: &mut FrameBlock, fridge: &mut FridgeBlock, requests: u32) {
        frames.frames = frames.frames.wrapping_add(2 * requests);
        let counts = &mut fridge.counts;
        for count in [&mut counts.requests, &mut counts.insertions, &mut counts.responses, &mut counts.matched] {
            *count = count.wrapping_add(requests);
        }
        fridge.written = counts.matched;
    }

    fn interval(reading: Result<Reading, ReadoutError>) -> SwitchInterval {
        match reading {
            Ok(Reading::Interval(interval)) => *interval,
            other => panic!("no interval: {other:?}"),
        }
    }

    #[test]
    fn an_interval_is_the_difference_of_two_polls_also_when_counters_wrap() {
        let (mut readout, mut frames, mut fridge) = readout();
        frames.frames = u32::MAX - 50;
        fridge.counts.matched = u32::MAX - 20;
        fridge.counts.requests = u32::MAX - 20;
        assert_eq!(readout.read(&frames, &fridge, SECOND), Ok(Reading::Begun));

        go_on(&mut frames, &mut fridge, 100);
        frames.refusals[ParseError::CutTcp as usize] += 3;
        frames.refusals[ParseError::OtherLink as usize] += 4;
        let interval = interval(readout.read(&frames, &fridge, 2 * SECOND));

        assert_eq!((interval.delays.packets, interval.delays.tally.requests), (193, 100));
        assert_eq!((interval.refused, interval.overrun, interval.lost_polls), (3, 0, 0));
        assert_eq!((interval.delays.answered, interval.delays.length_ns), (Some(200.0), SECOND), "p is a half");
    }

    #[test]
    fn samples_that_were_overwritten_are_an_overrun() {
        let (mut readout, mut frames, mut fridge) = readout();
        assert_eq!(readout.read(&frames, &fridge, SECOND), Ok(Reading::Begun));

        go_on(&mut frames, &mut fridge, 1_024);
        // Ten more came while the ring was read.
        fridge.written += 10;
        let interval = interval(readout.read(&frames, &fridge, 2 * SECOND));

        assert_eq!((interval.overrun, interval.delays.tally.matched), (10, 1_024));
        assert_eq!(interval.delays.answered, Some(2.0 * 1_014.0));
    }

    #[test]
    fn a_lost_poll_makes_the_next_interval_longer_and_is_counted() {
        let (mut readout, mut frames, mut fridge) = readout();
        assert_eq!(readout.read(&frames, &fridge, SECOND), Ok(Reading::Begun));

        go_on(&mut frames, &mut fridge, 100);
        let interval = interval(readout.read(&frames, &fridge, 4 * SECOND));

        assert_eq!((interval.lost_polls, interval.delays.length_ns), (2, 3 * SECOND));
        assert_eq!(interval.delays.tally.requests, 100);
    }

    #[test]
    fn a_switch_that_started_again_begins_anew() {
        let (mut readout, mut frames, mut fridge) = readout();
        go_on(&mut frames, &mut fridge, 100);
        assert_eq!(readout.read(&frames, &fridge, SECOND), Ok(Reading::Begun));

        let empty = FridgeBlock { counts: FridgeCounts::default(), written: 0, ..fridge.clone() };
        assert_eq!(readout.read(&FrameBlock::default(), &empty, 2 * SECOND), Ok(Reading::Begun));
        go_on(&mut frames, &mut fridge, 0);
        assert_eq!(interval(readout.read(&frames, &fridge, 3 * SECOND)).delays.tally.requests, 100);
    }

    #[test]
    fn another_program_is_refused_with_both_checksums() {
        let (mut readout, frames, fridge) = readout();
        let other = FrameBlock { checksum: 7, ..frames };

        let refused = readout.read(&other, &fridge, SECOND).expect_err("another program").to_string();

        let expected = format!("0x7, fridge with the agent's constants has {:#x}", frames.checksum);
        assert!(refused.contains(&expected), "{refused}");
        assert_eq!(readout.read(&frames, &fridge, 2 * SECOND), Ok(Reading::Begun), "nothing of before is used");
    }

    /// Constants of two fridges.
    fn two() -> Constants {
        let part = |slots, probability| FridgeSpec { slots, probability };
        let fridges = vec![part(64, 0.75), part(32, 0.25)];
        let settings = FridgesSettings { fridges, ..FridgesSettings::default() };
        programs::fridges(&settings, &DigestKey::new(7)).expect("two fridges")
    }

    #[test]
    fn a_sample_of_several_fridges_is_weighted_by_its_chance_in_any_of_them() {
        let (_, mut frames, mut fridge) = readout();
        let constants = two();
        let mut readout = FridgeReadout::new(&constants, SECOND).expect("constants of fridges");
        frames.checksum = constants.checksum();
        assert_eq!((readout.program(), readout.read(&frames, &fridge, SECOND)), ("fridges", Ok(Reading::Begun)));

        fridge.insertions[0] = 50;
        go_on(&mut frames, &mut fridge, 2);
        let interval = interval(readout.read(&frames, &fridge, 2 * SECOND));

        // 1 − pₖ/Mₖ is 1 − 3/256 and 1 − 1/128. The other sample has survived nothing: it was in one of them for sure.
        let chance = 0.75 * (253.0_f64 / 256.0).powi(50) + 0.25 * (127.0_f64 / 128.0).powi(50);
        let answered = interval.delays.answered.expect("two samples");
        assert!((answered - 1.0 - 1.0 / chance).abs() < 1e-9, "{answered}");
        assert_eq!((interval.delays.probability, interval.delays.tally.admitted), (1.0, 2));
    }

    #[test]
    fn constants_of_fridges_that_no_program_has_are_refused() {
        let changed = |from: &str, to: &str| {
            let mut other = Constants::new("fridges");
            for line in two().text("").replace(from, to).lines() {
                let words: Vec<_> = line.split(' ').collect();
                match words[..] {
                    ["#define", name, value] => other.text_macro(name, value.parse().expect("a number")),
                    ["const", _, name, "=", value] => {
                        let digits = value.trim_start_matches("0x").trim_end_matches(';');
                        other.number(name, 32, u64::from_str_radix(digits, 16).expect("a number"));
                    }
                    _ => {}
                }
            }
            FridgeReadout::new(&other, SECOND).map(|readout| readout.program()).map_err(|error| error.to_string())
        };
        let refused = |from: &str, to: &str| changed(from, to).expect_err("refused");

        assert_eq!(changed("", ""), Ok("fridges"));
        for number in [0, 1, 5] {
            let expected = format!("{number} fridges, 2 to 4 are possible in a switch");
            assert_eq!(refused("FRIDGES 2", &format!("FRIDGES {number}")), expected);
        }
        assert_eq!(refused("FRIDGES 2", "FRIDGES 3"), "fridges has no constant SLOTS_2");
        let end = refused("BELOW_1 = 0x100000000", "BELOW_1 = 0xc0000000");
        assert_eq!(end, "a probability of 0, above 2⁻³³ and at most 1 are possible");
        let slots = refused("SLOTS_1 = 0x20", "SLOTS_1 = 0x20001");
        assert_eq!(slots, "131073 slots, at most 131072 are possible in a switch");
    }

    #[test]
    fn constants_of_another_program_are_no_fridge() {
        let settings = synopses::finecomb::Settings::one_bank(64, 1.0, 4, 1);
        let constants = programs::lda(&settings, &DigestKey::new(7)).expect("an LDA");

        let error = FridgeReadout::new(&constants, SECOND).expect_err("no fridge").to_string();
        assert_eq!(error, "lda has no constant SLOTS");
    }
}
