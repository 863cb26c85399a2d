//! What the metrics are called that every service of the shop has: [`crate::fault::Kind::belongs`] goes by the same names as the meters.
//!
//! Names follow OpenTelemetry's semantic conventions where those have one.

/// Requests answered, by route and status.
pub(crate) const REQUESTS: &str = "http.server.requests";
/// The label of [`REQUESTS`] for the class of a status.
pub(crate) const STATUS: &str = "status";
/// How long answers took, by route.
pub(crate) const REQUEST_DURATION: &str = "http.server.request.duration";
/// Requests that are being answered.
pub(crate) const ACTIVE_REQUESTS: &str = "http.server.active_requests";
/// Requests answered with an error.
pub(crate) const ERRORS: &str = "http.server.errors";
/// Bytes of answers.
pub(crate) const RESPONSE_SIZE: &str = "http.server.response.size";

/// Calls to dependencies, by peer and outcome.
pub(crate) const CALLS: &str = "http.client.requests";
/// How long they took, by peer.
pub(crate) const CALL_DURATION: &str = "http.client.request.duration";
/// Calls that wait for an answer, by peer.
pub(crate) const ACTIVE_CALLS: &str = "http.client.active_requests";
/// Bytes of what they were answered, by peer.
pub(crate) const CALL_SIZE: &str = "http.client.response.size";

/// Requests that wait for their turn.
pub(crate) const QUEUE_DEPTH: &str = "queue.depth";
/// How long they waited.
pub(crate) const QUEUE_WAIT: &str = "queue.wait";
/// Time that was worked.
pub(crate) const BUSY_TIME: &str = "work.busy_time";
/// How long the work of one request took.
pub(crate) const WORK_DURATION: &str = "work.duration";
/// Tasks of the runtime.
pub(crate) const TASKS: &str = "runtime.tasks";
