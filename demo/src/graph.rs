//! The shop: five services, and who calls whom.
//!
//! ```text
//!             ┌──► cart
//! frontend ───┼──► catalogue
//!             └──► payment ───► store
//! ```
//!
//! Every page asks each service once, so that all of them see the load of the frontend.

use core::fmt;

use serde::{Deserialize, Serialize};

/// One service of the shop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// Puts pages together. What the load talks to.
    Frontend,
    /// Who has what in the basket.
    Cart,
    /// What there is to buy; holds it all in memory.
    Catalogue,
    /// Takes the money; the only one that asks the store.
    Payment,
    /// Keeps rows: an ordered map with a log.
    Store,
}

impl Service {
    /// All of them, callers before those they call.
    pub const ALL: [Self; 5] = [Self::Frontend, Self::Cart, Self::Catalogue, Self::Payment, Self::Store];

    /// Its name, as it registers.
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

    /// The service of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.name() == name)
    }

    /// Whom it asks for each of its answers.
    #[must_use]
    pub const fn calls(self) -> &'static [Self] {
        match self {
            Self::Frontend => &[Self::Cart, Self::Catalogue, Self::Payment],
            Self::Payment => &[Self::Store],
            Self::Cart | Self::Catalogue | Self::Store => &[],
        }
    }

    /// Bytes that come with each request to it: whole rows for the store, which are several packets; elsewhere the address says all.
    #[must_use]
    pub const fn given(self) -> usize {
        match self {
            Self::Store => 4000,
            Self::Frontend | Self::Cart | Self::Catalogue | Self::Payment => 0,
        }
    }

    /// The path of `errand` at this service.
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

    /// Whether what happens in one of the two can be felt in the other: one calls the other, directly or not.
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

/// What is watched, as a service of its own: those of the shop, and the way between two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Watched {
    /// A service of the shop.
    Service(Service),
    /// The packets on the way between [`Watched::CALLER`] and [`Watched::CALLED`], of which the NIC agent makes a service.
    Way,
}

impl Watched {
    /// Who calls over the way.
    pub const CALLER: Service = Service::Payment;
    /// Who is called over it: the only service that does not share the machine's own network with the others.
    pub const CALLED: Service = Service::Store;
    /// The stream of packets, as the NIC agent is told.
    pub const STREAM: &'static str = "payment-store";

    /// Its name, as it registers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Service(service) => service.name(),
            Self::Way => "network.payment-store",
        }
    }

    /// What is watched under that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        if name == Self::Way.name() { Some(Self::Way) } else { Service::named(name).map(Self::Service) }
    }

    /// The service; of the way, who calls over it and has to wait.
    #[must_use]
    pub const fn service(self) -> Service {
        match self {
            Self::Service(service) => service,
            Self::Way => Self::CALLER,
        }
    }

    /// Whether what happens in one of the two can be felt in the other: one calls the other, directly or not. The way is between its ends.
    #[must_use]
    pub fn is_on_a_path_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Service(one), Self::Service(other)) => one.is_on_a_path_with(other),
            (Self::Way, Self::Service(service)) | (Self::Service(service), Self::Way) => {
                service.is_on_a_path_with(Self::CALLED)
            }
            (Self::Way, Self::Way) => true,
        }
    }
}

impl From<Service> for Watched {
    fn from(service: Service) -> Self {
        Self::Service(service)
    }
}

impl PartialEq<Service> for Watched {
    fn eq(&self, service: &Service) -> bool {
        *self == Self::Service(*service)
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Watched {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What a visitor wants. A service has one path for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Errand {
    /// To look around.
    Browse,
    /// To buy.
    Buy,
}

impl Errand {
    /// Both.
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
    fn the_way_is_on_a_path_with_its_ends_and_whoever_waits_for_them() {
        assert_eq!(Service::Payment.calls(), [Watched::CALLED]);
        assert_eq!(Watched::Way.name(), format!("network.{}", Watched::STREAM));
        assert_eq!(Watched::STREAM, format!("{}-{}", Watched::CALLER, Watched::CALLED));
        assert_eq!(Watched::named(Watched::Way.name()), Some(Watched::Way));
        for service in Service::ALL {
            let waits = matches!(service, Service::Frontend | Service::Payment | Service::Store);
            assert_eq!(Watched::Way.is_on_a_path_with(service.into()), waits, "{service}");
            assert_eq!(Watched::Service(service).is_on_a_path_with(Watched::Way), waits, "{service}");
            assert_eq!(Watched::named(service.name()), Some(service.into()));
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
