//! Profiles: the heaviest functions, and each function below its caller, as wide as its share.

use core::fmt::Write as _;

use wire::printable::markup;
use wire::proto::operators::{Incident, IncidentProfile};
use wire::time::UnixNanos;

use super::tables;
use crate::profiles::{Node, heaviest, nodes, sampled};
use crate::words;

/// Width of the drawing, and height of a function.
const WIDTH: f64 = 1_100.0;
const ROW: usize = 20;
/// Width of a character.
const CHARACTER: f64 = 6.4;
/// Functions that are narrower are left out.
const NARROWEST: f64 = 2.0;
/// Levels that are drawn.
const DEEPEST: usize = 48;
/// Style of a file of its own.
const FILE_STYLE: &str = "rect{fill:#e8b48c}g:hover>rect{fill:#d98f57}text{font:11px monospace}";
/// Functions in the table.
const LISTED: usize = 5;

/// All profiles of an incident.
pub(super) fn draw(incident: &Incident) -> String {
    incident.profiles.iter().map(profile).collect()
}

fn profile(of: &IncidentProfile) -> String {
    let at = words::clock(UnixNanos(of.began_unix_ns));
    let head =
        format!("<h3>{}</h3>\n<p class=\"small quiet\">At {at}, {}.</p>\n", markup(&of.service), markup(&sampled(of)));
    if of.stacks.is_empty() {
        return head;
    }
    let rows: Vec<_> = heaviest(of, LISTED)
        .into_iter()
        .map(|heavy| vec![tables::percent(heavy.itself), tables::percent(heavy.whole), markup(heavy.name)])
        .collect();
    format!("{head}{}{}", flames(of), tables::table(&["~Running", "~With what it called", "Function"], &rows))
}

/// The drawing alone, as a file of SVG, which a browser opens. `None`: there is no stack.
#[must_use]
pub fn file(of: &IncidentProfile) -> Option<String> {
    let (boxes, height) = boxes(of);
    let head = format!("{}: {}", of.service, sampled(of));
    let top = ROW + 8;
    (!of.stacks.is_empty()).then(|| {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\">\n<style>{FILE_STYLE}</style>\n\
             <text x=\"4\" y=\"16\">{}</text>\n<g transform=\"translate(0 {top})\">\n{boxes}</g>\n</svg>\n",
            height + top,
            markup(&head)
        )
    })
}

fn flames(of: &IncidentProfile) -> String {
    let (boxes, height) = boxes(of);
    format!(
        "<figure class=\"chart\"><svg class=\"flames\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"functions below their callers\">\n{boxes}</svg></figure>\n"
    )
}

/// All functions that are wide enough, and their height together.
fn boxes(of: &IncidentProfile) -> (String, usize) {
    let all: u64 = of.stacks.iter().map(|stack| stack.samples).sum();
    let scale = WIDTH / all.max(1) as f64;
    let is_drawn = |node: &&Node<'_>| node.samples as f64 * scale >= NARROWEST && node.depth < DEEPEST;
    let nodes = nodes(of);
    let drawn: Vec<_> = nodes.iter().filter(is_drawn).collect();
    let height = (drawn.iter().map(|node| node.depth).max().unwrap_or_default() + 1) * ROW;
    let mut boxes = String::new();
    for node in drawn {
        let (x, width, y) = (node.from as f64 * scale, node.samples as f64 * scale, node.depth * ROW);
        let name = markup(node.name);
        let fits = ((width - 8.0) / CHARACTER).max(0.0) as usize;
        let text: String = if fits < 3 { String::new() } else { markup(&cut(node.name, fits)) };
        // Writing into a string cannot fail.
        _ = writeln!(
            boxes,
            "<g><title>{name}: {}</title><rect x=\"{x:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\" rx=\"2\"/>\
             <text x=\"{:.1}\" y=\"{}\">{text}</text></g>",
            tables::percent(node.samples as f64 / all.max(1) as f64),
            (width - 1.0).max(1.0),
            ROW - 1,
            x + 4.0,
            y + 14,
        );
    }
    (boxes, height)
}

/// The end of a name, which says most, in so many characters.
fn cut(name: &str, most: usize) -> String {
    let count = name.chars().count();
    if count <= most {
        return name.to_owned();
    }
    let kept: String = name.chars().skip(count - most + 1).collect();
    format!("…{kept}")
}

#[cfg(test)]
mod tests {
    use wire::proto::operators::IncidentStack;

    use super::*;

    #[test]
    fn the_function_that_burns_is_the_widest() {
        let stack = |frames: &[u32], samples| IncidentStack { frames: frames.to_vec(), samples };
        let of = IncidentProfile {
            samples: 100,
            names: ["payment-1", "main", "a::very::long::path::of::burn"].map(str::to_owned).to_vec(),
            stacks: vec![stack(&[0, 1, 2], 75), stack(&[0, 1], 24), stack(&[0, 2], 1)],
            ..IncidentProfile::default()
        };

        let drawing = profile(&of);

        assert!(
            drawing
                .contains("<title>a::very::long::path::of::burn: 75 %</title><rect x=\"0.0\" y=\"40\" width=\"824.0\"")
        );
        assert!(drawing.contains("viewBox=\"0 0 1100 60\""), "{drawing}");
        assert_eq!(cut("path::of::burn", 8), "…f::burn");
    }

    #[test]
    fn a_file_of_its_own_needs_nothing_else_and_stays_text() {
        let hostile = "</text><script>\u{1b}";
        let of = IncidentProfile {
            service: hostile.to_owned(),
            samples: 1,
            names: vec![hostile.to_owned()],
            stacks: vec![IncidentStack { frames: vec![0], samples: 1 }],
            ..IncidentProfile::default()
        };

        let svg = file(&of).unwrap();

        assert!(!svg.contains("<script>") && !svg.contains('\u{1b}') && svg.contains("&lt;script&gt;"), "{svg}");
        assert_eq!(file(&IncidentProfile::default()), None);
    }

    #[test]
    fn a_profile_that_could_not_be_taken_says_why() {
        let of = IncidentProfile { problem: "process 7 is <gone>".to_owned(), ..IncidentProfile::default() };
        let drawing = profile(&of);
        assert!(drawing.contains("process 7 is &lt;gone&gt;") && !drawing.contains("<svg"));
    }
}
