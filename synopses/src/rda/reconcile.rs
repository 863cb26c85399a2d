//! The sender's end of an exchange: what only one end has is found and taken out of the sums, and what is left says delay and loss.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use thiserror::Error;

use super::aggregator::{Cell, Rda};
use super::cache::Cache;
use super::decode::{Decoder, Difference, Peeling, Side};
use super::settings::{Layout, Settings, SettingsError};
use crate::moments::{Deviation, Useful, variance};

/// How often ids that the receiver does not know lead to another look.
const MOST_ROUNDS: u32 = 3;

/// What became of the cells of both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Have the same packets at both ends, at least one.
    pub usable: u64,
    /// Have not.
    pub useless: u64,
    /// Of both kinds of the difference, cells that could not be decoded.
    pub residual: u64,
}

/// Delay and loss of one interval. What is not known is `None`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean delay in nanoseconds of the packets in usable cells. May be below 0 where clocks differ.
    pub mean_ns: Option<f64>,
    /// Its standard deviation, from at least two usable cells.
    pub deviation_ns: Option<f64>,
    /// The variance came out below 0 and was taken as 0: the deviation says nothing.
    pub deviation_clamped: bool,
    /// At least so many packets are in usable cells: as many as the best bank has there. [`Reconciliation::useful_packets`] counts them.
    pub packets: u64,
    /// Packets that the sender saw.
    pub sent: u64,
    /// Packets that the receiver saw.
    pub received: u64,
    /// At least so many of the sender's packets did not arrive in this interval. Those that were on their way at its end are among them:
    /// [`super::Unsettled`] sorts them out.
    pub lost: u64,
    /// At least so many arrived that were not sent in it.
    pub reordered: u64,
    /// Lost ones as a share of those sent; a lower bound unless `complete`.
    pub loss: Option<f64>,
    /// Every difference was found.
    pub complete: bool,
    /// Packets, or times of packets, are missing: a cache was full, or the receiver did not say when something arrived.
    pub partial: bool,
    /// Packets that came again, at the sender and at the receiver.
    pub duplicates: (u64, u64),
    /// What became of the cells.
    pub health: Health,
}

impl Estimate {
    /// Whether clocks are further apart than the `bound_ns` that is promised of them: nothing arrives before it was sent.
    #[must_use]
    pub fn clock_suspect(&self, bound_ns: f64) -> bool {
        self.mean_ns.is_some_and(|mean| mean < -bound_ns)
    }
}

/// An answer of the receiver that was not asked for, or not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The sender did not ask for this packet.
    #[error("a time of packet {0:016x}, which was not asked for")]
    Unasked(u64),
}

/// One interval, at the sender: it has its own cache and the receiver's cells.
#[derive(Clone, Debug)]
pub struct Reconciliation {
    ours: Cache,
    sender: Rda,
    receiver: Rda,
    decoder: Decoder,
    /// Of packets that only the receiver has.
    times: BTreeMap<u64, u64>,
    rounds: u32,
}

impl Reconciliation {
    /// Decodes the difference of the cells of `ours` and of `receiver`, whose number is the receiver's choice.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Ids`] if the cache has other ids.
    pub fn new(ours: Cache, receiver: Rda) -> Result<Self, SettingsError> {
        let sender = ours.aggregate(&receiver.settings)?;
        let decoder = Decoder::new(&sender, &receiver, Peeling::UndoAndBan).expect("made with the receiver's settings");
        let mut begun = Self { ours, sender, receiver, decoder, times: BTreeMap::new(), rounds: 0 };
        begun.decode();
        Ok(begun)
    }

    fn decode(&mut self) {
        let Self { ours, decoder, .. } = self;
        // Whatever only the sender has is in its cache, whatever only the receiver has is not.
        decoder.run(|id, side| ours.time_of(id).is_some() == (side == Side::Sender));
    }

    /// What only one end has.
    #[must_use]
    pub fn difference(&self) -> Difference {
        self.decoder.difference()
    }

    /// Ids that only the receiver has and whose time it has not said yet: to be asked for. None: [`Self::estimate`] is as good as it gets.
    #[must_use]
    pub fn missing(&self) -> Vec<u64> {
        self.decoder.reordered().filter(|id| !self.times.contains_key(id)).collect()
    }

    /// What the receiver said to [`Self::missing`]: when each packet arrived, or `None` for one that it does not know. Such a one never was: it is put
    /// back, and what is left is decoded again, three times at the most; there may be more to ask for afterwards.
    ///
    /// # Errors
    ///
    /// [`AnswerError::Unasked`] if it says more than was asked for; nothing of the answer is taken then.
    pub fn answer(&mut self, answers: &[(u64, Option<u64>)]) -> Result<(), AnswerError> {
        if let Some((id, _)) = answers.iter().find(|(id, _)| !self.decoder.is_reordered(*id)) {
            return Err(AnswerError::Unasked(*id));
        }
        let mut phantoms = false;
        for (id, time) in answers {
            if let Some(time_ns) = time {
                self.times.insert(*id, *time_ns);
            } else {
                self.decoder.ban(*id);
                phantoms = true;
            }
        }
        if phantoms && self.rounds < MOST_ROUNDS {
            self.rounds += 1;
            self.decode();
        }
        Ok(())
    }

    /// When each packet that only the receiver has arrived, as far as it has said so.
    pub fn reordered(&self) -> impl Iterator<Item = (u64, Option<u64>)> {
        self.decoder.reordered().map(|id| (id, self.times.get(&id).copied()))
    }

    /// When each packet that only the sender has was sent.
    pub fn lost(&self) -> impl Iterator<Item = (u64, u64)> {
        self.decoder.lost().filter_map(|id| Some((id, self.ours.time_of(id)?)))
    }

    /// The sender's packets, for another attempt with other cells or to be cleared for another interval.
    #[must_use]
    pub fn into_cache(self) -> Cache {
        self.ours
    }

    /// What both ends have in common in each cell.
    fn common(&self) -> Box<[Common]> {
        let both = self.sender.cells.iter().zip(&self.receiver.cells).enumerate();
        let cell = |(place, (ours, theirs)): (usize, (&Cell, &Cell))| Common {
            delay: theirs.sum.wrapping_sub(ours.sum),
            // The number is the same at both ends, too: ids that came twice cancel out, but they count.
            count: if self.decoder.is_explained(place) { ours.count.cast_signed() } else { USELESS },
        };
        let mut cells: Box<[Common]> = both.map(cell).collect();
        for (id, sent) in self.lost() {
            for place in self.sender.hashes.places(id).iter() {
                cells[place].delay = cells[place].delay.wrapping_add(sent);
                cells[place].count = (cells[place].count - 1).max(USELESS);
            }
        }
        let mut untimed = Vec::new();
        for (id, arrived) in self.reordered() {
            match arrived {
                Some(arrived) => {
                    for place in self.sender.hashes.places(id).iter() {
                        cells[place].delay = cells[place].delay.wrapping_sub(arrived);
                    }
                }
                None => untimed.push(id),
            }
        }
        // Its time is in the sum.
        for place in untimed.iter().flat_map(|id| self.sender.hashes.places(*id).cells()) {
            cells[place].count = USELESS;
        }
        cells
    }

    /// Delay and loss of this interval.
    #[must_use]
    pub fn estimate(&self, deviation: Deviation) -> Estimate {
        let cells = self.common();
        let settings = &self.sender.settings;
        let all = usable(&cells).fold((0_i128, 0_u64), |(delay, count), (_, cell)| {
            (delay + i128::from(cell.delay.cast_signed()), count.saturating_add(cell.count.cast_unsigned()))
        });
        let mean_ns = (all.1 > 0).then(|| all.0 as f64 / all.1 as f64);
        let rows = usable(&cells).map(|(place, cell)| cell.row(place, settings.cells));
        // In a flat layout both cells of a pair may have the same packet, which would cancel out.
        let possible = settings.layout == Layout::Banks || deviation == Deviation::PerBucket;
        let variance = mean_ns.filter(|_| possible).and_then(|mean| variance(rows, mean, deviation));
        let (sent, received) = (self.sender.packets, self.receiver.packets);
        let reordered = self.decoder.reordered().count() as u64;
        let lost = (self.decoder.lost().count() as u64).max(sent.saturating_sub(received));
        let residual = self.decoder.residual() as u64;
        Estimate {
            mean_ns,
            deviation_ns: variance.map(|variance| libm::sqrt(variance.max(0.0))),
            deviation_clamped: variance.is_some_and(|variance| variance < 0.0),
            packets: at_least(&cells, settings),
            sent,
            received,
            lost,
            reordered: reordered.max(received.saturating_sub(sent)),
            loss: (sent > 0).then(|| lost as f64 / sent as f64),
            complete: residual == 0,
            partial: self.sender.truncated || self.receiver.truncated || !self.missing().is_empty(),
            duplicates: (self.sender.duplicates, self.receiver.duplicates),
            health: Health {
                usable: usable(&cells).count() as u64,
                useless: cells.iter().filter(|cell| cell.count == USELESS).count() as u64,
                residual,
            },
        }
    }

    /// How many packets are in usable cells. Goes through the whole cache.
    #[must_use]
    pub fn useful_packets(&self) -> u64 {
        let cells = self.common();
        let useful = |id: u64| self.sender.hashes.places(id).iter().any(|place| cells[place].count > 0);
        self.ours.iter().filter(|(id, _)| !self.decoder.is_lost(*id) && useful(*id)).count() as u64
    }
}

/// The count of a cell of which the ends have different packets, or a time is missing.
const USELESS: i64 = -1;

/// The packets of a cell that both ends have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Common {
    /// Of all of them, modulo 2⁶⁴.
    delay: u64,
    count: i64,
}

impl Common {
    const fn row(self, place: usize, bank: usize) -> Useful {
        let (delay, count) = (self.delay.cast_signed() as f64, self.count as f64);
        Useful { delay, count, bank: place / bank, row: place }
    }
}

fn usable(cells: &[Common]) -> impl Iterator<Item = (usize, Common)> {
    cells.iter().copied().enumerate().filter(|(_, cell)| cell.count > 0)
}

/// A packet is once in each bank, so that the fullest one says how many there are at least. In a flat layout it may be in every cell of k.
fn at_least(cells: &[Common], settings: &Settings) -> u64 {
    let sum = |cells: &[Common]| usable(cells).map(|(_, cell)| cell.count.cast_unsigned()).sum::<u64>();
    match settings.layout {
        Layout::Banks => cells.chunks(settings.cells).map(sum).max().unwrap_or(0),
        Layout::Flat => sum(cells).div_ceil(settings.banks as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::finalise;
    use crate::rda::{Ids, Settings};

    /// Cells as a figure of the paper has them: times of packets in five cells, {P1} {P1, P6} {P4} {P2, P4} {P2, P6}, lost and other ones taken out.
    fn figure(times: [u64; 4]) -> Rda {
        let settings = Settings { banks: 1, layout: Layout::Flat, ..Settings::paper(5, 0) };
        let mut rda = Rda::new(&settings).expect("possible");
        for (cell, packets) in [&[0_usize] as &[usize], &[0, 3], &[2], &[1, 2], &[1, 3]].into_iter().enumerate() {
            for packet in packets {
                rda.cells[cell].id ^= finalise(*packet as u64);
                rda.cells[cell].sum += times[*packet];
                rda.cells[cell].count += 1;
            }
        }
        rda
    }

    #[test]
    fn sums_and_mean_of_the_papers_example_come_out() {
        let (sender, receiver) = (figure([70, 150, 250, 330]), figure([110, 260, 390, 450]));

        assert_eq!(sender.cells.iter().map(|cell| cell.sum).collect::<Vec<_>>(), [70, 400, 250, 400, 480]);
        assert_eq!(receiver.cells.iter().map(|cell| cell.sum).collect::<Vec<_>>(), [110, 560, 390, 650, 710]);
        let ours = Cache::new(1, Ids::Plain).expect("possible");
        let decoder = Decoder::new(&sender, &receiver, Peeling::UndoAndBan).expect("one kind");
        let exchange = Reconciliation { ours, sender, receiver, decoder, times: BTreeMap::new(), rounds: 0 };
        let cells = exchange.common();
        let (delay, count) = usable(&cells).fold((0, 0), |sum, (_, cell)| (sum.0 + cell.delay, sum.1 + cell.count));
        assert_eq!((delay, count), (820, 8));
        assert_eq!(exchange.estimate(Deviation::PerBucket).mean_ns, Some(102.5));
    }

    #[test]
    fn a_lost_packet_has_to_be_one_that_was_sent() {
        // The receiver's cells lack a packet that the sender never had: as if its peer had made it up.
        let settings = Settings { banks: 2, cells: 32, ids: Ids::Plain, ..Settings::default() };
        let mut ours = Cache::new(8, Ids::Plain).expect("possible");
        ours.insert(crate::digest::Digest(1), 5);
        let mut receiver = ours.aggregate(&settings).expect("possible");
        for place in receiver.hashes.places(finalise(99)).iter() {
            receiver.cells[place].id ^= finalise(99);
            receiver.cells[place].count = receiver.cells[place].count.wrapping_sub(1);
        }

        let exchange = Reconciliation::new(ours, receiver).expect("same ids");

        assert_eq!(exchange.difference().lost, []);
        assert_eq!(exchange.difference().residual, 2);
    }
}
