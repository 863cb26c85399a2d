//! Sources of metrics of programs that nobody changed. Pure: text in, values out. Files are read by the host agent.
//!
//! | module | what |
//! | --- | --- |
//! | [`process`] | files of one process in /proc: CPU time, memory, I/O, context switches |
//! | [`sockets`] | connections and TCP counters of a network namespace: /proc/PID/net |
//! | [`selection`] | which processes are meant by a name, a command line or a systemd unit |

mod fields;
pub mod process;
pub mod selection;
pub mod sockets;
