//! Sends alarms to receivers of
//! [Alertmanager's webhooks](https://prometheus.io/docs/alerting/latest/configuration/#webhook_config): one alert group
//! per service. A group is sent when it fires, changes or is resolved, repeatedly while it fires, and again after a
//! failure.
//!
//! [`groups`] decides what is sent and when; time is an argument. [`message`] writes the JSON. A receiver gets the
//! current state, not a backlog: after an outage of an hour it is sent the state of each service once, and memory is
//! bounded by the number of services. Each alarm is sent at least once, also one that began and ended meanwhile.

pub mod groups;
pub mod message;

pub use groups::{
    AlertEvent, AlertGroups, AlertKind, Delivery, GroupingRule, Notification, Reply, ServiceStatus, Step,
};
