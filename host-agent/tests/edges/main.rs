//! The host agent with real sockets, and with services and workers that behave or misbehave.

#![expect(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "a test that cannot go on fails")]

mod access;
mod agent;
mod call_log;
mod coherence;
mod exemplars;
mod head_sampling;
mod hostile_texts;
mod incident_evidence;
mod large_logs;
mod live_headers;
mod live_lists;
mod live_page;
mod logged;
mod logs;
mod misbehaving_services;
mod misbehaving_workers;
mod nodes;
mod normal_operation;
mod operator_triggers;
mod operators;
mod otlp;
mod otlp_metrics;
mod page_views;
mod peers;
mod program;
mod receipts;
mod reload;
mod remote_write;
mod scraped_targets;
mod secret_keys;
mod senders;
mod service;
mod shares;
mod slow_viewers;
mod spans;
mod tls;
mod upstreams;
mod warnings;
mod watch_only;
mod webhooks;
mod with_client;
mod worker;
