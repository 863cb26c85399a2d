//! `uview check`: what this machine offers, what is missing, and what to do about it. It only looks; it changes nothing.

mod kernel;
mod node;
mod processes;
mod rdma;
mod sampling;

use std::fmt::Write as _;

use serde::Serialize;

use crate::agent::{AgentArgs, Place};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, json};

/// Arguments of `uview check`.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

/// How well a thing is. The order is from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Fine,
    /// Missing; the rest works without.
    Missing,
    /// uview cannot work like this.
    Broken,
}

impl Level {
    /// A word and a sign, so that no colour is needed.
    fn sign(self) -> &'static str {
        match self {
            Self::Fine => "+ fine",
            Self::Missing => "! missing",
            Self::Broken => "x BROKEN",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at; stable, for programs.
    pub name: &'static str,
    /// How it is.
    pub level: Level,
    /// What was found, a sentence without a full stop.
    pub found: String,
    /// What to do, if it is not fine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    fn fine(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, level: Level::Fine, found: found.into(), fix: None }
    }

    fn missing(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, level: Level::Missing, found: found.into(), fix: Some(fix.into()) }
    }

    fn broken(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, level: Level::Broken, found: found.into(), fix: Some(fix.into()) }
    }
}

/// Everything that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The worst of the findings.
    pub verdict: Level,
    /// One by one.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Sums up `findings`.
    #[must_use]
    pub fn new(findings: Vec<Finding>) -> Self {
        let verdict = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Fine);
        Self { verdict, findings }
    }

    /// The code that the command ends with: 0 if uview works here, be it without RDMA.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self.verdict {
            Level::Fine | Level::Missing => Exit::Fine,
            Level::Broken => Exit::Failed,
        }
    }

    /// As text, the worst last, where the eye is when the command ends.
    #[must_use]
    pub fn text(&self) -> String {
        let mut findings: Vec<&Finding> = self.findings.iter().collect();
        findings.sort_by_key(|finding| finding.level);
        let mut text = String::new();
        for finding in findings {
            let _ = writeln!(text, "{:<10} {:<18} {}", finding.level.sign(), finding.name, finding.found);
            if let Some(fix) = &finding.fix {
                let _ = writeln!(text, "{:<10} {:<18} fix: {fix}", "", "");
            }
        }
        let summary = match self.verdict {
            Level::Fine => "Everything is there.",
            Level::Missing => "uview works here; what is missing costs what the lines above say.",
            Level::Broken => "uview cannot work here as it is.",
        };
        let _ = writeln!(text, "\n{summary}");
        text
    }
}

/// Looks at everything and prints it.
///
/// # Errors
///
/// [`Failure`] if it cannot be printed.
pub fn run(args: CheckArgs, from_environment: Option<std::path::PathBuf>) -> Result<Exit, Failure> {
    let place = args.agent.place(from_environment)?;
    let report = look(&place);
    if args.json {
        output::print(&json(&report)?)?;
    } else {
        output::print(&report.text())?;
    }
    Ok(report.exit())
}

fn look(place: &Place) -> Report {
    let agent = node::agent(place);
    let running = agent.level == Level::Fine;
    let mut findings = vec![node::runtime_dir(&place.runtime_dir, running), agent];
    findings.extend(node::ports(running));
    findings.extend([kernel::version(), kernel::cores(), kernel::sealed_memory()]);
    findings.extend(processes::look());
    findings.extend(rdma::look());
    if running {
        findings.extend(sampling::look(place));
    }
    Report::new(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides_and_is_printed_last() {
        let report = Report::new(vec![
            Finding::broken("b", "is broken", "mend it"),
            Finding::fine("a", "is fine"),
            Finding::missing("m", "is missing", "get it"),
        ]);

        let text = report.text();

        assert_eq!(report.exit(), Exit::Failed);
        let position = |name: &str| text.find(name).unwrap();
        assert!(position("is fine") < position("is missing") && position("is missing") < position("is broken"));
        assert!(text.contains("fix: mend it"));
    }

    #[test]
    fn whatever_is_missing_uview_works_and_that_is_0() {
        assert_eq!(Report::new(vec![Finding::missing("m", "", "")]).exit(), Exit::Fine);
        assert_eq!(Report::new(vec![Finding::fine("a", "")]).exit(), Exit::Fine);
    }

    #[test]
    fn whatever_is_not_fine_on_this_machine_has_a_fix() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place { runtime_dir: directory.path().to_owned(), operators: None, tls: None };

        let report = look(&place);

        assert!(report.findings.iter().all(|finding| (finding.level == Level::Fine) == finding.fix.is_none()));
        let names: std::collections::BTreeSet<_> = report.findings.iter().map(|finding| finding.name).collect();
        assert_eq!(names.len(), report.findings.len(), "names are unique");
    }
}
