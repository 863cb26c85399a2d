//! Whole recordings: what comes back, what survives a cut or a wrong bit, and what is refused.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

use proptest::prelude::*;
use recording::{
    BlockKind, Column, ColumnKind, DamageReason, Encoder, Head, Mark, Recording, RecordingError, Span, decode,
    label_block, write_block,
};
use wire::time::{Nanos, UnixNanos};

const INTERVAL: u64 = 100_000_000;
const START: u64 = 1_760_000_000_000_000_000;

fn head(titles: &[&str]) -> Head {
    let column = |title: &&str| Column {
        title: (*title).to_owned(),
        unit: "{request}".to_owned(),
        group: "service".to_owned(),
        kind: ColumnKind::Increment,
    };
    Head { service: "cart".to_owned(), interval: Nanos(INTERVAL), columns: titles.iter().map(column).collect() }
}

/// What each row of `recorded` holds: a wave, its double, and a value that is sometimes missing.
fn row(number: u64) -> [f64; 3] {
    let wave = (number * 7919 % 523) as f64;
    [wave, wave * 2.0, if number.is_multiple_of(7) { f64::NAN } else { wave / 1000.0 }]
}

fn at(number: u64) -> UnixNanos {
    UnixNanos(START + number * INTERVAL + number % 3 * 1_000)
}

/// 1,200 rows: blocks of 512, 512 and 176.
fn recorded() -> Vec<u8> {
    let (mut encoder, mut file) = Encoder::new(head(&["a", "b", "c"])).unwrap();
    for number in 0..1200 {
        file.extend(encoder.push(at(number), &row(number)).unwrap().unwrap_or_default());
    }
    file.extend(encoder.finish());
    file
}

#[track_caller]
fn assert_rows(recording: &Recording, numbers: impl IntoIterator<Item = u64>) {
    let numbers: Vec<u64> = numbers.into_iter().collect();
    assert_eq!(recording.times, numbers.iter().map(|number| at(*number)).collect::<Vec<_>>());
    for (found, number) in recording.rows().zip(numbers) {
        let same = found.iter().zip(row(number)).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "row {number}: {found:?}");
    }
}

#[test]
fn a_recording_comes_back_with_names_units_kinds_times_and_interval() {
    let recording = decode(&recorded()).unwrap();

    assert_rows(&recording, 0..1200);
    assert_eq!((recording.service.as_str(), recording.interval), ("cart", Nanos(INTERVAL)));
    assert_eq!(recording.columns, head(&["a", "b", "c"]).columns);
    assert_eq!((recording.complete, recording.damage.len(), recording.lost_rows), (true, 0, 0));
}

#[test]
fn a_file_that_is_cut_anywhere_gives_its_whole_blocks_and_says_what_is_lost() {
    let file = recorded();
    let mut kept = Vec::new();

    for cut in 0..file.len() {
        match decode(&file[..cut]) {
            Ok(recording) => {
                let rows = recording.times.len() as u64;
                assert!([0, 512, 1024, 1200].contains(&rows), "{rows} rows of {cut} bytes");
                assert_rows(&recording, 0..rows);
                assert!(!recording.complete);
                assert!(recording.damage.iter().all(|damage| damage.reason == DamageReason::Cut));
                let lost: usize = recording.damage.iter().map(|damage| damage.bytes).sum();
                kept.push((rows, lost));
            }
            Err(error) => assert!(matches!(error, RecordingError::Magic | RecordingError::NoHead { .. }), "{error}"),
        }
    }

    assert!([0, 512, 1024, 1200].iter().all(|rows| kept.iter().any(|(kept, _)| kept == rows)));
    let without_end = decode(&file[..file.len() - 1]).unwrap();
    assert!(without_end.damage[0].to_string().contains("cut inside its last block"), "{}", without_end.damage[0]);
}

#[test]
fn a_wrong_bit_costs_its_block_and_no_other_row_is_wrong() {
    let file = recorded();

    for place in (12..file.len()).step_by(3) {
        let mut damaged = file.clone();
        damaged[place] ^= 0x10;
        let Ok(recording) = decode(&damaged) else { continue };
        assert!(!recording.damage.is_empty(), "byte {place}");
        for (time, found) in recording.times.iter().zip(recording.rows()) {
            let number = (time.0 - START) / INTERVAL;
            assert!(
                found.iter().zip(row(number)).all(|(a, b)| a.to_bits() == b.to_bits()),
                "byte {place}, row {number}"
            );
        }
    }
}

#[test]
fn columns_may_change_and_rows_of_a_lost_head_are_never_given_to_another() {
    let (mut encoder, mut file) = Encoder::new(head(&["a", "b"])).unwrap();
    encoder.push(at(0), &[1.0, 2.0]).unwrap();
    let first = file.len();
    file.extend(encoder.change(head(&["c", "b"])).unwrap());
    encoder.push(at(1), &[3.0, 4.0]).unwrap();
    file.extend(encoder.finish());

    let whole = decode(&file).unwrap();
    let second_head = first + encoder_block_length(&file[first..]);
    let mut damaged = file.clone();
    damaged[second_head + 9] ^= 1;
    let recording = decode(&damaged).unwrap();

    assert_eq!(whole.columns.iter().map(|column| column.title.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    let rows: Vec<Vec<String>> = whole.rows().map(|row| row.iter().map(f64::to_string).collect()).collect();
    assert_eq!(rows, [["1", "2", "NaN"], ["NaN", "4", "3"]]);
    let reasons: Vec<DamageReason> = recording.damage.iter().map(|damage| damage.reason).collect();
    assert_eq!(reasons, [DamageReason::Checksum, DamageReason::NoHead]);
    assert_eq!(recording.times, [at(0)]);
}

/// Kind, length, checksum, and as much as the length says.
fn encoder_block_length(block: &[u8]) -> usize {
    9 + u32::from_le_bytes(block[1..5].try_into().unwrap()) as usize
}

#[test]
fn labels_are_appended_to_a_recording_that_has_ended() {
    let span = Span { from: at(5), to: at(9), mark: Mark::Anomalous, fault: "leak".to_owned() };
    let mut file = recorded();
    file.extend(label_block(std::slice::from_ref(&span)).unwrap());

    let recording = decode(&file).unwrap();
    let backwards = label_block(&[Span { from: UnixNanos(9), to: UnixNanos(5), ..span.clone() }]).unwrap_err();

    assert_eq!((recording.spans, recording.complete), (vec![span], true));
    assert_eq!(backwards.to_string(), "a span ends at 5 ns, before its begin at 9 ns");
}

#[test]
fn rows_that_did_not_arrive_are_counted() {
    let (mut encoder, mut file) = Encoder::new(head(&["a"])).unwrap();
    encoder.push(at(0), &[1.0]).unwrap();
    encoder.lost(3);
    encoder.push(at(4), &[1.0]).unwrap();
    file.extend(encoder.flush());
    encoder.lost(2);
    file.extend(encoder.finish());

    let recording = decode(&file).unwrap();

    assert_eq!((recording.lost_rows, recording.times.len()), (5, 2));
}

#[test]
fn a_row_of_another_width_or_another_service_is_refused_and_nothing_is_taken() {
    let (mut encoder, _) = Encoder::new(head(&["a", "b"])).unwrap();

    let width = encoder.push(UnixNanos(0), &[1.0]).unwrap_err().to_string();
    let service = encoder.change(Head { service: "store".to_owned(), ..head(&["a"]) }).unwrap_err().to_string();

    assert_eq!(width, "the row has 1 values, the head names 2 columns");
    assert!(service.contains("cart every 100000000 ns") && service.contains("store"), "{service}");
    assert_eq!(encoder.rows(), 0);
}

#[test]
fn what_is_no_recording_is_refused_in_a_clear_sentence() {
    let refusal = |bytes: &[u8]| decode(bytes).unwrap_err().to_string();
    let start = &recorded()[..12];
    let mut newer = start.to_vec();
    newer[8] = 2;
    let with = |block: Vec<u8>| [start, &write_block(BlockKind::Head, &head_payload())[..], &block].concat();

    assert_eq!(refusal(b"time,a,b\n1,2,3\n"), "not a recording");
    assert_eq!(refusal(&newer), "the recording is of version 2, this release reads version 1");
    assert_eq!(refusal(start), "the recording is cut before it says what its columns are: 12 bytes are there");
    let end = refusal(&with(write_block(BlockKind::End, b"\x01\x02")));
    assert!(end.contains("its length"), "{end}");
}

/// One column `a` of a service `s`.
fn head_payload() -> Vec<u8> {
    [&[1, b's', 1, 1, 1, 1, b'a', 0, 0][..]].concat()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_rows_at_any_times_come_back(
        rows in prop::collection::vec((any::<u64>(), any::<f64>(), prop::sample::select(vec![0.0, f64::NAN, 1e308])), 0..700)
    ) {
        let (mut encoder, mut file) = Encoder::new(head(&["a", "b"])).unwrap();
        for (at, a, b) in &rows {
            file.extend(encoder.push(UnixNanos(*at), &[*a, *b]).unwrap().unwrap_or_default());
        }
        file.extend(encoder.finish());

        let recording = decode(&file).unwrap();

        prop_assert_eq!(recording.rows().len(), rows.len());
        for ((at, a, b), (time, found)) in rows.iter().zip(recording.times.iter().zip(recording.rows())) {
            prop_assert_eq!(*at, time.0);
            let same = |x: f64, y: f64| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
            prop_assert!(same(*a, found[0]) && same(*b, found[1]));
        }
    }

    #[test]
    fn any_bytes_are_a_recording_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&bytes);
        let _ = decode(&[&recorded()[..12], &bytes].concat());
        let head = write_block(BlockKind::Head, &head_payload());
        let _ = decode(&[&recorded()[..12], &head, &write_block(BlockKind::Rows, &bytes)].concat());
    }
}
