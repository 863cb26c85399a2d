//! Rings of an interface: several rings, rings that are not read, and interfaces without hardware timestamps.

use std::net::UdpSocket;

use packets::delays::ShardDelays;
use packets::ring::{Ring, RingError, RingSettings, TimestampSource};
use packets::{Delays, DelaysSettings, Filter, Pair, Progress, Source as _, View, parse};
use synopses::fridge::{HistogramShape, Settings};

use super::connect;
use support::network::{HERE, Network, THERE};
use support::relay::{LinkConditions, Relay, patient_ring};

/// A fridge with a slot for each request.
fn handshakes() -> Delays {
    let fridge = Settings { slots: 1 << 20, tick_shift: 0, ..Settings::default() };
    let histogram = HistogramShape { tick_shift: 0, fineness: 5 };
    let (pair, filter) = (Pair::Handshake, Filter::default());
    Delays::new(DelaysSettings { pair, filter, fridge, histogram, tuned: false, secret: 3 }).expect("possible")
}

/// The delays and the number of frames of a ring, read until no frame arrives any more. A block's frames may arrive
/// only after its deadline.
fn read_shard(mut ring: Ring) -> (ShardDelays, u64) {
    let mut delays = handshakes();
    let mut take = |ring: &mut Ring| {
        ring.read(&mut |frame| {
            if let Ok(packet) = parse(frame, View::Outer) {
                let _ = delays.insert(&packet);
            }
        })
        .expect("it is read")
    };
    while take(&mut ring) != Progress::Frames(0) {}
    let counts = ring.counts();
    assert_eq!(counts.dropped, 0, "the rings hold all frames");
    (delays.end_shard(u64::MAX), counts.frames)
}

#[test]
fn two_rings_together_have_the_delays_of_one_ring() {
    let Some(network) = Network::create() else { return };
    let relay = Relay::start(&network, LinkConditions { delay_ms: (1, 5), loss: 0.0, duplication: 0.0, seed: 4 });
    let (one, two) = network.run(HERE, || {
        let settings = patient_ring("here0");
        let one = Ring::open(&settings).expect("root may read an interface");
        (one, Ring::open_group(&settings, 2).expect("an interface has several rings"))
    });
    connect(&network, 200);

    let (one, frames) = read_shard(one);
    let [(mut both, some), (others, more)] =
        <[_; 2]>::try_from(two.into_iter().map(read_shard).collect::<Vec<_>>()).expect("two were opened");
    drop(relay.stop());
    assert!(some > 0 && more > 0, "{some} and {more}");
    // ARP frames, and frames between the opening of the rings, belong to no stream.
    let shares = [&both, &others].map(|part| part.interval().tally.matched);
    both.add(&others).expect("of one shape");
    let (one, both) = (one.interval(), both.interval());
    println!("{frames} frames, {some} and {more}; {:?} as {shares:?}", one.tally);
    assert!(one.tally.matched >= 200 && shares.iter().all(|share| *share > 40), "{shares:?}");
    assert_eq!((one.packets, one.tally), (both.packets, both.tally));
    for (one, both) in one.quantiles.expect("samples").iter().zip(both.quantiles.expect("samples")) {
        // Weights differ in the last digits, so that a quantile at a bound may be in either bucket: 2.1 % apart.
        assert!((one.delay_ns / both.delay_ns - 1.0).abs() < 3e-2, "{one:?} {both:?}");
    }
    let error = network.run(HERE, || Ring::open_group(&patient_ring("here0"), 65)).expect_err("too many");
    assert!(matches!(error, RingError::Number(65)), "{error}");
}

#[test]
fn frames_that_do_not_fit_the_ring_are_counted_by_the_kernel_and_no_others_are_missing() {
    const SENT: u64 = 2_000;
    let Some(network) = Network::create() else { return };
    network.connect_directly();
    let mut ring = network.run(THERE, || {
        // Four pages, filled with frames of 1,000 bytes and not read meanwhile.
        let settings = RingSettings {
            interface: "there2".to_owned(),
            block_bytes: 1 << 12,
            blocks: 4,
            incoming: true,
            ..RingSettings::default()
        };
        Ring::open(&settings).expect("root may read an interface")
    });
    let sink = (Network::direct_address(THERE), 6_000);
    let _bound = network.run(THERE, move || UdpSocket::bind(sink).expect("the port is free"));
    network.run(HERE, move || {
        let socket = UdpSocket::bind((Network::direct_address(HERE), 0)).expect("the port is free");
        for _ in 0..SENT {
            while socket.send_to(&[7; 1_000], sink).is_err() {}
        }
    });

    let (mut datagrams, mut frames) = (0, 0);
    let mut counts = ring.counts();
    // A frame may still be in the kernel. Ten seconds are enough for any.
    for _ in 0..100 {
        if counts.frames + counts.dropped >= SENT {
            break;
        }
        let _ = ring
            .read(&mut |frame| {
                frames += 1;
                datagrams += u64::from(frame.length > 1_000);
            })
            .expect("it is read");
        counts = ring.counts();
    }
    println!("{counts:?}");
    assert!(counts.dropped > 0 && datagrams < SENT);
    assert_eq!(counts.frames, frames);
    // Read and dropped frames are all that arrived at the interface, plus at most some ARP frames.
    let seen = counts.frames + counts.dropped;
    assert!((SENT..=SENT + 5).contains(&seen), "{seen} of {SENT}");
}

#[test]
fn an_interface_without_a_hardware_clock_uses_the_kernels_with_a_reason() {
    let Some(network) = Network::create() else { return };
    let open = |hardware| {
        let settings = RingSettings { hardware, ..patient_ring("here0") };
        network.run(HERE, move || Ring::open(&settings).expect("root may read an interface"))
    };
    assert_eq!(*open(false).timestamp_source(), TimestampSource::Kernel);
    let mut ring = open(true);
    let TimestampSource::Refused(why) = ring.timestamp_source() else { panic!("{:?}", ring.timestamp_source()) };
    assert!(why.contains("ethtool -T"), "{why}");

    // Outgoing frames are captured as before, with timestamps.
    network.run(HERE, || {
        let socket = UdpSocket::bind((Network::address(HERE), 0)).expect("the port is free");
        let _ = socket.send_to(&[1; 10], (Network::address(THERE), 9));
    });
    let mut times = Vec::new();
    while times.is_empty() {
        let found = ring.read(&mut |frame| times.push(frame.time_ns)).expect("it is read");
        assert_ne!(found, Progress::Frames(0), "a frame within the ring's patience");
    }
    assert!(times.iter().all(|time_ns| *time_ns > 1_600_000_000_000_000_000), "{times:?}");
    assert_eq!(ring.counts().unstamped, 0);
}
