//! What is taken, and what is refused.

use proptest::prelude::*;

use super::*;
use wire::layout::RegionSize;

const PAGE: u64 = 4096;

fn spec(id: u64, address: u64) -> RegionClaim {
    let spec = RegionSpec {
        id: RegionId(id),
        size: RegionSize::ONE_PAGE,
        heartbeat: true,
        address,
        rkey: 1,
        sample_times: false,
    };
    RegionClaim { spec, owner: Owner::Agent, bytes: PAGE }
}

fn claim(id: u64, owner: Owner) -> RegionClaim {
    RegionClaim { owner, ..spec(id, 0) }
}

fn usage(regions: usize) -> RegionUsage {
    RegionUsage::new(RegionLimits { regions, bytes: 2 * regions as u64 * PAGE })
}

fn check(usage: &RegionUsage, claims: &[RegionClaim]) -> Result<(), RegionsError> {
    usage.check(claims.iter(), [].iter())
}

#[test]
fn regions_side_by_side_are_taken_and_overlapping_ones_are_not() {
    let mut usage = usage(10);
    usage.add(&spec(1, 10 * PAGE));

    assert_eq!(check(&usage, &[spec(2, 9 * PAGE), spec(3, 11 * PAGE)]), Ok(()));
    for address in [9 * PAGE + 8, 10 * PAGE, 11 * PAGE - 8] {
        let overlap = RegionsError::Overlap { region: RegionId(2), other: RegionId(1) };
        assert_eq!(check(&usage, &[spec(2, address)]), Err(overlap));
    }
    let overlap = RegionsError::Overlap { region: RegionId(3), other: RegionId(2) };
    assert_eq!(check(&usage, &[spec(2, 20 * PAGE), spec(3, 20 * PAGE + 8)]), Err(overlap));
}

#[test]
fn a_region_may_move_over_its_own_place() {
    let mut usage = usage(10);
    usage.add(&spec(1, 10 * PAGE));

    assert_eq!(check(&usage, &[spec(1, 10 * PAGE + 8)]), Ok(()));
    usage.free(RegionId(1), 10 * PAGE);
    usage.add(&spec(1, 20 * PAGE));

    assert_eq!(check(&usage, &[spec(2, 10 * PAGE)]), Ok(()));
    assert!(check(&usage, &[spec(2, 20 * PAGE)]).is_err());
    usage.free(RegionId(1), 20 * PAGE);
    assert_eq!(check(&usage, &[spec(2, 20 * PAGE)]), Ok(()));
}

#[test]
fn an_address_where_no_region_can_be_is_refused() {
    for address in [10 * PAGE + 1, u64::MAX - 7, u64::MAX] {
        let refused = check(&usage(10), &[spec(1, address)]);
        assert_eq!(refused, Err(RegionsError::Address { region: RegionId(1), address }));
    }
    assert_eq!(check(&usage(10), &[spec(1, 0), spec(2, 0)]), Ok(()), "without RDMA there is no address");
}

const ALICE: Owner = Owner::User(1000);
const BOB: Owner = Owner::User(1001);

#[test]
fn an_owner_gets_its_share_of_regions_and_of_bytes_before_they_cost_memory() {
    let mut usage = RegionUsage::new(RegionLimits { regions: 8, bytes: 100 * PAGE });
    for id in 1..=5 {
        usage.add(&claim(id, ALICE));
    }

    assert_eq!(check(&usage, &[claim(6, ALICE)]), Ok(()));
    let refused = check(&usage, &[claim(6, ALICE), claim(7, ALICE)]).unwrap_err().to_string();
    assert!(
        refused.starts_with("user 1000 would have 7 of 8 regions of this worker with 1 free")
            && refused.ends_with("user 1000 has most, 7: release some, or raise limits.regions"),
        "{refused}"
    );
    let large = RegionClaim { bytes: 71 * PAGE, ..claim(6, ALICE) };
    let refused = check(&usage, &[large]).unwrap_err().to_string();
    assert!(refused.contains("311296 of 409600 bytes") && refused.ends_with("raise limits.region_bytes"), "{refused}");
}

#[test]
fn a_newcomer_finds_room_beside_an_owner_that_took_all_it_could() {
    let mut usage = RegionUsage::new(RegionLimits { regions: 65_536, bytes: 1 << 30 });
    let huge = |id| RegionClaim { bytes: 16 << 20, ..claim(id, ALICE) };
    let taken = (1..).take_while(|id| {
        let fits = check(&usage, &[huge(*id)]).is_ok();
        if fits {
            usage.add(&huge(*id));
        }
        fits
    });
    assert_eq!(taken.count(), 48, "three quarters");

    assert_eq!(check(&usage, &[claim(100, BOB)]), Ok(()));
    let sixteen_pages = RegionClaim { bytes: 16 * PAGE, ..claim(101, BOB) };
    assert_eq!(check(&usage, &[sixteen_pages]), Ok(()));
}

#[test]
fn a_region_counts_in_each_lmap_that_names_it_with_the_pages_that_it_uses() {
    let mut usage = usage(2);
    usage.add(&claim(1, ALICE));
    let grown = RegionClaim { bytes: 4 * PAGE, ..claim(1, ALICE) };
    let replaced = [claim(1, ALICE)];

    assert!(usage.check([grown].iter(), replaced.iter()).is_err());
    assert_eq!(usage.check([claim(1, ALICE)].iter(), replaced.iter()), Ok(()));
    usage.add(&claim(1, ALICE));
    assert!(check(&usage, &[claim(1, ALICE)]).is_err(), "in another LMAP");
    usage.remove(&claim(1, ALICE));
    assert_eq!(usage.check([claim(1, ALICE), claim(2, ALICE)].iter(), replaced.iter()), Ok(()));
}

#[test]
fn an_lmap_keeps_its_regions_when_others_have_come_since() {
    let mut usage = RegionUsage::new(RegionLimits { regions: 100, bytes: 1 << 30 });
    (1..=75).for_each(|id| usage.add(&claim(id, ALICE)));
    (76..=90).for_each(|id| usage.add(&claim(id, BOB)));

    assert_eq!(usage.check([claim(1, ALICE)].iter(), [claim(1, ALICE)].iter()), Ok(()));
    assert!(usage.check([claim(1, ALICE), claim(91, ALICE)].iter(), [claim(1, ALICE)].iter()).is_err());
}

proptest! {
    #[test]
    fn what_is_taken_keeps_to_the_bounds_and_lies_in_no_other_regions_place(
        claimed in proptest::collection::vec((1_u64..20, addresses(), 1_u64..4), 0..40),
    ) {
        let mut usage = usage(8);
        let mut taken: Vec<RegionClaim> = Vec::new();
        for (id, address, pages) in claimed {
            let size = RegionSize::new(pages * PAGE).unwrap();
            let spec = RegionSpec { size, ..spec(id, address).spec };
            let claim = RegionClaim { spec, owner: Owner::Agent, bytes: pages * PAGE };
            let is_known = taken.iter().any(|other| other.spec.id == spec.id);
            if !is_known && check(&usage, &[claim]).is_ok() {
                usage.add(&claim);
                taken.push(claim);
            }
        }

        prop_assert!(taken.len() <= 8);
        prop_assert!(taken.iter().map(|claim| claim.bytes).sum::<u64>() <= 16 * PAGE);
        let mut places: Vec<_> = taken.iter().map(|claim| claim.spec).filter(|claim| claim.address > 0).collect();
        places.sort_by_key(|claim| claim.address);
        for (n, claim) in places.iter().enumerate() {
            let end = claim.address.checked_add(claim.size.bytes() as u64);
            prop_assert!(end.is_some(), "it ends behind the end of memory");
            prop_assert!(places.get(n + 1).is_none_or(|next| end.unwrap() <= next.address), "{places:?}");
        }
    }
}

/// Valid addresses, and some invalid ones.
fn addresses() -> impl Strategy<Value = u64> {
    let near = (0_u64..40).prop_map(|half_pages| half_pages * PAGE / 2);
    prop_oneof![near, Just(0), Just(PAGE + 1), (0_u64..3).prop_map(|pages| u64::MAX - pages * PAGE), any::<u64>()]
}
