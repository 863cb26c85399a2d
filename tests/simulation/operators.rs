//! Operators who make random calls at random times.

use host_agent::control_plane::{Choice, ControlPlane, LmapOptions, MemberChoices};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use wire::id::{LmapId, MetricId};
use wire::metric::TickDivider;
use wire::name::ServiceName;
use wire::time::{Interval, Nanos};

use crate::service::{SERIES, name};
use crate::values::{kind_of, metric, uid_of_service};

/// Makes one call. Returns whether it succeeded; a failed call changes nothing.
pub fn call(control: &mut ControlPlane, now: Nanos, random: &mut ChaCha8Rng) -> bool {
    if random.random_bool(0.2) {
        return call_over_several(control, now, random);
    }
    let service = random.random_range(0..4);
    if random.random_bool(0.4) {
        let interval = [None, Some(20), Some(30)][random.random_range(0..3)];
        let interval = interval.and_then(|millis| Interval::new(Nanos::from_millis(millis)).ok());
        return control.new_lmap(now, &name(service), LmapOptions { interval, ..LmapOptions::default() }).is_ok();
    }
    let lmaps = control.list().lmaps;
    let Some(info) = (!lmaps.is_empty()).then(|| &lmaps[random.random_range(0..lmaps.len())]) else { return false };
    let id = LmapId(info.lmap);
    match random.random_range(0..12) {
        0 => control.delete_lmap(now, id).is_ok(),
        1..=3 => control.fit_again(now, id).is_ok(),
        4..=7 => {
            let Some(last) = info.metrics.len().checked_sub(1) else { return false };
            let known = &info.metrics[random.random_range(0..=last)];
            control.delete_metric(now, id, MetricId(known.metric)).is_ok()
        }
        _ => {
            let every = TickDivider::new(random.random_range(1..4)).expect("between one and the most");
            let uid = uid_of_service(service, random.random_range(0..SERIES));
            let choice = Choice { metric: metric(uid), aggregation: None, every: Some(every), unit: None };
            let kind = kind_of(uid).to_string().replace(['-', ' '], "_");
            control.add_metric(now, id, choice, Some(&kind)).is_ok()
        }
    }
}

/// Whether it is a name of [`call_over_several`].
pub fn is_over_several(name: &ServiceName) -> bool {
    name.as_str().starts_with("over-")
}

/// Makes or configures an LMAP over some services, of each all metrics or some.
fn call_over_several(control: &mut ControlPlane, now: Nanos, random: &mut ChaCha8Rng) -> bool {
    let lmap =
        ServiceName::new(["over-0", "over-1"][random.random_range(0..2)]).expect("letters and digits are a name");
    let mut members = Vec::new();
    for service in (0..4).filter(|_| random.random_bool(0.6)).collect::<Vec<u64>>() {
        let metrics = if random.random_bool(0.5) { 0 } else { 3 };
        let uids = (0..metrics).map(|_| uid_of_service(service, random.random_range(0..SERIES)));
        let choice = |uid| Choice { metric: metric(uid), aggregation: None, every: None, unit: None };
        members.push(MemberChoices { service: name(service), choices: uids.map(choice).collect() });
    }
    if members.is_empty() {
        return false;
    }
    let known = control.list().lmaps.into_iter().find(|info| info.service == lmap.as_str());
    match known {
        Some(known) => control.config_members(now, LmapId(known.lmap), members).is_ok(),
        None => control.new_lmap(now, &lmap, LmapOptions { members, ..LmapOptions::default() }).is_ok(),
    }
}

/// Deletes all LMAPs.
pub fn delete_all(control: &mut ControlPlane, now: Nanos) {
    for info in control.list().lmaps {
        control.delete_lmap(now, LmapId(info.lmap)).expect("the LMAP is listed");
    }
}
