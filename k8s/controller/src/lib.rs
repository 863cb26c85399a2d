//! The controller of a Kubernetes cluster: it gathers what the nodes say about each `Lmap` and each policy into
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
//! | `openapi` | what that API consists of, for the API server and kubectl |
//! | `calls` | requests whose refusal says when to ask again |
//! | `bounded`, `questions`, `memory_budget` | what answers, lists and pages may take in memory |
//! | `budget` | all that may be kept, as `--budget` prints it |
//! | `counts`, `health` | its own metrics, and whether it is ready |
//!
//! What a status says is computed by [`resources::aggregate`], which is pure. No agent depends on this program: without
//! it, everything is watched as before, and only the gathered statuses stay as they are.

mod agents;
mod arguments;
mod bounded;
mod budget;
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
mod memory_budget;
mod metrics_api;
mod objects;
mod openapi;
mod pace;
mod questions;
mod run;
mod scores;
mod serving;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod writer;

pub use arguments::ControllerArgs;
pub use budget::{DECODED, budget};
pub use run::{RunError, run};
