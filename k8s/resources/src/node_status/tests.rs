use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;

use super::*;

/// What is told of an object that is refused, with `message`.
fn state(name: &str, services: &[String], message: &str) -> ObjectState {
    let condition = |type_: &str, reason: &str, message: &str| Condition {
        type_: type_.to_owned(),
        status: "False".to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: Some(i64::MAX),
        last_transition_time: Time(Timestamp::from_nanosecond(1_764_384_253_123_456_789).unwrap()),
    };
    ObjectState {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        services: services.to_vec(),
        conditions: vec![condition("Applied", "Refused", message), condition("Conflicted", "NoConflict", "")],
    }
}

fn kind(states: Vec<ObjectState>) -> KindReport {
    let not_applied = u32::try_from(states.len()).unwrap();
    let first_problem = states.first().map(|state| state.conditions[0].message.clone()).unwrap_or_default();
    KindReport { applied: 0, not_applied, first_problem, states }
}

/// Bytes that go to the API server.
fn sent(report: &NodeReport) -> usize {
    serde_json::to_vec(&LmapNodeStatus::new(&"n".repeat(253), report.clone())).unwrap().len()
}

fn names(states: &[ObjectState]) -> Vec<&str> {
    states.iter().map(|state| state.name.as_str()).collect()
}

#[test]
fn the_longest_names_and_messages_that_there_can_be_fit_into_the_object() {
    let services: Vec<_> = (0..MAX_SERVICES).map(|number| format!("{number:0381}")).collect();
    // Each of these takes six bytes.
    let message = "\u{1}".repeat(4 * MAX_MESSAGE);
    let all = || {
        let states = (0..MAX_STATES).map(|number| state(&format!("{number:0253}"), &services, &message));
        kind(states.map(|state| ObjectState { namespace: "s".repeat(63), ..state }).collect())
    };

    let report = NodeReport::of(&all(), &all(), &all());

    assert!(sent(&report) <= MAX_OBJECT, "{} bytes", sent(&report));
    assert_eq!((report.not_applied, report.first_problem.len()), (768, MAX_PROBLEM));
    let named = report.lmaps.len();
    assert!((100..MAX_STATES).contains(&named), "{named} of each kind are named");
    assert_eq!([report.sampling_policies.len(), report.synopsis_policies.len()], [named, named]);
    assert_eq!(names(&report.lmaps), names(&all().states[..named]), "the first ones");
}

#[test]
fn usual_reports_are_told_in_full_and_of_many_objects_each_is_told_less() {
    let services: Vec<_> = (0..MAX_SERVICES).map(|number| format!("shop/payment-{number}")).collect();
    let message = "shop/payment-0: an interval of 1 µs is outside of lmap.fastest_ms".repeat(6);
    let all = |count| kind((0..count).map(|number| state(&format!("lmap-{number}"), &services, &message)).collect());

    let usual = all(40);
    let report = NodeReport::of(&usual, &all(40), &all(40));
    assert_eq!(report.lmaps, usual.states);

    let many = all(MAX_STATES);
    let report = NodeReport::of(&many, &all(MAX_STATES), &all(MAX_STATES));
    assert!(sent(&report) <= MAX_OBJECT, "{} bytes", sent(&report));
    assert_eq!(names(&report.lmaps), names(&many.states), "all are named");
    for state in report.lmaps.iter().chain(&report.synopsis_policies) {
        let [applied, conflicted] = &state.conditions[..] else { panic!("{state:?}") };
        assert_eq!((applied.reason.as_str(), conflicted.status.as_str()), ("Refused", "False"));
        assert!(state.services == services[..1] && applied.message == message[..64], "{state:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_report_is_larger_than_it_is_said_to_be(
        texts in prop::collection::vec((".{0,60}", prop::collection::vec(".{0,40}", 0..4), ".{0,300}"), 0..20),
        count in 0..MAX_STATES,
    ) {
        let states = texts.iter().cycle().take(if texts.is_empty() { 0 } else { count });
        let states: Vec<_> = states.map(|(name, services, message)| state(name, services, message)).collect();

        let report = NodeReport::of(&kind(states.clone()), &kind(states.clone()), &kind(states.clone()));

        prop_assert!(sent(&report) <= report.bytes() && report.bytes() <= MAX_OBJECT);
        for told in [&report.lmaps, &report.sampling_policies, &report.synopsis_policies] {
            prop_assert_eq!(names(told), names(&states[..told.len()]));
        }
    }
}
