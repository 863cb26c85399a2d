//! What the edges count, beside the control plane's own counters.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => {
        /// Counters of the edges since the agent's start.
        #[derive(Debug, Default)]
        pub struct EdgeCounts {
            $($(#[doc = $doc])+ pub $name: Count,)+
        }

        impl EdgeCounts {
            /// Each counter's name, what it counts, and its value.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($doc),+).trim_ascii(), self.$name.get()),)+].into_iter()
            }
        }
    };
}

/// A counter that many may add to.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// One more.
    pub fn one_more(&self) {
        self.more(1);
    }

    /// So many more.
    pub fn more(&self, many: u64) {
        // Relaxed: it orders nothing.
        self.0.fetch_add(many, Ordering::Relaxed);
    }

    /// How many.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

counts! {
    /// Connections that could not be accepted.
    accept_errors;
    /// Services closed because they did not read what they were told.
    slow_services;
    /// Descriptors of services that belonged to no message, closed.
    stray_descriptors;
    /// Workers whose stream was ended because they did not read what they were told.
    slow_workers;
    /// Streams of workers without a hello, or that broke.
    broken_workers;
    /// Connections to the regions socket of a user that may not ask.
    refused_readers;
    /// Descriptors given to readers.
    given_regions;
    /// Requests for a region that could not be met.
    refused_requests;
    /// Devices that a worker's regions were lost with: they refuse to connect its queue pair, or the worker cannot be reached any more.
    lost_devices;
    /// Devices that were opened again for a worker, and its regions registered anew.
    reopened_devices;
    /// Regions that a device did not let go of when they were withdrawn; the worker was shut out.
    kept_regions;
}
