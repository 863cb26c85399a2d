//! Counters of the control plane. Everything refused, lost or late has one.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => {
        /// Counters of the control plane since its start.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// Each counter's name, what it counts, and its value.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($doc),+).trim_ascii(), self.$name),)+].into_iter()
            }
        }
    };
}

counters! {
    /// Connections that services opened.
    service_connections;
    /// Service connections refused: too many.
    refused_connections;
    /// Hellos refused: identity, a limit, or order of messages.
    refused_hellos;
    /// Connections closed because no hello came in time.
    late_hellos;
    /// Malformed frames from services; their connections were closed.
    refused_frames;
    /// Regions accepted from services.
    accepted_regions;
    /// Regions refused: no descriptor, not sealed, not allocated, wrong size, or over a limit.
    refused_regions;
    /// Descriptors that came with a message that takes none.
    surplus_descriptors;
    /// Series accepted from services.
    accepted_series;
    /// Series refused: kind, outside its region, or over a limit.
    refused_series;
    /// Series of the agent itself refused: over a limit.
    refused_process_series;
    /// Retirements refused: the slots are not whole series.
    refused_retirements;
    /// Runs of slots released after every worker has forgotten them.
    released_slot_runs;
    /// Regions released after every worker has forgotten them.
    released_regions;
    /// LMAPs that were created.
    created_lmaps;
    /// LMAPs that were deleted.
    deleted_lmaps;
    /// Configuration changes sent to workers: one epoch each.
    sent_changes;
    /// Worker sessions: hellos accepted.
    worker_sessions;
    /// Workers refused: protocol, number, fenced, or transport.
    refused_workers;
    /// LMAPs moved to another worker without a gap.
    moved_lmaps;
    /// Moves of LMAPs that were given up: a worker was fenced, or had no model.
    cancelled_moves;
    /// Workers that left in good order.
    left_workers;
    /// Models of detectors taken from workers.
    taken_models;
    /// Models of detectors dropped: too large, or no room.
    dropped_models;
    /// Workers fenced: replaced, lease expired, or unknown epoch.
    fenced_workers;
    /// Worker leases that expired.
    expired_leases;
    /// Acknowledgements of epochs that were never sent.
    unknown_epochs;
    /// Worker messages dropped: unknown worker, or not expected.
    unexpected_messages;
    /// Verdicts accepted from workers.
    verdicts;
    /// Verdicts dropped: about an outdated configuration.
    stale_verdicts;
    /// Verdicts dropped: about an LMAP that the worker does not run.
    unexpected_verdicts;
    /// Verdicts dropped: malformed.
    malformed_verdicts;
    /// Raw rows accepted from workers.
    rows;
    /// Raw rows dropped: about an outdated configuration.
    stale_rows;
    /// LMAP summaries dropped: about an outdated configuration.
    stale_summaries;
    /// Queue pair connections that workers requested.
    requested_queue_pairs;
    /// Queue pair connections refused: invalid, or device failure.
    refused_queue_pairs;
    /// Queue pairs that a worker did not get from its own device.
    missing_queue_pairs;
    /// Failed RDMA registrations, at each configuration sent.
    unregistered_regions;
    /// Regions that a worker reported as unreadable.
    region_problems;
    /// LMAPs that a worker reported as not running as configured.
    lmap_problems;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_a_name_and_says_what_it_counts() {
        let counters = Counters { verdicts: 3, ..Counters::default() };

        assert!(
            counters.iter().any(|(name, help, value)| name == "verdicts"
                && help == "Verdicts accepted from workers."
                && value == 3)
        );
        assert!(counters.iter().all(|(_, help, _)| help.ends_with('.')));
    }
}
