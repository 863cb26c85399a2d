//! The plot of the delay distribution as SVG, with the 95 % confidence interval shaded.

use std::path::Path;

use plotters::prelude::*;

use super::cdf::time;
use super::report::FridgeReport;

const SIZE: (u32, u32) = (900, 480);
/// Blue of the palette of Okabe and Ito, which colour-blind people tell apart.
const LINE: RGBColor = RGBColor(0, 114, 178);

/// Draws the distribution into a file.
///
/// # Errors
///
/// The error of the plotting library or of writing the file, as text.
pub fn save(measured: &FridgeReport, path: &Path) -> Result<(), String> {
    let svg = draw(measured)?;
    std::fs::write(path, svg).map_err(|error| error.to_string())
}

/// A share, and its delay in nanoseconds: lower confidence bound, estimate, upper bound.
type Band = (f64, [f64; 3]);

fn draw(measured: &FridgeReport) -> Result<String, String> {
    let histogram = &measured.all.histogram;
    let shares = (1..1000).map(|part| f64::from(part) / 1000.0);
    let band = |share| {
        let quantile = histogram.estimate(share)?;
        Some((share, [quantile.low_ns, quantile.delay_ns, quantile.high_ns].map(|delay| delay.max(1.0))))
    };
    let bands: Vec<Band> = shares.filter_map(band).collect();
    if bands.is_empty() {
        return Err("no request was answered".to_owned());
    }
    let mut svg = String::new();
    chart(measured, &bands, &mut svg).map_err(|error| error.to_string())?;
    Ok(svg)
}

fn chart(measured: &FridgeReport, bands: &[Band], svg: &mut String) -> Result<(), Box<dyn core::error::Error>> {
    let least = bands.iter().map(|band| band.1[0]).fold(f64::INFINITY, f64::min);
    let most = bands.iter().map(|band| band.1[2]).fold(least * 1.01, f64::max);
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!("{}: delay, from {} samples", measured.pair.name(), measured.all.histogram.samples());
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((least..most).log_scale(), 0.0..1.0)?;
    chart
        .configure_mesh()
        // More would overlap.
        .x_labels(6)
        .x_desc("delay")
        .y_desc("share of requests answered by then")
        .x_label_formatter(&|delay| time(*delay))
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .draw()?;
    let edge = bands.iter().map(|(share, [low, ..])| (*low, *share));
    let back = bands.iter().rev().map(|(share, [.., high])| (*high, *share));
    chart.draw_series([Polygon::new(edge.chain(back).collect::<Vec<_>>(), LINE.mix(0.2).filled())])?;
    let line = bands.iter().map(|(share, [_, delay, _])| (*delay, *share));
    chart.draw_series(LineSeries::new(line, LINE.stroke_width(2)))?;
    root.present()?;
    drop(chart);
    Ok(())
}
