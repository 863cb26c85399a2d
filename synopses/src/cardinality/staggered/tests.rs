use super::*;
use crate::cardinality::Hash;
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
