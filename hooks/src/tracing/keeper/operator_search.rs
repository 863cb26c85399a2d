//! What operators ask for, among buffered traces: a part of the buffer at each tick, so that spans that arrive wait for
//! no long search.

use wire::time::Nanos;

use super::{Keeper, KeptSpan};
use crate::paths::Names;
use crate::tracing::operator_requests::{OperatorRequest, OperatorRequestError};
use crate::tracing::policies::ServiceCatalog;

/// Places and spans of the buffer that one tick passes: with ten ticks a second, a million spans in seven seconds.
const STEPS: usize = 16_384;

impl Keeper {
    /// An operator asks for the traces through a service: from `now` on they are selected as their spans arrive, and
    /// those that are buffered at the next [`tick`](Self::tick)s.
    ///
    /// # Errors
    ///
    /// [`OperatorRequestError`]; then nothing has changed.
    pub fn ask(&mut self, request: &OperatorRequest, names: &Names, now: Nanos) -> Result<(), OperatorRequestError> {
        self.policies.ask(request, names, now)?;
        self.operator_search = Some(0);
        Ok(())
    }

    /// Goes on with the search for what operators ask for, if there is one. What they asked for earlier is found, too.
    pub(super) fn search_for_operators(
        &mut self,
        catalog: &ServiceCatalog<'_>,
        now: Nanos,
        mut sink: impl FnMut(KeptSpan<'_>),
    ) {
        let Self { buffer, policies, cluster, operator_search, .. } = self;
        let Some(place) = operator_search.take() else { return };
        let pending = cluster.as_ref().map(|cluster| &cluster.pending);
        let mut wanted = Vec::new();
        *operator_search = buffer.look_from(place, STEPS, |waiting, mut spans| {
            if pending.is_some_and(|pending| pending.contains_key(&waiting.trace)) {
                return;
            }
            let reason = spans.find_map(|span| {
                let service = catalog.names.service_name(span.service);
                policies.operator_reason((service, span.operation), catalog, now)
            });
            let selection = reason.and_then(|reason| policies.select_for_operator(reason, waiting, now));
            wanted.extend(selection.map(|selection| (waiting.trace, selection)));
        });
        for (trace, selection) in wanted {
            self.decide(trace, selection, now, &mut sink);
        }
    }
}
