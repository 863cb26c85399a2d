//! The host agent with real sockets: fake services and fake workers that behave, and some that do not.

#![expect(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "a test that cannot go on fails")]

mod agent;
mod behaving;
mod coherence;
mod exemplars;
mod head_sampling;
mod misbehaving_services;
mod misbehaving_workers;
mod nodes;
mod operating;
mod otlp;
mod otlp_metrics;
mod program;
mod receipts;
mod remote_writing;
mod service;
mod spans;
mod tls;
mod webhooks;
mod with_client;
mod worker;
