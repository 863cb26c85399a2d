//! Custom resources of Kubernetes, and what a node does about them. Pure: objects of the API server in, changes of
//! LMAPs out.
//!
//! | module | what |
//! | --- | --- |
//! | [`lmap`] | the kind `Lmap`: how the workloads of a namespace are watched |
//! | [`lmap_status`] | its status: what came of it on all nodes |
//! | [`node_status`] | the kind `LmapNodeStatus`: what came of each `Lmap` on one node |
//! | [`duration`] | `200ms` |
//! | [`plan`] | which LMAPs of this node each object is about, and which object has the say |
//! | [`changes`] | what has to be changed, after what was applied before |
//! | [`aggregate`] | what came of each object on all nodes together: statuses to write, and what to tell |
//! | [`manifests`] | the definitions of both kinds, as they are installed |
//!
//! Each node does this by itself, for its own pods, from all objects anew (decision D38). An object never has a say
//! about another namespace: names of services begin with theirs, and so do the names that an object can give.

pub mod aggregate;
pub mod changes;
pub mod duration;
pub mod lmap;
pub mod lmap_status;
pub mod manifests;
pub mod node_status;
pub mod plan;
#[cfg(test)]
mod testing;
mod text;

pub use lmap::{Lmap, LmapSpec};
pub use lmap_status::LmapStatus;
pub use node_status::{LmapNodeStatus, NodeReport};
