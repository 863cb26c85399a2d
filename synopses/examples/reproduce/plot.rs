//! Small SVG plots of lines.

use std::error::Error;

use plotters::prelude::*;

const SIZE: (u32, u32) = (560, 340);

/// Blue, orange, green, vermilion, purple and grey of the palette of Okabe and Ito, which colour-blind people tell
/// apart.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(110, 110, 110),
];

/// A line with its name.
pub struct Line {
    pub name: &'static str,
    pub points: Vec<(f64, f64)>,
}

/// An axis of a plot.
#[derive(Clone, Copy)]
pub struct Axis {
    pub title: &'static str,
    /// Logarithmic scale. Values below `least` are drawn at `least`.
    pub logarithmic: bool,
    pub least: f64,
    pub most: f64,
}

impl Axis {
    fn at(&self, value: f64) -> f64 {
        let value = value.clamp(self.least, self.most);
        if self.logarithmic { value.log10() } else { value }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.at(self.least)..self.at(self.most)
    }

    fn label(&self, at: f64) -> String {
        // Steps of a logarithmic axis need not be whole powers of ten; those of a linear one come with the errors of
        // their sum.
        if self.logarithmic { format!("{:.0e}", 10.0_f64.powf(at)) } else { format!("{}", (at * 1e6).round() / 1e6) }
    }
}

/// A plot and its file.
pub struct Figure {
    pub file: &'static str,
    pub caption: &'static str,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
    /// Position of the legend, away from the lines.
    pub legend: SeriesLabelPosition,
}

impl Figure {
    /// The plot as SVG.
    pub fn svg(&self) -> Result<String, Box<dyn Error>> {
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            root.fill(&WHITE)?;
            let mut chart = ChartBuilder::on(&root)
                .margin(10)
                .margin_right(20)
                .x_label_area_size(38)
                .y_label_area_size(54)
                .build_cartesian_2d(self.x.range(), self.y.range())?;
            chart
                .configure_mesh()
                .x_desc(self.x.title)
                .y_desc(self.y.title)
                .x_label_formatter(&|x| self.x.label(*x))
                .y_label_formatter(&|y| self.y.label(*y))
                .light_line_style(TRANSPARENT)
                .bold_line_style(RGBColor(128, 128, 128).mix(0.3))
                .draw()?;
            for (line, colour) in self.lines.iter().zip(COLOURS) {
                let points = line.points.iter().map(|(x, y)| (self.x.at(*x), self.y.at(*y)));
                chart
                    .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?
                    .label(line.name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2)));
                chart.draw_series(points.map(|point| Circle::new(point, 2, colour.filled())))?;
            }
            chart
                .configure_series_labels()
                .position(self.legend.clone())
                .background_style(WHITE.mix(0.8))
                .border_style(TRANSPARENT)
                .draw()?;
            root.present()?;
        }
        Ok(svg)
    }
}
