//! Synopses of packets, as they are stored and sent.

/// A synopsis of packets: the bytes as they are, and as the payload of each kind with a valid checksum, which a fuzzer
/// would not guess.
pub fn synopsis(bytes: &[u8]) {
    decode_synopsis(bytes);
    for kind in synopses::encoding::KINDS {
        decode_synopsis(&synopses::encoding::seal(kind, bytes));
    }
}

fn decode_synopsis(bytes: &[u8]) {
    use synopses::finecomb;
    use synopses::fridge::{Fridge, Fridges, Histogram};

    if let Ok(mut fridge) = Fridge::decode(bytes, MAX_SLOTS) {
        let again = Fridge::decode(&fridge.encode(), MAX_SLOTS).expect("accepted input survives a round trip");
        assert_eq!(again.tally(), fridge.tally());
        insert_packets(|digest, now| fridge.insert(digest, now));
        insert_packets(|digest, now| {
            assert!(fridge.match_response(digest, now).is_none_or(|report| report.weight() >= 0.999));
        });
    }
    if let Ok(mut fridges) = Fridges::decode(bytes, MAX_SLOTS) {
        let again = Fridges::decode(&fridges.encode(), MAX_SLOTS).expect("accepted input survives a round trip");
        assert_eq!(again.tally(), fridges.tally());
        insert_packets(|digest, now| fridges.insert(digest, now));
        insert_packets(|digest, now| {
            assert!(fridges.match_response(digest, now).is_none_or(|report| report.total_weight() >= 0.999));
        });
    }
    if let Ok(mut histogram) = Histogram::decode(bytes) {
        assert_eq!(
            Histogram::decode(&histogram.encode()).as_ref(),
            Ok(&histogram),
            "accepted input survives a round trip"
        );
        if let Some(median) = histogram.estimate(0.5) {
            assert!(median.low_ns <= median.delay_ns && median.delay_ns <= median.high_ns, "{median:?}");
        }
        let other = histogram.clone();
        histogram.merge(&other).expect("one shape");
    }
    let settings = finecomb::Settings::one_bank(8, 0.5, 2, 1);
    if let Ok(comb) = finecomb::FineComb::decode(bytes, &settings) {
        let again =
            finecomb::FineComb::decode(&comb.encode(), &settings).expect("accepted input survives a round trip");
        assert_eq!(again.packets(), comb.packets());
        let received = finecomb::Interval::without_stash(again);
        for rule in [finecomb::Rule::Lda, finecomb::Rule::LdaPlus, finecomb::Rule::FineComb] {
            let found = received.estimate(&comb, rule, finecomb::Solver::Elimination, finecomb::Deviation::PerBucket);
            assert_eq!(
                found.expect("one kind").loss.unwrap_or_default(),
                0.0,
                "nothing was lost between it and itself"
            );
        }
    }
    decode_rda(bytes);
    decode_heavy_hitters(bytes);
    decode_reordering(bytes);
    decode_cardinality(bytes);
    decode_disaggregated(bytes);
}

/// Heavy hitters with arbitrary content: counts stay sorted, and a table goes on.
fn decode_heavy_hitters(bytes: &[u8]) {
    use synopses::rap::{DWayRap, HeavyHitters, Precision, Rap, SpaceSaving};

    fn check<T: HeavyHitters>(table: Option<T>, again: impl Fn(&T) -> Option<T>) {
        let Some(mut table) = table else { return };
        let again = again(&table).expect("accepted input survives a round trip");
        assert!(again.entries().eq(table.entries()) && again.tally() == table.tally());
        insert_packets(|digest, _| table.insert(digest));
        assert!(table.top(9).windows(2).all(|pair| pair[0].count >= pair[1].count));
        table.halve();
        table.merge(&again).expect("one kind");
    }

    check(Rap::decode(bytes, MAX_SLOTS).ok(), |table| Rap::decode(&table.encode(), MAX_SLOTS).ok());
    check(SpaceSaving::decode(bytes, MAX_SLOTS).ok(), |table| SpaceSaving::decode(&table.encode(), MAX_SLOTS).ok());
    check(Precision::decode(bytes, MAX_SLOTS).ok(), |table| Precision::decode(&table.encode(), MAX_SLOTS).ok());
    check(DWayRap::decode(bytes, MAX_SLOTS).ok(), |table| DWayRap::decode(&table.encode(), MAX_SLOTS).ok());
}

/// Records of flows and sums of prefixes with arbitrary content.
fn decode_reordering(bytes: &[u8]) {
    use synopses::reordering::{Boundary, Control, Prefix, PrefixTally, Reordering, Segment};

    if let Ok(mut tally) = PrefixTally::decode(bytes, MAX_SLOTS) {
        let again = PrefixTally::decode(&tally.encode(), MAX_SLOTS).expect("accepted input survives a round trip");
        assert!(again.iter().eq(tally.iter()));
        assert!(tally.iter().all(|estimate| estimate.share.is_none_or(|share| (0.0..=1.0).contains(&share))));
        tally.merge(&again);
    }
    if let Ok(mut reordering) = Reordering::decode(bytes, MAX_SLOTS) {
        let again = Reordering::decode(&reordering.encode(), MAX_SLOTS).expect("accepted input survives a round trip");
        assert_eq!(again.counters(), reordering.counters());
        let check = |report: synopses::reordering::Report| assert!(report.out_of_order <= report.packets);
        insert_packets(|digest, now| {
            let (prefix, sequence) = (Prefix(digest.0 % 8), now as u32);
            let segment = Segment { prefix, flow: digest, sequence, payload: 9, control: Control::None };
            reordering.insert(&segment, now).into_iter().for_each(check);
        });
        reordering.close(Boundary::Reseed(1), check);
    }
}

/// Counters and paths with arbitrary content: no count decreases, and choices survive a round trip.
fn decode_disaggregated(bytes: &[u8]) {
    use synopses::digest::Digest;
    use synopses::disaggregated::{Fragment, HEADER_BYTES, Header, PathTable};

    if let Ok(mut fragment) = Fragment::decode(bytes, MAX_SLOTS) {
        let mut again = Fragment::decode(&fragment.encode(), MAX_SLOTS).expect("accepted input survives a round trip");
        assert_eq!(again.encode(), fragment.encode());
        insert_packets(|digest, now| {
            let before = fragment.estimate(digest);
            let after = fragment.insert(digest, now as u32);
            assert!(before <= after && after < u32::MAX && after == fragment.estimate(digest));
        });
        again.merge(&fragment).expect("one fragment");
        assert!((0.0..=1.0).contains(&again.occupancy()));
    }
    if let Ok(table) = PathTable::decode(bytes, MAX_SLOTS) {
        let again = PathTable::decode(&table.encode(), MAX_SLOTS).expect("accepted input survives a round trip");
        for ((number, path), (same, other)) in table.paths().zip(again.paths()).take(64) {
            let selection = path.select(Digest(number.into()));
            assert_eq!((number, selection), (same, other.select(Digest(number.into()))));
            assert_eq!(selection.positions().count(), path.count());
            assert!(selection.positions().all(|position| position < path.fragments().len()));
            if let Some(header) = bytes.first_chunk::<HEADER_BYTES>().map(|head| Header::decode(*head)) {
                let found = header.estimate(path, 0);
                assert!(found.is_err() || (usize::from(header.touched) == path.count() && header.least < u32::MAX));
            }
        }
    }
}

/// Registers, lists and time stamps with arbitrary content: counts are numbers, whatever comes after.
fn decode_cardinality(bytes: &[u8]) {
    use synopses::cardinality::{Cardinality, Hll, LogLog, Pcsa, SlidingHll, StHll, TsPcsa};

    fn check<T: Cardinality>(synopsis: Option<T>, again: impl Fn(&T) -> Option<T>) {
        let Some(mut synopsis) = synopsis else { return };
        let again = again(&synopsis).expect("accepted input survives a round trip");
        assert_eq!((again.tally(), again.settings()), (synopsis.tally(), synopsis.settings()));
        let window_ns = synopsis.settings().window_ns;
        let is_number = |synopsis: &T, now: u64| {
            let found = synopsis.estimate(now, window_ns);
            assert!(found.is_ok_and(|found| found.count.is_finite() && found.count >= 0.0 && found.rate.is_finite()));
        };
        is_number(&synopsis, 0);
        insert_packets(|digest, now| synopsis.insert(digest, now));
        synopsis.merge(&again).expect("one kind");
        // Time stamps may not have been pruned for a while.
        let _ = synopsis.estimate(u64::MAX, window_ns);
        insert_packets(|digest, now| synopsis.insert(digest, now.saturating_add(window_ns)));
        is_number(&synopsis, 0);
    }

    check(Hll::decode(bytes, MAX_SLOTS).ok(), |synopsis| Hll::decode(&synopsis.encode(), MAX_SLOTS).ok());
    check(LogLog::decode(bytes, MAX_SLOTS).ok(), |synopsis| LogLog::decode(&synopsis.encode(), MAX_SLOTS).ok());
    check(Pcsa::decode(bytes, MAX_SLOTS).ok(), |synopsis| Pcsa::decode(&synopsis.encode(), MAX_SLOTS).ok());
    check(StHll::decode(bytes, MAX_SLOTS).ok(), |synopsis| StHll::decode(&synopsis.encode(), MAX_SLOTS).ok());
    check(SlidingHll::decode(bytes, MAX_SLOTS).ok(), |synopsis| SlidingHll::decode(&synopsis.encode(), MAX_SLOTS).ok());
    check(TsPcsa::decode(bytes, MAX_SLOTS).ok(), |synopsis| TsPcsa::decode(&synopsis.encode(), MAX_SLOTS).ok());
}

/// Cells and counters with arbitrary content: decoding always terminates.
fn decode_rda(bytes: &[u8]) {
    use synopses::rda::{Cache, Deviation, Ids, Layout, Rda, Reconciliation, Settings, XorCounters};

    for layout in [Layout::Banks, Layout::Flat] {
        let settings = Settings { banks: 2, layout, ids: Ids::Checked8, ..Settings::default() };
        let Ok(rda) = Rda::decode(bytes, &settings, MAX_SLOTS) else { continue };
        let again = Rda::decode(&rda.encode(), &settings, MAX_SLOTS).expect("accepted input survives a round trip");
        assert_eq!(again.packets(), rda.packets());
        let mut ours = Cache::new(64, settings.ids).expect("possible");
        insert_packets(|digest, now| ours.insert(digest, now));
        let mut reconciliation = Reconciliation::new(ours, rda).expect("same ids");
        for round in 0..4 {
            let times: Vec<_> =
                reconciliation.missing().iter().map(|id| (*id, (id % 4 != round).then_some(*id))).collect();
            reconciliation.add_times(&times).expect("the requested ids");
        }
        let found = reconciliation.estimate(Deviation::PerBucket);
        assert!(found.packets <= found.sent, "at most all sent packets are useful");
        assert!(found.mean_ns.is_none_or(f64::is_finite) && found.lost <= found.sent);
    }
    if let Ok(mut counters) = XorCounters::decode(bytes, 1) {
        assert_eq!(
            XorCounters::decode(&counters.encode(), 1).as_ref(),
            Ok(&counters),
            "accepted input survives a round trip"
        );
        assert!(counters.estimate(&XorCounters::new(1)).is_ok_and(f64::is_finite));
        let other = counters.clone();
        counters.merge(&other).expect("one seed");
        assert_eq!(counters.estimate(&XorCounters::new(1)), Ok(0.0), "equal counters cancel out");
    }
}

/// Maximal slots of a synopsis.
const MAX_SLOTS: usize = 4096;

/// Inserts a few packets into a decoded synopsis.
fn insert_packets(mut packet: impl FnMut(synopses::digest::Digest, u64)) {
    (0..64).for_each(|number| packet(synopses::digest::Digest((number << 58) | number), number << 20));
}
