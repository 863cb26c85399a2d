//! What of this endpoint is full, and who fills it.

use super::Edge;
use crate::bounds::Bound;
use crate::outcome::Refusal;
use crate::span_metrics::SpanMetrics;
use crate::tail::TailSampler;

impl Edge {
    /// What of the endpoint was full for a sender within the last 10 minutes, and who had most of it, in words.
    #[must_use]
    pub fn full_bounds(&self) -> Vec<String> {
        self.full.lines(self.now())
    }

    /// A request was refused. If something is full, that is remembered.
    pub(crate) fn note_refusal(&self, refusal: &Refusal) {
        if let Some(bound) = refusal.full {
            self.full.note(bound, &refusal.text, self.now());
        }
    }

    /// Remembers of what of a request there was no room for its sender.
    pub(super) fn note_full(&self, span_metrics: Option<&mut SpanMetrics>, tail: Option<&mut TailSampler>) {
        if let Some(why) = span_metrics.and_then(SpanMetrics::take_refusal) {
            self.full.note(Bound::CountedServices, &why.to_string(), self.now());
        }
        for (bound, why) in tail.into_iter().flat_map(TailSampler::take_refusals) {
            self.full.note(bound, &why, self.now());
        }
    }
}
