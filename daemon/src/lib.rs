//! What an agent has whatever its work is: it reads a configuration file, has certificates, writes logs, listens, shows its own metrics,
//! and ends when it is told to. Both agents are made with this, so that both say the same of the same mistake.
//!
//! | module | what |
//! | --- | --- |
//! | [`config`] | the one file: read, checked, refused with line, column and value; sections that both agents have |
//! | [`tls`] | certificates of a server and of a client |
//! | [`logs`] | to standard error, as text or JSON |
//! | [`listen`] | TCP ports, named by their keys |
//! | [`page`] | `/metrics` as OpenMetrics text |
//! | [`stop`] | SIGTERM and SIGINT |
//! | [`program`] | what `main` does around the agent |

pub mod config;
pub mod listen;
pub mod logs;
pub mod page;
pub mod program;
pub mod stop;
pub mod tls;

pub use config::{ConfigError, LogConfig, LogFormat, Rdma, Settings};
pub use tls::{ClientConfigs, ClientTls, OutwardTls, ServerTls, TlsError, tls_builder};
