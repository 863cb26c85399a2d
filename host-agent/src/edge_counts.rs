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
    /// LMAPs whose rows could not be taken for the remote monitor because there were too many hooks and watchers, each time.
    unwatched_lmaps;
    /// Rows for the remote monitor whose columns had changed again before they were named.
    unnamed_rows;
    /// Regions that a device did not let go of when they were withdrawn; the worker was shut out.
    kept_regions;
    /// Finished spans read from rings of services.
    ring_spans;
    /// Records of rings that were overwritten before they were read.
    overwritten_ring_records;
    /// Records of rings that their writer began and never finished, or gave up.
    unfinished_ring_records;
    /// Records of rings that are none.
    malformed_ring_records;
    /// Spans that services could not record because too many were open.
    unmade_ring_spans;
    /// Spans read from rings that found no room on the way to the upstream.
    refused_ring_spans;
    /// Traces that services asked for through their rings.
    asked_traces;
    /// Traces that services asked for and that were decided already, or for which there was no budget.
    refused_asks;
    /// Messages that webhooks took.
    sent_webhooks;
    /// Messages to webhooks that have to be sent again.
    failed_webhooks;
    /// Messages that webhooks refused for good.
    refused_webhooks;
    /// Alerts for webhooks beyond their bounds, not told.
    crowded_webhook_alerts;
    /// Times that somebody was told which share of its requests to record.
    head_sampling_answers;
    /// Requests for head sampling that asked for something else, or could not be read.
    refused_head_sampling_requests;
    /// Raised shares that were asked for: the first time for each operation since it was raised.
    raised_shares_told;
    /// Milliseconds from the verdict that raised a share to the first time that it was asked for, all of them together: the time to effect.
    raised_shares_wait_ms;
    /// Raised shares that fell again before anybody had asked for them.
    raised_shares_missed;
    /// Times that a device did not shut a worker out.
    failed_fences;
}
