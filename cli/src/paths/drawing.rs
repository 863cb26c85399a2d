//! Operations on the left, services on the right, and a line wherever requests pass.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Operation, Page};

/// Between two lines of text, in pixels.
const ROW: usize = 28;
/// Where lines begin, and where they end.
const LEFT: usize = 420;
const RIGHT: usize = 620;

/// The page as an SVG.
pub(super) fn svg(page: &Page) -> String {
    let mut services: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for operation in &page.operations {
        for passed in &operation.services {
            services.insert((&operation.tenant, &passed.service), 0);
        }
    }
    services.values_mut().enumerate().for_each(|(place, row)| *row = place);
    let rows = page.operations.len().max(services.len());
    let (width, height) = (RIGHT + 400, (rows + 1) * ROW);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let middle = |row: usize| (row + 1) * ROW;
    for (row, operation) in page.operations.iter().enumerate() {
        for passed in &operation.services {
            let to = services.get(&(operation.tenant.as_str(), passed.service.as_str())).copied().unwrap_or(0);
            let (from, to, half) = (middle(row) - 4, middle(to) - 4, usize::midpoint(LEFT, RIGHT));
            // What has not been seen for a minute fades.
            let opacity = if passed.age_ms < 60_000 { "0.8" } else { "0.3" };
            _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {from} C{half} {from} {half} {to} {RIGHT} {to}\" fill=\"none\" stroke=\"#2a6fb0\" stroke-opacity=\"{opacity}\"/>"
            );
        }
        let name = escaped(&title(operation));
        let (x, y) = (LEFT - 8, middle(row));
        _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\">{name}</text>");
    }
    for ((_, service), row) in &services {
        let (x, y, name) = (RIGHT + 8, middle(*row), escaped(service));
        _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\">{name}</text>");
    }
    svg.push_str("</svg>\n");
    svg
}

fn title(operation: &Operation) -> String {
    format!("{} · {} {}", operation.requests, operation.service, operation.operation)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
