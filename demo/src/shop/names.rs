//! Names of the metrics that every service of the shop has; used by the meters and by
//! [`crate::fault::Kind::belongs`].
//!
//! Names follow OpenTelemetry's semantic conventions where those have one.

/// Completed requests, by route and status class.
pub(crate) const REQUESTS: &str = "http.server.requests";
/// The label of [`REQUESTS`] for the class of a status.
pub(crate) const STATUS: &str = "status";
/// Duration of requests, by route.
pub(crate) const REQUEST_DURATION: &str = "http.server.request.duration";
/// Requests in flight.
pub(crate) const ACTIVE_REQUESTS: &str = "http.server.active_requests";
/// Requests with status 5xx.
pub(crate) const ERRORS: &str = "http.server.errors";
/// Bytes of responses.
pub(crate) const RESPONSE_SIZE: &str = "http.server.response.size";

/// Calls to dependencies, by peer and outcome.
pub(crate) const CALLS: &str = "http.client.requests";
/// Duration of calls, by peer.
pub(crate) const CALL_DURATION: &str = "http.client.request.duration";
/// Calls in flight, by peer.
pub(crate) const ACTIVE_CALLS: &str = "http.client.active_requests";
/// Bytes of responses to calls, by peer.
pub(crate) const CALL_SIZE: &str = "http.client.response.size";

/// Requests queued for the worker.
pub(crate) const QUEUE_DEPTH: &str = "queue.depth";
/// Time that requests were queued.
pub(crate) const QUEUE_WAIT: &str = "queue.wait";
/// Time for which the worker was busy.
pub(crate) const BUSY_TIME: &str = "work.busy_time";
/// Duration of the work of one request.
pub(crate) const WORK_DURATION: &str = "work.duration";
/// Tasks of the runtime.
pub(crate) const TASKS: &str = "runtime.tasks";
