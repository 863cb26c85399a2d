//! The report as one self-contained web page: no network access, no scripts, light or dark by the reader's setting.

mod heat;
mod ink;
mod scores;
mod tables;
mod traces;
mod waterfall;

use core::fmt::Display;
use std::path::Path;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use wire::printable::markup;

use crate::judge::Finding;
use crate::record::Record;

const STYLE: &str = include_str!("report/style.css");

/// The page as HTML.
pub(crate) fn page(record: &Record, finding: &Finding) -> String {
    let parts = [
        tables::summary(record, finding),
        tables::faults(finding),
        "<h2>Scores as multiples of γ</h2>\n".to_owned(),
        tables::legend(),
        figure(scores::plot(record, finding)),
        traces::section(record, finding),
        "<h2>Metrics with the largest shares of the scores</h2>\n<p>Each row is a metric, each column a second. The darker a cell, the larger \
         the metric's part of the squared score, in units of γ². Only the largest are shown.</p>\n"
            .to_owned(),
        figure(heat::plot(record)),
        "<h2>What explains each alarm</h2>\n".to_owned(),
        tables::metrics(finding),
        tables::rules(),
        tables::talkers(record),
        "<h2>Numbers</h2>\n".to_owned(),
        tables::numbers(record, finding),
    ];
    let (seed, body) = (record.seed, parts.concat());
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>uview demo, seed {seed}</title>\n<style>\n{STYLE}{}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        ink::style()
    )
}

fn figure<E: Display>(plot: Result<String, E>) -> String {
    match plot {
        Ok(svg) => format!("<figure>\n{svg}</figure>\n"),
        Err(error) => format!("<p>This plot could not be drawn: {}</p>\n", markup(&error.to_string())),
    }
}

/// The `file:` URL of the page at `path`.
pub(crate) fn address(path: &Path) -> String {
    const OTHERS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    format!("file://{}", utf8_percent_encode(&path.display().to_string(), OTHERS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Service;
    use crate::judge::example::{event, labelled, reason, run};
    use crate::judge::judge;
    use crate::record::Episode;

    fn example() -> Record {
        let mut record = run();
        let mut began = event(Service::Store, 60_231, 6.3, Episode::Began);
        began.reasons = vec![labelled(reason("queue.depth", 0.6, 12.0), "a", "<b>")];
        record.events = vec![began];
        record
    }

    #[test]
    fn the_page_needs_nothing_else() {
        let record = example();

        let page = page(&record, &judge(&record));

        for outside in ["<script", "<link", "<img", "url(", "@import", "src="] {
            assert!(!page.contains(outside), "{outside}");
        }
        let addresses = page.matches("http").count();
        let name_spaces = page.matches("http://www.w3.org/2000/svg").count();
        assert_eq!(addresses, name_spaces, "only the name of SVG's name space looks like an address");
    }

    #[test]
    fn what_services_name_is_text_and_never_markup() {
        let record = example();

        let page = page(&record, &judge(&record));

        assert!(page.contains("queue.depth{a=&quot;&lt;b&gt;&quot;}"));
        assert!(!page.contains("<b>"));
    }

    #[test]
    fn every_service_has_its_plot_and_every_fault_its_row() {
        let record = example();

        let page = page(&record, &judge(&record));

        for service in Service::ALL {
            assert!(page.contains(&format!(">\n{service}\n</text>")), "{service}");
        }
        assert!(page.contains("<td>latency</td>"));
        assert!(!page.contains("could not be drawn"));
    }

    #[test]
    fn the_page_says_what_counts_as_explained_and_what_belongs_to_each_fault() {
        let page = page(&example(), &judge(&example()));

        assert!(page.contains("A fault counts as explained if at least one of the three"));
        for kind in crate::fault::Kind::ALL {
            assert!(page.contains(&format!("<dt>{kind}</dt><dd>{}", kind.belonging())), "{kind}");
        }
    }

    #[test]
    fn each_fault_has_a_trace_that_can_be_opened() {
        let record = crate::traces::example::run();

        let page = page(&record, &judge(&record));

        assert!(page.contains("<a href=\"#trace-of-fault-1\">open one</a>"));
        assert!(page.contains("id=\"trace-of-fault-1\""));
        assert!(page.contains("kept, since store: score 31.0, threshold 7.7; work.duration.p99 85 ms, expected 4 ms"));
        assert!(page.contains("trace 00000000000000000000000000000001, 900 B, 9 spans<"));
    }

    #[test]
    fn who_visits_the_frontend_is_there_if_packets_were_captured() {
        let record = Record { talkers: crate::talkers::example::talkers(), ..example() };

        let with = page(&record, &judge(&record));

        assert!(with.contains("<tr><td>top talker</td><td>127.0.0.12 (38 of 99 bytes)</td><td>127.0.0.11</td></tr>"));
        assert!(with.contains("<tr><td>its share</td><td>38.7 %</td><td>39.9 %</td></tr>"));
        assert!(with.contains("<tr><td>distinct clients</td><td>7</td><td>6</td></tr>"));
        assert!(!page(&example(), &judge(&example())).contains("Who visits the frontend"));
    }

    #[test]
    fn addresses_of_pages_are_addresses_wherever_they_are() {
        assert_eq!(address(Path::new("/a b/ü/index.html")), "file:///a%20b/%C3%BC/index.html");
        assert!(address(Path::new("page/index.html")).starts_with("file:///"));
    }

    #[test]
    fn a_run_in_which_nothing_happened_has_a_page_too() {
        let record = Record::default();

        assert!(!page(&record, &judge(&record)).contains("could not be drawn"));
    }
}
