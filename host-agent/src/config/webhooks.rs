//! Configuration of webhooks: receivers of alarms.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use agent_runtime::ConfigError;
use agent_runtime::config::range;
use agent_runtime::http_client::{Client, Endpoint};
use serde::Deserialize;
use webhooks::GroupingRule;
use webhooks::message::Sender;
use wire::time::Nanos;

use super::at_least_one;
use super::headers::HeaderSource;
use crate::webhooks::Webhook;

/// A receiver of alarms, in the format of Alertmanager's webhooks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    /// Name in messages and logs.
    pub name: String,
    /// Such as `http://alerts:9094/uview`.
    pub url: String,
    /// Headers of each message.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Files with the values of more of them. Changed ones are read again.
    #[serde(default)]
    pub header_files: BTreeMap<String, PathBuf>,
    /// Root certificates (PEM) for HTTPS; the system's if left out.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// Deadline of a message.
    #[serde(default = "ten_seconds")]
    pub timeout_ms: NonZeroU32,
    /// Milliseconds from a service's first alert to its first message.
    #[serde(default = "one_second")]
    pub group_wait_ms: u32,
    /// Minimum time between two messages about one service, in milliseconds.
    #[serde(default = "ten_seconds")]
    pub group_interval_ms: NonZeroU32,
    /// Interval at which a message is repeated while the alarm lasts, in milliseconds.
    #[serde(default = "four_hours")]
    pub repeat_interval_ms: NonZeroU32,
}

fn ten_seconds() -> NonZeroU32 {
    at_least_one(10_000)
}

const fn one_second() -> u32 {
    1_000
}

fn four_hours() -> NonZeroU32 {
    at_least_one(4 * 3_600_000)
}

impl WebhookConfig {
    /// The headers of its messages.
    pub(crate) fn header_source(&self) -> HeaderSource<'_> {
        HeaderSource { url: &self.url, given: &self.headers, files: &self.header_files }
    }

    /// Whether it differs in nothing but headers from one that was configured `before`.
    pub(crate) fn goes_on_from(&self, before: &Self) -> bool {
        let headless = |of: &Self| Self { headers: BTreeMap::new(), header_files: BTreeMap::new(), ..of.clone() };
        headless(self) == headless(before)
    }

    /// What the sender to it needs; messages say `from` of this node.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the URL, a header or the certificate cannot be used.
    pub(crate) fn webhook(&self, from: &Sender) -> Result<Webhook, ConfigError> {
        let endpoint = Endpoint {
            url: self.url.clone(),
            headers: self.header_source().values("webhooks.header_files")?,
            ca: self.ca.clone(),
            timeout: Duration::from_millis(u64::from(self.timeout_ms.get())),
        };
        let client = Client::new(&endpoint, "/").map_err(|cause| ConfigError::value("webhooks.url", cause))?;
        let millis = |millis: u32| Nanos::from_millis(u64::from(millis));
        let rule = GroupingRule {
            wait: millis(self.group_wait_ms),
            interval: millis(self.group_interval_ms.get()),
            repeat: millis(self.repeat_interval_ms.get()),
            ..GroupingRule::default()
        };
        Ok(Webhook { client, rule, from: Sender { receiver: self.name.clone(), ..from.clone() } })
    }
}

/// Refuses names of `webhooks` that are empty or used twice.
///
/// # Errors
///
/// [`ConfigError`] with the first of them.
pub(crate) fn check_names(webhooks: &[WebhookConfig]) -> Result<(), ConfigError> {
    let mut names = BTreeSet::new();
    webhooks.iter().try_for_each(|webhook| {
        let new = !webhook.name.is_empty() && names.insert(&webhook.name);
        range(new, "webhooks.name", &webhook.name, "must be unique and not empty")
    })
}

/// All `webhooks`, each with what its sender needs; messages say `from` of this node.
///
/// # Errors
///
/// [`ConfigError`] if a name is empty or used twice, or a receiver is invalid.
pub(crate) fn planned(webhooks: &[WebhookConfig], from: &Sender) -> Result<Vec<(WebhookConfig, Webhook)>, ConfigError> {
    check_names(webhooks)?;
    webhooks.iter().map(|webhook| Ok((webhook.clone(), webhook.webhook(from)?))).collect()
}
