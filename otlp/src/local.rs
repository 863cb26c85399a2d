//! Spans and wishes that come another way than over a socket: from rings that the agent itself reads.

use hooks::tracing::TraceId;

use crate::edge::{Asked, Edge};
use crate::passed::Passed;
use crate::server::Refusal;
use crate::signal::{Encoding, Signal};
use crate::tenants::DEFAULT;

/// Why spans were not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotTaken(String);

impl Edge {
    /// Takes the spans of `request`, an `ExportTraceServiceRequest`, as if they had come by OTLP.
    ///
    /// # Errors
    ///
    /// [`NotTaken`] if it is none, or the queue to the upstream is full.
    pub fn spans(&self, request: Vec<u8>) -> Result<(), NotTaken> {
        let (tenant, signal, encoding) = (DEFAULT, Signal::Traces, Encoding::Protobuf);
        let asked = Asked { tenant, signal, encoding, body: request.into(), passed: Passed::default() };
        let taken = self.take(asked, &mut self.part(DEFAULT).room.share());
        taken.map(drop).map_err(|Refusal { why, text }| {
            self.counts.of(Signal::Traces).refused(why).add(1);
            NotTaken(text)
        })
    }

    /// A service asks for `trace` to be kept, and says why. `false` if it is decided already, or the policy is off or without budget, or spans pass
    /// through, so that all are kept.
    pub fn ask(&self, trace: TraceId, why: &str) -> bool {
        let now = self.moment();
        let Some(mut tail) = self.tail(DEFAULT) else { return false };
        let granted = tail.ask(trace, why, now);
        self.send_kept(DEFAULT, tail);
        granted
    }
}
