//! The reader of regions: shared memory of this host, or RDMA. The host agent chooses one of the offered transports.

use std::collections::HashMap;
use std::io;

use transport::verbs::{Device, DeviceChoice, Library, LostReason, ReaderLimits};
use transport::{Access, BatchError, RegionBuffer, RegionReader, ShmReader, VerbsReader};
use wire::id::RegionId;
use wire::layout::RegionSize;
use wire::rdma::{Endpoint, PacketSequence, TRANSPORT};

use super::error::RunError;
use crate::config::{Config, Rdma, Transport, is_here};
use crate::effect_error::EffectError;
use crate::error::chain;
use crate::settings::Fetching;

const SHM: &str = "shm";

/// Fetches over the transport that the host agent has chosen.
#[derive(Debug)]
pub(crate) struct Reader {
    fetching: Fetching,
    memory: ShmReader,
    verbs: Option<Verbs>,
}

/// A function that loads libibverbs.
type LibraryLoader = fn() -> Result<Library, EffectError>;

fn installed() -> Result<Library, EffectError> {
    Library::load().map_err(|error| EffectError::of(&error))
}

/// An RDMA device and its reader. A device that is unplugged and comes back is a new one, to which all regions are
/// attached again.
#[derive(Debug)]
struct Verbs {
    library: LibraryLoader,
    choice: DeviceChoice,
    /// `None` while there is no device.
    reader: Option<VerbsReader>,
    regions: HashMap<RegionId, RemoteRegion>,
}

#[derive(Clone, Copy, Debug)]
struct RemoteRegion {
    size: RegionSize,
    address: u64,
    rkey: u32,
}

impl RemoteRegion {
    const fn access(self) -> Access {
        Access::Remote { address: self.address, rkey: self.rkey, bytes: self.size.bytes() as u64 }
    }
}

impl Reader {
    /// Opens the transports that `config` allows and this machine supports. Returns their names, the preferred one
    /// first.
    ///
    /// # Errors
    ///
    /// [`RunError::Rdma`] if only RDMA is allowed and there is no usable device.
    pub(crate) fn open(config: &Config) -> Result<(Self, Vec<String>), RunError> {
        Self::open_with(installed, config)
    }

    fn open_with(library: LibraryLoader, config: &Config) -> Result<(Self, Vec<String>), RunError> {
        let has_socket = config.regions_socket.is_some();
        let shm_only = match config.transport {
            Transport::Shm => true,
            Transport::Auto => has_socket && is_here(&config.control.address),
            Transport::Verbs => false,
        };
        let mut reader = Self { fetching: Fetching::Memory, memory: ShmReader::new(), verbs: None };
        let mut names = Vec::new();
        if !shm_only {
            match Verbs::open(library, &config.rdma) {
                Ok(verbs) => {
                    reader.verbs = Some(verbs);
                    names.push(TRANSPORT.to_owned());
                }
                Err(why) if config.transport == Transport::Auto && has_socket => {
                    tracing::info!(%why, "no RDMA on this machine: only regions of this host can be fetched");
                }
                Err(why) => return Err(RunError::Rdma(why.to_string())),
            }
        }
        if config.transport != Transport::Verbs && has_socket {
            names.push(SHM.to_owned());
        }
        Ok((reader, names))
    }

    /// Uses this transport from now on.
    pub(super) fn choose(&mut self, fetching: Fetching) {
        self.fetching = fetching;
    }

    /// The transport in use.
    pub(super) const fn fetching(&self) -> Fetching {
        self.fetching
    }

    pub(super) fn attach(&mut self, region: RegionId, size: RegionSize, access: Access) -> Result<(), EffectError> {
        self.memory.attach(region, size, access).map_err(|error| EffectError::of(&error))
    }

    /// Attaches a region of another machine.
    pub(super) fn attach_remote(
        &mut self,
        region: RegionId,
        size: RegionSize,
        address: u64,
        rkey: u32,
    ) -> Result<(), EffectError> {
        if address == 0 {
            return Err("the host agent has not registered it for RDMA; its status says why".into());
        }
        let verbs = self.verbs.as_mut().ok_or("there is no RDMA device")?;
        let remote = RemoteRegion { size, address, rkey };
        if let Some(reader) = &mut verbs.reader {
            reader.attach(region, size, remote.access()).map_err(|error| EffectError::of(&error))?;
        }
        verbs.regions.insert(region, remote);
        Ok(())
    }

    pub(super) fn detach(&mut self, region: RegionId) {
        self.memory.detach(region);
        if let Some(verbs) = &mut self.verbs {
            verbs.regions.remove(&region);
            if let Some(reader) = &mut verbs.reader {
                reader.detach(region);
            }
        }
    }

    pub(super) fn fetch(&mut self, batch: &mut [RegionBuffer]) -> Result<(), BatchError> {
        match self.fetching {
            Fetching::Memory => self.memory.fetch(batch),
            Fetching::Verbs => match self.verbs.as_mut().and_then(|verbs| verbs.reader.as_mut()) {
                Some(reader) => reader.fetch(batch),
                None => Err(BatchError::Lost(Some(io::Error::other(LostReason::NotConnected)))),
            },
        }
    }

    /// Resets the queue pair. Opens the device again if that fails.
    pub(super) fn reset(&mut self, psn: PacketSequence) -> Result<Endpoint, EffectError> {
        self.verbs.as_mut().ok_or("there is no RDMA device")?.reset(psn)
    }

    pub(super) fn connect(&mut self, host: &Endpoint) -> Result<(), EffectError> {
        let reader = self.verbs.as_mut().and_then(|verbs| verbs.reader.as_mut()).ok_or("there is no RDMA device")?;
        reader.connect(host).map_err(|error| EffectError::of(&error))
    }
}

impl Verbs {
    fn open(library: LibraryLoader, config: &Rdma) -> Result<Self, EffectError> {
        let Rdma { device, port, gid_index } = config.clone();
        let choice = DeviceChoice { name: device, port: port.map(core::num::NonZero::get), gid_index };
        let reader = reader(library, &choice)?;
        Ok(Self { library, choice, reader: Some(reader), regions: HashMap::new() })
    }

    fn reset(&mut self, psn: PacketSequence) -> Result<Endpoint, EffectError> {
        if let Some(known) = &mut self.reader {
            match known.reset(psn) {
                Ok(end) => return Ok(end),
                // Its port is down, or has no address: the next attempt checks again.
                Err(error) if !error.is_of_own_device() => return Err(EffectError::of(&error)),
                Err(error) => tracing::warn!(why = chain(&error), "the RDMA device does not reset its queue pair"),
            }
        }
        // Dropped first: a device that was unplugged disappears only when no process has it open.
        self.reader = None;
        let mut new = reader(self.library, &self.choice)?;
        for (&region, remote) in &self.regions {
            new.attach(region, remote.size, remote.access()).map_err(|error| EffectError::of(&error))?;
        }
        self.reader.insert(new).reset(psn).map_err(|error| EffectError::of(&error))
    }
}

fn reader(library: LibraryLoader, choice: &DeviceChoice) -> Result<VerbsReader, EffectError> {
    let library = library()?;
    let device = Device::open(&library, choice).map_err(|error| EffectError::of(&error))?;
    let reader = VerbsReader::new(&device, ReaderLimits::default()).map_err(|error| EffectError::of(&error))?;
    tracing::info!(
        device = device.name(),
        port = device.port(),
        gid_index = device.gid_index(),
        mtu = device.mtu().bytes(),
        "RDMA device"
    );
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::os::fd::AsFd as _;

    use region::{AcceptedRegion, OwnedRegion};
    use transport::verbs::VerbsHost;
    use transport::verbs::stand_in::{self, Faults};
    use transport::{FetchStatus, Loss};

    use super::*;

    #[test]
    fn shared_memory_is_what_is_offered_to_a_host_agent_on_this_machine() {
        let (_, names) = Reader::open(&Config::default()).unwrap();

        assert_eq!(names, ["shm"]);
    }

    #[test]
    fn rdma_is_offered_before_shared_memory_to_a_host_agent_elsewhere_and_shared_memory_alone_where_there_is_none() {
        let of = |library: LibraryLoader, transport, regions_socket: Option<&str>| {
            let mut config = Config { transport, regions_socket: regions_socket.map(Into::into), ..Config::default() };
            "10.0.0.1:9700".clone_into(&mut config.control.address);
            Reader::open_with(library, &config).map(|(_, names)| names)
        };
        let there: LibraryLoader = || Ok(stand_in::library());
        let nowhere: LibraryLoader = || Err("no library".into());
        let socket = Some("/run/uview/regions.sock");

        assert_eq!(of(there, Transport::Auto, socket).unwrap(), ["verbs", "shm"]);
        assert_eq!(of(nowhere, Transport::Auto, socket).unwrap(), ["shm"]);
        assert_eq!(of(there, Transport::Auto, None).unwrap(), ["verbs"]);
        assert_eq!(of(there, Transport::Verbs, socket).unwrap(), ["verbs"]);
        assert_eq!(of(there, Transport::Shm, socket).unwrap(), ["shm"]);
        for (transport, socket) in [(Transport::Auto, None), (Transport::Verbs, socket)] {
            let error = of(nowhere, transport, socket).unwrap_err();
            assert!(matches!(&error, RunError::Rdma(why) if why == "no library"), "{error}");
        }
    }

    #[test]
    fn without_a_device_nothing_can_be_reset_or_attached() {
        let (mut reader, _) = Reader::open(&Config::default()).unwrap();

        assert!(reader.reset(PacketSequence::from_random(7)).is_err());
        assert!(reader.attach_remote(RegionId(1), RegionSize::ONE_PAGE, 4096, 1).is_err());
        reader.choose(Fetching::Verbs);
        assert_eq!(reader.fetch(&mut []).map_err(|error| error.loss()), Err(Loss::Unconnected));
    }

    #[test]
    fn a_region_that_the_host_agent_could_not_register_is_named_as_such() {
        let (mut reader, _) = Reader::open(&Config::default()).unwrap();

        let refused = reader.attach_remote(RegionId(1), RegionSize::ONE_PAGE, 0, 0).unwrap_err();

        assert!(refused.to_string().contains("not registered it for RDMA"), "{refused}");
    }

    /// A reader and a host with one region, both on the stand-in for a device.
    fn connected_to_host() -> (Reader, VerbsHost, OwnedRegion) {
        let verbs = Verbs::open(|| Ok(stand_in::library()), &Rdma::default()).unwrap();
        let mut reader = Reader { fetching: Fetching::Verbs, memory: ShmReader::new(), verbs: Some(verbs) };
        let device = Device::open(&stand_in::library(), &DeviceChoice::default()).unwrap();
        let mut host = VerbsHost::new(&device).unwrap();
        let service = OwnedRegion::create("test", RegionSize::ONE_PAGE).unwrap();
        let memory = service.as_fd().try_clone_to_owned().unwrap();
        let registered = host.register(RegionId(1), &AcceptedRegion::accept(memory, service.size()).unwrap()).unwrap();
        reader.attach_remote(RegionId(1), service.size(), registered.address, registered.rkey).unwrap();
        (reader, host, service)
    }

    /// Connects both ends, and reads the region.
    fn read(reader: &mut Reader, host: &mut VerbsHost) -> Result<FetchStatus, EffectError> {
        let worker = reader.reset(PacketSequence::from_random(3))?;
        let answer = host.answer(PacketSequence::from_random(4), &worker).map_err(|error| EffectError::of(&error))?;
        reader.connect(&answer)?;
        let mut batch = [RegionBuffer::new(RegionId(1), RegionSize::ONE_PAGE)];
        reader.fetch(&mut batch).map_err(|error| EffectError::of(&error))?;
        Ok(batch[0].status.clone())
    }

    #[test]
    fn a_changed_address_is_sent_with_the_next_connection_and_the_device_stays_open() {
        const MOVED: Ipv6Addr = Ipv4Addr::new(10, 0, 0, 9).to_ipv6_mapped();
        let (mut reader, mut host, _service) = connected_to_host();
        assert_eq!(read(&mut reader, &mut host), Ok(FetchStatus::Fetched));
        let number = |reader: &mut Reader| reader.reset(PacketSequence::from_random(5)).unwrap().qpn;
        let before = number(&mut reader);

        stand_in::set_faults(Faults { addresses: Some(&[]), ..Faults::default() });
        let refused = reader.reset(PacketSequence::from_random(5)).unwrap_err();
        assert!(refused.to_string().contains("no RoCE v2 address"), "{refused}");
        stand_in::set_faults(Faults { addresses: Some(&[(MOVED, 2)]), ..Faults::default() });
        assert_eq!(reader.reset(PacketSequence::from_random(5)).unwrap().gid, Some(MOVED.octets()));

        assert_eq!(read(&mut reader, &mut host), Ok(FetchStatus::Fetched));
        assert_eq!(number(&mut reader), before, "it is the same queue pair");
    }

    #[test]
    fn a_device_that_was_unplugged_is_opened_again_with_all_that_was_attached() {
        let (mut reader, mut host, _service) = connected_to_host();
        assert_eq!(read(&mut reader, &mut host), Ok(FetchStatus::Fetched));

        stand_in::set_faults(Faults { unplugged: true, ..Faults::default() });
        for _ in 0..3 {
            assert!(reader.reset(PacketSequence::from_random(5)).is_err(), "there is no other device");
            assert_eq!(reader.fetch(&mut []).map_err(|error| error.loss()), Err(Loss::Unconnected));
        }
        stand_in::set_faults(Faults::default());

        assert_eq!(read(&mut reader, &mut host), Ok(FetchStatus::Fetched));
    }
}
