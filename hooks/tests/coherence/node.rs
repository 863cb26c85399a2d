//! One node of the simulation: a keeper and a member, as in an agent, and what it exported.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use hooks::coherence::{
    Effect, Export, GossipMessage, Member, MemberSettings, PathJoin, Run, RunId, ServiceVerdict, Speaker, TenantTraces,
};
use hooks::id::{OriginId, SenderId};
use hooks::paths::{FrontendRule, Frontends, Latencies, LatencyRule, NameLimits, Names, PathLimits, Paths};
use hooks::tracing::{
    Account, Budget, BudgetRule, Completeness, Keeper, Limits, OrderKey, Origin, Policies, Policy, Reason,
    ServiceCatalog, Span, SpanId, SpanIndex, SpanKind, Switches, TailBuffer, Threshold, TraceId, TriggerRule, Triggers,
    Verdict,
};
use wire::time::{Nanos, UnixNanos};

use crate::traffic::RecordedSpan;

/// Midday of some day, in seconds.
pub const NOON: u64 = 1_700_000_000;

/// What arrived at the tracing backend, from all nodes.
#[derive(Default)]
pub struct Backend {
    /// A bit for each span.
    pub spans: BTreeMap<TraceId, u64>,
    pub marked: BTreeSet<TraceId>,
    pub policies: BTreeMap<TraceId, Policy>,
    pub twice: u64,
}

impl Backend {
    fn take(&mut self, sent: &Export<'_>) {
        match sent {
            Export::Span(given) => {
                let number = given.index.id.bytes()[7];
                let bits = self.spans.entry(given.trace).or_default();
                self.twice += u64::from(*bits & (1 << number) != 0);
                *bits |= 1 << number;
                if given.completeness != Completeness::Complete {
                    self.marked.insert(given.trace);
                }
                self.policies.entry(given.trace).or_insert(given.reason.policy());
            }
            Export::Mark { trace, .. } => _ = self.marked.insert(*trace),
        }
    }
}

/// Properties of a node that survive its restart.
#[derive(Clone, Copy)]
pub struct Plan {
    pub bytes: usize,
    pub decisions: usize,
    /// Difference of its clock from true time, in milliseconds.
    pub skew: i64,
    /// Bytes of a span.
    pub span_bytes: usize,
    /// Budget in bytes per second.
    pub budget: u64,
}

pub struct Node {
    name: Arc<str>,
    plan: Plan,
    tenant: Arc<str>,
    /// True time at which this run began.
    began: u64,
    pub keeper: Keeper,
    pub member: Member,
    /// Traces that it was told to keep, or decided to, over all of its runs; without the inventions of liars.
    pub kept: BTreeSet<TraceId>,
    names: Names,
    paths: Paths,
    latencies: Latencies,
    frontends: Frontends,
    pieces: PathJoin,
}

impl Node {
    /// A run that begins at `began`, with the account of its predecessor, if there was one.
    pub fn start(name: &str, plan: Plan, began: u64, predecessor: Option<Account>) -> Self {
        let limits = Limits { bytes: plan.bytes, trace_bytes: 40_000, decisions: plan.decisions, ..Limits::default() };
        let buffer = TailBuffer::new(limits, OrderKey::new(77), Nanos::ZERO).expect("valid limits");
        let budget = BudgetRule { bytes_per_s: plan.budget, ..BudgetRule::default() };
        let floor = Threshold::keeping(0.01).expect("a share");
        let switches = Switches { floor: Some(floor), latency: false, ..Switches::default() };
        let policies = Policies::new(switches, Budget::new(budget, Nanos::ZERO).expect("a valid rule"));
        let mut keeper = Keeper::new(buffer, Triggers::new(TriggerRule::default()), policies);
        // Not in the order of the runs: an id orders nothing.
        let run = Run { node: name.into(), id: RunId(NonZeroU64::new(!(began + 1)).expect("not zero")) };
        keeper.join(predecessor.map(|_| wall(began, plan.skew)), Nanos::from_secs(120));
        if let Some(account) = predecessor {
            keeper.resume(account);
        }
        let settings = MemberSettings { peer_decisions: plan.decisions as u32 / 8, ..MemberSettings::default() };
        let mut names = Names::new(NameLimits::default());
        let mut frontends = Frontends::new(FrontendRule::default());
        frontends.configure(names.service("frontend", Nanos::ZERO));
        Self {
            name: name.into(),
            plan,
            tenant: "".into(),
            began,
            keeper,
            member: Member::new(run, settings),
            kept: BTreeSet::new(),
            names,
            paths: Paths::new(PathLimits::default()),
            latencies: Latencies::new(LatencyRule::default()),
            frontends,
            pieces: PathJoin::new(4_096),
        }
    }

    /// Its successor after a kill. The account at that moment is all that is left of it.
    pub fn again(&self, began: u64) -> Self {
        let account = *self.keeper.buffer().account();
        Self { kept: self.kept.clone(), ..Self::start(&self.name, self.plan, began, Some(account)) }
    }

    /// By its monotonic clock, which began with the run.
    pub fn now(&self, millis: u64) -> Nanos {
        Nanos::from_millis(millis - self.began)
    }

    pub fn wall(&self, millis: u64) -> UnixNanos {
        wall(millis, self.plan.skew)
    }

    pub fn span(&mut self, span: &RecordedSpan, millis: u64, backend: &mut Backend) {
        let now = self.now(millis);
        let service = self.names.service(span.service, now);
        let id = |number: u64| SpanId::new(number.to_be_bytes());
        let index = SpanIndex {
            id: id(u64::from(span.number)).expect("not zero"),
            parent: if span.root { None } else { id(1) },
            kind: SpanKind::Server,
            service,
            operation: self.names.operation(service, span.operation, now),
            origin: OriginId(0),
            start: self.wall(span.start),
            end: self.wall(span.end),
            error: span.error,
        };
        let entry = self.frontends.enters(&index, now);
        let (trigger, randomness, threshold) = (None, None, None);
        let encoded = &[0; 512][..self.plan.span_bytes];
        let (trace, sender) = (span.trace, SenderId::default());
        let span = Span { trace, index, sender, entry, trigger, randomness, threshold, encoded };
        let Self { keeper, names, paths, latencies, .. } = self;
        keeper
            .span(&span, &ServiceCatalog { names, paths, latencies }, now, |given| backend.take(&Export::Span(given)));
    }

    /// An LMAP of this node finds `service` anomalous.
    pub fn verdict(&mut self, service: &str, millis: u64) {
        let (now, wall) = (self.now(millis), self.wall(millis));
        let reason = Arc::new(Reason::Lmap {
            service: service.into(),
            score: 9.0,
            gamma: 3.0,
            metrics: [].into(),
            incident: "".into(),
        });
        let output = ServiceVerdict {
            service: service.into(),
            from: wall,
            at: wall,
            weight: 3.0,
            breakdown: None,
            reason: Arc::clone(&reason),
        };
        let service = self.names.service(service, now);
        let (origin, author) = (Origin::Here, None);
        let verdict = Verdict { service, origin, author, from: wall, at: wall, breakdown: None, weight: 3.0, reason };
        self.keeper.verdict(&verdict, wall);
        self.member.verdict(output, now, wall);
    }

    pub fn tick(&mut self, millis: u64, backend: &mut Backend) {
        let (now, wall) = (self.now(millis), self.wall(millis));
        let Self { keeper, names, paths, latencies, .. } = self;
        keeper.tick(&ServiceCatalog { names, paths, latencies }, now, |given| backend.take(&Export::Span(given)));
        backend.marked.extend(self.keeper.cut().into_iter().map(|(trace, _)| trace));
        self.member.set_eviction_level(self.keeper.buffer().level(now));
        let (mut here, member) = self.here();
        here.announce(member, now, wall);
        self.member.tick(now, wall);
        self.carry_out(millis, backend);
    }

    /// Takes a message over a connection of the node `from`. Returns the reply, unless the message is refused.
    pub fn receive(
        &mut self,
        message: GossipMessage,
        from: &str,
        millis: u64,
        backend: &mut Backend,
    ) -> Option<GossipMessage> {
        let sender = Arc::clone(&message.run.node);
        let received = self.member.receive(message, Speaker::Named(&[from]), self.now(millis), self.wall(millis));
        self.carry_out(millis, backend);
        received.is_ok().then(|| self.member.message(Some(&sender), self.now(millis)))
    }

    fn carry_out(&mut self, millis: u64, backend: &mut Backend) {
        let (now, wall) = (self.now(millis), self.wall(millis));
        for effect in self.member.effects() {
            if let Effect::Keep(decision, _) | Effect::Release(decision) = &effect
                && !matches!(&*decision.reason, Reason::Trigger { text } if &**text == "a lie")
            {
                self.kept.insert(decision.trace);
            }
            self.here().0.carry_out(&effect, now, wall, |sent| backend.take(&sent));
        }
    }

    fn here(&mut self) -> (TenantTraces<'_>, &mut Member) {
        let Self { tenant, keeper, names, paths, pieces, member, .. } = self;
        (TenantTraces { tenant, keeper, names, paths, pieces }, member)
    }
}

fn wall(millis: u64, skew: i64) -> UnixNanos {
    UnixNanos::from_secs(NOON).plus(Nanos::from_millis(millis.saturating_add_signed(skew)))
}
