//! The claims as a Markdown table and as JSON. Pure.

use std::fmt::Write as _;

use evaluation::reproduction::sampling::{SamplingCurve, SamplingPoint};
use evaluation::reproduction::{Claim, Verdict};
use serde::Serialize;

use super::overload::OverloadRun;
use super::overload::timeline::Timeline;

/// Seconds per row of the printed timeline.
const PART_S: f64 = 10.0;

/// One claim as JSON. Field names are part of the file's format.
#[derive(Debug, Serialize)]
pub struct Row<'a> {
    id: &'a str,
    claim: &'a str,
    published: &'a str,
    ours: &'a str,
    tolerance: &'a str,
    verdict: String,
}

/// The claims as rows of the JSON file.
#[must_use]
pub fn rows(claims: &[Claim]) -> Vec<Row<'_>> {
    claims.iter().map(row).collect()
}

fn row(claim: &Claim) -> Row<'_> {
    let Claim { id, claim, published, ours, tolerance, verdict } = claim;
    Row { id, claim, published, ours, tolerance, verdict: verdict.to_string() }
}

/// The claims as a Markdown table.
#[must_use]
pub fn table(claims: &[Claim]) -> String {
    let mut text =
        "| id | claim | published | ours | tolerance | verdict |\n| --- | --- | --- | --- | --- | --- |\n".to_owned();
    for Claim { id, claim, published, ours, tolerance, verdict } in claims {
        let verdict = verdict.cell();
        let _ = writeln!(text, "| {id} | {claim} | {published} | {ours} | {tolerance} | {verdict} |");
    }
    text
}

/// How the claims are measured.
const HEAD: &str = "Every run measures anew: the experiment with replicas depends on the machine. A claim about it holds if its bar is met in \
every run.

- **Data**: the chapter's metrics are not in its public repository. *redis* is one server with 150 metrics at 1 s, *boutique* the mean of the units of Online Boutique with a \
fault, 19 metrics at 1 min; the system with replicas is the demo's cart. So no claim about detection can hold but on a stand-in.
- **The paper's form**: k, l and q as in the row, relative score, U renewed at every row below γ, γ in sample, no smoothing, an alarm from γ on. Rows with \
`-buffered` differ in one thing: U is renewed after l + 1 learnt rows, as in our detectors. The \
chapter does not say what becomes of metrics that stand still in training or drift: here the former are left out and drifting gauges are differenced, \
or their size alone would be the score. Rows of the overload without `-paper` are of our default detector, as the NIC agent judged live.
- **Loss** of a metric is |1 − NCC| at lag 0, with NCC = Σ x h / Σ x² of what was there (x) and the value sent last (h); then the mean over the metrics that \
vary. [sampling.md](sampling.md) has the same definition. *Centred*: the mean of x is subtracted from both first, for the chapter's *corr* may mean either.
- **Memory** is that of detectors that were built and trained for it.";

/// The Markdown page: the table, then the data of dynamic sampling and of the overload experiment.
#[must_use]
pub fn page(claims: &[Claim], curves: &[SamplingCurve], runs: &[OverloadRun]) -> String {
    let mut text = format!(
        "# Chapter 4 of uView, claim by claim\n\nMade by `cargo lab reproduce uview`, with the data that `UVIEW_DATA` names \
         ([detection.md](detection.md) says what it is). Verdicts: {}. How it is measured: [below](#how-it-is-measured).\n\n{}\n\
         ## How it is measured\n\n{}\n\n{HEAD}\n",
        Verdict::summary(claims.iter().map(|claim| claim.verdict)),
        table(claims),
        Verdict::MEANING,
    );
    if !curves.is_empty() {
        text.push_str(&sampling(curves));
    }
    if !runs.is_empty() {
        text.push_str(
            "\n## Overload\n\nOne replica of the shop's cart can serve about 45 requests a second. Highest scores as multiples of γ, live \
             and by the paper's form, whose score is at most 1, in every 10 s; seconds since the start of each run.\n",
        );
    }
    for (number, run) in (1..).zip(runs) {
        let _ = write!(text, "\n### Run {number}\n\n{}", timeline(run));
    }
    text
}

/// What is saved and lost at each threshold: as published, then by the other readings.
fn sampling(curves: &[SamplingCurve]) -> String {
    let mut text = "\n## Dynamic sampling\n\nRow-wise as published, then buffered.\n\n| threshold |".to_owned();
    text.push_str(&" saved | loss | centred |".repeat(curves.len()));
    let _ = writeln!(text, "\n| --- |{}", " --- | --- | --- |".repeat(curves.len()));
    let rows = curves.iter().map(|curve| curve.points.len()).min().unwrap_or(0);
    for row in 0..rows {
        let _ = write!(text, "| {:.2} |", curves[0].points[row].threshold);
        for SamplingPoint { saved, loss, centred, .. } in curves.iter().map(|curve| curve.points[row]) {
            let [saved, loss, centred] = [saved, loss, centred].map(|share| 100.0 * share);
            let _ = write!(text, " {saved:.0} % | {loss:.1} % | {centred:.1} % |");
        }
        text.push('\n');
    }
    text
}

/// The highest scores of every ten seconds, with the events of the run.
fn timeline(of: &OverloadRun) -> String {
    let run = &of.record;
    let mut text = "| from | live | paper | |\n| --- | --- | --- | --- |\n".to_owned();
    let end = run.rows.last().map_or(0.0, |row| row.at_s);
    let mut from = (run.grows_from_s - 3.0 * PART_S).max(0.0);
    while from < end {
        let in_part = |at: f64| at >= from && at < from + PART_S;
        let mut notes: Vec<&str> = Vec::new();
        notes.extend(in_part(run.grows_from_s).then_some("the load begins to grow"));
        notes.extend(run.added_s.iter().filter(|at| in_part(**at)).map(|_| "a replica more"));
        notes.extend(run.overloaded_from_s.filter(|at| in_part(*at)).map(|_| "no further replica: overload"));
        notes.extend(run.alarms.iter().filter(|alarm| in_part(alarm.began_s)).map(|_| "alarm"));
        let highest = |scores: &Timeline| {
            let is_judged = scores.ratios.iter().any(|(at, _)| in_part(*at));
            if is_judged { format!("{:.2}", scores.highest(from, from + PART_S)) } else { "–".to_owned() }
        };
        let (live, paper) = (highest(&of.live), highest(&of.paper));
        let _ = writeln!(text, "| {from:.0} | {live} | {paper} | {} |", notes.join(", "));
        from += PART_S;
    }
    let (sent, failed) = run.sent;
    let _ = writeln!(text, "\n{sent} requests, {failed} of them without a good answer; {} columns.", run.columns.len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Vec<Claim> {
        let claim = |id| Claim::without(id, "it is so", "5 %", "± 1 %", "a card");
        let found = |id, ours: &str, holds| claim(id).with(ours.to_owned(), Verdict::on_stand_in(holds));
        vec![found("a", "5.2 %", true), found("b", "9 %", false), claim("c")]
    }

    #[test]
    fn the_page_counts_verdicts_and_shows_every_claim() {
        let point = SamplingPoint { threshold: 0.5, saved: 0.32, loss: 0.011, centred: 0.03 };
        let curve = SamplingCurve { points: vec![point], squared: point };

        let page = page(&claims(), &[curve.clone(), curve], &[]);

        assert!(page.contains("Verdicts: 1 × holds on the stand-in, 1 × fails, 1 × not computable."), "{page}");
        assert!(page.contains("| a | it is so | 5 % | 5.2 % | ± 1 % | holds on the stand-in |"), "{page}");
        assert!(page.contains("| b | it is so | 5 % | 9 % | ± 1 % | **fails** |"), "{page}");
        assert!(page.contains("| c | it is so | 5 % | a card | ± 1 % | **not computable** |"), "{page}");
        assert!(page.contains("| 0.50 | 32 % | 1.1 % | 3.0 % | 32 % | 1.1 % | 3.0 % |"), "{page}");
    }

    #[test]
    fn the_json_has_the_fields_that_others_read() {
        let text = serde_json::to_string(&rows(&claims())).unwrap();

        assert!(
            text.starts_with(r#"[{"id":"a","claim":"it is so","published":"5 %","ours":"5.2 %","tolerance":"± 1 %","#)
        );
        assert!(text.contains(r#""verdict":"fails""#) && text.contains(r#""verdict":"not computable""#), "{text}");
    }
}
