//! What services, SDKs, operators and the kernel of the same machine say.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use host_agent::control_plane::TrainedModel;
use host_agent::operators_server::translate;
use lmap::{Expression, ReplicaExpression};
use packets::{Filter, Frame, Link, View};
use prost::Message as _;
use region::ring::{Cells, PollSummary, Tickets};
use sources::cgroup::Values;
use sources::cgroup::files::{FILES, interfaces, tcp, tcp_extensions};
use sources::cgroup::hierarchies::hierarchies;
use sources::cgroup::pattern::Pattern;
use sources::process::{FromText, Io, Schedstat, Stat, Switches};
use sources::selection::Candidate;
use sources::sockets::{self, Connections, Socket};
use wire::metric::Aggregation;
use wire::name::ServiceName;
use wire::proto::operators as proto;

/// Words of a record in the fuzzed ring: few, so that an input has several cells.
const WORDS: usize = 2;
/// Cells of the ring: more than may be pending.
const CELLS: usize = 512;
/// Words that an input changes between two polls: 8 of the ring's head, and 4 cells. The other cells are never written.
const CHANGED: usize = 8 + 4 * (1 + WORDS);
/// Records that may be pending between two polls.
const PENDING: u64 = 256;

/// A span ring whose words change between polls, as a service that means no good writes them: the first 20 each time.
pub fn ring(bytes: &[u8]) {
    let words: Vec<AtomicU64> = (0..8 + CELLS * (1 + WORDS)).map(|_| AtomicU64::new(0)).collect();
    let cells = Cells::<AtomicU64, WORDS>::new(&words).expect("the cells fit");
    let mut tickets = Tickets::<WORDS>::new(0);
    // Every ticket up to here was read, is lost, or is pending.
    let (mut next, mut tickets_passed, mut accounted) = (0, 0_u128, 0_u128);
    for contents in bytes.chunks(8 * CHANGED) {
        for (word, bytes) in words.iter().zip(contents.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(whole), Relaxed);
        }
        let end = words[0].load(Relaxed);
        let mut read = 0;
        let PollSummary { read: said, lost } = tickets.poll(cells, |_| read += 1);
        assert!(read == said && read <= CELLS as u64 + PENDING, "{read} records of a ring of {CELLS}");
        tickets_passed += u128::from(u64::saturating_sub(end, next));
        next = end;
        accounted += u128::from(read) + u128::from(lost.overwritten) + u128::from(lost.unfinished);
        assert!(accounted <= tickets_passed, "a ticket is accounted for once");
    }
    let pending = tickets.give_up();
    assert!(pending <= PENDING);
    // A sum that does not fit into a counter stays at its end.
    let saturates = tickets_passed >= u128::from(u64::MAX);
    assert!(saturates || accounted + u128::from(pending) == tickets_passed, "a ticket was forgotten");
}

/// Which service an SDK asks for: as the query of a URL, and as the body of a gRPC call, also with a correct frame.
pub fn head_sampling(bytes: &[u8]) {
    use head_sampling::request::{MAX_NAME_BYTES, service_in_frame, service_in_query};

    let check = |service: Result<String, &str>| match service {
        Ok(service) => assert!((1..=MAX_NAME_BYTES).contains(&service.len())),
        Err(why) => assert!(!why.is_empty()),
    };
    if let Ok(text) = core::str::from_utf8(bytes) {
        check(service_in_query(text));
        check(service_in_query(&format!("service={text}")));
    }
    check(service_in_frame(bytes));
    let framed = [&[0], (bytes.len() as u32).to_be_bytes().as_slice(), bytes].concat();
    check(service_in_frame(&framed));
}

/// Files of /proc. A process chooses its own name, which stands amid them.
pub fn proc_text(bytes: &[u8]) {
    if let Some(Schedstat { ran_ns, waited_ns }) = Schedstat::from_text(bytes) {
        let again = Schedstat::from_text(format!("{ran_ns} {waited_ns} 1\n").as_bytes());
        assert_eq!(again, Some(Schedstat { ran_ns, waited_ns }));
    }
    let switches = Switches::from_text(bytes);
    assert!(switches.is_some(), "a process may have no counts");
    if let Some(io) = Io::from_text(bytes) {
        let text = format!("rchar: {}\nwrite_bytes:{}\n", io.bytes_read, io.disk_written);
        let again = Io::from_text(text.as_bytes()).expect("numbers that were read can be read");
        assert_eq!((again.bytes_read, again.disk_written), (io.bytes_read, io.disk_written));
    }
    let _ = Stat::from_text(bytes);
    // As the name of a process, whatever it is: the numbers after it are those of the kernel.
    let numbers = "S 1 4711 4711 0 -1 4194560 1206 30 7 0 12 5 0 0 20 0 3 0 8911 8425472 1330 0 0\n";
    let text = [b"4711 (", bytes, b") ", numbers.as_bytes()].concat();
    let stat = Stat::from_text(&text).expect("a name changes nothing");
    assert_eq!((stat.minor_faults, stat.threads, stat.started, stat.resident_pages), (1206, 3, 8911, 1330));
    let candidate = Candidate::from_stat(&text).expect("a name changes nothing");
    assert_eq!((candidate.pid, candidate.parent, candidate.started), (4711, 1, 8911));
    network_text(bytes);
    cgroup_text(bytes);
}

/// Tables of sockets and counters of a network namespace.
fn network_text(bytes: &[u8]) {
    let mut connections = Connections::default();
    for socket in sockets::sockets(bytes) {
        connections.add(&socket);
        let Socket { state, send_queue, receive_queue, inode } = socket;
        let line = format!("0: 00:0 00:0 {state:02X} {send_queue:08X}:{receive_queue:08X} 0 0 0 0 {inode} 1\n");
        assert_eq!(sockets::sockets(line.as_bytes()).next(), Some(socket), "a socket that was read can be read");
    }
    let counted = connections.established + connections.close_wait + connections.other;
    assert!(counted <= sockets::sockets(bytes).count() as u64);
    if let Some(inode) = sockets::inode(bytes) {
        assert_eq!(sockets::inode(format!("socket:[{inode}]").as_bytes()), Some(inode));
    }
    if let Some(value) = sockets::counter(bytes, "Tcp", "RetransSegs") {
        let text = format!("Tcp: RetransSegs\nTcp: {value}\n");
        assert_eq!(sockets::counter(text.as_bytes(), "Tcp", "RetransSegs"), Some(value));
    }
}

/// Files of a cgroup, of the namespace of its processes, and mounts. A user may name interfaces and folders.
fn cgroup_text(bytes: &[u8]) {
    let mut values = Values::default();
    for file in FILES {
        values.clear();
        let read = file.read(bytes, &mut values);
        let again = (file.read(bytes, &mut Values::default()), read);
        assert_eq!(again.0, again.1, "{} is read the same twice", file.name);
    }
    let _ = interfaces(bytes, &mut values);
    tcp(bytes, &mut values);
    tcp_extensions(bytes, &mut values);
    assert!(hierarchies(bytes).len() <= 6, "one for each controller");
    let Ok(path) = core::str::from_utf8(bytes) else { return };
    if let Ok(pattern) = Pattern::new(path, "{name}") {
        let _ = pattern.service(path);
    }
    let any = Pattern::new("*", "{name}").expect("a star is a pattern");
    if let Some(service) = any.service(path) {
        assert!(ServiceName::new(&service).is_ok(), "{service:?} is no name");
    }
}

/// Requests of operators and hooks.
pub fn operators_request(bytes: &[u8]) {
    let refused = |status: tonic::Status| assert!(!status.message().is_empty(), "a refusal has a reason");
    if let Ok(request) = proto::NewLmapRequest::decode(bytes) {
        drop(translate::service(&request.service).map_err(refused));
        let _ = translate::interval(request.interval_us).map_err(refused);
        if let Ok(model) = TrainedModel::new(request.model.clone()) {
            drop(translate::lmap_options(&request, model).map_err(refused));
        }
    }
    if let Ok(request) = proto::SetModelRequest::decode(bytes)
        && let Ok(model) = TrainedModel::new(request.model)
    {
        let _ = model.knows("process.cpu.time");
    }
    if let Ok(metric) = proto::MetricConfig::decode(bytes) {
        drop(translate::choice(&metric).map_err(refused));
    }
    if let Ok(request) = proto::RegisterHookRequest::decode(bytes) {
        match translate::filter(&request) {
            Ok(filter) => assert!(filter.min_share.is_finite() && filter.min_share >= 0.0),
            Err(status) => refused(status),
        }
    }
}

/// An expression of an operator: over replicas and over columns.
pub fn expression(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    if let Ok(aggregation) = Aggregation::parse(text) {
        assert_eq!(Aggregation::parse(&aggregation.to_string()), Ok(aggregation), "{text:?} is printed as another one");
    }
    match Expression::parse(text) {
        Ok(expression) => {
            assert!(!expression.names().is_empty(), "{text:?} names nothing");
            let _ = expression.check_finite();
            let _ = expression.evaluate(|name| f64::from_bits(name as u64) - 1.0);
        }
        Err(error) => super::check_message(&error),
    }
    match ReplicaExpression::new(text) {
        Ok(expression) => {
            let (mut values, mut turned) = ([4.0, -2.0, 8.0], [8.0, 4.0, -2.0]);
            let found = [expression.evaluate(&mut values), expression.evaluate(&mut turned)];
            assert_eq!(found[0].to_bits(), found[1].to_bits(), "{text:?} depends on the order of replicas");
        }
        Err(error) => super::check_message(&error),
    }
}

/// The filter of a stream, up to a line break, and a packet that it is asked about.
pub fn packet_filter(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (text, packet) = bytes.split_at(end);
    let Ok(text) = core::str::from_utf8(text) else { return };
    let filter: Filter = match text.parse() {
        Ok(filter) => filter,
        Err(error) => return super::check_message(&error),
    };
    let again: Filter = filter.to_string().parse().expect("a printed filter can be read");
    assert_eq!(again, filter, "{text:?} is printed as another filter");
    let bytes = packet.get(1..).unwrap_or_default();
    for link in [Link::Ethernet, Link::Ip] {
        let frame = Frame { bytes, length: bytes.len() as u32, time_ns: 0, link };
        if let Ok(packet) = packets::parse(&frame, View::Outer) {
            let found = (filter.matches(&packet), filter.matches_reply(&packet));
            assert_eq!((again.matches(&packet), again.matches_reply(&packet)), found);
        }
    }
}
