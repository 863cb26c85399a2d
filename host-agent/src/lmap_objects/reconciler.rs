//! Looks again and again whether what the objects want is what the LMAPs have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use resources::changes::{Applied, Change, changes, report};
use resources::plan::{Declared, Plan, Settings, plan};
use tokio::time::Instant;
use wire::name::ServiceName;

use super::apply::apply;
use super::{LmapObjects, lock};
use crate::clock;
use crate::node::Node;
use crate::pod_watch::PodWatch;

/// What was refused, why, and when it is tried again.
type Refused = (Arc<Settings>, String, Instant);

/// What was done so far.
#[derive(Debug, Default)]
struct Reconciler {
    /// Of which objects and pods the plan is.
    versions: Option<(u64, u64)>,
    plan: Plan,
    applied: BTreeMap<String, Applied>,
    refused: BTreeMap<String, Refused>,
    /// Whether it was said once what came of the objects, be it nothing.
    is_reported: bool,
}

/// Applies `objects` to `node` for ever.
pub(super) async fn run(objects: &LmapObjects, pods: &PodWatch, node: &Node) {
    let mut reconciler = Reconciler::default();
    let mut ticks = tokio::time::interval(objects.pace.look);
    loop {
        ticks.tick().await;
        reconciler.look(objects, pods, node);
    }
}

impl Reconciler {
    fn look(&mut self, objects: &LmapObjects, pods: &PodWatch, node: &Node) {
        if !self.plan_anew(objects, pods) {
            return;
        }
        let wanted = &self.plan.wanted;
        self.refused.retain(|name, (settings, ..)| wanted.get(name) == Some(settings));
        let present = self.present(node);
        for change in changes(&self.applied, &self.plan.wanted, &present) {
            self.carry_out(&change, objects, node);
        }
        let Self { applied, plan, .. } = self;
        applied.retain(|name, of| {
            let is_there = of.settings.members.is_empty().then(|| present.get(name) == Some(&of.lmap));
            plan.wanted.contains_key(name) && is_there.unwrap_or(true)
        });
        let refused = self.refused.iter().map(|(name, (_, why, _))| (name.clone(), why.clone())).collect();
        let now = Time(Timestamp::from_nanosecond(clock::unix_now().0.into()).unwrap_or_default());
        let mut before = lock(&objects.report);
        let report = report(&self.plan, &self.applied, &refused, (&before, &now));
        if *before != report || !core::mem::replace(&mut self.is_reported, true) {
            *before = report;
            objects.reported.notify_one();
        }
    }

    /// Plans anew if objects or pods have changed. False as long as one of both lists is not complete.
    fn plan_anew(&mut self, objects: &LmapObjects, pods: &PodWatch) -> bool {
        let (version, declared) = {
            let known = lock(&objects.known);
            let version = (known.version, pods.version());
            if self.versions == Some(version) {
                return true;
            }
            if !known.is_listed {
                return false;
            }
            let declared: Vec<Declared> = known.objects.values().map(|(object, _)| object.clone()).collect();
            (version, declared)
        };
        let Some(pods) = pods.all() else { return false };
        self.plan = plan(&declared, &pods);
        self.versions = Some(version);
        true
    }

    /// The numbers of the LMAPs that are of concern.
    fn present(&self, node: &Node) -> BTreeMap<String, u32> {
        let names: BTreeSet<&String> = self.plan.wanted.keys().chain(self.applied.keys()).collect();
        let number = |name: &String| {
            let service = ServiceName::new(name).ok()?;
            Some((name.clone(), node.inspect(|plane, _| plane.lmap_of(&service))?.0))
        };
        names.into_iter().filter_map(number).collect()
    }

    fn carry_out(&mut self, change: &Change, objects: &LmapObjects, node: &Node) {
        match change {
            Change::Reset { name, .. } | Change::Delete { name, .. } => match apply(node, change) {
                Ok(_) => drop(self.applied.remove(name)),
                Err(error) => tracing::warn!(name, error, "it cannot go back to its defaults"),
            },
            Change::Set { name, settings, .. } => {
                let now = Instant::now();
                if self.refused.get(name).is_some_and(|(_, _, again)| now < *again) {
                    return;
                }
                match apply(node, change) {
                    Ok(lmap) => {
                        self.refused.remove(name);
                        let applied = lmap.map(|lmap| Applied { lmap, settings: Arc::clone(settings) });
                        self.applied.extend(applied.map(|applied| (name.clone(), applied)));
                    }
                    Err(error) => {
                        let again = now + objects.pace.again;
                        if self.refused.insert(name.clone(), (Arc::clone(settings), error.clone(), again)).is_none() {
                            tracing::warn!(name, by = settings.by, error, "an Lmap is refused");
                        }
                    }
                }
            }
        }
    }
}
