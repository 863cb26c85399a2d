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
    fn every_service_is_found_by_its_name() {
        for service in Service::ALL {
            assert_eq!(Service::named(service.name()), Some(service));
        }
        assert_eq!(Service::named("basket"), None);
    }
}
