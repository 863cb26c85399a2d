//! What a member decided and heard, carried out on a tenant's traces.

use std::sync::Arc;

use wire::time::Nanos;

use crate::coherence::item::{Decision, KnownPath, PathPiece};
use crate::coherence::member::{Effect, Member};
use crate::coherence::pieces::Pieces;
use crate::id::OperationId;
use crate::paths::{Names, OTHER, Paths};
use crate::time::UnixNanos;
use crate::tracing::{Given, Keeper, Kept, Part, Reason, TraceId, Verdict};

/// Something that is to be sent on.
#[derive(Debug)]
pub enum Sent<'a> {
    /// A span.
    Span(Given<'a>),
    /// Of a kept trace something may be missing, and there is no span here that could say so.
    Mark {
        /// Which trace.
        trace: TraceId,
        /// Why it is kept.
        reason: &'a Arc<Reason>,
        /// What is missing.
        part: Part,
        /// Where; `None`: here.
        node: Option<&'a str>,
    },
}

/// One tenant's traces on this node.
#[derive(Debug)]
pub struct Here<'a> {
    /// The tenant's name, the same on all nodes.
    pub tenant: &'a Arc<str>,
    /// Its traces.
    pub keeper: &'a mut Keeper,
    /// Names of its services and operations.
    pub names: &'a mut Names,
    /// Its paths.
    pub paths: &'a mut Paths,
    /// Halves of paths.
    pub pieces: &'a mut Pieces,
}

impl Here<'_> {
    /// Tells `member` what was decided and seen since the last call, and learns paths from it: after every [`Keeper::tick`].
    pub fn tell(&mut self, member: &mut Member, now: Nanos, day: UnixNanos) {
        for (trace, reason) in self.keeper.decided() {
            let (tenant, began) = (Arc::clone(self.tenant), self.keeper.began(trace));
            member.decide(Decision { tenant, trace, reason, began }, now, day);
        }
        for piece in self.keeper.pieces() {
            if let Some(operation) = piece.operation {
                let services = self.pieces.entered(piece.trace, operation).to_vec();
                self.learn(operation, &services, now);
            } else {
                let services = piece.services.iter().map(|id| self.names.service_name(*id).into()).collect();
                let piece = PathPiece { tenant: Arc::clone(self.tenant), trace: piece.trace, services };
                member.piece(piece, now, day);
            }
        }
        for (caller, callee) in self.keeper.calls() {
            self.paths.learn_call(caller, callee, now);
        }
        for (operation, service) in self.keeper.passed() {
            self.paths.learn(operation, service, now);
            self.pieces.saw(operation, service);
        }
        for (operation, services) in self.pieces.to_tell(now) {
            let service = self.names.service_of(operation).map_or(OTHER, |service| self.names.service_name(service));
            let path = KnownPath {
                tenant: Arc::clone(self.tenant),
                service: service.into(),
                operation: self.names.operation_name(operation).into(),
                services: services.iter().map(|id| self.names.service_name(*id).into()).collect(),
            };
            member.path(path, now, day);
        }
        self.keeper.others_yield_below(member.others_level(now), now);
    }

    /// Carries out `effect`, which is of this tenant or of an LMAP. What is to be sent on goes to `sink`.
    pub fn carry_out(&mut self, effect: &Effect, now: Nanos, day: UnixNanos, mut sink: impl FnMut(Sent<'_>)) {
        let (decision, kept) = match effect {
            Effect::Keep(decision, began) => {
                let Decision { trace, reason, .. } = decision;
                let spans = |given: Given<'_>| sink(Sent::Span(given));
                (decision, self.keeper.keep_from(*trace, reason, *began, now, spans))
            }
            Effect::Release(decision) => {
                let Decision { trace, reason, .. } = decision;
                let spans = |given: Given<'_>| sink(Sent::Span(given));
                (decision, self.keeper.release(*trace, reason, now, spans))
            }
            Effect::Output(output) => {
                let service = self.names.service(&output.service, now);
                let (at, weight, reason) = (output.at, output.weight, Arc::clone(&output.reason));
                return self.keeper.verdict(&Verdict { service, at, weight, reason }, day);
            }
            Effect::Piece(piece) => {
                if let Some(operation) = self.pieces.passed(piece.trace, &piece.services) {
                    self.learn(operation, &piece.services, now);
                }
                return;
            }
            Effect::Path(path) => {
                let service = self.names.service(&path.service, now);
                let operation = self.names.operation(service, &path.operation, now);
                for service in &path.services {
                    let service = self.names.service(service, now);
                    self.paths.learn(operation, service, now);
                }
                return;
            }
            Effect::Untold(decision, node) => {
                let Decision { trace, reason, .. } = decision;
                return sink(Sent::Mark { trace: *trace, reason, part: Part::Unknown, node: Some(node) });
            }
        };
        if let Kept::Gone(part) | Kept::Unseen(part @ (Part::Unknown | Part::Lacks { .. })) = kept {
            sink(Sent::Mark { trace: decision.trace, reason: &decision.reason, part, node: None });
        }
    }

    fn learn(&mut self, operation: OperationId, services: &[Arc<str>], now: Nanos) {
        for service in services {
            let service = self.names.service(service, now);
            self.paths.learn(operation, service, now);
            self.pieces.saw(operation, service);
        }
    }
}
