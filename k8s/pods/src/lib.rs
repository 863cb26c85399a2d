//! The pods of a node: whose container a cgroup is, and of which service. Pure: objects of the API server in, names
//! out.
//!
//! | module | what |
//! | --- | --- |
//! | [`pod`] | what an object of the API server says about a pod: its workload, containers and version |
//! | [`cgroup`] | the pod and the container that the path of a cgroup names |
//! | [`table`] | the pods of a node, as a list and a watch tell them |
//!
//! A service is the workload that owns the pods, `shop/payment`; a replica is a pod. Nothing is asked of the API server
//! beyond pods: a Deployment is named by its ReplicaSet and the hash in the pod's labels.

pub mod cgroup;
pub mod pod;
pub mod table;

pub use pod::{Pod, PodId};
pub use table::{Member, Pods};
