//! The shop: five services and their call graph.
//!
//! ```text
//!             ┌──► cart
//! frontend ───┼──► catalogue
//!             └──► payment ───► store
//! ```
//!
//! Every page calls each service once, so that all of them get the load of the frontend.

use core::fmt;

use serde::{Deserialize, Serialize};

/// One service of the shop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// Assembles pages. The load sends its requests here.
    Frontend,
    /// Holds the visitors' carts.
    Cart,
    /// Holds all products in memory.
    Catalogue,
    /// Processes payments; the only service that calls the store.
    Payment,
    /// A database: an ordered map with a log.
    Store,
}

impl Service {
    /// All services, callers before callees.
    pub const ALL: [Self; 5] = [Self::Frontend, Self::Cart, Self::Catalogue, Self::Payment, Self::Store];

    /// The name with which it registers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Frontend => "frontend",
            Self::Cart => "cart",
            Self::Catalogue => "catalogue",
            Self::Payment => "payment",
            Self::Store => "store",
        }
    }

    /// The service called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.name() == name)
    }

    /// The services that it calls for each request.
    #[must_use]
    pub const fn calls(self) -> &'static [Self] {
        match self {
            Self::Frontend => &[Self::Cart, Self::Catalogue, Self::Payment],
            Self::Payment => &[Self::Store],
            Self::Cart | Self::Catalogue | Self::Store => &[],
        }
    }

    /// Body size of each request to it, in bytes. Requests to the store carry whole rows, which take several packets;
    /// others have no body.
    #[must_use]
    pub const fn request_bytes(self) -> usize {
        match self {
            Self::Store => 4000,
            Self::Frontend | Self::Cart | Self::Catalogue | Self::Payment => 0,
        }
    }

    /// The HTTP path of `errand` at this service.
    #[must_use]
    pub const fn path(self, errand: Errand) -> &'static str {
        match (self, errand) {
            (Self::Frontend, Errand::Browse) => "/browse",
            (Self::Frontend, Errand::Buy) => "/checkout",
            (Self::Cart, Errand::Browse) => "/view",
            (Self::Cart, Errand::Buy) => "/take",
            (Self::Catalogue, Errand::Browse) => "/search",
            (Self::Catalogue, Errand::Buy) => "/price",
            (Self::Payment, Errand::Browse) => "/quote",
            (Self::Payment, Errand::Buy) => "/pay",
            (Self::Store, Errand::Browse) => "/read",
            (Self::Store, Errand::Buy) => "/write",
        }
    }

    /// Whether a fault of one can affect the other: one calls the other, directly or not.
    #[must_use]
    pub fn is_on_a_path_with(self, other: Self) -> bool {
        self == other || self.reaches(other) || other.reaches(self)
    }

    fn reaches(self, other: Self) -> bool {
        self.calls().iter().any(|called| *called == other || called.reaches(other))
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A monitored target with an LMAP of its own: a service of the shop, or the link between two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// A service of the shop.
    Service(Service),
    /// The link between [`Target::CALLER`] and [`Target::CALLED`]. The NIC agent registers its packet stream as a
    /// service.
    Link,
}

impl Target {
    /// The service that calls over the link.
    pub const CALLER: Service = Service::Payment;
    /// The service that is called over the link: the only one that listens in another network namespace.
    pub const CALLED: Service = Service::Store;
    /// Name of the packet stream in the NIC agent's configuration.
    pub const STREAM: &'static str = "payment-store";
    /// Name of the packet stream of the frontend's visitors. It has an LMAP like any service, but is no target: no
    /// fault is there, and what it says is not judged.
    pub const VISITORS: &'static str = "frontend";
    /// The name with which that stream registers.
    pub const VISITORS_SERVICE: &'static str = "network.frontend";

    /// The name with which it registers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Service(service) => service.name(),
            Self::Link => "network.payment-store",
        }
    }

    /// The target called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        if name == Self::Link.name() { Some(Self::Link) } else { Service::named(name).map(Self::Service) }
    }

    /// The service; for the link, the caller, which waits for its packets.
    #[must_use]
    pub const fn service(self) -> Service {
        match self {
            Self::Service(service) => service,
            Self::Link => Self::CALLER,
        }
    }

    /// Whether a fault of one can affect the other: one calls the other, directly or not. The link lies between its two
    /// ends.
    #[must_use]
    pub fn is_on_a_path_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Service(one), Self::Service(other)) => one.is_on_a_path_with(other),
            (Self::Link, Self::Service(service)) | (Self::Service(service), Self::Link) => {
                service.is_on_a_path_with(Self::CALLED)
            }
            (Self::Link, Self::Link) => true,
        }
    }
}

impl From<Service> for Target {
    fn from(service: Service) -> Self {
        Self::Service(service)
    }
}

impl PartialEq<Service> for Target {
    fn eq(&self, service: &Service) -> bool {
        *self == Self::Service(*service)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Target {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The kind of a visitor's request. A service has one path for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Errand {
    /// Look at products.
    Browse,
    /// Buy a product.
    Buy,
}

impl Errand {
    /// Both kinds of requests.
    pub const ALL: [Self; 2] = [Self::Browse, Self::Buy];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_through_callers_and_those_they_call_but_not_sideways() {
        assert!(Service::Store.is_on_a_path_with(Service::Payment));
        assert!(Service::Store.is_on_a_path_with(Service::Frontend));
        assert!(Service::Frontend.is_on_a_path_with(Service::Store));
        assert!(!Service::Cart.is_on_a_path_with(Service::Catalogue));
        assert!(!Service::Store.is_on_a_path_with(Service::Cart));
    }

    #[test]
    fn the_link_is_on_a_path_with_its_ends_and_with_services_that_wait_for_them() {
        assert_eq!(Service::Payment.calls(), [Target::CALLED]);
        assert_eq!(Target::Link.name(), format!("network.{}", Target::STREAM));
        assert_eq!(Target::STREAM, format!("{}-{}", Target::CALLER, Target::CALLED));
        assert_eq!(Target::named(Target::Link.name()), Some(Target::Link));
        assert_eq!(Target::VISITORS_SERVICE, format!("network.{}", Target::VISITORS));
        assert_eq!(Target::named(Target::VISITORS_SERVICE), None, "nobody judges the visitors");
        for service in Service::ALL {
            let waits = matches!(service, Service::Frontend | Service::Payment | Service::Store);
            assert_eq!(Target::Link.is_on_a_path_with(service.into()), waits, "{service}");
            assert_eq!(Target::Service(service).is_on_a_path_with(Target::Link), waits, "{service}");
            assert_eq!(Target::named(service.name()), Some(service.into()));
        }
    }

    #[test]
    fn every_service_is_found_by_its_name() {
        for service in Service::ALL {
            assert_eq!(Service::named(service.name()), Some(service));
        }
        assert_eq!(Service::named("basket"), None);
    }
}
