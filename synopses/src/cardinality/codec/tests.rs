use super::*;
use crate::cardinality::Cardinality;
use crate::digest::Digest;

const WINDOW_NS: u64 = 64_000;

fn settings() -> Settings {
    Settings { registers: 32, window_ns: WINDOW_NS, start_ns: 1_000, hash: Hash::Seeded(7) }
}

fn used<T: Cardinality>(mut synopsis: T, from: u64) -> T {
    (from..from + 3_000).for_each(|number| synopsis.insert(Digest(number), 1_000 + number * 97 % 700 + number * 40));
    synopsis
}

fn st_hll() -> StHll {
    StHll::new(StHllSettings { origin_ns: 500, ..StHllSettings::plus(settings()) }).expect("possible")
}

/// Both say the same, and go on in the same way.
fn continues<T: Cardinality>(one: T, other: T) {
    assert_eq!((one.tally(), one.settings()), (other.tally(), other.settings()));
    let [one, other] = [one, other].map(|synopsis| used(synopsis, 3_000));
    assert_eq!(one.tally(), other.tally());
    for now_ns in [0, 243_000, 260_000] {
        assert_eq!(one.estimate(now_ns, WINDOW_NS), other.estimate(now_ns, WINDOW_NS));
    }
}

#[test]
fn decoded_synopses_continue_like_the_original() {
    let hll = used(Hll::new(settings()).expect("possible"), 0);
    continues(Hll::decode(&hll.encode(), 32).expect("what was encoded"), hll);
    let log_log = used(LogLog::new(settings()).expect("possible"), 0);
    continues(LogLog::decode(&log_log.encode(), 32).expect("what was encoded"), log_log);
    let pcsa = used(Pcsa::new(settings()).expect("possible"), 0);
    continues(Pcsa::decode(&pcsa.encode(), 32).expect("what was encoded"), pcsa);
    let staggered = used(st_hll(), 0);
    continues(StHll::decode(&staggered.encode(), 32).expect("what was encoded"), staggered);
    let sliding = used(SlidingHll::new(settings()).expect("possible"), 0);
    continues(SlidingHll::decode(&sliding.encode(), 32).expect("what was encoded"), sliding);
    let common = Settings { hash: Hash::Ready32, ..settings() };
    for stamping in [TsPcsaSettings::plus(common), TsPcsaSettings::plain(settings())] {
        let stamped = used(TsPcsa::new(stamping).expect("possible"), 0);
        continues(TsPcsa::decode(&stamped.encode(), 32).expect("what was encoded"), stamped);
    }
}

#[test]
fn truncated_bytes_and_other_kinds_are_refused() {
    let encoded = used(SlidingHll::new(settings()).expect("possible"), 0).encode();
    for cut in 0..encoded.len() {
        assert!(SlidingHll::decode(&encoded[..cut], 32).is_err());
    }
    assert!(Hll::decode(&encoded, 32).is_err());
    assert!(LogLog::decode(&Hll::new(settings()).expect("possible").encode(), 32).is_err());
}

#[test]
fn few_bytes_cannot_exceed_the_memory_limit() {
    let large = Settings { registers: 1 << 16, ..settings() };
    let refused = DecodeError::TooLarge { what: "registers", found: 1 << 16, most: 1 << 10 };

    let encoded = SlidingHll::new(large).expect("possible").encode();
    assert_eq!(SlidingHll::decode(&encoded, 1 << 10).err(), Some(refused.clone()));
    let encoded = StHll::new(StHllSettings::plus(large)).expect("possible").encode();
    assert_eq!(StHll::decode(&encoded, 1 << 10).err(), Some(refused));
}

#[test]
fn impossible_values_are_refused_even_with_a_good_checksum() {
    let payload = |encoded: &[u8]| encoded[14..].to_vec();
    let changed = |kind, encoded: &[u8], from_end: usize, value| {
        let mut payload = payload(encoded);
        let at = payload.len() - from_end;
        payload[at] = value;
        seal(kind, &payload)
    };

    // 32 registers leave 59 bits: ranks up to 60.
    let hll = Hll::new(settings()).expect("possible").encode();
    assert!(Hll::decode(&changed(Kind::Hll, &hll, 1, 60), 32).is_ok());
    assert_eq!(Hll::decode(&changed(Kind::Hll, &hll, 1, 61), 32).err(), Some(RANK));
    let pcsa = Pcsa::new(settings()).expect("possible").encode();
    assert_eq!(Pcsa::decode(&changed(Kind::Pcsa, &pcsa, 1, 0x80), 32).err(), Some(RANK));
    let staggered = st_hll().encode();
    assert_eq!(StHll::decode(&changed(Kind::StHll, &staggered, 1, 61), 32).err(), Some(RANK));
    // Slot 0 of a start at 1,000 ns, with slots of 4,000 ns: there is none before, and the last slot has an end.
    let mut far = payload(&staggered);
    let at = far.len() - 33;
    far.splice(at..=at, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    assert_eq!(StHll::decode(&seal(Kind::StHll, &far), 32).err(), Some(DecodeError::Field("a slot")));

    let lists = |entries: &[(u8, u8)]| {
        let mut payload = payload(&SlidingHll::new(settings()).expect("possible").encode());
        payload.truncate(payload.len() - 32);
        payload.push(entries.len() as u8);
        payload.extend(entries.iter().flat_map(|(age, rank)| [*age, *rank]));
        payload.extend([0; 31]);
        SlidingHll::decode(&seal(Kind::SlidingHll, &payload), 32)
    };
    assert!(lists(&[(9, 5), (3, 2)]).is_ok());
    assert!(lists(&[(9, 5), (3, 5)]).is_err(), "a rank twice");
    assert!(lists(&[(3, 5), (9, 2)]).is_err(), "an older entry after a newer one");
    assert!(lists(&[(3, 5), (3, 2)]).is_err(), "two entries of one time");
    assert!(lists(&[(3, 0)]).is_err(), "no rank");
    assert!(lists(&[(3, 33)]).is_err(), "a rank beyond the last");
}

#[test]
fn a_synopsis_is_made_of_the_ranks_of_a_switch() {
    let staggered = used(st_hll(), 0);
    let of = |slot, ranks: &[u8]| StHll::of_ranks(*staggered.stagger(), staggered.tally(), slot, ranks);

    let loaded = of(staggered.slot(), staggered.ranks()).expect("its own ranks");
    assert_eq!(loaded.encode(), staggered.encode());
    continues(loaded, staggered.clone());
    assert_eq!(of(staggered.slot(), &[0; 31]).err(), Some(RANK));
    assert_eq!(of(staggered.slot(), &[62; 32]).err(), Some(RANK));
    assert_eq!(of(u64::MAX, staggered.ranks()).err(), Some(DecodeError::Field("a slot")));
}

#[test]
fn a_synopsis_is_made_of_the_slots_of_a_switch_and_stale_ones_are_left_out() {
    let settings = TsPcsaSettings { rounding: Rounding::Up, ..TsPcsaSettings::plain(settings()) };
    let mut stamped = TsPcsa::new(settings).expect("possible");
    let mut slots = vec![None; settings.common.registers * settings.positions];
    for number in 0..3_000 {
        let now_ns = 1_000 + number * 97;
        // Where it is: the only cell that is set if it is the only one.
        let mut alone = TsPcsa::new(settings).expect("possible");
        alone.insert(Digest(number), now_ns);
        let at = (0..slots.len()).find(|at| alone.cells.get(*at) != 0).expect("an item");
        slots[at] = Some(now_ns.div_ceil(settings.slot_ns));
        stamped.insert(Digest(number), now_ns);
    }
    let latest_ns = 1_000 + 2_999 * 97;
    let of = |latest_ns, slots: &[_]| TsPcsa::of_slots(settings, stamped.tally(), latest_ns, slots);

    let loaded = of(latest_ns, &slots).expect("slots until then");
    let mut pruned = stamped.clone();
    pruned.prune(latest_ns);
    assert_eq!(loaded.encode(), pruned.encode());
    assert!(slots.iter().flatten().count() > (0..slots.len()).filter(|at| loaded.cells.get(*at) != 0).count());
    assert_eq!(of(latest_ns, &slots[1..]).err(), Some(DecodeError::Field("a number of positions")));
    assert_eq!(of(latest_ns - 2 * WINDOW_NS, &slots).err(), Some(DecodeError::Field("a time")));
}
