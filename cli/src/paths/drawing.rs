//! The drawing of paths: operations on the left, services on the right, a line for each service on a path.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use wire::printable::markup;

use super::{Operation, Paths};

/// Height of a line of text, in pixels.
const ROW: usize = 28;
/// Horizontal positions of the two ends of a line, in pixels.
const LEFT: usize = 420;
const RIGHT: usize = 620;

/// The paths as an SVG picture.
pub(super) fn svg(paths: &Paths) -> String {
    let mut services: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for operation in &paths.operations {
        for hop in &operation.services {
            services.insert((&operation.tenant, &hop.service), 0);
        }
    }
    services.values_mut().enumerate().for_each(|(place, row)| *row = place);
    let rows = paths.operations.len().max(services.len());
    let (width, height) = (RIGHT + 400, (rows + 1) * ROW);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let middle = |row: usize| (row + 1) * ROW;
    for (row, operation) in paths.operations.iter().enumerate() {
        for hop in &operation.services {
            let to = services.get(&(operation.tenant.as_str(), hop.service.as_str())).copied().unwrap_or(0);
            let (from, to, half) = (middle(row) - 4, middle(to) - 4, usize::midpoint(LEFT, RIGHT));
            // Services that were not seen for a minute are drawn faded.
            let opacity = if hop.age_ms < 60_000 { "0.8" } else { "0.3" };
            _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {from} C{half} {from} {half} {to} {RIGHT} {to}\" fill=\"none\" stroke=\"#2a6fb0\" stroke-opacity=\"{opacity}\"/>"
            );
        }
        let name = markup(&title(operation));
        let (x, y) = (LEFT - 8, middle(row));
        _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\">{name}</text>");
    }
    for ((_, service), row) in &services {
        let (x, y, name) = (RIGHT + 8, middle(*row), markup(service));
        _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\">{name}</text>");
    }
    svg.push_str("</svg>\n");
    svg
}

fn title(operation: &Operation) -> String {
    format!("{} · {} {}", operation.requests, operation.service, operation.operation)
}
