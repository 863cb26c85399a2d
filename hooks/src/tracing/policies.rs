//! What wants a trace: policies that an operator turns on or off, and a budget that they share.

use std::sync::Arc;

use wire::time::Nanos;

use crate::id::OperationId;
use crate::paths::{Latencies, Names, Paths};
use crate::tracing::account::Tally;
use crate::tracing::budget::Budget;
use crate::tracing::order::Rank;
use crate::tracing::outcome::Waiting;
use crate::tracing::reason::{Policy, Reason};
use crate::tracing::span::{Span, TraceId};
use crate::tracing::threshold::{Randomness, Threshold};
use crate::tracing::triggers::Triggers;

/// What a service says about its trace is cut after so many bytes.
const TEXT_BYTES: usize = 256;
/// What a trace that is asked for before it comes is taken to have, in bytes.
const SMALL: u64 = 1_024;

/// Which policies are on.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, as in the configuration file")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// [`Policy::Floor`], and the share that it keeps. The same on all nodes.
    pub floor: Option<Threshold>,
    /// [`Policy::Error`].
    pub error: bool,
    /// [`Policy::Lmap`].
    pub lmap: bool,
    /// [`Policy::Latency`].
    pub latency: bool,
    /// [`Policy::Code`].
    pub code: bool,
}

impl Default for Switches {
    /// All, the floor at 1 %.
    fn default() -> Self {
        Self { floor: Threshold::keeping(0.01).ok(), error: true, lmap: true, latency: true, code: true }
    }
}

/// What was learnt about everyone's services, beside a tenant's own spans.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// How they are called.
    pub names: &'a Names,
    /// Which services an operation passes through.
    pub paths: &'a Paths,
    /// What is usual for an operation.
    pub latencies: &'a Latencies,
}

/// One tenant's policies and its budget.
#[derive(Debug)]
pub struct Policies {
    switches: Switches,
    budget: Budget,
    granted: [Tally; Policy::ALL.len()],
    yielded: [u64; Policy::ALL.len()],
    /// Up to which rank some node gave way.
    level: Option<Rank>,
    passed_over: u64,
}

impl Policies {
    /// Policies that spend `budget`.
    #[must_use]
    pub fn new(switches: Switches, budget: Budget) -> Self {
        let (granted, yielded) = (Default::default(), [0; Policy::ALL.len()]);
        Self { switches, budget, granted, yielded, level: None, passed_over: 0 }
    }

    /// Why the trace of `span` is kept whatever happens. Every node comes to the same answer, from any span of the trace.
    #[must_use]
    pub fn floor(&self, span: &Span<'_>) -> Option<Reason> {
        let floor = self.switches.floor.filter(|floor| floor.keeps(span.randomness()))?;
        Some(Reason::Floor { threshold: floor.after(span.threshold) })
    }

    /// Why the trace of `span`, which has just come and waits as `waiting`, is kept: the first policy of [`Policy::ALL`] behind the floor that
    /// wants it and has budget. Its bytes so far are spent then.
    pub fn judge(
        &mut self,
        span: &Span<'_>,
        waiting: &Waiting,
        triggers: &mut Triggers,
        known: &Known<'_>,
        now: Nanos,
    ) -> Option<Arc<Reason>> {
        let index = &span.index;
        if self.switches.error && index.error && self.spend(Policy::Error, waiting, now) {
            let service = known.names.service_name(index.service).into();
            let operation = known.names.operation_name(index.operation).into();
            return Some(Arc::new(Reason::Error { service, operation }));
        }
        if let Some(reason) = self.lmap(waiting, triggers, known, now) {
            return Some(reason);
        }
        let latency = self.switches.latency && span.entry && waiting.operation == Some(index.operation);
        if let Some(reason) = latency.then(|| slow(span, index.operation, known)).flatten()
            && self.can_be_whole(waiting)
            && self.spend(Policy::Latency, waiting, now)
        {
            return Some(Arc::new(reason));
        }
        let text = span.trigger.filter(|_| self.switches.code)?;
        let text = text[..text.floor_char_boundary(TEXT_BYTES)].into();
        self.spend(Policy::Code, waiting, now).then(|| Arc::new(Reason::Code { text }))
    }

    /// Why `trace`, of which so much waits, is kept if a service asks for it by its id. What has not come yet costs as if it were small, so that wishes are
    /// bounded, too; what comes is charged.
    pub fn asked(&mut self, trace: TraceId, waiting: Tally, why: &str, now: Nanos) -> Option<Arc<Reason>> {
        let floor = self.switches.floor.is_some_and(|floor| floor.keeps(Randomness::of(trace)));
        if floor || !self.switches.code {
            return None;
        }
        if !self.budget.spend(Policy::Code, waiting.bytes.max(SMALL), now) {
            self.yielded[Policy::Code as usize] += 1;
            return None;
        }
        self.granted[Policy::Code as usize] += waiting;
        Some(Arc::new(Reason::Code { text: why[..why.floor_char_boundary(TEXT_BYTES)].into() }))
    }

    /// Whether [`Policy::Lmap`] is on.
    #[must_use]
    pub const fn listens(&self) -> bool {
        self.switches.lmap
    }

    /// Why a trace that waits is kept by what LMAPs said since it came.
    pub fn lmap(
        &mut self,
        waiting: &Waiting,
        triggers: &mut Triggers,
        known: &Known<'_>,
        now: Nanos,
    ) -> Option<Arc<Reason>> {
        let operation = waiting.operation.filter(|_| self.switches.lmap)?;
        let reason = triggers.wanted(known, operation, (waiting.start, waiting.end))?;
        if !self.can_be_whole(waiting) {
            return None;
        }
        self.spend(Policy::Lmap, waiting, now).then_some(reason)
    }

    /// Some node gave up what ranks up to `level`; `None` if none did. What could only be kept in part is not chosen by LMAPs and by latency, which
    /// have others to choose from; an error, or what code asks for, is kept with a mark.
    pub const fn yield_below(&mut self, level: Option<Rank>) {
        self.level = level;
    }

    /// How many times a trace was wanted that another node has given up.
    #[must_use]
    pub const fn passed_over(&self) -> u64 {
        self.passed_over
    }

    fn can_be_whole(&mut self, waiting: &Waiting) -> bool {
        let whole = self.level < Some(waiting.rank);
        self.passed_over += u64::from(!whole);
        whole
    }

    /// `bytes` are kept, whatever the budget: late spans, and what another node decided.
    pub fn charge(&mut self, bytes: u64, now: Nanos) {
        self.budget.charge(bytes, now);
    }

    /// A span of `bytes` is sent on because of what `policy` decided before. The floor's spans all come like this.
    pub fn follow(&mut self, policy: Policy, bytes: usize, now: Nanos) {
        if policy == Policy::Floor {
            let _always = self.budget.spend(policy, bytes as u64, now);
            self.granted[policy as usize] += Tally::one(bytes);
        } else {
            self.budget.charge(bytes as u64, now);
        }
    }

    /// Spans and bytes of traces that `policy` kept, as of the moment of its decision; of the floor, all.
    #[must_use]
    pub const fn granted(&self, policy: Policy) -> Tally {
        self.granted[policy as usize]
    }

    /// How many times `policy` wanted a trace and yielded.
    #[must_use]
    pub const fn yielded(&self, policy: Policy) -> u64 {
        self.yielded[policy as usize]
    }

    /// What is left to spend.
    #[must_use]
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    fn spend(&mut self, policy: Policy, waiting: &Waiting, now: Nanos) -> bool {
        let granted = self.budget.spend(policy, waiting.bytes, now);
        if granted {
            self.granted[policy as usize] += waiting.tally();
        } else {
            self.yielded[policy as usize] += 1;
        }
        granted
    }
}

fn slow(span: &Span<'_>, operation: OperationId, known: &Known<'_>) -> Option<Reason> {
    let (took, usual) = (span.index.duration(), known.latencies.usual(operation)?);
    (took > usual).then(|| Reason::Latency {
        operation: known.names.operation_name(operation).into(),
        took,
        quantile: known.latencies.quantile(),
        usual,
    })
}
