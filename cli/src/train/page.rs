//! A training as a self-contained web page: no network, no script, light and dark. Pure.

use core::fmt::Write as _;

use evaluation::protocol::DetectorRun;
use evaluation::table::Label;
use evaluation::training::{self, TrialOutcome};
use lmap::{ColumnRole, QUANTILES};
use plotters::style::RGBColor;
use wire::printable::markup;
use wire::quantity::number;

use super::plots::{self, Axes, COLOURS, Line};
use super::report::Training;

/// Number of thresholds of a curve.
const THRESHOLDS: usize = 500;
/// The most rows in the table of points.
const LISTED: usize = 60;

const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #202021; --faint: #d0d0d1; --paper: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e4e5; --faint: #47474a; --paper: #17171a; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 0; }
main { max-width: 1160px; margin: 0 auto; padding: 1rem 1.5rem 4rem; }
table { border-collapse: collapse; margin: .5rem 0; }
th, td { border-bottom: 1px solid var(--faint); padding: .15rem .7rem; text-align: right; }
th:first-child, td:first-child { text-align: left; }
td.words { text-align: left; }
pre { overflow-x: auto; }
figure { display: inline-block; margin: .5rem 1rem .5rem 0; vertical-align: top; }
figcaption { max-width: 540px; }
svg text { fill: var(--ink); }
.key { display: inline-block; width: 1.6em; height: 3px; vertical-align: middle; margin: 0 .4em 0 1em; }
";

/// The report as HTML. `run` has the scores of the held-out rows at the chosen point.
#[must_use]
pub fn page(training: &Training<'_>, run: &DetectorRun) -> String {
    let title = format!("{}: training", markup(&training.input.service));
    let body = [
        format!("<h1>{title}</h1>\n<pre>{}</pre>\n", markup(&training.to_string())),
        "<h2>Scores</h2>\n".to_owned(),
        distributions(training, run),
        curves(training, run),
        "<h2>Directions k and rows l</h2>\n".to_owned(),
        sweep(training, "k: directions of the basis", |tried| tried.rank, |tried| tried.sketch_rows),
        sweep(training, "l: rows of the sketch", |tried| tried.sketch_rows, |tried| tried.rank),
        points(training),
        "<h2>Metrics</h2>\n".to_owned(),
        metrics(training),
    ]
    .concat();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

fn figure(axes: Axes, lines: &[Line], words: &str) -> String {
    let mut keys = String::new();
    for (line, RGBColor(red, green, blue)) in lines.iter().zip(COLOURS) {
        let key = format!("<span class=\"key\" style=\"background: rgb({red}, {green}, {blue})\"></span>");
        keys.push_str(&(key + &markup(line.name)));
    }
    match plots::lines(axes, lines) {
        Ok(svg) => format!("<figure>\n{svg}<figcaption>{keys}<br>{words}</figcaption>\n</figure>\n"),
        Err(error) => format!("<p>This plot could not be drawn: {}</p>\n", markup(&error)),
    }
}

fn distributions(training: &Training<'_>, run: &DetectorRun) -> String {
    let chosen = training.chosen;
    let of = |label: Label| -> Vec<f64> {
        let labelled = training.split.unit.labels.iter().zip(&run.judged);
        labelled.filter(|(other, _)| **other == label).map(|(_, judged)| judged.own).collect()
    };
    let learnt = QUANTILES.iter().zip(chosen.training);
    let learnt = learnt.map(|(percent, score)| (score / chosen.gamma, percent / 100.0)).collect();
    let mut lines = vec![
        Line { name: "training rows", points: learnt },
        plots::distribution("held out, quiet", of(Label::Normal), chosen.gamma),
    ];
    if training.split.has_faults {
        lines.push(plots::distribution("held out, fault", of(Label::Anomalous), chosen.gamma));
    }
    let words = "Cumulative distribution of unsmoothed scores, in units of γ. Held-out quiet rows should lie where the training rows \
                 do, rows with a fault far to the right of 1.";
    figure(Axes { title: "score / γ", x: (0.02, 50.0), logarithmic: true }, &lines, words)
}

fn curves(training: &Training<'_>, run: &DetectorRun) -> String {
    if !training.split.has_faults {
        return "<p>No row is labelled as a fault: precision and recall are unknown.</p>\n".to_owned();
    }
    let curve = training::ranking(training.split, run).curve(THRESHOLDS);
    let shares = |title| Axes { title, x: (0.0, 1.0), logarithmic: false };
    let roc =
        figure(shares("false positives, share of quiet rows"), &[plots::roc(&curve)], "Recall over all thresholds.");
    let words = "Precision over all thresholds. A random score would reach the share of rows with a fault.";
    roc + &figure(shares("recall"), &[plots::precision(&curve)], words)
}

/// Points along one size. Of several points with the same size, the one whose other size is nearest to the chosen
/// one's.
fn along(
    training: &Training<'_>,
    size: fn(&TrialOutcome) -> usize,
    other: fn(&TrialOutcome) -> usize,
) -> Vec<TrialOutcome> {
    let chosen = training.chosen;
    let mut found: Vec<TrialOutcome> = Vec::new();
    for tried in training.outcome.tried.iter().filter(|tried| tried.trial.percentile == chosen.trial.percentile) {
        let distance = |tried: &TrialOutcome| other(tried).abs_diff(other(chosen));
        match found.iter_mut().find(|known| size(known) == size(tried)) {
            Some(known) if distance(tried) < distance(known) => *known = *tried,
            Some(_) => {}
            None => found.push(*tried),
        }
    }
    found.sort_by_key(size);
    found
}

fn sweep(
    training: &Training<'_>,
    title: &'static str,
    size: fn(&TrialOutcome) -> usize,
    other: fn(&TrialOutcome) -> usize,
) -> String {
    let found = along(training, size, other);
    let (Some(first), Some(last)) = (found.first(), found.last()) else { return String::new() };
    if found.len() < 2 {
        return format!("<p>{}: only one value was tried; --grid tries more.</p>\n", markup(title));
    }
    let middle = QUANTILES.iter().position(|percent| *percent == 50.0).unwrap_or(0);
    let line = |name: &'static str, value: &dyn Fn(&TrialOutcome) -> f64| Line {
        name,
        points: found.iter().map(|tried| (size(tried) as f64, value(tried))).collect(),
    };
    let mut lines = vec![
        line("median of training rows / γ", &|tried| tried.training[middle] / tried.gamma),
        line("median of held-out quiet rows / γ", &|tried| tried.quiet.scores[middle] / tried.gamma),
        line("quiet rows over γ", &|tried| tried.quiet.rate()),
    ];
    if training.split.has_faults {
        lines.push(line("precision", &|tried| tried.faults.map_or(0.0, |faults| faults.precision)));
        lines.push(line("recall", &|tried| tried.faults.map_or(0.0, |faults| faults.recall)));
        lines.push(line("F1", &|tried| tried.faults.map_or(0.0, |faults| faults.f1)));
    }
    let words = "Too small: normal behaviour is not explained, and faults hide in it. Too large: held-out rows score higher than \
                 training rows, and quiet rows exceed γ.";
    figure(Axes { title, x: (size(first) as f64, size(last) as f64), logarithmic: false }, &lines, words)
}

fn points(training: &Training<'_>) -> String {
    let mut text = "<table>\n<tr><th>k</th><th>l</th><th>q</th><th>γ</th><th>quiet rows over γ</th><th>alarms</th>\
                    <th>held-out factor</th><th>found</th><th>precision</th><th>recall</th><th>F1</th></tr>\n"
        .to_owned();
    for tried in training.outcome.tried.iter().take(LISTED) {
        let mark = if tried == training.chosen { " (kept)" } else { "" };
        let _ = write!(
            text,
            "<tr><td>{}{mark}</td><td>{}</td><td>{}</td><td>{:.2}</td><td>{:.1} %</td><td>{}</td><td>{:.2}</td>",
            tried.rank,
            tried.sketch_rows,
            number(tried.trial.percentile),
            tried.gamma,
            100.0 * tried.quiet.rate(),
            tried.quiet.alarms,
            tried.held_out_factor()
        );
        let _ = match tried.faults {
            Some(faults) => writeln!(
                text,
                "<td>{} of {}</td><td>{:.2}</td><td>{:.2}</td><td>{:.2}</td></tr>",
                tried.events.yes, tried.events.all, faults.precision, faults.recall, faults.f1
            ),
            None => writeln!(text, "<td>–</td><td>–</td><td>–</td><td>–</td></tr>"),
        };
    }
    text.push_str("</table>\n");
    if training.outcome.tried.len() > LISTED {
        let _ = writeln!(text, "<p>… and {} more; --json has all of them.</p>", training.outcome.tried.len() - LISTED);
    }
    text
}

fn metrics(training: &Training<'_>) -> String {
    let names = &training.input.table.metrics;
    let mut text =
        "<table>\n<tr><th>metric</th><th>mean</th><th>deviation</th><th>outside</th><th></th></tr>\n".to_owned();
    for (place, column) in training.model.columns.iter().enumerate() {
        let mut words = match column.role {
            ColumnRole::Watched => String::new(),
            ColumnRole::Constant => "constant: any move counts. ".to_owned(),
            ColumnRole::Unwatched => "no values. ".to_owned(),
        };
        if column.level {
            words.push_str("level: scored by its increment. ");
        }
        let like = training.metrics.redundant.iter().flatten().find(|found| found.column == place);
        if let Some(found) = like {
            let _ = write!(words, "follows {} ({:.4})", names[found.like], found.correlation);
        }
        let outside = if column.role == ColumnRole::Watched {
            format!("{:.0} %", 100.0 * column.residual)
        } else {
            "–".to_owned()
        };
        let _ = writeln!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{outside}</td><td class=\"words\">{}</td></tr>",
            markup(&names[place]),
            number(column.mean),
            number(column.deviation),
            markup(&words)
        );
    }
    text.push_str("</table>\n<p>outside: the part of a metric's deviation that the k directions do not explain.</p>\n");
    text
}
