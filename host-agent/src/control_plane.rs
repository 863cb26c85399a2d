//! All decisions about services, LMAPs and workers. Does no I/O.
//!
//! A deterministic state machine. Events go in with the time; actions come out of [`ControlPlane::take_actions`]. Call
//! [`ControlPlane::poll`] after each event, and at the time that it returns. Everything is processed in the order of
//! ids.
//!
//! Rules (μView, Sec. 4.2; decisions D1, D2, D4):
//! - An LMAP is created with the first series of a service's first replica. It is deleted with the last replica, unless
//!   an operator created or configured it. After an operator has deleted it, it stays deleted until an operator creates
//!   it again.
//! - It runs on the connected worker with the least load (values per second). It moves when that worker leaves or is
//!   fenced, and to a worker that joins and has less to do. A worker that an operator drains loses all, and gets none.
//! - Each configuration change sent to a worker has an epoch of that worker. Slots and regions are released after every
//!   worker that may know them has acknowledged an epoch without them, or was fenced: its lease expired, another run
//!   took its number, or it acknowledged an epoch that was never sent.
//! - Messages about an outdated configuration are dropped and counted.

mod action;
mod catalogue;
mod connections;
mod container;
mod counters;
mod declarations;
mod declared;
mod drains;
mod footprint;
mod incidents;
mod interval;
mod interval_choice;
mod kept_models;
mod lmap;
mod lmap_move;
mod lmap_options;
mod lmap_view;
mod members;
mod memory_accounts;
mod model_handover;
mod move_times;
mod moves;
mod named_reason;
mod numbers;
mod operator_error;
mod operator_models;
mod operators;
mod over_several;
mod paces;
mod pacing;
mod placement;
mod pod_identity;
mod rdma_access;
mod refusal;
mod refused_requests;
mod release;
mod replica;
mod replica_facts;
mod report;
mod scores;
mod selection;
mod sent_config;
mod services;
mod settings;
mod shares;
mod slowdown;
mod span_rings;
mod state;
mod streams;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod trained_model;
mod unregistered_regions;
mod verdicts;
mod wanted_streams;
mod worker;
mod workers;

pub use agent_runtime::access::Identity;

pub use self::incidents::Suspicion;
pub use action::{Action, ConnectionId, Deletion, Event, RowBatch};
pub use counters::Counters;
pub use declared::DeclaredSettings;
pub use interval_choice::{FastestChoice, IntervalChange, IntervalChoice, IntervalInEffect};
pub(crate) use kept_models::MAX_KEPT_MODELS;
pub use kept_models::{KeptModel, ModelKey};
pub(crate) use lmap_options::MAX_MODELS_BYTES;
pub use lmap_options::{LmapOptions, MemberChoices};
pub use lmap_view::LmapView;
pub(crate) use members::{MAX_MEMBER_SERIES, MAX_MEMBER_TEXT};
pub use named_reason::NamedReason;
pub use operator_error::OperatorError;
pub use operator_models::ModelFit;
pub(crate) use operators::MAX_CHOICE_BYTES;
pub(crate) use over_several::{MAX_MEMBER_REGIONS, MAX_OVER_SEVERAL};
pub use paces::Paces;
pub use pod_identity::PodIdentity;
pub use refusal::{HelloRefusal, RegionRefusal, SeriesRefusal};
pub use replica_facts::ReplicaFacts;
pub use report::WorkerReadiness;
pub(crate) use report::group_shares;
pub use scores::LmapScore;
pub use selection::Choice;
pub use services::Descriptor;
pub use settings::{AggregationRule, IdentityRule, Limits, Peer, Settings, may_measure};
pub use state::ControlPlane;
pub use trained_model::TrainedModel;
pub use wanted_streams::StreamOutcome;
pub use worker::Drain;
