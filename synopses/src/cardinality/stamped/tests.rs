use proptest::prelude::*;

use super::*;
use crate::cardinality::Hash;
use crate::digest::finalise;

fn stamped(rounding: Rounding, slot_ns: u64) -> TsPcsa {
    let common = Settings { registers: 16, window_ns: 8 * slot_ns, start_ns: 0, hash: Hash::Ready32 };
    TsPcsa::new(TsPcsaSettings { rounding, ..TsPcsaSettings::plus(common) }).expect("possible")
}

#[test]
fn the_stamp_of_a_slot_changes_when_the_slot_does() {
    for rounding in [Rounding::Closest, Rounding::Down, Rounding::Up] {
        for slot_ns in [1, 2, 7, 10] {
            let mut stamped = stamped(rounding, slot_ns);
            for now_ns in 0..60 {
                if now_ns >= stamped.next_ns {
                    stamped.begin_slot(now_ns);
                }
                assert_eq!(
                    stamped.stamp,
                    stamped.stamp_of(stamped.rounded(now_ns)),
                    "{rounding:?}, {slot_ns}, {now_ns}"
                );
            }
        }
    }
    assert_eq!([14, 15, 24, 25].map(|now_ns| stamped(Rounding::Closest, 10).rounded(now_ns)), [1, 2, 2, 3]);
}

#[test]
fn all_positions_of_a_register_count() {
    let mut stamped = stamped(Rounding::Closest, 10);
    // All ranks of register 0, those beyond the last position included.
    (4..20).for_each(|bit| stamped.insert(Digest(1 << bit), 5));

    assert_eq!(stamped.runs(5, 80), (10, 15));
    // The second position goes missing.
    stamped.cells.set(1, 0);
    assert_eq!(stamped.runs(5, 80), (1, 15));
    stamped.cells.set(0, 0);
    assert_eq!(stamped.runs(5, 80), (0, 15), "without a run, but not empty");
}

#[test]
fn offsets_are_from_minus_half_a_slot_to_half_a_slot() {
    let stamped = stamped(Rounding::Closest, 10);
    // At 100 ns the window begins at 20 ns: the age of slot 2 is 9, from the reference, which is slot 11.
    let limits = stamped.limits(100, 80);

    assert_eq!((0..16).map(|register| limits.of(register)).filter(|limit| *limit == 8).count(), 8);
    assert_eq!((limits.of(7), limits.of(8), limits.of(15)), (8, 9, 9));
    // A window that begins in the middle of a slot.
    let limits = stamped.limits(105, 80);
    assert_eq!((limits.of(0), limits.of(1), limits.of(14), limits.of(15)), (8, 8, 8, 9));
}

#[test]
fn an_older_stamp_does_not_take_a_newer_ones_place() {
    let mut stamped = stamped(Rounding::Down, 10);
    stamped.insert(Digest(1 << 4), 70);
    stamped.insert(Digest(1 << 4), 10);
    stamped.insert(Digest(1 << 5), 10);
    let ages = [0, 1].map(|at| stamped.age(stamped.cells.get(at), stamped.reference(70)));

    assert_eq!(ages, [Some(1), Some(7)]);
    assert_eq!((stamped.tally.late, stamped.tally.dropped), (2, 0));
    stamped.insert(Digest(1 << 4), 200);
    stamped.insert(Digest(1 << 4), 100);
    assert_eq!(stamped.tally.dropped, 1);
}

/// The runs, one cell after another.
fn runs_of_cells(stamped: &TsPcsa, now_ns: u64, window_ns: u64) -> (u64, usize) {
    let (limits, reference) = (stamped.limits(now_ns, window_ns), stamped.reference(now_ns));
    let (mut runs, mut empty) = (0, 0);
    for register in 0..stamped.settings.common.registers {
        let limit = limits.of(register);
        let is_fresh = |at: &usize| stamped.is_fresh(stamped.cells.get(*at), reference, limit);
        let run = stamped.positions(register).take_while(is_fresh).count();
        runs += run as u64;
        empty += usize::from(run == 0 && !stamped.positions(register).any(|at| is_fresh(&at)));
    }
    (runs, empty)
}

proptest! {
    #[test]
    fn positions_that_are_compared_side_by_side_have_the_runs_of_single_cells(
        (log_registers, positions, more_bits) in (4_u32..8, 1_usize..=60, 0_u32..20),
        (slots, slot_ns, offsets) in (4_u64..20, 1_u64..50, any::<bool>()),
        (now_ns, asked, seed, empty_share) in (0_u64..5_000, any::<u64>(), any::<u64>(), 0_u64..8),
    ) {
        let longest_ns = slots * slot_ns;
        let common =
            Settings { registers: 1 << log_registers, window_ns: longest_ns, start_ns: 0, hash: Hash::Ready32 };
        let plus = TsPcsaSettings { positions, slot_ns, offsets, ..TsPcsaSettings::plus(common) };
        let settings = TsPcsaSettings { prune_ns: longest_ns, ..plus };
        let bits = (settings.least_bits().expect("slots have a length") + more_bits).min(24);
        let mut stamped = TsPcsa::new(TsPcsaSettings { bits, ..settings }).expect("possible");
        let reference = stamped.reference(now_ns);
        for at in 0..common.registers * positions {
            let random = finalise(seed.wrapping_add(at as u64));
            // Of the window and some slots before it; some without a flag.
            let slot = reference.wrapping_sub((random >> 8) % (slots + 3));
            let flag = u32::from(random % 8 >= empty_share);
            stamped.cells.set(at, stamped.stamp_of(slot) & !1 | flag);
        }

        let window_ns = (4 * slot_ns).max(asked % (longest_ns + 1));
        prop_assert_eq!(stamped.runs(now_ns, window_ns), runs_of_cells(&stamped, now_ns, window_ns));
    }
}
