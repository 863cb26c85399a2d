use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use packets::generator::{Traffic, TrafficSettings};

use super::super::shards::ShardedStream;
use super::*;
use crate::config::{Config, StreamConfig};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;

/// A ring without streams, and the queues to and from it.
fn ring() -> (Streams, Sender<Command>, Receiver<Event>) {
    let ((sender, commands), (events, inbox)) = (channel(), channel());
    (Streams::new(Some(RingLink { commands, events })), sender, inbox)
}

fn config(stream: &str) -> StreamConfig {
    let text = format!("network:\n  streams: [{{interface: lo, {stream}}}]\n");
    Config::parse(&text).unwrap().network.streams.remove(0)
}

fn parts(stream: &str) -> Vec<StreamPart> {
    StreamPart::of(&config(stream), Path::new("/nowhere/services.sock"), 1).unwrap().remove(0)
}

fn add(to: &Sender<Command>, stream: &str) {
    for part in parts(stream) {
        to.send(Command::Add(Box::new(part))).unwrap();
    }
}

/// Handshakes of 10.0.0.0/16 with 10.1.0.0/16 in `seconds` from the start on.
fn traffic(seconds: u64) -> Traffic {
    Traffic::new(&TrafficSettings {
        connections: 2_000,
        segments: 1,
        queries: 0,
        span_ns: seconds * SECOND,
        start_ns: START,
        ..TrafficSettings::default()
    })
}

/// Has the ring read the frames of the second `number`, and end it.
fn read(streams: &mut Streams, traffic: &Traffic, number: u64) {
    let begin = START + number * SECOND;
    streams.take_commands();
    streams.end_intervals(UnixNanos(begin), 0);
    traffic
        .frames()
        .filter(|frame| (begin..begin + SECOND).contains(&frame.time_ns))
        .for_each(|frame| streams.insert(&frame));
    streams.take_commands();
    streams.end_intervals(UnixNanos(begin + SECOND), 0);
}

fn names(inbox: &Receiver<Event>) -> Vec<String> {
    let name = |event| match event {
        Event::Ended(part) => part.name().to_owned(),
        other => panic!("{other:?}"),
    };
    inbox.try_iter().map(name).collect()
}

#[test]
fn a_frame_is_parsed_for_the_views_of_the_streams() {
    let (mut streams, commands, _inbox) = ring();
    assert_eq!(streams.views, [false, false]);
    add(&commands, "name: a, pair: dns");
    streams.take_commands();
    assert_eq!((streams.views, streams.request_response.len(), streams.one_way.len()), ([true, false], 1, 0));
    add(&commands, "name: b, synopses: {cardinality: {}}, inner: true");
    streams.take_commands();
    assert_eq!((streams.views, streams.flows.len()), ([true, true], 1));
    streams.mtu = 1_500;
    let bytes = packets::generator::segment(&[7; 100]);
    let frame = Frame { bytes: &bytes, length: 1_522, time_ns: 5, link: packets::Link::Ethernet };
    streams.insert(&frame);
    streams.insert(&Frame { length: 1_523, ..frame });
    // For "cooked" frames the MTU of their interface is unknown.
    streams.insert(&Frame { length: 9_000, link: packets::Link::Cooked, ..frame });
    assert_eq!(streams.oversized, 1);
}

#[test]
fn a_stream_that_is_to_end_measures_its_interval_to_the_end_and_no_other() {
    let (mut streams, commands, inbox) = ring();
    let traffic = traffic(4);
    add(&commands, "name: a, pair: handshake, synopses: {cardinality: {}}");
    add(&commands, "name: b, pair: handshake");
    read(&mut streams, &traffic, 0);
    let begin = START + SECOND;
    let frames: Vec<_> = traffic.frames().filter(|of| (begin..begin + SECOND).contains(&of.time_ns)).collect();
    let before = streams.request_response[0].packets();
    // In the middle of an interval.
    for frame in &frames[..frames.len() / 2] {
        streams.insert(frame);
    }
    commands.send(Command::End("a".to_owned())).unwrap();
    streams.take_commands();
    streams.end_intervals(UnixNanos(begin + SECOND / 2), 0);
    assert_eq!(names(&inbox), Vec::<String>::new(), "its interval is not over");
    for frame in &frames[frames.len() / 2..] {
        streams.insert(frame);
    }
    streams.end_intervals(UnixNanos(begin + SECOND), 0);

    let ended: Vec<_> = inbox.try_iter().collect();
    let [Event::Ended(delays), Event::Ended(flows)] = &ended[..] else { panic!("{ended:?}") };
    let (StreamPart::Delays(delays), StreamPart::Flows(flows)) = (&**delays, &**flows) else { panic!("{ended:?}") };
    let of_second = delays.packets() - before;
    assert!(of_second as usize == frames.len() && flows.counts()[0] > of_second, "{of_second} of {}", frames.len());
    assert_eq!((streams.request_response.len(), streams.flows.len(), streams.views), (1, 0, [true, false]));
    read(&mut streams, &traffic, 2);
    assert!(delays.packets() - before == of_second && streams.request_response[0].packets() > of_second + before);
}

#[test]
fn another_filter_holds_from_the_next_interval_on_and_what_is_known_stays() {
    let (mut streams, commands, inbox) = ring();
    let traffic = traffic(4);
    // With one secret, both fridges keep the same requests.
    for stream in ["name: a, pair: handshake", "name: control, pair: handshake"] {
        let config = config(stream);
        let sharded = Arc::new(ShardedStream::new(&config, Path::new("/nowhere/services.sock"), 1));
        let part = StreamPart::Delays(Stream::new(&config, 1, sharded, 7).unwrap());
        commands.send(Command::Add(Box::new(part))).unwrap();
    }
    read(&mut streams, &traffic, 0);
    // All packets are of both filters: requests that wait for their answers still do.
    commands.send(Command::Filter("a".to_owned(), "net 0.0.0.0/0".parse().unwrap())).unwrap();
    for second in [1, 2] {
        read(&mut streams, &traffic, second);
        let [a, control] = &streams.request_response[..] else { panic!("two streams") };
        // By their bits, since a quantile that is not known is no number.
        let figures = |of: &Stream| (of.packets(), of.figures().map(f64::to_bits));
        assert_eq!(figures(a), figures(control));
        assert!(a.figures()[0] > 0.0, "{:?}", a.figures());
    }

    let packets = streams.request_response[0].packets();
    let begin = START + 3 * SECOND;
    let frames: Vec<_> = traffic.frames().filter(|of| (begin..begin + SECOND).contains(&of.time_ns)).collect();
    commands.send(Command::Filter("a".to_owned(), "host 192.0.2.1,192.0.2.2".parse().unwrap())).unwrap();
    streams.take_commands();
    for frame in &frames {
        streams.insert(frame);
    }
    streams.end_intervals(UnixNanos(begin + SECOND), 0);
    assert_eq!(streams.request_response[0].packets() - packets, frames.len() as u64, "its interval to the end");
    for frame in &frames {
        streams.insert(frame);
    }
    streams.end_intervals(UnixNanos(begin + 2 * SECOND), 0);
    let [a, control] = &streams.request_response[..] else { panic!("two streams") };
    assert_eq!(a.packets() - packets, frames.len() as u64, "no packet of the new addresses");
    assert!(control.packets() > a.packets() && names(&inbox).is_empty());
}

#[test]
fn while_an_interface_cannot_be_read_a_stream_ends_at_once_and_writes_nothing_half_read() {
    let (mut streams, commands, inbox) = ring();
    add(&commands, "name: a, pair: handshake");
    add(&commands, "name: b, synopses: {reordering: {}}");
    streams.take_commands();
    commands.send(Command::End("b".to_owned())).unwrap();
    streams.unreadable(UnixNanos(START));

    assert_eq!(names(&inbox), ["b"]);
    commands.send(Command::End("a".to_owned())).unwrap();
    streams.unreadable(UnixNanos(START));
    assert_eq!((names(&inbox), streams.views), (vec!["a".to_owned()], [false, false]));
}

#[test]
fn neither_packets_nor_a_look_for_changes_allocate() {
    let (mut streams, commands, _inbox) = ring();
    let traffic = traffic(2);
    add(&commands, "name: a, pair: handshake, filter: 'host 10.0.0.1,10.0.0.2,10.0.0.3'");
    add(&commands, "name: b, synopses: {reordering: {}, heavy_hitters: {}, cardinality: {}}");
    read(&mut streams, &traffic, 0);
    let frames: Vec<_> = traffic.frames().filter(|frame| frame.time_ns >= START + SECOND).collect();
    assert!(frames.len() > 1_000);

    let calls = allocations::during(|| {
        for frame in &frames {
            streams.take_commands();
            streams.insert(frame);
        }
    });
    assert_eq!(calls, allocations::Calls::default());
}
