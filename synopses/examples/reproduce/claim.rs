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
    /// `None` if it cannot be computed.
    pub holds: Option<bool>,
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
    fn verdict(&self) -> &'static str {
        match self.holds {
            Some(true) => "holds",
            Some(false) => "fails",
            None => "not computable",
        }
    }

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
                "verdict": claim.verdict(),
            })
        });
        serde_json::to_string_pretty(&Value::from(rows.collect::<Vec<_>>())).map(|text| text + "\n")
    }

    pub fn summary(&self) -> String {
        let count = |holds| self.claims.iter().filter(|claim| claim.holds == holds).count();
        format!("{} hold, {} fail, {} cannot be computed here", count(Some(true)), count(Some(false)), count(None))
    }

    pub fn page(&self) -> String {
        let Self { name, title, about, .. } = self;
        let mut text = format!("# {title}, claim by claim\n\nMade by `cargo xtask reproduce {name}`. ");
        let _ = write!(text, "{}.\n\n{about}\n\n", self.summary());
        text += "| id | claim | published | ours | tolerance | verdict |\n| --- | --- | --- | --- | --- | --- |\n";
        for claim in &self.claims {
            let Claim { id, said, published, ours, tolerance, .. } = claim;
            let verdict = match claim.verdict() {
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

    /// Claims that held when the kept table (`json`) was made and do not hold now.
    pub fn broken(&self, json: &str) -> serde_json::Result<Vec<String>> {
        let kept: Vec<BTreeMap<String, String>> = serde_json::from_str(json)?;
        let held = |id: &str| kept.iter().any(|row| row["id"] == id && row["verdict"] == "holds");
        let broken = self.claims.iter().filter(|claim| held(claim.id) && claim.holds != Some(true));
        Ok(broken.map(|claim| format!("{}: {} ({})", claim.id, claim.ours, claim.tolerance)).collect())
    }
}
