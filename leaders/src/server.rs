//! Others call.

use std::sync::Arc;

use hooks::coherence::{MAX_WORDS_BYTES, Words};
use tonic::{Request, Response, Status};
use wire::proto::coherence as proto;
use wire::proto::coherence::coherence_server::{Coherence, CoherenceServer};

use crate::local::Local;
use crate::running::Counts;

struct Served<L> {
    local: Arc<L>,
    counts: Arc<Counts>,
}

/// The service by which other nodes call this one.
#[must_use]
pub fn service<L: Local>(local: Arc<L>, counts: Arc<Counts>) -> CoherenceServer<impl Coherence> {
    CoherenceServer::new(Served { local, counts })
        .max_decoding_message_size(MAX_WORDS_BYTES)
        .max_encoding_message_size(MAX_WORDS_BYTES)
}

#[tonic::async_trait]
impl<L: Local> Coherence for Served<L> {
    async fn exchange(&self, request: Request<proto::Words>) -> Result<Response<proto::Words>, Status> {
        let words = Words::decode(&request.into_inner()).map_err(|error| {
            self.counts.refused.add(1);
            Status::invalid_argument(error.to_string())
        })?;
        let speaker = Arc::clone(&words.run.node);
        self.local.hear(words).map_err(|error| {
            self.counts.refused.add(1);
            Status::failed_precondition(error.to_string())
        })?;
        self.counts.heard.add(1);
        match self.local.words(Some(&speaker)) {
            Some(answer) => Ok(Response::new(answer.encode())),
            None => Err(Status::unavailable("this node is alone")),
        }
    }
}
