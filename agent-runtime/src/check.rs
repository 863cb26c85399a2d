//! `--check-config`: what a start would stumble over, all of it, without starting. Reads files and `/proc`, binds
//! addresses and releases them, opens Unix sockets and closes them; writes nothing, and calls nobody by network.
//!
//! | module | checks |
//! | --- | --- |
//! | `certificates` | certificates, keys and authorities: read, match, expire when, have names |
//! | `files` | directories and Unix sockets |
//! | `addresses` | TCP addresses, and who has those that are taken |

mod addresses;
mod certificates;
mod files;

use core::fmt;
use std::net::{SocketAddr, TcpListener};

use tracing_subscriber::filter::Targets;
use wire::printable;

use crate::access::{AccessConfig, Role};
use crate::config::LogConfig;

pub use addresses::Process;
pub use files::SocketState;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Ok,
    /// The agent starts, with a weakness.
    Warning,
    /// The agent does not start, or a part of it does not work.
    Error,
}

impl Level {
    /// The word in front of a finding.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// What was found about one configuration key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// The full name of the key, such as `control.tls.certificate`.
    pub key: String,
    /// What was found, with values.
    pub what: String,
    /// What to do about it; empty if nothing.
    pub advice: String,
}

impl fmt::Display for Finding {
    /// `level  key  what; fix: advice`, in one line whatever the texts contain.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, advice, .. } = self;
        let line = if advice.is_empty() { what.clone() } else { format!("{what}; fix: {advice}") };
        write!(f, "{:<8} {:<28} {}", self.level.name(), self.key, printable::line(&line))
    }
}

/// The check of one configuration, under way. Addresses that were bound are held until it is dropped, so that two keys
/// with one address are found.
#[derive(Debug)]
pub struct Inspection {
    /// Seconds since 1970.
    now_s: i64,
    findings: Vec<Finding>,
    bound: Vec<(String, SocketAddr, TcpListener)>,
}

impl Inspection {
    /// An inspection at `now_s` seconds since 1970, without findings.
    #[must_use]
    pub const fn new(now_s: i64) -> Self {
        Self { now_s, findings: Vec::new(), bound: Vec::new() }
    }

    /// Adds that `key` is as it should be.
    pub fn ok(&mut self, key: impl Into<String>, what: impl Into<String>) {
        self.add(Level::Ok, key, what, "");
    }

    /// Adds a weakness, with what to do about it.
    pub fn warning(&mut self, key: impl Into<String>, what: impl Into<String>, advice: impl Into<String>) {
        self.add(Level::Warning, key, what, advice);
    }

    /// Adds a fault, with what to do about it.
    pub fn error(&mut self, key: impl Into<String>, what: impl Into<String>, advice: impl Into<String>) {
        self.add(Level::Error, key, what, advice);
    }

    fn add(&mut self, level: Level, key: impl Into<String>, what: impl Into<String>, advice: impl Into<String>) {
        self.findings.push(Finding { level, key: key.into(), what: what.into(), advice: advice.into() });
    }

    /// What was found so far, in the order of the checks.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The worst level of the findings.
    #[must_use]
    pub fn worst(&self) -> Level {
        self.findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
    }

    fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }

    /// Checks the level of the log.
    pub fn log_level(&mut self, config: &LogConfig) {
        match config.level.parse::<Targets>() {
            Ok(_) => self.ok("log.level", config.level.clone()),
            Err(error) => self.error("log.level", format!("{:?}: {error}", config.level), "a level such as info"),
        }
    }

    /// Checks that the system knows all users and groups, of every role: a start stumbles over any.
    pub fn access(&mut self, config: &AccessConfig) {
        for role in Role::ALL {
            let (key, unknown) = (format!("access.{}", role.key()), config.unknown_names(role));
            if unknown.is_empty() {
                self.ok(key, config.members(role).to_string());
            }
            for name in unknown {
                if name.is_default() {
                    let what = "the group uview does not exist: nobody but root and the agent's own user can read";
                    self.warning(format!("access.{}", role.key()), what, "groupadd --system uview");
                } else {
                    self.error(
                        name.key(),
                        format!("{:?} is unknown to this system", name.name()),
                        "create it, or leave it out",
                    );
                }
            }
        }
    }

    /// Whether this process has the capability with this number (capabilities(7)).
    #[must_use]
    pub fn has_capability(number: u32) -> bool {
        has_capability(&std::fs::read_to_string("/proc/self/status").unwrap_or_default(), number)
    }
}

/// Number of the capability to use packet sockets.
pub const CAP_NET_RAW: u32 = 13;
/// Number of the capability to inspect processes of other users.
pub const CAP_SYS_PTRACE: u32 = 19;

fn has_capability(status: &str, number: u32) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or_default();
    effective.checked_shr(number).is_some_and(|bits| bits & 1 == 1)
}

impl fmt::Display for Inspection {
    /// One line for each finding, then their numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let [fine, warnings, errors] = [Level::Ok, Level::Warning, Level::Error].map(|level| self.count(level));
        writeln!(f, "{errors} errors, {warnings} warnings, {fine} ok")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_is_one_line_and_the_numbers_come_last() {
        let mut inspection = Inspection::new(0);
        inspection.ok("a", "fine");
        assert_eq!(inspection.worst(), Level::Ok);
        inspection.error("control.listen", "in use\nby\x1b[2J somebody", "stop it");
        inspection.warning("b", "open", "close it");

        let text = inspection.to_string();

        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!(lines[1], "error    control.listen               in use\\u{a}by\\u{1b}[2J somebody; fix: stop it");
        assert_eq!(lines[3], "1 errors, 1 warnings, 1 ok");
        assert_eq!(inspection.worst(), Level::Error);
    }

    #[test]
    fn unknown_users_and_groups_are_all_named() {
        let config = "{operators: {users: [nobody-at-all, root], groups: [no-such-group]}, viewers: {users: [root]}}";
        let config: AccessConfig = serde_saphyr::from_str(config).unwrap();
        let mut inspection = Inspection::new(0);

        inspection.access(&config);

        let found: Vec<_> = inspection.findings().iter().map(|f| (f.level, f.key.as_str())).collect();
        let errors = [(Level::Error, "access.operators.users"), (Level::Error, "access.operators.groups")];
        let others = [(Level::Ok, "access.viewers"), (Level::Ok, "access.peers")];
        assert_eq!(found, [&[(Level::Ok, "access.workers")][..], &errors, &others].concat());
    }

    #[test]
    fn a_capability_is_a_bit_of_the_effective_ones() {
        assert!(has_capability("CapPrm:\t0\nCapEff:\t0000000000002000\n", CAP_NET_RAW));
        assert!(!has_capability("CapEff:\t0000000000002000\n", CAP_SYS_PTRACE));
        assert!(!has_capability("", CAP_NET_RAW) && !has_capability("CapEff:\tffffffffffffffff\n", 64));
    }

    #[test]
    fn a_level_that_is_none_is_an_error() {
        let mut inspection = Inspection::new(0);

        inspection.log_level(&LogConfig { level: "info,x=loud".to_owned(), ..LogConfig::default() });

        assert_eq!(inspection.worst(), Level::Error);
    }
}
