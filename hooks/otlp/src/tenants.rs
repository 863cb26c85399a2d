//! Which tenant a peer belongs to, and which services belong to which tenant. Pure.
//!
//! A tenant is identified by the address of its peers, never by what they send. Each service name has one owner: the
//! tenant that lists it, else the first tenant, `default`.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::str::FromStr;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A network: all addresses with the same prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    bits: u128,
    /// Prefix length, 0 to 128; that of an IPv4 network includes the 96 bits of its mapped address.
    length: u8,
    is_v4: bool,
}

/// A text that is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a network: use an address, or a prefix such as 10.1.0.0/16 or fd00::/8")]
pub struct NetworkError(String);

/// The IPv4-mapped IPv6 address of an IPv4 address, as a dual-stack socket shows it.
fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

impl Network {
    /// Whether `address` is in the network.
    #[must_use]
    pub fn holds(self, address: IpAddr) -> bool {
        let shift = 128 - u32::from(self.length);
        let differing = mapped(address).to_bits() ^ self.bits;
        differing.checked_shr(shift).unwrap_or(0) == 0
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let wrong = || NetworkError(text.to_owned());
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let (full_names, before) = if address.is_ipv4() { (32, 96) } else { (128, 0) };
        let length = length.map_or(Ok(full_names), str::parse::<u8>).ok().filter(|length| *length <= full_names);
        let length = length.ok_or_else(wrong)? + before;
        let kept = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        Ok(Self { bits: mapped(address).to_bits() & kept, length, is_v4: before > 0 })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Ipv6Addr::from_bits(self.bits);
        match address.to_ipv4_mapped().filter(|_| self.is_v4) {
            Some(address) => write!(f, "{address}/{}", self.length - 96),
            None => write!(f, "{address}/{}", self.length),
        }
    }
}

/// A tenant: its name, networks and services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenant {
    /// As in labels, and before its services' names: what may begin a service's name, without a slash.
    pub name: String,
    /// Networks of its peers. The longest prefix that matches an address decides.
    pub peers: Vec<Network>,
    /// Service names that it owns. One that ends with `*` stands for all names with this prefix.
    pub services: Vec<String>,
}

/// Why a table of tenants is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TenantsError {
    /// A name that is empty, has a character that service names cannot have, or a slash.
    #[error("{0:?} is not a valid tenant name: use up to 64 letters, digits and _ . -, first a letter or digit")]
    Name(String),
    /// Two tenants have the same name.
    #[error("two tenants are called {0:?}")]
    Twice(String),
    /// Two tenants have the same network.
    #[error("two tenants have the network {0}")]
    Network(Network),
    /// Two tenants list the same service.
    #[error("two tenants list the service {0:?}")]
    Service(String),
}

/// The table of tenants. The first, `default`, has all addresses that are in no network.
#[derive(Clone, Debug)]
pub struct Tenants {
    names: Vec<Box<str>>,
    /// Sorted, longest prefix first.
    networks: Vec<(Network, TenantId)>,
    full_names: BTreeMap<Box<str>, TenantId>,
    /// Sorted, longest prefix first.
    prefixes: Vec<(Box<str>, TenantId)>,
}

/// Index of a tenant in the table.
pub type TenantId = usize;

/// The default tenant.
pub const DEFAULT: TenantId = 0;
/// Name of the default tenant.
const DEFAULT_NAME: &str = "default";

fn is_name(name: &str) -> bool {
    let rest = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    name.len() <= 64 && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(rest)
}

impl Tenants {
    /// Makes a table of the default tenant and `others`.
    ///
    /// # Errors
    ///
    /// [`TenantsError`] if a name is invalid, or something is listed twice.
    pub fn new(others: &[Tenant]) -> Result<Self, TenantsError> {
        let mut table = Self {
            names: vec![DEFAULT_NAME.into()],
            networks: Vec::new(),
            full_names: BTreeMap::new(),
            prefixes: Vec::new(),
        };
        for tenant in others {
            table.add(tenant)?;
        }
        table.networks.sort_by_key(|(network, _)| core::cmp::Reverse(network.length));
        table.prefixes.sort_by_key(|(prefix, _)| core::cmp::Reverse(prefix.len()));
        Ok(table)
    }

    fn add(&mut self, tenant: &Tenant) -> Result<(), TenantsError> {
        let Tenant { name, peers, services } = tenant;
        if !is_name(name) {
            return Err(TenantsError::Name(name.clone()));
        }
        if self.names.iter().any(|known| **known == **name) {
            return Err(TenantsError::Twice(name.clone()));
        }
        let id = self.names.len();
        self.names.push(name.as_str().into());
        for &network in peers {
            if self.networks.iter().any(|(known, _)| *known == network) {
                return Err(TenantsError::Network(network));
            }
            self.networks.push((network, id));
        }
        for service in services {
            let is_known = match service.strip_suffix('*') {
                Some(prefix) => {
                    let known = self.prefixes.iter().any(|(known, _)| **known == *prefix);
                    self.prefixes.push((prefix.into(), id));
                    known
                }
                None => self.full_names.insert(service.as_str().into(), id).is_some(),
            };
            if is_known {
                return Err(TenantsError::Service(service.clone()));
            }
        }
        Ok(())
    }

    /// Number of tenants, at least one.
    #[must_use]
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Name of tenant `id`.
    #[must_use]
    pub fn name(&self, id: TenantId) -> &str {
        self.names.get(id).map_or(DEFAULT_NAME, |name| name)
    }

    /// Tenant of the address `peer`.
    #[must_use]
    pub fn tenant_of(&self, peer: IpAddr) -> TenantId {
        self.networks.iter().find(|(network, _)| network.holds(peer)).map_or(DEFAULT, |(_, id)| *id)
    }

    /// The tenant that lists `service`.
    fn listed_by(&self, service: &str) -> Option<TenantId> {
        let full_names = self.full_names.get(service).copied();
        full_names.or_else(|| self.prefixes.iter().find(|(start, _)| service.starts_with(&**start)).map(|(_, id)| *id))
    }

    /// The replacement for the name `service` in spans of tenant `id`, if another tenant lists that name, or if the
    /// name has another tenant's prefix.
    #[must_use]
    pub fn replacement_name(&self, id: TenantId, service: &str) -> Option<String> {
        let is_listed_by_other = self.listed_by(service).is_some_and(|owner| owner != id);
        let has_other_prefix =
            service.split_once('/').and_then(|(tenant, _)| self.id(tenant)).is_some_and(|owner| owner != id);
        (is_listed_by_other || has_other_prefix).then(|| format!("{}/{service}", self.name(id)))
    }

    /// The name by which detectors know `service` of tenant `id`.
    #[must_use]
    pub fn detector_name<'a>(&self, id: TenantId, service: &'a str) -> Cow<'a, str> {
        let is_own = self.listed_by(service).unwrap_or(DEFAULT) == id;
        let is_prefixed = service.strip_prefix(self.name(id)).is_some_and(|rest| rest.starts_with('/'));
        if is_own || is_prefixed { Cow::Borrowed(service) } else { Cow::Owned(format!("{}/{service}", self.name(id))) }
    }

    /// The tenant that owns the service with this detector name, and the service's name in its spans. Where a name was
    /// replaced, that is the detector name itself.
    #[must_use]
    pub fn owner_of<'a>(&self, detector_name: &'a str) -> (TenantId, &'a str) {
        let prefixed = detector_name.split_once('/').and_then(|(tenant, service)| Some((self.id(tenant)?, service)));
        prefixed.unwrap_or_else(|| (self.listed_by(detector_name).unwrap_or(DEFAULT), detector_name))
    }

    fn id(&self, name: &str) -> Option<TenantId> {
        self.names.iter().position(|known| **known == *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str, peers: &[&str], services: &[&str]) -> Tenant {
        Tenant {
            name: name.to_owned(),
            peers: peers.iter().map(|network| network.parse().unwrap()).collect(),
            services: services.iter().map(ToString::to_string).collect(),
        }
    }

    fn table() -> Tenants {
        let bank = tenant("bank", &["10.1.0.0/16", "fd00::/8"], &["payment", "bank-*"]);
        Tenants::new(&[bank, tenant("toys", &["10.1.2.0/24", "10.1.9.9"], &["toys-shop"])]).unwrap()
    }

    #[test]
    fn the_longest_network_says_whose_a_peer_is() {
        let table = table();
        let of = |peer: &str| table.name(table.tenant_of(peer.parse().unwrap())).to_owned();

        for (peer, tenant) in [
            ("10.1.0.5", "bank"),
            ("10.1.2.5", "toys"),
            ("::ffff:10.1.2.5", "toys"),
            ("10.1.9.9", "toys"),
            ("10.1.9.8", "bank"),
            ("10.2.0.1", "default"),
            ("fdab::1", "bank"),
            ("fe80::1", "default"),
            ("127.0.0.1", "default"),
        ] {
            assert_eq!(of(peer), tenant, "{peer}");
        }
        let everyone = Tenants::new(&[tenant("all", &["0.0.0.0/0"], &[])]).unwrap();
        assert_eq!(
            (everyone.tenant_of("1.2.3.4".parse().unwrap()), everyone.tenant_of("::1".parse().unwrap())),
            (1, 0)
        );
        let everyone = Tenants::new(&[tenant("all", &["::/0"], &[])]).unwrap();
        assert_eq!(
            (everyone.tenant_of("1.2.3.4".parse().unwrap()), everyone.tenant_of("fe80::1".parse().unwrap())),
            (1, 1)
        );
    }

    #[test]
    fn a_name_that_another_lists_is_replaced_and_one_that_nobody_lists_is_watched_apart() {
        let table = table();

        assert_eq!(table.replacement_name(1, "payment"), None);
        assert_eq!(table.replacement_name(2, "payment").as_deref(), Some("toys/payment"));
        assert_eq!(table.replacement_name(0, "bank-teller").as_deref(), Some("default/bank-teller"));
        assert_eq!(table.replacement_name(2, "frontend"), None);
        // Nor does a tenant get a replacement name of another.
        assert_eq!(table.replacement_name(2, "bank/payment").as_deref(), Some("toys/bank/payment"));

        assert_eq!(table.detector_name(1, "payment"), "payment");
        assert_eq!(table.detector_name(0, "frontend"), "frontend");
        assert_eq!(table.detector_name(2, "frontend"), "toys/frontend");
        assert_eq!(table.detector_name(2, "toys/payment"), "toys/payment");
        assert_eq!(table.detector_name(2, "toys2"), "toys/toys2");
        for id in 0..3 {
            for service in ["frontend", "payment", "bank-x", "toys-shop", "a/b", "bank/x", "toys/payment"] {
                let named = table.replacement_name(id, service).unwrap_or_else(|| service.to_owned());
                let detector_name = table.detector_name(id, &named).into_owned();
                let (owner, behind) = table.owner_of(&detector_name);
                assert_eq!(owner, id, "{service}: {detector_name}");
                assert!(behind == named || detector_name == named, "{id} {service}: {detector_name}, {behind}");
            }
        }
    }

    #[test]
    fn the_longest_beginning_says_whose_a_name_is_and_the_whole_name_before_all() {
        let table = Tenants::new(&[
            tenant("a", &[], &["shop*"]),
            tenant("b", &[], &["shop-x*"]),
            tenant("c", &[], &["shop-xy"]),
        ]);
        let table = table.unwrap();

        assert_eq!(["shop-a", "shop-xz", "shop-xy"].map(|name| table.owner_of(name).0), [1, 2, 3]);
    }

    #[test]
    fn networks_are_read_and_written_and_what_is_none_is_named() {
        for text in ["10.1.0.0/16", "0.0.0.0/0", "10.1.9.9/32", "fd00::/8", "::/0", "::1/128", "::ffff:10.1.9.9/128"] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
        assert_eq!("10.1.9.9".parse::<Network>().unwrap().to_string(), "10.1.9.9/32");
        for text in ["", "10.1/16", "10.1.0.0/33", "fd00::/129", "10.0.0.0/-1", "host"] {
            assert!(text.parse::<Network>().unwrap_err().to_string().contains("such as 10.1.0.0/16"), "{text}");
        }
    }

    #[test]
    fn a_table_that_contradicts_itself_is_refused() {
        let refused = |tenants: &[Tenant]| Tenants::new(tenants).unwrap_err().to_string();
        let a = tenant("a", &["10.0.0.0/8"], &["x", "y*"]);

        assert!(refused(&[tenant("a/b", &[], &[])]).contains("not a valid tenant name"));
        for wrong in ["", "-a", ".", "ä", &"a".repeat(65)] {
            assert!(refused(&[tenant(wrong, &[], &[])]).contains("not a valid tenant name"), "{wrong}");
        }
        assert!(Tenants::new(&[tenant(&"a".repeat(64), &[], &[])]).is_ok());
        assert!(refused(&[tenant("default", &[], &[])]).contains("two tenants are called"));
        assert!(
            refused(&[a.clone(), tenant("b", &["10.9.9.9/8"], &[])])
                .contains("two tenants have the network 10.0.0.0/8")
        );
        assert!(refused(&[a.clone(), tenant("b", &[], &["x"])]).contains("two tenants list the service \"x\""));
        assert!(refused(&[a, tenant("b", &[], &["y*"])]).contains("two tenants list the service \"y*\""));
    }
}
