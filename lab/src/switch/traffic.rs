//! Real TCP between clients and a server: of which kind, follows from what is measured.

use anyhow::Result;
use support::network::Network;

use super::requests::{self, Requests};
use super::segments::Segments;
use super::setting::Measure;

/// Who sends, and over what.
#[derive(Debug)]
pub enum Traffic {
    /// Clients, with a connection for each request.
    Requests(Requests),
    /// A server, on connections that last.
    Segments(Segments),
}

impl Traffic {
    /// Starts what is measured.
    ///
    /// # Errors
    ///
    /// The port is taken, or a connection does not come about.
    pub fn start(network: &Network, measure: Measure) -> Result<Self> {
        Ok(match measure {
            Measure::Handshake | Measure::OneWay => Self::Requests(Requests::start(network)?),
            Measure::Reordering => Self::Segments(Segments::start(network)?),
        })
    }

    /// Sends nothing from now on, but what is sent alone.
    ///
    /// # Errors
    ///
    /// A client panicked.
    pub fn pause(&mut self) -> Result<()> {
        match self {
            Self::Requests(requests) => requests.pause(),
            Self::Segments(segments) => {
                segments.pause();
                Ok(())
            }
        }
    }

    /// Sends so much that both streams have something to count, alone.
    ///
    /// # Errors
    ///
    /// It was not sent, or has no answer.
    pub fn burst(&self, network: &Network) -> Result<()> {
        match self {
            Self::Requests(_) => requests::burst(network),
            Self::Segments(segments) => segments.burst(),
        }
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// A connection broke.
    pub fn end(self) -> Result<()> {
        match self {
            Self::Requests(mut requests) => requests.pause(),
            Self::Segments(segments) => segments.end(),
        }
    }
}
