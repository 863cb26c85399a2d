//! Policies that select traces. An operator turns them on or off; they share a budget.

use std::sync::Arc;

use wire::time::Nanos;

use crate::id::OperationId;
use crate::paths::{Latencies, Names, Paths};
use crate::tracing::account::Tally;
use crate::tracing::budget::{Budget, Payer};
use crate::tracing::operator_requests::{OperatorRequest, OperatorRequestError, OperatorRequests};
use crate::tracing::order::Rank;
use crate::tracing::outcome::BufferedTrace;
use crate::tracing::peers::{PeerLevels, Peers};
use crate::tracing::reason::{Policy, Reason};
use crate::tracing::service_policies::ServicePolicies;
use crate::tracing::span::{Span, TraceId};
use crate::tracing::switches::Switches;
use crate::tracing::threshold::{Randomness, Threshold};
use crate::tracing::triggers::{Origin, Triggers};

/// A service's reason for keeping its trace is cut after so many bytes.
const TEXT_BYTES: usize = 256;
/// Bytes charged for a trace that is requested before its first span arrives.
const SMALL: u64 = 1_024;

/// What was learnt about services from spans of all tenants.
#[derive(Clone, Copy, Debug)]
pub struct ServiceCatalog<'a> {
    /// Names of services and operations.
    pub names: &'a Names,
    /// Services on the path of each operation.
    pub paths: &'a Paths,
    /// The learnt quantile of each operation's durations.
    pub latencies: &'a Latencies,
}

/// Why a trace is kept, and who pays for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// The reason, for its root span.
    pub reason: Arc<Reason>,
    /// Who pays for it and for its late spans.
    pub payer: Payer,
}

impl Selection {
    fn own(reason: impl Into<Arc<Reason>>) -> Self {
        let reason = reason.into();
        Self { payer: Payer::Own(reason.policy()), reason }
    }
}

/// One tenant's policies and their budget.
#[derive(Debug)]
pub struct Policies {
    switches: Switches,
    services: Arc<ServicePolicies>,
    /// What operators ask for.
    pub(super) requests: OperatorRequests,
    budget: Budget,
    granted: [Tally; Policy::ALL.len()],
    yielded: [u64; Policy::ALL.len()],
    /// This node has evicted traces up to this rank.
    level: Option<Rank>,
    /// Up to which ranks other nodes have.
    peer_levels: PeerLevels,
    passed_over: u64,
    operator_traces: u64,
}

impl Policies {
    /// Policies that spend `budget`.
    #[must_use]
    pub fn new(switches: Switches, budget: Budget) -> Self {
        let (granted, yielded) = (Default::default(), [0; Policy::ALL.len()]);
        let (services, requests) = (Arc::default(), OperatorRequests::default());
        let (level, peer_levels, passed_over, operator_traces) = (None, PeerLevels::default(), 0, 0);
        Self {
            switches,
            services,
            requests,
            budget,
            granted,
            yielded,
            level,
            peer_levels,
            passed_over,
            operator_traces,
        }
    }

    /// Which policies are on.
    #[must_use]
    pub const fn switches(&self) -> &Switches {
        &self.switches
    }

    /// From now on these hold for single services. Traces that are decided stay decided.
    pub fn set_services(&mut self, services: Arc<ServicePolicies>) {
        self.services = services;
    }

    /// What holds for single services.
    #[must_use]
    pub const fn services(&self) -> &Arc<ServicePolicies> {
        &self.services
    }

    /// From `now` on, traces are selected that an operator asks for. They count as [`Policy::Trigger`], and are paid as
    /// what services request; whether these may request any does not matter.
    ///
    /// # Errors
    ///
    /// [`OperatorRequestError`]; then nothing has changed.
    pub fn ask(&mut self, request: &OperatorRequest, names: &Names, now: Nanos) -> Result<(), OperatorRequestError> {
        self.requests.insert(request, names, now)
    }

    /// How many traces were selected because an operator asked for them.
    #[must_use]
    pub const fn operator_traces(&self) -> u64 {
        self.operator_traces
    }

    /// The reason if the floor keeps the trace of `span`. Every node comes to the same result, from any span of the
    /// trace.
    #[must_use]
    pub fn floor(&self, span: &Span<'_>) -> Option<Reason> {
        let floor = self.switches.floor.filter(|floor| floor.keeps(span.randomness()))?;
        Some(Reason::Floor { threshold: floor.after(span.threshold) })
    }

    /// The reason for keeping the trace of `span`, which has just arrived and is buffered as `waiting`: that of the
    /// first policy of [`Policy::ALL`] behind the floor that selects it and has budget, and is not off for the span's
    /// service; then that of an operator; in the end that service's share. Its bytes so far are spent then.
    pub fn judge(
        &mut self,
        span: &Span<'_>,
        waiting: &BufferedTrace,
        triggers: &mut Triggers,
        catalog: &ServiceCatalog<'_>,
        now: Nanos,
    ) -> Option<Selection> {
        let index = &span.index;
        let name = catalog.names.service_name(index.service);
        let off = self.services.off(name);
        let error = self.switches.error && index.error && !off.has(Policy::Error);
        if error && self.spend(Payer::Own(Policy::Error), waiting, now) {
            let operation = catalog.names.operation_name(index.operation).into();
            return Some(Selection::own(Reason::Error { service: name.into(), operation }));
        }
        if let Some(selection) = self.lmap(waiting, triggers, catalog, now) {
            return Some(selection);
        }
        let latency = self.switches.latency && span.entry && waiting.operation == Some(index.operation);
        let latency = latency && !off.has(Policy::Latency);
        if let Some(reason) = latency.then(|| slow(span, index.operation, catalog)).flatten()
            && self.can_be_whole(waiting)
            && self.spend(Payer::Own(Policy::Latency), waiting, now)
        {
            return Some(Selection::own(reason));
        }
        let trigger = self.switches.trigger && !off.has(Policy::Trigger);
        if let Some(text) = span.trigger.filter(|_| trigger)
            && self.spend(Payer::Own(Policy::Trigger), waiting, now)
        {
            let text = text[..text.floor_char_boundary(TEXT_BYTES)].into();
            return Some(Selection::own(Reason::Trigger { text }));
        }
        let operation = || catalog.names.operation_name(index.operation);
        if let Some(reason) = self.requests.reason(name, operation, now)
            && let Some(selection) = self.select_for_operator(reason, waiting, now)
        {
            return Some(selection);
        }
        self.share(name, span, waiting, now)
    }

    /// Selects a trace that an operator asks for, if it can be whole here and there is budget.
    pub(super) fn select_for_operator(
        &mut self,
        reason: Arc<Reason>,
        waiting: &BufferedTrace,
        now: Nanos,
    ) -> Option<Selection> {
        let is_selected = self.can_be_whole(waiting) && self.spend(Payer::Own(Policy::Trigger), waiting, now);
        self.operator_traces += u64::from(is_selected);
        is_selected.then(|| Selection::own(reason))
    }

    /// The reason if the trace of `span` is one of the share of its service `name`. It counts as requested, and yields
    /// before what services request themselves.
    fn share(&mut self, name: &str, span: &Span<'_>, waiting: &BufferedTrace, now: Nanos) -> Option<Selection> {
        let reason = self.services.share(name, span.randomness())?;
        if !self.can_be_whole(waiting) {
            return None;
        }
        let granted = self.budget.spend_spare(waiting.bytes, now);
        self.count(Policy::Trigger, granted, waiting);
        granted.then(|| Selection::own(reason))
    }

    /// The reason for keeping `trace`, of which `waiting` is buffered, because a service requested it by its id. A
    /// trace without spans costs as if it were small, so that requests are bounded; spans that follow are charged.
    pub fn requested(&mut self, trace: TraceId, waiting: Tally, why: &str, now: Nanos) -> Option<Selection> {
        let floor = self.switches.floor.is_some_and(|floor| floor.keeps(Randomness::of(trace)));
        if floor || !self.switches.trigger {
            return None;
        }
        if !self.budget.spend(Payer::Own(Policy::Trigger), waiting.bytes.max(SMALL), now) {
            self.yielded[Policy::Trigger as usize] += 1;
            return None;
        }
        self.granted[Policy::Trigger as usize] += waiting;
        Some(Selection::own(Reason::Trigger { text: why[..why.floor_char_boundary(TEXT_BYTES)].into() }))
    }

    /// Whether [`Policy::Lmap`] is on.
    #[must_use]
    pub const fn uses_lmaps(&self) -> bool {
        self.switches.lmap
    }

    /// The reason for keeping a buffered trace because of verdicts since it arrived. If all of them are of other nodes,
    /// those pay. Verdicts of a node that has evicted the trace do not count. A trace that looks as its operation
    /// usually does may have to be one of a share ([`Switches::unremarkable`]); with each span it is looked at again.
    pub fn lmap(
        &mut self,
        waiting: &BufferedTrace,
        triggers: &mut Triggers,
        catalog: &ServiceCatalog<'_>,
        now: Nanos,
    ) -> Option<Selection> {
        let operation = waiting.operation.filter(|_| self.switches.lmap)?;
        if self.is_left_out(waiting, operation, catalog) {
            return None;
        }
        let (levels, mut is_lacked) = (&self.peer_levels, false);
        let wanted = triggers.wanted(catalog, operation, (waiting.start, waiting.end), |author| {
            let lacks = levels.of(author) >= Some(waiting.rank);
            is_lacked |= lacks;
            lacks
        });
        let Some((reason, origin)) = wanted else {
            self.passed_over += u64::from(is_lacked);
            return None;
        };
        if !self.can_be_whole(waiting) {
            return None;
        }
        let payer = match origin {
            Origin::Here => Payer::Own(Policy::Lmap),
            Origin::Elsewhere(peers) => Payer::Others(peers),
        };
        self.spend(payer, waiting, now).then_some(Selection { reason, payer })
    }

    /// This node has evicted traces up to the rank `own`, `None` if it has evicted none; others up to those of `peers`.
    /// LMAPs and latency select no trace that could only be kept in part here, since they have others to select. An
    /// error, or a request of a service, is kept with a mark.
    ///
    /// The level of another node holds for that node's own verdicts only. What it has evicted nobody else knows: a
    /// level that kept others from what they find would obey a node that lies. A trace that others want is kept without
    /// its spans, and that node marks it.
    pub fn set_eviction_levels(&mut self, own: Option<Rank>, peers: PeerLevels) {
        (self.level, self.peer_levels) = (own, peers);
    }

    /// How many times a trace was selected that this node, or the one that asks for it, has evicted.
    #[must_use]
    pub const fn passed_over(&self) -> u64 {
        self.passed_over
    }

    /// Whether verdicts leave out this trace, as it is so far, since others say more about what is wrong.
    fn is_left_out(&self, waiting: &BufferedTrace, operation: OperationId, catalog: &ServiceCatalog<'_>) -> bool {
        let is_chosen = |share: Threshold| share.keeps(Randomness::of(waiting.trace));
        !self.switches.unremarkable.is_some_and(is_chosen) && is_unremarkable(waiting, operation, catalog)
    }

    fn can_be_whole(&mut self, waiting: &BufferedTrace) -> bool {
        let whole = self.level < Some(waiting.rank);
        self.passed_over += u64::from(!whole);
        whole
    }

    /// Charges `bytes` that another node decided to keep.
    pub fn charge(&mut self, bytes: u64, now: Nanos) {
        self.budget.charge(bytes, now);
    }

    /// Charges a span of `bytes` that arrived after this node selected its trace. `false` if it must not be kept.
    #[must_use = "what is refused is not to be exported"]
    pub fn late(&mut self, payer: Payer, bytes: usize, now: Nanos) -> bool {
        self.budget.late(payer, bytes as u64, now)
    }

    /// Charges a span of `bytes` that follows an earlier decision of `policy`: this node's `own`, or one for which
    /// other nodes pay. All spans of the floor do. `false` if it must not be kept.
    #[must_use = "what is refused is not to be exported"]
    pub fn follow(&mut self, policy: Policy, own: bool, bytes: usize, now: Nanos) -> bool {
        if policy == Policy::Floor {
            let _always = self.budget.spend(Payer::Own(policy), bytes as u64, now);
            self.granted[policy as usize] += Tally::one(bytes);
            true
        } else {
            self.late(if own { Payer::Own(policy) } else { Payer::Others(Peers::UNKNOWN) }, bytes, now)
        }
    }

    /// Charges a log record of `bytes` that `payer` wants by itself. `false` if it must not be kept.
    #[must_use = "what is refused is not to be exported"]
    pub fn pays_for_log(&mut self, payer: Payer, bytes: usize, now: Nanos) -> bool {
        self.budget.spend_alone(payer, bytes as u64, now)
    }

    /// Charges a log record of `bytes` that follows an earlier decision of `policy`: this node's `own`, or one for
    /// which other nodes pay. `false` if it must not be kept.
    #[must_use = "what is refused is not to be exported"]
    pub fn pays_for_log_of(&mut self, policy: Policy, own: bool, bytes: usize, now: Nanos) -> bool {
        if policy == Policy::Floor {
            return self.pays_for_log(Payer::Own(policy), bytes, now);
        }
        self.late(if own { Payer::Own(policy) } else { Payer::Others(Peers::UNKNOWN) }, bytes, now)
    }

    /// Spans and bytes of traces that `policy` selected, at the moment of its decision; for the floor, all.
    #[must_use]
    pub const fn granted(&self, policy: Policy) -> Tally {
        self.granted[policy as usize]
    }

    /// How many times `policy` wanted a trace and had no budget.
    #[must_use]
    pub const fn yielded(&self, policy: Policy) -> u64 {
        self.yielded[policy as usize]
    }

    /// The budget that the policies share.
    #[must_use]
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    fn spend(&mut self, payer: Payer, waiting: &BufferedTrace, now: Nanos) -> bool {
        let granted = self.budget.spend(payer, waiting.bytes, now);
        self.count(payer.policy(), granted, waiting);
        granted
    }

    fn count(&mut self, policy: Policy, granted: bool, waiting: &BufferedTrace) {
        if granted {
            self.granted[policy as usize] += waiting.tally();
        } else {
            self.yielded[policy as usize] += 1;
        }
    }
}

/// Whether no span of a trace is in error or missing so far, and it takes no longer than nine of ten requests for its
/// operation. `false` while that is not known of the operation.
fn is_unremarkable(waiting: &BufferedTrace, operation: OperationId, catalog: &ServiceCatalog<'_>) -> bool {
    let is_intact = !waiting.error && waiting.lost == 0;
    is_intact && catalog.latencies.typical(operation).is_some_and(|most| waiting.end.since(waiting.start) <= most)
}

fn slow(span: &Span<'_>, operation: OperationId, catalog: &ServiceCatalog<'_>) -> Option<Reason> {
    let (took, usual) = (span.index.duration(), catalog.latencies.usual(operation)?);
    (took > usual).then(|| Reason::Latency {
        operation: catalog.names.operation_name(operation).into(),
        took,
        quantile: catalog.latencies.quantile(),
        usual,
    })
}
