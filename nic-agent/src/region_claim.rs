//! What an LMAP takes with its regions: words that are fetched, bytes that are kept.

use core::ops::Range;
use std::collections::BTreeMap;

use transport::Runs;
use wire::control::{LmapSpec, MetricSpec, RegionSpec};
use wire::id::{Owner, RegionId};
use wire::layout::Slot;
use wire::metric::Kind;

/// Length of a header, in words.
const HEADER_WORDS: usize = Slot(0).word();
/// Bytes of a slot of a histogram besides its buffer: its value at the last read, and its increase in all replicas.
const HISTOGRAM_SLOT_BYTES: u64 = 16;

/// What an LMAP takes with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionClaim {
    pub(crate) spec: RegionSpec,
    pub(crate) owner: Owner,
    /// Bytes of the pages that hold slots in use, and of the header's; and of what is kept of histograms until the next
    /// read.
    pub(crate) bytes: u64,
}

impl RegionClaim {
    /// The claims of all regions of `spec`.
    pub(crate) fn of(spec: &LmapSpec) -> Vec<Self> {
        let (runs, histograms) = (runs(spec), histogram_bytes(spec));
        let bytes = |region: &RegionSpec| {
            let pages = runs.get(&region.id).map_or(0, Runs::page_bytes);
            pages + histograms.get(&region.id).copied().unwrap_or(0)
        };
        let claims = spec.replicas.iter().flat_map(|replica| {
            replica.regions.iter().map(move |region| Self { spec: *region, owner: replica.owner, bytes: bytes(region) })
        });
        claims.collect()
    }
}

/// The words in use of each region of `spec`, header included. Others are neither fetched nor paid for.
pub(crate) fn runs(spec: &LmapSpec) -> BTreeMap<RegionId, Runs> {
    let slots: BTreeMap<_, _> = spec.metrics.iter().map(|metric| (metric.id, metric.series.kind.slots())).collect();
    let mut used: BTreeMap<RegionId, Vec<Range<usize>>> = BTreeMap::new();
    for region in spec.replicas.iter().flat_map(|replica| &replica.regions) {
        used.entry(region.id).or_default().push(0..HEADER_WORDS);
    }
    for place in spec.replicas.iter().flat_map(|replica| &replica.places) {
        let (Some(slots), Some(used)) = (slots.get(&place.metric), used.get_mut(&place.region)) else { continue };
        used.push(place.first.word()..place.first.word() + *slots as usize);
    }
    used.into_iter().map(|(region, used)| (region, Runs::covering(used))).collect()
}

/// What is kept of the histograms in each region of `spec`.
pub(crate) fn histogram_bytes(spec: &LmapSpec) -> BTreeMap<RegionId, u64> {
    let histogram = |metric: &MetricSpec| match metric.series.kind {
        Kind::Histogram(scale) => Some((metric.id, u64::from(scale.slots()))),
        _ => None,
    };
    let slots: BTreeMap<_, _> = spec.metrics.iter().filter_map(histogram).collect();
    let mut bytes = BTreeMap::new();
    for place in spec.replicas.iter().flat_map(|replica| &replica.places) {
        if let Some(slots) = slots.get(&place.metric) {
            *bytes.entry(place.region).or_default() += slots * HISTOGRAM_SLOT_BYTES;
        }
    }
    bytes
}
