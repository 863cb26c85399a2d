//! What the host agent claims of regions, held against the worker's own bounds: it is another machine's program, and no length, number or
//! address of it is believed beyond them.

use std::collections::BTreeMap;

use wire::control::RegionSpec;
use wire::id::RegionId;

/// How many regions a worker takes, and how large they may be together: each has a buffer of its size in every LMAP that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionLimits {
    /// Regions of all LMAPs.
    pub regions: usize,
    /// Bytes of all regions.
    pub bytes: u64,
}

/// Why the regions of an LMAP are not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionsError {
    /// Too many.
    #[error("with these there are {found} regions, {limit} are taken: raise limits.regions, or add a worker")]
    TooMany {
        /// How many there would be.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Too large together.
    #[error("with these the regions have {found} bytes, {limit} are taken: raise limits.region_bytes, or add a worker")]
    TooLarge {
        /// How many bytes there would be.
        found: u64,
        /// How many there may be.
        limit: u64,
    },
    /// An address where no region can be.
    #[error("{region} is said to be at {address:#x}: words are aligned, and a region ends before memory does")]
    Address {
        /// Which region.
        region: RegionId,
        /// Where it is said to be.
        address: u64,
    },
    /// Two regions in one place: values of the one would stand under metrics of the other.
    #[error("{region} and {other} are said to be in the same memory")]
    Overlap {
        /// Which region.
        region: RegionId,
        /// The other one.
        other: RegionId,
    },
}

/// The regions in use, with what was claimed of them.
#[derive(Debug)]
pub(crate) struct Claims {
    limits: RegionLimits,
    /// Regions, and their bytes: once for each LMAP that names them, with the size that it names.
    count: usize,
    bytes: u64,
    /// Start → end and whose, of regions with an address.
    ranges: BTreeMap<u64, (u64, RegionId)>,
}

/// Where a region is said to be, end excluded; `None` without RDMA.
fn range(spec: &RegionSpec) -> Result<Option<(u64, u64)>, RegionsError> {
    if spec.address == 0 {
        return Ok(None);
    }
    let end = spec.address.checked_add(spec.size.bytes() as u64);
    match end {
        Some(end) if spec.address.is_multiple_of(8) => Ok(Some((spec.address, end))),
        _ => Err(RegionsError::Address { region: spec.id, address: spec.address }),
    }
}

impl Claims {
    pub(crate) const fn new(limits: RegionLimits) -> Self {
        Self { limits, count: 0, bytes: 0, ranges: BTreeMap::new() }
    }

    /// Whether the regions of one LMAP can be taken beside those in use, less those in use by the configuration that it replaces.
    pub(crate) fn check<'a>(
        &self,
        specs: impl Iterator<Item = &'a RegionSpec>,
        replaced: impl Iterator<Item = &'a RegionSpec>,
    ) -> Result<(), RegionsError> {
        let (mut count, mut bytes, mut new) = (self.count, self.bytes, BTreeMap::new());
        for spec in replaced {
            count = count.saturating_sub(1);
            bytes = bytes.saturating_sub(spec.size.bytes() as u64);
        }
        for spec in specs {
            count += 1;
            bytes += spec.size.bytes() as u64;
            let Some((start, end)) = range(spec)? else { continue };
            let other = overlap(&self.ranges, spec.id, start, end).or_else(|| overlap(&new, spec.id, start, end));
            if let Some(other) = other {
                return Err(RegionsError::Overlap { region: spec.id, other });
            }
            new.insert(start, (end, spec.id));
        }
        let RegionLimits { regions, bytes: most } = self.limits;
        if count > regions {
            return Err(RegionsError::TooMany { found: count, limit: regions });
        }
        if bytes > most {
            return Err(RegionsError::TooLarge { found: bytes, limit: most });
        }
        Ok(())
    }

    /// One more LMAP uses a region, which is said to be there from now on.
    pub(crate) fn add(&mut self, spec: &RegionSpec) {
        self.count += 1;
        self.bytes += spec.size.bytes() as u64;
        if let Ok(Some((start, end))) = range(spec) {
            self.ranges.insert(start, (end, spec.id));
        }
    }

    /// One LMAP less uses a region.
    pub(crate) fn remove(&mut self, spec: &RegionSpec) {
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(spec.size.bytes() as u64);
    }

    /// A region is not at `address` any more.
    pub(crate) fn free(&mut self, region: RegionId, address: u64) {
        if self.ranges.get(&address).is_some_and(|(_, owner)| *owner == region) {
            self.ranges.remove(&address);
        }
    }
}

/// Another region than `id` between `start` and `end`. Those in `ranges` do not overlap each other, so that the last one that begins before
/// `end` and is not `id` itself is the one to look at.
fn overlap(ranges: &BTreeMap<u64, (u64, RegionId)>, id: RegionId, start: u64, end: u64) -> Option<RegionId> {
    let mut before = ranges.range(..end).rev().filter(|(_, (_, owner))| *owner != id);
    before.next().filter(|(_, (other_end, _))| *other_end > start).map(|(_, (_, owner))| *owner)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use wire::layout::RegionSize;

    const PAGE: u64 = 4096;

    fn spec(id: u64, address: u64) -> RegionSpec {
        RegionSpec { id: RegionId(id), size: RegionSize::ONE_PAGE, heartbeat: true, address, rkey: 1 }
    }

    fn claims(regions: usize) -> Claims {
        Claims::new(RegionLimits { regions, bytes: regions as u64 * PAGE })
    }

    fn check(claims: &Claims, specs: &[RegionSpec]) -> Result<(), RegionsError> {
        claims.check(specs.iter(), [].iter())
    }

    #[test]
    fn regions_side_by_side_are_taken_and_overlapping_ones_are_not() {
        let mut claims = claims(10);
        claims.add(&spec(1, 10 * PAGE));

        assert_eq!(check(&claims, &[spec(2, 9 * PAGE), spec(3, 11 * PAGE)]), Ok(()));
        for address in [9 * PAGE + 8, 10 * PAGE, 11 * PAGE - 8] {
            let overlap = RegionsError::Overlap { region: RegionId(2), other: RegionId(1) };
            assert_eq!(check(&claims, &[spec(2, address)]), Err(overlap));
        }
        let overlap = RegionsError::Overlap { region: RegionId(3), other: RegionId(2) };
        assert_eq!(check(&claims, &[spec(2, 20 * PAGE), spec(3, 20 * PAGE + 8)]), Err(overlap));
    }

    #[test]
    fn a_region_may_move_over_its_own_place() {
        let mut claims = claims(10);
        claims.add(&spec(1, 10 * PAGE));

        assert_eq!(check(&claims, &[spec(1, 10 * PAGE + 8)]), Ok(()));
        claims.free(RegionId(1), 10 * PAGE);
        claims.add(&spec(1, 20 * PAGE));

        assert_eq!(check(&claims, &[spec(2, 10 * PAGE)]), Ok(()));
        assert!(check(&claims, &[spec(2, 20 * PAGE)]).is_err());
        claims.free(RegionId(1), 20 * PAGE);
        assert_eq!(check(&claims, &[spec(2, 20 * PAGE)]), Ok(()));
    }

    #[test]
    fn an_address_where_no_region_can_be_is_refused() {
        for address in [10 * PAGE + 1, u64::MAX - 7, u64::MAX] {
            let refused = check(&claims(10), &[spec(1, address)]);
            assert_eq!(refused, Err(RegionsError::Address { region: RegionId(1), address }));
        }
        assert_eq!(check(&claims(10), &[spec(1, 0), spec(2, 0)]), Ok(()), "without RDMA there is no address");
    }

    #[test]
    fn more_regions_or_bytes_than_a_worker_takes_are_refused_before_they_cost_memory() {
        let mut claims = claims(2);
        claims.add(&spec(1, 0));

        assert_eq!(check(&claims, &[spec(2, 0)]), Ok(()));
        let refused = check(&claims, &[spec(2, 0), spec(3, 0)]);
        assert_eq!(refused, Err(RegionsError::TooMany { found: 3, limit: 2 }));
        let large = RegionSpec { size: RegionSize::new(2 * PAGE).unwrap(), ..spec(2, 0) };
        assert_eq!(check(&claims, &[large]), Err(RegionsError::TooLarge { found: 3 * PAGE, limit: 2 * PAGE }));
    }

    #[test]
    fn a_region_counts_in_each_lmap_that_names_it_with_the_size_that_it_names() {
        let mut claims = claims(2);
        claims.add(&spec(1, 0));
        let grown = RegionSpec { size: RegionSize::new(3 * PAGE).unwrap(), ..spec(1, 0) };
        let replaced = [spec(1, 0)];

        let refused = claims.check([grown].iter(), replaced.iter());
        assert_eq!(refused, Err(RegionsError::TooLarge { found: 3 * PAGE, limit: 2 * PAGE }));
        assert_eq!(claims.check([spec(1, 0), spec(2, 0)].iter(), replaced.iter()), Ok(()));
        assert_eq!(check(&claims, &[spec(1, 0)]), Ok(()), "in another LMAP");
        claims.add(&spec(1, 0));
        assert_eq!(check(&claims, &[spec(1, 0)]), Err(RegionsError::TooMany { found: 3, limit: 2 }));
        claims.remove(&spec(1, 0));
        assert_eq!(check(&claims, &[spec(2, 0)]), Ok(()));
    }

    proptest! {
        #[test]
        fn what_is_taken_keeps_to_the_bounds_and_lies_in_no_other_regions_place(
            claimed in proptest::collection::vec((1_u64..20, addresses(), 1_u64..4), 0..40),
        ) {
            let mut claims = claims(8);
            let mut taken: Vec<RegionSpec> = Vec::new();
            for (id, address, pages) in claimed {
                let size = RegionSize::new(pages * PAGE).unwrap();
                let claim = RegionSpec { size, ..spec(id, address) };
                let is_known = taken.iter().any(|other| other.id == claim.id);
                if !is_known && check(&claims, &[claim]).is_ok() {
                    claims.add(&claim);
                    taken.push(claim);
                }
            }

            prop_assert!(taken.len() <= 8);
            prop_assert!(taken.iter().map(|claim| claim.size.bytes() as u64).sum::<u64>() <= 8 * PAGE);
            let mut places: Vec<_> = taken.iter().filter(|claim| claim.address > 0).collect();
            places.sort_by_key(|claim| claim.address);
            for (n, claim) in places.iter().enumerate() {
                let end = claim.address.checked_add(claim.size.bytes() as u64);
                prop_assert!(end.is_some(), "it ends behind the end of memory");
                prop_assert!(places.get(n + 1).is_none_or(|next| end.unwrap() <= next.address), "{places:?}");
            }
        }
    }

    /// Addresses that there may be, and some that there may not.
    fn addresses() -> impl Strategy<Value = u64> {
        let near = (0_u64..40).prop_map(|half_pages| half_pages * PAGE / 2);
        prop_oneof![near, Just(0), Just(PAGE + 1), (0_u64..3).prop_map(|pages| u64::MAX - pages * PAGE), any::<u64>()]
    }
}
