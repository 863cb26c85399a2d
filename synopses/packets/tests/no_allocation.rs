//! No allocation per packet, from the file to the synopses.

use std::io::Cursor;

use packets::file::{Capture, Writer};
use packets::flows::{Key, PrefixLengths, Weight};
use packets::generator::{Traffic, TrafficSettings};
use packets::{
    Delays, DelaysSettings, Filter, Flows, FlowsSettings, Link, Pair, Progress, Refusals, Source as _, View, identity,
    parse,
};
use synopses::digest::DigestKey;
use synopses::finecomb::{FineComb, Settings as CombSettings};
use synopses::fridge::{HistogramShape, Settings};

#[test]
fn a_packet_of_a_capture_touches_no_allocator_until_it_is_in_all_synopses() {
    let mut writer = Writer::new(Vec::new(), Link::Ethernet, 96).expect("memory takes all");
    for frame in Traffic::new(&TrafficSettings::default()).frames() {
        writer.write(&frame).expect("memory takes all");
    }
    let mut capture = Capture::new(Cursor::new(writer.finish().expect("memory takes all"))).expect("a capture");
    let filter: Filter = "not port 1 and not vlan 9 and net 0.0.0.0/0".parse().expect("a filter");
    let mut delays = Pair::ALL.map(|pair| {
        let (fridge, histogram) = (Settings { slots: 256, ..Settings::default() }, HistogramShape::default());
        let settings = DelaysSettings { pair, filter: filter.clone(), fridge, histogram, tuned: false, secret: 1 };
        Delays::new(settings).expect("possible")
    });
    let mut flows = Key::ALL.map(|kind| {
        let (heavy, window_ns) = (Some((kind, Weight::Bytes)), Some(1_000_000_000));
        let reordering = Some(PrefixLengths::default());
        let settings = FlowsSettings { filter: filter.clone(), reordering, heavy, window_ns, secret: 1 };
        Flows::new(&settings).expect("possible")
    });
    let (key, mut refusals) = (DigestKey::new(2), Refusals::default());
    let mut finecomb = FineComb::new(&CombSettings::one_bank(100, 0.5, 0, 1)).expect("possible");
    // Reads the header, and describes the interface.
    assert!(matches!(capture.read(&mut |_| {}), Ok(Progress::Frames(_))));
    let before = capture.counts().frames;

    let calls = allocations::during(|| {
        loop {
            let progress = capture.read(&mut |frame| match parse(frame, View::Inner) {
                Ok(packet) => {
                    for delays in &mut delays {
                        let _ = delays.insert(&packet);
                    }
                    assert!(flows.iter_mut().all(|flows| flows.insert(&packet)));
                    finecomb.insert(identity::digest(&packet, &key), packet.time_ns);
                }
                Err(reason) => refusals.count(reason),
            });
            if progress.is_ok_and(|progress| progress == Progress::End) {
                break;
            }
        }
    });

    assert_eq!((calls.allocations, refusals.sum()), (0, 0));
    assert_eq!(finecomb.packets(), capture.counts().frames - before);
    assert!(flows.iter_mut().all(|flows| flows.end_interval(0, 1).packets == finecomb.packets()));
    assert!(finecomb.packets() > 3_000 && delays.iter().all(|delays| delays.histogram().samples() > 10));
}
