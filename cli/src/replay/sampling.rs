//! `--sampling`: the share of rows that dynamic sampling would send, and the accuracy that it would lose, by threshold.
//! As text, JSON and SVG.

use std::fmt::Write as _;
use std::path::Path;

use evaluation::sampling::{Sampling, SamplingError, SamplingMethod, SamplingPoint, curve, losing, within};
use evaluation::table::Label;
use evaluation::unit::Rows;
use lmap::RowError;
use plotters::prelude::*;
use serde::Serialize;
use thiserror::Error;

use super::report::Replay;

/// Shares of all samples listed as text.
const BUDGETS: [f64; 6] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5];
/// Losses for which the least share is listed.
const LOSSES: [f64; 2] = [0.01, 0.05];
/// The largest loss in the picture.
const MAX_LOSS: f64 = 0.3;
const SIZE: (u32, u32) = (900, 520);
// Of the palette of Okabe and Ito, which colour-blind people tell apart.
const COLOURS: [RGBColor; 3] = [RGBColor(213, 94, 0), RGBColor(0, 114, 178), RGBColor(0, 158, 115)];

/// Why there are no curves.
#[derive(Debug, Error)]
pub enum CurvesError {
    /// The detector never armed, so that no row has a score.
    #[error("the detector never armed, so no row has a score")]
    NeverArmed,
    /// A row does not fit the columns.
    #[error(transparent)]
    Rows(#[from] RowError),
    /// The rows and their scores do not fit together.
    #[error(transparent)]
    Sampled(#[from] SamplingError),
}

/// The curves of all sampling methods.
#[derive(Debug)]
pub struct Curves {
    name: String,
    rows: usize,
    labelled: bool,
    by_policy: [(SamplingMethod, Vec<SamplingPoint>); SamplingMethod::ALL.len()],
}

impl Curves {
    /// The curves of the judged rows.
    ///
    /// # Errors
    ///
    /// [`CurvesError`] if no row has a score.
    pub fn of(replay: &Replay<'_>) -> Result<Self, CurvesError> {
        let Replay { table, columns, interval, timeline, .. } = *replay;
        let armed = timeline.armed.ok_or(CurvesError::NeverArmed)?;
        let rows = Rows::of(table, columns, Some(interval))?;
        let values: Vec<&[f64]> = rows.iter().map(|(row, _)| row).collect();
        let shares: Vec<f64> =
            timeline.scores.iter().zip(&timeline.gammas).map(|(score, gamma)| score / gamma).collect();
        let labels = table.labels.as_ref();
        let anomalous: Option<Vec<bool>> = labels.map(|l| l.iter().map(|label| *label == Label::Anomalous).collect());
        let sampling = Sampling { rows: &values, shares: &shares, interval, anomalous: anomalous.as_deref() };
        let [score, band, either] = SamplingMethod::ALL;
        let of = |by| curve(&sampling, by).map(|curve| (by, curve));
        Ok(Self {
            name: replay.name.to_owned(),
            rows: values.len() - armed,
            labelled: anomalous.is_some(),
            by_policy: [of(score)?, of(band)?, of(either)?],
        })
    }

    /// A table by budget, and the least share that has to be sent for a given loss.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text =
            format!("\ndynamic sampling of the {} judged rows, in addition to a baseline every 30 s\n", self.rows);
        let _ = write!(text, "  sent at most");
        for (by, _) in &self.by_policy {
            let _ = write!(text, "   {:<42}", by.name());
        }
        text.push('\n');
        for budget in BUDGETS {
            let _ = write!(text, "  {:>10.0} %", 100.0 * budget);
            for (by, curve) in &self.by_policy {
                let _ = write!(text, "   {:<42}", self.words(*by, within(curve, budget)));
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        for loss in LOSSES {
            let least = |by, curve: &[SamplingPoint]| {
                losing(curve, loss).map_or_else(
                    || "no threshold".to_owned(),
                    |at| format!("{:.1} % (at {})", 100.0 * at.share, of(by, at.threshold)),
                )
            };
            let least = self.by_policy.iter().map(|(by, curve)| format!("{} {}", by.name(), least(*by, curve)));
            let _ = writeln!(text, "  for a loss of {:.0} %: {}", 100.0 * loss, least.collect::<Vec<_>>().join(", "));
        }
        text
    }

    fn words(&self, by: SamplingMethod, point: Option<SamplingPoint>) -> String {
        let Some(SamplingPoint { threshold, loss, anomalous, .. }) = point else {
            return "always sends more".to_owned();
        };
        let threshold = of(by, threshold);
        let faulty = if self.labelled && !anomalous.is_nan() {
            format!(", faults {:.0} %", 100.0 * anomalous)
        } else {
            String::new()
        };
        format!("loss {:.1} %{faulty} at {threshold}", 100.0 * loss)
    }

    /// The curves as JSON.
    #[must_use]
    pub fn view(&self) -> Vec<CurveView> {
        let point = |point: &SamplingPoint| PointView {
            threshold: point.threshold,
            sent: point.share,
            loss: point.loss,
            labelled_rows_sent: Some(point.anomalous).filter(|share| !share.is_nan()),
        };
        let curves = self.by_policy.iter();
        curves.map(|(by, curve)| CurveView { by: by.name(), points: curve.iter().map(point).collect() }).collect()
    }

    /// Draws the loss over the share that is sent, into a file.
    ///
    /// # Errors
    ///
    /// The error of the plotting library or of writing the file, as text.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        std::fs::write(path, self.draw().map_err(|error| error.to_string())?).map_err(|error| error.to_string())
    }

    fn draw(&self) -> Result<String, Box<dyn core::error::Error + '_>> {
        let mut svg = String::new();
        let most = self.by_policy.iter().flat_map(|(_, curve)| curve).map(|point| point.loss).fold(0.02, f64::max);
        let top = (1.05 * most).min(MAX_LOSS);
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            root.fill(&WHITE)?;
            let title = format!("{}: loss of accuracy over the share of samples sent", self.name);
            let mut chart = ChartBuilder::on(&root)
                .caption(title, ("sans-serif", 18))
                .margin(12)
                .x_label_area_size(40)
                .y_label_area_size(60)
                .build_cartesian_2d(0.0..1.0, 0.0..top)?;
            chart
                .configure_mesh()
                .x_desc("share of samples sent densely")
                .y_desc("loss of accuracy (1 − NCC, last value held)")
                .x_label_formatter(&|share| format!("{:.0} %", 100.0 * share))
                .y_label_formatter(&|loss| format!("{:.1} %", 100.0 * loss))
                .light_line_style(WHITE)
                .bold_line_style(RGBColor(225, 225, 225))
                .draw()?;
            // The claim of the publication: half of the data at a loss of 5 %.
            let bar = [(0.0, 0.05), (0.5, 0.05), (0.5, 0.0)].into_iter().filter(|(_, loss)| *loss <= top);
            chart.draw_series(LineSeries::new(bar, RGBColor(150, 150, 150).stroke_width(1)))?;
            for ((by, curve), colour) in self.by_policy.iter().zip(COLOURS) {
                let mut points: Vec<(f64, f64)> = curve.iter().map(|point| (point.share, point.loss)).collect();
                points.retain(|(_, loss)| *loss <= top);
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                chart
                    .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
                    .label(by.name())
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
                chart.draw_series(points.into_iter().map(|point| Circle::new(point, 2, colour.filled())))?;
            }
            chart.configure_series_labels().background_style(WHITE).border_style(RGBColor(225, 225, 225)).draw()?;
            root.present()?;
        }
        Ok(svg)
    }
}

/// A threshold or a budget as text.
fn of(by: SamplingMethod, threshold: f64) -> String {
    match by {
        SamplingMethod::Score => format!("θ {threshold:.2}"),
        SamplingMethod::DeadBand => format!("δ {threshold:.2}"),
        SamplingMethod::Either => format!("a budget of {:.1} %", 100.0 * threshold),
    }
}

/// The curve of one sampling method.
#[derive(Debug, Serialize)]
pub struct CurveView {
    by: &'static str,
    points: Vec<PointView>,
}

#[derive(Debug, Serialize)]
struct PointView {
    threshold: f64,
    sent: f64,
    loss: f64,
    labelled_rows_sent: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curves(labelled: bool) -> Curves {
        let anomalous = if labelled { 0.75 } else { f64::NAN };
        let at = |threshold: f64, share, loss| SamplingPoint { threshold, share, loss, anomalous };
        let curve = vec![at(0.5, 0.6, 0.0), at(1.0, 0.04, 0.02), at(2.0, 0.004, 0.2)];
        Curves {
            name: "shop".to_owned(),
            rows: 600,
            labelled,
            by_policy: SamplingMethod::ALL.map(|by| (by, curve.clone())),
        }
    }

    #[test]
    fn the_table_names_thresholds_by_what_is_sent_and_by_what_is_lost() {
        let text = curves(true).text();

        assert!(text.contains("\n           5 %   loss 2.0 %, faults 75 % at θ 1.00 "), "{text}");
        assert!(text.contains("\n           1 %   loss 20.0 %, faults 75 % at θ 2.00 "), "{text}");
        assert!(text.contains("for a loss of 5 %: score 4.0 % (at θ 1.00), dead band"), "{text}");
        assert!(text.contains("for a loss of 1 %: score 60.0 % (at θ 0.50)"), "{text}");
        assert!(!curves(false).text().contains("faults"));
    }

    #[test]
    fn the_picture_has_a_line_for_each_policy() {
        let svg = curves(true).draw().unwrap();

        assert!(SamplingMethod::ALL.iter().all(|by| svg.contains(by.name())), "{svg}");
        assert!(svg.contains("shop: loss of accuracy"));
    }
}
