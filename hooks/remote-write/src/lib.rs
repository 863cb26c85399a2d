//! Sends samples to a remote monitor: Prometheus remote write, versions 1.0 and 2.0 (2.0-rc.4), or OTLP metrics;
//! decisions D10 and D22.
//!
//! Pure code decides what is sent, when, and accounts for every sample; time is an argument. Only [`client`] sends.
//!
//! | module | what |
//! | --- | --- |
//! | [`feed`] | one service: rows in, samples of its two series out |
//! | [`reading`] | values read at the baseline's instants beside rows: `up`, histograms with buckets and exemplars |
//! | [`naming`], [`series`] | identity of a series: legal names, sorted labels, metadata |
//! | [`encoding`] | samples → body of a request, in either version |
//! | `otlp` | samples → OTLP metrics |
//! | [`message`] | the same as Protocol Buffers messages, for receivers and tests |
//! | [`queue`] | queued samples: bounded by bytes and age, services in alarm first |
//! | [`reply`] | interprets a reply: accepted, refused, retry and when, other version |
//! | [`shipper`] | ties it together: rows in, requests out, replies in, and a ledger that balances |
//! | [`client`] | sends remote write requests by `agent_runtime::http_client`; the crate `otlp` sends OTLP requests |
//!
//! # Guarantees to a receiver
//! Labels are sorted by name, no name twice, none empty. Within a series, timestamps increase strictly, across requests
//! too: one request is in flight at a time. A series ends with the stale marker when its metric or its service is
//! really gone, never because this process ends or the network breaks. Only a receiver configured with `out_of_order`
//! is sent samples out of order.
//!
//! # What a receiver may do
//! A receiver may be down, be slow, close the connection, or refuse: memory stays bounded, and each sample is counted
//! as sent or lost, with the reason. A missing reply says nothing about whether the samples were accepted. Then the
//! same request is sent again. A receiver that had accepted it, and refuses to accept it twice, makes its samples count
//! as refused: the number of sent samples is never overstated.

pub mod client;
pub mod encoding;
pub mod feed;
mod ledger;
pub mod message;
pub mod naming;
mod otlp;
pub mod queue;
pub mod reading;
pub mod reply;
pub mod series;
pub mod shipper;
