use super::*;

/// Arrays of these entries, each with the same value.
struct Constant(usize, u64);

impl SwitchRegisters for Constant {
    type Error = BlockError;

    fn array(&mut self, _: &'static str) -> Result<Vec<u64>, BlockError> {
        Ok(vec![self.1; self.0])
    }
}

#[test]
fn a_block_of_another_size_or_width_is_refused_by_its_name() {
    assert_eq!(Constant(1, 7).count("Fridge.matched"), Ok(7));
    let error = Constant(2, 7).frames().expect_err("two entries").to_string();
    assert_eq!(error, "the registers Frames.frames have 2 entries, the program's have 1");
    let error = Constant(1, 1 << 32).fridge().expect_err("33 bits").to_string();
    assert_eq!(error, "0x100000000 in the registers Fridge.requests, which have 32 bits");
    let ring = BlockError::Entries { name: "Fridge.report_ticks", found: 1, expected: RING };
    assert_eq!(Constant(1, 1).fridge(), Err(ring));

    let other = BlockError::Entries { name: "Interval.packets", found: 8, expected: 2 };
    assert_eq!(Constant(8, 1).buckets(&BucketNames::FINECOMB, 8), Err(other));
    let other = BlockError::Entries { name: "before_count", found: 8, expected: 4 };
    assert_eq!(Constant(8, 1).stashes(2), Err(other));
}

/// Arrays whose entries are told by the name.
struct Numbered;

impl SwitchRegisters for Numbered {
    type Error = BlockError;

    fn array(&mut self, name: &'static str) -> Result<Vec<u64>, BlockError> {
        let begun = if name.ends_with("begun") { 7 } else { 9 };
        let value = if name.ends_with("_high") { 1 } else { begun };
        let entries = match name {
            "packets" => 2,
            _ if name.ends_with("count") => ENDS,
            _ if name.ends_with("begun") || name.ends_with("interval") => 1,
            _ => 8,
        };
        Ok(vec![value; entries])
    }
}

/// A switch whose slot goes on to another upper half as soon as that was read.
struct Passing(u32);

impl SwitchRegisters for Passing {
    type Error = BlockError;

    fn array(&mut self, name: &'static str) -> Result<Vec<u64>, BlockError> {
        self.0 += u32::from(name == "StHll.slot_high");
        let is_later = self.0 > 1;
        Ok(match name {
            "StHll.laps_and_ranks" => vec![5; 64],
            "StHll.slot_high" => vec![if is_later { 2 } else { 1 }],
            "StHll.slot_low" => vec![if is_later { 3 } else { u64::from(u32::MAX) }],
            _ => vec![9],
        })
    }
}

#[test]
fn both_halves_of_a_slot_are_of_one_slot() {
    let block = |slot| CardinalityBlock { laps_and_ranks: vec![5; 64], slot, inserted: 9, late: 9, dropped: 9 };

    assert_eq!(Passing(0).cardinality(64), Ok(block(2 << 32 | 3)), "not 2^33 and the lower half before it");
    assert_eq!(Passing(2).cardinality(64), Ok(block(2 << 32 | 3)));
    let other = BlockError::Entries { name: "StHll.laps_and_ranks", found: 64, expected: 128 };
    assert_eq!(Passing(0).cardinality(128), Err(other));
}

/// A switch whose reports go on while they are read.
struct Reporting(u64);

impl SwitchRegisters for Reporting {
    type Error = BlockError;

    fn array(&mut self, name: &'static str) -> Result<Vec<u64>, BlockError> {
        self.0 += u64::from(name == "Visits.reports");
        let value = match name {
            "Visits.reports" => return Ok(vec![self.0]),
            _ if name.ends_with("_high") => 0,
            _ if name.ends_with("_low") => 7,
            _ if name.ends_with("_events") => 2,
            _ => 3,
        };
        let size = if name.starts_with("Visits") { RING } else { 4 };
        Ok(vec![value; size])
    }
}

#[test]
fn reports_are_counted_before_and_after_they_are_read_and_records_of_all_parts_are_one_list() {
    let report = Report { prefix: Prefix(7), packets: 3, out_of_order: 2 };
    let block = |records| ReorderingBlock { reports: 1, ring: vec![report; RING], written: 2, records };

    assert_eq!(Reporting(0).reordering(4, 4), Ok(block(vec![report; 12])));
    assert_eq!(Reporting(0).reordering(4, 0), Ok(block(vec![report; 4])));
    let other = BlockError::Entries { name: "HeavyFlows.heavy0_prefixes_low", found: 4, expected: 5 };
    assert_eq!(Reporting(0).reordering(4, 5), Err(other));
}

#[test]
fn halves_are_put_together_and_lda_has_no_values() {
    assert_eq!(Numbered.begun(&BucketNames::LDA), Ok(BegunBlock { begun: 7, number: 9 }));
    let (sums, values) = (vec![1 << 32 | 9; 8], vec![0; 8]);
    let expected = BucketBlock { packets: [9; 2], counts: vec![9; 8], sums, values };
    assert_eq!(Numbered.buckets(&BucketNames::LDA, 8), Ok(expected));

    let packet = StashedPacket { digest: 1 << 32 | 9, time_ns: 1 << 32 | 9, row: 9, number: 9 };
    let list = StashList { counts: [9; ENDS], packets: vec![packet; 8] };
    assert_eq!(Numbered.stashes(2), Ok(StashBlock { before: list.clone(), after: list }));
}
