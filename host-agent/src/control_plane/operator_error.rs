//! Why calls of operators fail. The texts say what to do about it.

use agent_runtime::shares::ShareError;
use lmap::ExpressionError;
use wire::id::{LmapId, MetricId, WorkerId};
use wire::name::{NameError, ServiceName};
use wire::time::Interval;

/// Why an operator's call failed. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperatorError {
    /// No such LMAP.
    #[error("there is no {0}: use the list call to find LMAPs")]
    NoLmap(LmapId),
    /// The service already has an LMAP.
    #[error("{service} already has {lmap}: configure it, or delete it first")]
    Exists {
        /// The service in the call.
        service: ServiceName,
        /// The LMAP that it has.
        lmap: LmapId,
    },
    /// An LMAP over several services needs a name of its own.
    #[error("{0} is a service: make an LMAP of another name for metrics of several services")]
    OwnService(ServiceName),
    /// A member of an LMAP over several services is an LMAP itself.
    #[error("{0} is an LMAP over several services: name the services themselves")]
    NoService(ServiceName),
    /// Columns of two members could have the same name.
    #[error("columns of {service} and {other} cannot be told apart: leave one of them out")]
    Nested {
        /// One of the members.
        service: ServiceName,
        /// A member whose name begins with the other one's and a slash.
        other: ServiceName,
    },
    /// A column of a member cannot have a name.
    #[error("columns of {service}: {error}")]
    Column {
        /// The member that has them.
        service: ServiceName,
        /// What is wrong with `service/metric`.
        error: NameError,
    },
    /// Metrics without the service that they are of.
    #[error("{0} watches several services: say of which one each metric is")]
    WhichService(LmapId),
    /// The LMAP has no such metric.
    #[error("{lmap} does not watch {metric}")]
    NoMetric {
        /// The LMAP in the call.
        lmap: LmapId,
        /// The unknown metric.
        metric: MetricId,
    },
    /// No replica of the service registered a metric of this name.
    #[error("no replica of {service} has registered {metric}")]
    NotRegistered {
        /// The service of the LMAP, or its name if it watches several.
        service: ServiceName,
        /// The metric's name.
        metric: String,
    },
    /// The metric has another type.
    #[error("{metric} is a {known}, not a {asked}")]
    Type {
        /// The metric's name.
        metric: String,
        /// Type of the registered metric.
        known: String,
        /// The type in the call.
        asked: String,
    },
    /// A derived column names what is no column.
    #[error("{metric}: {error}")]
    Expression {
        /// Name of the column.
        metric: String,
        /// What is wrong, and where.
        error: ExpressionError,
    },
    /// No connected worker runs the LMAP.
    #[error("{0} runs on no worker: start a NIC agent, or wait until it reconnects")]
    NotRunning(LmapId),
    /// No such worker.
    #[error("there is no worker {}: `uview status` lists them", .0.0)]
    NoWorker(WorkerId),
    /// No other worker takes LMAPs.
    #[error(
        "no other worker takes the LMAPs of worker {}, and nothing would be watched: start another NIC agent first, or use force",
        .0.0
    )]
    LastWorker(WorkerId),
    /// The interval is out of bounds.
    #[error("an interval of {} is outside {} to {}: {key} of the configuration set these bounds", asked.length(), fastest.length(), slowest.length())]
    Interval {
        /// The interval in the call.
        asked: Interval,
        /// The shortest that is allowed.
        fastest: Interval,
        /// The longest that is allowed.
        slowest: Interval,
        /// The keys that set the bounds.
        key: &'static str,
    },
    /// The model does not know most of what the LMAP watches.
    #[error(
        "the model does not know {unknown} of the {columns} columns of {service}, such as {examples}, and half of them \
         may be new to it: bring a model that was trained on rows of {service}"
    )]
    ModelColumns {
        /// The service of the LMAP, or its name if it watches several.
        service: ServiceName,
        /// Columns of the LMAP that are judged.
        columns: usize,
        /// Those that the model does not know.
        unknown: usize,
        /// Titles of the first of these.
        examples: String,
    },
    /// The model is of rows at another interval, whose increments are other numbers.
    #[error(
        "the model is of rows every {}, and {service} has one every {}: give it that interval first \
         (`uview lmap {service} --interval {}ms`), or bring a model that was trained on its rows",
        learnt.length(),
        interval.length(),
        learnt.length().as_millis()
    )]
    ModelInterval {
        /// The service of the LMAP, or its name if it watches several.
        service: ServiceName,
        /// Time between the rows that were learnt.
        learnt: Interval,
        /// Time between rows of the LMAP.
        interval: Interval,
    },
    /// The operator's share of bytes of models is taken.
    #[error(transparent)]
    Share(#[from] ShareError<String>),
    /// A limit is exceeded.
    #[error("{found} {what} exceed the limit of {limit}")]
    TooMany {
        /// What the limit is about.
        what: &'static str,
        /// The number in the call.
        found: usize,
        /// The limit that is exceeded.
        limit: usize,
    },
}

/// Checks that `found` of `what` are within `limit`.
pub(super) fn bounded(what: &'static str, found: usize, limit: usize) -> Result<(), OperatorError> {
    if found > limit { Err(OperatorError::TooMany { what, found, limit }) } else { Ok(()) }
}
