//! The CSI driver of the directory in which the agents' sockets are: a pod names it as an inline volume, and gets the
//! directory read-only, where hostPath is forbidden (decision D46).
//!
//! | module | what |
//! | --- | --- |
//! | `volume` | what kubelet asks for, and why it is refused; pure |
//! | `mounts` | what of the kernel's list of mounts is at a path; pure |
//! | `publisher` | mounts and unmounts, each as often as it is asked for |
//! | `services` | the interfaces of the driver, and how kubelet learns of it |
//! | `run` | its two sockets |
//!
//! Only volumes that live with their pod, only this directory, only for reading: everything else is an error that says
//! so. Who calls is root.

mod arguments;
mod mounts;
mod proto;
mod publisher;
mod run;
mod services;
#[cfg(test)]
mod tests;
mod volume;

pub use arguments::CsiArgs;
pub use run::{RunError, run};
