//! Colours of the style sheet in both schemes: what is read or looked at stands out from what is behind it (WCAG 2.2,
//! 1.4.3 and 1.4.11).

use std::collections::{BTreeMap, BTreeSet};

use crate::assets::asset;

/// Least contrast of texts, and of marks: lines, bars, signs.
const TEXT: f64 = 4.5;
const MARK: f64 = 3.0;

/// Texts, and what is behind each: colours of the sheet, some of them over others, some as transparent as a number of
/// hundredths says.
const TEXTS: [(&str, &[&str]); 12] = [
    (
        "ink",
        &["paper", "card", "soft", "alarm-wash over card", "alarm 9 over card", "s7 28 over card", "s7 40 over card"],
    ),
    ("quiet", &["paper", "card", "soft", "alarm-wash over card"]),
    ("alarm", &["paper", "card", "soft", "alarm-wash over card", "alarm-wash over soft", "alarm 9 over card"]),
    ("learning", &["card", "soft", "alarm-wash over card"]),
    ("silent", &["card", "soft", "alarm-wash over card"]),
    ("score", &["paper", "card", "soft"]),
    ("card", &["learning"]),
    ("s0", &["card"]),
    ("s1", &["card"]),
    ("s2", &["card"]),
    ("s3", &["card"]),
    ("gamma", &["card"]),
];

/// Colours of marks, and what they stand on, likewise.
const MARKS: [(&str, &[&str]); 24] = [
    ("score", &["paper", "card", "soft", "alarm-wash over card", "wash over card"]),
    ("gamma", &["paper", "card", "soft", "alarm-wash over card"]),
    ("gamma 75 over card", &["card"]),
    ("alarm", &["paper", "card", "soft"]),
    ("alarm 80 over card", &["card"]),
    ("good", &["paper", "card", "soft", "alarm-wash over card"]),
    ("learning", &["paper", "card"]),
    ("quiet", &["soft"]),
    ("s0", &["card"]),
    ("s1", &["card"]),
    ("s2", &["card"]),
    ("s3", &["card"]),
    ("s4", &["card"]),
    ("s5", &["card"]),
    ("s6", &["card"]),
    ("s7", &["card"]),
    ("s0 75 over card", &["card"]),
    ("s1 75 over card", &["card"]),
    ("s2 75 over card", &["card"]),
    ("s3 75 over card", &["card"]),
    ("s4 75 over card", &["card"]),
    ("s5 75 over card", &["card"]),
    ("s6 75 over card", &["card"]),
    ("s7 75 over card", &["card"]),
];

/// Rules with the transparencies above.
const RULES: [&str; 6] = [
    ".flames rect { fill: var(--s7); fill-opacity: .28; }",
    ".flames g:hover rect { fill-opacity: .4; }",
    ".node.alarm rect { stroke: var(--alarm); fill: color-mix(in srgb, var(--alarm) 9%, var(--card)); }",
    ".call { fill: none; stroke: var(--gamma); opacity: .75; }",
    ".call.alarm { stroke: var(--alarm); opacity: .8; }",
    ".client rect { opacity: .75; }",
];

/// Colours that only lie behind others, or divide them.
const BEHIND: [&str; 6] = ["paper", "card", "soft", "line", "wash", "alarm-wash"];

/// Red, green, blue and how opaque it is, each 0 to 1.
type Colour = [f64; 4];
type Scheme = BTreeMap<&'static str, Colour>;

fn colour(hex: &str) -> Option<Colour> {
    let part = |at: usize| Some(f64::from(u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()?) / 255.0);
    Some([part(0)?, part(2)?, part(4)?, if hex.len() == 6 { 1.0 } else { part(6)? }])
}

/// The light scheme, and the dark one.
fn schemes() -> [Scheme; 2] {
    let style = asset("/style.css").unwrap().text;
    let block = |text: &'static str| {
        let (_, rest) = text.split_once(":root {").unwrap();
        let declared = rest.split_once('}').unwrap().0.split(';');
        let pairs = declared.filter_map(|pair| pair.trim().strip_prefix("--")?.split_once(": #"));
        pairs.map(|(name, hex)| (name, colour(hex).unwrap())).collect::<Scheme>()
    };
    let (light, dark) = style.split_once("@media (prefers-color-scheme: dark)").unwrap();
    [block(light), block(dark)]
}

/// A colour by its words, seen on what it lies over.
fn seen(scheme: &Scheme, words: &str) -> Colour {
    let (top, below) = words.split_once(" over ").map_or((words, None), |(top, below)| (top, Some(below)));
    let (name, hundredths) = top.split_once(' ').map_or((top, None), |(name, part)| (name, Some(part)));
    let mut colour = scheme[name];
    if let Some(part) = hundredths {
        colour[3] = part.parse::<f64>().unwrap() / 100.0;
    }
    let Some(below) = below else { return colour };
    let below = seen(scheme, below);
    let [red, green, blue] = [0, 1, 2].map(|at| colour[at] * colour[3] + below[at] * (1.0 - colour[3]));
    [red, green, blue, 1.0]
}

/// WCAG's ratio of relative luminances, 1 to 21.
fn contrast(one: Colour, other: Colour) -> f64 {
    let linear = |part: f64| if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) };
    let luminance = |[red, green, blue, opaque]: Colour| {
        assert_eq!(opaque, 1.0, "it lies over something");
        0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
    };
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn texts_and_marks_stand_out_from_what_is_behind_them_in_both_schemes() {
    let mut weak = Vec::new();
    for (scheme, name) in schemes().iter().zip(["light", "dark"]) {
        for (pairs, least) in [(&TEXTS[..], TEXT), (&MARKS[..], MARK)] {
            for (front, behind) in pairs.iter().flat_map(|(front, all)| all.iter().map(move |behind| (front, behind))) {
                let found = contrast(seen(scheme, front), seen(scheme, behind));
                if found < least {
                    weak.push(format!("{name}: {front} on {behind}: {found:.2}, least {least}"));
                }
            }
        }
    }
    assert!(weak.is_empty(), "{weak:#?}");
}

#[test]
fn every_colour_of_the_sheet_is_looked_at_and_both_schemes_have_it() {
    let [light, dark] = schemes();
    let used = TEXTS.iter().chain(&MARKS).map(|(front, _)| front.split(' ').next().unwrap()).chain(BEHIND);

    let used: BTreeSet<&str> = used.collect();

    assert_eq!(light.keys().copied().collect::<BTreeSet<_>>(), used);
    assert!(light.keys().eq(dark.keys()), "{dark:?}");
    let style = asset("/style.css").unwrap().text;
    for rule in RULES {
        assert!(style.contains(rule), "{rule}");
    }
}

#[test]
fn what_can_be_pressed_or_filled_has_a_border_that_is_seen() {
    let style = asset("/style.css").unwrap().text;
    let rules = style.lines().filter(|line| ["input", "button"].iter().any(|of| line.starts_with(of)));
    let borders: Vec<&str> = rules.filter_map(|rule| rule.split_once("border: ")?.1.split(';').next()).collect();

    assert_eq!(borders, ["1px solid var(--gamma)", "1px solid var(--gamma)", "none"], "a link has none");
    assert!(MARKS.iter().any(|(mark, on)| *mark == "gamma" && ["paper", "card"].iter().all(|one| on.contains(one))));
}

#[test]
fn contrast_is_that_of_wcag() {
    let of = |one, other| contrast(colour(one).unwrap(), colour(other).unwrap());

    assert!((of("000000", "ffffff") - 21.0).abs() < 1e-9 && (of("777777", "777777") - 1.0).abs() < 1e-9);
    // Grey at the limit on white: 4.54 by the W3C's own example.
    assert!((of("767676", "ffffff") - 4.54).abs() < 0.01, "{}", of("767676", "ffffff"));
}
