//! The live page of the host agent: services and what stands out, kept traces, the receipt, the node.
//!
//! This crate decides, and acts nowhere: time, random bytes, requests and statuses of the agent are arguments. The host
//! agent has the socket, the clock, and the tasks.
//!
//! | module | what |
//! | --- | --- |
//! | [`sessions`] | who may read the page: tokens that open it once, and cookies |
//! | [`routing`] | a request in, what to answer out; headers of every response |
//! | `invitation` | the address that opens the page once, and what it leads to |
//! | [`fetch_metadata`] | where a request comes from, as browsers say it |
//! | [`assets`] | the page's own files, in the binary |
//! | [`dates`] | seconds that go on whatever the wall clock does, and their dates |
//! | [`history`] | scores of each service at falling resolution, and its episodes, within a budget of bytes |
//! | [`alarm_metrics`] | which metrics made an alarm |
//! | [`older`] | scores and alarms older than that, as a Prometheus has them: what it is asked, and what it answers |
//! | [`feed`] | what changed since the last look, written once for all viewers |
//! | [`viewed`] | services at which somebody looks: of these, each metric is fetched |
//! | [`map`] | services, who calls whom, and operations, with rates of the last seconds |
//! | [`traces`] | kept traces, within a budget of bytes |
//! | [`documents`] | JSON of one service, of traces, of incidents, of the receipt and of the node |
//! | [`shown`] | makes texts of others printable |

pub mod alarm_metrics;
pub mod assets;
#[cfg(test)]
mod contrast;
pub mod dates;
pub mod documents;
pub mod feed;
pub mod fetch_metadata;
pub mod history;
mod invitation;
pub mod map;
pub mod older;
pub mod routing;
pub mod sessions;
pub mod shown;
pub mod traces;
pub mod viewed;
