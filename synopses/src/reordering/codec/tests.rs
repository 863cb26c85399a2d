use super::*;
use crate::digest::Digest;
use crate::reordering::{Boundary, Control, Decision, Report, Segment, Threshold};

fn segments(from: u64) -> impl Iterator<Item = (Segment, u64)> {
    (from..from + 4_000).map(|number| {
        let flow = number * number % 97;
        let sequence = (number as u32 ^ u32::from(number % 13 == 0)).wrapping_mul(1_000);
        let prefix = Prefix(flow % 11);
        (Segment { prefix, flow: Digest(flow), sequence, payload: 1_000, control: Control::None }, number << 11)
    })
}

fn used(settings: Settings) -> (Reordering, PrefixTally) {
    let (mut reordering, mut tally) =
        (Reordering::new(settings).expect("possible"), PrefixTally::new(16, 5).expect("possible"));
    for (segment, now) in segments(0) {
        if let Some(report) = reordering.insert(&segment, now) {
            tally.insert(report);
        }
    }
    (reordering, tally)
}

const ALL: [Split; 3] = [Split::SamplingOnly, Split::HeavyOnly, Split::Hybrid(0.4)];

fn settings(split: Split) -> Settings {
    Settings { buckets: 10, split, seed: 9, ..Settings::default() }
}

#[test]
fn decoded_states_continue_like_the_original() {
    for split in ALL {
        let (mut reordering, _) = used(settings(split));
        let mut again = Reordering::decode(&reordering.encode(), 10).expect("what was encoded");

        assert_eq!((again.settings, again.counters), (reordering.settings, reordering.counters));
        for (segment, now) in segments(9_000) {
            assert_eq!(again.insert(&segment, now), reordering.insert(&segment, now));
        }
        let close = |reordering: &mut Reordering| {
            let mut reports = Vec::new();
            reordering.close(Boundary::Reseed(1), |report| reports.push(report));
            (reports, reordering.counters, reordering.encode())
        };
        assert_eq!(close(&mut again), close(&mut reordering));
    }
}

#[test]
fn decoded_states_continue_like_the_original_after_a_new_seed() {
    for split in ALL {
        let (mut reordering, _) = used(settings(split));
        reordering.close(Boundary::Reseed(77), |_| {});
        let drawn = |of: &Reordering| of.heavy.as_ref().map(|heavy| heavy.coins.drawn);
        let before = drawn(&reordering);
        let mut again = Reordering::decode(&reordering.encode(), 10).expect("what was encoded");

        for (segment, now) in segments(9_000) {
            assert_eq!(again.insert(&segment, now), reordering.insert(&segment, now));
        }
        assert_eq!(again.constants(), reordering.constants());
        assert_eq!(again.encode(), reordering.encode());
        assert!(split == Split::SamplingOnly || drawn(&reordering) > before, "coins are drawn");
    }
}

#[test]
fn a_decoded_tally_continues_like_the_original() {
    let (_, mut tally) = used(settings(Split::SamplingOnly));
    let mut again = PrefixTally::decode(&tally.encode(), 16).expect("what was encoded");
    for number in 0..500 {
        let report = Report { prefix: Prefix(number * 7 % 40), packets: 20, out_of_order: 1 };
        tally.insert(report);
        again.insert(report);
    }
    let all = Decision { least_packets: 0, threshold: Threshold::Any };

    assert_eq!((again.flagged(&all), again.dropped()), (tally.flagged(&all), tally.dropped()));
    assert!(tally.dropped() > 0);
}

#[test]
fn truncated_and_changed_bytes_are_refused() {
    for split in ALL {
        let (reordering, tally) = used(settings(split));
        for encoded in [reordering.encode(), tally.encode()] {
            for cut in 0..encoded.len() {
                assert!(Reordering::decode(&encoded[..cut], 10).is_err());
                assert!(PrefixTally::decode(&encoded[..cut], 16).is_err());
            }
        }
    }
}

#[test]
fn any_change_of_the_payload_decodes_to_an_error_or_a_valid_state() {
    for split in ALL {
        let (reordering, tally) = used(settings(split));
        for (kind, encoded) in [(Kind::Reordering, reordering.encode()), (Kind::PrefixTally, tally.encode())] {
            for at in 14..encoded.len() {
                for bit in [1, 0x80] {
                    let mut payload = encoded[14..].to_vec();
                    payload[at - 14] ^= bit;
                    let sealed = seal(kind, &payload);
                    if let Ok(mut changed) = Reordering::decode(&sealed, 10) {
                        for (segment, now) in segments(5) {
                            let _ = changed.insert(&segment, now);
                        }
                    }
                    if let Ok(mut changed) = PrefixTally::decode(&sealed, 16) {
                        changed.insert(Report { prefix: Prefix(77), packets: u32::MAX, out_of_order: 1 });
                    }
                }
            }
        }
    }
}

#[test]
fn few_bytes_cannot_exceed_the_memory_limit() {
    let large = Reordering::new(Settings { buckets: 1 << 20, ..Settings::default() }).expect("possible").encode();
    let tally = PrefixTally::new(1 << 20, 1).expect("possible").encode();

    assert!(large.len() < 100 && tally.len() < 100);
    let refused = DecodeError::TooLarge { what: "buckets", found: 1 << 20, most: 1 << 10 };
    assert_eq!(Reordering::decode(&large, 1 << 10).err(), Some(refused));
    let refused = DecodeError::TooLarge { what: "entries", found: 1 << 20, most: 1 << 10 };
    assert_eq!(PrefixTally::decode(&tally, 1 << 10).err(), Some(refused));
}
