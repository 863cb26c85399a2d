//! An incident as one page of HTML that needs no other file and no network: to be attached to a post-mortem.
//!
//! Whatever services say becomes text ([`wire::printable::markup`]); there is no script, and a policy within the page
//! forbids everything but its own style. Attributes of spans and log records are not in it, and neither are values of
//! variables.

mod extent;
mod flames;
mod tables;
mod timeline;
mod waterfall;

use page::assets::asset;
use wire::printable::markup;
use wire::proto::operators::Incident;

/// What the file needs beside the style of the live page.
const STYLE: &str = include_str!("draw/incident.css");

/// The one source of style: this file itself.
const INLINE: &str = concat!("'un", "safe-inline'");

pub use self::flames::file as flame_graph;

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
        section("What its processes did", &flames::draw(incident)),
        section("Streams of packets", &tables::streams(incident)),
        section("Kept traces", &waterfall::draw(incident)),
        section("Kept log records", &tables::logs(incident)),
        section("What was normal before", &tables::usual(incident)),
    ];
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src {INLINE}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Incident {id} of {node}</title>\n\
         <style>\n{style}{STYLE}</style>\n</head>\n<body>\n<main>\n{}</main>\n</body>\n</html>\n",
        parts.concat()
    )
}

fn section(title: &str, body: &str) -> String {
    if body.is_empty() { String::new() } else { format!("<section>\n<h2>{title}</h2>\n{body}</section>\n") }
}

#[cfg(test)]
mod tests;
