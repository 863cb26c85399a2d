//! Has a NIC agent of this node measure the streams of packets that `SynopsisPolicy`s want.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::node_status::ObjectState;
use resources::plan::Plan;
use resources::report::{KindReport, NameState, report_states};
use resources::synopsis_plan::{MAX_STREAMS, WantedStream, of_services, plan, stream_of};
use resources::synopsis_policy::Direction;
use wire::proto::control as proto;

use super::known::{Knowledge, Versions};
use super::objects::CustomObjects;
use crate::control_plane::StreamOutcome;
use crate::node::Node;
use crate::pod_watch::PodWatch;

/// What was done so far. The whole list of streams is sent at once: nothing is left of a policy that is gone.
#[derive(Debug, Default)]
pub(super) struct SynopsisReconciler {
    /// Of which policies and pods the plan is.
    versions: Option<Versions>,
    plan: Plan<WantedStream>,
    /// How far each stream that is not asked for is.
    left_out: BTreeMap<String, StreamOutcome>,
    /// What came of each stream, by its service.
    outcomes: BTreeMap<String, StreamOutcome>,
}

impl SynopsisReconciler {
    /// Asks for what has changed. False as long as pods or policies are not known.
    pub(super) fn look(&mut self, objects: &CustomObjects, pods: Option<&PodWatch>, node: &Node) -> bool {
        match objects.synopses.since(self.versions, pods) {
            Knowledge::Incomplete => return false,
            Knowledge::Same => {}
            Knowledge::New(versions, policies, pods) => {
                let plan = pods.map_or_else(|| of_services(&policies), |pods| plan(&policies, &pods));
                (self.versions, self.plan) = (Some(versions), plan);
                let (streams, left_out) = streams(&self.plan.wanted);
                self.left_out = left_out;
                node.plane(|plane, _| plane.set_streams(streams));
            }
        }
        let of = |service: &String, asked: &StreamOutcome| {
            let outcome = self.left_out.get(service).unwrap_or(asked).clone();
            (service.clone(), outcome)
        };
        let services = self.plan.wanted.keys();
        let outcomes: BTreeMap<_, _> = node.inspect(|plane, _| {
            services.map(|service| of(service, &plane.stream_outcome(stream_of(service)))).collect()
        });
        for (service, outcome) in &outcomes {
            if let (StreamOutcome::Refused(why), true) = (outcome, self.outcomes.get(service) != Some(outcome)) {
                tracing::warn!(service, why, "a stream of a SynopsisPolicy is refused");
            }
        }
        self.outcomes = outcomes;
        true
    }

    /// What came of the policies; `before` and `now` are for times of transition.
    pub(super) fn report(&self, before: &[ObjectState], now: &Time) -> KindReport {
        let state = |service: &str| match self.outcomes.get(service) {
            Some(StreamOutcome::Measured(_)) => NameState::Done,
            Some(StreamOutcome::Refused(why)) => NameState::Refused(why.clone()),
            Some(StreamOutcome::Waiting(why)) => NameState::Waits(format!("is not measured yet: {why}")),
            None => NameState::Waits("is not measured yet".to_owned()),
        };
        report_states(&self.plan, "SynopsisPolicy", state, (before, now))
    }
}

/// The streams to ask for, those of the oldest policy first, and how far the others are.
fn streams(wanted: &BTreeMap<String, Arc<WantedStream>>) -> (Vec<proto::Stream>, BTreeMap<String, StreamOutcome>) {
    let mut oldest_first: Vec<_> = wanted.iter().collect();
    oldest_first.sort_by_key(|(service, of)| (of.created, &of.by, *service));
    let (mut streams, mut left_out) = (Vec::new(), BTreeMap::new());
    for (service, of) in oldest_first {
        let outcome = if let Some(why) = &of.why_not {
            StreamOutcome::Refused(why.clone())
        } else if of.has_no_address {
            StreamOutcome::Waiting("its pods have no address".to_owned())
        } else if streams.len() == MAX_STREAMS {
            let why = format!("{MAX_STREAMS} streams of policies are the most on a node, and older policies have them");
            StreamOutcome::Refused(why)
        } else {
            streams.push(stream(stream_of(service), of));
            continue;
        };
        left_out.insert(service.clone(), outcome);
    }
    (streams, left_out)
}

fn stream(name: &str, of: &WantedStream) -> proto::Stream {
    let bytes = |address: &IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let side = match of.direction {
        Direction::Received => "dst",
        Direction::Sent => "src",
        Direction::Both => "",
    };
    let heavy_hitters = of
        .heavy_hitters
        .map(|of| proto::HeavyHitters { by: of.by.name().to_owned(), weight: of.weight.name().to_owned() });
    proto::Stream {
        name: name.to_owned(),
        by: of.by.clone(),
        interface: of.interface.clone().unwrap_or_default(),
        addresses: of.addresses.iter().map(bytes).collect(),
        side: side.to_owned(),
        port: of.port.map_or(0, u32::from),
        interval_ms: of.interval_ms,
        pair: of.delay.map(|delay| delay.name().to_owned()).unwrap_or_default(),
        reordering: of.reordering,
        heavy_hitters,
        cardinality: of.window_ms.map(|window_ms| proto::Cardinality { window_ms }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_policies_have_the_streams_that_there_are_and_what_has_no_address_is_not_asked_for() {
        let of = |number: usize, created: i64| {
            let stream = WantedStream { by: format!("policy {created}"), created, ..WantedStream::default() };
            (format!("network.shop.w{number:03}"), stream)
        };
        let mut wanted: BTreeMap<_, _> = (0..=MAX_STREAMS).map(|number| of(number, -(number as i64))).collect();
        let on_node = || Some("on the node's network".to_owned());
        wanted.get_mut("network.shop.w064").unwrap().why_not = on_node();
        wanted.get_mut("network.shop.w063").unwrap().has_no_address = true;
        wanted.extend([of(100, -100), of(101, -101)]);
        let wanted = wanted.into_iter().map(|(service, of)| (service, Arc::new(of))).collect();

        let (streams, left_out) = streams(&wanted);

        let names: Vec<_> = streams.iter().take(3).map(|stream| stream.name.as_str()).collect();
        assert_eq!((streams.len(), names), (MAX_STREAMS, vec!["shop.w101", "shop.w100", "shop.w062"]));
        let why = |number| left_out.get(&format!("network.shop.w{number:03}"));
        assert_eq!(why(64), on_node().map(StreamOutcome::Refused).as_ref());
        assert_eq!(why(63), Some(&StreamOutcome::Waiting("its pods have no address".to_owned())));
        assert!(
            matches!(why(0), Some(StreamOutcome::Refused(why)) if why.contains("64 streams of policies are the most"))
        );
        assert_eq!(left_out.len(), 3);
    }
}
