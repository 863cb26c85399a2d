//! Events of `events.k8s.io/v1` about transitions. Pure: the time comes as an argument.
//!
//! The name of an event says object, generation and reason. So the API server itself refuses a second one, whichever
//! replica makes it, as long as it keeps the first one: an hour by default.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Resource as _;
use resources::aggregate::{Notice, ObjectKind, StatusWrite};
use resources::{Lmap, SamplingPolicy, SynopsisPolicy};
use serde_json::{Value, json};

/// Who reports, for people.
const REPORTER: &str = "uview.dev/controller";
/// Most bytes of the object's name in the name of an event, which may have 253.
const MAX_NAME: usize = 180;

/// The event that tells `notice` about the object of `write`.
pub(crate) fn event(write: &StatusWrite, notice: &Notice, instance: &str, now: &MicroTime) -> Value {
    let (namespace, name) = &write.key;
    let (api_version, kind) = match write.kind {
        ObjectKind::Lmap => (Lmap::api_version(&()), Lmap::kind(&())),
        ObjectKind::SamplingPolicy => (SamplingPolicy::api_version(&()), SamplingPolicy::kind(&())),
        ObjectKind::SynopsisPolicy => (SynopsisPolicy::api_version(&()), SynopsisPolicy::kind(&())),
    };
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": event_name(write, notice), "namespace": namespace},
        "eventTime": now,
        "reportingController": REPORTER,
        "reportingInstance": instance,
        "action": "Reconcile",
        "type": if notice.is_warning { "Warning" } else { "Normal" },
        "reason": notice.reason,
        "note": notice.note,
        "regarding": {
            "apiVersion": api_version,
            "kind": kind,
            "namespace": namespace,
            "name": name,
            "uid": write.uid,
            "resourceVersion": write.resource_version,
        },
    })
}

/// A name that is the same for the same transition of the same object: names of Kubernetes are ASCII.
fn event_name(write: &StatusWrite, notice: &Notice) -> String {
    let name = write.key.1.get(..MAX_NAME).unwrap_or(&write.key.1).trim_end_matches(['-', '.']);
    let uid: String = write.uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    format!("{name}.{uid}-{}-{}", write.status.observed_generation, notice.reason.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use resources::ObjectStatus;

    use super::*;

    #[test]
    fn an_event_reads_as_the_api_has_it_and_its_name_is_that_of_the_transition() {
        let write = |generation, name: &str| StatusWrite {
            kind: ObjectKind::Lmap,
            key: ("shop".to_owned(), name.to_owned()),
            uid: "0b5c5b7e-6f0f".to_owned(),
            resource_version: "7".to_owned(),
            status: ObjectStatus { observed_generation: generation, ..ObjectStatus::default() },
            notices: Vec::new(),
        };
        let notice = |reason: &str| Notice { is_warning: true, reason: reason.to_owned(), note: "why".to_owned() };
        let now = MicroTime(Timestamp::from_second(0).unwrap());
        let made = event(&write(3, "fast"), &notice("PartlyApplied"), "uview-controller-0", &now);

        let read: k8s_openapi::api::events::v1::Event = serde_json::from_value(made.clone()).unwrap();
        assert_eq!(read.metadata.name.as_deref(), Some("fast.0b5c5b7e-3-partlyapplied"));
        assert_eq!((read.type_.as_deref(), read.note.as_deref()), (Some("Warning"), Some("why")));
        assert_eq!(made["eventTime"], "1970-01-01T00:00:00.000000Z");
        assert_eq!(made["regarding"]["apiVersion"], "uview.dev/v1alpha1");
        let name = |generation, name: &str, reason| event_name(&write(generation, name), &notice(reason));
        assert_ne!(name(3, "fast", "Refused"), name(4, "fast", "Refused"));
        assert_ne!(name(3, "fast", "Refused"), name(3, "fast", "Applied"));
        let long = name(3, &"a.".repeat(126), "ConflictResolved");
        assert!(long.len() <= 253 && !long.contains(".."), "{long}");
    }
}
