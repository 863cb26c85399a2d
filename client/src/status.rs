//! The state of a client, for logs (`Display`) and for programs.

use std::fmt;

use wire::id::Incarnation;

use crate::problem::Problem;

/// The state of a client at one moment: see [`Client::status`](crate::Client::status).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The service's name, as passed to [`Service::new`](crate::Service::new).
    pub service: String,
    /// The replica's name.
    pub instance: String,
    /// The connection to the agent.
    pub connection: Connection,
    /// Connections established so far.
    pub connections: u64,
    /// Connections closed because the agent sent an invalid message.
    pub protocol_errors: u64,
    /// Number of registered series.
    pub series: usize,
    /// Removed series whose slots are not free yet: the agent has not released them, or a handle exists.
    pub pending_release: usize,
    /// Detached handles: they work, but no agent reads them. The reasons are in `problems`.
    pub detached: u64,
    /// Regions of shared memory that hold metrics.
    pub regions: usize,
    /// Size of these regions together, in bytes.
    pub region_bytes: usize,
    /// Whether this process is a forked child of the one that connected: handles work, registrations do not.
    pub forked: bool,
    /// Problems so far, each once with its number of occurrences.
    pub problems: Vec<Problem>,
    /// Occurrences of further problems, beyond 64 different ones.
    pub more_problems: u64,
}

/// The state of a client's connection to the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Connection {
    /// Disabled: the service's name is invalid, or the I/O thread did not start (see the problems). Values are counted.
    Off,
    /// No agent is reachable. The client retries every 50 ms to 2 s; values are counted.
    Waiting {
        /// Attempts since an agent last replied.
        attempts: u64,
        /// Why the last attempt or connection failed.
        error: Option<String>,
    },
    /// Connected. The agent has not accepted all messages yet.
    Registering,
    /// Connected. The agent has accepted all messages.
    Registered {
        /// Identifies this run of the agent; another one after a restart.
        agent: Incarnation,
    },
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("disabled"),
            Self::Waiting { attempts, error: None } => write!(f, "waiting for an agent ({attempts} attempts)"),
            Self::Waiting { attempts, error: Some(error) } => {
                write!(f, "waiting for an agent ({attempts} attempts): {error}")
            }
            Self::Registering => f.write_str("registering"),
            Self::Registered { agent } => write!(f, "registered with {agent}"),
        }
    }
}

impl fmt::Display for Status {
    /// One line for the connection, one for the counts, one per problem.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, instance, connection, series, regions, region_bytes, .. } = self;
        writeln!(f, "{service} ({instance}): {connection}")?;
        write!(f, "{series} series in {regions} regions of {region_bytes} bytes")?;
        if self.pending_release > 0 {
            write!(f, ", {} removed series not released yet", self.pending_release)?;
        }
        if self.detached > 0 {
            write!(f, ", {} detached handles", self.detached)?;
        }
        if self.protocol_errors > 0 {
            write!(
                f,
                ", {} of {} connections closed after an invalid message",
                self.protocol_errors, self.connections
            )?;
        }
        if self.forked {
            write!(f, "\n- forked child of the process that connected: connect again to register")?;
        }
        for problem in &self.problems {
            write!(f, "\n- {problem}")?;
        }
        if self.more_problems > 0 {
            write!(f, "\n- {} further problems", self.more_problems)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Cause;

    #[test]
    fn a_status_prints_connection_counts_and_problems() {
        let status = Status {
            service: "payment".into(),
            instance: "payment-1".into(),
            connection: Connection::Waiting { attempts: 3, error: Some("no such file".into()) },
            connections: 2,
            protocol_errors: 1,
            series: 40,
            pending_release: 1,
            detached: 2,
            regions: 1,
            region_bytes: 16384,
            forked: true,
            problems: vec![Problem { cause: Cause::Series { limit: 40 }, times: 2 }],
            more_problems: 5,
        };

        let expected = "payment (payment-1): waiting for an agent (3 attempts): no such file\n\
            40 series in 1 regions of 16384 bytes, 1 removed series not released yet, 2 detached handles, \
            1 of 2 connections closed after an invalid message\n\
            - forked child of the process that connected: connect again to register\n\
            - more than 40 series: further ones are not registered (see Limits::series) (2 times)\n\
            - 5 further problems";
        assert_eq!(status.to_string(), expected);
    }
}
