//! The conformance suite of all transports, over RDMA.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use region::OwnedRegion;
use wire::layout::{RegionSize, Slot};

use super::{VerbsHost, VerbsReader, access, pair};
use crate::conformance::Service;
use crate::fetch::Access;

thread_local! {
    /// The host's end of this test's reader.
    static HOST: RefCell<Option<VerbsHost>> = const { RefCell::new(None) };
}

fn reader() -> VerbsReader {
    let (reader, host) = pair();
    HOST.with_borrow_mut(|place| *place = Some(host));
    reader
}

struct RegisteredService {
    id: u64,
    region: OwnedRegion,
}

impl Service for RegisteredService {
    fn create(size: RegionSize) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let region = OwnedRegion::create("conformance", size).expect("memory is left");
        Self { id: NEXT.fetch_add(1, Relaxed), region }
    }

    fn store(&self, slot: Slot, value: u64) {
        self.region.slot(slot).expect("the slot exists").store(value, Relaxed);
    }

    fn beat(&self) {
        self.region.beat();
    }

    fn access(&self) -> Access {
        HOST.with_borrow_mut(|host| access(host.as_mut().expect("a reader was made"), self.id, &self.region))
    }
}

crate::on_every_backend!(RegisteredService, reader());
