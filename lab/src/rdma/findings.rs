//! Findings: deviations that a busy machine may explain. They are printed with their numbers, and are failures only
//! with `--strict`.

use anyhow::{Result, ensure};

/// Marks a finding in a line of a guest's output.
pub const MARK: &str = "FINDING: ";

/// All findings of a run, in order.
#[derive(Debug, Default)]
pub struct Findings(Vec<String>);

impl Findings {
    /// Adds a finding of `step`.
    pub fn add(&mut self, step: &str, what: &str) {
        let finding = format!("{step}: {what}");
        // A guest may report the same finding more than once.
        if !self.0.contains(&finding) {
            self.0.push(finding);
        }
    }

    /// Adds all findings in `output`, the output of a guest of `step`.
    pub fn read(&mut self, step: &str, output: &str) {
        let marked = output.lines().filter_map(|line| line.split_once(MARK));
        marked.for_each(|(_, what)| self.add(step, what));
    }

    /// Prints all findings.
    ///
    /// # Errors
    ///
    /// There are findings, and `strict` is set.
    pub fn close(&self, strict: bool) -> Result<()> {
        for finding in &self.0 {
            println!("!! FOUND, which a busy machine may explain: {finding}");
        }
        let count = self.0.len();
        ensure!(!strict || count == 0, "{count} findings, of which --strict allows none: {}", self.0.join("; "));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_fail_a_strict_run_and_no_other() {
        let mut findings = Findings::default();
        assert!(findings.close(true).is_ok());

        findings.read("two-guests", "[3 s] noise\n[4 s] FINDING: cart alarmed\nFINDING: cart alarmed\n");
        findings.add("idle", "90 ms");

        assert!(findings.close(false).is_ok());
        let why = findings.close(true).unwrap_err().to_string();
        assert!(why.starts_with("2 findings") && why.contains("two-guests: cart alarmed; idle: 90 ms"), "{why}");
    }
}
