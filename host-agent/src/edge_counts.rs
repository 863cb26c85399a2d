//! Counters of the edges; the control plane has its own.

use agent_runtime::Count;

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

counts! {
    /// Failed accepts on the Unix sockets, and for head sampling.
    accept_errors;
    /// Services disconnected because they did not read their messages.
    slow_services;
    /// Descriptors of services that belonged to no message; closed.
    stray_descriptors;
    /// Workers disconnected because they did not read their messages.
    slow_workers;
    /// Worker streams that broke, or began without a hello.
    broken_workers;
    /// Writes of the receipt's ledger that failed; the next one is tried as usual.
    failed_receipt_writes;
    /// Writes of records of incidents that failed; the next one is tried as usual.
    failed_incident_writes;
    /// Changes noted for incidents: restarts, versions, limits, and the agent's own configuration.
    noted_changes;
    /// Profiles taken of services in alarm.
    profiles;
    /// Profiles of services in alarm that could not be taken: the kernel refused, or their processes were gone.
    failed_profiles;
    /// Writes of stored models that failed; the next one is tried as usual.
    failed_model_writes;
    /// Files of stored models that could not be read and were moved aside.
    unreadable_models;
    /// Calls of workers, operators and viewers that their role does not allow.
    denied_calls;
    /// Calls of operators and viewers refused: they had their share of requests and of replies that were not read.
    refused_replies;
    /// Requests to the live page without a session, with another host's name, or that would not only read.
    refused_page_requests;
    /// Viewers of the live page that were turned away: too many at a time.
    refused_page_viewers;
    /// Viewers of the live page that did not read, and were closed.
    slow_page_viewers;
    /// Hooks and watchers refused because their operator or viewer had its share.
    refused_hooks;
    /// Models of operators refused: no model, of other columns or another interval, or over the operator's share of
    /// bytes.
    refused_models;
    /// Connections to the regions socket refused: wrong user, or too many.
    refused_readers;
    /// Region descriptors passed to readers.
    passed_regions;
    /// Region requests refused: unknown region or another incarnation.
    refused_requests;
    /// RDMA devices given up for a worker that could not be connected.
    lost_devices;
    /// RDMA devices reopened, with all regions registered again.
    reopened_devices;
    /// LMAPs not watched for a remote monitor: limit of hooks.
    unwatched_lmaps;
    /// Rows dropped because their columns had already changed again.
    unnamed_rows;
    /// Regions that an RDMA device did not deregister.
    failed_deregistrations;
    /// Regions of which their service has freed memory.
    freed_regions;
    /// Span rings not read any more: their service has freed memory of them.
    freed_span_rings;
    /// Finished spans read from span rings.
    ring_spans;
    /// Span ring records overwritten before they were read.
    overwritten_ring_records;
    /// Span ring records that were begun and never finished, or abandoned.
    unfinished_ring_records;
    /// Span ring records that could not be decoded.
    malformed_ring_records;
    /// Spans that services did not record because too many were open.
    unrecorded_ring_spans;
    /// Spans from span rings that the OTLP endpoint refused.
    refused_ring_spans;
    /// Traces that services asked for through their span rings.
    triggered_traces;
    /// Triggered traces already decided, or over budget.
    refused_triggers;
    /// Requests of operators to keep the traces through a service.
    operator_triggers;
    /// Webhook messages that receivers accepted.
    sent_webhooks;
    /// Webhook messages to be sent again.
    failed_webhooks;
    /// Webhook messages that receivers refused for good.
    refused_webhooks;
    /// Webhook alerts dropped because of a limit.
    over_limit_webhook_alerts;
    /// Replies to head sampling requests.
    head_sampling_answers;
    /// Head sampling requests refused, unknown or malformed, and connections: too many, or few descriptors left.
    refused_head_sampling_requests;
    /// First deliveries of a raised probability, per operation.
    delivered_raised_probabilities;
    /// Time from verdicts to first deliveries, summed.
    raised_probabilities_wait_ms;
    /// Raised probabilities that fell before they were delivered.
    missed_raised_probabilities;
    /// Failures of an RDMA device to fence a worker.
    failed_fences;
}
