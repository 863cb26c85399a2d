//! Custom resources of Kubernetes, and what a node does about them. Pure: objects of the API server in, changes of
//! LMAPs, of services' sampling and of streams of packets out.
//!
//! | module | what |
//! | --- | --- |
//! | [`lmap`] | the kind `Lmap`: how the workloads of a namespace are watched |
//! | [`sampling_policy`] | the kind `SamplingPolicy`: which traces through them are kept |
//! | [`synopsis_policy`] | the kind `SynopsisPolicy`: which synopses watch their packets |
//! | [`object_status`] | the status of all three: what came of one on all nodes |
//! | [`node_status`] | the kind `LmapNodeStatus`: what came of each object on one node |
//! | [`files`] | the same objects as YAML files, for a node without Kubernetes |
//! | [`check`] | what is wrong with these files, by the definitions' own schemas and rules |
//! | `rules` | the rules of the definitions, in CEL and in Rust |
//! | [`duration`] | `200ms` |
//! | [`plan`] | which LMAPs of this node each `Lmap` is about, and which one has the say |
//! | [`sampling_plan`] | the same of `SamplingPolicy`s and services |
//! | [`synopsis_plan`] | the same of `SynopsisPolicy`s and streams |
//! | [`changes`] | what has to be changed, after what was applied before |
//! | [`report`] | what came of it, for the status |
//! | [`aggregate`] | what came of each object on all nodes together: statuses to write, and what to tell |
//! | [`manifests`] | the definitions of all kinds, as they are installed |
//!
//! Each node does this by itself, for its own pods, from all objects anew (decision D38). An object never has a say
//! about another namespace: names of services begin with theirs, and so do the names that an object can give.

pub mod aggregate;
pub mod changes;
pub mod check;
pub mod duration;
pub mod files;
mod lines;
pub mod lmap;
pub mod manifests;
pub mod node_status;
pub mod object_status;
pub mod plan;
pub mod report;
mod rules;
pub mod sampling_plan;
pub mod sampling_policy;
pub mod synopsis_plan;
pub mod synopsis_policy;
#[cfg(test)]
mod testing;
mod text;

pub use lmap::{Lmap, LmapSpec};
pub use node_status::{LmapNodeStatus, NodeReport};
pub use object_status::ObjectStatus;
pub use sampling_policy::{SamplingPolicy, SamplingPolicySpec};
pub use synopsis_policy::{SynopsisPolicy, SynopsisPolicySpec};
