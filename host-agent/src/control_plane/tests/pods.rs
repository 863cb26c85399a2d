//! Processes of pods.

use super::*;
use crate::control_plane::PodIdentity;

fn member(service: &str) -> PodIdentity {
    let (service, instance) = (ServiceName::new(service).unwrap(), InstanceName::new("payment-x2x7k").unwrap());
    PodIdentity::Member { service, instance }
}

/// Names of the replica that registers as `service` under `identity`, or why not.
fn registered(identity: &PodIdentity, service: &str) -> Result<(String, String), String> {
    let names = identity.names(ServiceName::new(service).unwrap(), InstanceName::new("one").unwrap());
    names.map(|(service, instance)| (service.to_string(), instance.to_string())).map_err(|error| error.to_string())
}

#[test]
fn a_process_of_a_pod_is_its_pods_workload_whatever_it_calls_itself() {
    let own = member("shop/payment");
    let named = Ok(("shop/payment".to_owned(), "payment-x2x7k".to_owned()));

    assert_eq!(registered(&own, "payment"), named);
    assert_eq!(registered(&own, "redis"), named);
    assert_eq!(registered(&own, "shop/payment"), named);
    let other = registered(&own, "bank/teller").unwrap_err();
    assert!(other.contains("bank/teller") && other.contains("of shop/payment"), "{other}");
}

#[test]
fn a_process_in_no_pod_has_any_name_without_a_namespace() {
    assert_eq!(registered(&PodIdentity::None, "redis"), Ok(("redis".to_owned(), "one".to_owned())));
    assert!(registered(&PodIdentity::None, "shop/payment").unwrap_err().contains("in no pod"));
    assert_eq!(registered(&PodIdentity::Unwatched, "a/b"), Ok(("a/b".to_owned(), "one".to_owned())));
    let unknown = PodIdentity::Refused("its pod is not known yet".to_owned());
    assert!(registered(&unknown, "payment").unwrap_err().contains("not known yet"));
}
