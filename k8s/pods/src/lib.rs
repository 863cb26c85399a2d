//! The pods of a node: whose container a cgroup is, and of which service. Pure: objects of the API server in, names
//! out.
//!
//! | module | what |
//! | --- | --- |
//! | [`pod`] | what an object of the API server says about a pod: its containers, version, addresses |
//! | [`workload`] | the workload that owns a pod |
//! | [`cgroup`] | the pod and the container that the path of a cgroup names |
//! | [`sandbox`] | runtimes whose processes are not the services |
//! | [`scraping`], [`monitor`] | Prometheus endpoints, by a pod's annotations and by `PodMonitor`s |
//! | `names` | names as they are kept |
//! | [`table`] | the pods of a node, as a list and a watch tell them |
//!
//! A service is the workload that owns the pods, `shop/payment`; a replica is a pod. Its first part is always the
//! namespace, so that nobody names a service of another namespace. Nothing is asked of the API server beyond pods and
//! `PodMonitor`s: a Deployment is named by its ReplicaSet and the hash in the pod's labels.

pub mod cgroup;
pub mod monitor;
mod names;
pub mod pod;
pub mod sandbox;
pub mod scraping;
pub mod table;
#[cfg(test)]
mod testing;
pub mod workload;

pub use monitor::Monitor;
pub use pod::{Pod, PodId};
pub use scraping::Endpoint;
pub use table::{Member, Pods};
