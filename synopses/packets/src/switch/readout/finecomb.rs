//! From the buckets of FineComb or LDA to intervals of the library. An interval is from marker to marker, as the switch
//! has it.
//!
//! Buckets are there twice, by the parity of the intervals that began. Those of an interval that has ended are the
//! difference to what the same entries had when the interval before it ended; they stay until the next interval but
//! one begins. So there is as long as an interval to read them. A poll that is missing costs two intervals, the one
//! that had ended and the one after the next, and no other one.
//!
//! Of a switch that started again, nothing from before is subtracted. Its count of intervals went back, or has been
//! overtaken by the numbers of markers, which go on; or the connection broke, which the caller knows
//! ([`BucketReadout::forget`]).
//!
//! The stash after an end is read with the interval that ended there, soon after the end. So it has the packets up to
//! then, which are fewer than have room if traffic is thin. A packet that was overtaken by the marker and comes later
//! is not found, as one that comes behind a full stash.

use core::num::NonZeroU64;

use synopses::digest::DigestKey;
use synopses::encoding::DecodeError;
use synopses::finecomb::{
    Bank, Bucket, EndStash, FineComb, Interval, Sampling, Settings, SettingsError, StashedPacket,
};
use thiserror::Error;

use super::{BACK, ProgramCheck, ReadoutError, RefusedFrames};
use crate::switch::registers::{
    BegunBlock, BucketBlock, BucketNames, ENDS, FrameBlock, StashBlock, StashList, SwitchRegisters,
};
use crate::switch::{Constants, MAX_ENTRIES};

/// Constants that both ends share.
const SHARED: [&str; 9] = ["BUCKETS", "SAMPLED", "FIRST_0", "MORE_0", "FIRST_1", "MORE_1", "SAMPLE", "ROW", "VALUE"];
/// Words of the key by which packets are named.
const SECRET_WORDS: usize = 18;
/// 2⁶⁴, of which a bank samples so many hashes.
const HASHES: f64 = 18_446_744_073_709_551_616.0;

/// Why constants describe no end of FineComb or LDA.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum BucketsError {
    /// A constant that buckets need is missing.
    #[error("{program} has no constant {name}")]
    Missing {
        /// The program of the constants.
        program: &'static str,
        /// The constant's name.
        name: &'static str,
    },
    /// More buckets or stashed packets than a switch can have.
    #[error("{what}: {found}, at most {most} are possible in a switch")]
    Entries {
        /// What there are too many of.
        what: &'static str,
        /// As many as the constants say.
        found: u64,
        /// As many as have room.
        most: usize,
    },
    /// The library refuses the settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

/// What a poll read, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketPoll {
    /// The interval of the switch before all else was read.
    pub begun: BegunBlock,
    /// Buckets of the interval that goes on, and of the one that has ended.
    pub buckets: BucketBlock,
    /// Stashes of the receiving end of FineComb.
    pub stashes: Option<StashBlock>,
    /// Counts of frames.
    pub frames: FrameBlock,
    /// Intervals that began until all was read.
    pub begun_after: u32,
}

/// What a poll gave.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "an interval that is not compared is lost"]
pub struct BucketReading {
    /// Frames since the poll before that could not be parsed, although they should.
    pub refused: u64,
    /// Number of the switch's current interval, by its marker.
    pub current: u32,
    /// The interval before it, if it is known as a whole.
    pub interval: Option<Box<BucketInterval>>,
    /// Whether the switch has started again since the poll before, as its counts show.
    pub started_again: bool,
}

/// An interval of one end, by the switch's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketInterval {
    /// Its number, by its marker.
    pub number: u32,
    packets: u32,
    buckets: Vec<Bucket>,
    /// What was stashed at its start and at its end, in the only bank. Without any, nothing can be recovered.
    stashes: Option<[EndStash; 2]>,
}

/// Entries of one parity.
#[derive(Clone, Debug)]
struct ParityEntries {
    /// Intervals that had begun when they were read: they go on with the next one.
    begun: u32,
    packets: u32,
    buckets: Vec<Bucket>,
}

/// Makes intervals of the registers of one end. It keeps the buckets of two intervals.
#[derive(Clone, Debug)]
pub struct BucketReadout {
    program: ProgramCheck,
    names: BucketNames,
    settings: Settings,
    fingerprint: NonZeroU64,
    /// Banks of the program, used or not.
    banks: usize,
    /// Whether packets near the ends of intervals are stashed.
    receives: bool,
    latest: Option<(BegunBlock, FrameBlock)>,
    parities: [Option<ParityEntries>; 2],
}

/// The hashes that a bank samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SampledHashes {
    first: u64,
    more: u64,
}

impl SampledHashes {
    /// A bank that samples these.
    fn bank(self, stash: usize) -> Bank {
        Bank { probability: (self.more as f64 + 1.0) / HASHES, stash, loss: 0.0 }
    }
}

impl BucketReadout {
    /// Before the first poll of a switch whose program has these constants.
    ///
    /// # Errors
    ///
    /// [`BucketsError`] if the constants are not those of an end of FineComb or LDA.
    pub fn new(constants: &Constants) -> Result<Self, BucketsError> {
        let program = constants.program();
        let value = |name| constants.value(name).ok_or(BucketsError::Missing { program, name });
        let hashes = |first, more| Ok::<_, BucketsError>(SampledHashes { first: value(first)?, more: value(more)? });
        let size = |what, found: u64, arrays: usize| {
            let most = MAX_ENTRIES / arrays;
            let size = usize::try_from(found).ok().filter(|size| *size <= most);
            size.ok_or(BucketsError::Entries { what, found, most })
        };
        let stash = constants.value("STASHED_MOST");
        let most = stash.map(|most| size("stashed packets", most, ENDS)).transpose()?;
        let is_lda = constants.value("VALUE").is_none();
        let sampled = if is_lda {
            let [first, second] = [hashes("FIRST_0", "MORE_0")?, hashes("FIRST_1", "MORE_1")?];
            // The first bank's range comes again if there is no second one.
            if first == second { vec![first] } else { vec![first, second] }
        } else {
            vec![SampledHashes { first: 0, more: value("SAMPLED")? }]
        };
        let banks = if is_lda { 2 } else { 1 };
        let settings = Settings {
            buckets: size("buckets", value("BUCKETS")?, 2 * banks)?,
            sampling: if sampled.len() > 1 { Sampling::Disjoint } else { Sampling::Nested },
            banks: sampled.into_iter().map(|hashes| hashes.bank(most.unwrap_or(0))).collect(),
            seed: 0,
        };
        drop(FineComb::new(&settings)?);
        Ok(Self {
            program: ProgramCheck { program, checksum: constants.checksum() },
            names: if is_lda { BucketNames::LDA } else { BucketNames::FINECOMB },
            settings,
            fingerprint: fingerprint(constants),
            banks,
            receives: most.is_some(),
            latest: None,
            parities: [None, None],
        })
    }

    /// The program that it reads.
    #[must_use]
    pub const fn program(&self) -> &'static str {
        self.program.program
    }

    /// Sizes and probabilities. The seed is unknown: what follows from it is in the constants.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether buckets have XORs of digests: FineComb, else LDA.
    #[must_use]
    pub const fn has_digests(&self) -> bool {
        self.names.values.is_some()
    }

    /// The same for two programs that name, sample and place packets in the same way, so that their buckets can be
    /// compared.
    #[must_use]
    pub const fn fingerprint(&self) -> NonZeroU64 {
        self.fingerprint
    }

    /// Reads what [`Self::read`] takes. `None` if no interval has begun since the poll before: nothing else is read
    /// then.
    ///
    /// # Errors
    ///
    /// That of the registers.
    pub fn poll<R: SwitchRegisters>(&self, switch: &mut R) -> Result<Option<BucketPoll>, R::Error> {
        let begun = switch.begun(&self.names)?;
        if self.latest.is_some_and(|(latest, _)| latest == begun) {
            return Ok(None);
        }
        let buckets = switch.buckets(&self.names, 2 * self.banks * self.settings.buckets)?;
        let most = self.settings.banks.first().map_or(0, |bank| bank.stash);
        let stashes = if self.receives { Some(switch.stashes(most)?) } else { None };
        let (frames, begun_after) = (switch.frames()?, switch.begun(&self.names)?.begun);
        Ok(Some(BucketPoll { begun, buckets, stashes, frames, begun_after }))
    }

    /// Takes a poll. An interval that began while it was read makes it worth nothing.
    ///
    /// # Errors
    ///
    /// [`ReadoutError`] if the switch runs something else. The next poll begins anew.
    pub fn read(&mut self, poll: &BucketPoll) -> Result<BucketReading, ReadoutError> {
        let BucketPoll { begun, frames, .. } = poll;
        if let Err(error) = self.program.check(frames) {
            (self.latest, self.parities) = (None, [None, None]);
            return Err(error);
        }
        let refused = self.latest.map_or(0, |(_, before)| RefusedFrames::between(&before, frames).broken);
        if poll.begun_after != begun.begun {
            return Ok(BucketReading { refused: 0, current: begun.number, interval: None, started_again: false });
        }
        let before = self.latest.replace((*begun, *frames));
        let started_again = before.is_some_and(|before| has_started_again(before, (*begun, *frames)));
        let before = before.map(|(before, _)| before);
        if started_again || before.is_some_and(|before| missing(before, *begun) > 1) {
            self.forget();
        }
        let refused = if started_again { 0 } else { refused };
        let now = self.entries(poll);
        let parity = &mut self.parities[((begun.begun & 1) ^ 1) as usize];
        let earlier = parity.take();
        let is_whole = before.is_some_and(|before| is_whole(before, *begun));
        let interval = earlier.filter(|earlier| is_whole && begun.begun.wrapping_sub(earlier.begun) == 2);
        let interval = interval.map(|earlier| {
            Box::new(BucketInterval {
                number: begun.number.wrapping_sub(1),
                packets: now.packets.wrapping_sub(earlier.packets),
                buckets: now.buckets.iter().zip(&earlier.buckets).map(|(now, earlier)| since(now, earlier)).collect(),
                stashes: poll.stashes.as_ref().map(|stashes| ends(stashes, begun.begun)),
            })
        });
        *parity = Some(now);
        Ok(BucketReading { refused, current: begun.number, interval, started_again })
    }

    /// Forgets what entries had in polls before. For a connection that broke: the switch may have started again.
    pub fn forget(&mut self) {
        self.parities = [None, None];
    }

    /// The entries of the interval that has ended.
    fn entries(&self, poll: &BucketPoll) -> ParityEntries {
        let BucketPoll { begun, buckets, .. } = poll;
        let parity = ((begun.begun & 1) ^ 1) as usize;
        let from = parity * self.banks * self.settings.buckets;
        let to = from + self.settings.banks.len() * self.settings.buckets;
        let all = buckets.counts.iter().zip(&buckets.sums).zip(&buckets.values);
        let bucket = |((count, sum), digest): ((&u32, &u64), &u64)| Bucket {
            sum: *sum,
            count: (*count).into(),
            digest: *digest,
        };
        ParityEntries {
            begun: begun.begun,
            packets: buckets.packets[parity],
            buckets: all.map(bucket).take(to).skip(from).collect(),
        }
    }
}

/// 64 bits that depend on all constants that both ends share; not 0.
fn fingerprint(constants: &Constants) -> NonZeroU64 {
    let words = |name| (0..SECRET_WORDS).map(move |word| format!("{name}_{word}"));
    let secret = ["SECRET", "KEY"].into_iter().flat_map(words);
    let names = SHARED.into_iter().map(str::to_owned).chain(secret);
    let lines = names.filter_map(|name| Some(format!("{name} {:#x}\n", constants.value(&name)?)));
    let digest = DigestKey::new(0).digest(lines.collect::<String>().as_bytes()).0;
    NonZeroU64::new(digest).unwrap_or(NonZeroU64::MIN)
}

/// Markers between two polls that began no interval, modulo 2³². One may be lost on its way; if there are more, the
/// switch may have started again, which counts two intervals for its first marker.
const fn missing(before: BegunBlock, now: BegunBlock) -> u32 {
    let begun = now.begun.wrapping_sub(before.begun);
    now.number.wrapping_sub(before.number).wrapping_sub(begun)
}

/// Whether a switch has certainly started again between two polls: its intervals went back; or fewer began than there
/// were markers, and none at all, or its frames went back.
const fn has_started_again(before: (BegunBlock, FrameBlock), now: (BegunBlock, FrameBlock)) -> bool {
    let begun = now.0.begun.wrapping_sub(before.0.begun);
    let fewer_frames = now.1.frames.wrapping_sub(before.1.frames) >= BACK;
    begun >= BACK || (missing(before.0, now.0) > 0 && (begun == 0 || fewer_frames))
}

/// Whether the interval that ended last began with the marker before that of the current one: no marker is missing.
const fn is_whole(before: BegunBlock, now: BegunBlock) -> bool {
    let begun = now.begun.wrapping_sub(before.begun);
    matches!(begun, 1 | 2) && now.number.wrapping_sub(before.number) == begun
}

/// What was added to a bucket.
fn since(now: &Bucket, earlier: &Bucket) -> Bucket {
    Bucket {
        sum: now.sum.wrapping_sub(earlier.sum),
        // Registers have 32 bits.
        count: (now.count as u32).wrapping_sub(earlier.count as u32).into(),
        digest: now.digest ^ earlier.digest,
    }
}

/// What was stashed at both ends of the interval before that of `begun`.
fn ends(stashes: &StashBlock, begun: u32) -> [EndStash; 2] {
    [begun.wrapping_sub(1), begun].map(|end| EndStash {
        before: stashed(&stashes.before, end).to_vec(),
        after: stashed(&stashes.after, end).to_vec(),
    })
}

/// The packets of a list at an end.
fn stashed(list: &StashList, end: u32) -> &[StashedPacket] {
    let (end, most) = (end as usize % ENDS, list.packets.len() / ENDS);
    let room = list.packets.get(end * most..(end + 1) * most).unwrap_or_default();
    &room[..room.len().min(list.counts[end] as usize)]
}

impl BucketInterval {
    /// The buckets, as the library has them, with `offset_ns` added to the switch's time modulo 2⁶⁴. `settings` are the
    /// readout's, with any seed.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the settings are others, or the switch's counts contradict each other.
    pub fn finecomb(&self, settings: &Settings, offset_ns: u64) -> Result<FineComb, DecodeError> {
        let moved =
            |bucket: &Bucket| Bucket { sum: bucket.sum.wrapping_add(bucket.count.wrapping_mul(offset_ns)), ..*bucket };
        let buckets: Vec<Bucket> = self.buckets.iter().map(moved).collect();
        FineComb::of_buckets(settings, self.packets.into(), &buckets)
    }

    /// The interval of a receiving end, likewise.
    ///
    /// # Errors
    ///
    /// As [`Self::finecomb`].
    pub fn received(&self, settings: &Settings, offset_ns: u64) -> Result<Interval, DecodeError> {
        let finecomb = self.finecomb(settings, offset_ns)?;
        let Some(stashes) = &self.stashes else { return Ok(Interval::without_stash(finecomb)) };
        let moved =
            |packet: &StashedPacket| StashedPacket { time_ns: packet.time_ns.wrapping_add(offset_ns), ..*packet };
        let end = |stash: &EndStash| EndStash {
            before: stash.before.iter().map(moved).collect(),
            after: stash.after.iter().map(moved).collect(),
        };
        Interval::of_stashes(finecomb, stashes.each_ref().map(|stash| vec![end(stash)]))
    }
}

#[cfg(test)]
mod tests;
