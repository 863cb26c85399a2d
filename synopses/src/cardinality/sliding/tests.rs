use super::*;
use alloc::vec::Vec;

fn list(entries: &[(u64, u8)]) -> Maxima {
    let mut list = Maxima::EMPTY;
    for (time, rank) in entries {
        list.insert(*time, *rank);
    }
    list
}

fn entries(list: &Maxima) -> Vec<(u64, u8)> {
    list.iter().collect()
}

#[test]
fn an_entry_drops_those_that_are_no_newer_and_no_larger() {
    assert_eq!(entries(&list(&[(1, 5), (2, 3), (3, 1), (4, 3)])), [(1, 5), (4, 3)]);
    assert_eq!(entries(&list(&[(1, 5), (2, 3), (3, 9)])), [(3, 9)]);
    assert_eq!(entries(&list(&[(1, 5), (1, 3)])), [(1, 5)]);
    assert_eq!(entries(&list(&[(1, 3), (1, 5)])), [(1, 5)]);
}

#[test]
fn a_late_entry_takes_its_place_in_time() {
    let list = |late| {
        let mut list = list(&[(10, 9), (20, 5), (30, 2)]);
        list.insert(15, late);
        entries(&list)
    };

    assert_eq!(list(5), [(10, 9), (20, 5), (30, 2)]);
    assert_eq!(list(7), [(10, 9), (15, 7), (20, 5), (30, 2)]);
    assert_eq!(list(9), [(15, 9), (20, 5), (30, 2)]);
}

#[test]
fn a_list_of_all_ranks_is_full_and_not_longer() {
    let mut full = list(&(1..=32).rev().map(|rank| (40 - u64::from(rank), rank)).collect::<Vec<_>>());
    assert_eq!(full.len(), MAX_ENTRIES);

    full.insert(50, 1);
    full.insert(3, 20);
    assert_eq!((full.len(), full.rank(0), full.rank(9), full.rank(50), full.rank(51)), (32, 32, 31, 1, 0));
    full.expire(30);
    assert_eq!(full.iter().next(), Some((30, 10)));
}
