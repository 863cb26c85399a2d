//! `libuview_preload.so`: a program that loads it with `LD_PRELOAD` is watched, unchanged. Of each connection that it
//! accepts, bytes, turns, their duration and outcome are counted.
//!
//! | module | what it does |
//! | --- | --- |
//! | `calls` | takes the place of `accept`, `connect`, `read`, `write`, `close` and the like, and calls them |
//! | `process` | start, fork, threads: what differs from process to process |
//! | `connections` | the table of connections by descriptor; counts what [`turns`] says |
//! | `counts` | where counts are while they have no region yet, and levels by process |
//! | `meters` | the metrics |
//! | `publisher` | the thread that registers them |
//! | `environment` | switches and names |
//!
//! What a wrapped call may do: atomic operations and a look at the clock. No lock, no allocation, no system call but in
//! `accept`, `connect` and `close` of a connection; the program's `errno` stays. So it is safe in threads, in signal
//! handlers and after fork. At the first surprise it counts no more, and says why in `server.watch.off`
//! (docs/sources-preload.md).

mod calls;
mod connections;
mod counts;
mod environment;
mod meters;
mod process;
mod publisher;
