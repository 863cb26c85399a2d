//! What a member decided and heard, carried out on a tenant's traces.

use std::collections::BTreeSet;
use std::sync::Arc;

use wire::time::Nanos;

use crate::coherence::item::{Decision, KnownPath, Output, PathPiece};
use crate::coherence::member::{Effect, Member};
use crate::coherence::pieces::{Half, Pieces, Step};
use crate::id::OperationId;
use crate::paths::{Names, OTHER, Paths};
use crate::time::UnixNanos;
use crate::tracing::{Given, Keeper, Kept, Part, Passed, Reason, TraceId, Verdict};

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
                if let Some(half) = self.pieces.entered(piece.trace, operation).cloned() {
                    self.learn(operation, &half, now);
                }
            } else {
                let Half { services, asked } = self.by_name(&piece.steps);
                let piece = PathPiece { tenant: Arc::clone(self.tenant), trace: piece.trace, services, asked };
                member.piece(piece, now, day);
            }
        }
        for (caller, callee) in self.keeper.calls() {
            self.paths.learn_call(caller, callee, now);
        }
        for passed in self.keeper.passed() {
            self.paths.take(&passed, now);
            self.pieces.saw(passed.operation, (passed.service, passed.asked));
        }
        for (operation, steps) in self.pieces.to_tell(now) {
            let Half { services, asked } = self.by_name(&steps);
            let service = self.names.service_of(operation).map_or(OTHER, |service| self.names.service_name(service));
            let path = KnownPath {
                tenant: Arc::clone(self.tenant),
                service: service.into(),
                operation: self.names.operation_name(operation).into(),
                services,
                asked,
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
                let Output { from, at, weight, parts, reason, .. } = output.clone();
                return self.keeper.verdict(&Verdict { service, from, at, parts, weight, reason }, day);
            }
            Effect::Piece(piece) => {
                let half = Half { services: piece.services.clone(), asked: piece.asked.clone() };
                if let Some(operation) = self.pieces.passed(piece.trace, &half) {
                    self.learn(operation, &half, now);
                }
                return;
            }
            Effect::Path(path) => {
                let service = self.names.service(&path.service, now);
                let operation = self.names.operation(service, &path.operation, now);
                let half = Half { services: path.services.clone(), asked: path.asked.clone() };
                for (service, asked) in self.by_id(&half, now) {
                    self.paths.take(&Passed { operation, service, asked }, now);
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

    fn learn(&mut self, operation: OperationId, half: &Half, now: Nanos) {
        for (service, asked) in self.by_id(half, now) {
            self.paths.take(&Passed { operation, service, asked }, now);
            self.pieces.saw(operation, (service, asked));
        }
    }

    fn by_name(&self, steps: &BTreeSet<Step>) -> Half {
        let mut half = Half::default();
        for (service, asked) in steps {
            let service = Arc::<str>::from(self.names.service_name(*service));
            if let Some(asked) = asked {
                half.asked.push((Arc::clone(&service), self.names.operation_name(*asked).into()));
            }
            if half.services.last() != Some(&service) {
                half.services.push(service);
            }
        }
        half
    }

    fn by_id(&mut self, half: &Half, now: Nanos) -> Vec<Step> {
        let names = &mut *self.names;
        let mut steps: Vec<Step> = half.services.iter().map(|service| (names.service(service, now), None)).collect();
        for (service, operation) in &half.asked {
            let service = names.service(service, now);
            steps.push((service, Some(names.operation(service, operation, now))));
        }
        steps
    }
}
