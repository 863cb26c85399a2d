//! Sends alarms to webhook receivers. Each receiver has a task and a queue of verdicts of its own, like any hook, so
//! that a slow receiver delays no other. [`webhooks::groups`] decides what to send.

mod plan;
mod receivers;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_runtime::http_client::{Client, Response, SendError, retry_after};
use agent_runtime::lock;
use agent_runtime::ticks::ticks;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use webhooks::message::{Sender, render};
use webhooks::{AlertEvent, AlertGroups, AlertKind, Delivery, Reply, ServiceStatus, Step};
use wire::control::Episode;
use wire::id::HookId;
use wire::incident::IncidentId;
use wire::quantity::quantity;
use wire::time::{Nanos, UnixNanos};

use crate::clock::unix_now;
use crate::control_plane::{Event, NamedReason};
use crate::dispatch::Filter;
use crate::node::Node;

pub(crate) use plan::Webhook;
pub(crate) use receivers::{ReceiverRenewal, Receivers};

/// Queued verdicts while a message is in flight: 100 services for ten seconds.
const VERDICTS: usize = 1_024;
/// How often the state sent is compared with the services' state, to find alarm ends that were missed.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(5);

/// What the sender to one receiver is told while it runs.
#[derive(Debug)]
struct ReceiverOrders {
    /// How it goes on, until it has taken that over.
    next: Mutex<Option<Webhook>>,
    /// Wakes it for `next`, as for verdicts.
    wake: Arc<Notify>,
    end: Notify,
}

impl ReceiverOrders {
    /// The next message goes out by `webhook`. Alarms that go on are known as before.
    fn change(&self, webhook: Webhook) {
        *lock(&self.next) = Some(webhook);
        self.wake.notify_one();
    }

    /// Nothing is sent any more. A message that is on its way is given up.
    fn end(&self) {
        self.end.notify_one();
    }
}

/// Has a task of `runtime` send by `webhook`, until it is told to end or `node` drains.
fn begin(webhook: Webhook, node: &Arc<Node>, runtime: &Handle) -> Arc<ReceiverOrders> {
    // The end of an alarm is sent whatever the score.
    let filter = Filter { lmaps: [].into(), min_share: 1.0, ..Filter::default() };
    let (id, wake) = node.register_own_hook(filter, VERDICTS);
    let orders = Arc::new(ReceiverOrders { next: Mutex::default(), wake, end: Notify::new() });
    let Webhook { client, rule, from } = webhook;
    let (groups, told) = (AlertGroups::new(rule), Arc::clone(&orders));
    let sender = WebhookSender { node: Arc::clone(node), id, client, groups, from, orders: Arc::clone(&orders) };
    runtime.spawn(async move {
        let node = Arc::clone(&sender.node);
        tokio::select! {
            () = sender.run() => {}
            () = told.end.notified() => {}
            () = node.drained() => {}
        }
        node.unregister_own_hook(id);
    });
    orders
}

/// Sends to one receiver.
struct WebhookSender {
    node: Arc<Node>,
    id: HookId,
    client: Client,
    groups: AlertGroups,
    from: Sender,
    orders: Arc<ReceiverOrders>,
}

impl WebhookSender {
    async fn run(mut self) {
        let mut standing = ticks(RECONCILE_INTERVAL);
        loop {
            let next = lock(&self.orders.next).take();
            if let Some(Webhook { client, rule, from }) = next {
                self.groups.set_rule(rule);
                (self.client, self.from) = (client, from);
            }
            while let Some(taken) = self.node.next_event(self.id) {
                let now = self.node.clock().now();
                alert_events(&taken.item, &self.from.node).for_each(|sight| self.groups.record(sight, now));
            }
            self.node.counts.over_limit_webhook_alerts.add(self.groups.over_limit());
            let wait = self.send_due().await;
            tokio::select! {
                () = tokio::time::sleep(wait.min(Nanos::from_secs(3600)).into()) => {}
                () = self.orders.wake.notified() => {}
                _ = standing.tick() => {
                    if !self.groups.is_empty() {
                        self.groups.reconcile(&service_states(&self.node), unix_now(), self.node.clock().now());
                    }
                }
            }
        }
    }

    /// Sends what is due. Returns the time until the next message may be due.
    async fn send_due(&mut self) -> Nanos {
        let now = self.node.clock().now();
        let notice = match self.groups.next(now) {
            Step::Wait(until) => return until.since(now).unwrap_or(Nanos::ZERO),
            Step::Send(notice) => notice,
        };
        let body = render(&notice, &self.from);
        let (reply, why) = reply(self.client.post_json(body).await, unix_now());
        let outcome = self.groups.complete(reply, self.node.clock().now(), rand::random());
        let (counts, receiver) = (&self.node.counts, &self.from.receiver);
        match outcome {
            Delivery::Accepted => counts.sent_webhooks.one_more(),
            Delivery::Refused => {
                counts.refused_webhooks.one_more();
                tracing::warn!(receiver, why, "webhook receiver refused a message");
            }
            Delivery::Retry(pause) => {
                counts.failed_webhooks.one_more();
                tracing::debug!(receiver, why, pause = %pause, "webhook message failed; retrying");
            }
            Delivery::Unexpected => {}
        }
        Nanos::ZERO
    }
}

/// What came of a message, and what a refusal or a failure says; `at` is the time of the reply.
fn reply(sent: Result<Response, SendError>, at: UnixNanos) -> (Reply, String) {
    match sent {
        Ok(response) => {
            let asked = response.retry_after().and_then(|text| retry_after(text, at));
            (Reply::Http { status: response.status, retry_after: asked }, response.refusal())
        }
        Err(error) => (Reply::None, error.to_string()),
    }
}

/// The state of all services, as `uview status` shows it.
fn service_states(node: &Node) -> BTreeMap<String, ServiceStatus> {
    let status = node.inspect(|plane, _| plane.status());
    let standing = |lmap: wire::proto::operators::LmapStatus| {
        let silent = lmap.silent_replicas.into_iter().collect();
        (lmap.service, ServiceStatus { alarm: lmap.alarm, silent_replicas: silent })
    };
    status.lmaps.into_iter().map(standing).collect()
}

/// The alerts in `event`: the service's alarm, and its silent replicas.
fn alert_events(event: &Event, node: &str) -> impl Iterator<Item = AlertEvent> {
    let (service, at) = (event.service.as_str(), event.at);
    let firing = match event.verdict.episode {
        Episode::Began | Episode::On => Some(true),
        Episode::Ended => Some(false),
        Episode::Quiet => None,
    };
    let incident = event.suspicion.as_ref().map(|suspicion| IncidentId::of(suspicion.incident).at(node));
    let incident = incident.unwrap_or_default();
    let anomaly = firing.map(|firing| {
        let (service, kind, incident) = (service.to_owned(), AlertKind::Anomaly, incident.clone());
        let (summary, description) = summarise(event);
        let begins = event.verdict.episode == Episode::Began;
        AlertEvent { service, kind, firing, begins, at, summary, description, incident }
    });
    let silent = event.silent.iter().map(move |instance| AlertEvent {
        service: service.to_owned(),
        kind: AlertKind::SilentReplica(instance.as_str().to_owned()),
        firing: true,
        begins: false,
        at,
        summary: format!("{service}: replica {instance} is silent"),
        description: String::new(),
        incident: incident.clone(),
    });
    anomaly.into_iter().chain(silent)
}

/// Summary and description of a verdict: the first reason in a line, then the score and all reasons.
fn summarise(event: &Event) -> (String, String) {
    let describe = |reason: &NamedReason| {
        let (seen, expected) = (quantity(reason.seen, reason.unit()), quantity(reason.expected, reason.unit()));
        let about = if reason.about.is_empty() { String::new() } else { format!(": {}", reason.about) };
        let replica = if reason.replica.is_empty() { String::new() } else { format!(", replica {}", reason.replica) };
        format!("{} {seen}, expected {expected}{replica}{about}", reason.column())
    };
    let service = &event.service;
    let first = event.reasons.first().map_or_else(|| "out of the ordinary".to_owned(), describe);
    let mut lines =
        vec![format!("score {:.1}, threshold {:.1}", event.verdict.score, event.verdict.gamma.unwrap_or(0.0))];
    lines.extend(event.reasons.iter().map(|reason| format!("{} ({:.0} %)", describe(reason), reason.share * 100.0)));
    if let Some(suspicion) = &event.suspicion {
        lines.push(format!("rank {} of the suspected services", suspicion.rank));
    }
    (format!("{service}: {first}"), lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue};

    use super::*;

    #[test]
    fn a_reply_says_when_to_come_again_and_a_failure_is_none() {
        let at = UnixNanos::from_secs(784_111_770);
        let response = |status, retry_after: &'static str| {
            let headers =
                HeaderMap::from_iter([("retry-after".parse().unwrap(), HeaderValue::from_static(retry_after))]);
            Ok(Response { status, headers, body: b"too\nmany".to_vec() })
        };
        let later = Reply::Http { status: 429, retry_after: Some(Nanos::from_secs(7)) };

        for asked in ["7", "Sun, 06 Nov 1994 08:49:37 GMT"] {
            assert_eq!(reply(response(429, asked), at), (later, "status 429: too many".to_owned()));
        }
        let accepted = Reply::Http { status: 200, retry_after: None };
        assert_eq!(reply(response(200, "soon"), at), (accepted, String::new()));
        let late = SendError::Deadline(Duration::from_secs(3));
        assert_eq!(reply(Err(late), at), (Reply::None, "no response within 3s".to_owned()));
    }
}
