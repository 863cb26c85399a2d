//! The live page of the host agent: services and what stands out, kept traces, the receipt, the node.
//!
//! This crate decides, and acts nowhere: time, random bytes, requests and statuses of the agent are arguments. The host
//! agent has the socket, the clock, and the tasks.
//!
//! | module | what |
//! | --- | --- |
//! | [`sessions`] | who may read the page: tokens that open it once, and cookies |
//! | [`routing`] | a request in, what to answer out; headers of every response |
//! | [`assets`] | the page's own files, in the binary |
//! | [`history`] | scores of each service at falling resolution, and its episodes, within a budget of bytes |
//! | [`older`] | scores older than that, as a Prometheus has them: what it is asked, and what it answers |
//! | [`feed`] | what changed since the last look, written once for all viewers |
//! | [`looked`] | services at which somebody looks: of these, each metric is fetched |
//! | [`map`] | services, who calls whom, and operations, with rates of the last seconds |
//! | [`traces`] | kept traces, within a budget of bytes |
//! | [`documents`] | JSON of one service, of traces, of incidents, of the receipt and of the node |
//! | `shown` | makes texts of others printable |

pub mod assets;
pub mod documents;
pub mod feed;
pub mod history;
pub mod looked;
pub mod map;
pub mod older;
pub mod routing;
pub mod sessions;
mod shown;
pub mod traces;
