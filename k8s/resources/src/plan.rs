//! Which LMAPs of this node each object is about, and which object has the say.
//!
//! Pure: the same objects and pods give the same plan, in whatever order they come. Of two objects that set one LMAP,
//! the older one has the say; of two that are as old, the first by namespace and name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pods::Pod;

use crate::duration;
use crate::lmap::{Detector, LmapSpec, Metric, Workload};

/// What names an object: its namespace, and its name.
pub type Key = (String, String);

/// Most objects that a node keeps.
pub const MAX_OBJECTS: usize = 256;
/// Most bytes of all of them, as the API server sends them.
pub const MAX_OBJECT_BYTES: usize = 2 << 20;

/// An object, as the API server tells of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// The namespace that it is in, and the only one that it has a say about.
    pub namespace: String,
    /// The name within its namespace.
    pub name: String,
    /// When it was created, in seconds since 1970.
    pub created: i64,
    /// Counts changes of its `spec`.
    pub generation: i64,
    /// What it says, or why that is not understood.
    pub spec: Result<LmapSpec, String>,
}

impl Declared {
    /// Its namespace and name.
    #[must_use]
    pub fn key(&self) -> Key {
        (self.namespace.clone(), self.name.clone())
    }
}

/// How an LMAP is fetched while something seems wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adaptive {
    /// For its rows only.
    Off,
    /// At most once in so many microseconds.
    AtMost(u64),
}

/// What one LMAP is to have. What is absent is as the agent is configured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The object that says so.
    pub by: String,
    /// Time between two rows in microseconds.
    pub interval: Option<u64>,
    /// How it is fetched while something seems wrong.
    pub adaptive: Option<Adaptive>,
    /// Settings of its detector.
    pub detector: Detector,
    /// The only metrics that are watched; none: all.
    pub metrics: Vec<Metric>,
    /// The services of an LMAP over several, with their metrics.
    pub members: BTreeMap<String, Vec<Metric>>,
}

/// What an object selects on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    /// Its namespace and name.
    pub key: Key,
    /// Of which `spec` this is.
    pub generation: i64,
    /// LMAPs that it sets.
    pub sets: BTreeSet<String>,
    /// LMAPs that an older object sets, by name.
    pub conflicts: BTreeMap<String, Key>,
    /// Why it makes no sense.
    pub invalid: Option<String>,
}

/// What all objects together say about this node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What each LMAP is to have, by name: a service's own, or one over several.
    pub wanted: BTreeMap<String, Arc<Settings>>,
    /// The objects that are about this node, by namespace and name.
    pub selected: Vec<Selected>,
}

/// The name of the LMAP over several services that the object `name` makes. No workload can have it, since the names of
/// workloads have no colon.
#[must_use]
pub fn name_of_several(namespace: &str, name: &str) -> String {
    format!("{namespace}/lmap:{name}")
}

/// What `objects` say about the node that runs `pods`.
#[must_use]
pub fn plan(objects: &[Declared], pods: &[Pod]) -> Plan {
    let mut by_namespace: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.is_own) {
        by_namespace.entry(&pod.namespace).or_default().push(pod);
    }
    let mut oldest_first: Vec<_> = objects.iter().collect();
    oldest_first.sort_by_key(|object| (object.created, &object.namespace, &object.name));
    let mut plan = Plan::default();
    let mut owners: BTreeMap<String, Key> = BTreeMap::new();
    for object in oldest_first {
        // An object sees the pods of its own namespace only.
        let Some(pods) = by_namespace.get(object.namespace.as_str()) else { continue };
        let mut selected = Selected {
            key: object.key(),
            generation: object.generation,
            sets: BTreeSet::new(),
            conflicts: BTreeMap::new(),
            invalid: None,
        };
        match object.spec.as_ref().map_err(Clone::clone).and_then(|spec| wanted(object, spec, pods)) {
            Err(why) => selected.invalid = Some(why),
            Ok(wanted) if wanted.is_empty() => continue,
            Ok(wanted) => {
                for (name, settings) in wanted {
                    if let Some(owner) = owners.get(&name) {
                        selected.conflicts.insert(name, owner.clone());
                    } else {
                        owners.insert(name.clone(), selected.key.clone());
                        selected.sets.insert(name.clone());
                        plan.wanted.insert(name, settings);
                    }
                }
            }
        }
        plan.selected.push(selected);
    }
    plan.selected.sort_by(|one, other| one.key.cmp(&other.key));
    plan
}

/// What `object` wants of the LMAPs of this node, by name; none if no pod of it is here.
fn wanted(object: &Declared, spec: &LmapSpec, pods: &[&Pod]) -> Result<BTreeMap<String, Arc<Settings>>, String> {
    let settings = settings(object, spec)?;
    let services = match (&spec.workload, &spec.selector, &spec.together[..]) {
        (Some(workload), None, []) => pods.iter().flat_map(|pod| services_of(workload, pod)).collect(),
        (None, Some(selector), []) => {
            pods.iter().filter(|pod| selector.selects(pod)).flat_map(|pod| all_services(pod)).collect()
        }
        (None, None, [_, _, ..]) => return several(object, spec, settings, pods),
        // The API server checks this; not if its definition is of another release.
        _ => {
            return Err("set exactly one of workload, selector and together (of two or more workloads)".to_owned());
        }
    };
    let (services, settings): (BTreeSet<String>, _) = (services, Arc::new(settings));
    Ok(services.into_iter().map(|service| (service, Arc::clone(&settings))).collect())
}

/// What `spec` says, whichever services it is about.
fn settings(object: &Declared, spec: &LmapSpec) -> Result<Settings, String> {
    let micros = |name: &str, text: &str| {
        duration::micros(text).ok_or_else(|| format!("{name} is {text}: write a number with us, ms, s, m or h"))
    };
    let adaptive = match spec.adaptive.as_deref() {
        None => None,
        Some("off") => Some(Adaptive::Off),
        Some(text) => Some(Adaptive::AtMost(micros("adaptive", text)?)),
    };
    unique(&spec.metrics)?;
    Ok(Settings {
        by: format!("Lmap {}/{}", object.namespace, object.name),
        interval: spec.interval.as_deref().map(|text| micros("interval", text)).transpose()?,
        adaptive,
        detector: spec.detector.clone().unwrap_or_default(),
        metrics: spec.metrics.clone(),
        members: BTreeMap::new(),
    })
}

/// The LMAP over several services that `spec` makes, if this node runs one of them.
fn several(
    object: &Declared,
    spec: &LmapSpec,
    settings: Settings,
    pods: &[&Pod],
) -> Result<BTreeMap<String, Arc<Settings>>, String> {
    let mut members = BTreeMap::new();
    let mut is_here = false;
    for member in &spec.together {
        unique(&member.metrics)?;
        let here = pods.iter().find_map(|pod| service_of(&member.workload, pod));
        is_here |= here.is_some();
        let service = here.unwrap_or_else(|| elsewhere(&object.namespace, &member.workload));
        if members.insert(service.clone(), member.metrics.clone()).is_some() {
            return Err(format!("{service} is in together twice: name each workload once, with all of its metrics"));
        }
    }
    let name = name_of_several(&object.namespace, &object.name);
    Ok(is_here.then(|| (name, Arc::new(Settings { members, ..settings }))).into_iter().collect())
}

fn unique(metrics: &[Metric]) -> Result<(), String> {
    let mut names = BTreeSet::new();
    match metrics.iter().find(|metric| !names.insert(&metric.name)) {
        None => Ok(()),
        Some(twice) => Err(format!("the metric {} is named twice: name each metric once", twice.name)),
    }
}

/// The services of `workload` that `pod` is a replica of: one per container, and one for what is of no container.
fn services_of(workload: &Workload, pod: &Pod) -> BTreeSet<String> {
    match &workload.container {
        None if workload.has(pod) => all_services(pod),
        None => BTreeSet::new(),
        Some(_) => service_of(workload, pod).into_iter().collect(),
    }
}

fn all_services(pod: &Pod) -> BTreeSet<String> {
    let of_containers = pod.containers.values().map(|container| pod.member(Some(container)).service);
    of_containers.chain([pod.service.clone()]).collect()
}

/// The one service that `workload` means, if `pod` is a replica of it.
fn service_of(workload: &Workload, pod: &Pod) -> Option<String> {
    if !workload.has(pod) {
        return None;
    }
    let Some(wanted) = &workload.container else { return Some(pod.service.clone()) };
    let has_it = pod.container.iter().chain(pod.containers.values()).any(|container| container == wanted);
    has_it.then(|| pod.member(Some(wanted)).service)
}

/// What a workload is called that runs on other nodes only.
fn elsewhere(namespace: &str, workload: &Workload) -> String {
    let container = workload.container.as_ref().map(|container| format!("/{container}"));
    format!("{namespace}/{}{}", workload.name, container.unwrap_or_default())
}

#[cfg(test)]
pub(crate) mod tests;
