//! Samples to a remote monitor: Prometheus remote write, versions 1.0 and 2.0 (2.0-rc.4), or OTLP metrics; D10 of ARCHITECTURE.md.
//!
//! What is sent, when, and what becomes of it is decided by pure code, which is given the time; [`client`] alone has a socket.
//!
//! | module | what |
//! | --- | --- |
//! | [`feed`] | one service: rows in, samples of its two series out |
//! | [`steady`] | what is read at the baseline's instants beside rows: `up`, histograms with buckets and exemplars |
//! | [`naming`], [`series`] | what a series is called: legal names, sorted labels, metadata |
//! | [`encoding`] | samples as the body of a request, in either version |
//! | `otlp` | the same as OTLP metrics |
//! | [`message`] | the same as messages, for whoever reads them |
//! | [`queue`] | samples that wait: bounded by bytes and age, services in alarm first |
//! | [`answer`] | what an answer means: taken, refused, again, and when; in which version |
//! | [`shipper`] | all of it together: rows in, requests out, answers in, books that balance |
//! | [`client`] | sends a request of remote write over HTTP or HTTPS; OTLP's are sent by who has its clients |
//!
//! # What a receiver may rely on
//! Labels are sorted by name, no name twice, none empty; within a series, times rise strictly, over requests too, since one request is under way
//! at a time. A series ends with the stale marker when its metric or its service is really gone, never because this process ends or the
//! network breaks. Only a receiver that is said to take samples out of order (`out_of_order`) is sent any.
//!
//! # What a receiver may do
//! Not be there, be slow, close the connection, refuse: memory stays within its bound, and each sample is counted as sent or as lost, with the
//! reason. An answer that did not come says nothing about whether the samples were taken. The same request is sent again then; a receiver
//! that had taken it and refuses to take it twice makes them count as refused: what was sent is never overstated.

pub mod answer;
mod books;
pub mod client;
pub mod encoding;
pub mod feed;
pub mod message;
pub mod naming;
mod otlp;
pub mod queue;
pub mod series;
pub mod shipper;
pub mod steady;
