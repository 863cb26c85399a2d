//! The file: hostile names stay text, every part is there, nothing is fetched.

use wire::proto::operators::{
    IncidentChange, IncidentFigure, IncidentLog, IncidentProfile, IncidentService, IncidentSpan, IncidentStack,
    IncidentStream, IncidentTrace, Reason,
};

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
        about: "10.0.0.7".to_owned(),
        replica: name.to_owned(),
        ..Reason::default()
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
        ratios: (0..210)
            .map(|at| {
                if at > 120 {
                    9.0
                } else if at == 60 {
                    f32::NAN
                } else {
                    0.3
                }
            })
            .collect(),
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
    let log = IncidentLog {
        at_unix_ns: 1_006 * SECOND,
        severity: 17,
        service: name.to_owned(),
        text: name.to_owned(),
        trace: name.to_owned(),
        policy: name.to_owned(),
        reason: name.to_owned(),
        level: name.to_owned(),
    };
    let change = IncidentChange {
        at_unix_ns: 988 * SECOND,
        service: name.to_owned(),
        kind: "version".to_owned(),
        text: name.to_owned(),
        precedes_alarm: true,
    };
    let profile = IncidentProfile {
        service: name.to_owned(),
        event: name.to_owned(),
        samples: 3,
        names: vec![name.to_owned()],
        stacks: vec![IncidentStack { frames: vec![0, 0], samples: 3 }],
        ..IncidentProfile::default()
    };
    let figure = IncidentFigure { metric: name.to_owned(), unit: name.to_owned(), ..IncidentFigure::default() };
    let stream = IncidentStream { service: name.to_owned(), figures: vec![figure], ..IncidentStream::default() };
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
        profiles: vec![profile],
        logs: vec![log],
        kept_logs: 31,
        streams: vec![stream],
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
        "30 further log records",
        "00:16:46",
        "4 further services",
        "3 further spans",
        "median 0.30 γ",
    ] {
        assert!(whole.contains(part), "{part}:\n{whole}");
    }

    let empty = page(&Incident::default());
    assert!(empty.contains("it goes on") && empty.ends_with("</html>\n"));
}
