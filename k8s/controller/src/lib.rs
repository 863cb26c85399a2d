//! The controller of a Kubernetes cluster: it gathers what the nodes say about each `Lmap` and `SamplingPolicy` into
//! the object's own status, and tells of transitions by events; and it serves metrics to the HorizontalPodAutoscaler
//! (decision D40).
//!
//! | module | what |
//! | --- | --- |
//! | `known` | lists and watches of both kinds, of what nodes say about them, and of nodes |
//! | `writer` | writes statuses that differ from what the API server has |
//! | `pace` | how often, after success, failure and throttling; pure |
//! | `gone` | when the report of a node that is gone is deleted; pure |
//! | `events` | events about transitions; pure |
//! | `lease`, `election` | which of the replicas writes; `election` is pure |
//! | `metrics_api`, `serving`, `front_proxy` | `custom.metrics.k8s.io`, over TLS, and whom it answers |
//! | `objects` | which LMAPs a pod, a workload or an `Lmap` consists of |
//! | `agents`, `scores` | what host agents say of their LMAPs; `scores` is pure |
//! | `calls` | requests whose refusal says when to ask again |
//! | `counts`, `health` | its own metrics, and whether it is ready |
//!
//! What a status says is computed by [`resources::aggregate`], which is pure. No agent depends on this program: without
//! it, everything is watched as before, and only the gathered statuses stay as they are.

mod agents;
mod arguments;
mod calls;
mod clock;
mod counts;
mod election;
mod events;
mod front_proxy;
mod gone;
mod health;
mod known;
mod lease;
mod metrics_api;
mod objects;
mod pace;
mod run;
mod scores;
mod serving;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod writer;

pub use arguments::ControllerArgs;
pub use run::{RunError, run};
