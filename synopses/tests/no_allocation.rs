//! No allocation per packet.

use std::num::NonZeroU64;

use synopses::cardinality::{
    Cardinality, Hll, LogLog, Pcsa, Settings as CardinalitySettings, SlidingHll, StHll, StHllSettings, TsPcsa,
    TsPcsaSettings,
};
use synopses::digest::{Digest, DigestKey};
use synopses::disaggregated::{Decision, Fragment, Header, LastHop, Path, Settings as FragmentSettings};
use synopses::finecomb::{Bank, FineComb, Receiver, Sampling, Settings as CombSettings};
use synopses::fridge::{Coin, Fridge, Fridges, FridgesSettings, Histogram, HistogramShape, Sample, Settings, Stamp};
use synopses::rap::{
    DWayRap, EpochPrecision, EpochSettings, HeavyHitters as _, Precision, Rap, Settings as RapSettings, SpaceSaving,
    WaySettings,
};
use synopses::rda::{Capture, Ids, Rda, Settings as RdaSettings, XorCounters};
use synopses::reordering::{
    Boundary, Control, Prefix, PrefixTally, Reordering, Segment, Settings as ReorderingSettings, Split,
};

#[test]
fn a_digest_touches_no_allocator() {
    let key = DigestKey::new(1);
    let mut sum = 0;

    let calls = allocations::during(|| (0..1_000_u64).for_each(|n| sum ^= key.digest(&[n as u8; 96]).0));

    assert_eq!(calls.allocations, 0);
    assert_ne!(sum, 0);
}

#[test]
fn requests_and_responses_touch_no_allocator() {
    let mut histogram = Histogram::new(HistogramShape::default()).expect("possible");
    for coin in [Coin::HashSplit, Coin::Random] {
        let mut fridge =
            Fridge::new(Settings { slots: 512, probability: 0.5, coin, ..Settings::default() }).expect("possible");
        let work = || {
            for number in 0..10_000_u64 {
                fridge.insert(Digest(number), number << 10);
                fridge.insert(Digest(number), number << 10);
                if let Some(report) = fridge.match_response(Digest(number.saturating_sub(100)), number << 10) {
                    histogram.insert(Sample { delay_ns: report.delay_ns, weight: report.weight() });
                }
            }
        };
        assert_eq!(allocations::during(work).allocations, 0);
    }
    for stamp in [Stamp::Arrivals, Stamp::Accepted] {
        let mut fridges = Fridges::new(FridgesSettings { stamp, ..FridgesSettings::default() }).expect("possible");
        let work = || {
            for number in 0..10_000_u64 {
                fridges.insert(Digest(number), number << 10);
                if let Some(report) = fridges.match_response(Digest(number.saturating_sub(100)), number << 10) {
                    histogram.insert(Sample { delay_ns: report.delay_ns, weight: report.total_weight() });
                }
            }
        };
        assert_eq!(allocations::during(work).allocations, 0);
    }
    assert!(histogram.samples() > 5_000);
}

#[test]
fn packets_between_two_points_touch_no_allocator() {
    let bank = |probability| Bank { probability, stash: 20, loss: 0.0 };
    let banks = vec![bank(0.9), bank(0.1)];
    let settings = CombSettings { buckets: 128, banks, sampling: Sampling::Nested, seed: 1 };
    let (mut sender, mut receiver) =
        (FineComb::new(&settings).expect("possible"), Receiver::new(&settings).expect("possible"));
    let work = || {
        for number in 0..10_000_u64 {
            sender.insert(Digest(number), number);
            receiver.insert(Digest(number), number + 9);
        }
    };

    assert_eq!(allocations::during(work).allocations, 0);
    assert_eq!(sender.packets(), 10_000);
}

#[test]
fn packets_in_a_cache_touch_no_allocator() {
    let mut capture = Capture::new(0, 4_000, 3, 5_000, Ids::Checked8).expect("possible");
    let mut fixed = Rda::new(&RdaSettings::default()).expect("possible");
    let mut counters = XorCounters::new(1);
    let work = || {
        for number in 0..20_000_u64 {
            capture.insert(Digest(number << 16), number);
            // A copy.
            capture.insert(Digest(number << 16), number);
            fixed.insert(Digest(number << 16), number);
            counters.insert(number);
        }
    };

    // Starting intervals and evicting the oldest ones does not allocate either.
    assert_eq!(allocations::during(work).allocations, 0);
    assert_eq!((capture.dropped(), fixed.packets()), (2, 20_000));
    assert!(capture.close(4).is_some_and(|cache| (cache.packets(), cache.duplicates()) == (4_000, 4_000)));
}

#[test]
fn heavy_hitters_touch_no_allocator() {
    let mut rap = Rap::new(RapSettings { entries: 64, ..RapSettings::default() }).expect("possible");
    let mut space_saving = SpaceSaving::new(64, 1).expect("possible");
    let mut precision = Precision::new(WaySettings::default()).expect("possible");
    let epoch = EpochSettings { table: WaySettings::default(), epoch_shift: 20 };
    let mut epochs = EpochPrecision::new(epoch).expect("possible");
    let mut sets = DWayRap::new(WaySettings { ways: 8, rows: 8, ..WaySettings::default() }).expect("possible");
    let weight = NonZeroU64::new(1_500).expect("not 0");
    let work = || {
        for number in 0..20_000_u64 {
            let key = Digest(number * number % 1_009);
            rap.insert(key);
            rap.insert_weighted(key, weight);
            space_saving.insert(key);
            precision.insert(key);
            epochs.insert(key, number << 10);
            sets.insert(key);
        }
        rap.reset();
    };

    assert_eq!(allocations::during(work).allocations, 0);
    assert_eq!(space_saving.tally().inserted, 20_000);
}

#[test]
fn segments_and_reports_touch_no_allocator() {
    let mut tally = PrefixTally::new(64, 1).expect("possible");
    let mut reports = 0;
    for split in [Split::SamplingOnly, Split::HeavyOnly, Split::Hybrid(0.5)] {
        let settings = ReorderingSettings { buckets: 16, split, ..ReorderingSettings::default() };
        let mut reordering = Reordering::new(settings).expect("possible");
        let work = || {
            for number in 0..20_000_u64 {
                // Four packets of a flow, of which the third is out of order.
                let (prefix, flow) = (Prefix(number / 4 % 97), Digest(number / 4));
                let sequence = number as u32 + 10 - 10 * u32::from(number % 4 == 2);
                let segment = Segment { prefix, flow, sequence, payload: 1, control: Control::None };
                if let Some(report) = reordering.insert(&segment, number << 10) {
                    reports += 1;
                    tally.insert(report);
                }
            }
            reordering.close(Boundary::KeepFlows, |report| tally.insert(report));
        };
        assert_eq!(allocations::during(work).allocations, 0);
    }
    // More prefixes than the tally has entries.
    assert!(reports > 100 && tally.dropped() > 0, "{reports}");
}

#[test]
fn distinct_items_and_their_estimates_touch_no_allocator() {
    fn check<T: Cardinality>(mut synopsis: T, other: &T) {
        let window_ns = synopsis.settings().window_ns;
        let work = || {
            let mut sum = 0.0;
            for number in 0..20_000_u64 {
                // Several windows, with late items.
                let now = 3_000_000 + number * 300_000 - (number % 7) * 400_000;
                synopsis.insert(Digest(number), now);
                if number.is_multiple_of(1_000) {
                    sum += synopsis.estimate(now, window_ns).expect("the window").count;
                }
            }
            synopsis.merge(other).expect("one kind");
            assert!(sum > 1_000.0);
        };
        assert_eq!(allocations::during(work).allocations, 0);
        assert!(synopsis.tally().late > 10);
    }

    let common = CardinalitySettings::default();
    check(Hll::new(common).expect("possible"), &Hll::new(common).expect("possible"));
    check(LogLog::new(common).expect("possible"), &LogLog::new(common).expect("possible"));
    check(Pcsa::new(common).expect("possible"), &Pcsa::new(common).expect("possible"));
    check(SlidingHll::new(common).expect("possible"), &SlidingHll::new(common).expect("possible"));
    let plus = StHllSettings::plus(CardinalitySettings { registers: 16, ..common });
    check(StHll::new(plus).expect("possible"), &StHll::new(plus).expect("possible"));
    let plus = TsPcsaSettings::plus(common);
    check(TsPcsa::new(plus).expect("possible"), &TsPcsa::new(plus).expect("possible"));
}

#[test]
fn packets_along_a_path_touch_no_allocator() {
    let new = |id| Fragment::new(FragmentSettings { id, seed: id.into(), ..FragmentSettings::default() });
    let mut nodes: Vec<Fragment> = (0..4).map(|id| new(id).expect("possible")).collect();
    let path = Path::weighted(&[0, 1, 2, 3], 2, &[1.0, 2.0, 3.0, 4.0], 1).expect("possible");
    let (mut last, mut reports) = (LastHop::new(20, 16, 1), 0);
    let work = || {
        for flow in (0..10_000_u64).map(|number| Digest(number % 100)) {
            let mut header = Header::first(0);
            for (position, node) in nodes.iter_mut().enumerate() {
                header.pass(&path, position, flow, node);
            }
            reports += u32::from(matches!(last.insert(&header, &path, flow), Decision::Report(_)));
        }
        for node in &mut nodes {
            node.rotate(1);
        }
        last.rotate(1);
    };

    assert_eq!(allocations::during(work).allocations, 0);
    assert_eq!(reports, 16);
}
