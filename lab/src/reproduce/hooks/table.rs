//! Results as tables, JSON rows and a plot for the documentation.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::plot::{Dot, plot};
use super::run::{Outcome, POLICIES, Policy, Shares};
use super::shop::Scene;

/// Bars of the evaluation.
const COVERS: f64 = 0.9;
const BEYOND: f64 = 0.05;
const TIMES: f64 = 4.5;
const TOGETHER: f64 = 0.99;

impl Policy {
    const fn id(self) -> &'static str {
        match self {
            Self::Head(10) => "head-1",
            Self::Head(50) => "head-5",
            Self::Head(_) => "head-20",
            Self::HeadAtOurs => "head-at-ours",
            Self::Oracle => "oracle",
            Self::Plain => "error-latency",
            Self::Lmap => "lmap",
            Self::All => "together",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Head(10) => "head sampling, 1 %",
            Self::Head(50) => "head sampling, 5 %",
            Self::Head(_) => "head sampling, 20 %",
            Self::HeadAtOurs => "head sampling with the bytes of all together",
            Self::Oracle => "an oracle that knows the faults, by operation and second",
            Self::Plain => "errors and latency above the learnt 99th percentile",
            Self::Lmap => "LMAP trigger alone",
            Self::All => "all together (the defaults)",
        }
    }
}

/// A column of a table: its heading and its value.
type Column = (&'static str, fn(&Shares) -> f64);
const COLUMNS: [Column; 6] = [
    ("coverage", |of| of.covered),
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

fn percent((mean, half): (f64, f64)) -> String {
    format!("{:.2} ± {:.2} %", 100.0 * mean, 100.0 * half)
}

/// One row of a table.
pub struct Row {
    pub id: String,
    claim: String,
    published: String,
    ours: String,
    tolerance: String,
    /// Whether the bar is met; `None` without a bar.
    pub holds: Option<bool>,
    /// Why the bar is not met.
    why: &'static str,
}

/// All seeds at one interval.
pub struct Series {
    /// Name of the interval, and its part of ids.
    pub every: &'static str,
    pub suffix: &'static str,
    pub scene: &'static Scene,
    pub outcomes: Vec<Outcome>,
}

impl Series {
    fn of(&self, policy: Policy, what: fn(&Shares) -> f64) -> Vec<f64> {
        self.outcomes.iter().filter_map(|outcome| outcome.shares.get(&policy)).map(what).collect()
    }

    fn bar(&self, (id, claim, published): (&str, &str, &str), values: &[f64], bar: Bar) -> Row {
        let (mean, half) = interval(values);
        let worst = values.iter().copied().reduce(if bar.is_least { f64::min } else { f64::max }).unwrap_or(f64::NAN);
        let within = |value: f64| if bar.is_least { value >= bar.limit } else { value <= bar.limit };
        let missed = values.iter().filter(|value| !within(**value)).count();
        let ours = if bar.is_share {
            format!("{}; worst seed {:.2} %", percent((mean, half)), 100.0 * worst)
        } else {
            format!("{mean:.2} ± {half:.2}; worst seed {worst:.2}")
        };
        let seeds = values.len();
        let ours = if missed > 0 { format!("{ours}; missed in {missed} of {seeds} seeds") } else { ours };
        Row {
            id: format!("{id}{}", self.suffix),
            claim: format!("{claim}, {}", self.every),
            published: published.to_owned(),
            ours,
            tolerance: "in every seed".to_owned(),
            holds: Some(missed == 0),
            why: bar.why,
        }
    }

    /// The rows with bars.
    pub fn bars(&self) -> Vec<Row> {
        let least = |limit, why| Bar { limit, is_least: true, is_share: true, why };
        let (lmap, head) = (self.of(Policy::Lmap, |of| of.covered), self.of(Policy::Head(200), |of| of.covered));
        let times: Vec<f64> = lmap.iter().zip(&head).map(|(lmap, head)| lmap / head).collect();
        let beyond = self.of(Policy::Lmap, |of| of.beyond);
        let all = self.of(Policy::All, |of| of.covered);
        let (covers, exceeds) = (WHY_COVERS, WHY_BEYOND);
        vec![
            self.bar(("lmap-covers", "LMAP alone covers the hit requests", "≥ 90 %"), &lmap, least(COVERS, covers)),
            self.bar(
                ("lmap-beyond", "LMAP alone keeps, beyond the hit requests, of all traces", "≤ 5 %"),
                &beyond,
                Bar { is_least: false, ..least(BEYOND, exceeds) },
            ),
            self.bar(
                ("lmap-head-20", "LMAP alone covers so many times what head sampling at 20 % covers", "≥ 4.5"),
                &times,
                Bar { is_share: false, ..least(TIMES, covers) },
            ),
            self.bar(
                ("together-covers", "all together cover the hit requests", "≥ 99 %"),
                &all,
                least(TOGETHER, WHY_TOGETHER),
            ),
        ]
    }

    /// The results of each policy, as rows without bars.
    fn measured(&self) -> Vec<Row> {
        let row = |policy: Policy| {
            let cells = COLUMNS.map(|(name, what)| format!("{name} {}", percent(interval(&self.of(policy, what)))));
            Row {
                id: format!("table-{}{}", policy.id(), self.suffix),
                claim: format!("{}, {}", policy.name(), self.every),
                published: "–".to_owned(),
                ours: cells.join("; "),
                tolerance: "none: for comparison".to_owned(),
                holds: None,
                why: "",
            }
        };
        POLICIES.into_iter().map(row).collect()
    }

    fn table(&self) -> String {
        let mut text = "| policy |".to_owned();
        for (name, _) in COLUMNS {
            _ = write!(text, " {name} |");
        }
        text += "\n| --- | --- | --- | --- | --- | --- | --- |\n";
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
            "{traces:.0} traces a seed, of which faults hit {:.0} and {:.0} are the quiet tail. The LMAP trigger kept {} of the traces while no \
             fault was near (5 s before one to 20 s after it). Traces that all together kept in part: {partial}.",
            mean(1),
            mean(2),
            percent(idle),
        )
    }
}

#[derive(Clone, Copy)]
struct Bar {
    limit: f64,
    is_least: bool,
    is_share: bool,
    why: &'static str,
}

const WHY_COVERS: &str = "the CPU hog and errors of one operation are missed in part: at 100 ms a row has ten requests, so that a small change takes long to show.";
const WHY_BEYOND: &str = "a verdict keeps all requests for what it is about, of the time of its row and the second before it, whether the fault hit them or not.";
const WHY_TOGETHER: &str =
    "what LMAPs miss is left to the latency policy, whose quantile is learnt from what came before and known to 6 %.";

impl Row {
    const fn verdict(&self) -> &'static str {
        match self.holds {
            Some(true) => "holds",
            Some(false) => "fails",
            None => "reported",
        }
    }
}

/// Rows of the JSON file.
pub fn json(series: &[Series]) -> Result<String> {
    let rows = series.iter().flat_map(|series| series.bars().into_iter().chain(series.measured()));
    let rows = rows.map(|row| {
        let verdict = row.verdict();
        let Row { id, claim, published, ours, tolerance, .. } = row;
        json!({ "id": id, "claim": claim, "published": published, "ours": ours, "tolerance": tolerance, "verdict": verdict })
    });
    Ok(serde_json::to_string_pretty(&Value::from(rows.collect::<Vec<_>>()))? + "\n")
}

/// The page with `head` above the tables.
pub fn page(series: &[Series], head: &str) -> String {
    let bars: Vec<Row> = series.iter().flat_map(Series::bars).collect();
    let count = |holds| bars.iter().filter(|row| row.holds == Some(holds)).count();
    let mut text = format!(
        "# What the trace hooks are worth\n\nMade by `cargo lab reproduce hooks`. {} hold, {} fail.\n\n{head}\n\
         | id | claim | published | ours | tolerance | verdict |\n| --- | --- | --- | --- | --- | --- |\n",
        count(true),
        count(false)
    );
    for row in &bars {
        let verdict = if row.holds == Some(true) { "holds".to_owned() } else { format!("**{}**", row.verdict()) };
        let Row { id, claim, published, ours, tolerance, .. } = row;
        _ = writeln!(text, "| {id} | {claim} | {published} | {ours} | {tolerance} | {verdict} |");
    }
    for row in bars.iter().filter(|row| row.holds == Some(false) && !row.why.is_empty()) {
        _ = write!(text, "\n`{}` fails: {}\n", row.id, row.why);
    }
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

/// Claims that hold in the stored table `kept` but not for `series`.
pub fn broken(series: &[Series], kept: &str) -> Result<Vec<String>> {
    let kept: Vec<BTreeMap<String, String>> = serde_json::from_str(kept).context("docs/reproduction/hooks.json")?;
    let text = |row: &BTreeMap<String, String>, key| row.get(key).cloned().unwrap_or_default();
    let held = |id: &str| kept.iter().any(|row| text(row, "id") == id && text(row, "verdict") == "holds");
    let bars = series.iter().flat_map(Series::bars).filter(|row| held(&row.id) && row.holds != Some(true));
    Ok(bars.map(|row| format!("{}: {} ({})", row.id, row.ours, row.published)).collect())
}
