//! Carries out decisions and received entries on the traces of one tenant.

use std::collections::BTreeSet;
use std::sync::Arc;

use wire::time::{Nanos, UnixNanos};

use crate::coherence::item::{Decision, KnownPath, PathPiece, ServiceVerdict};
use crate::coherence::member::{Effect, Member};
use crate::coherence::path_join::{PathJoin, PathServices, Step};
use crate::id::OperationId;
use crate::paths::{Names, OTHER, Paths};
use crate::tracing::{Completeness, KeepOutcome, Keeper, KeptSpan, Origin, PathStep, Reason, TraceId, Verdict};

/// Something to export.
#[derive(Debug)]
pub enum Export<'a> {
    /// A span of a kept trace.
    Span(KeptSpan<'a>),
    /// A mark: spans of a kept trace may be missing, and no span here can say so.
    Mark {
        /// Id of the trace.
        trace: TraceId,
        /// Why the trace is kept.
        reason: &'a Arc<Reason>,
        /// How many spans may be missing.
        completeness: Completeness,
        /// The node that lacks them; `None` is this node.
        node: Option<&'a str>,
    },
}

/// One tenant's traces on this node, with what coherence needs of them.
#[derive(Debug)]
pub struct TenantTraces<'a> {
    /// Name of the tenant, the same on all nodes.
    pub tenant: &'a Arc<str>,
    /// The tenant's tail sampler.
    pub keeper: &'a mut Keeper,
    /// Names of its services and operations.
    pub names: &'a mut Names,
    /// Its service graph.
    pub paths: &'a mut Paths,
    /// Joins pieces of paths by trace.
    pub pieces: &'a mut PathJoin,
}

impl TenantTraces<'_> {
    /// Appends to the log of `member` what was decided and seen since the last call, and learns paths from it. To be
    /// called after every [`Keeper::tick`].
    pub fn announce(&mut self, member: &mut Member, now: Nanos, wall: UnixNanos) {
        for (trace, reason) in self.keeper.decided() {
            let (tenant, began) = (Arc::clone(self.tenant), self.keeper.began(trace));
            member.decide(Decision { tenant, trace, reason, began }, now, wall);
        }
        for piece in self.keeper.pieces() {
            if let Some(operation) = piece.operation {
                if let Some(half) = self.pieces.entered(piece.trace, operation).cloned() {
                    self.learn(operation, &half, now);
                }
            } else {
                let PathServices { services, requested } = self.by_name(&piece.steps);
                let piece = PathPiece { tenant: Arc::clone(self.tenant), trace: piece.trace, services, requested };
                member.piece(piece, now, wall);
            }
        }
        self.paths.take_calls(self.keeper.calls(), now);
        for passed in self.keeper.path_steps() {
            self.paths.take(&passed, now);
            self.pieces.observe(passed.operation, (passed.service, passed.requested));
        }
        for (operation, steps) in self.pieces.to_announce(now) {
            let PathServices { services, requested } = self.by_name(&steps);
            let service = self.names.service_of(operation).map_or(OTHER, |service| self.names.service_name(service));
            let path = KnownPath {
                tenant: Arc::clone(self.tenant),
                service: service.into(),
                operation: self.names.operation_name(operation).into(),
                services,
                requested,
            };
            member.path(path, now, wall);
        }
        self.keeper.set_peer_eviction_levels(member.peer_eviction_levels(now), now);
    }

    /// Carries out `effect`, which is about this tenant or of an LMAP. `sink` takes what has to be exported.
    pub fn carry_out(&mut self, effect: &Effect, now: Nanos, wall: UnixNanos, mut sink: impl FnMut(Export<'_>)) {
        let (decision, kept) = match effect {
            Effect::Keep(decision, began) => {
                let Decision { trace, reason, .. } = decision;
                let spans = |given: KeptSpan<'_>| sink(Export::Span(given));
                (decision, self.keeper.keep_from(*trace, reason, *began, now, spans))
            }
            Effect::Release(decision) => {
                let Decision { trace, reason, .. } = decision;
                let spans = |given: KeptSpan<'_>| sink(Export::Span(given));
                (decision, self.keeper.release(*trace, reason, now, spans))
            }
            Effect::Verdict(output, peer, author) => {
                let service = self.names.heard_service(&output.service, now);
                let ServiceVerdict { from, at, weight, breakdown, reason, .. } = output.clone();
                let (origin, author) = (Origin::Elsewhere(*peer), Some(*author));
                let verdict = Verdict { service, origin, author, from, at, breakdown, weight, reason };
                return self.keeper.verdict(&verdict, wall);
            }
            Effect::Piece(piece) => {
                let half = PathServices { services: piece.services.clone(), requested: piece.requested.clone() };
                if let Some(operation) = self.pieces.passed(piece.trace, &half) {
                    self.learn(operation, &half, now);
                }
                return;
            }
            Effect::Path(path) => {
                let service = self.names.heard_service(&path.service, now);
                let operation = self.names.heard_operation(service, &path.operation, now);
                let half = PathServices { services: path.services.clone(), requested: path.requested.clone() };
                for (service, requested) in self.by_id(&half, now) {
                    self.paths.take(&PathStep { operation, service, requested }, now);
                }
                return;
            }
            Effect::Unacknowledged(decision, node) => {
                let Decision { trace, reason, .. } = decision;
                return sink(Export::Mark {
                    trace: *trace,
                    reason,
                    completeness: Completeness::Unknown,
                    node: Some(node),
                });
            }
        };
        if let KeepOutcome::Gone(completeness)
        | KeepOutcome::Unseen(completeness @ (Completeness::Unknown | Completeness::Missing { .. })) = kept
        {
            sink(Export::Mark { trace: decision.trace, reason: &decision.reason, completeness, node: None });
        }
    }

    fn learn(&mut self, operation: OperationId, half: &PathServices, now: Nanos) {
        for (service, requested) in self.by_id(half, now) {
            self.paths.take(&PathStep { operation, service, requested }, now);
            self.pieces.observe(operation, (service, requested));
        }
    }

    fn by_name(&self, steps: &BTreeSet<Step>) -> PathServices {
        let mut half = PathServices::default();
        for (service, requested) in steps {
            let service = Arc::<str>::from(self.names.service_name(*service));
            if let Some(requested) = requested {
                half.requested.push((Arc::clone(&service), self.names.operation_name(*requested).into()));
            }
            if half.services.last() != Some(&service) {
                half.services.push(service);
            }
        }
        half
    }

    fn by_id(&mut self, half: &PathServices, now: Nanos) -> Vec<Step> {
        let names = &mut *self.names;
        let mut steps: Vec<Step> =
            half.services.iter().map(|service| (names.heard_service(service, now), None)).collect();
        for (service, operation) in &half.requested {
            let service = names.heard_service(service, now);
            steps.push((service, Some(names.heard_operation(service, operation, now))));
        }
        steps
    }
}
