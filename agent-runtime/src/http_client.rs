//! The HTTP client towards whoever is no agent: receivers of samples and alarms, endpoints that are scraped, a
//! Prometheus that is asked. HTTP/1.1, with or without TLS.
//!
//! One connection per endpoint is kept, and opened again after it broke. Each request has a deadline and is sent once;
//! its caller decides whether to send it again. Bodies of responses are bounded, and redirects are not followed. An
//! endpoint without an authority of its own needs a certificate that the system trusts
//! ([`OutwardTls`](crate::OutwardTls)). Headers of requests may be replaced while a client runs
//! ([`LiveHeaders`](crate::live_headers::LiveHeaders)). OTLP's upstream has another client, with the same trust:
//! decision D59.
//!
//! | module | what |
//! | --- | --- |
//! | `endpoint` | where requests go: URL, headers, authority, time limit |
//! | `client` | the connection to an endpoint |
//! | `get` | a page, as long as its reader allows |
//! | `post` | a body, and the beginning of what is replied |
//! | `reply` | reads `Retry-After`, and makes a line of a response's body |

mod client;
mod endpoint;
mod get;
mod post;
mod reply;

pub use client::{Client, SendError};
pub use endpoint::{Endpoint, EndpointError, is_reserved};
pub use get::{GetError, Page};
pub use post::Response;
pub use reply::{excerpt, retry_after};
