//! Alarms for whoever takes [Alertmanager's webhooks](https://prometheus.io/docs/alerting/latest/configuration/#webhook_config): one group for
//! each service, told when it fires, changes and is resolved, again while it goes on, and again after a failure.
//!
//! [`groups`] decides, given the time; [`message`] writes. What a receiver is owed is a state and no queue: one that was away for an hour is
//! told how things stand, once, and memory is bounded by services. Each alarm is told at least once, also one that began and ended meanwhile.

pub mod groups;
pub mod message;

pub use groups::{Groups, Heard, Notice, Rule, Sight, Standing, Step, What};
