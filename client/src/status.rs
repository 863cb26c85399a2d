//! What there is to know of a client, for people and for programs.

use std::fmt;

use wire::id::Incarnation;

use crate::problem::Problem;

/// How things stand at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The service's name as given.
    pub service: String,
    /// Which replica.
    pub instance: String,
    /// With whom it talks.
    pub connection: Connection,
    /// How often a connection was made.
    pub connections: u64,
    /// How often one was ended because of what came over it.
    pub garbage: u64,
    /// Series that an agent is told of.
    pub series: usize,
    /// Removed series whose slots wait for the agent's release, or for their last handle to be dropped.
    pub waiting: usize,
    /// Handles given out that take values which nobody reads. The reason is among `problems`.
    pub detached: u64,
    /// Regions of shared memory.
    pub regions: usize,
    /// Their bytes.
    pub region_bytes: usize,
    /// Whether this is a child of the process that connected: its handles work, its registrations do not.
    pub forked: bool,
    /// What went wrong, each once.
    pub problems: Vec<Problem>,
    /// Problems beyond those that are kept.
    pub more_problems: u64,
}

/// A client's connection to the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Connection {
    /// No agent will be told: see the problems. Values are counted.
    Off,
    /// No agent so far, or none any more. It is tried again and again; values are counted.
    Waiting {
        /// Attempts since an agent last answered.
        attempts: u64,
        /// What the last one met.
        error: Option<String>,
    },
    /// There is a connection, and not everything said on it is accepted yet.
    Registering,
    /// The agent has accepted everything.
    Registered {
        /// Which run of it.
        agent: Incarnation,
    },
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("not connected, and will not be"),
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
    /// A line on the connection, one on the numbers, one for each problem.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, instance, connection, series, regions, region_bytes, .. } = self;
        writeln!(f, "{service} ({instance}): {connection}")?;
        write!(f, "{series} series in {regions} regions of {region_bytes} bytes")?;
        if self.waiting > 0 {
            write!(f, ", {} removed ones not released yet", self.waiting)?;
        }
        if self.detached > 0 {
            write!(f, ", {} handles that nobody reads", self.detached)?;
        }
        if self.garbage > 0 {
            write!(f, ", {} of {} connections ended by garbage", self.garbage, self.connections)?;
        }
        if self.forked {
            write!(f, "\n- a child of the process that connected: connect again to register")?;
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
    fn a_status_tells_a_person_what_is_the_matter() {
        let status = Status {
            service: "payment".into(),
            instance: "payment-1".into(),
            connection: Connection::Waiting { attempts: 3, error: Some("no such file".into()) },
            connections: 2,
            garbage: 1,
            series: 40,
            waiting: 1,
            detached: 2,
            regions: 1,
            region_bytes: 16384,
            forked: true,
            problems: vec![Problem { cause: Cause::Series { limit: 40 }, times: 2 }],
            more_problems: 5,
        };

        let expected = "payment (payment-1): waiting for an agent (3 attempts): no such file\n\
            40 series in 1 regions of 16384 bytes, 1 removed ones not released yet, 2 handles that nobody reads, \
            1 of 2 connections ended by garbage\n\
            - a child of the process that connected: connect again to register\n\
            - more than 40 series: further ones are not registered (see Limits::series) (2 times)\n\
            - 5 further problems";
        assert_eq!(status.to_string(), expected);
    }
}
