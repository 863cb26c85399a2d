//! PRECISION: heavy flows of the latest epoch that is over.

use equality::control::Local;
use equality::frames::{AGENT_PORT, Captured, Frames};
use equality::model::Reference as _;
use equality::precision::{Reference, settings_of};
use equality::traffic::{Streams, Traffic};
use equality::vectors::Vector;
use packets::flows::MIN_SHARE_PACKETS;
use packets::switch::readout::{HeavyReadout, SwitchHeavyFlows};
use packets::switch::registers::{HeavyBlock, SwitchRegisters as _};
use synopses::rap::HeavyHitters as _;

use crate::{constants, machine, subject};

const PROGRAMS: [&str; 2] = ["precision", "precision-hardware"];
/// Time between two polls, of the agent's clock.
const SECOND: u64 = 1_000_000_000;

/// Polls a switch after every `every` frames, at the beginning of the epoch behind the latest frame, and compares each
/// interval with what the library has of that frame's epoch. Returns how many there were, and how many of them had a
/// share.
fn compare(program: &str, frames: &[Captured], every: usize) -> (usize, usize) {
    let (constants, name) = (constants(program), subject(program).name);
    let shift = settings_of(constants.kind()).epoch_shift;
    let mut readout = HeavyReadout::new(&constants, SECOND).expect("constants of PRECISION");
    let mut library = Reference::new(&constants).expect("settings of the tested program");
    let (mut machine, mut counts) = (machine(program), Frames::new(&constants));
    let (mut latest_ns, mut before) = (0, None);
    let (mut intervals, mut shares) = (0, 0);
    for (number, batch) in (1..).zip(core::iter::once(&frames[..0]).chain(frames.chunks(every))) {
        let mut packets = 0;
        for captured in batch {
            machine.process(AGENT_PORT, 0, &captured.replayed()).expect("a frame");
            library.process(captured);
            packets += u64::from(counts.count(captured).is_some());
            latest_ns = captured.time_ns.max(latest_ns);
        }
        let epoch = latest_ns >> shift;
        let mut switch = Local(&machine, name);
        let block = HeavyBlock::read(&mut switch, readout.rows()).expect("PRECISION");
        let read = switch.frames().expect("frames");
        let interval = readout.read(&read, &block, number * SECOND, (epoch + 1) << shift).expect("its own constants");
        let Some(SwitchHeavyFlows { frames, flows, overrun }) = interval else {
            assert_eq!(number, 1, "it begins once");
            continue;
        };
        let flows = flows.expect("an epoch that is over");
        let table = library.tables().of_epoch(epoch);
        let expected = table.map_or(0, |table| table.tally().inserted);
        let heaviest = table.and_then(|table| table.entries().map(|entry| entry.since).max()).unwrap_or(0);
        assert_eq!((flows.packets, flows.heaviest), (expected, heaviest), "{program}, interval {number}");
        let share = (expected >= MIN_SHARE_PACKETS).then(|| heaviest as f64 / expected as f64);
        let lasting = share.map(|share| share.max(before.unwrap_or(share)));
        assert_eq!(flows.lasting_share, lasting, "{program}, interval {number}");
        assert_eq!((frames.packets, frames.lost_polls, overrun), (packets, 0, 0), "{program}, interval {number}");
        before = share;
        (intervals, shares) = (intervals + 1, shares + usize::from(share.is_some()));
    }
    (intervals, shares)
}

#[test]
fn heavy_flows_of_each_golden_vector_are_those_of_the_library() {
    for program in PROGRAMS {
        for vector in Vector::read_all(subject(program)).expect("vectors of the program") {
            // Enough for the next epoch, with which a share is another one.
            let (intervals, _) = compare(program, &vector.frames, 1_000);

            assert!(intervals > 0, "{program}, {}", vector.name);
        }
    }
}

#[test]
fn heavy_flows_of_random_frames_are_those_of_the_library() {
    for program in PROGRAMS {
        let streams: Vec<_> = Streams::new(61).take(20_000).collect();
        let (intervals, shares) = compare(program, &streams, 700);
        assert!(intervals == 29 && shares > 5, "{program}: {shares} shares in {intervals} intervals");

        let damaged: Vec<_> = Traffic::new(62, 0.2).take(5_000).collect();
        let (intervals, _) = compare(program, &damaged, 600);
        assert_eq!(intervals, 9, "{program}");
    }
}
