//! Receivers of the configuration: they come, change and go with it. One that keeps its name and its URL is the same
//! one, which knows of the alarms that go on: their ends reach it whatever else changes.

use std::sync::Arc;

use agent_runtime::ConfigError;
use agent_runtime::live_headers::{HeaderRenewal, LiveHeaders};
use tokio::runtime::Handle;
use webhooks::message::Sender;

use super::plan::Webhook;
use super::{ReceiverOrders, begin};
use crate::config::{self, WebhookConfig};
use crate::node::Node;

/// The key of files with headers.
const HEADER_FILES: &str = "webhooks.header_files";

/// A receiver that gets messages, and as what it was configured.
#[derive(Debug)]
struct Receiver {
    config: WebhookConfig,
    headers: LiveHeaders,
    orders: Arc<ReceiverOrders>,
}

/// All receivers of the configuration.
#[derive(Debug)]
pub(crate) struct Receivers {
    running: Vec<Receiver>,
    /// What all messages say of this node.
    from: Sender,
    node: Arc<Node>,
    runtime: Handle,
}

/// How a receiver goes on.
#[derive(Debug)]
enum ReceiverChange {
    /// As before, with the headers of now.
    Headers(HeaderRenewal),
    /// With another client, or other times.
    Settings(Box<Webhook>),
}

/// What changed receivers make of those that there are. Nothing of it has happened yet.
#[derive(Debug)]
#[must_use = "nothing changes before it is taken"]
pub(crate) struct ReceiverRenewal {
    /// Those that go on, by their places before.
    kept: Vec<(usize, WebhookConfig, ReceiverChange)>,
    new: Vec<(WebhookConfig, Webhook)>,
}

impl Receivers {
    /// Starts sending to each of `webhooks`, in this runtime, until `node` drains. All messages say `from` of it.
    pub(crate) fn start(webhooks: Vec<(WebhookConfig, Webhook)>, from: Sender, node: &Arc<Node>) -> Self {
        let (node, runtime) = (Arc::clone(node), Handle::current());
        let mut receivers = Self { running: Vec::new(), from, node, runtime };
        for (config, webhook) in webhooks {
            receivers.begin(config, webhook);
        }
        receivers
    }

    /// What it takes to send to `wanted`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a name is empty or used twice, or a receiver is invalid. Nothing has changed.
    pub(crate) fn renewal(&self, wanted: &[WebhookConfig]) -> Result<ReceiverRenewal, ConfigError> {
        config::check_webhook_names(wanted)?;
        let mut renewal = ReceiverRenewal { kept: Vec::new(), new: Vec::new() };
        for config in wanted {
            let is_it = |known: &Receiver| config.name == known.config.name && config.url == known.config.url;
            let Some(place) = self.running.iter().position(is_it) else {
                renewal.new.push((config.clone(), config.webhook(&self.from)?));
                continue;
            };
            let known = &self.running[place];
            let change = if config.goes_on_from(&known.config) {
                let headers = known.headers.renewal(&config.header_source().values(HEADER_FILES)?);
                ReceiverChange::Headers(headers.map_err(|cause| ConfigError::value(HEADER_FILES, cause))?)
            } else {
                ReceiverChange::Settings(Box::new(config.webhook(&self.from)?))
            };
            renewal.kept.push((place, config.clone(), change));
        }
        Ok(renewal)
    }

    /// Ends, changes and begins what `renewal` says. Returns whether that was anything.
    pub(crate) fn take(&mut self, renewal: ReceiverRenewal) -> bool {
        let ReceiverRenewal { kept, new } = renewal;
        let mut before: Vec<_> = core::mem::take(&mut self.running).into_iter().map(Some).collect();
        let mut is_changed = !new.is_empty();
        for (place, config, change) in kept {
            let Some(mut receiver) = before.get_mut(place).and_then(Option::take) else { continue };
            is_changed |= match change {
                ReceiverChange::Headers(headers) => headers.take(),
                ReceiverChange::Settings(webhook) => {
                    receiver.headers = webhook.client.headers().clone();
                    receiver.orders.change(*webhook);
                    true
                }
            };
            self.running.push(Receiver { config, ..receiver });
        }
        for Receiver { config: WebhookConfig { name, .. }, orders, .. } in before.into_iter().flatten() {
            tracing::info!(receiver = name, "alarms are not sent there any more");
            orders.end();
            is_changed = true;
        }
        for (config, webhook) in new {
            tracing::info!(receiver = config.name, "alarms are sent there");
            self.begin(config, webhook);
        }
        is_changed
    }

    fn begin(&mut self, config: WebhookConfig, webhook: Webhook) {
        let headers = webhook.client.headers().clone();
        let orders = begin(webhook, &self.node, &self.runtime);
        self.running.push(Receiver { config, headers, orders });
    }
}
