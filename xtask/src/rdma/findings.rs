//! What a busy machine may explain: told with its numbers, and no failure unless somebody on an idle machine asks for that.

use anyhow::{Result, ensure};

/// What a line of a guest's output contains that is one.
pub const MARK: &str = "FINDING: ";

/// All that a run has found, in its order.
#[derive(Debug, Default)]
pub struct Findings(Vec<String>);

impl Findings {
    /// Notes one.
    pub fn add(&mut self, step: &str, what: &str) {
        let finding = format!("{step}: {what}");
        // A guest is judged more than once in its life.
        if !self.0.contains(&finding) {
            self.0.push(finding);
        }
    }

    /// Notes all that `said`, the output of a guest of `step`, contains.
    pub fn read(&mut self, step: &str, said: &str) {
        let marked = said.lines().filter_map(|line| line.split_once(MARK));
        marked.for_each(|(_, what)| self.add(step, what));
    }

    /// Prints all of them.
    ///
    /// # Errors
    ///
    /// There are some, and `strict` allows none.
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
