//! What dynamic sampling would send of the rows, and what would be lost of them, by threshold: as text, as JSON and as a picture.

use std::fmt::Write as _;
use std::path::Path;

use evaluation::sampled::{By, Sampled, SampledError, Sampling, curve, losing, within};
use evaluation::table::Label;
use evaluation::unit::Rows;
use lmap::RowError;
use plotters::prelude::*;
use serde::Serialize;
use thiserror::Error;

use super::report::Replay;

/// Shares of all samples that are shown as text.
const BUDGETS: [f64; 6] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5];
/// Losses for which the least share is said.
const LOSSES: [f64; 2] = [0.01, 0.05];
/// The loss at which the picture ends.
const MOST_LOSS: f64 = 0.3;
const SIZE: (u32, u32) = (900, 520);
// Of the palette of Okabe and Ito, which colour-blind people tell apart.
const COLOURS: [RGBColor; 3] = [RGBColor(213, 94, 0), RGBColor(0, 114, 178), RGBColor(0, 158, 115)];

/// Why nothing can be said.
#[derive(Debug, Error)]
pub enum CurvesError {
    /// Nothing was judged.
    #[error("the detector never armed, so no row has a score")]
    NeverArmed,
    /// A mistake of the caller.
    #[error(transparent)]
    Rows(#[from] RowError),
    /// A mistake of the caller.
    #[error(transparent)]
    Sampled(#[from] SampledError),
}

/// The curves of all policies.
#[derive(Debug)]
pub struct Curves {
    name: String,
    rows: usize,
    labelled: bool,
    by_policy: [(By, Vec<Sampled>); By::ALL.len()],
}

impl Curves {
    /// Of the rows that were judged.
    ///
    /// # Errors
    ///
    /// [`CurvesError`].
    pub fn of(replay: &Replay<'_>) -> Result<Self, CurvesError> {
        let Replay { table, columns, interval, course, .. } = *replay;
        let armed = course.armed.ok_or(CurvesError::NeverArmed)?;
        let rows = Rows::of(table, columns, Some(interval))?;
        let values: Vec<&[f64]> = rows.iter().map(|(row, _)| row).collect();
        let shares: Vec<f64> = course.scores.iter().zip(&course.gammas).map(|(score, gamma)| score / gamma).collect();
        let labels = table.labels.as_ref();
        let anomalous: Option<Vec<bool>> = labels.map(|l| l.iter().map(|label| *label == Label::Anomalous).collect());
        let sampling = Sampling { rows: &values, shares: &shares, interval, anomalous: anomalous.as_deref() };
        let [score, band, either] = By::ALL;
        let of = |by| curve(&sampling, by).map(|curve| (by, curve));
        Ok(Self {
            name: replay.name.to_owned(),
            rows: values.len() - armed,
            labelled: anomalous.is_some(),
            by_policy: [of(score)?, of(band)?, of(either)?],
        })
    }

    /// A table by budget, and the least that has to be sent for a given loss.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text =
            format!("\ndynamic sampling of the {} rows that were judged, beside a baseline every 30 s\n", self.rows);
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
            let least = |by, curve: &[Sampled]| {
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

    fn words(&self, by: By, point: Option<Sampled>) -> String {
        let Some(Sampled { threshold, loss, anomalous, .. }) = point else { return "more is sent always".to_owned() };
        let threshold = of(by, threshold);
        let faulty = if self.labelled && !anomalous.is_nan() {
            format!(", faults {:.0} %", 100.0 * anomalous)
        } else {
            String::new()
        };
        format!("loss {:.1} %{faulty} at {threshold}", 100.0 * loss)
    }

    /// As JSON has it.
    #[must_use]
    pub fn view(&self) -> Vec<CurveView> {
        let point = |point: &Sampled| PointView {
            threshold: point.threshold,
            sent: point.share,
            loss: point.loss,
            labelled_rows_sent: Some(point.anomalous).filter(|share| !share.is_nan()),
        };
        let curves = self.by_policy.iter();
        curves.map(|(by, curve)| CurveView { by: by.name(), points: curve.iter().map(point).collect() }).collect()
    }

    /// Draws loss over what is sent.
    ///
    /// # Errors
    ///
    /// What cannot be drawn or written, as text.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        std::fs::write(path, self.draw().map_err(|error| error.to_string())?).map_err(|error| error.to_string())
    }

    fn draw(&self) -> Result<String, Box<dyn core::error::Error + '_>> {
        let mut svg = String::new();
        let most = self.by_policy.iter().flat_map(|(_, curve)| curve).map(|point| point.loss).fold(0.02, f64::max);
        let top = (1.05 * most).min(MOST_LOSS);
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            root.fill(&WHITE)?;
            let title = format!("{}: what is lost where only a part of the samples is sent", self.name);
            let mut chart = ChartBuilder::on(&root)
                .caption(title, ("sans-serif", 18))
                .margin(12)
                .x_label_area_size(40)
                .y_label_area_size(60)
                .build_cartesian_2d(0.0..1.0, 0.0..top)?;
            chart
                .configure_mesh()
                .x_desc("share of samples that is sent densely")
                .y_desc("loss of accuracy (1 − NCC, last value held)")
                .x_label_formatter(&|share| format!("{:.0} %", 100.0 * share))
                .y_label_formatter(&|loss| format!("{:.1} %", 100.0 * loss))
                .light_line_style(WHITE)
                .bold_line_style(RGBColor(225, 225, 225))
                .draw()?;
            // The publication's bar: half of the data for 5 % of accuracy.
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

/// A threshold, or a budget, as people read it.
fn of(by: By, threshold: f64) -> String {
    match by {
        By::Score => format!("θ {threshold:.2}"),
        By::DeadBand => format!("δ {threshold:.2}"),
        By::Either => format!("a budget of {:.1} %", 100.0 * threshold),
    }
}

/// One policy's curve.
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
        let at = |threshold: f64, share, loss| Sampled { threshold, share, loss, anomalous };
        let curve = vec![at(0.5, 0.6, 0.0), at(1.0, 0.04, 0.02), at(2.0, 0.004, 0.2)];
        Curves { name: "shop".to_owned(), rows: 600, labelled, by_policy: By::ALL.map(|by| (by, curve.clone())) }
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

        assert!(By::ALL.iter().all(|by| svg.contains(by.name())), "{svg}");
        assert!(svg.contains("shop: what is lost"));
    }
}
