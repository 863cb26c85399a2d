//! Limits of the regions that a host agent may announce. The host agent is a program on another machine: no length,
//! number or address of it is trusted beyond these limits.

use std::collections::{BTreeMap, BTreeSet};

use agent_runtime::shares::{ShareError, Shares};
use wire::control::RegionSpec;
use wire::id::{Owner, RegionId};

use crate::region_claim::RegionClaim;

/// Most regions of a worker, and what they take. Of each, one owner may hold three times what is free: three quarters
/// if it is alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionLimits {
    /// Most regions of all LMAPs.
    pub regions: usize,
    /// Most bytes of the pages in use of all regions. Each LMAP that names a region has a buffer of about that size.
    pub bytes: u64,
}

/// Why the regions of an LMAP are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionsError {
    /// Their owner would have more than its share of the worker's regions, or of their bytes. A further worker has room
    /// of its own.
    #[error(transparent)]
    Share(#[from] ShareError<Owner>),
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
    /// Each region counts once for each LMAP that names it, with the pages that the LMAP uses.
    count: Shares<Owner>,
    bytes: Shares<Owner>,
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
        Self {
            count: Shares::new("regions of this worker", "limits.regions", limits.regions as u64),
            bytes: Shares::new("bytes of regions of this worker", "limits.region_bytes", limits.bytes),
            ranges: BTreeMap::new(),
        }
    }

    /// Checks whether the regions of one LMAP fit into the limits, next to those in use and without those of the
    /// configuration that it replaces.
    pub(crate) fn check<'a>(
        &self,
        claims: impl Iterator<Item = &'a RegionClaim>,
        replaced: impl Iterator<Item = &'a RegionClaim>,
    ) -> Result<(), RegionsError> {
        let (mut count, mut bytes) = (self.count.clone(), self.bytes.clone());
        let (mut owners, mut new) = (BTreeSet::new(), BTreeMap::new());
        for claim in replaced {
            count.release(&claim.owner, 1);
            bytes.release(&claim.owner, claim.bytes);
        }
        for RegionClaim { spec, owner, bytes: more } in claims {
            count.add(*owner, 1);
            bytes.add(*owner, *more);
            owners.insert(*owner);
            let Some((start, end)) = range(spec)? else { continue };
            let other = overlap(&self.ranges, spec.id, start, end).or_else(|| overlap(&new, spec.id, start, end));
            if let Some(other) = other {
                return Err(RegionsError::Overlap { region: spec.id, other });
            }
            new.insert(start, (end, spec.id));
        }
        count.check_since(&self.count, owners.iter().copied())?;
        Ok(bytes.check_since(&self.bytes, owners)?)
    }

    /// Adds a region that an LMAP uses, at its announced address.
    pub(crate) fn add(&mut self, RegionClaim { spec, owner, bytes }: &RegionClaim) {
        self.count.add(*owner, 1);
        self.bytes.add(*owner, *bytes);
        if let Ok(Some((start, end))) = range(spec) {
            self.ranges.insert(start, (end, spec.id));
        }
    }

    /// Removes a region that an LMAP no longer uses.
    pub(crate) fn remove(&mut self, claim: &RegionClaim) {
        self.count.release(&claim.owner, 1);
        self.bytes.release(&claim.owner, claim.bytes);
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
mod tests;
