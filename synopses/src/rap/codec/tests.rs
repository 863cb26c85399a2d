use super::*;
use crate::rap::HeavyHitters;

/// A stream of few heavy and many light keys.
fn keys(from: u64) -> impl Iterator<Item = Digest> {
    (from..from + 3_000).map(|number| Digest(if number % 3 == 0 { number % 7 } else { number * 77 % 500 }))
}

fn used<T: HeavyHitters>(mut table: T) -> T {
    keys(0).for_each(|key| table.insert(key));
    table
}

fn rap(admission: Admission) -> Rap {
    used(Rap::new(Settings { entries: 16, admission, seed: 3 }).expect("possible"))
}

fn way_settings() -> WaySettings {
    WaySettings { ways: 3, rows: 5, admission: Admission::PowerOfTwo, seed: 3 }
}

/// Both continue in the same way.
fn continues<T: HeavyHitters>(mut one: T, mut other: T) {
    assert_eq!(one.tally(), other.tally());
    assert!(one.entries().eq(other.entries()));
    for key in keys(5_000) {
        one.insert(key);
        other.insert(key);
        assert_eq!(one.estimate(key), other.estimate(key));
    }
    assert!(one.entries().eq(other.entries()));
}

#[test]
fn decoded_tables_continue_like_the_original() {
    for admission in [Admission::InverseOfNext, Admission::Inverse, Admission::PowerOfTwo] {
        let table = rap(admission);
        continues(Rap::decode(&table.encode(), 16).expect("what was encoded"), table);
    }
    let table = used(SpaceSaving::new(16, 3).expect("possible"));
    continues(SpaceSaving::decode(&table.encode(), 16).expect("what was encoded"), table);
    let table = used(Precision::new(way_settings()).expect("possible"));
    continues(Precision::decode(&table.encode(), 15).expect("what was encoded"), table);
    let table = used(DWayRap::new(way_settings()).expect("possible"));
    continues(DWayRap::decode(&table.encode(), 15).expect("what was encoded"), table);
}

#[test]
fn truncated_bytes_and_other_kinds_are_refused() {
    let encoded = rap(Admission::Inverse).encode();
    for cut in 0..encoded.len() {
        assert!(Rap::decode(&encoded[..cut], 16).is_err());
    }
    assert!(SpaceSaving::decode(&encoded, 16).is_err());
    assert!(Precision::decode(&used(DWayRap::new(way_settings()).expect("possible")).encode(), 15).is_err());
}

#[test]
fn few_bytes_cannot_exceed_the_memory_limit() {
    let large = Rap::new(Settings { entries: 1 << 20, ..Settings::default() }).expect("possible").encode();
    let ways = Precision::new(WaySettings { rows: 1 << 20, ..way_settings() }).expect("possible").encode();

    assert!(large.len() < 64 && ways.len() < 64);
    let refused = DecodeError::TooLarge { what: "entries", found: 1 << 20, most: 1 << 10 };
    assert_eq!(Rap::decode(&large, 1 << 10).err(), Some(refused));
    let refused = DecodeError::TooLarge { what: "rows", found: 1 << 20, most: 341 };
    assert_eq!(Precision::decode(&ways, 1 << 10).err(), Some(refused));
}

#[test]
fn impossible_values_are_refused_even_with_a_good_checksum() {
    let table = |entries: &[(u64, u8, u8)], rejected: u8| {
        let mut payload = Vec::from([4]);
        payload.extend([0; 8]);
        payload.extend([9, rejected, entries.len() as u8]);
        for (digest, count, since) in entries {
            payload.extend(digest.to_le_bytes());
            payload.extend([*count, *since]);
        }
        SpaceSaving::decode(&seal(Kind::SpaceSaving, &payload), 4)
    };

    assert!(table(&[(1, 2, 1), (2, 2, 2)], 9).is_ok());
    assert!(table(&[(1, 2, 1), (1, 2, 2)], 0).is_err(), "a key twice");
    assert!(table(&[(1, 3, 1), (2, 2, 2)], 0).is_err(), "descending");
    assert!(table(&[(1, 0, 0)], 0).is_err(), "no count");
    assert!(table(&[(1, 2, 3)], 0).is_err(), "more since admission than in all");
    assert!(table(&[], 10).is_err(), "more rejected than inserted");
    assert!(table(&[(1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 1, 1), (5, 1, 1)], 0).is_err(), "too many");

    let mut elsewhere = used(Precision::new(way_settings()).expect("possible"));
    elsewhere.cells.reverse();
    assert!(Precision::decode(&elsewhere.encode(), 15).is_err(), "entries where their keys have no place");
}
