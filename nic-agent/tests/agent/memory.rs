//! Regions of services, and a regions socket that passes them.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use prost::Message as _;
use region::{AcceptedRegion, OwnedRegion, fd_passing};
use support::frames::framed;
use tempfile::TempDir;
use wire::frame::Frames;
use wire::id::RegionId;
use wire::layout::RegionSize;
use wire::proto::attach::{AttachReply, AttachRequest};

/// The regions of a node.
pub struct Regions {
    folder: TempDir,
    owned: BTreeMap<RegionId, Arc<OwnedRegion>>,
    garbage: Mutex<Vec<RegionId>>,
}

impl Regions {
    /// Creates regions of one page with these ids, and a socket that passes them.
    pub fn serve(ids: impl IntoIterator<Item = u64>) -> Arc<Self> {
        Self::serve_sized(ids.into_iter().map(|id| (id, RegionSize::ONE_PAGE)))
    }

    /// The same with regions of these sizes.
    pub fn serve_sized(regions: impl IntoIterator<Item = (u64, RegionSize)>) -> Arc<Self> {
        let region = |(id, size)| (RegionId(id), Arc::new(OwnedRegion::create("test", size).unwrap()));
        let folder = TempDir::new().unwrap();
        let owned = regions.into_iter().map(region).collect();
        let regions = Arc::new(Self { folder, owned, garbage: Mutex::default() });
        let listener = UnixListener::bind(regions.socket()).unwrap();
        let server = Arc::clone(&regions);
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let server = Arc::clone(&server);
                std::thread::spawn(move || server.answer(&socket));
            }
        });
        regions
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("regions.sock")
    }

    pub fn owned(&self, id: RegionId) -> Arc<OwnedRegion> {
        Arc::clone(&self.owned[&id])
    }

    /// From now on, a request for `id` gets a descriptor that is not a region.
    pub fn give_garbage(&self, id: RegionId) {
        self.garbage.lock().unwrap().push(id);
    }

    fn answer(&self, socket: &UnixStream) {
        let (mut frames, mut buffer, mut surplus) = (Frames::default(), [0; 512], Vec::new());
        loop {
            let Ok(got @ 1..) = fd_passing::receive(socket, &mut buffer, &mut surplus) else { return };
            frames.push(&buffer[..got]);
            while let Some(request) = frames.next_frame().unwrap() {
                let request = AttachRequest::decode(request).unwrap();
                let descriptor = self.descriptor(RegionId(request.region));
                let problem = if descriptor.is_some() { String::new() } else { "no such region".to_owned() };
                let size = self.owned.get(&RegionId(request.region)).map_or(RegionSize::ONE_PAGE, |of| of.size());
                let bytes = size.bytes() as u64;
                let reply = framed(&AttachReply { region: request.region, bytes, problem });
                fd_passing::send(socket, &reply, descriptor.as_ref().map(OwnedFd::as_fd)).unwrap();
            }
        }
    }

    fn descriptor(&self, id: RegionId) -> Option<OwnedFd> {
        if self.garbage.lock().unwrap().contains(&id) {
            let file = std::fs::File::open(self.folder.path()).unwrap();
            return Some(file.into());
        }
        let owned = self.owned.get(&id)?;
        let memory = owned.as_fd().try_clone_to_owned().unwrap();
        Some(AcceptedRegion::accept(memory, owned.size()).unwrap().reader_fd().unwrap())
    }
}
