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

/// Verdict on a claim. It is of the published workload, memory and caption; other readings are rows of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The published result came out, within the tolerance.
    Holds,
    /// The same on synthetic traffic, or delays, that stand for what cannot be had as published.
    HoldsOnStandIn,
    /// Our own bar is met, but the printed figure is not stated, or not met.
    HoldsByOwnBar,
    /// The result is not within the tolerance.
    Fails,
    /// The published value is wrong: two independent calculations agree with each other, but not with it.
    Refuted,
    /// It needs hardware or data that is not available here, which the row names.
    NotComputable,
}

/// The verdict for a published result that came out within the tolerance, or not.
pub const fn judged(holds: bool) -> Verdict {
    if holds { Verdict::Holds } else { Verdict::Fails }
}

/// The same on traffic that stands for the published trace.
pub const fn judged_on_stand_in(holds: bool) -> Verdict {
    if holds { Verdict::HoldsOnStandIn } else { Verdict::Fails }
}

/// The verdict where the publication states no figure, or where only the rest of the claim came out.
pub const fn judged_by_own_bar(holds: bool) -> Verdict {
    if holds { Verdict::HoldsByOwnBar } else { Verdict::Fails }
}

/// The verdict for a published value that seems wrong: refuted if our two calculations agree.
pub const fn refuted(agreed: bool) -> Verdict {
    if agreed { Verdict::Refuted } else { Verdict::Fails }
}

impl Verdict {
    const ALL: [Self; 6] =
        [Self::Holds, Self::HoldsOnStandIn, Self::HoldsByOwnBar, Self::Fails, Self::Refuted, Self::NotComputable];

    const fn holds(self) -> bool {
        matches!(self, Self::Holds | Self::HoldsOnStandIn | Self::HoldsByOwnBar)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::HoldsOnStandIn => "holds on the stand-in",
            Self::HoldsByOwnBar => "holds by our own bar",
            Self::Fails => "fails",
            Self::Refuted => "refuted",
            Self::NotComputable => "not computable",
        }
    }
}

/// Tables come first.
const BELOW: &str = "How it is measured: [below](#how-it-is-measured).";
/// What the verdicts mean, for each table.
const VERDICTS: &str = "*Holds*: the published result came out on the published workload, memory and caption. *Holds on \
    the stand-in*: on synthetic traffic, or delays, that stand for what cannot be had as published. *Holds by our own bar*: the publication \
    states no figure, or the printed one was missed as the row says, and what remains of the claim came out. *Fails*: it did \
    not come out. *Refuted*: what is printed is wrong; two calculations of different kinds agree with each other and not \
    with it. *Not computable*: the row names what is missing. Other readings of a claim are rows of their own, named \
    `F13-chained` and so on.";

/// Rows on what other programs measured. The reduced form says so if they were not run.
const NEEDS_AGENTS: [&str; 2] = ["R11", "R11-end"];

/// Rows on times alone, which caches that others use, too, bend. They are judged where nothing else runs, by the full
/// form; the reduced one says what it saw.
const NEEDS_AN_IDLE_MACHINE: [&str; 1] = ["R13-all"];

/// All results for one publication.
pub struct Reproduction {
    /// Name of the files.
    pub name: &'static str,
    pub title: &'static str,
    /// Terms of the table, and conditions of the runs.
    pub about: &'static str,
    pub claims: Vec<Claim>,
    pub figures: Vec<Figure>,
}

impl Claim {
    /// Sort key in the table: figures (F, R), then properties (A), by number, then by letter and reading.
    fn place(&self) -> (usize, u32, &'static str) {
        let digits = self.id[1..].bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = self.id[1..].split_at(digits);
        ("FRA".find(&self.id[..1]).unwrap_or(3), number.parse().unwrap_or(u32::MAX), rest)
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

    /// How many rows have each verdict.
    pub fn summary(&self) -> String {
        let count = |verdict: Verdict| self.claims.iter().filter(|claim| claim.verdict == verdict).count();
        let counts = Verdict::ALL.into_iter().map(|verdict| (count(verdict), verdict.name()));
        let counts = counts.filter(|(count, _)| *count > 0).map(|(count, name)| format!("{count} × {name}"));
        counts.collect::<Vec<_>>().join(", ")
    }

    /// The table as `cargo lab reproduce COMMAND` writes it.
    pub fn page(&self, command: &str) -> String {
        let Self { title, about, .. } = self;
        let mut text = format!("# {title}, claim by claim\n\nMade by `cargo lab reproduce {command}`. ");
        let _ = write!(text, "Verdicts: {}. {BELOW}\n\n", self.summary());
        text += "| id | claim | published | ours | tolerance | verdict |\n| --- | --- | --- | --- | --- | --- |\n";
        for claim in &self.claims {
            let Claim { id, text: statement, published, ours, tolerance, .. } = claim;
            let name = claim.verdict.name();
            let verdict = if claim.verdict.holds() { name.to_owned() } else { format!("**{name}**") };
            let _ = writeln!(text, "| {id} | {statement} | {published} | {ours} | {tolerance} | {verdict} |");
        }
        let _ = write!(text, "\n## How it is measured\n\n{VERDICTS}\n\n{about}\n");
        for Figure { file, caption, .. } in &self.figures {
            let _ = write!(text, "\n{caption}\n\n![{caption}]({file})\n");
        }
        text
    }

    /// Rows of [`NEEDS_AGENTS`] that were not computed.
    pub fn not_run(&self) -> impl Iterator<Item = &Claim> {
        let not_run = |claim: &&Claim| NEEDS_AGENTS.contains(&claim.id) && claim.verdict == Verdict::NotComputable;
        self.claims.iter().filter(not_run)
    }

    /// Rows of [`NEEDS_AN_IDLE_MACHINE`], which the reduced form does not judge.
    pub fn not_judged(&self) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(|claim| NEEDS_AN_IDLE_MACHINE.contains(&claim.id))
    }

    /// Claims whose verdict in the committed table `json` is not confirmed by this one, rows that were not computed,
    /// and claims that are not in that table, which `command` stores. With fewer runs, a claim that failed there may
    /// hold here, and one that held by our own bar as published.
    pub fn broken(&self, json: &str, command: &str) -> serde_json::Result<Vec<String>> {
        let committed: Vec<BTreeMap<String, String>> = serde_json::from_str(json)?;
        let unconfirmed = committed.iter().filter_map(|row| {
            let (id, verdict) = (row["id"].as_str(), row["verdict"].as_str());
            match self.claims.iter().find(|claim| claim.id == id) {
                None => Some(format!("{id} was not computed")),
                Some(claim) if verdict == Verdict::Fails.name() || verdict == claim.verdict.name() => None,
                Some(claim) if verdict == Verdict::HoldsByOwnBar.name() && claim.verdict.holds() => None,
                // Its times are of the machine that runs it.
                Some(claim) if NEEDS_AGENTS.contains(&id) && claim.verdict == Verdict::HoldsByOwnBar => None,
                Some(_) if NEEDS_AN_IDLE_MACHINE.contains(&id) => None,
                Some(_) if self.not_run().any(|claim| claim.id == id) => None,
                Some(claim) => Some(format!("{id} {}: {} ({})", claim.verdict.name(), claim.ours, claim.tolerance)),
            }
        });
        let is_stored = |claim: &Claim| committed.iter().any(|row| row["id"] == claim.id);
        let not_stored = self.claims.iter().filter(|claim| !is_stored(claim)).map(|claim| {
            format!("{} is not in {}.json: `cargo lab reproduce {command}` stores it", claim.id, self.name)
        });
        Ok(unconfirmed.chain(not_stored).collect())
    }
}
