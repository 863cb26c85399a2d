//! A plot of points with names, as a small SVG.

use std::fmt::Write as _;

/// One point, in shares.
pub struct Dot {
    pub name: &'static str,
    /// Whether it is drawn as a ring, to distinguish it from a point with the same name.
    pub hollow: bool,
    pub kept: f64,
    pub covered: f64,
}

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 340.0;
/// Margins left, right, above and below the axes.
const MARGINS: [f64; 4] = [54.0, 20.0, 14.0, 44.0];
/// Upper end of the axis of the kept share: small, so that policies that keep little can be distinguished.
const MAX_KEPT: f64 = 0.25;

/// Draws the plot as SVG.
pub fn plot(dots: &[Dot]) -> String {
    let [left, right, above, below] = MARGINS;
    let x = |share: f64| left + share.min(MAX_KEPT) / MAX_KEPT * (WIDTH - left - right);
    let y = |share: f64| HEIGHT - below - share * (HEIGHT - above - below);
    let mut svg = format!(
        "<svg width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" xmlns=\"http://www.w3.org/2000/svg\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>\n"
    );
    let mut line = |from: (f64, f64), to: (f64, f64), style: &str| {
        let ((x1, y1), (x2, y2)) = (from, to);
        _ = writeln!(svg, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>");
    };
    for step in 0..=5 {
        let share = f64::from(step) / 5.0;
        line((x(0.0), y(share)), (x(MAX_KEPT), y(share)), "stroke=\"#DDDDDD\"");
        line((x(share * MAX_KEPT), y(0.0)), (x(share * MAX_KEPT), y(1.0)), "stroke=\"#DDDDDD\"");
    }
    // Random sampling covers as much as it keeps.
    line((x(0.0), y(0.0)), (x(MAX_KEPT), y(MAX_KEPT)), "stroke=\"#6E6E6E\" stroke-dasharray=\"4 3\"");
    let mut text = |(x, y): (f64, f64), anchor: &str, label: &str| {
        _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{label}</text>");
    };
    for step in 0..=5 {
        let share = f64::from(step) / 5.0;
        text((x(0.0) - 6.0, y(share) + 4.0), "end", &format!("{:.0} %", 100.0 * share));
        let at = (x(share * MAX_KEPT), y(0.0) + 16.0);
        text(at, "middle", &format!("{:.0} %", 100.0 * share * MAX_KEPT));
    }
    text((x(MAX_KEPT / 2.0), HEIGHT - 8.0), "middle", "kept traces");
    text((x(0.0) + 6.0, y(1.0) + 10.0), "start", "coverage of hit requests");
    for dot in dots.iter().filter(|dot| !dot.hollow) {
        // To the left if there is no space to the right.
        let (to, anchor) = if dot.kept > 0.8 * MAX_KEPT { (-8.0, "end") } else { (8.0, "start") };
        text((x(dot.kept) + to, y(dot.covered) + 14.0), anchor, dot.name);
    }
    for dot in dots {
        let fill = if dot.hollow { "#FFFFFF" } else { "#0072B2" };
        let (x, y) = (x(dot.kept), y(dot.covered));
        _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"#0072B2\"/>");
    }
    svg + "</svg>\n"
}
