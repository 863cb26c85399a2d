//! An incident as one page of HTML that needs no other file and no network: to be attached to a post-mortem.
//!
//! Whatever services say becomes text ([`wire::printable::markup`]); there is no script, and a policy within the page
//! forbids everything but its own style. Attributes of spans are not in it, and neither are values of variables.

mod tables;
mod timeline;
mod waterfall;

use page::assets::asset;
use wire::printable::markup;
use wire::proto::operators::Incident;

use crate::words;

/// What the file needs beside the style of the live page.
const STYLE: &str = include_str!("draw/incident.css");

/// The page of `incident`.
#[must_use]
pub fn page(incident: &Incident) -> String {
    let style = asset("/style.css").map_or("", |asset| asset.text);
    let (id, node) = (markup(&incident.id), markup(&incident.node));
    let parts = [
        tables::head(incident),
        section("Time line", &timeline::draw(incident)),
        section("What was changed", &tables::changes(incident)),
        section("Services, the suspected cause first", &tables::services(incident)),
        section("What stood out", &tables::metrics(incident)),
        section("Kept traces", &waterfall::draw(incident)),
        section("What was normal before", &tables::usual(incident)),
    ];
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Incident {id} of {node}</title>\n\
         <style>\n{style}{STYLE}</style>\n</head>\n<body>\n<main>\n{}</main>\n</body>\n</html>\n",
        parts.concat()
    )
}

fn section(title: &str, body: &str) -> String {
    if body.is_empty() { String::new() } else { format!("<section>\n<h2>{title}</h2>\n{body}</section>\n") }
}

/// The last moment that is drawn or counted, in nanoseconds since 1970.
fn last(incident: &Incident) -> u64 {
    let scored = incident.services.iter().map(|service| {
        let seconds = service.ratios.len() as u64 * u64::from(service.ratio_step_s.max(1));
        service.ratios_from_s.saturating_add(seconds).saturating_mul(1_000_000_000)
    });
    scored.max().unwrap_or_default().max(incident.ended_unix_ns).max(incident.began_unix_ns)
}

/// From when to when, and how long.
fn duration(incident: &Incident) -> String {
    let (began, ended) = (incident.began_unix_ns, incident.ended_unix_ns);
    let since = words::clock(began);
    match ended {
        0 => format!("since {since}, it goes on"),
        _ => {
            let cut = if incident.cut_short { ", cut short by the end of the agent" } else { "" };
            let length = words::length(ended.saturating_sub(began));
            format!("{since} to {}, {length}{cut}", words::clock(ended))
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use wire::proto::operators::{IncidentChange, IncidentService, IncidentSpan, IncidentTrace, Reason};

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    /// Names that would be markup, end an attribute, turn the line, or be a line of their own.
    const HOSTILE: [&str; 6] = [
        "<img src=x onerror=window.hit=1>",
        "<script>window.hit=1</script>",
        "\" onmouseover=\"window.hit=1",
        "' style='background:url(//evil)",
        "a\u{202e}b\u{2028}c\nd\u{1b}[2J",
        "</style></title>&amp;<!--",
    ];

    fn service(name: &str, rank: u32) -> IncidentService {
        let reason = Reason {
            column: format!("queue.depth{{route=\"{name}\"}}"),
            group: "service".to_owned(),
            unit: "s".to_owned(),
            share: 0.8,
            seen: 0.18,
            expected: 0.02,
            since_us: 3_000_000,
        };
        IncidentService {
            service: name.to_owned(),
            rank,
            points_at: name.to_owned(),
            began_unix_ns: (1_000 + u64::from(rank)) * SECOND,
            ended_unix_ns: 1_060 * SECOND,
            alarms: 1,
            peak: 12.0,
            peak_unix_ns: 1_010 * SECOND,
            metrics: vec![reason],
            silent_replicas: vec![name.to_owned()],
            usual: 0.3,
            usual_maximum: 0.7,
            usual_seconds: 120,
            ratios_from_s: 880,
            ratio_step_s: 1,
            ratios: (0..210).map(|at| if at > 120 { 9.0 } else if at == 60 { f32::NAN } else { 0.3 }).collect(),
        }
    }

    /// An incident in which everything is called `name`.
    pub(crate) fn incident(name: &str) -> Incident {
        let span = |id, parent, side: &str| IncidentSpan {
            id,
            parent,
            service: name.to_owned(),
            name: name.to_owned(),
            side: side.to_owned(),
            after_ns: id * 1_000,
            took_ns: 5_000,
            failed: id == 2,
        };
        let trace = IncidentTrace {
            id: name.to_owned(),
            began_unix_ns: 1_005 * SECOND,
            took_ns: 9_000,
            policy: name.to_owned(),
            reason: name.to_owned(),
            spans: vec![span(1, None, "server"), span(2, Some(1), "client"), span(3, Some(3), name), span(4, Some(9), "")],
            further_spans: 3,
        };
        let change = IncidentChange {
            at_unix_ns: 988 * SECOND,
            service: name.to_owned(),
            kind: "version".to_owned(),
            text: name.to_owned(),
            precedes_alarm: true,
        };
        Incident {
            id: "20261127-064215-123".to_owned(),
            node: name.to_owned(),
            began_unix_ns: 1_000 * SECOND,
            ended_unix_ns: 1_060 * SECOND,
            services: vec![service(name, 1), service(&format!("{name}2"), 2)],
            further_services: 4,
            changes: vec![change],
            traces: vec![trace],
            kept_traces: 12,
            cause: name.to_owned(),
            cut_short: true,
        }
    }

    #[test]
    fn the_file_needs_nothing_else() {
        let page = page(&incident("payment"));

        for outside in ["<script", "<link", "<img", "<iframe", "@import", "src=", "href=\"http", "http://", "https://"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("default-src 'none'"));
        assert_eq!(page.matches("url(").count(), page.matches("url(#above-").count(), "parts of the page itself");
    }

    #[test]
    fn what_others_say_is_text_wherever_it_stands() {
        for name in HOSTILE {
            let page = page(&incident(name));
            let style = page.find("</style>").unwrap();
            let body = &page[style + 8..];

            assert!(body.matches(&*markup(name)).count() >= 10, "{name} is in each part:\n{body}");
            for (found, tag) in [("<img", "img"), ("<script", "script"), ("<!--", "comment")] {
                assert!(!body.contains(found), "{name} became a {tag}");
            }
            assert_eq!(page.matches("</style>").count(), 1, "{name}");
            assert_eq!(page.matches("<title>").count(), page.matches("</title>").count(), "{name}");
            assert!(!page.contains("\" onmouseover=\"") && !page.contains("' style='"), "{name}");
            assert!(page.chars().all(|c| wire::printable::is_printable(c) || c == '\n'), "{name}");
        }
    }

    #[test]
    fn every_part_is_there_and_an_empty_incident_is_drawn_too() {
        let whole = page(&incident("payment"));
        for part in [
            "Incident 20261127-064215-123 of payment",
            "00:16:40 to 00:17:40, 1 min 00 s, cut short",
            "suspected cause",
            "12 s before an alarm",
            "180 ms",
            "20 ms",
            "11 further traces",
            "4 further services",
            "3 further spans",
            "median 0.30 γ",
        ] {
            assert!(whole.contains(part), "{part}:\n{whole}");
        }

        let empty = page(&Incident::default());
        assert!(empty.contains("it goes on") && empty.ends_with("</html>\n"));
    }
}
