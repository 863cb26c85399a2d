//! The colours of plots. Each stands for a role; the page's style gives the role its colour, one for light and one for
//! dark.

use core::fmt::Write as _;

use plotters::style::{Color as _, IntoFont as _, RGBColor, TextStyle};

/// Axes and text.
pub(super) const INK: RGBColor = RGBColor(0x20, 0x20, 0x21);
/// Colour of grid lines.
pub(super) const FAINT: RGBColor = RGBColor(0xD0, 0xD0, 0xD1);
/// Colour of a score.
pub(super) const SCORE: RGBColor = RGBColor(0x1F, 0x6F, 0xEB);
/// Colour of the threshold γ.
pub(super) const GAMMA: RGBColor = RGBColor(0x70, 0x70, 0x71);
/// A fault, in the service that has it.
pub(super) const FAULT: RGBColor = RGBColor(0xE6, 0x9F, 0x01);
/// A fault elsewhere.
pub(super) const ELSEWHERE: RGBColor = RGBColor(0x90, 0x90, 0x92);
/// Colour of an alarm.
pub(super) const ALARM: RGBColor = RGBColor(0xC0, 0x39, 0x2B);
/// A cell of the heat map.
pub(super) const HEAT: RGBColor = RGBColor(0xB0, 0x30, 0x60);

/// The role of each colour as a variable of the page's style.
pub(super) const ROLES: [(RGBColor, &str); 8] = [
    (INK, "ink"),
    (FAINT, "faint"),
    (SCORE, "score"),
    (GAMMA, "gamma"),
    (FAULT, "fault"),
    (ELSEWHERE, "elsewhere"),
    (ALARM, "alarm"),
    (HEAT, "heat"),
];

/// The rules that give plots the page's colours.
pub(super) fn style() -> String {
    let mut style = String::new();
    for (RGBColor(red, green, blue), role) in ROLES {
        let colour = format!("#{red:02X}{green:02X}{blue:02X}");
        let _ = writeln!(style, "svg [fill=\"{colour}\"] {{ fill: var(--{role}); }}");
        let _ = writeln!(style, "svg [stroke=\"{colour}\"] {{ stroke: var(--{role}); }}");
    }
    style
}

/// Text of `size` pixels.
pub(super) fn text(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK.to_rgba())
}
