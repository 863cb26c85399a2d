//! What each service does for a living: map lookups, hashing, and counters of its own business.

mod cart;
mod catalogue;
mod frontend;
mod payment;
mod store;

use core::fmt::Debug;

use client::Client;

use crate::graph::{Errand, Service};

/// One request, as a trade sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// To look, or to buy.
    pub(crate) errand: Errand,
    /// Whose, or of what: anything.
    pub(crate) key: u64,
}

/// What a trade answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The length of the page.
    pub(crate) bytes: usize,
}

impl Page {
    const fn fine(bytes: usize) -> Self {
        Self { status: 200, bytes }
    }
}

/// A service's own work. It neither waits nor asks others.
pub(crate) trait Trade: Debug + Send + Sync {
    /// Does what is ordered.
    fn carry_out(&self, order: Order) -> Page;
}

/// The trade of `service`, with its series registered.
pub(crate) fn of(service: Service, uview: &Client, seed: u64) -> Box<dyn Trade> {
    match service {
        Service::Frontend => Box::new(frontend::Frontend::new(uview)),
        Service::Cart => Box::new(cart::Cart::new(uview)),
        Service::Catalogue => Box::new(catalogue::Catalogue::new(uview, seed)),
        Service::Payment => Box::new(payment::Payment::new(uview)),
        Service::Store => Box::new(store::Store::new(uview)),
    }
}
