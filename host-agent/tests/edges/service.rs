//! A scripted service.

use std::io::Write as _;
use std::num::NonZeroU64;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use prost::Message as _;
use region::{OwnedRegion, fd_passing};
use support::frames::framed;
use wire::frame::Frames;
use wire::layout::{RegionSize, Slot, VERSION};
use wire::metric::{Declaration, Group, Kind, Series};
use wire::name::{InstanceName, Labels, MetricName, ServiceName};
use wire::proto::registration as proto;
use wire::proto::registration::agent_message::Message;
use wire::registration::{Hello, PlacedSeries, ServiceMessage, Shards, SlotRun};

use crate::agent::{Agent, PATIENCE};

pub struct Service {
    pub stream: UnixStream,
    frames: Frames,
}

pub fn series(name: &str, first: u32) -> PlacedSeries {
    let series = Series {
        name: MetricName::new(name).unwrap(),
        labels: Labels::default(),
        kind: Kind::Counter,
        unit: None,
        group: Group::Service,
        parts_per_unit: NonZeroU64::MIN,
    };
    PlacedSeries { series, region: 0, first: Slot(first), shards: Shards::ONE, declared: Declaration::NONE }
}

impl Service {
    pub fn connect(agent: &Agent) -> Self {
        Self::connect_to(&agent.at.services)
    }

    pub fn connect_to(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream, frames: Frames::default() }
    }

    /// A replica with these counters on slots 0, 1, …; each value is 100 plus its slot.
    pub fn register(agent: &Agent, name: &str, counters: &[&str]) -> (Self, OwnedRegion) {
        Self::connect(agent).registered(name, counters)
    }

    /// The same on this connection.
    pub fn registered(self, name: &str, counters: &[&str]) -> (Self, OwnedRegion) {
        let mut service = self;
        service.hello(name);
        let region = OwnedRegion::create("test", RegionSize::ONE_PAGE).unwrap();
        let mut all = Vec::new();
        for (slot, counter) in (0..).zip(counters) {
            region.slot(Slot(slot)).unwrap().store(100 + u64::from(slot), std::sync::atomic::Ordering::Relaxed);
            all.push(Ok(series(counter, slot)));
        }
        service.add_region(Some(region.as_fd()), RegionSize::ONE_PAGE);
        service.send(&ServiceMessage::AddSeries(all));
        service.wait_accepted(3);
        (service, region)
    }

    pub fn hello(&mut self, name: &str) {
        self.send_hello(name);
        assert!(matches!(self.receive(), Some(Message::Welcome(_))));
    }

    pub fn send_hello(&mut self, name: &str) {
        self.send(&ServiceMessage::Hello(Hello::new(
            ServiceName::new(name).unwrap(),
            InstanceName::new(&format!("{name}-1")).unwrap(),
            Labels::default(),
        )));
    }

    pub fn send(&mut self, message: &ServiceMessage) {
        self.stream.write_all(&Self::frame(message)).unwrap();
    }

    pub fn frame(message: &ServiceMessage) -> Vec<u8> {
        framed(&proto::ServiceMessage::from(message))
    }

    pub fn add_region(&mut self, descriptor: Option<BorrowedFd<'_>>, size: RegionSize) {
        let bytes = Self::frame(&ServiceMessage::AddRegion { region: 0, size, layout_version: VERSION });
        assert_eq!(fd_passing::send(&self.stream, &bytes, descriptor).unwrap(), bytes.len());
    }

    pub fn retire(&mut self, first: u32) {
        self.send(&ServiceMessage::Retire(vec![SlotRun { region: 0, first: Slot(first), slots: 1 }]));
    }

    /// The agent's next message; `None` if it closed the connection.
    pub fn receive(&mut self) -> Option<Message> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(frame) = self.frames.next_frame().unwrap() {
                return proto::AgentMessage::decode(frame).unwrap().message;
            }
            let got = fd_passing::receive(&self.stream, &mut buffer, &mut Vec::new());
            match got {
                Ok(0) => return None,
                Ok(got) => self.frames.push(&buffer[..got]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                // The process was interrupted.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("the agent sends nothing: {error}"),
            }
        }
    }

    /// Waits until the agent has accepted this many messages. Returns the refusals until then.
    pub fn wait_accepted(&mut self, messages: u64) -> Vec<proto::Refusal> {
        let mut refused = Vec::new();
        loop {
            match self.receive().expect("the connection stands") {
                Message::Acknowledgement(accepted) if accepted.messages == messages => return refused,
                Message::Refusal(refusal) => refused.push(refusal),
                _ => {}
            }
        }
    }

    /// Waits until the agent closes the connection. Returns the refusals until then.
    pub fn wait_closed(&mut self) -> Vec<proto::Refusal> {
        let mut refused = Vec::new();
        while let Some(message) = self.receive() {
            if let Message::Refusal(refusal) = message {
                refused.push(refusal);
            }
        }
        refused
    }

    pub fn wait_released(&mut self) -> Vec<proto::SlotRun> {
        loop {
            if let Message::Release(released) = self.receive().expect("the connection stands") {
                return released.runs;
            }
        }
    }
}
