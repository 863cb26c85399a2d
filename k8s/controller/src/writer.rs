//! Writes statuses that differ from what the API server has, and tells of transitions by events. Deletes reports whose
//! nodes are gone.
//!
//! Level-triggered: each look begins with what is known now. A write that is refused is not repeated as it was; the
//! next look computes it anew.

use core::time::Duration;
use std::sync::Arc;

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Client, Resource as _};
use resources::aggregate::{ObjectKind, StatusWrite};
use resources::plan::Key;
use resources::{Lmap, LmapNodeStatus, SamplingPolicy, SynopsisPolicy};
use serde_json::json;

use crate::calls::{CallError, call};
use crate::clock::{self, Clock};
use crate::counts::Counts;
use crate::events;
use crate::gone::GoneReports;
use crate::known::ClusterView;
use crate::lease::Leadership;
use crate::pace::{Intervals, ObjectId, Pace};

/// Who owns the fields, for the API server.
const MANAGER: &str = "uview-controller";
/// Most writes of one look, and so of one second.
const BATCH: usize = 20;

/// What a write needs.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) known: Arc<ClusterView>,
    pub(crate) leadership: Arc<Leadership>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) intervals: Intervals,
}

impl Writer {
    /// Writes for ever, whenever this replica acts.
    pub(crate) async fn run(self, client: Client) {
        let clock = Clock::start();
        let (mut pace, mut gone) = (Pace::new(self.intervals), GoneReports::default());
        let mut ticks = tokio::time::interval(self.intervals.look);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            // Changes that come together are one look.
            ticks.tick().await;
            self.look(&client, &mut pace, clock).await;
            let overdue = gone.overdue(self.known.orphans(), self.intervals.gone, clock.now());
            self.forget(&client, overdue).await;
        }
    }

    /// Deletes the reports of `nodes` that are gone, unless another one has come in their place.
    async fn forget(&self, client: &Client, nodes: Vec<(String, String)>) {
        for (node, uid) in nodes.into_iter().take(BATCH) {
            if !self.leadership.holds() {
                return;
            }
            let only_this = Preconditions { uid: Some(uid), ..Preconditions::default() };
            let parameters = DeleteParams { preconditions: Some(only_this), ..DeleteParams::default() };
            let request = Request::new(LmapNodeStatus::url_path(&(), None));
            let Ok(request) = request.delete(&node, &parameters) else { continue };
            match call(client, request).await {
                Ok(_) => {
                    self.counts.forgotten.one_more();
                    tracing::info!(node, "the report of a node that is gone is deleted");
                }
                // Somebody else was faster.
                Err(CallError::Missing | CallError::Conflict) => {}
                Err(error) => {
                    self.counts.failed.one_more();
                    tracing::debug!(node, %error, "a report is not deleted");
                }
            }
        }
    }

    async fn look(&self, client: &Client, pace: &mut Pace, clock: Clock) {
        pace.forget_due(clock.now());
        if !self.leadership.holds() {
            return;
        }
        let now = clock.now();
        let due = |kind, key: &Key| pace.is_due(&(kind, key.clone()), now);
        for write in self.known.writes(&Time(clock::wall()), BATCH, due) {
            if !self.leadership.holds() {
                return;
            }
            let written = self.write(client, &write).await;
            let now = clock.now();
            match written {
                Ok(()) => {
                    self.counts.written.one_more();
                    pace.written(&id(&write), now);
                    if let Some(pause) = self.tell(client, &write).await {
                        pace.pause(pause, now);
                        return;
                    }
                }
                Err(CallError::Throttled(pause)) => {
                    self.counts.throttled.one_more();
                    pace.pause(pause, now);
                    return;
                }
                Err(error) => {
                    let count =
                        if matches!(error, CallError::Conflict) { &self.counts.conflicts } else { &self.counts.failed };
                    count.one_more();
                    pace.failed(&id(&write), now);
                    let (namespace, name) = &write.key;
                    tracing::debug!(kind = write.kind.name(), namespace, name, %error, "a status is not written");
                }
            }
        }
    }

    /// Writes one status, unless the object is newer than what it is based on.
    async fn write(&self, client: &Client, write: &StatusWrite) -> Result<(), CallError> {
        let (namespace, name) = &write.key;
        let version = json!({"resourceVersion": write.resource_version});
        let patch = Patch::Merge(json!({"metadata": version, "status": write.status}));
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let path = match write.kind {
            ObjectKind::Lmap => Lmap::url_path(&(), Some(namespace)),
            ObjectKind::SamplingPolicy => SamplingPolicy::url_path(&(), Some(namespace)),
            ObjectKind::SynopsisPolicy => SynopsisPolicy::url_path(&(), Some(namespace)),
        };
        let request = Request::new(path);
        let request = request.patch_subresource("status", name, &parameters, &patch);
        let request = request.map_err(|error| CallError::Refused(0, agent_runtime::chain(&error)))?;
        let object = call(client, request).await?;
        if let Ok(object) = serde_json::from_value::<DynamicObject>(object) {
            self.known.take_written(write.kind, &object);
        }
        Ok(())
    }

    /// Makes the events of `write`. One that is there already was told. Returns for how long the API server wants to be
    /// left alone.
    async fn tell(&self, client: &Client, write: &StatusWrite) -> Option<Duration> {
        for notice in &write.notices {
            let event = events::event(write, notice, &self.leadership.me, &MicroTime(clock::wall()));
            let request = Request::new(Event::url_path(&(), Some(&write.key.0)));
            let Ok(request) = request.create(&PostParams::default(), event.to_string().into_bytes()) else { continue };
            match call(client, request).await {
                Ok(_) => self.counts.events.one_more(),
                Err(CallError::Conflict) => {}
                // An event is not worth a second try: the status says the same.
                Err(CallError::Throttled(pause)) => return Some(pause),
                Err(error) => {
                    self.counts.failed.one_more();
                    tracing::debug!(%error, "an event is not made");
                }
            }
        }
        None
    }
}

fn id(write: &StatusWrite) -> ObjectId {
    (write.kind, write.key.clone())
}
