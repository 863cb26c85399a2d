//! Metrics of the OTLP endpoint, if there is one.

use core::fmt;

use agent_runtime::Count;
use hooks::coherence::{Member, Refusal};
use hooks::tracing::{Account, DropReason, LogPolicy, LossReason, Policy};
use otlp::counts::{Counts, RefusalReason, SignalCounts, UpstreamLoss};
use otlp::{Edge, Signal, TailSampler, Timestamp};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::encoding::{counter, gauge};

type Labels<'a, const N: usize> = [(&'static str, &'a str); N];

/// A counter family: one name, with a value for each set of labels.
fn counters<'l, const N: usize>(
    encoder: &mut DescriptorEncoder,
    (name, help): (&str, &str),
    values: impl IntoIterator<Item = (Labels<'l, N>, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    values.into_iter().try_for_each(|(labels, value)| ConstCounter::new(value).encode(family.encode_family(&labels)?))
}

fn per_signal<'c>(
    counts: &'c Counts,
    value: impl Fn(&'c SignalCounts) -> &'c Count,
) -> impl Iterator<Item = (Labels<'static, 1>, u64)> {
    Signal::ALL.into_iter().map(move |signal| ([("signal", signal.name())], value(counts.of(signal)).get()))
}

/// All metrics of `edge`.
pub(super) fn encode(edge: &Edge, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let counts = &edge.counts;
    let taken = per_signal(counts, |counts| &counts.accepted);
    counters(encoder, ("otlp_requests", "OTLP requests accepted from services."), taken)?;
    let items = per_signal(counts, |counts| &counts.items);
    counters(encoder, ("otlp_items", "Spans, metrics and log records in accepted OTLP requests."), items)?;
    let refused = Signal::ALL.into_iter().flat_map(|signal| {
        RefusalReason::ALL
            .into_iter()
            .map(move |why| ([("signal", signal.name()), ("reason", why.name())], counts.of(signal).refused(why).get()))
    });
    counters(encoder, ("refused_otlp_requests", "OTLP requests refused, by reason."), refused)?;
    encode_outgoing(counts, encoder)?;
    counter(
        encoder,
        "unexpected_otlp_requests",
        "Requests to the OTLP ports whose path is no signal's.",
        counts.unexpected.get(),
    )?;
    let help = "Connections to the OTLP ports refused: too many, of all or of one peer, or few descriptors left.";
    counter(encoder, "refused_otlp_connections", help, counts.refused_connections.get())?;
    let help = "Connections to the OTLP ports whose TLS handshake failed.";
    counter(encoder, "refused_otlp_handshakes", help, counts.refused_handshakes.get())?;
    let help = "Failed accepts on the OTLP ports.";
    counter(encoder, "otlp_accept_errors", help, counts.accept_errors.get())?;
    let help = "Spans whose sender may not use their service's name: they do not count as its own.";
    counter(encoder, "unverified_spans", help, counts.unverified_spans.get())?;
    let help = "Log records whose sender may not use their service's name: sampled as nobody's.";
    counter(encoder, "unverified_logs", help, counts.unverified_logs.get())?;
    let help = "OTLP connections from this machine whose user is unknown.";
    counter(encoder, "unknown_otlp_senders", help, counts.unknown_senders.get())?;
    let help = "Kept spans that did not reach the upstream.";
    counter(encoder, "lost_kept_spans", help, counts.lost_spans.get())?;
    let help = "Kept log records that did not reach the upstream.";
    counter(encoder, "lost_kept_logs", help, counts.lost_logs.get())?;
    gauge(encoder, "receiving_otlp_bytes", "Memory of OTLP requests that are being received.", edge.receiving_bytes())?;
    let help = "Bytes of OTLP requests queued for the upstream or in flight.";
    let mut family = encoder.encode_descriptor("queued_otlp_bytes", help, None, MetricType::Gauge)?;
    for signal in Signal::ALL {
        let labels = [("signal", signal.name())];
        ConstGauge::new(edge.queued_bytes(signal) as i64).encode(family.encode_family(&labels)?)?;
    }
    if let Some((unnamed, waiting)) = edge.with_span_metrics(|metrics| (metrics.unnamed(), metrics.pending())) {
        let help = "Requests of services that no LMAP can watch: limit or name.";
        counter(encoder, "unwatched_requests", help, unnamed)?;
        gauge(encoder, "pending_requests", "Requests from spans, to be counted after derived.delay_ms.", waiting)?;
    }
    let renamed = edge.tenants().map(|(id, name)| ([("tenant", name)], edge.renamed_requests(id)));
    let help = "OTLP requests with another tenant's service; renamed.";
    counters(encoder, ("renamed_otlp_requests", help), renamed)?;
    encode_tails(edge, encoder)?;
    encode_logs(edge, encoder)
}

/// What became of requests on their way to the upstream, or of their items where there is none.
fn encode_outgoing(counts: &Counts, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let sent = per_signal(counts, |counts| &counts.sent);
    counters(encoder, ("sent_otlp_requests", "OTLP requests that the upstream accepted."), sent)?;
    let bytes = per_signal(counts, |counts| &counts.sent_bytes);
    counters(encoder, ("sent_otlp_bytes", "Bytes of OTLP requests that the upstream accepted."), bytes)?;
    let retries = per_signal(counts, |counts| &counts.retries);
    counters(encoder, ("retried_otlp_requests", "Retries of OTLP requests to the upstream."), retries)?;
    let rejected = per_signal(counts, |counts| &counts.rejected);
    let help = "Items rejected in requests that the upstream accepted.";
    counters(encoder, ("rejected_otlp_items", help), rejected)?;
    let lost = Signal::ALL.into_iter().flat_map(|signal| {
        UpstreamLoss::ALL
            .into_iter()
            .map(move |why| ([("signal", signal.name()), ("reason", why.name())], counts.of(signal).lost(why).get()))
    });
    counters(encoder, ("lost_otlp_requests", "Accepted OTLP requests that did not reach the upstream."), lost)?;
    let unforwarded = per_signal(counts, |counts| &counts.unforwarded);
    let help = "Spans, metrics and log records that were accepted and passed on to nobody (otlp.watch_only).";
    counters(encoder, ("unforwarded_otlp_items", help), unforwarded)
}

/// Metrics of sampled log records, summed over all tenants; none where they pass through.
fn encode_logs(edge: &Edge, encoder: &mut DescriptorEncoder) -> fmt::Result {
    if edge.with_tail(|tail, _| tail.keeps_logs()) != Some(true) {
        return Ok(());
    }
    let of = |id, value: &dyn Fn(&TailSampler) -> u64| edge.with_tail_of(id, |tail, _| value(tail)).unwrap_or(0);
    let sum = |value: &dyn Fn(&TailSampler) -> u64| edge.tenants().map(|(id, _)| of(id, value)).sum::<u64>();
    let account = |value: &dyn Fn(&Account) -> u64| sum(&|tail| tail.log_account().map_or(0, value));
    let help = "Log records received: each waits, is kept, dropped or lost.";
    counter(encoder, "logs", help, account(&|account| account.seen.spans))?;
    let help = "Bytes of log records received: what would be sent on without sampling.";
    counter(encoder, "log_bytes", help, account(&|account| account.seen.bytes))?;
    let waiting = account(&|account| account.waiting.spans);
    gauge(encoder, "buffered_logs", "Log records that wait for a decision.", waiting as usize)?;
    counter(encoder, "kept_logs", "Log records that were kept.", account(&|account| account.kept.spans))?;
    counter(encoder, "kept_log_bytes", "Bytes of kept log records.", account(&|account| account.kept.bytes))?;
    let dropped = DropReason::ALL.into_iter();
    let dropped = dropped.map(|why| ([("reason", why.name())], account(&|account| account.dropped(why).spans)));
    counters(encoder, ("dropped_logs", "Log records that no policy selected, by reason."), dropped)?;
    let lost = LossReason::ALL.into_iter();
    let lost = lost.map(|why| ([("reason", why.name())], account(&|account| account.lost(why).spans)));
    counters(encoder, ("lost_logs", "Log records lost, by reason."), lost)?;
    let yielded = LogPolicy::ALL.into_iter();
    let yielded = yielded.map(|policy| ([("policy", policy.name())], sum(&|tail| tail.yielded_logs(policy))));
    counters(encoder, ("over_budget_logs", "Log records selected and not kept: over budget."), yielded)?;
    let memory = sum(&|tail| tail.log_memory() as u64);
    gauge(encoder, "log_memory_bytes", "Memory of log records that wait.", memory as usize)
}

/// Metrics of the tail buffers: summed over all tenants, then per tenant.
fn encode_tails(edge: &Edge, encoder: &mut DescriptorEncoder) -> fmt::Result {
    edge.with_member(|member, now| encode_member(member, now, encoder)).unwrap_or(Ok(()))?;
    if edge.with_tail(|_, _| ()).is_none() {
        return Ok(());
    }
    let of = |id, value: &dyn Fn(&TailSampler) -> u64| edge.with_tail_of(id, |tail, _| value(tail)).unwrap_or(0);
    let sum = |value: &dyn Fn(&TailSampler) -> u64| edge.tenants().map(|(id, _)| of(id, value)).sum::<u64>();
    let help = "Spans received: each is buffered, kept, dropped or lost.";
    counter(encoder, "spans", help, sum(&|tail| tail.account().seen.spans))?;
    let waiting = sum(&|tail| tail.account().waiting.spans);
    gauge(encoder, "buffered_spans", "Spans buffered until their trace is decided.", waiting as usize)?;
    counter(encoder, "kept_spans", "Spans of kept traces.", sum(&|tail| tail.account().kept.spans))?;
    let dropped = DropReason::ALL.into_iter();
    let dropped = dropped.map(|why| ([("reason", why.name())], sum(&|tail| tail.account().dropped(why).spans)));
    counters(encoder, ("dropped_spans", "Spans of traces that no policy selected, by reason."), dropped)?;
    let lost = LossReason::ALL.into_iter();
    let lost = lost.map(|why| ([("reason", why.name())], sum(&|tail| tail.account().lost(why).spans)));
    counters(encoder, ("lost_spans", "Spans lost, by reason."), lost)?;
    counter(
        encoder,
        "over_limit_spans",
        "Spans lost because of the limit of resources.",
        sum(&TailSampler::over_limit),
    )?;
    let help = "Bytes of spans of kept traces.";
    counter(encoder, "kept_span_bytes", help, sum(&|tail| tail.account().kept.bytes))?;
    let granted = Policy::ALL.into_iter();
    let granted =
        granted.map(|policy| ([("policy", policy.name())], sum(&|tail| tail.policies().granted(policy).bytes)));
    counters(encoder, ("granted_span_bytes", "Bytes of spans kept, by the policy that selected them."), granted)?;
    let yielded = Policy::ALL.into_iter();
    let yielded = yielded.map(|policy| ([("policy", policy.name())], sum(&|tail| tail.policies().yielded(policy))));
    counters(encoder, ("over_budget_traces", "Traces selected and not kept: over budget."), yielded)?;
    let help = "Traces kept because an operator asked for them.";
    counter(encoder, "operator_triggered_traces", help, sum(&|tail| tail.policies().operator_traces()))?;
    let help = "Names of services and operations that counted as others: limit.";
    counter(encoder, "other_names", help, sum(&|tail| tail.unlearnt().0))?;
    let help = "Services on paths, and calls between services, that were not learnt: limit.";
    counter(encoder, "unlearnt_paths", help, sum(&|tail| tail.unlearnt().1))?;
    let memory = sum(&|tail| tail.memory() as u64);
    gauge(encoder, "trace_memory_bytes", "Memory of buffered spans and decisions.", memory as usize)?;
    let reached = edge.tenants().filter_map(|(id, _)| edge.with_tail_of(id, |tail, now| tail.look_back(now.monotonic)));
    let (mut reach, mut found) = (f64::INFINITY, f64::INFINITY);
    for back in reached {
        (reach, found) = (reach.min(back.reach.as_secs_f64()), found.min(back.share));
    }
    share(encoder, "look_back_seconds", "Age of the oldest buffered traces (minimum over tenants).", reach)?;
    share(encoder, "look_back_share", "Share of traces still buffered (minimum over tenants).", found)?;
    let each =
        |value: fn(&TailSampler) -> u64| edge.tenants().map(move |(id, name)| ([("tenant", name)], of(id, &value)));
    counters(encoder, ("tenant_spans", "Spans received from a tenant."), each(|tail| tail.account().seen.spans))?;
    let kept = each(|tail| tail.account().kept.spans);
    counters(encoder, ("tenant_kept_spans", "Spans of a tenant's kept traces."), kept)?;
    let yielded = each(|tail| Policy::ALL.into_iter().map(|policy| tail.policies().yielded(policy)).sum());
    counters(encoder, ("tenant_over_budget_traces", "Traces selected and not kept: over budget."), yielded)?;
    let mut family = encoder.encode_descriptor(
        "tenant_trace_memory_bytes",
        "Memory of a tenant's buffered spans and decisions.",
        None,
        MetricType::Gauge,
    )?;
    for (labels, bytes) in each(|tail| tail.memory() as u64) {
        ConstGauge::new(bytes as i64).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Metrics of gossip with other nodes.
fn encode_member(member: &Member, now: Timestamp, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let (counts, follower) = (member.counts(), member.log());
    let (live, known) = member.sizes(now.monotonic);
    gauge(encoder, "live_gossip_peers", "Gossip peers that sent a message recently.", live)?;
    let help = "Known gossip peers, including silent ones.";
    gauge(encoder, "gossip_peers", help, known)?;
    counter(encoder, "decided_traces", "Traces that this node decided to keep.", counts.decided)?;
    counter(encoder, "followed_traces", "Traces that other nodes decided to keep.", counts.followed)?;
    let help = "Keep decisions that no other node has yet.";
    gauge(encoder, "unreplicated_traces", help, member.pending().len())?;
    let help = "Traces kept before another node had the decision.";
    counter(encoder, "unconfirmed_traces", help, member.pending().unconfirmed())?;
    counter(
        encoder,
        "unacknowledged_traces",
        "Keep decisions that a peer did not acknowledge in time.",
        counts.unacknowledged,
    )?;
    counter(encoder, "peer_verdicts", "Verdicts received from other nodes.", counts.verdicts)?;
    counter(encoder, "gossip_peer_restarts", "Restarts of gossip peers.", counts.restarts)?;
    let missed = follower.missed() + follower.implausible();
    let help = "Gossip entries lost, or not applied because of their time.";
    counter(encoder, "lost_gossip_entries", help, missed)?;
    counter(
        encoder,
        "shed_gossip_entries",
        "Gossip entries dropped early because of the limit of entries.",
        follower.shed(),
    )?;
    let refused = Refusal::ALL.into_iter().map(|why| ([("reason", why.name())], member.refusals().count(why)));
    counters(encoder, ("refused_gossip", "Words of peers, or of others, that were not believed, by reason."), refused)?;
    let help = "Memory of gossip entries kept here, of all nodes.";
    gauge(encoder, "gossip_entry_bytes", help, follower.memory())?;
    gauge(encoder, "gossip_entries", "Gossip entries kept here, of all nodes.", follower.len())
}

fn share(encoder: &mut DescriptorEncoder, name: &str, help: &str, value: f64) -> fmt::Result {
    let metric = ConstGauge::new(value);
    let metric_encoder = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
    metric.encode(metric_encoder)
}
