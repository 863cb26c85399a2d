//! The plot of the sizes of the largest flows as SVG: a bar for each, dark as far as it is certain.

use std::path::Path;

use plotters::prelude::*;

use super::fragment::{FlowRow, FragmentReport};

const WIDTH: u32 = 900;
/// Height of a bar with its distance.
const LINE_HEIGHT: u32 = 26;
/// Height of title and axis.
const FRAME: u32 = 110;
/// Blue of the palette of Okabe and Ito, which colour-blind people tell apart.
const BAR: RGBColor = RGBColor(0, 114, 178);

/// Draws the sizes into a file.
///
/// # Errors
///
/// The error of the plotting library or of writing the file, as text.
pub fn save(measured: &FragmentReport, path: &Path) -> Result<(), String> {
    if measured.flows.is_empty() {
        return Err("there is no flow".to_owned());
    }
    let mut svg = String::new();
    chart(&measured.flows, &mut svg).map_err(|error| error.to_string())?;
    std::fs::write(path, svg).map_err(|error| error.to_string())
}

fn chart(flows: &[FlowRow], svg: &mut String) -> Result<(), Box<dyn core::error::Error>> {
    let most = flows.iter().map(|flow| flow.packets).max().unwrap_or(0).max(1) as f64;
    let root = SVGBackend::with_string(svg, (WIDTH, FRAME + LINE_HEIGHT * flows.len() as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("packets of the largest flows", ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .build_cartesian_2d(0.0..most, 0.0..flows.len() as f64)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_desc("packets: at least (dark), at most (light)")
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .draw()?;
    // The largest one is at the top.
    let lines = || (0..flows.len()).rev().map(|line| line as f64).zip(flows);
    let bar = |line: f64, packets: u64, shade: f64| {
        Rectangle::new([(0.0, line + 0.1), (packets as f64, line + 0.9)], BAR.mix(shade).filled())
    };
    chart.draw_series(lines().map(|(line, flow)| bar(line, flow.packets, 0.2)))?;
    chart.draw_series(lines().map(|(line, flow)| bar(line, flow.at_least, 0.35)))?;
    let name =
        |(line, flow): (f64, &FlowRow)| Text::new(flow.flow.clone(), (0.01 * most, line + 0.75), ("sans-serif", 14));
    chart.draw_series(lines().map(name))?;
    root.present()?;
    drop(chart);
    Ok(())
}
