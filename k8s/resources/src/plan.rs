//! Which LMAPs of this node each object is about, and which object has the say.
//!
//! Pure: the same objects and pods give the same plan, in whatever order they come. Of two objects that set one LMAP,
//! the older one has the say; of two that are as old, the first by namespace and name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pods::Pod;

use crate::lmap::{Detector, LmapSpec, Metric, Workload};
use crate::{duration, files};

/// What names an object: its namespace, and its name.
pub type Key = (String, String);

/// Most objects that a node keeps.
pub const MAX_OBJECTS: usize = 256;
/// Most bytes of all of them, as the API server sends them.
pub const MAX_OBJECT_BYTES: usize = 2 << 20;

/// An object, as the API server tells of it: an `Lmap` by default.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared<S = LmapSpec> {
    /// The namespace that it is in, and the only one that it has a say about.
    pub namespace: String,
    /// The name within its namespace.
    pub name: String,
    /// When it was created, in seconds since 1970.
    pub created: i64,
    /// Counts changes of its `spec`.
    pub generation: i64,
    /// What it says, or why that is not understood.
    pub spec: Result<S, SpecError>,
}

/// A `spec` that its type does not take: usually one of another release.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}: is the definition of {kind} that of this release (uview-crds)?")]
pub struct SpecError {
    /// The object's kind.
    pub kind: &'static str,
    /// The first thing in it that is not understood.
    pub cause: String,
}

impl<S> Declared<S> {
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
    /// What it sets: names of LMAPs, or of services.
    pub sets: BTreeSet<String>,
    /// Those of them that an older object sets.
    pub conflicts: BTreeMap<String, Key>,
    /// Why it makes no sense.
    pub invalid: Option<String>,
}

/// What all objects of one kind together say about this node: `Lmap`s by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan<T = Settings> {
    /// What each LMAP is to have, by name: a service's own, or one over several. With other kinds, what each service is
    /// to have.
    pub wanted: BTreeMap<String, Arc<T>>,
    /// The objects that are about this node, by namespace and name.
    pub selected: Vec<Selected>,
}

/// An object's name with its namespace, if it has one.
#[must_use]
pub fn full_name((namespace, name): &Key) -> String {
    if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") }
}

/// The name of the LMAP over several services that the object `name` makes. No workload can have it, since the names of
/// workloads have no colon.
#[must_use]
pub fn name_of_several(namespace: &str, name: &str) -> String {
    full_name(&(namespace.to_owned(), format!("lmap:{name}")))
}

/// What `objects` say about the node that runs `pods`.
#[must_use]
pub fn plan(objects: &[Declared], pods: &[Pod]) -> Plan {
    plan_of(objects, pods, wanted)
}

/// What `objects` of files say about a node without Kubernetes, by the names of its services. Whether there are such
/// services does not matter: settings wait for them.
#[must_use]
pub fn of_services(objects: &[Declared]) -> Plan {
    resolve(objects, |object| Some(understood(object).and_then(|spec| wanted_of_services(object, spec))))
}

/// What `objects` of one kind say about the node that runs `pods`. `wanted` is what one of them wants, by name, of the
/// pods of its own namespace, or why it makes no sense.
pub(crate) fn plan_of<S, T: Default>(
    objects: &[Declared<S>],
    pods: &[Pod],
    wanted: impl Fn(&Declared<S>, &S, &[&Pod]) -> Result<BTreeMap<String, Arc<T>>, String>,
) -> Plan<T> {
    let mut by_namespace: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.is_own) {
        by_namespace.entry(&pod.namespace).or_default().push(pod);
    }
    resolve(objects, |object| {
        // An object sees the pods of its own namespace only.
        let pods = by_namespace.get(object.namespace.as_str())?;
        Some(understood(object).and_then(|spec| wanted(object, spec, pods)))
    })
}

/// What `object` says, or why that makes no sense.
pub(crate) fn understood<S>(object: &Declared<S>) -> Result<&S, String> {
    object.spec.as_ref().map_err(ToString::to_string)
}

/// Which of `objects` has the say about what. `wanted` is what one of them wants, by name, or why it makes no sense;
/// `None`: it is not about this node.
pub(crate) fn resolve<S, T: Default>(
    objects: &[Declared<S>],
    wanted: impl Fn(&Declared<S>) -> Option<Result<BTreeMap<String, Arc<T>>, String>>,
) -> Plan<T> {
    let mut oldest_first: Vec<_> = objects.iter().collect();
    oldest_first.sort_by_key(|object| (object.created, &object.namespace, &object.name));
    let mut plan: Plan<T> = Plan::default();
    let mut owners: BTreeMap<String, Key> = BTreeMap::new();
    for object in oldest_first {
        let Some(wanted) = wanted(object) else { continue };
        let mut selected = Selected {
            key: object.key(),
            generation: object.generation,
            sets: BTreeSet::new(),
            conflicts: BTreeMap::new(),
            invalid: None,
        };
        match wanted {
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

/// What `object` wants of the LMAPs of services that it names itself.
fn wanted_of_services(object: &Declared, spec: &LmapSpec) -> Result<BTreeMap<String, Arc<Settings>>, String> {
    let settings = settings(object, spec)?;
    if let (None, None, [_, _, ..]) = (&spec.workload, &spec.selector, &spec.together[..]) {
        let mut members = BTreeMap::new();
        for member in &spec.together {
            add_member(&mut members, &files::service_of(&member.workload)?, &member.metrics)?;
        }
        let name = name_of_several(&object.namespace, &object.name);
        return Ok(BTreeMap::from([(name, Arc::new(Settings { members, ..settings }))]));
    }
    if !spec.together.is_empty() {
        return Err("set either workload, or together (of two or more workloads)".to_owned());
    }
    let (services, settings) =
        (files::one_service(spec.workload.as_ref(), spec.selector.as_ref())?, Arc::new(settings));
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
        by: format!("Lmap {}", full_name(&object.key())),
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
        let here = pods.iter().find_map(|pod| service_of(&member.workload, pod));
        is_here |= here.is_some();
        let service = here.unwrap_or_else(|| elsewhere(&object.namespace, &member.workload));
        add_member(&mut members, &service, &member.metrics)?;
    }
    let name = name_of_several(&object.namespace, &object.name);
    Ok(is_here.then(|| (name, Arc::new(Settings { members, ..settings }))).into_iter().collect())
}

fn add_member(members: &mut BTreeMap<String, Vec<Metric>>, service: &str, metrics: &[Metric]) -> Result<(), String> {
    unique(metrics)?;
    match members.insert(service.to_owned(), metrics.to_vec()) {
        None => Ok(()),
        Some(_) => Err(format!("{service} is in together twice: name each workload once, with all of its metrics")),
    }
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
