//! The one-way protocol of two NIC agents.

use one_way::collector::{CollectorSettings, End};
use one_way::{
    Action, ClockState, Collector, Effect, Plan, Receiver, ReceiverSettings, Request, Response, ResponseBody, Sender,
    SenderSettings, Synopsis,
};
use prost::Message as _;
use synopses::digest::Digest;
use wire::proto::one_way as proto;
use wire::time::{Nanos, UnixNanos};

/// Length of an interval.
const LENGTH: u64 = 100_000_000;
/// Start of the simulated time, and number of the first run.
const NOW: u64 = 1 << 60;

/// A request and a response: decoded, encoded again to the same bytes, and passed to an end with packets of an
/// interval, also with that end's epoch and interval, which a fuzzer would not guess.
pub fn one_way(bytes: &[u8]) {
    if let Ok(Ok(request)) = proto::Request::decode(bytes).map(Request::decode) {
        let again = Request::decode(request.encode()).expect("accepted input survives a round trip");
        assert_eq!(again.encode(), request.encode());
        for synopsis in [Synopsis::RDA, Synopsis::finecomb(8, 2)] {
            check_request(&request, &synopsis);
        }
    }
    if let Ok(Ok(response)) = proto::Response::decode(bytes).map(Response::decode) {
        let again = Response::decode(response.clone().encode()).expect("accepted input survives a round trip");
        assert_eq!(again.encode(), response.clone().encode());
        for synopsis in [Synopsis::RDA, Synopsis::finecomb(8, 2)] {
            check_response(&response, &synopsis);
        }
    }
}

/// Interval 0 of an end, with some packets.
fn interval(plan: &Plan, end: End) -> one_way::IntervalPackets {
    let settings = CollectorSettings { end, packets: 64, grace: Nanos::ZERO };
    let mut collector = Collector::new(plan.clone(), settings).expect("the plan is valid");
    for number in 0..20 {
        collector.insert(plan.begins.plus(Nanos(number)), |_| Digest(number << 40), |_| Digest(1));
    }
    collector.poll(plan.begin_of(1)).expect("the interval is over")
}

fn check_request(request: &Request, synopsis: &Synopsis) {
    let plan = Plan {
        begins: UnixNanos(NOW + LENGTH),
        length: Nanos(LENGTH),
        key: 1,
        seed: 1,
        synopsis: synopsis.clone(),
        intervals_per_key: 0,
        fingerprint: None,
    };
    let mut receiver = Receiver::new(ReceiverSettings::new(Nanos(LENGTH), synopsis.clone()));
    let start = one_way::RequestBody::Start(plan.clone());
    let start = Request { stream: String::new(), epoch: 1, interval: 0, clock_state: ClockState::Unknown, body: start };
    assert_eq!(receiver.respond(&start, UnixNanos(NOW)).body, ResponseBody::Started(0));
    let now = plan.begin_of(1).0;
    receiver.add_interval(interval(&plan, End::Receiver), UnixNanos(now));
    let matching = Request { epoch: 1, interval: 0, ..request.clone() };
    for request in [request, &matching] {
        let response = receiver.respond(request, UnixNanos(now));
        assert_eq!((response.epoch, response.interval), (request.epoch, request.interval));
        drop(Response::decode(response.encode()).expect("a response can be decoded"));
    }
    receiver.poll(UnixNanos(now + 100 * LENGTH));
    assert!(receiver.memory_bytes() == 0, "all intervals expire");
}

fn check_response(response: &Response, synopsis: &Synopsis) {
    let mut sender = Sender::new(SenderSettings::new(String::new(), Nanos(LENGTH), synopsis.clone()));
    let mut random = || 7;
    let Action::Send { call, request } = sender.poll(UnixNanos(NOW), &mut random) else { return };
    let reply = |epoch, interval, body| {
        Some(Response { epoch, interval, clock: UnixNanos(NOW), clock_state: ClockState::Unknown, body })
    };
    sender.complete(call, reply(request.epoch, 0, ResponseBody::Started(36_000)), UnixNanos(NOW), &mut random);
    let Some(Effect::Collect(plan)) = sender.take_effects().next() else { return };
    let mut now = plan.begin_of(1).0;
    sender.add_interval(interval(&plan, End::Sender), UnixNanos(now), &mut random);
    // The same response to every request, until the interval expires.
    for _ in 0..200 {
        match sender.poll(UnixNanos(now), &mut random) {
            Action::Send { call, request } => {
                let matching = Response { epoch: request.epoch, interval: request.interval, ..response.clone() };
                sender.complete(call, Some(response.clone()), UnixNanos(now), &mut random);
                sender.complete(call, Some(matching), UnixNanos(now), &mut random);
                now += 1;
            }
            Action::Wait(UnixNanos(until)) => {
                assert!(until > now, "a wait for a time in the past");
                now = until;
            }
        }
        if now > plan.begin_of(8).0 {
            break;
        }
    }
    for effect in sender.take_effects() {
        let Effect::Report(report) = effect else { continue };
        assert!(report.mean_ns.is_none_or(f64::is_finite) && report.loss.is_none_or(|loss| loss <= 1.0), "{report:?}");
    }
}
