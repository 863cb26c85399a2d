//! The plots of the report of a training: distributions, sweeps over k and l, ROC, precision against recall.

use evaluation::ranking::CurvePoint;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

const SIZE: (u32, u32) = (560, 340);

/// Blue, orange, green, vermilion, purple and grey of the palette of Okabe and Ito, which colour-blind people tell
/// apart.
pub const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(110, 110, 110),
];

/// A line of a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The name in the legend.
    pub name: &'static str,
    /// The points (x, y), from left to right.
    pub points: Vec<(f64, f64)>,
}

/// The axes of a plot; y goes from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub struct Axes {
    /// The label of the x axis.
    pub title: &'static str,
    /// The smallest and the largest x.
    pub x: (f64, f64),
    /// Whether the x axis is logarithmic.
    pub logarithmic: bool,
}

/// Draws lines as SVG. Values are clamped to the axes.
///
/// # Errors
///
/// The error of the plotting library, as text.
pub fn lines(axes: Axes, lines: &[Line]) -> Result<String, String> {
    let (low, high) = axes.x;
    if axes.logarithmic { draw((low..high).log_scale(), axes, lines) } else { draw(low..high, axes, lines) }
}

fn draw<X>(x: X, axes: Axes, lines: &[Line]) -> Result<String, String>
where
    X: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
{
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let result = (|| {
            let mut chart = ChartBuilder::on(&root)
                .margin(10)
                .x_label_area_size(38)
                .y_label_area_size(44)
                .build_cartesian_2d(x, 0.0..1.0)?;
            chart
                .configure_mesh()
                .x_desc(axes.title)
                .x_label_formatter(&|x| wire::quantity::number(*x))
                .y_label_formatter(&|y| format!("{y:.1}"))
                .light_line_style(TRANSPARENT)
                .bold_line_style(RGBColor(128, 128, 128).mix(0.3))
                .draw()?;
            for (line, colour) in lines.iter().zip(COLOURS) {
                let points = line.points.iter().map(|(x, y)| (x.clamp(axes.x.0, axes.x.1), y.clamp(0.0, 1.0)));
                chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
                if line.points.len() < 20 {
                    chart.draw_series(points.map(|point| Circle::new(point, 3, colour.filled())))?;
                }
            }
            root.present()
        })();
        result.map_err(|error: DrawingAreaErrorKind<_>| error.to_string())?;
    }
    Ok(svg)
}

/// The cumulative distribution of scores in units of γ, with at most about 400 points.
#[must_use]
pub fn distribution(name: &'static str, mut scores: Vec<f64>, gamma: f64) -> Line {
    const POINTS: usize = 400;
    scores.sort_by(f64::total_cmp);
    let count = scores.len();
    let step = count.div_ceil(POINTS).max(1);
    let kept = (0..count).filter(|place| place % step == 0 || place + 1 == count);
    Line { name, points: kept.map(|place| (scores[place] / gamma, (place + 1) as f64 / count as f64)).collect() }
}

/// The ROC curve: recall over the false positive rate.
#[must_use]
pub fn roc(curve: &[CurvePoint]) -> Line {
    Line { name: "ROC", points: curve.iter().map(|point| (point.false_positives, point.recall)).collect() }
}

/// The precision-recall curve.
#[must_use]
pub fn precision(curve: &[CurvePoint]) -> Line {
    Line {
        name: "precision against recall",
        points: curve.iter().map(|point| (point.recall, point.precision)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_ends_at_one_and_is_thinned() {
        let line = distribution("a", (0..10_000).map(f64::from).rev().collect(), 100.0);

        assert_eq!(line.points.first(), Some(&(0.0, 0.0001)));
        assert_eq!(line.points.last(), Some(&(99.99, 1.0)));
        assert!(line.points.len() <= 402);
        assert_eq!(distribution("b", Vec::new(), 1.0).points, []);
    }

    #[test]
    fn values_outside_of_the_axes_are_clamped() {
        let axes = Axes { title: "x", x: (0.1, 10.0), logarithmic: true };
        let line = Line { name: "a", points: vec![(0.0, -1.0), (100.0, 2.0)] };

        let svg = lines(axes, &[line]).unwrap();

        assert!(svg.contains("<polyline") && !svg.contains("NaN"), "{svg}");
    }
}
