//! Converts protobuf messages to checked values, and back.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use lmap::{Expression, MAX_QUANTITIES, ReplicaExpression};
use tonic::Status;
use wire::control::DetectorSpec;
use wire::id::{HookId, LmapId};
use wire::metric::{Aggregation, TickDivider};
use wire::name::{Formula, MetricName, ServiceName, Unit};
use wire::proto::operators as proto;
use wire::time::{Interval, Nanos};

use crate::control_plane::{
    Choice, FastestChoice, IntervalChange, IntervalChoice, IntervalInEffect, LmapOptions, MemberChoices, OperatorError,
    TrainedModel, group_shares,
};
use crate::dispatch::{Delivery, Filter, HookItem, LmapChange, RowItem, WatchedRow};

fn invalid(error: &impl ToString) -> Status {
    Status::invalid_argument(error.to_string())
}

/// The gRPC status of an error.
pub fn status(error: &OperatorError) -> Status {
    let text = error.to_string();
    match error {
        OperatorError::NoLmap(_)
        | OperatorError::NoMetric { .. }
        | OperatorError::NotRegistered { .. }
        | OperatorError::NoWorker(_) => Status::not_found(text),
        OperatorError::Exists { .. } => Status::already_exists(text),
        OperatorError::Type { .. }
        | OperatorError::TooMany { .. }
        | OperatorError::Expression { .. }
        | OperatorError::Nested { .. }
        | OperatorError::Column { .. }
        | OperatorError::NoService(_)
        | OperatorError::WhichService(_) => Status::invalid_argument(text),
        OperatorError::NotRunning(_)
        | OperatorError::LastWorker(_)
        | OperatorError::OwnService(_)
        | OperatorError::ModelColumns { .. }
        | OperatorError::ModelInterval { .. } => Status::failed_precondition(text),
        OperatorError::Interval { .. } => Status::out_of_range(text),
        OperatorError::Share(_) => Status::resource_exhausted(text),
    }
}

/// A service's name.
///
/// # Errors
///
/// `INVALID_ARGUMENT` with what names are possible.
pub fn service(name: &str) -> Result<ServiceName, Status> {
    ServiceName::new(name).map_err(|error| invalid(&error))
}

/// An interval in microseconds; 0 is the default.
///
/// # Errors
///
/// `INVALID_ARGUMENT` outside 1 ms to 1 h.
pub fn interval(micros: u64) -> Result<Option<Interval>, Status> {
    if micros == 0 {
        return Ok(None);
    }
    Interval::new(Nanos::from_micros(micros)).map(Some).map_err(|error| invalid(&error))
}

/// A change of an LMAP's interval, by the operator `by`.
///
/// # Errors
///
/// `INVALID_ARGUMENT` for an interval outside 1 ms to 1 h, two answers to one question, or nothing to change.
pub fn interval_change(request: &proto::SetIntervalRequest, by: String) -> Result<IntervalChange, Status> {
    let fastest = match (request.default_fastest, request.fastest_us) {
        (true, Some(_)) => return Err(Status::invalid_argument("fastest_us and default_fastest exclude each other")),
        (true, None) => Some(FastestChoice::Default),
        (false, Some(micros)) => Some(interval(micros)?.map_or(FastestChoice::Never, FastestChoice::AtMost)),
        (false, None) => None,
    };
    let asked = request.interval_us.map(interval).transpose()?;
    let asked = asked.map(|asked| asked.map_or(IntervalChoice::Default, IntervalChoice::Of));
    let change = IntervalChange { interval: asked, fastest, by };
    if change.interval.is_none() && change.fastest.is_none() {
        return Err(Status::invalid_argument("nothing to change: set interval_us, fastest_us or default_fastest"));
    }
    Ok(change)
}

/// What is in effect, as a reply.
#[must_use]
pub fn interval_reply(of: &IntervalInEffect) -> proto::SetIntervalReply {
    let micros = |of: Option<Interval>| of.map_or(0, |of| of.length().0 / 1000);
    proto::SetIntervalReply {
        interval_us: micros(Some(of.interval)),
        fastest_us: micros(of.fastest),
        judged_us: micros(of.judged),
        rows_needed: of.rows_needed,
    }
}

/// The options of a new LMAP.
///
/// # Errors
///
/// `INVALID_ARGUMENT` with the setting that is out of its range, or the member that cannot be one.
pub fn lmap_options(request: &proto::NewLmapRequest, model: TrainedModel) -> Result<LmapOptions, Status> {
    let detector = request.detector.as_ref().map(DetectorSpec::try_from).transpose();
    Ok(LmapOptions {
        interval: interval(request.interval_us)?,
        model,
        by: String::new(),
        members: members(&request.services)?,
        detector: detector.map_err(|error| Status::invalid_argument(format!("detector: {error}")))?.unwrap_or_default(),
    })
}

/// How a metric is aggregated, and how often.
///
/// # Errors
///
/// `INVALID_ARGUMENT` for a name that is not valid, or an aggregation that cannot be computed, with the position.
pub fn choice(config: &proto::MetricConfig) -> Result<Choice, Status> {
    let (asked, derived) = (config.aggregation.as_str(), config.derived.as_str());
    let aggregation = match (asked, derived) {
        ("", "") => None,
        (_, "") => Some(aggregation(asked)?),
        ("", _) => Some(derived_column(derived)?),
        _ => return Err(Status::invalid_argument("a derived column has no aggregation: leave one of them out")),
    };
    let unit = Some(config.unit.as_str()).filter(|unit| !unit.is_empty());
    Ok(Choice {
        metric: MetricName::new(&config.metric).map_err(|error| invalid(&error))?,
        aggregation,
        every: TickDivider::new(config.every),
        unit: unit.map(Unit::new).transpose().map_err(|error| invalid(&error))?,
    })
}

/// An aggregation that can be computed, as far as can be said here.
fn aggregation(text: &str) -> Result<Aggregation, Status> {
    let aggregation = Aggregation::parse(text).map_err(|error| invalid(&error))?;
    if let Aggregation::Formula(formula) = &aggregation {
        ReplicaExpression::new(formula.as_str()).map_err(|error| invalid(&error))?;
    }
    Ok(aggregation)
}

/// An expression over other columns.
fn derived_column(text: &str) -> Result<Aggregation, Status> {
    let formula = Formula::new(text).map_err(|error| invalid(&error))?;
    let expression = Expression::parse(formula.as_str()).map_err(|error| invalid(&error))?;
    expression.check_finite().map_err(|error| invalid(&error))?;
    if let Some(one_too_many) = expression.names().get(MAX_QUANTITIES) {
        let at = one_too_many.at;
        return Err(Status::invalid_argument(format!("at {at}: more than {MAX_QUANTITIES} names")));
    }
    Ok(Aggregation::Derived(formula))
}

/// Which verdicts a hook is sent.
///
/// # Errors
///
/// `INVALID_ARGUMENT` for a share that is no number from 0 on, or too many LMAPs.
pub fn filter(request: &proto::RegisterHookRequest) -> Result<Filter, Status> {
    let min_share = request.min_share;
    if !(min_share.is_finite() && min_share >= 0.0) {
        return Err(Status::invalid_argument(format!("min_share is {min_share}: must be a number from 0 on")));
    }
    if request.lmaps.len() > wire::control::MAX_LMAPS {
        return Err(Status::invalid_argument("too many LMAPs: leave the list empty for all"));
    }
    let proto::RegisterHookRequest { features, follow, .. } = *request;
    Ok(Filter { lmaps: request.lmaps.iter().copied().map(LmapId).collect(), min_share, features, follow })
}

/// The services of an LMAP over several, with the choice of their metrics.
///
/// # Errors
///
/// `INVALID_ARGUMENT` for a name that is not valid, and as [`choice`].
pub fn members(services: &[proto::ServiceMetrics]) -> Result<Vec<MemberChoices>, Status> {
    let member = |of: &proto::ServiceMetrics| {
        let choices = of.metrics.iter().map(choice).collect::<Result<_, _>>()?;
        Ok(MemberChoices { service: service(&of.service)?, choices })
    };
    services.iter().map(member).collect()
}

/// Which titles of columns a stream was sent last, as hashes by LMAP: titles are long, and LMAPs come and go
/// unnoticed by a hook of all. At most [`wire::control::MAX_LMAPS`]; beyond that, those of the oldest LMAP are sent
/// again.
#[derive(Debug, Default)]
pub struct SentTitles(BTreeMap<LmapId, u64>);

impl SentTitles {
    /// The titles in `columns` of `lmap`, unless they were the last that were sent.
    fn new_titles(&mut self, lmap: LmapId, columns: &[String]) -> Vec<String> {
        let mut hasher = DefaultHasher::new();
        columns.hash(&mut hasher);
        let hash = hasher.finish();
        let same = self.0.insert(lmap, hash) == Some(hash);
        if self.0.len() > wire::control::MAX_LMAPS {
            self.0.pop_first();
        }
        if same { Vec::new() } else { columns.to_vec() }
    }
}

fn change(change: &LmapChange) -> proto::LmapChange {
    proto::LmapChange {
        deleted: change.deleted.0,
        reason: change.reason.to_owned(),
        successor: change.successor.map_or(0, |lmap| lmap.0),
        last: change.last,
    }
}

/// What a hook gets. Carries column titles only if they differ from those in `sent`, which forgets deleted LMAPs.
pub fn event(hook: HookId, taken: &Delivery<HookItem>, sent: &mut SentTitles) -> proto::HookEvent {
    let event = match &taken.item {
        HookItem::Verdict(event) => &**event,
        HookItem::Change(of) => {
            sent.0.remove(&of.deleted);
            return proto::HookEvent {
                hook: hook.0,
                sequence: taken.sequence,
                lost: taken.lost,
                lmap: of.successor.unwrap_or(of.deleted).0,
                service: of.service.to_string(),
                state: if of.successor.is_some() { "followed" } else { "deleted" }.to_owned(),
                episode: "quiet".to_owned(),
                change: Some(change(of)),
                ..proto::HookEvent::default()
            };
        }
    };
    let columns = event.columns.as_ref().map_or_else(Vec::new, |titles| sent.new_titles(event.verdict.lmap, titles));
    let features = event.verdict.features.as_ref();
    let features = features.map(|of| proto::Features { values: of.values.clone(), residuals: of.residuals.clone() });
    let suspicion = event.suspicion.as_ref();
    let points_at = suspicion.and_then(|suspicion| suspicion.points_at.as_ref());
    proto::HookEvent {
        hook: hook.0,
        sequence: taken.sequence,
        lost: taken.lost,
        lmap: event.verdict.lmap.0,
        service: event.service.to_string(),
        at_unix_ns: event.at.0,
        score: event.verdict.score,
        gamma: event.verdict.gamma.unwrap_or(0.0),
        state: event.verdict.state.name().to_owned(),
        episode: event.verdict.episode.name().to_owned(),
        reasons: event.reasons.iter().map(proto::Reason::from).collect(),
        groups: group_shares(&event.verdict.groups),
        silent_replicas: event.silent.iter().map(ToString::to_string).collect(),
        rank: suspicion.map_or(0, |suspicion| suspicion.rank),
        points_at: points_at.map(ToString::to_string).unwrap_or_default(),
        columns,
        features,
        epoch: event.verdict.epoch.0,
        change: None,
        concerned: event.concerned.iter().map(ToString::to_string).collect(),
    }
}

/// A row, or what became of the LMAP. Carries column titles only if they differ from those in `sent_columns`.
pub fn row(taken: Delivery<RowItem>, sent_columns: &mut Option<Arc<[String]>>) -> proto::RowEvent {
    let WatchedRow { lmap, columns, row } = match taken.item {
        RowItem::Row(row) => row,
        RowItem::Change(of) => {
            *sent_columns = None;
            let lmap = of.successor.unwrap_or(of.deleted).0;
            return proto::RowEvent { lost: taken.lost, lmap, change: Some(change(&of)), ..proto::RowEvent::default() };
        }
    };
    let is_sent = |sent: &Arc<[String]>| Arc::ptr_eq(sent, &columns) || **sent == *columns;
    let titles = if sent_columns.as_ref().is_some_and(is_sent) { Vec::new() } else { columns.to_vec() };
    *sent_columns = Some(columns);
    proto::RowEvent {
        columns: titles,
        at_unix_ns: row.at_unix_ns,
        score: row.score,
        values: row.values,
        lost: taken.lost,
        lmap: lmap.0,
        change: None,
    }
}

#[cfg(test)]
mod tests {
    use wire::proto::control::Row;

    use super::*;

    #[test]
    fn bad_arguments_are_named() {
        assert!(service("a b").unwrap_err().message().contains("service name"));
        assert!(interval(999).unwrap_err().message().contains("outside 1 ms to 1 h"));
        assert_eq!(interval(0).unwrap(), None);
        let wrong = proto::Detector { percentile: Some(101.0), ..proto::Detector::default() };
        let request = proto::NewLmapRequest { detector: Some(wrong), ..proto::NewLmapRequest::default() };
        assert_eq!(
            lmap_options(&request, TrainedModel::default()).unwrap_err().message(),
            "detector: percentile is 101: above 0 up to 100 is possible"
        );
        let change = |request| interval_change(&request, String::new());
        let nothing = change(proto::SetIntervalRequest::default()).unwrap_err();
        assert!(nothing.message().contains("nothing to change"), "{nothing}");
        let both = proto::SetIntervalRequest { fastest_us: Some(0), default_fastest: true, ..Default::default() };
        assert!(change(both).unwrap_err().message().contains("exclude each other"));
        let short = proto::SetIntervalRequest { interval_us: Some(5), ..Default::default() };
        assert!(change(short).unwrap_err().message().contains("outside 1 ms to 1 h"));
        let config = |aggregation: &str, derived: &str| {
            let (aggregation, derived) = (aggregation.to_owned(), derived.to_owned());
            choice(&proto::MetricConfig { metric: "a".into(), aggregation, derived, ..proto::MetricConfig::default() })
        };
        for (aggregation, derived, says) in [
            ("b c", "", "at 2: 'c' instead of an operator or the end"),
            ("max - mode", "", "at 6: mode is not known: min, max, sum, mean, count, and quantiles such as p90 are"),
            ("sum / 0", "", "no finite value"),
            ("p101", "", "p101 is no quantile"),
            ("", "errors /", "at 8: the end instead of a number"),
            ("", "errors / (errors - errors)", "no finite value"),
            ("max", "errors / requests", "leave one of them out"),
        ] {
            let refused = config(aggregation, derived).unwrap_err();
            assert!(refused.message().contains(says), "{refused}");
        }
        assert!(config("max - min", "").is_ok() && config("", "errors / requests").is_ok() && config("", "").is_ok());
        let request = proto::RegisterHookRequest {
            lmaps: vec![],
            min_share: f64::NAN,
            queue: 0,
            ..proto::RegisterHookRequest::default()
        };
        assert!(filter(&request).unwrap_err().message().contains("min_share is NaN"));
    }

    #[test]
    fn titles_of_each_lmap_are_sent_first_and_when_they_change_and_few_bytes_are_kept_of_them() {
        let (mut sent, a, b) = (SentTitles::default(), ["a".to_owned()], ["b".to_owned()]);

        assert_eq!(sent.new_titles(LmapId(1), &a), a);
        assert!(sent.new_titles(LmapId(1), &a).is_empty());
        assert_eq!((sent.new_titles(LmapId(2), &a), sent.new_titles(LmapId(1), &b)), (a.to_vec(), b.to_vec()));
        (3..10_000).for_each(|lmap| drop(sent.new_titles(LmapId(lmap), &a)));
        assert_eq!(sent.0.len(), wire::control::MAX_LMAPS);
    }

    #[test]
    fn columns_are_sent_first_and_when_they_change() {
        let titles = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Arc<[String]>>();
        let taken = |columns: &Arc<[String]>| Delivery {
            sequence: 1,
            lost: 0,
            item: RowItem::Row(WatchedRow {
                lmap: LmapId(1),
                columns: Arc::clone(columns),
                row: Row { at_unix_ns: 1, score: 0.0, values: vec![1.0] },
            }),
        };
        let (a, same, b) = (titles(&["a"]), titles(&["a"]), titles(&["b"]));
        let mut sent_columns = None;

        assert_eq!(row(taken(&a), &mut sent_columns).columns, ["a"]);
        assert!(row(taken(&a), &mut sent_columns).columns.is_empty());
        assert!(row(taken(&same), &mut sent_columns).columns.is_empty());
        assert_eq!(row(taken(&b), &mut sent_columns).columns, ["b"]);
    }
}
