//! Rings of an interface: several of them, ones that nobody reads, cards that cannot stamp.

use std::net::UdpSocket;

use packets::delays::Part;
use packets::ring::{Ring, RingError, RingSettings, Stamps};
use packets::{Delays, DelaysSettings, Filter, Pair, Progress, Source as _, View, parse};
use synopses::fridge::{HistogramShape, Settings};

use super::connect;
use super::network::{HERE, Network, THERE};
use super::relay::{Relay, Road, patient_ring};

/// A fridge with room for all.
fn handshakes() -> Delays {
    let fridge = Settings { slots: 1 << 20, tick_shift: 0, ..Settings::default() };
    let histogram = HistogramShape { tick_shift: 0, fineness: 5 };
    let (pair, filter) = (Pair::Handshake, Filter::default());
    Delays::new(DelaysSettings { pair, filter, fridge, histogram, tuned: false, secret: 3 }).expect("possible")
}

/// What a ring saw until nothing came any more: its part, and its frames. Its next to last frame may wait for the deadline of its block.
fn part(mut ring: Ring) -> (Part, u64) {
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
    assert_eq!(counts.dropped, 0, "the rings have room for all");
    (delays.end_part(u64::MAX), counts.frames)
}

#[test]
fn two_rings_see_every_packet_once_and_say_together_what_one_says() {
    let Some(network) = Network::make() else { return };
    let relay = Relay::start(&network, Road { delay_ms: (1, 5), loss: 0.0, twice: 0.0, seed: 4 });
    let (one, two) = network.run(HERE, || {
        let settings = patient_ring("here0");
        let one = Ring::open(&settings).expect("root may read an interface");
        (one, Ring::open_some(&settings, 2).expect("an interface has several rings"))
    });
    connect(&network, 200);

    let (one, frames) = part(one);
    let [(mut both, some), (others, more)] =
        <[_; 2]>::try_from(two.into_iter().map(part).collect::<Vec<_>>()).expect("two were opened");
    drop(relay.stop());
    assert!(some > 0 && more > 0, "{some} and {more}");
    // ARP, and what came between opening one and the others, are no part of any stream.
    let shares = [&both, &others].map(|part| part.interval().tally.matched);
    both.add(&others).expect("of one shape");
    let (one, both) = (one.interval(), both.interval());
    println!("{frames} frames, {some} and {more}; {:?} as {shares:?}", one.tally);
    assert!(one.tally.matched >= 200 && shares.iter().all(|share| *share > 40), "{shares:?}");
    assert_eq!((one.packets, one.tally), (both.packets, both.tally));
    for (one, both) in one.quantiles.expect("samples").iter().zip(both.quantiles.expect("samples")) {
        // Weights differ in the last digits.
        assert!((one.delay_ns / both.delay_ns - 1.0).abs() < 1e-2, "{one:?} {both:?}");
    }
    let error = network.run(HERE, || Ring::open_some(&patient_ring("here0"), 65)).expect_err("too many");
    assert!(matches!(error, RingError::Number(65)), "{error}");
}

#[test]
fn frames_that_find_no_room_are_counted_by_the_kernel_and_nothing_else_is_missing() {
    const SENT: u64 = 2_000;
    let Some(network) = Network::make() else { return };
    network.join();
    let mut ring = network.run(THERE, || {
        // Four pages, of which frames of 1,000 bytes fill some, and nobody reads them meanwhile.
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
    // A frame may still be on its way through the kernel; ten seconds of patience are enough for any.
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
    // The ring and what it dropped is all that came to the interface: at most some ARP besides.
    let seen = counts.frames + counts.dropped;
    assert!((SENT..=SENT + 5).contains(&seen), "{seen} of {SENT}");
}

#[test]
fn an_interface_without_a_clock_gives_the_kernels_times_and_says_why() {
    let Some(network) = Network::make() else { return };
    let open = |hardware| {
        let settings = RingSettings { hardware, ..patient_ring("here0") };
        network.run(HERE, move || Ring::open(&settings).expect("root may read an interface"))
    };
    assert_eq!(*open(false).stamps(), Stamps::Kernel);
    let mut ring = open(true);
    let Stamps::Refused(why) = ring.stamps() else { panic!("{:?}", ring.stamps()) };
    assert!(why.contains("ethtool -T"), "{why}");

    // What goes out is seen as before, with times.
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
