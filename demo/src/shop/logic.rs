//! The business logic of each service: map lookups, hashing, and counters of its own.

mod cart;
mod catalogue;
mod frontend;
mod payment;
mod store;

use core::fmt::Debug;

use client::Client;

use crate::graph::{Errand, Service};

/// One request, as the business logic sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// Browse or buy.
    pub(crate) errand: Errand,
    /// Random number that selects the visitor and the product.
    pub(crate) key: u64,
}

/// The response of the business logic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The length of the body.
    pub(crate) bytes: usize,
}

impl Page {
    const fn fine(bytes: usize) -> Self {
        Self { status: 200, bytes }
    }
}

/// A service's own work. It neither waits nor calls other services.
pub(crate) trait ServiceLogic: Debug + Send + Sync {
    /// Handles one request.
    fn handle(&self, order: Order) -> Page;
}

/// The business logic of `service`, with its series registered.
pub(crate) fn of(service: Service, uview: &Client, seed: u64) -> Box<dyn ServiceLogic> {
    match service {
        Service::Frontend => Box::new(frontend::Frontend::new(uview)),
        Service::Cart => Box::new(cart::Cart::new(uview)),
        Service::Catalogue => Box::new(catalogue::Catalogue::new(uview, seed)),
        Service::Payment => Box::new(payment::Payment::new(uview)),
        Service::Store => Box::new(store::Store::new(uview)),
    }
}
