//! Limits of the regions that a host agent may announce. The host agent is a program on another machine: no length,
//! number or address of it is trusted beyond these limits.

use std::collections::BTreeMap;

use wire::control::RegionSpec;
use wire::id::RegionId;

/// Most regions of a worker, and their total size. Each region has a buffer of its size in every LMAP that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionLimits {
    /// Most regions of all LMAPs.
    pub regions: usize,
    /// Most bytes of all regions.
    pub bytes: u64,
}

/// Why the regions of an LMAP are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionsError {
    /// There would be more regions than the limit.
    #[error("{found} regions exceed the limit of {limit}: raise limits.regions, or add a worker")]
    TooMany {
        /// Regions that there would be.
        found: usize,
        /// The limit, in regions.
        limit: usize,
    },
    /// The regions would be larger than the limit together.
    #[error("regions of {found} bytes exceed the limit of {limit}: raise limits.region_bytes, or add a worker")]
    TooLarge {
        /// Bytes that there would be.
        found: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// No region can be at this address.
    #[error(
        "{region} is announced at {address:#x}: the address has to be a multiple of 8, and the region has to end before 2^64"
    )]
    Address {
        /// The region with the wrong address.
        region: RegionId,
        /// The announced address.
        address: u64,
    },
    /// Two regions overlap in memory, so values of one would be read as metrics of the other.
    #[error("{region} and {other} are announced in overlapping memory")]
    Overlap {
        /// The announced region.
        region: RegionId,
        /// The region that it overlaps.
        other: RegionId,
    },
}

/// The regions in use: their number, their bytes and their address ranges.
#[derive(Debug)]
pub(crate) struct RegionUsage {
    limits: RegionLimits,
    /// Each region counts once for each LMAP that names it, with the size that the LMAP names.
    count: usize,
    bytes: u64,
    /// Start → end and owner, of regions with an address.
    ranges: BTreeMap<u64, (u64, RegionId)>,
}

/// The announced address range, end excluded; `None` without RDMA.
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

impl RegionUsage {
    pub(crate) const fn new(limits: RegionLimits) -> Self {
        Self { limits, count: 0, bytes: 0, ranges: BTreeMap::new() }
    }

    /// Checks whether the regions of one LMAP fit into the limits, next to those in use and without those of the
    /// configuration that it replaces.
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

    /// Adds a region that an LMAP uses, at its announced address.
    pub(crate) fn add(&mut self, spec: &RegionSpec) {
        self.count += 1;
        self.bytes += spec.size.bytes() as u64;
        if let Ok(Some((start, end))) = range(spec) {
            self.ranges.insert(start, (end, spec.id));
        }
    }

    /// Removes a region that an LMAP no longer uses.
    pub(crate) fn remove(&mut self, spec: &RegionSpec) {
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(spec.size.bytes() as u64);
    }

    /// Frees the address range of a region.
    pub(crate) fn free(&mut self, region: RegionId, address: u64) {
        if self.ranges.get(&address).is_some_and(|(_, owner)| *owner == region) {
            self.ranges.remove(&address);
        }
    }
}

/// A region other than `id` between `start` and `end`. Regions in `ranges` do not overlap each other, so only the last
/// one that begins before `end` can overlap.
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

    fn usage(regions: usize) -> RegionUsage {
        RegionUsage::new(RegionLimits { regions, bytes: regions as u64 * PAGE })
    }

    fn check(usage: &RegionUsage, specs: &[RegionSpec]) -> Result<(), RegionsError> {
        usage.check(specs.iter(), [].iter())
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

    #[test]
    fn more_regions_or_bytes_than_a_worker_takes_are_refused_before_they_cost_memory() {
        let mut usage = usage(2);
        usage.add(&spec(1, 0));

        assert_eq!(check(&usage, &[spec(2, 0)]), Ok(()));
        let refused = check(&usage, &[spec(2, 0), spec(3, 0)]);
        assert_eq!(refused, Err(RegionsError::TooMany { found: 3, limit: 2 }));
        let large = RegionSpec { size: RegionSize::new(2 * PAGE).unwrap(), ..spec(2, 0) };
        assert_eq!(check(&usage, &[large]), Err(RegionsError::TooLarge { found: 3 * PAGE, limit: 2 * PAGE }));
    }

    #[test]
    fn a_region_counts_in_each_lmap_that_names_it_with_the_size_that_it_names() {
        let mut usage = usage(2);
        usage.add(&spec(1, 0));
        let grown = RegionSpec { size: RegionSize::new(3 * PAGE).unwrap(), ..spec(1, 0) };
        let replaced = [spec(1, 0)];

        let refused = usage.check([grown].iter(), replaced.iter());
        assert_eq!(refused, Err(RegionsError::TooLarge { found: 3 * PAGE, limit: 2 * PAGE }));
        assert_eq!(usage.check([spec(1, 0), spec(2, 0)].iter(), replaced.iter()), Ok(()));
        assert_eq!(check(&usage, &[spec(1, 0)]), Ok(()), "in another LMAP");
        usage.add(&spec(1, 0));
        assert_eq!(check(&usage, &[spec(1, 0)]), Err(RegionsError::TooMany { found: 3, limit: 2 }));
        usage.remove(&spec(1, 0));
        assert_eq!(check(&usage, &[spec(2, 0)]), Ok(()));
    }

    proptest! {
        #[test]
        fn what_is_taken_keeps_to_the_bounds_and_lies_in_no_other_regions_place(
            claimed in proptest::collection::vec((1_u64..20, addresses(), 1_u64..4), 0..40),
        ) {
            let mut usage = usage(8);
            let mut taken: Vec<RegionSpec> = Vec::new();
            for (id, address, pages) in claimed {
                let size = RegionSize::new(pages * PAGE).unwrap();
                let claim = RegionSpec { size, ..spec(id, address) };
                let is_known = taken.iter().any(|other| other.id == claim.id);
                if !is_known && check(&usage, &[claim]).is_ok() {
                    usage.add(&claim);
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

    /// Valid addresses, and some invalid ones.
    fn addresses() -> impl Strategy<Value = u64> {
        let near = (0_u64..40).prop_map(|half_pages| half_pages * PAGE / 2);
        prop_oneof![near, Just(0), Just(PAGE + 1), (0_u64..3).prop_map(|pages| u64::MAX - pages * PAGE), any::<u64>()]
    }
}
