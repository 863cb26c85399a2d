//! Services that misbehave: they are refused, counted, and harm no other service.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use region::OwnedRegion;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use transport::attach::{Attacher, RequestError};
use wire::id::{Incarnation, RegionId};
use wire::layout::{RegionSize, Slot};
use wire::registration::ServiceMessage;

use crate::agent::{Agent, WAIT};
use crate::service::{Service, series};
use crate::worker::Worker;

/// A well-behaved service, to prove that it is unharmed.
struct Bystander {
    service: Service,
    _region: OwnedRegion,
    said: u64,
}

impl Bystander {
    fn of(agent: &Agent) -> Self {
        let (service, region) = Service::register(agent, "bystander", &["a"]);
        Self { service, _region: region, said: 3 }
    }

    fn is_unharmed(&mut self) {
        self.said += 1;
        let first = self.said as u32;
        self.service.send(&ServiceMessage::AddSeries(vec![Ok(series(&format!("b{first}"), first))]));
        assert!(self.service.wait_accepted(self.said).is_empty());
    }
}

#[test]
fn garbage_closes_its_own_connection_with_a_reason() {
    let agent = Agent::start();
    let mut bystander = Bystander::of(&agent);

    for garbage in [&[3, 0, 0, 0, 0xff, 0xff, 0xff][..], &[0, 0, 0, 0], b"\x10\0\0\0GET / HTTP/1.1\r\n"] {
        let mut service = Service::connect(&agent);
        service.stream.write_all(garbage).unwrap();
        let refused = service.wait_closed();
        assert_eq!(refused.len(), 1, "{garbage:?}");
        assert_eq!(refused[0].what, "frame");
    }

    bystander.is_unharmed();
    assert_eq!(agent.counter("refused_frames"), 3);
}

#[test]
fn a_service_that_frees_memory_of_its_region_is_named_once() {
    let agent = Agent::start();
    let mut bystander = Bystander::of(&agent);
    let (_service, region) = Service::register(&agent, "forgetful", &["a"]);

    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(region.as_fd(), punch, 0, 4096).unwrap();

    // It is counted a moment before it is noted.
    let problems = WAIT.until("the agent to notice", || {
        let problems = agent.status().problems;
        problems.iter().any(|line| line.starts_with("forgetful ")).then_some(problems)
    });
    let named = problems.iter().filter(|line| line.starts_with("forgetful forgetful-1: region-")).collect::<Vec<_>>();
    assert!(matches!(named[..], [line] if line.contains("has freed 4096 of its 4096 bytes")), "{problems:?}");
    bystander.is_unharmed();
    assert_eq!(agent.counter("freed_regions"), 1);
}

#[test]
fn an_oversized_frame_is_refused_by_its_length() {
    let agent = Agent::start();
    let mut bystander = Bystander::of(&agent);
    let mut service = Service::connect(&agent);
    service.hello("cart");

    service.stream.write_all(&u32::MAX.to_le_bytes()).unwrap();

    let refused = service.wait_closed();
    assert!(refused[0].reason.contains("4294967295 bytes is announced"), "{refused:?}");
    bystander.is_unharmed();
}

#[test]
fn random_bytes_never_bring_the_agent_down() {
    let agent = Agent::start();
    let mut bystander = Bystander::of(&agent);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };

    for length in 0..200_u8 {
        let mut service = Service::connect(&agent);
        let mut bytes = vec![length, 0, 0, 0];
        bytes.extend((0..length).map(|_| byte()));
        // The agent may close the connection before everything is written.
        _ = service.stream.write_all(&bytes);
    }

    bystander.is_unharmed();
}

#[test]
fn a_region_without_a_descriptor_is_refused_and_the_connection_stands() {
    let agent = Agent::start();
    let mut service = Service::connect(&agent);
    service.hello("cart");

    service.add_region(None, RegionSize::ONE_PAGE);

    let refused = service.wait_accepted(2);
    assert_eq!(
        (refused[0].what.as_str(), refused[0].reason.as_str()),
        ("region 0", "no descriptor came with the message")
    );
    service.send(&ServiceMessage::AddSeries(vec![Ok(series("a", 0))]));
    assert!(service.wait_accepted(3)[0].reason.contains("region 0 is not registered"));
}

#[test]
fn a_descriptor_that_is_no_sealed_memfd_of_the_announced_size_is_refused() {
    let agent = Agent::start();
    let mut bystander = Bystander::of(&agent);
    let memory = |seals: SealFlags, bytes: u64| {
        let memory = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        fallocate(&memory, FallocateFlags::empty(), 0, bytes).unwrap();
        fcntl_add_seals(&memory, seals).unwrap();
        memory
    };
    let sealed = SealFlags::SHRINK | SealFlags::GROW;
    let sparse = memory(sealed, 4096);
    fallocate(&sparse, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096).unwrap();
    let (unsealed, small) = (memory(SealFlags::empty(), 4096), memory(sealed, 8192));
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    let socket = std::os::unix::net::UnixStream::pair().unwrap().0;
    let mut service = Service::connect(&agent);
    service.hello("cart");

    let bad = [
        (unsealed.as_fd(), "seals"),
        (small.as_fd(), "8192 bytes, 4096 were announced"),
        (file.as_fd(), "no memfd"),
        (socket.as_fd(), "no memfd"),
        (sparse.as_fd(), "only 0 of the memfd's 4096 bytes are allocated"),
    ];
    for (said, (descriptor, reason)) in (2..).zip(bad) {
        service.add_region(Some(descriptor), RegionSize::ONE_PAGE);
        let refused = service.wait_accepted(said);
        assert!(refused[0].reason.contains(reason), "{refused:?}");
    }

    assert_eq!(agent.counter("refused_regions"), 5);
    bystander.is_unharmed();
    let good = memory(sealed, 4096);
    service.add_region(Some(good.as_fd()), RegionSize::ONE_PAGE);
    assert!(service.wait_accepted(7).is_empty(), "nothing bad sticks to the connection");
}

#[test]
fn descriptors_that_belong_to_nothing_are_closed_and_counted() {
    let agent = Agent::start();
    let mut service = Service::connect(&agent);
    service.hello("cart");
    let (mut end, other) = std::io::pipe().unwrap();

    let bytes = Service::frame(&ServiceMessage::AddSeries(vec![]));
    region::fd_passing::send(&service.stream, &bytes, Some(other.as_fd())).unwrap();
    service.wait_accepted(2);
    drop(other);

    let read = std::io::Read::read(&mut end, &mut [0]).unwrap();
    assert_eq!(read, 0, "the agent has closed its copy");
    assert_eq!(agent.counter("stray_descriptors"), 1);
}

#[test]
fn a_service_that_exits_between_registration_and_the_first_scrape_is_forgotten() {
    let agent = Agent::start();
    let mut worker = Worker::connect(&agent, 0);
    let (service, region) = Service::register(&agent, "cart", &["a"]);
    let (_, lmap) = worker.set();
    drop((service, region));

    let (epoch, removed) = worker.removed();

    assert_eq!(removed, lmap.lmap);
    let id = RegionId(lmap.replicas[0].regions[0].region);
    let mut attacher = Attacher::connect(&agent.at.regions).unwrap();
    attacher.request(agent.incarnation(), id, RegionSize::ONE_PAGE).expect("kept until the worker has forgotten it");
    worker.acknowledge(epoch);
    let refused =
        WAIT.until("the region's end", || attacher.request(agent.incarnation(), id, RegionSize::ONE_PAGE).err());
    assert!(refused.to_string().contains("not registered (any more)"), "{refused}");
    let status = agent.status();
    assert!(status.lmaps.is_empty());
    assert_eq!(status.counters["released_regions"], 1);
}

#[test]
fn a_service_that_does_not_read_is_closed_and_costs_no_more() {
    let agent = Agent::start();
    let mut bystander = Bystander::of(&agent);
    let mut service = Service::connect(&agent);
    service.hello("cart");

    // Each message gets 17 refusals.
    let bad: Vec<_> = (0..17).map(|number| Ok(series(&format!("{}{number}", "x".repeat(200)), 0))).collect();
    let frame = Service::frame(&ServiceMessage::AddSeries(bad));
    let sent = (0..10_000).take_while(|_| service.stream.write_all(&frame).is_ok()).count();

    assert!(sent < 10_000);
    WAIT.until("the count", || (agent.counter("slow_services") == 1).then_some(()));
    bystander.is_unharmed();
}

#[test]
fn a_hundred_thousand_metrics_are_refused_beyond_the_bound() {
    let agent = Agent::start();
    let mut worker = Worker::connect(&agent, 0);
    let mut bystander = Bystander::of(&agent);
    let size = RegionSize::for_slots(100_000).unwrap();
    let region = OwnedRegion::create("test", size).unwrap();
    let mut service = Service::connect(&agent);
    service.hello("greedy");
    service.add_region(Some(region.as_fd()), size);
    service.wait_accepted(2);

    for message in 0..25 {
        let asked = message * 4000..(message + 1) * 4000;
        let all = asked.map(|at| Ok(series(&format!("m{at}"), at))).collect();
        service.send(&ServiceMessage::AddSeries(all));
        service.wait_accepted(3 + u64::from(message));
    }

    assert_eq!(agent.counter("refused_series"), 100_000 - 4064);
    let (_, lmap) = worker.set_where(|lmap| lmap.metrics.len() == 4064);
    assert_eq!(lmap.service, "greedy");
    bystander.is_unharmed();
}

#[test]
fn registering_as_another_service_than_configured_is_refused() {
    let agent = Agent::with(
        "services: {identities: [{uid: 4000000000, services: [payment]}, {services: [cart]}]}\nprocess_metrics: {enabled: false}\n",
    );
    let (_service, _region) = Service::register(&agent, "cart", &["a"]);
    let mut thief = Service::connect(&agent);
    let hello = wire::registration::Hello::new(
        wire::name::ServiceName::new("payment").unwrap(),
        wire::name::InstanceName::new("payment-1").unwrap(),
        wire::name::Labels::default(),
    );

    thief.send(&ServiceMessage::Hello(hello));

    let refused = thief.wait_closed();
    assert!(refused[0].reason.contains("may not register as payment"), "{refused:?}");
    assert_eq!(agent.counter("refused_hellos"), 1);
    assert_eq!(agent.status().lmaps.len(), 1);
}

#[test]
fn a_service_that_ruins_its_region_is_served_on_and_so_are_the_others() {
    let agent = Agent::start();
    let mut bystander = Bystander::of(&agent);
    let (mut service, region) = Service::register(&agent, "cart", &["a"]);
    for word in 0..RegionSize::ONE_PAGE.slots() {
        region.slot(Slot(word)).unwrap().store(u64::MAX, Ordering::Relaxed);
    }
    let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&region, punch, 0, 4096).unwrap();

    service.retire(0);
    service.wait_accepted(4);

    bystander.is_unharmed();
}

#[test]
fn regions_are_given_to_the_configured_user_only_and_by_their_present_names() {
    let agent = Agent::with("regions: {uid: 4000000000}\nprocess_metrics: {enabled: false}\n");
    let mut refused = Attacher::connect(&agent.at.regions).unwrap();
    assert!(matches!(
        refused.request(agent.incarnation(), RegionId(1), RegionSize::ONE_PAGE),
        Err(RequestError::Socket(_))
    ));
    assert_eq!(agent.counter("refused_readers"), 1);

    let agent = Agent::start();
    let mut attacher = Attacher::connect(&agent.at.regions).unwrap();
    let mut ask = |incarnation, region| {
        attacher.request(incarnation, RegionId(region), RegionSize::ONE_PAGE).unwrap_err().to_string()
    };
    assert!(ask(Incarnation(1), 1).contains("wait for its configuration"));
    assert!(ask(agent.incarnation(), 99).contains("region-99 is not registered"));
    let mut garbage = UnixStream::connect(&agent.at.regions).unwrap();
    garbage.write_all(&[0xff; 64]).unwrap();
    assert!(ask(agent.incarnation(), 98).contains("region-98"));
    assert_eq!(agent.counter("refused_requests"), 3);
}

#[test]
fn a_reader_of_regions_that_asks_slowly_or_for_long_is_closed() {
    let agent = Agent::start();
    let mut attacher = Attacher::connect(&agent.at.regions).unwrap();
    let connect = || {
        let stream = UnixStream::connect(&agent.at.regions).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    };
    let (mut slow, mut long) = (connect(), connect());
    let mut frame = vec![0; 10_000];
    frame[..4].copy_from_slice(&(1_u32 << 20).to_le_bytes());

    slow.write_all(&[9, 0, 0]).unwrap();
    // It may be closed meanwhile.
    _ = long.write_all(&frame);

    for stream in [&mut long, &mut slow] {
        let read = stream.read(&mut [0; 1]);
        let is_closed = read.as_ref().map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |got| *got == 0);
        assert!(is_closed, "{read:?}");
    }
    let answer = attacher.request(agent.incarnation(), RegionId(98), RegionSize::ONE_PAGE);
    assert!(answer.unwrap_err().to_string().contains("region-98"), "a reader that rests is answered");
}

#[test]
fn the_rest_of_a_frame_has_to_come_soon() {
    let agent = Agent::start();
    let mut bystander = Bystander::of(&agent);
    let (mut service, _region) = Service::register(&agent, "slow", &["a"]);

    service.stream.write_all(&[0, 0, 8, 0, 10]).unwrap();

    let refused = service.wait_closed();
    assert!(refused[0].reason.contains("did not come within 5s"), "{refused:?}");
    bystander.is_unharmed();
}

#[test]
fn incomplete_frames_of_one_user_are_bounded_together() {
    let agent = Agent::start();
    let mut bystander = Bystander::of(&agent);
    let mut services: Vec<_> = (0..20).map(|_| Service::connect(&agent)).collect();
    let mut half = vec![0; (1 << 20) + 3];
    half[..4].copy_from_slice(&(1_u32 << 20).to_le_bytes());

    // Written in full unless the agent closes the connection meanwhile.
    let cut: Vec<_> = services.iter_mut().map(|service| service.stream.write_all(&half).is_err()).collect();
    let refused = services.iter_mut().zip(cut).filter_map(|(service, cut)| {
        let text = format!("{:?}", service.wait_closed());
        (cut || text.contains("bytes of incomplete messages")).then_some(())
    });
    let refused = refused.count();

    assert!((3..=5).contains(&refused), "{refused}");
    bystander.is_unharmed();
}

#[test]
fn a_frame_of_empty_series_is_refused_before_it_is_decoded() {
    let agent = Agent::start();
    let mut bystander = Bystander::of(&agent);
    let mut service = Service::connect(&agent);
    // AddSeries (field 3) with 262,144 times an empty series (field 1), of two bytes each.
    let mut message = vec![0x1a, 0x80, 0x80, 0x20];
    message.extend([0x0a, 0x00].repeat(1 << 18));
    let mut frame = (message.len() as u32).to_le_bytes().to_vec();
    frame.extend(message);

    service.stream.write_all(&frame).unwrap();

    let refused = service.wait_closed();
    assert!(refused[0].reason.contains("262144 series"), "{refused:?}");
    bystander.is_unharmed();
}
