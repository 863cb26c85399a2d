//! The runtime that both agents share: configuration file, certificates, logs, listening, `/metrics`, shutdown. The
//! same mistake gives the same error message in both.
//!
//! | module | what |
//! | --- | --- |
//! | [`access`] | who a peer is, and what it may do |
//! | [`account`] | what an agent accounts for of its resident set |
//! | `api_server` | the API server of a cluster: bounded answers (feature `api-server`) |
//! | [`budget`] | what an agent may keep in memory, as rows and as a sum |
//! | [`server`] | HTTP servers with bounded connections whose requests know their sender |
//! | [`check`], `certificate` | what a start would stumble over (`--check-config`); dates in certificates |
//! | [`clock`] | monotonic and wall-clock time, CPU time |
//! | [`connect`] | connections to another agent that know who answered |
//! | [`config`] | the configuration file: read, checked, refused with line, column and value; common sections |
//! | [`descriptors`] | how many file descriptors there may be, and those that are kept back for services |
//! | [`error`] | an error and its causes in one line |
//! | [`http_client`] | an HTTP client with bounded bodies, for whoever is no agent |
//! | [`tls`] | certificates of a server and of a client |
//! | [`live_headers`] | headers of a client's requests that are replaced while it runs |
//! | [`live_tls`] | certificates that are replaced while their listener listens |
//! | [`logs`] | logs to standard error, as text or JSON |
//! | [`lock`] | a lock that a panic has not broken |
//! | [`listen`] | TCP listeners, whose errors name the configuration key; the pause after a failed accept |
//! | [`page`] | `/metrics` as OpenMetrics text |
//! | [`peers`] | who connects by TCP: a user of this machine, or another machine; fair places for connections |
//! | [`reach`] | whom an address reaches, and what a listener without TLS leaves open to others |
//! | [`reload`] | values, files and certificates that are replaced while the agent runs |
//! | [`repeated_events`] | what the log has told of lately |
//! | [`shares`] | who holds how much of something bounded, and who may have more |
//! | [`socket_file`] | Unix sockets whose file is removed on exit |
//! | [`socket_owner`] | the user and cgroup of the other end of a connection within this machine |
//! | [`stop`] | SIGTERM and SIGINT |
//! | [`ticks`] | ticks of tasks and of threads, which fall together |
//! | [`program`] | what `main` does around an agent: arguments, default configuration, exit code |

pub mod access;
pub mod account;
#[cfg(feature = "api-server")]
pub mod api_server;
pub mod budget;
mod certificate;
pub mod check;
pub mod clock;
pub mod config;
pub mod connect;
mod count;
pub mod descriptors;
pub mod error;
pub mod http_client;
pub mod listen;
pub mod live_headers;
pub mod live_tls;
pub mod logs;
mod mutex;
pub mod page;
pub mod peers;
pub mod program;
pub mod reach;
pub mod reload;
pub mod repeated_events;
pub mod server;
pub mod shares;
pub mod socket_file;
pub mod socket_owner;
pub mod stop;
pub mod ticks;
pub mod tls;

pub use config::{ConfigError, LogConfig, LogFormat, Rdma, Settings};
pub use count::Count;
pub use error::chain;
pub use mutex::lock;
pub use tls::{ClientConfigs, ClientTls, OutwardTls, ServerTls, TlsError, tls_builder};
