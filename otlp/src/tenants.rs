//! Who sends, and what belongs to whom. Decides, and does nothing.
//!
//! A tenant is known by the address of its peers, never by what they say. Each service name has one owner: the tenant that lists it, else the
//! first one, `default`. Who speaks in the name that another tenant lists is given a name of its own, `tenant/name`. A name that nobody lists
//! stays in a tenant's spans as it is; what is counted of it for detectors goes by `tenant/name`, too, so that nobody moves another's.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::str::FromStr;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    bits: u128,
    /// How many of them count; those of an IPv4 address stand behind 96 others.
    length: u8,
    is_v4: bool,
}

/// A text that names no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no network, such as 10.1.0.0/16, fd00::/8 or an address")]
pub struct NetworkError(String);

/// An IPv4 address as the IPv6 address that stands for it, as a socket that takes both shows it.
fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

impl Network {
    /// Whether `address` is in it.
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
        let (whole, before) = if address.is_ipv4() { (32, 96) } else { (128, 0) };
        let length = length.map_or(Ok(whole), str::parse::<u8>).ok().filter(|length| *length <= whole);
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

/// One tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenant {
    /// As in names and labels: what may begin a service's name, without a slash.
    pub name: String,
    /// Where its peers are. The longest network that holds an address says whose it is.
    pub peers: Vec<Network>,
    /// Names that are its own. One that ends with `*` stands for all that begin so.
    pub services: Vec<String>,
}

/// A table that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TenantsError {
    /// A name that is empty, has a character that a service's name cannot have, or a slash.
    #[error("{0:?} is no tenant's name: letters, digits and _ . - are allowed, a letter or digit first, 64 at most")]
    Name(String),
    /// Two tenants of one name.
    #[error("two tenants are called {0:?}")]
    Twice(String),
    /// One network twice.
    #[error("{0} is of two tenants")]
    Network(Network),
    /// One name twice.
    #[error("the service {0:?} is listed by two tenants")]
    Service(String),
}

/// The table of tenants. The first, `default`, is everyone whose address is in no table.
#[derive(Clone, Debug)]
pub struct Tenants {
    names: Vec<Box<str>>,
    /// The longest network first.
    networks: Vec<(Network, TenantId)>,
    whole: BTreeMap<Box<str>, TenantId>,
    /// The longest beginning first.
    beginnings: Vec<(Box<str>, TenantId)>,
}

/// A tenant's place in the table.
pub type TenantId = usize;

/// Everyone who is part of no other tenant.
pub const DEFAULT: TenantId = 0;
/// How they are called together.
const DEFAULT_NAME: &str = "default";

fn is_name(name: &str) -> bool {
    let rest = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    name.len() <= 64 && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(rest)
}

impl Tenants {
    /// The default tenant and `others`.
    ///
    /// # Errors
    ///
    /// [`TenantsError`] if a name is none, or something is said twice.
    pub fn new(others: &[Tenant]) -> Result<Self, TenantsError> {
        let mut table = Self {
            names: vec![DEFAULT_NAME.into()],
            networks: Vec::new(),
            whole: BTreeMap::new(),
            beginnings: Vec::new(),
        };
        for tenant in others {
            table.add(tenant)?;
        }
        table.networks.sort_by_key(|(network, _)| core::cmp::Reverse(network.length));
        table.beginnings.sort_by_key(|(beginning, _)| core::cmp::Reverse(beginning.len()));
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
                Some(beginning) => {
                    let known = self.beginnings.iter().any(|(known, _)| **known == *beginning);
                    self.beginnings.push((beginning.into(), id));
                    known
                }
                None => self.whole.insert(service.as_str().into(), id).is_some(),
            };
            if is_known {
                return Err(TenantsError::Service(service.clone()));
            }
        }
        Ok(())
    }

    /// How many there are: at least one.
    #[must_use]
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// What tenant `id` is called.
    #[must_use]
    pub fn name(&self, id: TenantId) -> &str {
        self.names.get(id).map_or(DEFAULT_NAME, |name| name)
    }

    /// Whose `peer` is.
    #[must_use]
    pub fn of(&self, peer: IpAddr) -> TenantId {
        self.networks.iter().find(|(network, _)| network.holds(peer)).map_or(DEFAULT, |(_, id)| *id)
    }

    /// Who lists `service`.
    fn listed(&self, service: &str) -> Option<TenantId> {
        let whole = self.whole.get(service).copied();
        whole.or_else(|| self.beginnings.iter().find(|(start, _)| service.starts_with(&**start)).map(|(_, id)| *id))
    }

    /// What spans of tenant `id` that say they are of `service` say from now on, if that is another's name; or if it looks as if a name had been
    /// given to another already.
    #[must_use]
    pub fn renamed(&self, id: TenantId, service: &str) -> Option<String> {
        let foreign = self.listed(service).is_some_and(|owner| owner != id);
        let prefixed = service.split_once('/').and_then(|(tenant, _)| self.id(tenant)).is_some_and(|owner| owner != id);
        (foreign || prefixed).then(|| format!("{}/{service}", self.name(id)))
    }

    /// By which name detectors know what tenant `id` calls `service`.
    #[must_use]
    pub fn watched<'a>(&self, id: TenantId, service: &'a str) -> Cow<'a, str> {
        let is_own = self.listed(service).unwrap_or(DEFAULT) == id;
        let is_prefixed = service.strip_prefix(self.name(id)).is_some_and(|rest| rest.starts_with('/'));
        if is_own || is_prefixed { Cow::Borrowed(service) } else { Cow::Owned(format!("{}/{service}", self.name(id))) }
    }

    /// Whose service it is that detectors know as `watched`, and what its spans call it: that, or, where a name was replaced, `watched` itself.
    #[must_use]
    pub fn behind<'a>(&self, watched: &'a str) -> (TenantId, &'a str) {
        let prefixed = watched.split_once('/').and_then(|(tenant, service)| Some((self.id(tenant)?, service)));
        prefixed.unwrap_or_else(|| (self.listed(watched).unwrap_or(DEFAULT), watched))
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
        let of = |peer: &str| table.name(table.of(peer.parse().unwrap())).to_owned();

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
        assert_eq!((everyone.of("1.2.3.4".parse().unwrap()), everyone.of("::1".parse().unwrap())), (1, 0));
        let everyone = Tenants::new(&[tenant("all", &["::/0"], &[])]).unwrap();
        assert_eq!((everyone.of("1.2.3.4".parse().unwrap()), everyone.of("fe80::1".parse().unwrap())), (1, 1));
    }

    #[test]
    fn a_name_that_another_lists_is_replaced_and_one_that_nobody_lists_is_watched_apart() {
        let table = table();

        assert_eq!(table.renamed(1, "payment"), None);
        assert_eq!(table.renamed(2, "payment").as_deref(), Some("toys/payment"));
        assert_eq!(table.renamed(0, "bank-teller").as_deref(), Some("default/bank-teller"));
        assert_eq!(table.renamed(2, "frontend"), None);
        // Nor does anyone take the name that another was given.
        assert_eq!(table.renamed(2, "bank/payment").as_deref(), Some("toys/bank/payment"));

        assert_eq!(table.watched(1, "payment"), "payment");
        assert_eq!(table.watched(0, "frontend"), "frontend");
        assert_eq!(table.watched(2, "frontend"), "toys/frontend");
        assert_eq!(table.watched(2, "toys/payment"), "toys/payment");
        assert_eq!(table.watched(2, "toys2"), "toys/toys2");
        for id in 0..3 {
            for service in ["frontend", "payment", "bank-x", "toys-shop", "a/b", "bank/x", "toys/payment"] {
                let named = table.renamed(id, service).unwrap_or_else(|| service.to_owned());
                let watched = table.watched(id, &named).into_owned();
                let (owner, behind) = table.behind(&watched);
                assert_eq!(owner, id, "{service}: {watched}");
                assert!(behind == named || watched == named, "{id} {service}: {watched}, {behind}");
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

        assert_eq!(["shop-a", "shop-xz", "shop-xy"].map(|name| table.behind(name).0), [1, 2, 3]);
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

        assert!(refused(&[tenant("a/b", &[], &[])]).contains("no tenant's name"));
        for wrong in ["", "-a", ".", "ä", &"a".repeat(65)] {
            assert!(refused(&[tenant(wrong, &[], &[])]).contains("no tenant's name"), "{wrong}");
        }
        assert!(Tenants::new(&[tenant(&"a".repeat(64), &[], &[])]).is_ok());
        assert!(refused(&[tenant("default", &[], &[])]).contains("two tenants are called"));
        assert!(refused(&[a.clone(), tenant("b", &["10.9.9.9/8"], &[])]).contains("10.0.0.0/8 is of two tenants"));
        assert!(refused(&[a.clone(), tenant("b", &[], &["x"])]).contains("\"x\" is listed by two"));
        assert!(refused(&[a, tenant("b", &[], &["y*"])]).contains("\"y*\" is listed by two"));
    }
}
