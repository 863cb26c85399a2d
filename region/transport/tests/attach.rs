//! The client of the regions socket against a host agent that replies right, wrong or not at all.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;

use prost::Message as _;
use region::{AcceptedRegion, OwnedRegion, fd_passing};
use transport::attach::{Attacher, RequestError};
use transport::{Access, FetchStatus, RegionBuffer, RegionReader as _, ShmReader};
use wire::frame;
use wire::id::{Incarnation, RegionId};
use wire::layout::{RegionSize, Slot};
use wire::proto::attach::{AttachReply, AttachRequest};

const SIZE: RegionSize = RegionSize::ONE_PAGE;

/// A host agent's socket on which `answer` handles the next connection.
struct Agent {
    folder: tempfile::TempDir,
}

impl Agent {
    fn start(answer: impl FnOnce(UnixStream) + Send + 'static) -> Self {
        let agent = Self { folder: tempfile::tempdir().expect("a folder can be made") };
        let listener = UnixListener::bind(agent.path()).expect("the folder is new");
        thread::spawn(move || answer(listener.accept().expect("someone connects").0));
        agent
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("regions.sock")
    }

    fn request(&self) -> Result<std::os::fd::OwnedFd, RequestError> {
        Attacher::connect(self.path()).expect("it listens").request(Incarnation(5), RegionId(9), SIZE)
    }
}

fn read_request(socket: &mut UnixStream) -> AttachRequest {
    let mut length = [0; 4];
    socket.read_exact(&mut length).expect("a length comes");
    let mut frame = vec![0; u32::from_le_bytes(length) as usize];
    socket.read_exact(&mut frame).expect("a request comes");
    AttachRequest::decode(&*frame).expect("it is a request")
}

fn reply(socket: &UnixStream, reply: &AttachReply, descriptor: Option<BorrowedFd<'_>>) {
    let mut bytes = Vec::new();
    frame::encode(reply, &mut bytes).expect("a reply is short");
    assert_eq!(fd_passing::send(socket, &bytes, descriptor).expect("the other end is there"), bytes.len());
}

fn good() -> AttachReply {
    AttachReply { region: 9, bytes: SIZE.bytes() as u64, problem: String::new() }
}

#[test]
fn a_worker_reads_what_a_service_wrote_through_the_regions_socket() {
    let region = OwnedRegion::create("test", SIZE).unwrap();
    region.slot(Slot(4)).unwrap().store(44, std::sync::atomic::Ordering::Relaxed);
    let accepted = AcceptedRegion::accept(region.as_fd().try_clone_to_owned().unwrap(), SIZE).unwrap();
    let agent = Agent::start(move |mut socket| {
        let request = read_request(&mut socket);
        assert_eq!(request, AttachRequest { host_incarnation: 5, region: 9 });
        reply(&socket, &good(), Some(accepted.reader_fd().expect("the mode allows reading").as_fd()));
    });

    let memory = agent.request().unwrap();
    let mut reader = ShmReader::new();
    reader.attach(RegionId(9), SIZE, Access::Descriptor(memory)).unwrap();
    let mut batch = [RegionBuffer::new(RegionId(9), SIZE)];
    reader.fetch(&mut batch).unwrap();

    assert_eq!(batch[0].status, FetchStatus::Fetched);
    assert_eq!(batch[0].words[Slot(4).word()], 44);
}

#[test]
fn a_refusal_is_passed_on_and_the_next_request_works() {
    let region = OwnedRegion::create("test", SIZE).unwrap();
    let agent = Agent::start(move |mut socket| {
        read_request(&mut socket);
        reply(&socket, &AttachReply { region: 9, bytes: 0, problem: "unknown here".into() }, None);
        read_request(&mut socket);
        reply(&socket, &good(), Some(region.as_fd()));
    });
    let mut attacher = Attacher::connect(agent.path()).unwrap();

    let refused = attacher.request(Incarnation(5), RegionId(9), SIZE).unwrap_err();

    assert_eq!(refused.to_string(), "the host agent does not give region-9: unknown here");
    assert!(attacher.request(Incarnation(5), RegionId(9), SIZE).is_ok());
}

#[test]
fn a_reply_that_does_not_match_the_request_gives_no_descriptor() {
    let ask = |with: AttachReply, with_descriptor: bool| {
        let region = OwnedRegion::create("test", SIZE).unwrap();
        let agent = Agent::start(move |mut socket| {
            read_request(&mut socket);
            reply(&socket, &with, with_descriptor.then(|| region.as_fd()));
        });
        agent.request().unwrap_err()
    };

    let other_region = ask(AttachReply { region: 8, ..good() }, true);
    assert!(matches!(other_region, RequestError::Malformed("for another region")), "{other_region}");
    let other_size = ask(AttachReply { bytes: 8192, ..good() }, true);
    assert!(matches!(other_size, RequestError::Size { found: 8192, .. }), "{other_size}");
    let no_descriptor = ask(good(), false);
    assert!(matches!(no_descriptor, RequestError::Malformed("without a descriptor")), "{no_descriptor}");
}

#[test]
fn garbage_an_oversized_frame_and_the_end_are_errors() {
    let ask = |bytes: &'static [u8]| {
        let agent = Agent::start(move |mut socket| {
            read_request(&mut socket);
            socket.write_all(bytes).expect("the other end reads");
        });
        agent.request().unwrap_err()
    };

    assert!(matches!(ask(b"\xff\xff\xff\xff"), RequestError::Malformed("longer than allowed")));
    assert!(matches!(ask(b"\x03\0\0\0\xff\xff\xff"), RequestError::Malformed("no valid message")));
    assert!(matches!(ask(b"\x03\0"), RequestError::Socket(_)));
    assert!(matches!(ask(b""), RequestError::Socket(_)));
}

#[test]
fn nobody_listening_is_an_error() {
    assert!(Attacher::connect("/nonexistent/regions.sock").is_err());
}
