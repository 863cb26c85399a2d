//! Reconciliation at the sender: identifies the packets that only one end has, removes them from the sums, and
//! estimates delay and loss.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use thiserror::Error;

use super::aggregator::{Cell, Rda};
use super::cache::Cache;
use super::decode::{Decoder, Difference, Peeling, Side};
use super::settings::{Layout, Settings, SettingsError};
use crate::moments::{Deviation, UsefulRow, variance};

/// Maximum number of repeated decodings because of ids that the receiver does not know.
const MAX_ROUNDS: u32 = 3;

/// Number of cells by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Cells with the same packets at both ends, at least one.
    pub usable: u64,
    /// Cells with different packets.
    pub useless: u64,
    /// Cells of the difference that could not be decoded.
    pub residual: u64,
}

/// Delay and loss of one interval. Unknown values are `None`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Mean delay in nanoseconds of the packets in usable cells. Negative if the clocks differ by more than the delay.
    pub mean_ns: Option<f64>,
    /// Standard deviation of the delay in nanoseconds, from at least two usable cells.
    pub deviation_ns: Option<f64>,
    /// The estimated variance was below 0 and was set to 0: the deviation is meaningless.
    pub deviation_clamped: bool,
    /// Lower bound of the number of packets in usable cells: that of the best bank. [`Reconciliation::useful_packets`]
    /// has the exact number.
    pub packets: u64,
    /// Number of the sender's packets.
    pub sent: u64,
    /// Number of the receiver's packets.
    pub received: u64,
    /// Lower bound of the number of sent packets that did not arrive in this interval. Includes packets in flight at
    /// its end: [`super::UnsettledLoss`] separates them.
    pub lost: u64,
    /// Lower bound of the number of packets that arrived but were not sent in this interval.
    pub reordered: u64,
    /// Lost packets as a share of sent packets; a lower bound unless `complete`.
    pub loss: Option<f64>,
    /// Whether every difference was identified.
    pub complete: bool,
    /// Whether packets or timestamps are missing: a cache was full, or the receiver has not sent an arrival time.
    pub partial: bool,
    /// Skipped duplicates at the sender and at the receiver.
    pub duplicates: (u64, u64),
    /// Number of cells by state.
    pub health: Health,
}

impl Estimate {
    /// Whether the clocks must differ by more than `bound_ns`, because packets arrived that much before they were sent.
    #[must_use]
    pub fn clock_suspect(&self, bound_ns: f64) -> bool {
        self.mean_ns.is_some_and(|mean| mean < -bound_ns)
    }
}

/// The receiver sent the time of a packet with this id, which the sender had not requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("time of packet {0:016x}, which was not requested")]
pub struct UnexpectedTime(pub u64);

/// One interval at the sender, from its own cache and the receiver's cells.
#[derive(Clone, Debug)]
pub struct Reconciliation {
    ours: Cache,
    sender: Rda,
    receiver: Rda,
    decoder: Decoder,
    /// Arrival times of packets that only the receiver has.
    times: BTreeMap<u64, u64>,
    rounds: u32,
}

impl Reconciliation {
    /// Decodes the difference between `ours` and the receiver's cells. The receiver chooses the number of cells.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Ids`] if the cache has another kind of ids.
    pub fn new(ours: Cache, receiver: Rda) -> Result<Self, SettingsError> {
        let sender = ours.aggregate(&receiver.settings)?;
        let decoder = Decoder::new(&sender, &receiver, Peeling::UndoAndBan).expect("made with the receiver's settings");
        let mut reconciliation = Self { ours, sender, receiver, decoder, times: BTreeMap::new(), rounds: 0 };
        reconciliation.decode();
        Ok(reconciliation)
    }

    fn decode(&mut self) {
        let Self { ours, decoder, .. } = self;
        // A packet that only the sender has is in its cache, one that only the receiver has is not.
        decoder.run(|id, side| ours.time_of(id).is_some() == (side == Side::Sender));
    }

    /// The packets that only one end has.
    #[must_use]
    pub fn difference(&self) -> Difference {
        self.decoder.difference()
    }

    /// Ids of packets that only the receiver has and whose arrival times are missing. Request them from the receiver.
    /// If there are none, [`Self::estimate`] is final.
    #[must_use]
    pub fn missing(&self) -> Vec<u64> {
        self.decoder.reordered().filter(|id| !self.times.contains_key(id)).collect()
    }

    /// Adds the receiver's arrival times of [`Self::missing`], `None` for an id that it does not know. Such a phantom
    /// is put back, and the rest is decoded again, at most three times; more times may be missing afterwards.
    ///
    /// # Errors
    ///
    /// [`UnexpectedTime`] if a time was not requested. Nothing is added then.
    pub fn add_times(&mut self, times: &[(u64, Option<u64>)]) -> Result<(), UnexpectedTime> {
        if let Some((id, _)) = times.iter().find(|(id, _)| !self.decoder.is_reordered(*id)) {
            return Err(UnexpectedTime(*id));
        }
        let mut phantoms = false;
        for (id, time) in times {
            if let Some(time_ns) = time {
                self.times.insert(*id, *time_ns);
            } else {
                self.decoder.ban(*id);
                phantoms = true;
            }
        }
        if phantoms && self.rounds < MAX_ROUNDS {
            self.rounds += 1;
            self.decode();
        }
        Ok(())
    }

    /// Packets that only the receiver has, with their arrival times where known.
    pub fn reordered(&self) -> impl Iterator<Item = (u64, Option<u64>)> {
        self.decoder.reordered().map(|id| (id, self.times.get(&id).copied()))
    }

    /// Packets that only the sender has, with their times of sending.
    pub fn lost(&self) -> impl Iterator<Item = (u64, u64)> {
        self.decoder.lost().filter_map(|id| Some((id, self.ours.time_of(id)?)))
    }

    /// Returns the sender's cache, for another attempt with other cells or for another interval.
    #[must_use]
    pub fn into_cache(self) -> Cache {
        self.ours
    }

    /// The packets that both ends have, by cell.
    fn common(&self) -> Box<[CommonCell]> {
        let both = self.sender.cells.iter().zip(&self.receiver.cells).enumerate();
        let cell = |(place, (ours, theirs)): (usize, (&Cell, &Cell))| CommonCell {
            delay: theirs.sum.wrapping_sub(ours.sum),
            // The counts must be equal, too, since duplicates cancel out in the XOR of ids.
            count: if self.decoder.is_explained(place) { ours.count.cast_signed() } else { USELESS },
        };
        let mut cells: Box<[CommonCell]> = both.map(cell).collect();
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
        // Their timestamps are still in the sums.
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

    /// Number of packets in usable cells. Iterates over the whole cache.
    #[must_use]
    pub fn useful_packets(&self) -> u64 {
        let cells = self.common();
        let useful = |id: u64| self.sender.hashes.places(id).iter().any(|place| cells[place].count > 0);
        self.ours.iter().filter(|(id, _)| !self.decoder.is_lost(*id) && useful(*id)).count() as u64
    }
}

/// Count that marks a useless cell: its packets differ, or a timestamp is missing.
const USELESS: i64 = -1;

/// The packets of a cell that both ends have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CommonCell {
    /// Sum of their delays, modulo 2⁶⁴.
    delay: u64,
    count: i64,
}

impl CommonCell {
    const fn row(self, place: usize, bank: usize) -> UsefulRow {
        let (delay, count) = (self.delay.cast_signed() as f64, self.count as f64);
        UsefulRow { delay, count, bank: place / bank, row: place }
    }
}

fn usable(cells: &[CommonCell]) -> impl Iterator<Item = (usize, CommonCell)> {
    cells.iter().copied().enumerate().filter(|(_, cell)| cell.count > 0)
}

/// Lower bound of the number of packets in usable cells. A packet is once in each bank, so the bank with the most
/// packets gives it. In a flat layout a packet may be in up to k cells.
fn at_least(cells: &[CommonCell], settings: &Settings) -> u64 {
    let sum = |cells: &[CommonCell]| usable(cells).map(|(_, cell)| cell.count.cast_unsigned()).sum::<u64>();
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

    /// The cells of the paper's figure: timestamps of packets in five cells, {P1} {P1, P6} {P4} {P2, P4} {P2, P6},
    /// without the packets that only one end has.
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
        let reconciliation = Reconciliation { ours, sender, receiver, decoder, times: BTreeMap::new(), rounds: 0 };
        let cells = reconciliation.common();
        let (delay, count) = usable(&cells).fold((0, 0), |sum, (_, cell)| (sum.0 + cell.delay, sum.1 + cell.count));
        assert_eq!((delay, count), (820, 8));
        assert_eq!(reconciliation.estimate(Deviation::PerBucket).mean_ns, Some(102.5));
    }

    #[test]
    fn a_lost_packet_has_to_be_one_that_was_sent() {
        // The receiver's cells lack a packet that the sender never had, as if it were forged.
        let settings = Settings { banks: 2, cells: 32, ids: Ids::Plain, ..Settings::default() };
        let mut ours = Cache::new(8, Ids::Plain).expect("possible");
        ours.insert(crate::digest::Digest(1), 5);
        let mut receiver = ours.aggregate(&settings).expect("possible");
        for place in receiver.hashes.places(finalise(99)).iter() {
            receiver.cells[place].id ^= finalise(99);
            receiver.cells[place].count = receiver.cells[place].count.wrapping_sub(1);
        }

        let reconciliation = Reconciliation::new(ours, receiver).expect("same ids");

        assert_eq!(reconciliation.difference().lost, []);
        assert_eq!(reconciliation.difference().residual, 2);
    }
}
