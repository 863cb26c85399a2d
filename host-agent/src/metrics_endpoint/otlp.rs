//! What the OTLP endpoint says of itself; nothing where there is none.

use core::fmt;

use hooks::coherence::Member;
use hooks::tracing::{Dropped, Loss, Policy};
use otlp::counts::{Count, Counts, Lost, Refused, SignalCounts};
use otlp::{Edge, Moment, Signal, Tail};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::{counter, gauge};

type Labels<'a, const N: usize> = [(&'static str, &'a str); N];

/// One name with labels, and a value for each.
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

/// Everything that `edge` counts.
pub(super) fn encode(edge: &Edge, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let counts = &edge.counts;
    let taken = per_signal(counts, |counts| &counts.taken);
    counters(encoder, ("otlp_requests", "OTLP requests taken from services."), taken)?;
    let items = per_signal(counts, |counts| &counts.items);
    counters(encoder, ("otlp_items", "Spans, metrics and log records in them."), items)?;
    let refused = Signal::ALL.into_iter().flat_map(|signal| {
        Refused::ALL
            .into_iter()
            .map(move |why| ([("signal", signal.name()), ("reason", why.name())], counts.of(signal).refused(why).get()))
    });
    counters(encoder, ("refused_otlp_requests", "OTLP requests refused, by reason."), refused)?;
    let sent = per_signal(counts, |counts| &counts.sent);
    counters(encoder, ("sent_otlp_requests", "OTLP requests that the upstream took."), sent)?;
    let bytes = per_signal(counts, |counts| &counts.sent_bytes);
    counters(encoder, ("sent_otlp_bytes", "Bytes of OTLP requests that the upstream took."), bytes)?;
    let retries = per_signal(counts, |counts| &counts.retries);
    counters(encoder, ("retried_otlp_requests", "Attempts to send that failed and were made again."), retries)?;
    let rejected = per_signal(counts, |counts| &counts.rejected);
    let help = "Items that the upstream did not take of requests that it took.";
    counters(encoder, ("rejected_otlp_items", help), rejected)?;
    let lost = Signal::ALL.into_iter().flat_map(|signal| {
        Lost::ALL
            .into_iter()
            .map(move |why| ([("signal", signal.name()), ("reason", why.name())], counts.of(signal).lost(why).get()))
    });
    counters(encoder, ("lost_otlp_requests", "OTLP requests that did not reach the upstream, by reason."), lost)?;
    counter(encoder, "foreign_otlp_requests", "Requests to the OTLP ports that name no signal.", counts.foreign.get())?;
    let help = "Connections to the OTLP ports that were one too many.";
    counter(encoder, "refused_otlp_connections", help, counts.refused_connections.get())?;
    let help = "Connections to the OTLP ports that did not come to be inside of TLS.";
    counter(encoder, "refused_otlp_handshakes", help, counts.refused_handshakes.get())?;
    let help = "Connections to the OTLP ports that could not be accepted.";
    counter(encoder, "otlp_accept_errors", help, counts.accept_errors.get())?;
    let help = "Kept spans that did not reach the upstream.";
    counter(encoder, "lost_kept_spans", help, counts.lost_spans.get())?;
    gauge(encoder, "reading_otlp_bytes", "Bytes of OTLP requests that are being read.", edge.reading_bytes())?;
    let help = "Bytes of OTLP requests that wait for the upstream, or are being sent.";
    let mut family = encoder.encode_descriptor("queued_otlp_bytes", help, None, MetricType::Gauge)?;
    for signal in Signal::ALL {
        let labels = [("signal", signal.name())];
        ConstGauge::new(edge.queued_bytes(signal) as i64).encode(family.encode_family(&labels)?)?;
    }
    if let Some((unnamed, waiting)) = edge.count(|derived| (derived.unnamed(), derived.waiting())) {
        let help =
            "Requests of services that spans name and no LMAP can watch: too many, or of a name that no service has.";
        counter(encoder, "unwatched_requests", help, unnamed)?;
        gauge(encoder, "waiting_requests", "Requests that ended and are not yet counted for LMAPs.", waiting)?;
    }
    let renamed = edge.tenants().map(|(id, name)| ([("tenant", name)], edge.renamed(id)));
    let help = "OTLP requests in which a tenant spoke in the name of another's service, which was replaced.";
    counters(encoder, ("renamed_otlp_requests", help), renamed)?;
    encode_tails(edge, encoder)
}

/// Of all tenants together, then of each.
fn encode_tails(edge: &Edge, encoder: &mut DescriptorEncoder) -> fmt::Result {
    if edge.look(|_, _| ()).is_none() {
        return Ok(());
    }
    let of = |id, value: &dyn Fn(&Tail) -> u64| edge.look_at(id, |tail, _| value(tail)).unwrap_or(0);
    let sum = |value: &dyn Fn(&Tail) -> u64| edge.tenants().map(|(id, _)| of(id, value)).sum::<u64>();
    let help = "Spans seen: each is waiting, kept, dropped or lost.";
    counter(encoder, "spans", help, sum(&|tail| tail.account().seen.spans))?;
    let waiting = sum(&|tail| tail.account().waiting.spans);
    gauge(encoder, "waiting_spans", "Spans that wait for a decision.", waiting as usize)?;
    counter(encoder, "kept_spans", "Spans of traces that are kept.", sum(&|tail| tail.account().kept.spans))?;
    let dropped = Dropped::ALL.into_iter();
    let dropped = dropped.map(|why| ([("reason", why.name())], sum(&|tail| tail.account().dropped(why).spans)));
    counters(encoder, ("dropped_spans", "Spans of traces that nothing wanted, by reason."), dropped)?;
    let lost = Loss::ALL.into_iter();
    let lost = lost.map(|why| ([("reason", why.name())], sum(&|tail| tail.account().lost(why).spans)));
    counters(encoder, ("lost_spans", "Spans for which there was no room or no sense, by reason."), lost)?;
    counter(encoder, "crowded_spans", "Spans of new resources while there were too many.", sum(&Tail::crowded))?;
    let help = "Bytes of spans of traces that are kept.";
    counter(encoder, "kept_span_bytes", help, sum(&|tail| tail.account().kept.bytes))?;
    let granted = Policy::ALL.into_iter();
    let granted =
        granted.map(|policy| ([("policy", policy.name())], sum(&|tail| tail.policies().granted(policy).bytes)));
    counters(encoder, ("granted_span_bytes", "Bytes that policies kept, as of their decisions."), granted)?;
    let yielded = Policy::ALL.into_iter();
    let yielded = yielded.map(|policy| ([("policy", policy.name())], sum(&|tail| tail.policies().yielded(policy))));
    counters(encoder, ("yielded_traces", "Times that a policy wanted a trace and had no budget."), yielded)?;
    edge.look(|tail, now| tail.member().map_or(Ok(()), |member| encode_member(member, now, encoder)))
        .unwrap_or(Ok(()))?;
    let memory = sum(&|tail| tail.memory() as u64);
    gauge(encoder, "trace_memory_bytes", "Memory of waiting spans and decisions.", memory as usize)?;
    let reached = edge.tenants().filter_map(|(id, _)| edge.look_at(id, |tail, now| tail.look_back(now.own)));
    let (mut reach, mut found) = (f64::INFINITY, f64::INFINITY);
    for back in reached {
        (reach, found) = (reach.min(back.reach.as_secs_f64()), found.min(back.share));
    }
    share(encoder, "look_back_seconds", "How far back a trigger reaches now, for every tenant.", reach)?;
    share(encoder, "look_back_share", "The share of traces that it finds there, 0 to 1, for every tenant.", found)?;
    let each = |value: fn(&Tail) -> u64| edge.tenants().map(move |(id, name)| ([("tenant", name)], of(id, &value)));
    counters(encoder, ("tenant_spans", "Spans seen of a tenant."), each(|tail| tail.account().seen.spans))?;
    let kept = each(|tail| tail.account().kept.spans);
    counters(encoder, ("tenant_kept_spans", "Spans of traces of a tenant that are kept."), kept)?;
    let yielded = each(|tail| Policy::ALL.into_iter().map(|policy| tail.policies().yielded(policy)).sum());
    counters(encoder, ("tenant_yielded_traces", "Times that a tenant's budget was spent."), yielded)?;
    let mut family = encoder.encode_descriptor(
        "tenant_trace_memory_bytes",
        "Memory of a tenant's waiting spans and decisions.",
        None,
        MetricType::Gauge,
    )?;
    for (labels, bytes) in each(|tail| tail.memory() as u64) {
        ConstGauge::new(bytes as i64).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// How this node stands with others that keep traces together with it.
fn encode_member(member: &Member, now: Moment, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let (counts, follower) = (member.counts(), member.follower());
    let (live, known) = member.sizes(now.own);
    gauge(encoder, "trace_peers", "Other nodes that keep traces together with this one, and were heard lately.", live)?;
    let help = "Other nodes that keep traces together with this one, silent ones among them.";
    gauge(encoder, "known_trace_peers", help, known)?;
    counter(encoder, "decided_traces", "Traces that this node decided to keep and told others of.", counts.decided)?;
    counter(encoder, "followed_traces", "Traces that other nodes decided to keep.", counts.followed)?;
    let help = "Traces that this node decided to keep and that wait until another one knows.";
    gauge(encoder, "held_traces", help, member.leader().waiting())?;
    let help = "Traces that were kept before another node was known to know.";
    counter(encoder, "unconfirmed_traces", help, member.leader().alone())?;
    counter(encoder, "untold_traces", "Kept traces that a node was not told of in time.", counts.untold)?;
    counter(encoder, "heard_verdicts", "Verdicts of LMAPs of other nodes.", counts.outputs)?;
    counter(encoder, "peer_restarts", "Other nodes that began again.", counts.restarts)?;
    let missed = follower.missed() + follower.implausible();
    let help = "What other nodes said and nobody remembered, or with an impossible time.";
    counter(encoder, "missed_peer_entries", help, missed)?;
    counter(encoder, "shed_peer_entries", "What was forgotten early, since too much was said.", follower.shed())?;
    gauge(encoder, "peer_entries", "What all nodes said lately and is remembered here.", follower.len())
}

fn share(encoder: &mut DescriptorEncoder, name: &str, help: &str, value: f64) -> fmt::Result {
    let metric = ConstGauge::new(value);
    let metric_encoder = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
    metric.encode(metric_encoder)
}
