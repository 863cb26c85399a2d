//! What operators ask for, among buffered traces: a part of the buffer at each tick, so that spans that arrive wait for
//! no long search. A pass goes to the end of the buffer, whoever asks meanwhile: for them the next one begins.

use wire::time::Nanos;

use super::{Keeper, KeptSpan};
use crate::paths::Names;
use crate::tracing::operator_requests::{OperatorRequest, OperatorRequestError};
use crate::tracing::policies::ServiceCatalog;

/// Places and spans of the buffer that one tick passes: with ten ticks a second, a million spans in seven seconds.
const STEPS: usize = 16_384;

impl Keeper {
    /// An operator asks for the traces through a service: from `now` on they are selected as their spans arrive, and
    /// those that are buffered at the next [`tick`](Self::tick)s, also if the time is over by then.
    ///
    /// # Errors
    ///
    /// [`OperatorRequestError`]; then nothing has changed.
    pub fn ask(&mut self, request: &OperatorRequest, names: &Names, now: Nanos) -> Result<(), OperatorRequestError> {
        self.policies.ask(request, names, now)
    }

    /// Goes on with the search for what operators ask for, or begins it if somebody waits for that.
    pub(super) fn search_for_operators(
        &mut self,
        catalog: &ServiceCatalog<'_>,
        now: Nanos,
        mut sink: impl FnMut(KeptSpan<'_>),
    ) {
        let Self { buffer, policies, cluster, operator_search, .. } = self;
        let begun = operator_search.take();
        let Some(place) = begun.or_else(|| policies.requests.begin_pass().then_some(0)) else { return };
        let pending = cluster.as_ref().map(|cluster| &cluster.pending);
        let mut wanted = Vec::new();
        *operator_search = buffer.look_from(place, STEPS, |waiting, mut spans| {
            if pending.is_some_and(|pending| pending.contains_key(&waiting.trace)) {
                return;
            }
            let reason = spans.find_map(|span| {
                let (service, operation) = (span.service, || catalog.names.operation_name(span.operation));
                policies.requests.reason_in_pass(catalog.names.service_name(service), operation, waiting.arrived)
            });
            let selection = reason.and_then(|reason| policies.select_for_operator(reason, waiting, now));
            wanted.extend(selection.map(|selection| (waiting.trace, selection)));
        });
        if operator_search.is_none() {
            policies.requests.end_pass();
        }
        for (trace, selection) in wanted {
            self.decide(trace, selection, now, &mut sink);
        }
    }
}
