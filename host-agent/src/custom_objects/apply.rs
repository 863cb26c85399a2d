//! Changes of LMAPs, by the same checks and calls as those of an operator.

use resources::changes::Change;
use resources::lmap::{Detector, Metric, Score};
use resources::plan::{Adaptive, Settings};
use wire::control::DetectorSpec;
use wire::id::LmapId;
use wire::proto::operators as proto;

use crate::control_plane::{DeclaredSettings, IntervalChange, LmapOptions, OperatorError, TrainedModel};
use crate::node::Node;
use crate::operators_server::translate;

/// Carries out `change`. Returns the LMAP that has the settings now; `None` if none has.
///
/// # Errors
///
/// Why it is refused, in words. Nothing has changed.
pub(super) fn apply(node: &Node, change: &Change) -> Result<Option<u32>, String> {
    let said = |error: &OperatorError| error.to_string();
    match change {
        Change::Reset { lmap, name } => {
            let declared = declared(&Settings::default())?;
            tracing::info!(name, lmap, "no Lmap sets it any more");
            node.plane(|plane, now| plane.set_declared(now, LmapId(*lmap), declared)).map_err(|error| said(&error))?;
            Ok(None)
        }
        Change::Delete { lmap, name } => {
            tracing::info!(name, lmap, "its Lmap is gone");
            node.plane(|plane, now| plane.delete_lmap(now, LmapId(*lmap))).map_err(|error| said(&error))?;
            Ok(None)
        }
        Change::Set { name, lmap: Some(lmap), settings } => {
            let declared = declared(settings)?;
            node.plane(|plane, now| plane.set_declared(now, LmapId(*lmap), declared)).map_err(|error| said(&error))?;
            tracing::info!(name, lmap, by = settings.by, "set");
            Ok(Some(*lmap))
        }
        Change::Set { name, lmap: None, settings } => {
            let service = translate::service(name).map_err(text)?;
            let declared = declared(settings)?;
            let options = LmapOptions {
                model: TrainedModel::default(),
                by: settings.by.clone(),
                members: declared.members.clone(),
                ..LmapOptions::default()
            };
            let made = node.plane(|plane, now| {
                let lmap = plane.new_lmap(now, &service, options)?;
                // One that cannot have its interval is not made.
                let set = plane.set_declared(now, lmap, declared);
                set.or_else(|error| plane.delete_lmap(now, lmap).and(Err(error)))?;
                Ok(lmap)
            });
            let lmap = made.map_err(|error: OperatorError| said(&error))?;
            tracing::info!(name, %lmap, by = settings.by, "made");
            Ok(Some(lmap.0))
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it takes the place of the error")]
fn text(status: tonic::Status) -> String {
    status.message().to_owned()
}

/// `settings` as the operators' API takes them, with its checks.
fn declared(settings: &Settings) -> Result<DeclaredSettings, String> {
    let choices: Result<Vec<_>, _> = settings.metrics.iter().map(|of| translate::choice(&metric(of))).collect();
    let members: Vec<_> = settings
        .members
        .iter()
        .map(|(service, metrics)| {
            let metrics = metrics.iter().map(metric).collect();
            proto::ServiceMetrics { service: service.clone(), metrics }
        })
        .collect();
    let detector =
        DetectorSpec::try_from(&detector(&settings.detector)).map_err(|error| format!("detector: {error}"))?;
    Ok(DeclaredSettings {
        interval: interval(settings)?,
        detector,
        choices: choices.map_err(text)?,
        members: translate::members(&members).map_err(text)?,
    })
}

/// Both are set anew: what is absent is as the configuration says.
fn interval(settings: &Settings) -> Result<IntervalChange, String> {
    let (fastest_us, default_fastest) = match settings.adaptive {
        None => (None, true),
        Some(Adaptive::Off) => (Some(0), false),
        Some(Adaptive::AtMost(micros)) => (Some(micros), false),
    };
    let interval_us = Some(settings.interval.unwrap_or(0));
    let request = proto::SetIntervalRequest { lmap: 0, interval_us, fastest_us, default_fastest };
    translate::interval_change(&request, settings.by.clone()).map_err(text)
}

fn metric(of: &Metric) -> proto::MetricConfig {
    let Metric { name, aggregation, every, derived, unit } = of.clone();
    proto::MetricConfig {
        metric: name,
        aggregation: aggregation.unwrap_or_default(),
        every: every.unwrap_or(0),
        derived: derived.unwrap_or_default(),
        unit: unit.unwrap_or_default(),
    }
}

fn detector(of: &Detector) -> proto::Detector {
    proto::Detector {
        score: of.score.map(Score::name).unwrap_or_default().to_owned(),
        rank: of.rank,
        sketch_rows: of.sketch_rows,
        stride: of.stride,
        percentile: of.percentile,
        learning_rate: of.learning_rate,
        margin: of.margin,
        alarms_per_day: of.alarms_per_day,
        rows_kept: of.rows_kept,
    }
}
