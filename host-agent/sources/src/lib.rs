//! Sources of metrics of programs that nobody changed. Pure: text in, values out. Files are read by the host agent.
//!
//! | module | what |
//! | --- | --- |
//! | [`cgroup`] | files of a cgroup: CPU time, limits, memory, I/O, pressure; where cgroups are, and which are meant |
//! | [`limits`] | limits of a process and of its cgroup |
//! | [`process`] | files of one process in /proc: CPU time, memory, I/O, context switches |
//! | [`sockets`] | connections and TCP counters of a network namespace: /proc/PID/net |
//! | [`selection`] | which processes are meant by a name, a command line or a systemd unit |

pub mod cgroup;
mod fields;
pub mod limits;
pub mod process;
pub mod selection;
pub mod socket_diag;
pub mod sockets;
