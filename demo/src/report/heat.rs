//! The heat map: the metrics with the largest shares of the scores over time.

use std::collections::BTreeMap;

use plotters::drawing::IntoDrawingArea as _;
use plotters::element::{PathElement, Rectangle, Text};
use plotters::prelude::SVGBackend;
use plotters::style::Color as _;

use super::ink;
use super::scores::PlotError;
use crate::graph::Target;
use crate::record::Record;

const WIDTH: i32 = 1100;
const LEFT: i32 = 430;
const RIGHT: i32 = 12;
const TOP: i32 = 22;
const ROW: i32 = 19;
/// Maximal number of rows.
const ROWS: usize = 28;
/// Range of the colour scale, which is logarithmic: parts of the squared score in units of γ².
const FAINTEST: f64 = 0.1;
const DARKEST: f64 = 100.0;

type Row = BTreeMap<usize, f64>;

/// The heat map, as SVG.
pub(super) fn plot(record: &Record) -> Result<String, PlotError> {
    let rows = rows(record);
    let seconds = record.ended.as_secs_f64().ceil().max(1.0);
    let height = TOP + ROW * rows.len().max(1) as i32 + 6;
    let x = |second: f64| LEFT + (f64::from(WIDTH - LEFT - RIGHT) * second / seconds) as i32;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
        for found in &record.faults {
            let corners = [(x(found.started.as_secs_f64()), TOP - 4), (x(found.ended.as_secs_f64()), height)];
            root.draw(&Rectangle::new(corners, ink::ELSEWHERE.mix(0.13).filled()))?;
            root.draw(&Text::new(found.kind.name(), (corners[0].0, 2), ink::text(11)))?;
        }
        for (number, ((service, column), cells)) in rows.iter().enumerate() {
            let top = TOP + ROW * number as i32;
            root.draw(&PathElement::new([(4, top), (WIDTH - RIGHT, top)], ink::FAINT.mix(0.4).stroke_width(1)))?;
            root.draw(&Text::new(label(*service, column), (4, top + 3), ink::text(12)))?;
            for (second, part) in cells {
                let corners = [(x(*second as f64), top + 1), (x((second + 1) as f64), top + ROW - 1)];
                root.draw(&Rectangle::new(corners, ink::HEAT.mix(depth(*part)).filled()))?;
            }
        }
        root.present()?;
    }
    Ok(svg)
}

/// The metrics with the largest parts at any time, grouped by service.
fn rows(record: &Record) -> Vec<((Target, String), Row)> {
    let mut all: BTreeMap<(Target, String), Row> = BTreeMap::new();
    for event in &record.events {
        for reason in &event.reasons {
            let part = reason.share * event.ratio().powi(2);
            if part >= FAINTEST {
                let cells = all.entry((event.service, reason.column.clone())).or_default();
                let cell = cells.entry(event.at.as_secs_f64() as usize).or_default();
                *cell = cell.max(part);
            }
        }
    }
    let largest = |row: &Row| row.values().copied().fold(0.0, f64::max);
    let mut rows: Vec<_> = all.into_iter().collect();
    rows.sort_by(|(_, one), (_, other)| largest(other).total_cmp(&largest(one)));
    rows.truncate(ROWS);
    rows.sort_by(|(one, _), (other, _)| one.cmp(other));
    rows
}

/// Opacity of a cell, 0.08 to 1.
fn depth(part: f64) -> f64 {
    let share = (part / FAINTEST).ln() / (DARKEST / FAINTEST).ln();
    0.08 + 0.92 * share.clamp(0.0, 1.0)
}

/// Service and metric; the middle of a long label is left out.
fn label(service: Target, column: &str) -> String {
    const LONGEST: usize = 62;
    let text: Vec<char> = format!("{service}  {column}").chars().collect();
    if text.len() <= LONGEST {
        return text.into_iter().collect();
    }
    let (head, tail) = (text.iter().take(LONGEST / 2), text.iter().skip(text.len() - LONGEST / 2 + 1));
    head.chain(['…'].iter()).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Service;
    use crate::judge::example::{event, reason};
    use crate::record::Episode;

    #[test]
    fn a_row_keeps_the_largest_part_of_each_second_and_leaves_out_what_is_small() {
        let mut events: Vec<_> = [(1000, 2.0), (1500, 4.0), (2000, 1.0)]
            .map(|(ms, ratio)| event(Service::Cart, ms, ratio, Episode::On))
            .into();
        for event in &mut events {
            event.reasons = vec![reason("queue.depth", 0.5, 1.0), reason("small", 0.001, 1.0)];
        }

        let rows = rows(&Record { events, ..Record::default() });

        assert_eq!(rows, [((Service::Cart.into(), "queue.depth".to_owned()), Row::from([(1, 8.0), (2, 0.5)]))]);
    }

    #[test]
    fn a_long_label_loses_its_middle() {
        let label = label(Service::Store.into(), &format!("http.{}-end", "x".repeat(100)));

        assert!(label.chars().count() <= 62 && label.starts_with("store  http.") && label.ends_with("-end"), "{label}");
    }
}
