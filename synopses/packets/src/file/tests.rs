use std::io::Cursor;

use proptest::prelude::*;

use super::*;
use crate::source::read_all;

fn frames(file: Vec<u8>) -> Result<Vec<(u64, u32, Vec<u8>)>, SourceError> {
    let mut found = Vec::new();
    let mut capture = Capture::new(Cursor::new(file))?;
    read_all(&mut capture, &mut |frame| found.push((frame.time_ns, frame.length, frame.bytes.to_vec())))?;
    assert_eq!(capture.counts().frames, found.len() as u64);
    Ok(found)
}

fn written(frames: &[(u64, u32, Vec<u8>)], snap: u32) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Link::Ethernet, snap).expect("memory takes all");
    for (time_ns, length, bytes) in frames {
        let frame = Frame { bytes, length: *length, time_ns: *time_ns, link: Link::Ethernet };
        writer.write(&frame).expect("memory takes all");
    }
    writer.finish().expect("memory takes all")
}

#[test]
fn what_was_written_is_read_to_the_nanosecond_and_cut_where_it_was_cut() {
    let all = vec![(1_700_000_000_123_456_789, 60, vec![1; 60]), (5, 200, vec![2; 100]), (7, 0, vec![])];

    assert_eq!(frames(written(&all, 65_535)).expect("a capture"), all);
    let cut = frames(written(&all, 50)).expect("a capture");
    assert_eq!((cut[0].2.len(), cut[0].1, cut[1].2.len(), cut[1].1), (50, 60, 50, 200));
}

#[test]
fn a_block_that_is_shorter_than_its_header_is_reported_in_either_byte_order() {
    for big_endian in [false, true] {
        let word = |value: u32| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        let mut file = modern_file(big_endian, 1, &[], (0, 1, &[1; 60]));
        // A process information block.
        file.extend([word(0x8000_0001), word(6), [0; 4], [0; 4]].concat());

        let error = frames(file).unwrap_err().to_string();

        assert_eq!(error, "the capture is corrupt after 1 frames: a block is shorter than its own header");
    }
}

#[test]
fn a_file_of_more_than_one_look_is_read_whole() {
    let all: Vec<_> = (0..20_000_u64).map(|number| (number, 200, number.to_le_bytes().repeat(10))).collect();

    assert_eq!(
        frames(written(&all, 96)).expect("a capture"),
        all.iter().map(|(t, l, b)| (*t, *l, b[..80].to_vec())).collect::<Vec<_>>()
    );
}

/// The first block of a pcapng file, an interface with options, a packet.
fn modern_file(big_endian: bool, link: u16, options: &[(u16, &[u8])], packet: (u32, u64, &[u8])) -> Vec<u8> {
    let word = |value: u32| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let half = |value: u16| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let block = |kind: u32, body: &[u8]| {
        let length = word(body.len() as u32 + 12);
        [&word(kind), &length, body, &length].concat()
    };
    let mut head = [word(0x1a2b_3c4d).as_slice(), &half(1), &half(0)].concat();
    head.extend([0xff; 8]);
    let mut interface = [half(link).as_slice(), &half(0), &word(96)].concat();
    for (code, value) in options {
        let padding = vec![0; value.len().next_multiple_of(4) - value.len()];
        interface.extend([half(*code).as_slice(), &half(value.len() as u16), value, &padding].concat());
    }
    interface.extend([0; 4]);
    let (of, units, bytes) = packet;
    let mut body =
        [word(of), word((units >> 32) as u32), word(units as u32), word(bytes.len() as u32), word(300)].concat();
    body.extend(bytes);
    body.resize(body.len().next_multiple_of(4), 0);
    [block(0x0a0d_0d0a, &head), block(1, &interface), block(6, &body)].concat()
}

#[test]
fn pcapng_is_read_in_either_byte_order_with_its_units_of_time() {
    for big_endian in [false, true] {
        let offset = if big_endian { 100_i64.to_be_bytes() } else { 100_i64.to_le_bytes() };
        let file = |options: &[(u16, &[u8])]| modern_file(big_endian, 1, options, (0, (1 << 32) + 3, b"frame"));
        let time = |options: &[(u16, &[u8])]| frames(file(options)).expect("a capture")[0].0;

        assert_eq!(frames(file(&[])).expect("a capture"), [(4_294_967_299_000, 300, b"frame".to_vec())]);
        assert_eq!(time(&[(9, &[9])]), 4_294_967_299);
        // 2⁻³¹ s.
        assert_eq!(time(&[(9, &[0x80 | 31])]), 2_000_000_001);
        assert_eq!(time(&[(9, &[9]), (14, &offset)]), 104_294_967_299);
    }
}

#[test]
fn links_and_interfaces_that_are_not_known_are_said() {
    let error = |file| frames(file).expect_err("not read").to_string();

    assert!(error(modern_file(false, 105, &[], (0, 1, b"wlan"))).contains("kind 105"));
    assert!(error(modern_file(false, 1, &[], (1, 1, b"x"))).contains("not described"));
    let past = (-100_i64).to_le_bytes();
    assert!(error(modern_file(false, 1, &[(14, &past)], (0, 1, b"x"))).contains("before 1970"));
}

#[test]
fn what_is_no_capture_or_was_cut_is_said_after_the_frames_that_came() {
    let whole = written(&[(1, 60, vec![1; 60]), (2, 60, vec![2; 60])], 96);

    for nothing in [vec![], b"#!/bin/sh\n".repeat(100), whole[..20].to_vec()] {
        assert!(matches!(frames(nothing), Err(SourceError::NoCapture)));
    }
    let error = frames(whole[..whole.len() - 1].to_vec()).expect_err("cut");
    assert!(error.to_string().contains("corrupt after 1 frames: it ends within a frame"), "{error}");
    let mut huge = whole.clone();
    huge[24 + 8..24 + 12].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = frames(huge).expect_err("no frame is so long");
    assert!(error.to_string().contains("corrupt after 0 frames"), "{error}");
    assert_eq!(frames(whole[..24].to_vec()).expect("a capture"), []);
}

#[test]
fn after_an_error_or_the_end_there_is_nothing() {
    let whole = written(&[(1, 60, vec![1; 60])], 96);
    let mut capture = Capture::new(Cursor::new(whole[..60].to_vec())).expect("a capture");

    assert!(capture.read(&mut |_| {}).is_err());
    assert_eq!(capture.read(&mut |_| {}).expect("it has ended"), Progress::End);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_or_read_for_ever(
        seed in prop::collection::vec((any::<u16>(), any::<u8>()), 0..8),
        modern in any::<bool>(),
        kept in 0_usize..400,
    ) {
        let mut file = if modern {
            modern_file(false, 1, &[(9, &[9])], (0, 5, &[1; 100]))
        } else {
            written(&[(1, 60, vec![1; 60]), (2, 60, vec![2; 60])], 96)
        };
        for (at, byte) in seed {
            let at = usize::from(at) % file.len();
            file[at] = byte;
        }
        file.truncate(kept.max(4));
        let _ = frames(file);
    }
}
