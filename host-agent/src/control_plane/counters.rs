//! What the control plane counts. Everything refused, lost or late has a counter here.

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
    /// Connections refused because there were too many.
    refused_connections;
    /// Services refused: their name is not theirs, too many replicas, a hello twice or missing.
    refused_hellos;
    /// Connections closed because no hello came in time.
    late_hellos;
    /// Frames that were no message; their connections were closed.
    refused_frames;
    /// Regions taken from services.
    accepted_regions;
    /// Regions refused: no descriptor, not sealed, another size, over a bound.
    refused_regions;
    /// Descriptors that came with a message that has none.
    surplus_descriptors;
    /// Series taken from services.
    accepted_series;
    /// Series refused: another kind than before, outside a region, over a bound.
    refused_series;
    /// Series of the agent itself (process metrics) that found no room.
    refused_process_series;
    /// Retirements of slots that were not whole series.
    refused_retirements;
    /// Runs of slots that every worker has forgotten.
    released_runs;
    /// Regions that every worker has forgotten.
    released_regions;
    /// LMAPs made.
    made_lmaps;
    /// LMAPs freed.
    freed_lmaps;
    /// Changes of configuration sent to workers: one epoch each.
    sent_changes;
    /// Workers that said hello and were taken.
    worker_sessions;
    /// Workers refused: another protocol, an unknown number, fenced.
    refused_workers;
    /// Workers fenced: another run took their number, their lease ran out, or they acknowledged what was never sent.
    fenced_workers;
    /// Leases that ran out.
    expired_leases;
    /// Acknowledgements of an epoch that was never sent.
    unknown_epochs;
    /// Messages of workers that are not known or not expected.
    foreign_messages;
    /// Verdicts taken.
    verdicts;
    /// Verdicts about another configuration than the present one: dropped.
    stale_verdicts;
    /// Verdicts of an LMAP that the worker does not have: dropped.
    foreign_verdicts;
    /// Verdicts that are none: dropped.
    malformed_verdicts;
    /// Raw rows taken.
    rows;
    /// Raw rows about another configuration than the present one: dropped.
    stale_rows;
    /// Summaries of an LMAP about another configuration than the present one: dropped.
    stale_summaries;
    /// Queue pairs that workers asked to be connected.
    requested_queue_pairs;
    /// Queue pairs that could not be connected: what the worker named cannot be, or a device did not do it.
    refused_queue_pairs;
    /// Queue pairs that a worker did not get from its own device.
    missing_queue_pairs;
    /// Regions that could not be registered for RDMA, each time that a worker was to be told of them.
    unregistered_regions;
    /// Regions that a worker could not fetch, as it said.
    region_problems;
    /// LMAPs that a worker does not run as they were asked for, as it said: their model, an aggregation or their regions.
    lmap_problems;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_a_name_and_says_what_it_counts() {
        let counters = Counters { verdicts: 3, ..Counters::default() };

        assert!(
            counters.iter().any(|(name, help, value)| name == "verdicts" && help == "Verdicts taken." && value == 3)
        );
        assert!(counters.iter().all(|(_, help, _)| help.ends_with('.')));
    }
}
