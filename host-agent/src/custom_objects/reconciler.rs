//! Looks again and again whether what the objects want is what the LMAPs have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent_runtime::lock;
use agent_runtime::ticks::ticks;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use resources::NodeReport;
use resources::changes::{Applied, Change, changes, report};
use resources::node_status::ObjectState;
use resources::plan::{Plan, Settings, of_services, plan};
use resources::report::KindReport;
use wire::name::ServiceName;
use wire::time::Nanos;

use super::apply::apply;
use super::known::{Knowledge, Versions};
use super::objects::CustomObjects;
use super::sampling::PolicyReconciler;
use super::synopses::SynopsisReconciler;
use crate::clock;
use crate::node::Node;
use crate::pod_watch::PodWatch;

/// What was refused, why, and when it is tried again.
type RefusedSettings = (Arc<Settings>, String, Nanos);

/// What was done so far about `Lmap`s.
#[derive(Debug, Default)]
struct LmapReconciler {
    /// Of which objects and pods the plan is.
    versions: Option<Versions>,
    plan: Plan,
    applied: BTreeMap<String, Applied>,
    refused: BTreeMap<String, RefusedSettings>,
}

/// Applies `objects` to `node` for ever.
pub(super) async fn run(objects: &CustomObjects, pods: Option<&PodWatch>, node: &Node) {
    let (mut lmaps, mut policies) = (LmapReconciler::default(), PolicyReconciler::default());
    let mut synopses = SynopsisReconciler::default();
    // Whether it was said once what came of the objects, be it nothing.
    let mut is_reported = false;
    let mut ticks = ticks(objects.pace.look);
    loop {
        ticks.tick().await;
        // Each kind is on its own: one may be missing, or not be listed yet.
        let looked =
            [lmaps.look(objects, pods, node), policies.look(objects, pods), synopses.look(objects, pods, node)];
        if !looked.contains(&true) {
            continue;
        }
        let now = Time(Timestamp::from_nanosecond(clock::unix_now().0.into()).unwrap_or_default());
        let mut before = lock(&objects.report);
        let lmaps = lmaps.report(&before.lmaps, &now);
        let policies = policies.report(&before.sampling_policies, &now);
        let report = NodeReport::of(&lmaps, &policies, &synopses.report(&before.synopsis_policies, &now));
        if *before != report || !core::mem::replace(&mut is_reported, true) {
            *before = report;
            objects.reported.notify_one();
        }
    }
}

impl LmapReconciler {
    /// Applies what has changed. False as long as one of both lists is not complete.
    fn look(&mut self, objects: &CustomObjects, pods: Option<&PodWatch>, node: &Node) -> bool {
        match objects.lmaps.since(self.versions, pods) {
            Knowledge::Incomplete => return false,
            Knowledge::Same => {}
            Knowledge::New(versions, declared, pods) => {
                let plan = pods.map_or_else(|| of_services(&declared), |pods| plan(&declared, &pods));
                (self.versions, self.plan) = (Some(versions), plan);
            }
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
        true
    }

    /// What came of the `Lmap`s; `before` and `now` are for times of transition.
    fn report(&self, before: &[ObjectState], now: &Time) -> KindReport {
        let refused = self.refused.iter().map(|(name, (_, why, _))| (name.clone(), why.clone())).collect();
        report(&self.plan, &self.applied, &refused, (before, now))
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

    fn carry_out(&mut self, change: &Change, objects: &CustomObjects, node: &Node) {
        match change {
            Change::Reset { name, .. } | Change::Delete { name, .. } => match apply(node, change) {
                Ok(_) => drop(self.applied.remove(name)),
                Err(error) => tracing::warn!(name, error, "it cannot go back to its defaults"),
            },
            Change::Set { name, settings, .. } => {
                let now = node.clock().now();
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
                        let again = now.plus(objects.pace.again.into());
                        if self.refused.insert(name.clone(), (Arc::clone(settings), error.clone(), again)).is_none() {
                            tracing::warn!(name, by = settings.by, error, "an Lmap is refused");
                        }
                    }
                }
            }
        }
    }
}
