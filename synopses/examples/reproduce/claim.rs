//! Published claims, and the results of this library.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::plot::Figure;

/// One row of the table.
pub struct Claim {
    pub id: &'static str,
    pub text: &'static str,
    pub published: &'static str,
    pub ours: String,
    pub tolerance: &'static str,
    pub verdict: Verdict,
}

/// Verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The result is within the tolerance.
    Holds,
    /// The result is not within the tolerance.
    Fails,
    /// The published value is wrong: two independent calculations agree with each other, but not with it.
    Refuted,
    /// There is no tolerance.
    Reported,
    /// It needs hardware or data that is not available here.
    NotComputable,
}

/// The verdict for a result within the tolerance, or not.
pub const fn judged(holds: bool) -> Verdict {
    if holds { Verdict::Holds } else { Verdict::Fails }
}

/// The verdict for a published value that seems wrong: refuted if our two calculations agree.
pub const fn refuted(agreed: bool) -> Verdict {
    if agreed { Verdict::Refuted } else { Verdict::Fails }
}

impl Verdict {
    const fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "fails",
            Self::Refuted => "refuted",
            Self::Reported => "reported",
            Self::NotComputable => "not computable",
        }
    }
}

/// All results for one publication.
pub struct Reproduction {
    /// Name of the files, and argument of the command.
    pub name: &'static str,
    pub title: &'static str,
    /// Terms of the table, and conditions of the runs.
    pub about: &'static str,
    pub claims: Vec<Claim>,
    pub figures: Vec<Figure>,
}

impl Claim {
    /// Sort key in the table: figures (F, R), then properties (A), by number, then by letter.
    fn place(&self) -> (usize, u32, &'static str) {
        let number = self.id[1..].trim_end_matches(char::is_alphabetic);
        ("FRA".find(&self.id[..1]).unwrap_or(3), number.parse().unwrap_or(u32::MAX), &self.id[1 + number.len()..])
    }
}

impl Reproduction {
    pub fn sort(&mut self) {
        self.claims.sort_by_key(Claim::place);
    }

    pub fn json(&self) -> serde_json::Result<String> {
        let rows = self.claims.iter().map(|claim| {
            json!({
                "id": claim.id,
                "claim": claim.text,
                "published": claim.published,
                "ours": claim.ours,
                "tolerance": claim.tolerance,
                "verdict": claim.verdict.name(),
            })
        });
        serde_json::to_string_pretty(&Value::from(rows.collect::<Vec<_>>())).map(|text| text + "\n")
    }

    pub fn summary(&self) -> String {
        let count = |verdict| self.claims.iter().filter(|claim| claim.verdict == verdict).count();
        let [hold, fail, refuted, reported, not] =
            [Verdict::Holds, Verdict::Fails, Verdict::Refuted, Verdict::Reported, Verdict::NotComputable].map(count);
        format!(
            "{hold} hold, {fail} fail, {refuted} are refuted, {reported} are reported without a bar, {not} cannot be computed here"
        )
    }

    pub fn page(&self) -> String {
        let Self { name, title, about, .. } = self;
        let mut text = format!("# {title}, claim by claim\n\nMade by `cargo lab reproduce {name}`. ");
        let _ = write!(
            text,
            "{}. *Refuted* is what is printed wrong: two calculations of different kinds \
            agree with each other and not with it.\n\n{about}\n\n",
            self.summary()
        );
        text += "| id | claim | published | ours | tolerance | verdict |\n| --- | --- | --- | --- | --- | --- |\n";
        for claim in &self.claims {
            let Claim { id, text: statement, published, ours, tolerance, .. } = claim;
            let verdict = match claim.verdict.name() {
                "holds" => "holds".to_owned(),
                other => format!("**{other}**"),
            };
            let _ = writeln!(text, "| {id} | {statement} | {published} | {ours} | {tolerance} | {verdict} |");
        }
        for Figure { file, caption, .. } in &self.figures {
            let _ = write!(text, "\n{caption}\n\n![{caption}]({file})\n");
        }
        text
    }

    /// Claims that hold (or are refuted) in the committed table `json`, but not in this one.
    pub fn broken(&self, json: &str) -> serde_json::Result<Vec<String>> {
        let committed: Vec<BTreeMap<String, String>> = serde_json::from_str(json)?;
        let had_verdict = |id: &str, verdict: Verdict| {
            committed.iter().any(|row| row["id"] == id && row["verdict"] == verdict.name())
        };
        let changed = |claim: &&Claim| {
            [Verdict::Holds, Verdict::Refuted]
                .into_iter()
                .any(|verdict| had_verdict(claim.id, verdict) && claim.verdict != verdict)
        };
        let broken = self.claims.iter().filter(changed);
        Ok(broken.map(|claim| format!("{}: {} ({})", claim.id, claim.ours, claim.tolerance)).collect())
    }
}
