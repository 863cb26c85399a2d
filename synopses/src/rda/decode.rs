//! Decoder: identifies the packets that only one end has, by peeling the difference of cells.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::aggregator::{MergeError, Rda};
use super::settings::{Hashes, Ids, Layout};
use super::table::{Insertion, Table};

/// The only end that has a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The sender: the packet was lost, or late for the interval.
    Sender,
    /// The receiver: the packet was late from the interval before, or changed on the path.
    Receiver,
}

/// How the decoder recognises cells with a single packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peeling {
    /// As printed, by position and count only. A phantom id is taken out of one cell, put back by another one, and so
    /// on, until the step limit. For comparison.
    Printed,
    /// An id that shows up again with the other sign is a phantom: it is put back (undo) and ignored from then on
    /// (ban).
    UndoAndBan,
}

/// The packets that only one end has, as far as identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Ids that only the sender has.
    pub lost: Vec<u64>,
    /// Ids that only the receiver has.
    pub reordered: Vec<u64>,
    /// Number of cells that are not empty in the end. 0: every difference was identified.
    pub residual: usize,
    /// Number of steps: packets taken out of cells or put back.
    pub steps: usize,
    /// Whether the step limit was reached.
    pub exhausted: bool,
}

impl Difference {
    /// Decodes the difference without the sender's cache, and so without its check of ids.
    ///
    /// # Errors
    ///
    /// [`MergeError`] if their settings differ.
    pub fn between(sender: &Rda, receiver: &Rda, peeling: Peeling) -> Result<Self, MergeError> {
        let mut decoder = Decoder::new(sender, receiver, peeling)?;
        decoder.run(|_, _| true);
        Ok(decoder.difference())
    }
}

/// State of an identified id.
const LOST: u64 = 0;
const REORDERED: u64 = 1;
const BANNED: u64 = 2;

impl Side {
    const fn state(self) -> u64 {
        match self {
            Self::Sender => LOST,
            Self::Receiver => REORDERED,
        }
    }

    const fn sign(self) -> i64 {
        match self {
            Self::Sender => -1,
            Self::Receiver => 1,
        }
    }
}

/// The receiver's cell less the sender's.
#[derive(Clone, Copy, Debug, Default)]
struct CellDifference {
    id: u64,
    count: i64,
}

/// Decodes the difference of two ends' cells.
#[derive(Clone, Debug)]
pub(super) struct Decoder {
    hashes: Hashes,
    ids: Ids,
    layout: Layout,
    /// Number of cells in a bank.
    bank: usize,
    peeling: Peeling,
    cells: Box<[CellDifference]>,
    checks: Box<[u64]>,
    /// States of identified ids.
    states: Table,
    /// Cells that may have a single packet.
    queue: Vec<u32>,
    steps: usize,
    full: bool,
}

impl Decoder {
    pub(super) fn new(sender: &Rda, receiver: &Rda, peeling: Peeling) -> Result<Self, MergeError> {
        if sender.settings != receiver.settings {
            return Err(MergeError);
        }
        let both = sender.cells.iter().zip(&receiver.cells);
        let cells: Box<[CellDifference]> = both
            .map(|(ours, theirs)| CellDifference {
                id: ours.id ^ theirs.id,
                count: theirs.count.wrapping_sub(ours.count).cast_signed(),
            })
            .collect();
        Ok(Self {
            hashes: sender.hashes.clone(),
            ids: sender.settings.ids,
            layout: sender.settings.layout,
            bank: sender.settings.cells,
            peeling,
            checks: sender.checks.iter().zip(&receiver.checks).map(|(ours, theirs)| ours ^ theirs).collect(),
            // At most one packet per cell can be identified.
            states: Table::new(cells.len()),
            cells,
            queue: Vec::new(),
            steps: 0,
            full: false,
        })
    }

    const fn most_steps(&self) -> usize {
        4 * self.cells.len()
    }

    /// Decodes as far as possible. `verify` tells whether only this side can have the packet with this id.
    pub(super) fn run(&mut self, verify: impl Fn(u64, Side) -> bool) {
        self.queue.extend((0..self.cells.len() as u32).filter(|place| self.cells[*place as usize].count.abs() == 1));
        while self.steps < self.most_steps() && !self.full {
            let Some(place) = self.queue.pop() else { break };
            // Tested again here: since it was queued, cells have changed and ids have been banned.
            let Some((id, side)) = self.single(place as usize, &verify) else { continue };
            self.steps += 1;
            self.take_out(id, side.sign());
            self.record(id, side);
            let cells = &self.cells;
            let changed = self.hashes.places(id);
            self.queue.extend(changed.iter().filter(|place| cells[*place].count.abs() == 1).map(|place| place as u32));
        }
    }

    /// The packet of a cell, if it seems to have a single packet.
    fn single(&self, place: usize, verify: impl Fn(u64, Side) -> bool) -> Option<(u64, Side)> {
        let CellDifference { id, count } = self.cells[place];
        let side = match count {
            -1 => Side::Sender,
            1 => Side::Receiver,
            _ => return None,
        };
        let alone = match self.layout {
            Layout::Banks => self.hashes.cell(id, place / self.bank) == place,
            Layout::Flat => self.hashes.check(id) == self.checks[place],
        };
        if !alone || !self.ids.possible(id) {
            return None;
        }
        let accepted = match self.states.get(id) {
            _ if self.peeling == Peeling::Printed => true,
            Some(BANNED) => false,
            // With the other sign it is a phantom, and accepted so that it is put back.
            Some(found) => found != side.state(),
            None => verify(id, side),
        };
        accepted.then_some((id, side))
    }

    fn record(&mut self, id: u64, side: Side) {
        match self.states.get_mut(id) {
            Some(state) if self.peeling == Peeling::Printed => *state = side.state(),
            Some(state) => *state = BANNED,
            None => self.full |= self.states.insert(id, side.state()) == Insertion::Full,
        }
    }

    fn take_out(&mut self, id: u64, sign: i64) {
        for place in self.hashes.places(id).iter() {
            let cell = &mut self.cells[place];
            cell.id ^= id;
            cell.count = cell.count.wrapping_sub(sign);
        }
        if self.layout == Layout::Flat {
            for place in self.hashes.places(id).iter() {
                self.checks[place] ^= self.hashes.check(id);
            }
        }
    }

    /// Bans an id that the receiver does not know, and puts it back.
    pub(super) fn ban(&mut self, id: u64) {
        let Some(state) = self.states.get_mut(id) else { return };
        if core::mem::replace(state, BANNED) == REORDERED {
            self.take_out(id, -Side::Receiver.sign());
        }
    }

    fn with_state(&self, state: u64) -> impl Iterator<Item = u64> {
        self.states.entries().iter().filter(move |entry| entry.value == state).map(|entry| entry.id)
    }

    pub(super) fn lost(&self) -> impl Iterator<Item = u64> {
        self.with_state(LOST)
    }

    pub(super) fn reordered(&self) -> impl Iterator<Item = u64> {
        self.with_state(REORDERED)
    }

    pub(super) fn is_reordered(&self, id: u64) -> bool {
        self.states.get(id) == Some(REORDERED)
    }

    pub(super) fn is_lost(&self, id: u64) -> bool {
        self.states.get(id) == Some(LOST)
    }

    /// Whether both ends have the same packets in a cell, except for identified ones.
    #[inline]
    pub(super) fn is_explained(&self, place: usize) -> bool {
        let CellDifference { id, count } = self.cells[place];
        id == 0 && count == 0 && self.checks.get(place).is_none_or(|check| *check == 0)
    }

    /// Number of cells that are not empty.
    pub(super) fn residual(&self) -> usize {
        self.cells.iter().filter(|cell| cell.id != 0 || cell.count != 0).count()
    }

    pub(super) fn difference(&self) -> Difference {
        Difference {
            lost: self.lost().collect(),
            reordered: self.reordered().collect(),
            residual: self.residual(),
            steps: self.steps,
            exhausted: self.steps >= self.most_steps(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::{Digest, finalise};
    use crate::rda::Settings;

    fn ends(lost: u64, extra: u64, settings: &Settings) -> [Rda; 2] {
        [(0, lost), (1 << 20, extra)].map(|(from, packets)| {
            let mut rda = Rda::new(settings).expect("possible");
            let own = |number: u64| Digest(finalise(finalise(settings.seed) ^ (from + number)));
            (0..packets).for_each(|number| rda.insert(own(number), number));
            rda
        })
    }

    /// (n choose k).
    fn choose(n: u64, k: u64) -> f64 {
        (0..k).map(|at| (n - at) as f64 / (at + 1) as f64).product()
    }

    #[test]
    fn cells_of_several_packets_look_like_one_as_often_as_the_corrected_formula_says() {
        let (lost, extra, cells, runs) = (40_u64, 50, 1_000, 12_000);
        let mut looking = 0;
        for seed in 0..runs {
            let settings = Settings { banks: 1, ..Settings::paper(cells, seed) };
            let [sender, receiver] = ends(lost, extra, &settings);
            let both = sender.cells.iter().zip(&receiver.cells);
            looking += both.filter(|(a, b)| a.count.abs_diff(b.count) == 1 && a.count + b.count > 1).count();
        }
        // a of one kind and a + 1 of the other.
        let m = cells as f64;
        let none = (1.0 - 1.0 / m).powf((lost + extra) as f64);
        let term = |a: u64| {
            (lost + extra - 2 * a) as f64 / ((a + 1) as f64 * (m - 1.0).powf((2 * a + 1) as f64))
                * choose(lost, a)
                * choose(extra, a)
        };
        let expected = none * (1..5).map(term).sum::<f64>();

        let found = looking as f64 / (runs as f64 * m);
        assert!((expected / 8.07e-5 - 1.0).abs() < 0.01, "{expected}");
        assert!((found / expected - 1.0).abs() < 0.12, "{found}, expected {expected}");
    }

    #[test]
    fn decoding_ends_for_any_cells() {
        for seed in 0..200 {
            let settings = Settings { seed, ..Settings::paper(8, seed) };
            let [sender, mut receiver] = ends(3, 0, &settings);
            for (place, cell) in (0..).zip(&mut receiver.cells) {
                cell.count = finalise(seed ^ place) % 3;
                cell.id = finalise(seed) >> (finalise(place) % 64);
            }
            for peeling in [Peeling::Printed, Peeling::UndoAndBan] {
                let found = Difference::between(&sender, &receiver, peeling).expect("one kind");
                assert!(found.steps <= 64 && found.lost.len() + found.reordered.len() <= 16);
            }
        }
    }

    #[test]
    fn an_id_that_shows_up_again_is_banned_and_everything_is_as_if_it_had_never_been_taken_out() {
        let settings = Settings::paper(8, 1);
        let [sender, mut receiver] = ends(0, 0, &settings);
        let hashes = Hashes::new(&settings);
        // In one of its two cells only: taken out there, it is missing in the other.
        let phantom = 0x1234_5678;
        let place = hashes.cell(phantom, 0);
        (receiver.cells[place].id, receiver.cells[place].count) = (phantom, 1);

        let found = Difference::between(&sender, &receiver, Peeling::UndoAndBan).expect("one kind");

        let nothing = Difference { lost: Vec::new(), reordered: Vec::new(), residual: 1, steps: 2, exhausted: false };
        assert_eq!(found, nothing);
        let printed = Difference::between(&sender, &receiver, Peeling::Printed).expect("one kind");
        assert!(printed.exhausted);
    }

    #[test]
    fn cells_of_other_settings_are_not_compared() {
        let [sender, _] = ends(1, 1, &Settings::paper(8, 1));
        let [other, _] = ends(1, 1, &Settings::paper(8, 2));

        assert_eq!(Difference::between(&sender, &other, Peeling::UndoAndBan), Err(MergeError));
    }
}
