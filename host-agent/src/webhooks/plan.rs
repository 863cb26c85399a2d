//! What a sender of alarms needs to know of its receiver.

use agent_runtime::http_client::Client;
use webhooks::GroupingRule;
use webhooks::message::Sender;

/// A receiver that is configured.
#[derive(Debug)]
pub(crate) struct Webhook {
    pub(crate) client: Client,
    pub(crate) rule: GroupingRule,
    pub(crate) from: Sender,
}
