use super::*;
use crate::cardinality::{Hash, Range};
use alloc::vec::Vec;

fn settings() -> Settings {
    Settings { registers: 16, window_ns: 800, start_ns: 0, hash: Hash::Ready32 }
}

#[test]
fn one_register_is_reset_per_slot() {
    let mut staggered = StHll::new(StHllSettings::plain(settings())).expect("possible");
    staggered.registers.fill(9);

    // A slot is 100 ns.
    staggered.tick(99);
    assert!(staggered.registers.iter().all(|rank| *rank == 9));
    staggered.tick(350);
    assert_eq!(&staggered.registers[..5], [9, 0, 0, 0, 9]);
    staggered.tick(200);
    assert_eq!(staggered.slot, 3, "a slot never comes again");
    staggered.tick(1_500);
    assert!(staggered.registers[1..].iter().all(|rank| *rank == 0));
    assert_eq!(staggered.registers[0], 9, "its turn is slot 16");
    staggered.registers.fill(9);
    staggered.tick(1_500 + 1_600);
    assert!(staggered.registers.iter().all(|rank| *rank == 0));
}

#[test]
fn registers_are_skipped_by_age_and_not_by_place() {
    let plain = StHllSettings::plain(settings());
    let mut staggered = StHll::new(StHllSettings { skipped: 4, ..plain }).expect("possible");
    staggered.go_to(21);

    // Slot 21 has just reset register 5; registers 5, 4, 3 and 2 are the youngest.
    staggered.registers.copy_from_slice(&[1, 1, 7, 7, 7, 7, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    assert!(staggered.kept(2_150).all(|register| register.rank == 1));
    let ages: Vec<_> = staggered.kept(2_150).map(|register| register.share * 16.0).collect();
    assert_eq!((ages.len(), ages[0], ages[11]), (12, 450.0, 1_550.0));
}

#[test]
fn a_register_without_an_age_adds_nothing() {
    let raw = StHllSettings { correction: Correction::None, ..StHllSettings::plain(settings()) };
    let mut staggered = StHll::new(raw).expect("possible");
    staggered.go_to(32);
    staggered.registers.fill(1);
    let count = staggered.estimate(3_200, 800).expect("the window").count;

    // At the boundary the ages are 0 to 15 slots: the mean has 16 registers, the sum 120 slots.
    let expected = 0.673 * 16.0 / (120.0 * 100.0 / 16.0 / 2.0) * 800.0;
    assert!((count - expected).abs() < 1e-9, "{count}, expected {expected}");
}

const CORRECTIONS: [Correction; 4] =
    [Correction::None, Correction::Published, Correction::Staggered, Correction::Likelihood];

fn corrected(correction: Correction) -> StHll {
    StHll::new(StHllSettings { correction, ..StHllSettings::plain(settings()) }).expect("possible")
}

#[test]
fn an_empty_synopsis_has_a_floor_only_without_a_correction() {
    for correction in CORRECTIONS {
        let found = corrected(correction).estimate(3_250, 800).expect("the window");

        // In the middle of a slot ages are W on average.
        let floor = if correction == Correction::None { 0.673 * 16.0 } else { 0.0 };
        assert!((found.count - floor).abs() < 1e-9 && found.warm, "{correction:?}: {found:?}");
    }
}

#[test]
fn few_items_of_which_each_register_has_one_are_not_counted_by_empty_registers() {
    for correction in [Correction::None, Correction::Published, Correction::Staggered] {
        let mut staggered = corrected(correction);
        staggered.go_to(32);
        staggered.registers.fill(1);
        let found = staggered.estimate(3_250, 800).expect("the window");

        assert!((found.count - 2.0 * 0.673 * 16.0).abs() < 1e-9, "{correction:?}: {found:?}");
        assert_eq!(found.range, Range::Middle, "{correction:?}");
    }
}

#[test]
fn at_the_moment_of_the_start_nothing_is_counted_yet() {
    let common = Settings { start_ns: 5_000, ..settings() };
    for correction in CORRECTIONS {
        for skipped in [0, 2] {
            let all = StHllSettings { skipped, correction, ..StHllSettings::plain(common) };
            let mut staggered = StHll::new(all).expect("possible");
            (0..100).for_each(|item| staggered.insert(Digest(item << 4 | (item % 16)), 5_000));

            let found = staggered.estimate(5_000, 800).expect("the window");
            assert_eq!((found.count, found.rate, found.warm), (0.0, 0.0, false), "{correction:?}, {skipped}");
            let next = staggered.estimate(5_001, 800).expect("the window");
            assert!(next.count.is_finite() && next.count > 0.0, "{correction:?}, {skipped}: {next:?}");
        }
    }
}
