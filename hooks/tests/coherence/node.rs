//! One node of the simulation: a keeper and a member, as an agent has them, and what its exporter sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hooks::coherence::{Here, Member, MemberSettings, Output, Pieces, Run, Sent, Words};
use hooks::id::OriginId;
use hooks::paths::{FrontendRule, Frontends, Latencies, LatencyRule, NameLimits, Names, PathLimits, Paths};
use hooks::time::UnixNanos;
use hooks::tracing::{
    Account, Budget, BudgetRule, Keeper, Known, Limits, OrderKey, Part, Policies, Policy, Reason, Span, SpanId,
    SpanIndex, SpanKind, Switches, TailBuffer, Threshold, TraceId, TriggerRule, Triggers, Verdict,
};
use wire::time::Nanos;

use crate::traffic::Recorded;

/// Midday of some day, in seconds.
pub const NOON: u64 = 1_700_000_000;

/// What came to the tracing backend, from all nodes.
#[derive(Default)]
pub struct Backend {
    /// A bit for each span.
    pub spans: BTreeMap<TraceId, u64>,
    pub marked: BTreeSet<TraceId>,
    pub policies: BTreeMap<TraceId, Policy>,
    pub twice: u64,
}

impl Backend {
    fn take(&mut self, sent: &Sent<'_>) {
        match sent {
            Sent::Span(given) => {
                let number = given.index.id.bytes()[7];
                let bits = self.spans.entry(given.trace).or_default();
                self.twice += u64::from(*bits & (1 << number) != 0);
                *bits |= 1 << number;
                if given.part != Part::Whole {
                    self.marked.insert(given.trace);
                }
                self.policies.entry(given.trace).or_insert(given.reason.policy());
            }
            Sent::Mark { trace, .. } => _ = self.marked.insert(*trace),
        }
    }
}

/// How a node is made, whatever becomes of it.
#[derive(Clone, Copy)]
pub struct Plan {
    pub bytes: usize,
    pub decisions: usize,
    /// What its clock shows more than others', in milliseconds.
    pub skew: i64,
    /// Bytes of a span.
    pub span_bytes: usize,
}

pub struct Node {
    name: Arc<str>,
    plan: Plan,
    tenant: Arc<str>,
    /// True time at which this run began.
    began: u64,
    pub keeper: Keeper,
    pub member: Member,
    names: Names,
    paths: Paths,
    latencies: Latencies,
    frontends: Frontends,
    pieces: Pieces,
}

impl Node {
    /// A run that begins at `began`, after one with these books, if there was one.
    pub fn start(name: &str, plan: Plan, began: u64, predecessor: Option<Account>) -> Self {
        let limits = Limits { bytes: plan.bytes, trace_bytes: 40_000, decisions: plan.decisions, ..Limits::default() };
        let buffer = TailBuffer::new(limits, OrderKey::new(77), Nanos::ZERO).expect("valid limits");
        let budget = BudgetRule { bytes_per_s: 1 << 32, ..BudgetRule::default() };
        let floor = Threshold::keeping(0.01).expect("a share");
        let switches = Switches { floor: Some(floor), latency: false, ..Switches::default() };
        let policies = Policies::new(switches, Budget::new(budget, Nanos::ZERO).expect("a valid rule"));
        let mut keeper = Keeper::new(buffer, Triggers::new(TriggerRule::default()), policies);
        let run = Run { node: name.into(), began: day(began, plan.skew) };
        keeper.join(predecessor.map(|_| run.began), Nanos::from_secs(120));
        if let Some(books) = predecessor {
            keeper.resume(books);
        }
        let mut names = Names::new(NameLimits::default());
        let mut frontends = Frontends::new(FrontendRule::default());
        frontends.configure(names.service("frontend", Nanos::ZERO));
        Self {
            name: name.into(),
            plan,
            tenant: "".into(),
            began,
            keeper,
            member: Member::new(run, MemberSettings::default()),
            names,
            paths: Paths::new(PathLimits::default()),
            latencies: Latencies::new(LatencyRule::default()),
            frontends,
            pieces: Pieces::new(4_096),
        }
    }

    /// Its successor, after it was killed. What its account was at that moment is all that is left of it.
    pub fn again(&self, began: u64) -> Self {
        let books = *self.keeper.buffer().account();
        Self::start(&self.name, self.plan, began, Some(books))
    }

    /// By its own clock, which began with it.
    pub fn now(&self, millis: u64) -> Nanos {
        Nanos::from_millis(millis - self.began)
    }

    pub fn day(&self, millis: u64) -> UnixNanos {
        day(millis, self.plan.skew)
    }

    pub fn span(&mut self, span: &Recorded, millis: u64, backend: &mut Backend) {
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
            start: self.day(span.start),
            end: self.day(span.end),
            error: span.error,
        };
        let entry = self.frontends.enters(&index, now);
        let (trigger, randomness, threshold) = (None, None, None);
        let encoded = &[0; 512][..self.plan.span_bytes];
        let span = Span { trace: span.trace, index, entry, trigger, randomness, threshold, encoded };
        let Self { keeper, names, paths, latencies, .. } = self;
        keeper.span(&span, &Known { names, paths, latencies }, now, |given| backend.take(&Sent::Span(given)));
    }

    /// An LMAP of this node finds `service` out of the ordinary.
    pub fn verdict(&mut self, service: &str, millis: u64) {
        let (now, day) = (self.now(millis), self.day(millis));
        let reason = Arc::new(Reason::Lmap { service: service.into(), score: 9.0, gamma: 3.0, metrics: [].into() });
        let output = Output {
            service: service.into(),
            from: day,
            at: day,
            weight: 3.0,
            parts: None,
            reason: Arc::clone(&reason),
        };
        let service = self.names.service(service, now);
        self.keeper.verdict(&Verdict { service, from: day, at: day, parts: None, weight: 3.0, reason }, day);
        self.member.output(output, now, day);
    }

    pub fn tick(&mut self, millis: u64, backend: &mut Backend) {
        let (now, day) = (self.now(millis), self.day(millis));
        let Self { keeper, names, paths, latencies, .. } = self;
        keeper.tick(&Known { names, paths, latencies }, now, |given| backend.take(&Sent::Span(given)));
        self.member.yields_below(self.keeper.buffer().level(now));
        let (mut here, member) = self.here();
        here.tell(member, now, day);
        self.member.tick(now, day);
        self.carry_out(millis, backend);
    }

    /// Another node spoke. Returns what it is answered.
    pub fn hear(&mut self, words: Words, millis: u64, backend: &mut Backend) -> Words {
        let speaker = Arc::clone(&words.run.node);
        let _outdated = self.member.hear(words, self.now(millis), self.day(millis));
        self.carry_out(millis, backend);
        self.member.words(Some(&speaker), self.now(millis))
    }

    fn carry_out(&mut self, millis: u64, backend: &mut Backend) {
        let (now, day) = (self.now(millis), self.day(millis));
        for effect in self.member.effects() {
            self.here().0.carry_out(&effect, now, day, |sent| backend.take(&sent));
        }
    }

    fn here(&mut self) -> (Here<'_>, &mut Member) {
        let Self { tenant, keeper, names, paths, pieces, member, .. } = self;
        (Here { tenant, keeper, names, paths, pieces }, member)
    }
}

fn day(millis: u64, skew: i64) -> UnixNanos {
    UnixNanos::from_secs(NOON).plus(Nanos::from_millis(millis.saturating_add_signed(skew)))
}
