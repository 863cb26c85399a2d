//! `uview check`: whether uview can run on this machine, and what to fix. It is read-only.

mod kernel;
mod node;
mod processes;
mod rdma;
mod sampling;

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;

use crate::agent::{AgentArgs, Target};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, json};

/// Arguments of `uview check`.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
    /// Check the files of this folder as well: Lmaps and policies, `resources` of the host agent
    #[arg(long, value_name = "FOLDER")]
    resources: Option<PathBuf>,
    #[command(flatten)]
    agent: AgentArgs,
}

/// The result of one check, ordered from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The check passed.
    Fine,
    /// Something is missing; uview works without it.
    Missing,
    /// uview cannot run.
    Broken,
}

impl Level {
    /// A sign and a word, so that no colour is needed.
    fn sign(self) -> &'static str {
        match self {
            Self::Fine => "+ fine",
            Self::Missing => "! missing",
            Self::Broken => "x BROKEN",
        }
    }
}

/// The outcome of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name of the check; stable, for programs.
    pub name: &'static str,
    /// The result of the check.
    pub level: Level,
    /// Details in one sentence without a full stop.
    pub found: String,
    /// What to do unless the level is fine.
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

/// The outcome of all checks.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The worst level of the findings.
    pub verdict: Level,
    /// The outcome of each check.
    pub findings: Vec<Finding>,
}

impl Report {
    /// A report whose verdict is the worst level of `findings`.
    #[must_use]
    pub fn new(findings: Vec<Finding>) -> Self {
        let verdict = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Fine);
        Self { verdict, findings }
    }

    /// The exit code: success if uview can run here, even without RDMA.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self.verdict {
            Level::Fine | Level::Missing => Exit::Fine,
            Level::Broken => Exit::Failed,
        }
    }

    /// The report as text. The worst findings come last, next to the prompt.
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
            Level::Fine => "All checks passed.",
            Level::Missing => "uview can run here. Each missing part limits it as described above.",
            Level::Broken => "uview cannot run here until the broken parts are fixed.",
        };
        let _ = writeln!(text, "\n{summary}");
        text
    }
}

/// Runs all checks and prints the report.
///
/// # Errors
///
/// [`Failure`] if the arguments contradict each other, or stdout cannot be written.
pub fn run(args: CheckArgs, from_environment: Option<PathBuf>) -> Result<Exit, Failure> {
    let target = args.agent.named_target(from_environment)?;
    let mut report = run_checks(&target);
    if let Some(folder) = &args.resources {
        report.findings.extend(node::resources(folder));
        report = Report::new(report.findings);
    }
    if args.json {
        output::print(&json(&report)?)?;
    } else {
        output::print(&report.text())?;
    }
    Ok(report.exit())
}

fn run_checks(target: &Target) -> Report {
    let (agent, open) = node::agent(target);
    let running = agent.level == Level::Fine;
    let mut findings = vec![node::runtime_dir(&target.runtime_dir, running), agent];
    findings.extend(open);
    findings.extend(node::ports(running));
    findings.extend([kernel::version(), kernel::cores(), kernel::sealed_memory(), kernel::senders()]);
    findings.extend(processes::check());
    findings.extend(rdma::check());
    if running {
        findings.extend(sampling::check(target));
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
    fn missing_parts_are_no_failure() {
        assert_eq!(Report::new(vec![Finding::missing("m", "", "")]).exit(), Exit::Fine);
        assert_eq!(Report::new(vec![Finding::fine("a", "")]).exit(), Exit::Fine);
    }

    #[test]
    fn every_finding_that_is_not_fine_has_a_fix() {
        let directory = tempfile::tempdir().unwrap();
        let target = Target { runtime_dir: directory.path().to_owned(), operators: None, tls: None };

        let report = run_checks(&target);

        assert!(report.findings.iter().all(|finding| (finding.level == Level::Fine) == finding.fix.is_none()));
        let names: std::collections::BTreeSet<_> = report.findings.iter().map(|finding| finding.name).collect();
        assert_eq!(names.len(), report.findings.len(), "names are unique");
    }
}
