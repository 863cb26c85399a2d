use super::*;
use crate::packet::ParseError;
use crate::switch::programs;
use synopses::digest::DigestKind;

/// Buckets of the switch of these tests.
const BUCKETS: usize = 4;
/// Number of the first interval.
const FIRST: u32 = u32::MAX - 2;

fn settings() -> Settings {
    Settings::one_bank(BUCKETS, 1.0, 2, 9)
}

fn constants(receives: bool, secret: u128) -> Constants {
    programs::finecomb(&settings(), receives, &DigestKey::new(secret)).expect("possible")
}

/// A switch whose registers are about to wrap.
struct Switch {
    begun: BegunBlock,
    frames: FrameBlock,
    buckets: BucketBlock,
}

impl Switch {
    fn new(constants: &Constants, banks: usize) -> Self {
        let entries = 2 * banks * BUCKETS;
        let frames = FrameBlock { checksum: constants.checksum(), frames: 1, ..FrameBlock::default() };
        let (counts, sums) = (vec![u32::MAX - 1; entries], vec![u64::MAX - 5; entries]);
        let buckets = BucketBlock { packets: [u32::MAX - 1; 2], counts, sums, values: vec![0xff; entries] };
        Self { begun: BegunBlock { begun: u32::MAX - 1, number: FIRST }, frames, buckets }
    }

    fn begin(&mut self) {
        self.begun.begun = self.begun.begun.wrapping_add(1);
        self.begun.number = self.begun.number.wrapping_add(1);
    }

    /// Adds packets to the first row of the current interval.
    fn pass(&mut self, packets: u32, time_ns: u64) {
        let parity = (self.begun.begun & 1) as usize;
        let row = parity * self.buckets.counts.len() / 2;
        let BucketBlock { packets: all, counts, sums, values } = &mut self.buckets;
        all[parity] = all[parity].wrapping_add(packets);
        counts[row] = counts[row].wrapping_add(packets);
        sums[row] = sums[row].wrapping_add(time_ns * u64::from(packets));
        values[row] ^= u64::from(packets) << 8;
    }

    fn poll(&self) -> BucketPoll {
        let (begun, frames) = (self.begun, self.frames);
        BucketPoll { begun, buckets: self.buckets.clone(), stashes: None, frames, begun_after: begun.begun }
    }
}

fn sender() -> (BucketReadout, Switch) {
    let constants = constants(false, 7);
    (BucketReadout::new(&constants).expect("a sender"), Switch::new(&constants, 1))
}

/// Polls, and returns number and packets of the interval that has ended, if it is known.
fn read(readout: &mut BucketReadout, switch: &Switch) -> Option<(u32, u64)> {
    let interval = readout.read(&switch.poll()).expect("its own program").interval?;
    let finecomb = interval.finecomb(&settings(), 0).expect("its own settings");
    Some((interval.number, finecomb.packets()))
}

#[test]
fn an_interval_is_the_difference_of_its_parity_also_when_registers_wrap() {
    let (mut readout, mut switch) = sender();
    for packets in 1..=6 {
        let _ = readout.read(&switch.poll()).expect("its own program");
        switch.begin();
        switch.pass(packets, 1_000);
    }
    switch.begin();

    let reading = readout.read(&switch.poll()).expect("its own program");

    let interval = reading.interval.expect("a whole one");
    assert_eq!((interval.number, reading.current), (FIRST.wrapping_add(6), FIRST.wrapping_add(7)));
    let mut buckets = [Bucket::default(); BUCKETS];
    buckets[0] = Bucket { sum: 6_000, count: 6, digest: 6 << 8 };
    let expected = FineComb::of_buckets(&settings(), 6, &buckets).expect("possible");
    assert_eq!(interval.finecomb(&settings(), 0).expect("its own settings").encode(), expected.encode());
}

#[test]
fn the_first_intervals_begin_two_polls_later() {
    let (mut readout, mut switch) = sender();
    let mut known = Vec::new();
    for packets in 1..=5 {
        known.push(read(&mut readout, &switch).map(|(_, packets)| packets));
        switch.begin();
        switch.pass(packets, 5);
    }

    assert_eq!(known, [None, None, Some(1), Some(2), Some(3)]);
}

#[test]
fn a_poll_that_is_missing_costs_two_intervals_and_no_other_one() {
    let (mut readout, mut switch) = sender();
    let mut known = Vec::new();
    for packets in 1..=9 {
        // At the end of the third interval nothing is read.
        if packets != 5 {
            known.push(read(&mut readout, &switch).map(|(_, packets)| packets));
        }
        switch.begin();
        switch.pass(packets, 5);
    }

    // The fifth goes on with the entries of the third.
    assert_eq!(known, [None, None, Some(1), Some(2), Some(4), None, Some(6), Some(7)]);
}

#[test]
fn an_interval_whose_end_had_no_marker_is_too_long_and_not_taken() {
    let (mut readout, mut switch) = sender();
    let mut known = Vec::new();
    for packets in 1..=8 {
        known.push(read(&mut readout, &switch));
        switch.begin();
        // The marker of one interval was lost on its way.
        switch.begun.number = switch.begun.number.wrapping_add(u32::from(packets == 5));
        switch.pass(packets, 5);
    }

    let number = |ahead: u32| FIRST.wrapping_add(ahead);
    let expected = [(1, 1), (2, 2), (3, 3)].map(|(ahead, packets)| Some((number(ahead), packets)));
    assert_eq!(known[..2], [None; 2]);
    assert_eq!(known[2..5], expected);
    assert_eq!(known[5..], [None, Some((number(6), 5)), Some((number(7), 6))]);
}

#[test]
fn a_poll_during_which_an_interval_began_is_worth_nothing_and_the_next_one_is_whole() {
    let (mut readout, mut switch) = sender();
    for packets in 1..=3 {
        let _ = read(&mut readout, &switch);
        switch.begin();
        switch.pass(packets, 5);
    }
    let mut cut = switch.poll();
    cut.begun_after = cut.begun_after.wrapping_add(1);

    let reading = readout.read(&cut).expect("its own program");
    assert_eq!((reading.interval, reading.refused), (None, 0));
    switch.begin();
    switch.pass(4, 5);
    assert_eq!(read(&mut readout, &switch).map(|(_, packets)| packets), Some(3), "as after a missing poll");
}

#[test]
fn a_switch_that_started_again_begins_anew() {
    let (mut readout, mut switch) = sender();
    for packets in 1..=4 {
        let _ = read(&mut readout, &switch);
        switch.begin();
        switch.pass(packets, 5);
    }
    // Its count of intervals has gone back.
    switch.begun.begun = switch.begun.begun.wrapping_sub(2);
    switch.frames.refusals[ParseError::CutTcp as usize] = 5;

    let reading = readout.read(&switch.poll()).expect("its own program");
    assert_eq!((reading.interval, reading.refused, reading.started_again), (None, 0, true));
}

#[test]
fn a_switch_that_started_again_and_has_counted_further_gives_nothing_of_before() {
    for frames in [1, 0] {
        let (mut readout, mut switch) = sender();
        switch.begun = BegunBlock { begun: 3, number: 1_003 };
        for packets in 1..=3 {
            let _ = read(&mut readout, &switch);
            switch.begin();
            switch.pass(packets, 5);
        }
        // It was read last at its fifth interval. Now it is in the sixth one of its own again.
        let BucketBlock { counts, sums, values, .. } = &mut switch.buckets;
        counts.fill(0);
        sums.fill(0);
        values.fill(0);
        switch.buckets.packets = [0; 2];
        switch.begun = BegunBlock { begun: 6, number: 1_013 };
        switch.frames.frames = frames;

        let reading = readout.read(&switch.poll()).expect("its own program");
        assert_eq!((reading.interval, reading.started_again), (None, frames == 0), "by its frames");
        switch.begin();
        switch.pass(4, 5);
        assert_eq!(read(&mut readout, &switch), None, "its entries of before are forgotten");
        switch.begin();
        assert_eq!(read(&mut readout, &switch), Some((1_014, 4)));

        switch.begun.number += 2;
        assert!(readout.read(&switch.poll()).expect("its own program").started_again, "no interval began");
    }
}

#[test]
fn after_a_connection_that_broke_the_first_intervals_begin_two_polls_later() {
    let (mut readout, mut switch) = sender();
    let mut known = Vec::new();
    for packets in 1..=7 {
        if packets == 4 {
            readout.forget();
        }
        known.push(read(&mut readout, &switch).map(|(_, packets)| packets));
        switch.begin();
        switch.pass(packets, 5);
    }

    assert_eq!(known, [None, None, Some(1), None, None, Some(4), Some(5)]);
}

#[test]
fn another_program_is_refused_and_nothing_of_before_is_used() {
    let (mut readout, mut switch) = sender();
    for packets in 1..=3 {
        let _ = read(&mut readout, &switch);
        switch.begin();
        switch.pass(packets, 5);
    }
    let other = BucketPoll { frames: FrameBlock { checksum: 7, ..switch.frames }, ..switch.poll() };

    let error = readout.read(&other).expect_err("another program").to_string();

    let expected = format!("finecomb-sender with the agent's constants has {:#x}", switch.frames.checksum);
    assert!(error.contains(&expected), "{error}");
    assert_eq!(read(&mut readout, &switch), None);
}

#[test]
fn frames_that_could_not_be_parsed_are_counted_from_poll_to_poll() {
    let (mut readout, mut switch) = sender();
    let _ = read(&mut readout, &switch);
    switch.begin();
    switch.frames.refusals[ParseError::CutTcp as usize] += 3;
    switch.frames.refusals[ParseError::OtherLink as usize] += 4;

    assert_eq!(readout.read(&switch.poll()).expect("its own program").refused, 3);
    switch.begin();
    assert_eq!(readout.read(&switch.poll()).expect("its own program").refused, 0);
}

#[test]
fn an_offset_is_added_to_every_time() {
    let packet = |number: u64, time_ns| StashedPacket { digest: 1, time_ns, row: 0, number };
    let mut buckets = vec![Bucket::default(); BUCKETS];
    buckets[1] = Bucket { sum: 10, count: 3, digest: 5 };
    let end = EndStash { before: vec![packet(1, 4)], after: vec![packet(2, 5), packet(3, 1)] };
    let stashes = Some([EndStash::default(), end]);
    let interval = BucketInterval { number: 1, packets: 3, buckets, stashes };
    let offset = 5_u64.wrapping_neg();

    let received = interval.received(&settings(), offset).expect("its own settings");

    let mut moved = [Bucket::default(); BUCKETS];
    moved[1] = Bucket { sum: 5_u64.wrapping_neg(), count: 3, digest: 5 };
    let expected = FineComb::of_buckets(&settings(), 3, &moved).expect("possible");
    assert_eq!(received.finecomb().encode(), expected.encode());
    let end = received.end().next().expect("one bank");
    assert_eq!(end.before, [packet(1, u64::MAX)]);
    assert_eq!(end.after, [packet(2, 0), packet(3, 4_u64.wrapping_neg())]);
    assert!(interval.finecomb(&Settings { buckets: 5, ..settings() }, 0).is_err(), "other settings");
}

#[test]
fn stashes_are_those_of_both_ends_and_at_most_as_many_as_have_room() {
    let packets = |from: u64| {
        let packet = |number| StashedPacket { number, ..StashedPacket::default() };
        (from..from + 8).map(packet).collect::<Vec<_>>()
    };
    // Ends 0 to 3, with room for two packets each.
    let block = StashBlock {
        before: StashList { counts: [0, 1, 9, 2], packets: packets(10) },
        after: StashList { counts: [1, 2, 0, 0], packets: packets(20) },
    };
    let numbers = |packets: &[StashedPacket]| packets.iter().map(|packet| packet.number).collect::<Vec<_>>();

    // The interval that began as the first and ended as the second one began; then one that wraps.
    let [start, end] = ends(&block, 2);
    assert_eq!((numbers(&start.before), numbers(&start.after)), (vec![12], vec![22, 23]));
    assert_eq!((numbers(&end.before), numbers(&end.after)), (vec![14, 15], vec![]));
    let [start, end] = ends(&block, 0);
    assert_eq!((numbers(&start.before), numbers(&start.after)), (vec![16, 17], vec![]));
    assert_eq!((numbers(&end.before), numbers(&end.after)), (vec![], vec![20]));
}

#[test]
fn two_ends_with_one_secret_have_one_fingerprint_and_other_ends_another() {
    let of = |constants: &Constants| BucketReadout::new(constants).expect("an end").fingerprint();
    let sender = of(&constants(false, 7));

    assert_eq!(of(&constants(true, 7)), sender, "the receiver");
    assert_ne!(of(&constants(true, 8)), sender, "another secret");
    let more = Settings { buckets: 8, ..settings() };
    let more = programs::finecomb(&more, true, &DigestKey::new(7)).expect("possible");
    assert_ne!(of(&more), sender, "more buckets");
    let lda = programs::lda(&settings(), &DigestKey::new(7)).expect("possible");
    assert_ne!(of(&lda), sender, "LDA");
    let hardware = |secret| {
        let kind = DigestKind::Hardware;
        let settings = Settings { seed: kind.seed(9), ..settings() };
        of(&programs::finecomb(&settings, true, &DigestKey::of_kind(kind, secret)).expect("possible"))
    };
    assert_ne!(hardware(7), sender, "other digests");
    assert_ne!(hardware(7), hardware(8), "another secret of theirs");
}

#[test]
fn settings_follow_from_the_constants_up_to_the_seed() {
    let receiver = BucketReadout::new(&constants(true, 7)).expect("a receiver");
    assert_eq!(*receiver.settings(), Settings { seed: 0, ..settings() });
    assert!(receiver.has_digests() && receiver.receives);
    assert_eq!(receiver.program(), "finecomb-receiver");

    let bank = |probability| Bank { probability, stash: 0, loss: 0.0 };
    let two = Settings { banks: vec![bank(0.5), bank(0.25)], sampling: Sampling::Disjoint, ..settings() };
    for settings in [two, Settings { banks: vec![bank(0.6)], ..settings() }] {
        let constants = programs::lda(&settings, &DigestKey::new(7)).expect("possible");
        let lda = BucketReadout::new(&constants).expect("an LDA");
        assert_eq!(*lda.settings(), Settings { seed: 0, ..settings });
        assert!(!lda.has_digests() && !lda.receives);
    }
}

#[test]
fn of_lda_with_one_bank_the_second_one_is_left_out() {
    let constants = programs::lda(&Settings::one_bank(BUCKETS, 1.0, 0, 9), &DigestKey::new(7)).expect("possible");
    let (mut readout, mut switch) = (BucketReadout::new(&constants).expect("an LDA"), Switch::new(&constants, 2));
    for packets in 1..=3 {
        let _ = readout.read(&switch.poll()).expect("its own program");
        switch.begin();
        switch.pass(packets, 5);
    }

    let interval = readout.read(&switch.poll()).expect("its own program").interval.expect("a whole one");
    assert_eq!(interval.buckets.len(), BUCKETS);
    assert_eq!(interval.buckets[0], Bucket { sum: 10, count: 2, digest: 2 << 8 });
}

#[test]
fn constants_of_another_program_or_of_impossible_sizes_are_refused() {
    let fridge = programs::fridge(synopses::fridge::Settings::default(), &DigestKey::new(7)).expect("possible");
    let error = BucketReadout::new(&fridge).expect_err("no buckets").to_string();
    assert_eq!(error, "fridge has no constant FIRST_0");

    let mut large = Constants::new("finecomb-sender");
    for name in ["VALUE", "SAMPLED"] {
        large.number(name, 64, 1);
    }
    large.number("BUCKETS", 32, 1 << 17);
    let error = BucketReadout::new(&large).expect_err("too many").to_string();
    assert_eq!(error, "buckets: 131072, at most 65536 are possible in a switch");
}
