//! A receipt as a self-contained web page: no network, no script, light and dark. Pure.

use std::fmt::Write as _;

use wire::printable::markup;

use super::logs;
use super::view::{COLUMNS, Day, EXPLAINED, Service, View};

const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #202021; --faint: #d0d0d1; --paper: #fff; --bar: #3b6ea8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e4e5; --faint: #47474a; --paper: #17171a; --bar: #7ab0ea; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 0; }
main { max-width: 1160px; margin: 0 auto; padding: 1rem 1.5rem 4rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0; }
th, td { border-bottom: 1px solid var(--faint); padding: .15rem .7rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child, .words { text-align: left; }
tr:last-child td { font-weight: 600; }
meter { width: 8rem; }
";

/// The receipt as HTML.
#[must_use]
pub(super) fn page(view: &View) -> String {
    let title = format!("uview receipt, {}", markup(&view.node));
    let days: String = view.days.iter().rev().map(day).collect();
    let days = if days.is_empty() { "<p>Nothing is recorded yet.</p>\n".to_owned() } else { days };
    let mut history = String::new();
    for note in view.history() {
        let _ = writeln!(history, "<p>{}.</p>", markup(&note));
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n<p>Recorded since {}. {EXPLAINED}</p>\n{history}{days}</main>\n</body>\n</html>\n",
        markup(&view.since)
    )
}

fn day(day: &Day) -> String {
    let mut html = format!("<h2>{}</h2>\n", markup(&day.date));
    let (kept, all) = (day.total.kept_failed_requests, day.total.failed_requests);
    if all > 0 {
        let bar = |of: f64| format!("<meter min=\"0\" max=\"{all}\" value=\"{of:.1}\">{of:.1}</meter>");
        let (ours, head) = (bar(kept as f64), bar(day.total.head_failed_requests));
        let _ = writeln!(
            html,
            "<p>Failed requests kept: {ours} {kept} of {all}. Head sampling at the same number of bytes: {head} {:.1}.</p>",
            day.total.head_failed_requests
        );
    }
    html.push_str("<div class=\"wide\"><table>\n");
    html.push_str(&row("th", &COLUMNS.map(str::to_owned)));
    for service in day.services.iter().chain([&day.total]) {
        html.push_str(&row("td", &Service::cells(service)));
    }
    html.push_str("</table></div>\n");
    if !day.logs.is_empty() {
        html.push_str("<div class=\"wide\"><table>\n");
        html.push_str(&row("th", &logs::COLUMNS.map(str::to_owned)));
        day.logs.iter().for_each(|logs| html.push_str(&row("td", &logs.cells())));
        html.push_str("</table></div>\n");
    }
    let counts: Vec<_> = day.counts().map(|(name, value)| format!("{} {}", markup(&name), markup(&value))).collect();
    let _ = writeln!(html, "<p>The agent: {}.</p>", counts.join(", "));
    html
}

fn row(tag: &str, cells: &[String]) -> String {
    let mut html = "<tr>".to_owned();
    for cell in cells {
        let _ = write!(html, "<{tag}>{}</{tag}>", markup(cell));
    }
    html + "</tr>\n"
}
