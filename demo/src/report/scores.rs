//! One strip per service: the score as a multiple of γ, faults shaded, alarms marked.

use core::ops::Range;

use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea as _};
use plotters::element::{PathElement, Rectangle, Text};
use plotters::prelude::{IntoLogRange as _, SVGBackend};
use plotters::series::LineSeries;
use plotters::style::Color as _;
use wire::time::Nanos;

use super::ink;
use crate::graph::Target;
use crate::judge::Finding;
use crate::record::{Point, Record};

const WIDTH: u32 = 1100;
const STRIP: u32 = 132;
const AXIS: u32 = 34;
/// Lower end of the scale: smaller multiples of γ are drawn here.
const FLOOR: f64 = 0.1;

/// Scores further apart than this, and than three intervals, are not connected.
const GAP: Nanos = Nanos::from_millis(2500);

/// Error of a plot.
pub(super) type PlotError = DrawingAreaErrorKind<std::io::Error>;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// All strips, as SVG.
pub(super) fn plot(record: &Record, finding: &Finding) -> Result<String, PlotError> {
    let mut svg = String::new();
    {
        let targets: Vec<_> = record.targets().collect();
        let height = STRIP * targets.len() as u32 + AXIS;
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let (strips, _) = root.split_vertically(height - AXIS);
        let areas = strips.split_evenly((targets.len(), 1));
        for (service, area) in targets.into_iter().zip(areas) {
            strip(&area, record, finding, service)?;
        }
        axis(&root, record, height)?;
        root.present()?;
    }
    Ok(svg)
}

fn seconds(record: &Record) -> Range<f64> {
    0.0..record.ended.as_secs_f64().max(1.0)
}

/// The highest multiple of γ of any service, so that strips can be compared.
fn ceiling(record: &Record) -> f64 {
    let points = record.scores.values().flatten().map(ratio);
    points.chain(record.events.iter().map(crate::record::Event::ratio)).fold(10.0, f64::max) * 1.4
}

fn ratio(point: &Point) -> f64 {
    if point.gamma > 0.0 { point.score / point.gamma } else { 0.0 }
}

fn strip(area: &Area<'_>, record: &Record, finding: &Finding, service: Target) -> Result<(), PlotError> {
    let top = ceiling(record);
    let mut builder = ChartBuilder::on(area);
    builder
        .margin_right(12)
        .margin_top(10)
        .margin_bottom(4)
        .set_left_and_bottom_label_area_size(0)
        .y_label_area_size(110);
    let mut chart = builder.build_cartesian_2d(seconds(record), (FLOOR..top).log_scale())?;
    for found in &finding.faults {
        let fault = &found.fault;
        let own = fault.service == service;
        let colour = if own { ink::FAULT.mix(0.38) } else { ink::ELSEWHERE.mix(0.13) };
        let corners = [(fault.started.as_secs_f64(), top), (fault.ended.as_secs_f64(), FLOOR)];
        chart.draw_series([Rectangle::new(corners, colour.filled())])?;
        if own {
            let place = (fault.started.as_secs_f64(), top * 0.72);
            chart.draw_series([Text::new(format!(" {}", fault.kind), place, ink::text(13))])?;
        }
    }
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_labels(3)
        .light_line_style(ink::FAINT.mix(0.0))
        .bold_line_style(ink::FAINT.mix(0.6))
        .axis_style(ink::FAINT)
        .label_style(ink::text(12))
        .y_label_formatter(&|value| format!("{value} γ"))
        .draw()?;
    let ends = [(0.0, 1.0), (seconds(record).end, 1.0)];
    chart.draw_series([PathElement::new(ends, ink::GAMMA.stroke_width(1))])?;
    let points: Vec<_> = record.scores.get(&service).into_iter().flatten().filter(|point| point.gamma > 0.0).collect();
    // No line across a gap without data.
    let gap = GAP.max(Nanos(3 * record.interval.0));
    for piece in points.chunk_by(|one, next| next.at.since(one.at).unwrap_or_default() < gap) {
        let piece = piece.iter().map(|point| (point.at.as_secs_f64(), ratio(point).max(FLOOR)));
        chart.draw_series(LineSeries::new(piece, ink::SCORE.stroke_width(1)))?;
    }
    for alarm in finding.alarms.iter().filter(|alarm| alarm.service == service) {
        let until = alarm.ended.unwrap_or(record.ended).max(alarm.began.plus(Nanos::from_millis(300)));
        let corners = [(alarm.began.as_secs_f64(), FLOOR * 1.35), (until.as_secs_f64(), FLOOR)];
        chart.draw_series([Rectangle::new(corners, ink::ALARM.filled())])?;
    }
    area.draw(&Text::new(service.to_string(), (4, 14), ink::text(16)))
}

/// Seconds below the last strip.
fn axis(root: &Area<'_>, record: &Record, height: u32) -> Result<(), PlotError> {
    let end = seconds(record).end;
    let (left, right) = (110.0, f64::from(WIDTH) - 12.0);
    let step = [5.0, 10.0, 20.0, 30.0, 60.0].into_iter().find(|step| end / step <= 14.0).unwrap_or(120.0);
    let mut at = 0.0;
    while at <= end {
        let x = (left + (right - left) * at / end) as i32;
        let y = height as i32 - AXIS as i32;
        root.draw(&PathElement::new([(x, y), (x, y + 5)], ink::FAINT.stroke_width(1)))?;
        root.draw(&Text::new(format!("{at} s"), (x - 10, y + 9), ink::text(12)))?;
        at += step;
    }
    Ok(())
}
