//! Selects a device, a port and an address: those of the configuration, or the first that work.

use core::fmt;
use std::fs;
use std::io;
use std::net::Ipv6Addr;
use std::path::Path;
use std::sync::Arc;

use wire::rdma::PathMtu;

use super::context::{Context, DeviceList};
use super::library::Library;
use super::path_mtu::path_mtu;
use super::sys;

/// Where the kernel lists devices.
const CLASS: &str = "/sys/class/infiniband";

/// Which device to use. The default is the first device with an active port, and of that port the first RoCE v2 address
/// that is an IPv4 address, else the first RoCE v2 address that is not link-local, else any; with InfiniBand the LID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceChoice {
    /// Its name, as `rdma link` shows it.
    pub name: Option<String>,
    /// The number of its port, from 1.
    pub port: Option<u8>,
    /// Index of the port's address in its GID table.
    pub gid_index: Option<u8>,
}

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The kernel's RDMA modules are not loaded.
    #[error("the kernel offers no RDMA; load its modules (modprobe ib_uverbs, and the one of the card)")]
    NoModules(#[source] io::Error),
    /// This machine has no RDMA device.
    #[error("no RDMA device; there is no card, or its module is not loaded")]
    NoDevice,
    /// The kernel lists devices that the library has no driver for.
    #[error(
        "the kernel has {}, but libibverbs cannot use it; is its driver installed (Debian: apt-get install ibverbs-providers), and is there /dev/infiniband (in a container it has to be passed in)?",
        .found.join(", ")
    )]
    NoDriver {
        /// The devices that the kernel lists.
        found: Vec<String>,
    },
    /// The configured device does not exist.
    #[error("there is no device {name}, there is {}", .found.join(", "))]
    NotFound {
        /// The configured name.
        name: String,
        /// The devices that exist.
        found: Vec<String>,
    },
    /// Each device that was looked at, and why it cannot be used.
    #[error("no RDMA device can be used: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Unusable(Vec<UnusableDevice>),
}

/// Why one device cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnusableDevice {
    /// Often a missing permission: the library reports "not found" instead of "permission denied".
    #[error("{device} cannot be opened ({cause}); is /dev/infiniband/uverbs* readable and writable for this user?")]
    Open {
        /// Name of the device.
        device: String,
        /// The error of the library.
        cause: io::Error,
    },
    /// Querying its limits failed.
    #[error("{device} does not say what it is ({cause})")]
    Query {
        /// Name of the device.
        device: String,
        /// The error of the library.
        cause: io::Error,
    },
    /// The port has no link, or does not exist.
    #[error("{device} has no active port{}", number(*.port))]
    NoPort {
        /// Name of the device.
        device: String,
        /// The configured port.
        port: Option<u8>,
    },
    /// Its network interface has no address.
    #[error("{device} port {port} has no RoCE v2 address{}; give its network interface an IP address", at(*.index))]
    NoAddress {
        /// Name of the device.
        device: String,
        /// Number of the port.
        port: u8,
        /// The configured GID index.
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
    /// Ethernet (RoCE): peers are reached by GID.
    Ethernet,
    /// InfiniBand: peers are reached by LID.
    InfiniBand,
}

/// An open device, one of its ports, and that port's address. Clones share the device.
#[derive(Clone, Debug)]
pub struct Device {
    context: Arc<Context>,
    info: Arc<DeviceInfo>,
}

#[derive(Debug)]
struct DeviceInfo {
    name: String,
    choice: DeviceChoice,
    attributes: sys::DeviceAttributes,
    port: Port,
    gid: Option<(u8, [u8; 16])>,
}

impl DeviceInfo {
    /// Queries the port and the address of an open device that `choice` selects.
    fn query(
        context: &Context,
        name: &str,
        attributes: sys::DeviceAttributes,
        choice: &DeviceChoice,
    ) -> Result<Self, UnusableDevice> {
        let name = name.to_owned();
        let Some(port) = active_port(context, attributes.ports, choice.port) else {
            return Err(UnusableDevice::NoPort { device: name, port: choice.port });
        };
        let gid = match (port.attributes.link_layer, choice.gid_index) {
            (sys::LINK_INFINIBAND, None) => None,
            (_, index) => match gid(context, port, index) {
                None => return Err(UnusableDevice::NoAddress { device: name, port: port.number, index }),
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
    /// Opens the device that `choice` names, or the first that can be used.
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

    fn try_open(list: &DeviceList, index: usize, name: &str, choice: &DeviceChoice) -> Result<Self, UnusableDevice> {
        let device = || name.to_owned();
        let context = list.open(index).map_err(|cause| UnusableDevice::Open { device: device(), cause })?;
        let attributes = context.attributes().map_err(|cause| UnusableDevice::Query { device: device(), cause })?;
        let info = DeviceInfo::query(&context, name, attributes, choice)?;
        Ok(Self { context: Arc::new(context), info: Arc::new(info) })
    }

    /// Queries the open device again: its address, LID or MTU may have changed, and another port may have become
    /// active. Costs a few system calls.
    pub(super) fn refresh(&self) -> Result<Self, UnusableDevice> {
        let DeviceInfo { name, choice, attributes, .. } = &*self.info;
        let info = DeviceInfo::query(&self.context, name, *attributes, choice)?;
        Ok(Self { context: Arc::clone(&self.context), info: Arc::new(info) })
    }

    /// Whether the device was removed from this machine. The kernel destroys everything on a device before it removes
    /// its name.
    pub(super) fn is_gone(&self) -> bool {
        let is_listed = match Self::list(self.context.library()) {
            Ok(names) => names.iter().any(|name| name == self.name()),
            Err(DeviceError::NoDevice) => false,
            Err(DeviceError::NoDriver { found }) => found.contains(&self.info.name),
            Err(_) => true,
        };
        !is_listed && !Path::new(CLASS).join(self.name()).exists()
    }

    /// Its name, as `rdma link` shows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// The number of its port, from 1.
    #[must_use]
    pub fn port(&self) -> u8 {
        self.info.port.number
    }

    /// What the port is connected to.
    #[must_use]
    pub fn link_layer(&self) -> LinkLayer {
        match self.info.port.attributes.link_layer {
            sys::LINK_INFINIBAND => LinkLayer::InfiniBand,
            _ => LinkLayer::Ethernet,
        }
    }

    /// Index of the port's address in its GID table; `None` with InfiniBand, unless configured.
    #[must_use]
    pub fn gid_index(&self) -> Option<u8> {
        self.info.gid.map(|(index, _)| index)
    }

    /// The port's address.
    #[must_use]
    pub fn gid(&self) -> Option<[u8; 16]> {
        self.info.gid.map(|(_, gid)| gid)
    }

    /// The port's address within its InfiniBand subnet; 0 with RoCE.
    #[must_use]
    pub fn lid(&self) -> u16 {
        self.info.port.attributes.lid
    }

    /// The largest packet of the port.
    #[must_use]
    pub fn mtu(&self) -> PathMtu {
        path_mtu(self.info.port.attributes.active_mtu)
    }

    /// Most READs that one connection may have in flight.
    #[must_use]
    pub fn max_reads(&self) -> u8 {
        let attributes = &self.info.attributes;
        u8::try_from(attributes.max_qp_rd_atom.min(attributes.max_qp_init_rd_atom).max(1)).unwrap_or(u8::MAX)
    }

    /// Most memory regions that can be registered at a time.
    #[must_use]
    pub fn max_regions(&self) -> u32 {
        u32::try_from(self.info.attributes.max_mr).unwrap_or(0)
    }

    /// Most work requests in one queue.
    pub(super) fn max_requests(&self) -> u32 {
        let attributes = &self.info.attributes;
        u32::try_from(attributes.max_qp_wr.min(attributes.max_cqe.saturating_sub(1)).max(1)).unwrap_or(1)
    }

    /// The longest READ, in bytes.
    pub(super) fn max_message(&self) -> usize {
        self.info.port.attributes.max_message as usize
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {}", self.name(), self.port())?;
        match self.info.gid {
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

/// The address at `index`, or the best one: IPv4 first, which survives a change of the card, and link-local last, which
/// crosses no router. On Ethernet only addresses of RoCE v2 count.
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
