//! The state of a client, with attributes for programs and as text for logs.

use client::Connection;
use pyo3::prelude::*;

/// A service's connection, counts and problems at one moment. str() has all of it.
#[pyclass(frozen, module = "uview")]
#[derive(Debug)]
pub struct Status(client::Status);

impl Status {
    pub(crate) const fn new(status: client::Status) -> Self {
        Self(status)
    }
}

#[pymethods]
impl Status {
    /// "off", "waiting", "registering" or "registered".
    #[getter]
    fn connection(&self) -> &'static str {
        match self.0.connection {
            Connection::Off => "off",
            Connection::Waiting { .. } => "waiting",
            Connection::Registering => "registering",
            Connection::Registered { .. } => "registered",
            _ => "unknown",
        }
    }

    /// The run of the agent that has registered the service.
    #[getter]
    fn agent(&self) -> Option<u64> {
        match self.0.connection {
            Connection::Registered { agent } => Some(agent.0),
            _ => None,
        }
    }

    /// Connections established so far.
    #[getter]
    fn connections(&self) -> u64 {
        self.0.connections
    }

    /// Connections that ended with an invalid message of the agent.
    #[getter]
    fn protocol_errors(&self) -> u64 {
        self.0.protocol_errors
    }

    /// Number of registered series.
    #[getter]
    fn series(&self) -> usize {
        self.0.series
    }

    /// Removed series whose slots are not free yet.
    #[getter]
    fn pending_release(&self) -> usize {
        self.0.pending_release
    }

    /// Handles that no agent reads.
    #[getter]
    fn detached(&self) -> u64 {
        self.0.detached
    }

    /// Regions of shared memory.
    #[getter]
    fn regions(&self) -> usize {
        self.0.regions
    }

    /// Their size together, in bytes.
    #[getter]
    fn region_bytes(&self) -> usize {
        self.0.region_bytes
    }

    /// Whether this process is a forked child of the one that opened the service.
    #[getter]
    fn forked(&self) -> bool {
        self.0.forked
    }

    /// The problems so far, in words.
    #[getter]
    fn problems(&self) -> Vec<String> {
        self.0.problems.iter().map(ToString::to_string).collect()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<uview.Status {:?}>", self.0.to_string())
    }
}
