//! Tells receivers of webhooks of alarms: each hears verdicts as every hook does, through a queue of its own, and has a task of its own, so that one
//! that is slow or dead delays nobody. What it is owed is decided by [`webhooks::groups`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hooks::time::UnixNanos;
use remote_write::client::Client;
use webhooks::message::{From, render};
use webhooks::{Groups, Heard, Rule, Sight, Standing, Step, What};
use wire::control::Episode;
use wire::id::HookId;
use wire::quantity::quantity;
use wire::time::Nanos;

use crate::clock;
use crate::control_plane::{Event, NamedReason};
use crate::dispatch::{Filter, TooManyHooks};
use crate::node::Node;

/// Verdicts that wait while a message is under way: of a hundred services for ten seconds.
const VERDICTS: usize = 1_024;
/// How often what was told is held against how services stand: ends that nobody heard of.
const STANDING_EVERY: Duration = Duration::from_secs(5);

/// One receiver, not told anything yet.
#[derive(Debug)]
pub(crate) struct Webhook {
    pub(crate) client: Client,
    pub(crate) rule: Rule,
    pub(crate) from: From,
}

/// Tells each of `webhooks` from now on.
///
/// # Errors
///
/// [`TooManyHooks`] if there is no room for them.
pub(crate) fn start(webhooks: Vec<Webhook>, node: &Arc<Node>) -> Result<(), TooManyHooks> {
    for Webhook { client, rule, from } in webhooks {
        // An end is told whatever the score.
        let (id, notified) = node.register_hook(Filter { lmaps: [].into(), min_share: 1.0 }, VERDICTS)?;
        let telling = Telling { node: Arc::clone(node), id, client, groups: Groups::new(rule), from };
        tokio::spawn(async move {
            let node = Arc::clone(&telling.node);
            tokio::select! {
                () = telling.run(&notified) => {}
                () = node.drained() => {}
            }
            node.unregister(id);
        });
    }
    Ok(())
}

/// What tells one receiver.
struct Telling {
    node: Arc<Node>,
    id: HookId,
    client: Client,
    groups: Groups,
    from: From,
}

impl Telling {
    async fn run(mut self, notified: &tokio::sync::Notify) {
        let mut standing = tokio::time::interval(STANDING_EVERY);
        standing.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            while let Some(taken) = self.node.next_event(self.id) {
                let now = self.node.clock().now();
                sights(&taken.item).for_each(|sight| self.groups.see(sight, now));
            }
            self.node.counts.crowded_webhook_alerts.more(self.groups.crowded());
            let wait = self.tell().await;
            tokio::select! {
                () = tokio::time::sleep(wait.min(Nanos::from_secs(3600)).into()) => {}
                () = notified.notified() => {}
                _ = standing.tick() => {
                    if !self.groups.is_empty() {
                        self.groups.stand(&standings(&self.node), unix_now(), self.node.clock().now());
                    }
                }
            }
        }
    }

    /// Tells what is due, if anything is. How long there is nothing to do then.
    async fn tell(&mut self) -> Nanos {
        let now = self.node.clock().now();
        let notice = match self.groups.next(now) {
            Step::Wait(until) => return until.since(now).unwrap_or(Nanos::ZERO),
            Step::Send(notice) => notice,
        };
        let body = render(&notice, &self.from);
        let said = self.client.send_json(body).await;
        let heard = self.groups.answered(&said.answer, unix_now(), self.node.clock().now(), rand::random());
        let (counts, receiver) = (&self.node.counts, &self.from.receiver);
        match heard {
            Heard::Taken => counts.sent_webhooks.one_more(),
            Heard::Refused => {
                counts.refused_webhooks.one_more();
                tracing::warn!(receiver, why = said.text, "a webhook refuses what it is told");
            }
            Heard::Again(pause) => {
                counts.failed_webhooks.one_more();
                tracing::debug!(receiver, why = said.text, pause = %pause, "a webhook is told again");
            }
            Heard::Unasked => {}
        }
        Nanos::ZERO
    }
}

fn unix_now() -> UnixNanos {
    UnixNanos(clock::unix_now().0)
}

/// How all services stand, as `uview status` shows it.
fn standings(node: &Node) -> BTreeMap<String, Standing> {
    let status = node.look(|plane, _| plane.status());
    let standing = |lmap: wire::proto::operators::LmapStatus| {
        let silent = lmap.silent_replicas.into_iter().collect();
        (lmap.service, Standing { alarm: lmap.alarm, silent })
    };
    status.lmaps.into_iter().map(standing).collect()
}

/// What `event` says of its service: whether it is in an alarm, and which replicas are silent.
fn sights(event: &Event) -> impl Iterator<Item = Sight> {
    let (service, at) = (event.service.as_str(), UnixNanos(event.at_unix_ns));
    let firing = match event.verdict.episode {
        Episode::Began | Episode::On => Some(true),
        Episode::Ended => Some(false),
        Episode::Quiet => None,
    };
    let anomaly = firing.map(|firing| {
        let (summary, description) = words(event);
        Sight { service: service.to_owned(), what: What::Anomaly, firing, at, summary, description }
    });
    let silent = event.silent.iter().map(move |instance| Sight {
        service: service.to_owned(),
        what: What::Silent(instance.as_str().to_owned()),
        firing: true,
        at,
        summary: format!("{service}: replica {instance} says nothing any more"),
        description: String::new(),
    });
    anomaly.into_iter().chain(silent)
}

/// What speaks for the verdict: the heaviest metric in a line, all of them and the score in full.
fn words(event: &Event) -> (String, String) {
    let said = |reason: &NamedReason| {
        let (seen, expected) = (quantity(reason.seen, &reason.unit), quantity(reason.expected, &reason.unit));
        format!("{} {seen}, expected {expected}", reason.column)
    };
    let service = &event.service;
    let first = event.reasons.first().map_or_else(|| "out of the ordinary".to_owned(), said);
    let mut lines =
        vec![format!("score {:.1}, threshold {:.1}", event.verdict.score, event.verdict.gamma.unwrap_or(0.0))];
    lines.extend(event.reasons.iter().map(|reason| format!("{} ({:.0} %)", said(reason), reason.share * 100.0)));
    if let Some(suspicion) = &event.suspicion {
        lines.push(format!("rank {} of the services that are suspected", suspicion.rank));
    }
    (format!("{service}: {first}"), lines.join("\n"))
}
