//! The plot of a replay as SVG: scores and γ on a logarithmic scale, with episodes and labelled events shaded.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use wire::printable;

use super::report::Replay;
use crate::figures::largest_of_parts;

/// The most points drawn. With more rows, a point is the largest score of several rows.
const POINTS: usize = 2000;

const SIZE: (u32, u32) = (1200, 480);

/// Height of title and legend.
const HEAD: i32 = 56;

// Blue, orange and grey of the palette of Okabe and Ito, which colour-blind people tell apart.
const SCORE: RGBColor = RGBColor(0, 114, 178);
const GAMMA: RGBColor = RGBColor(60, 60, 60);
const EPISODE: RGBColor = RGBColor(230, 159, 0);
const LABELLED: RGBColor = RGBColor(110, 110, 110);

/// Draws the replay into a file.
///
/// # Errors
///
/// The error of the plotting library or of writing the file, as text.
pub fn save(replay: &Replay<'_>, path: &Path) -> Result<(), String> {
    let svg = draw(replay)?;
    std::fs::write(path, svg).map_err(|error| error.to_string())
}

fn draw(replay: &Replay<'_>) -> Result<String, String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(|error| error.to_string())?;
        let (above, below) = root.split_vertically(HEAD);
        head(replay, &above).and_then(|()| chart(replay, &below)).map_err(|error| error.to_string())?;
        root.present().map_err(|error| error.to_string())?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

type DrawResult<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// Title and legend, above the plot.
fn head<'a>(replay: &Replay<'_>, area: &Area<'a>) -> DrawResult<'a> {
    area.draw(&Text::new(printable::line(replay.name).into_owned(), (56, 10), ("sans-serif", 20)))?;
    let names = [
        (SCORE.filled(), 2, "score"),
        (GAMMA.filled(), 2, "threshold γ"),
        (EPISODE.filled(), 12, "episode (strip at the top)"),
        (LABELLED.mix(0.25).filled(), 12, "labelled event"),
    ];
    let shown = if replay.judgement.is_some() { names.len() } else { names.len() - 1 };
    for (place, (style, thickness, name)) in names.into_iter().take(shown).enumerate() {
        let (x, y) = (56 + 200 * place as i32, 42);
        area.draw(&Rectangle::new([(x, y - thickness / 2), (x + 20, y + thickness / 2)], style))?;
        area.draw(&Text::new(name, (x + 26, y - 7), ("sans-serif", 14)))?;
    }
    Ok(())
}

fn chart<'a>(replay: &Replay<'_>, area: &Area<'a>) -> DrawResult<'a> {
    let timeline = replay.timeline;
    let rows = timeline.scores.len();
    let (low, high) = range(&timeline.scores, &timeline.gammas);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..rows as f64, (low..high).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("row")
        .y_desc("score")
        .x_label_formatter(&|row| format!("{row:.0}"))
        .y_label_formatter(&|score| wire::quantity::number(*score))
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .draw()?;
    let band = |first: usize, last: usize, from: f64, style: ShapeStyle| {
        Rectangle::new([(first as f64, from), (last as f64 + 1.0, high)], style)
    };
    let events = replay.judgement.iter().flat_map(|judgement| &judgement.events);
    chart.draw_series(events.map(|event| band(event.first, event.last, low, LABELLED.mix(0.25).filled())))?;
    // A strip at the top, so that events and episodes can be distinguished where they overlap.
    let strip = high / (high / low).powf(0.06);
    chart.draw_series(timeline.alarms.iter().map(|alarm| band(alarm.first, alarm.last, strip, EPISODE.filled())))?;
    chart.draw_series(LineSeries::new(points(&timeline.scores, low), SCORE.stroke_width(1)))?;
    chart.draw_series(LineSeries::new(points(&timeline.gammas, low), GAMMA.stroke_width(2)))?;
    Ok(())
}

/// The points of a series: middle and maximum of each part, without parts that have no finite value.
fn points(series: &[f64], low: f64) -> impl Iterator<Item = (f64, f64)> {
    let parts = largest_of_parts(series, POINTS);
    let width = series.len() as f64 / parts.len().max(1) as f64;
    let there = parts.into_iter().enumerate().filter(|(_, value)| value.is_finite());
    there.map(move |(part, value)| ((part as f64 + 0.5) * width, value.max(low)))
}

/// The range of the y axis: from γ / 20, or the least score if that is more, to twice the largest value.
fn range(scores: &[f64], gammas: &[f64]) -> (f64, f64) {
    let finite = |values: &[f64]| values.iter().copied().filter(|value| value.is_finite() && *value > 0.0).collect();
    let (scores, gammas): (Vec<f64>, Vec<f64>) = (finite(scores), finite(gammas));
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let low = least(&scores).max(least(&gammas) / 20.0);
    let high = most(&scores).max(most(&gammas));
    if low.is_finite() && high >= low { (low, high * 2.0) } else { (0.1, 10.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_holds_gamma_and_the_largest_score() {
        let (low, high) = range(&[f64::NAN, 0.0, 1.0, 500.0], &[f64::NAN, 10.0]);

        assert_eq!((low, high), (1.0, 1000.0));
        assert_eq!(range(&[f64::NAN], &[f64::NAN]), (0.1, 10.0));
        assert_eq!(range(&[5.0], &[5.0]).0, 5.0);
    }

    #[test]
    fn rows_without_a_score_are_left_out_and_peaks_are_kept() {
        let mut series = vec![1.0; 10_000];
        series[0] = f64::NAN;
        series[7777] = 50.0;

        let points: Vec<(f64, f64)> = points(&series, 0.5).collect();

        assert_eq!(points.len(), POINTS);
        assert!(points.iter().any(|(row, score)| *score == 50.0 && (row - 7777.0).abs() < 5.0));
        assert_eq!(super::points(&[f64::NAN, 2.0], 0.5).collect::<Vec<_>>(), [(1.5, 2.0)]);
    }
}
