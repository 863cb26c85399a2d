//! Results as tables, JSON rows and a plot for the documentation.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use evaluation::reproduction::Verdict;

use super::bars::{BARS, Bar};
use super::plot::{Dot, plot};
use super::run::{Outcome, POLICIES, Policy, Shares};
use super::scenes::CHAPTER;
use super::shop::Scene;

impl Policy {
    const fn id(self) -> &'static str {
        match self {
            Self::Head(10) => "head-1",
            Self::Head(50) => "head-5",
            Self::Head(_) => "head-20",
            Self::HeadAtOurs => "head-at-ours",
            Self::PublishedOracle => "oracle-published",
            Self::Oracle => "oracle",
            Self::Plain => "error-latency",
            Self::Lmap => "lmap",
            Self::Remarkable => "lmap-remarkable",
            Self::All => "together",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Head(10) => "head sampling, 1 %",
            Self::Head(50) => "head sampling, 5 %",
            Self::Head(_) => "head sampling, 20 %",
            Self::HeadAtOurs => "head sampling with the bytes of all together",
            Self::PublishedOracle => "the publication's oracle: everything during faults",
            Self::Oracle => "an oracle that knows the faults, by operation and second",
            Self::Plain => "errors and latency above the learnt 99th percentile",
            Self::Lmap => "LMAP trigger alone",
            Self::Remarkable => "LMAP trigger alone, of what looks as usual one in twenty",
            Self::All => "all together (the defaults)",
        }
    }
}

/// A column of a table: its heading and its value.
type Column = (&'static str, fn(&Shares) -> f64);
const COLUMNS: [Column; 8] = [
    ("symptomatic", |of| of.symptomatic),
    ("overhead", |of| of.overhead),
    ("hit", |of| of.covered),
    ("kept traces", |of| of.kept),
    ("kept bytes", |of| of.bytes),
    ("precision", |of| of.precision),
    ("beyond", |of| of.beyond),
    ("quiet tail", |of| of.tail),
];

/// Student's t for a two-sided 95 % confidence interval, by degrees of freedom.
fn student(freedom: usize) -> f64 {
    const T: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    freedom.checked_sub(1).map_or(f64::NAN, |at| T.get(at).copied().unwrap_or(1.96))
}

/// Mean, and half the width of its 95 % confidence interval.
pub fn interval(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, student(values.len() - 1) * (variance / count).sqrt())
}

pub fn percent((mean, half): (f64, f64)) -> String {
    format!("{:.2} ± {:.2} %", 100.0 * mean, 100.0 * half)
}

/// One row of the table of claims.
pub struct Row {
    pub id: String,
    claim: String,
    published: &'static str,
    /// On the seeds that verdicts are about.
    ours: String,
    /// On the seeds on which the agents' constants were chosen; empty in the reduced form.
    chosen: String,
    bar: &'static str,
    pub verdict: Verdict,
    /// Why the bar is not met.
    why: &'static str,
}

/// All seeds at one interval.
pub struct Series {
    /// Name of the interval, and its part of ids.
    pub every: &'static str,
    pub suffix: &'static str,
    pub scene: &'static Scene,
    /// Results of the seeds that verdicts are about.
    pub outcomes: Vec<Outcome>,
    /// Results of the seeds on which the agents' constants were chosen.
    pub chosen: Vec<Outcome>,
}

impl Series {
    fn of(&self, policy: Policy, what: fn(&Shares) -> f64) -> Vec<f64> {
        self.outcomes.iter().filter_map(|outcome| outcome.shares.get(&policy)).map(what).collect()
    }

    /// Whether the shop is modelled after the publication's.
    fn is_published(&self) -> bool {
        core::ptr::eq(self.scene, &raw const CHAPTER)
    }

    fn row(&self, bar: &Bar) -> Row {
        let values: Vec<f64> = self.outcomes.iter().map(bar.value).collect();
        let chosen: Vec<f64> = self.chosen.iter().map(bar.value).collect();
        let met = !values.is_empty() && values.iter().all(|value| bar.is_met(*value));
        let published = self.is_published() && bar.is_published;
        Row {
            id: format!("{}{}", bar.id, self.suffix),
            claim: format!("{}, {}", bar.claim, self.every),
            published: if published { bar.published } else { "–" },
            ours: bar.figure(&values),
            chosen: if chosen.is_empty() { String::new() } else { bar.figure(&chosen) },
            bar: bar.text,
            verdict: if published { Verdict::on_stand_in(met) } else { Verdict::by_own_bar(met) },
            why: bar.why,
        }
    }

    /// The rows of claims.
    pub fn rows(&self) -> Vec<Row> {
        BARS.iter().map(|bar| self.row(bar)).collect()
    }

    fn table(&self) -> String {
        let mut text = "| policy |".to_owned();
        for (name, _) in COLUMNS {
            _ = write!(text, " {name} |");
        }
        _ = writeln!(text, "\n| --- |{}", " --- |".repeat(COLUMNS.len()));
        for policy in POLICIES {
            _ = write!(text, "| {} |", policy.name());
            for (_, what) in COLUMNS {
                _ = write!(text, " {} |", percent(interval(&self.of(policy, what))));
            }
            text += "\n";
        }
        text
    }

    fn of_faults(&self) -> String {
        let mut text = "| fault | hit requests | LMAP alone covers | errors and latency cover | LMAP alone keeps beyond, in seconds of traffic | of that before, during and after the fault |\n\
                        | --- | --- | --- | --- | --- | --- |\n"
            .to_owned();
        for (place, planned) in self.scene.plan.iter().enumerate() {
            // Skips seeds without hit requests, which have no coverage.
            let hit: Vec<_> = self.outcomes.iter().map(|outcome| outcome.faults[place]).collect();
            let shares = |what: fn(&super::run::FaultOutcome) -> f64| {
                let of: Vec<f64> = hit.iter().filter(|of| of.hit > 0.0).map(what).collect();
                if of.len() > 1 { percent(interval(&of)) } else { "–".to_owned() }
            };
            let mean = |what: fn(&super::run::FaultOutcome) -> f64| interval(&hit.iter().map(what).collect::<Vec<_>>());
            let ((hits, spread), (beyond, half)) = (mean(|of| of.hit), mean(|of| of.beyond.iter().sum()));
            let (lmap, plain) = (shares(|of| of.lmap), shares(|of| of.plain));
            let [before, during, after] = [mean(|of| of.beyond[0]), mean(|of| of.beyond[1]), mean(|of| of.beyond[2])];
            let when = format!("{:.1}, {:.1}, {:.1}", before.0, during.0, after.0);
            let name = planned.0;
            _ = writeln!(
                text,
                "| {name} | {hits:.0} ± {spread:.0} | {lmap} | {plain} | {beyond:.1} ± {half:.1} | {when} |"
            );
        }
        text
    }

    fn counts(&self) -> String {
        let mean = |at: usize| interval(&self.outcomes.iter().map(|of| of.counts[at] as f64).collect::<Vec<_>>()).0;
        let (partial, traces) = (self.outcomes.iter().map(|of| of.partial).sum::<usize>(), mean(0));
        let idle = interval(&self.outcomes.iter().map(|of| of.false_share).collect::<Vec<_>>());
        format!(
            "{traces:.0} traces a seed. {:.0} of them are symptomatic by the publication's definition; by ours, faults hit {:.0} and {:.0} are \
             the quiet tail. The LMAP trigger kept {} of the traces while no fault was near (5 s before one to 20 s after it). Traces that all \
             together kept in part: {partial}.",
            mean(3),
            mean(1),
            mean(2),
            percent(idle),
        )
    }
}

/// Rows of the JSON file.
pub fn json(series: &[Series]) -> Result<String> {
    let rows = series.iter().flat_map(Series::rows).map(|row| {
        let Row { id, claim, published, ours, chosen, bar, verdict, .. } = row;
        let verdict = verdict.to_string();
        json!({
            "id": id, "claim": claim, "published": published, "ours": ours, "ours_on_seeds_1_to_20": chosen, "bar": bar,
            "verdict": verdict,
        })
    });
    Ok(serde_json::to_string_pretty(&Value::from(rows.collect::<Vec<_>>()))? + "\n")
}

/// How many rows have each verdict.
pub fn summary(series: &[Series]) -> String {
    Verdict::summary(series.iter().flat_map(Series::rows).map(|row| row.verdict))
}

/// The page with `head`, which says how it is measured, below its first table.
pub fn page(series: &[Series], head: &str) -> String {
    let mut text = format!(
        "# What the trace hooks are worth\n\nMade by `cargo lab reproduce hooks`. Verdicts: {}. How it is measured: \
         [below](#how-it-is-measured).\n\n| id | claim | published | ours, seeds 201 to 220 | seeds 1 to 20 | bar, in every seed | verdict |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
        summary(series),
    );
    let rows: Vec<Row> = series.iter().flat_map(Series::rows).collect();
    for Row { id, claim, published, ours, chosen, bar, verdict, .. } in &rows {
        _ = writeln!(text, "| {id} | {claim} | {published} | {ours} | {chosen} | {bar} | {} |", verdict.cell());
    }
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.verdict.holds()) {
        reasons.entry(row.why).or_default().push(format!("`{}`", row.id));
    }
    for (why, ids) in reasons {
        _ = write!(text, "\n{}: {why}\n", ids.join(", "));
    }
    _ = write!(text, "\n## How it is measured\n\n{}\n\n{}\n", Verdict::MEANING, head.trim_end());
    for series in series {
        _ = write!(
            text,
            "\n## {}\n\n{}\n\n{}\n{}",
            capital(series.every),
            series.counts(),
            series.table(),
            series.of_faults()
        );
    }
    text + "\nCoverage of hit requests against kept traces in the demo's shop, mean over the seeds (rings: the shorter rows; dashed: kept at random)\n\n\
            ![Coverage of hit requests against kept traces](hooks-coverage.svg)\n"
}

/// The text with a capital first letter.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Coverage against the share kept, of the first shop.
pub fn svg(series: &[Series]) -> String {
    let of_first = series.iter().take_while(|other| core::ptr::eq(other.scene, series[0].scene));
    let dots = of_first.flat_map(|series| {
        let dot = |policy: Policy| Dot {
            name: policy.id(),
            hollow: !series.suffix.is_empty(),
            kept: interval(&series.of(policy, |of| of.kept)).0,
            covered: interval(&series.of(policy, |of| of.covered)).0,
        };
        POLICIES.into_iter().map(dot)
    });
    plot(&dots.collect::<Vec<_>>())
}

/// Rows of the stored table `json` whose verdict `series` does not confirm, those that were not computed, and computed
/// ones that are not stored. A row that fails there may hold here, with fewer seeds.
pub fn broken(series: &[Series], json: &str) -> Result<Vec<String>> {
    let committed: Vec<BTreeMap<String, String>> =
        serde_json::from_str(json).context("docs/reproduction/hooks.json")?;
    let rows: Vec<Row> = series.iter().flat_map(Series::rows).collect();
    let unconfirmed = committed.iter().filter_map(|stored| {
        let [id, verdict] = ["id", "verdict"].map(|key| stored.get(key).map_or("", String::as_str));
        match rows.iter().find(|row| row.id == id) {
            None => Some(format!("{id} was not computed")),
            Some(row) if verdict == Verdict::Fails.to_string() || verdict == row.verdict.to_string() => None,
            Some(row) => Some(format!("{id} {}: {} ({})", row.verdict, row.ours, row.bar)),
        }
    });
    let is_stored = |id: &str| committed.iter().any(|stored| stored.get("id").is_some_and(|of| of == id));
    let unstored = rows.iter().filter(|row| !is_stored(&row.id)).map(|row| format!("{} is not stored", row.id));
    Ok(unconfirmed.chain(unstored).collect())
}
