//! The plot of the mean one-way delay over the intervals as SVG, with one standard deviation to either side shaded.

use std::path::Path;

use plotters::prelude::*;

use super::cdf::time;
use super::rda::{RdaReport, Row};

const SIZE: (u32, u32) = (900, 480);
/// Blue of the palette of Okabe and Ito, which colour-blind people tell apart.
const LINE: RGBColor = RGBColor(0, 114, 178);

/// Draws the means into a file.
///
/// # Errors
///
/// The error of the plotting library or of writing the file, as text.
pub fn save(measured: &RdaReport, path: &Path) -> Result<(), String> {
    let mut svg = String::new();
    let known = |(place, row): (usize, &Row)| Some((place as f64, row.mean_ns?, row.deviation_ns.unwrap_or(0.0)));
    let points: Vec<_> = measured.intervals.iter().enumerate().filter_map(known).collect();
    if points.is_empty() {
        return Err("no packet is in both captures".to_owned());
    }
    chart(&points, &mut svg).map_err(|error| error.to_string())?;
    std::fs::write(path, svg).map_err(|error| error.to_string())
}

fn chart(points: &[(f64, f64, f64)], svg: &mut String) -> Result<(), Box<dyn core::error::Error>> {
    let least = points.iter().map(|(_, mean, deviation)| mean - deviation).fold(f64::INFINITY, f64::min);
    let most = points.iter().map(|(_, mean, deviation)| mean + deviation).fold(least + 1.0, f64::max);
    let end = points.last().map_or(1.0, |(place, ..)| place.max(1.0));
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("one-way delay: mean ± standard deviation", ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(80)
        .build_cartesian_2d(0.0..end, least..most)?;
    let label = |delay: &f64| if *delay < 0.0 { format!("−{}", time(-delay)) } else { time(*delay) };
    chart
        .configure_mesh()
        .x_desc("interval")
        .y_label_formatter(&label)
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .draw()?;
    let edge = points.iter().map(|(place, mean, deviation)| (*place, mean - deviation));
    let back = points.iter().rev().map(|(place, mean, deviation)| (*place, mean + deviation));
    chart.draw_series([Polygon::new(edge.chain(back).collect::<Vec<_>>(), LINE.mix(0.2).filled())])?;
    let line = points.iter().map(|(place, mean, _)| (*place, *mean));
    chart.draw_series(LineSeries::new(line, LINE.stroke_width(2)))?;
    root.present()?;
    drop(chart);
    Ok(())
}
