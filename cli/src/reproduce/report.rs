//! The claims as a Markdown table and as JSON. Pure.

use std::fmt::Write as _;

use demo::autoscale::AutoscaleRecord;
use evaluation::reproduction::sampling::SamplingPoint;
use evaluation::reproduction::{Claim, Verdict};
use serde::Serialize;

use super::overload;

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
        let verdict = match verdict {
            Verdict::Holds => "holds".to_owned(),
            other => format!("**{other}**"),
        };
        let _ = writeln!(text, "| {id} | {claim} | {published} | {ours} | {tolerance} | {verdict} |");
    }
    text
}

/// The Markdown page: the table, then the data of dynamic sampling and of the overload experiment.
#[must_use]
pub fn page(claims: &[Claim], curve: Option<&[SamplingPoint]>, autoscaled: Option<&AutoscaleRecord>) -> String {
    let count = |verdict: Verdict| claims.iter().filter(|claim| claim.verdict == verdict).count();
    let (holds, fails, unknown) = (count(Verdict::Holds), count(Verdict::Fails), count(Verdict::NotComputable));
    let mut text = format!(
        "# Chapter 4 of uView, claim by claim\n\n\
         Made by `cargo lab reproduce uview`, with the data that `UVIEW_DATA` names ([detection.md](../detection.md) says what it is). \
         Every run measures anew: the experiment with replicas depends on the machine. {holds} hold, {fails} fail, {unknown} cannot be \
         computed here; what would be needed is said in place of the figure.\n\n\
         The sweeps and the sampling use the paper's relative form as far as the chapter describes it; metrics that stand still in training \
         are left out and drifting gauges are differenced, or their size alone would be the score. *redis* is one server with 141 metrics at \
         1 s, *boutique* the mean of the units of Online Boutique with a fault, 19 metrics at 1 min.\n\n{}",
        table(claims)
    );
    if let Some(curve) = curve {
        text.push_str("\n## Dynamic sampling\n\n| threshold | saved | loss |\n| --- | --- | --- |\n");
        for SamplingPoint { threshold, saved, loss } in curve {
            let _ = writeln!(text, "| {threshold:.2} | {:.0} % | {:.1} % |", 100.0 * saved, 100.0 * loss);
        }
    }
    if let Some(run) = autoscaled {
        text.push_str(&timeline(run));
    }
    text
}

/// The highest scores of every ten seconds, with the events of the run.
fn timeline(run: &AutoscaleRecord) -> String {
    let mut text = "\n## Overload\n\nOne replica of the shop's cart can serve about 45 requests a second. Highest scores as multiples of γ, live \
                    and by the paper's form, in every 10 s; seconds since the start.\n\n| from | live | paper | |\n| --- | --- | --- | --- |\n"
        .to_owned();
    let (live, papers) = (overload::live(run), overload::papers(run).unwrap_or_default());
    let highest = |timeline: &overload::Timeline, from: f64| {
        let within =
            timeline.ratios.iter().filter(|(at, _)| *at >= from && *at < from + PART_S).map(|(_, ratio)| *ratio);
        within.fold(0.0, f64::max)
    };
    let end = run.rows.last().map_or(0.0, |row| row.at_s);
    let mut from = (run.grows_from_s - 3.0 * PART_S).max(0.0);
    while from < end {
        let in_part = |at: f64| at >= from && at < from + PART_S;
        let mut notes: Vec<String> = Vec::new();
        notes.extend(in_part(run.grows_from_s).then(|| "the load begins to grow".to_owned()));
        notes.extend(run.added_s.iter().filter(|at| in_part(**at)).map(|_| "a replica more".to_owned()));
        notes
            .extend(run.overloaded_from_s.filter(|at| in_part(*at)).map(|_| "no further replica: overload".to_owned()));
        notes.extend(run.alarms.iter().filter(|alarm| in_part(alarm.began_s)).map(|_| "alarm".to_owned()));
        let (live, papers) = (highest(&live, from), highest(&papers, from));
        let _ = writeln!(text, "| {from:.0} | {live:.2} | {papers:.2} | {} |", notes.join(", "));
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
        vec![claim("a").found("5.2 %".to_owned(), true), claim("b").found("9 %".to_owned(), false), claim("c")]
    }

    #[test]
    fn the_page_counts_verdicts_and_shows_every_claim() {
        let page = page(&claims(), Some(&[SamplingPoint { threshold: 0.5, saved: 0.32, loss: 0.011 }]), None);

        assert!(page.contains("1 hold, 1 fail, 1 cannot be computed"), "{page}");
        assert!(page.contains("| a | it is so | 5 % | 5.2 % | ± 1 % | holds |"), "{page}");
        assert!(page.contains("| c | it is so | 5 % | a card | ± 1 % | **not computable** |"), "{page}");
        assert!(page.contains("| 0.50 | 32 % | 1.1 % |"), "{page}");
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
