//! A published claim beside what came out here.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::plot::Figure;

/// One row of the table.
pub struct Claim {
    pub id: &'static str,
    pub said: &'static str,
    pub published: &'static str,
    pub ours: String,
    pub tolerance: &'static str,
    pub verdict: Verdict,
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within the tolerance.
    Holds,
    /// Not within it.
    Fails,
    /// What is printed is wrong: two calculations of different kinds find the same as each other and something else than it.
    Refuted,
    /// There is no bar: the figure stands for itself.
    Reported,
    /// Not here.
    NotComputable,
}

/// Whether a claim holds.
pub const fn judged(holds: bool) -> Verdict {
    if holds { Verdict::Holds } else { Verdict::Fails }
}

/// What is printed is wrong if `agreed`, our two calculations, find the same; else nothing is shown.
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

/// All that came out of one publication.
pub struct Reproduction {
    /// Of the files, and of the command.
    pub name: &'static str,
    pub title: &'static str,
    /// What the table's words mean, and on what it rests.
    pub about: &'static str,
    pub claims: Vec<Claim>,
    pub figures: Vec<Figure>,
}

impl Claim {
    /// Where it stands in the table: figures (F, R), then properties (A), by number, then by letter.
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
                "claim": claim.said,
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
        let mut text = format!("# {title}, claim by claim\n\nMade by `cargo xtask reproduce {name}`. ");
        let _ = write!(
            text,
            "{}. *Refuted* is what is printed wrong: two calculations of different kinds \
            agree with each other and not with it.\n\n{about}\n\n",
            self.summary()
        );
        text += "| id | claim | published | ours | tolerance | verdict |\n| --- | --- | --- | --- | --- | --- |\n";
        for claim in &self.claims {
            let Claim { id, said, published, ours, tolerance, .. } = claim;
            let verdict = match claim.verdict.name() {
                "holds" => "holds".to_owned(),
                other => format!("**{other}**"),
            };
            let _ = writeln!(text, "| {id} | {said} | {published} | {ours} | {tolerance} | {verdict} |");
        }
        for Figure { file, caption, .. } in &self.figures {
            let _ = write!(text, "\n{caption}\n\n![{caption}]({file})\n");
        }
        text
    }

    /// Claims that held (or were refuted) when the kept table (`json`) was made and are not so now.
    pub fn broken(&self, json: &str) -> serde_json::Result<Vec<String>> {
        let kept: Vec<BTreeMap<String, String>> = serde_json::from_str(json)?;
        let was =
            |id: &str, verdict: Verdict| kept.iter().any(|row| row["id"] == id && row["verdict"] == verdict.name());
        let changed = |claim: &&Claim| {
            [Verdict::Holds, Verdict::Refuted]
                .into_iter()
                .any(|verdict| was(claim.id, verdict) && claim.verdict != verdict)
        };
        let broken = self.claims.iter().filter(changed);
        Ok(broken.map(|claim| format!("{}: {} ({})", claim.id, claim.ours, claim.tolerance)).collect())
    }
}
