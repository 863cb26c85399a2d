//! Which device, which port, which address: chosen by whoever deploys it, or the first that works.

use core::fmt;
use std::fs;
use std::io;
use std::net::Ipv6Addr;
use std::path::Path;
use std::sync::Arc;

use wire::rdma::PathMtu;

use super::connect::path_mtu;
use super::context::{Context, DeviceList};
use super::library::Library;
use super::sys;

/// Where the kernel lists devices.
const CLASS: &str = "/sys/class/infiniband";

/// Which device to use. By default the first that has an active port; there, the first RoCE v2 address that is an IPv4 address, or else the
/// first RoCE v2 address that is not link-local, or else any; with InfiniBand the LID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceChoice {
    /// Its name, as `rdma link` shows it.
    pub name: Option<String>,
    /// The number of its port, from 1.
    pub port: Option<u8>,
    /// The place of the port's address in its table.
    pub gid_index: Option<u8>,
}

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The kernel has no RDMA.
    #[error("the kernel offers no RDMA; load its modules (modprobe ib_uverbs, and the one of the card)")]
    NoModules(#[source] io::Error),
    /// There is none.
    #[error("no RDMA device; there is no card, or its module is not loaded")]
    NoDevice,
    /// The kernel has some, but the library does not.
    #[error(
        "the kernel has {}, but libibverbs cannot use it; is its driver installed (Debian: apt-get install ibverbs-providers), and is there /dev/infiniband (in a container it has to be passed in)?",
        .found.join(", ")
    )]
    NoDriver {
        /// What the kernel has.
        found: Vec<String>,
    },
    /// Others are there.
    #[error("there is no device {name}, there is {}", .found.join(", "))]
    NotFound {
        /// What was asked for.
        name: String,
        /// What there is.
        found: Vec<String>,
    },
    /// Each device that was looked at, and why it cannot be used.
    #[error("no RDMA device can be used: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Unusable(Vec<Unusable>),
}

/// Why one device cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// Often a missing right: the library says "not found" in place of "permission denied".
    #[error("{device} cannot be opened ({cause}); is /dev/infiniband/uverbs* readable and writable for this user?")]
    Open {
        /// Which device.
        device: String,
        /// What the library said.
        cause: io::Error,
    },
    /// It does not answer.
    #[error("{device} does not say what it is ({cause})")]
    Query {
        /// Which device.
        device: String,
        /// What the library said.
        cause: io::Error,
    },
    /// No cable, or no such port.
    #[error("{device} has no active port{}", number(*.port))]
    NoPort {
        /// Which device.
        device: String,
        /// The port that was asked for.
        port: Option<u8>,
    },
    /// Its network interface has no address.
    #[error("{device} port {port} has no RoCE v2 address{}; give its network interface an IP address", at(*.index))]
    NoAddress {
        /// Which device.
        device: String,
        /// Which port.
        port: u8,
        /// The place that was asked for.
        index: Option<u8>,
    },
}

fn number(port: Option<u8>) -> String {
    port.map(|port| format!(" {port}")).unwrap_or_default()
}

fn at(index: Option<u8>) -> String {
    index.map(|index| format!(" at index {index}")).unwrap_or_default()
}

/// What a port is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// Reached by GID: RoCE.
    Ethernet,
    /// Reached by LID.
    InfiniBand,
}

/// An open device, one of its ports, and that port's address. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Device {
    context: Arc<Context>,
    about: Arc<About>,
}

#[derive(Debug)]
struct About {
    name: String,
    choice: DeviceChoice,
    attributes: sys::DeviceAttributes,
    port: Port,
    gid: Option<(u8, [u8; 16])>,
}

impl About {
    /// What there is to say of an open device now: of the port and the address that `choice` means.
    fn now(
        context: &Context,
        name: &str,
        attributes: sys::DeviceAttributes,
        choice: &DeviceChoice,
    ) -> Result<Self, Unusable> {
        let name = name.to_owned();
        let Some(port) = active_port(context, attributes.ports, choice.port) else {
            return Err(Unusable::NoPort { device: name, port: choice.port });
        };
        let gid = match (port.attributes.link_layer, choice.gid_index) {
            (sys::LINK_INFINIBAND, None) => None,
            (_, index) => match gid(context, port, index) {
                None => return Err(Unusable::NoAddress { device: name, port: port.number, index }),
                found => found,
            },
        };
        Ok(Self { name, choice: choice.clone(), attributes, port, gid })
    }
}

#[derive(Clone, Copy, Debug)]
struct Port {
    number: u8,
    attributes: sys::PortAttributes,
}

impl Device {
    /// Opens the device that `choice` says, or the first that can be used.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] with what is missing and how to get it.
    pub fn open(library: &Library, choice: &DeviceChoice) -> Result<Self, DeviceError> {
        let (list, names) = devices(library)?;
        let mut unusable = Vec::new();
        for (index, name) in
            names.iter().enumerate().filter(|(_, name)| choice.name.as_ref().is_none_or(|n| n == *name))
        {
            match Self::try_open(&list, index, name, choice) {
                Ok(device) => return Ok(device),
                Err(reason) => unusable.push(reason),
            }
        }
        match &choice.name {
            Some(name) if unusable.is_empty() => Err(DeviceError::NotFound { name: name.clone(), found: names }),
            _ => Err(DeviceError::Unusable(unusable)),
        }
    }

    /// The names of all devices of this machine that the library has a driver for; at least one.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if there is none.
    pub fn list(library: &Library) -> Result<Vec<String>, DeviceError> {
        devices(library).map(|(_, names)| names)
    }

    fn try_open(list: &DeviceList, index: usize, name: &str, choice: &DeviceChoice) -> Result<Self, Unusable> {
        let device = || name.to_owned();
        let context = list.open(index).map_err(|cause| Unusable::Open { device: device(), cause })?;
        let attributes = context.attributes().map_err(|cause| Unusable::Query { device: device(), cause })?;
        let about = About::now(&context, name, attributes, choice)?;
        Ok(Self { context: Arc::new(context), about: Arc::new(about) })
    }

    /// The same open device as it is now: since it was opened its address, LID or MTU may have changed, and another port may have become the
    /// active one. Some system calls.
    pub(super) fn look_again(&self) -> Result<Self, Unusable> {
        let About { name, choice, attributes, .. } = &*self.about;
        let about = About::now(&self.context, name, *attributes, choice)?;
        Ok(Self { context: Arc::clone(&self.context), about: Arc::new(about) })
    }

    /// Whether it is no device of this machine any more. The kernel takes away all that was made on a device before it lets go of its name.
    pub(super) fn is_gone(&self) -> bool {
        let is_listed = match Self::list(self.context.library()) {
            Ok(names) => names.iter().any(|name| name == self.name()),
            Err(DeviceError::NoDevice) => false,
            Err(DeviceError::NoDriver { found }) => found.contains(&self.about.name),
            Err(_) => true,
        };
        !is_listed && !Path::new(CLASS).join(self.name()).exists()
    }

    /// Its name, as `rdma link` shows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.about.name
    }

    /// The number of its port, from 1.
    #[must_use]
    pub fn port(&self) -> u8 {
        self.about.port.number
    }

    /// What the port is connected to.
    #[must_use]
    pub fn link_layer(&self) -> LinkLayer {
        match self.about.port.attributes.link_layer {
            sys::LINK_INFINIBAND => LinkLayer::InfiniBand,
            _ => LinkLayer::Ethernet,
        }
    }

    /// The place of the port's address in its table; none with InfiniBand, unless chosen.
    #[must_use]
    pub fn gid_index(&self) -> Option<u8> {
        self.about.gid.map(|(index, _)| index)
    }

    /// The port's address.
    #[must_use]
    pub fn gid(&self) -> Option<[u8; 16]> {
        self.about.gid.map(|(_, gid)| gid)
    }

    /// The port's address within its InfiniBand subnet; 0 with RoCE.
    #[must_use]
    pub fn lid(&self) -> u16 {
        self.about.port.attributes.lid
    }

    /// The largest packet of the port.
    #[must_use]
    pub fn mtu(&self) -> PathMtu {
        path_mtu(self.about.port.attributes.active_mtu)
    }

    /// READs that one connection has under way at a time, at most.
    #[must_use]
    pub fn max_reads(&self) -> u8 {
        let attributes = &self.about.attributes;
        u8::try_from(attributes.max_qp_rd_atom.min(attributes.max_qp_init_rd_atom).max(1)).unwrap_or(u8::MAX)
    }

    /// Memory regions that can be registered at a time, at most.
    #[must_use]
    pub fn max_regions(&self) -> u32 {
        u32::try_from(self.about.attributes.max_mr).unwrap_or(0)
    }

    /// Work requests that one queue takes, at most.
    pub(super) fn max_requests(&self) -> u32 {
        let attributes = &self.about.attributes;
        u32::try_from(attributes.max_qp_wr.min(attributes.max_cqe.saturating_sub(1)).max(1)).unwrap_or(1)
    }

    /// The longest READ, in bytes.
    pub(super) fn max_message(&self) -> usize {
        self.about.port.attributes.max_message as usize
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {}", self.name(), self.port())?;
        match self.about.gid {
            Some((index, gid)) => write!(f, " at {} (GID index {index})", Ipv6Addr::from(gid)),
            None => write!(f, " at LID {}", self.lid()),
        }
    }
}

fn devices(library: &Library) -> Result<(DeviceList, Vec<String>), DeviceError> {
    let list = DeviceList::get(library).map_err(DeviceError::NoModules)?;
    let names: Vec<_> = (0..list.count()).map(|index| list.name(index)).collect();
    if !names.is_empty() {
        return Ok((list, names));
    }
    let found = fs::read_dir(CLASS).into_iter().flatten().filter_map(Result::ok);
    let found: Vec<_> = found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    Err(if found.is_empty() { DeviceError::NoDevice } else { DeviceError::NoDriver { found } })
}

fn active_port(context: &Context, ports: u8, choice: Option<u8>) -> Option<Port> {
    let mut numbers = (1..=ports).filter(|number| choice.is_none_or(|chosen| chosen == *number));
    numbers.find_map(|number| {
        let attributes = context.port(number).ok()?;
        (attributes.state == sys::PORT_ACTIVE).then_some(Port { number, attributes })
    })
}

/// The address at `index`, or the best one: an IPv4 address survives a change of the card, a link-local one crosses no router. On Ethernet
/// only addresses of RoCE v2 count.
fn gid(context: &Context, port: Port, index: Option<u8>) -> Option<(u8, [u8; 16])> {
    let known = u8::try_from(port.attributes.gids).unwrap_or(u8::MAX);
    let mut entries: Vec<_> = (0..known)
        .filter(|place| index.is_none_or(|chosen| chosen == *place))
        .filter_map(|place| Some((place, context.gid(port.number, place.into()).ok()?)))
        .filter(|(_, entry)| port.attributes.link_layer == sys::LINK_INFINIBAND || entry.kind == sys::GID_ROCE_V2)
        .collect();
    entries.sort_by_key(|(place, entry)| {
        let address = Ipv6Addr::from(entry.gid.0);
        (address.to_ipv4_mapped().is_none(), address.is_unicast_link_local(), *place)
    });
    entries.first().map(|(place, entry)| (*place, entry.gid.0))
}
