//! The parts of a stream that is measured here alone: each ring has its own of delays, and one of them that of flows.
//! Parts come, change and go while an interface is read, always between two intervals.

use std::path::Path;
use std::sync::Arc;

use super::flow_stream::FlowStream;
use super::shards::ShardedStream;
use super::stream::Stream;
use crate::config::StreamConfig;

/// Why the synopses of a stream cannot be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum PartError {
    /// Those of delays.
    #[error(transparent)]
    Delays(#[from] packets::DelaysError),
    /// Those of flows.
    #[error(transparent)]
    Flows(#[from] packets::FlowsError),
}

/// A part of a stream, for one ring.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "parts are few, and boxed on their way between threads")]
pub(super) enum StreamPart {
    /// Delays between requests and responses.
    Delays(Stream),
    /// Who is in it: packets out of order, heavy hitters, distinct items.
    Flows(FlowStream),
}

impl StreamPart {
    /// The parts of `config` for each of `rings` rings, with all of their memory. A checked configuration has one ring
    /// if there are `synopses`.
    ///
    /// # Errors
    ///
    /// [`PartError`], which does not occur with a checked configuration.
    pub(super) fn of(config: &StreamConfig, socket: &Path, rings: usize) -> Result<Vec<Vec<Self>>, PartError> {
        let mut all: Vec<Vec<Self>> = (0..rings).map(|_| Vec::new()).collect();
        if let (Some(ring), Some(synopses)) = (all.first_mut(), &config.synopses) {
            ring.push(Self::Flows(FlowStream::new(config, synopses, socket, rand::random())?));
        }
        if config.pair.is_some() && config.one_way.is_none() {
            let sharded = Arc::new(ShardedStream::new(config, socket, rings));
            for ring in &mut all {
                ring.push(Self::Delays(Stream::new(config, rings, Arc::clone(&sharded), rand::random())?));
            }
        }
        Ok(all)
    }

    /// Name of its stream.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Delays(stream) => stream.pending.name(),
            Self::Flows(stream) => stream.pending.name(),
        }
    }
}
