//! Objects and pods for tests.

use pods::Pod;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::plan::{Declared, SpecError};

/// A pod of the Deployment `workload`, with these containers.
pub(crate) fn pod(namespace: &str, workload: &str, number: u64, containers: &[&str]) -> Pod {
    let status = |(at, name): (usize, &&str)| {
        json!({"name": name, "containerID": format!("containerd://{number:032x}{at:032x}"), "image": "", "imageID": "",
            "ready": true, "restartCount": 0})
    };
    let statuses: Vec<Value> = containers.iter().enumerate().map(status).collect();
    let object = json!({
        "metadata": {
            "name": format!("{workload}-abc-{number}"), "namespace": namespace, "uid": format!("{number:032x}"),
            "labels": {"app": workload, "pod-template-hash": "abc"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{workload}-abc"),
                "uid": "1", "controller": true}],
        },
        "spec": {"containers": containers.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()},
        "status": {"containerStatuses": statuses},
    });
    Pod::new(&serde_json::from_value(object).unwrap()).unwrap()
}

/// An `Lmap` that is `created` so many seconds after 1970.
pub(crate) fn lmap(namespace: &str, name: &str, created: i64, spec: Value) -> Declared {
    declared(namespace, name, created, spec)
}

/// An object of any kind that is `created` so many seconds after 1970.
pub(crate) fn declared<S: DeserializeOwned>(namespace: &str, name: &str, created: i64, spec: Value) -> Declared<S> {
    Declared {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        created,
        generation: 1,
        spec: serde_json::from_value(spec).map_err(|error| SpecError { kind: "Lmap", cause: error.to_string() }),
    }
}

/// Sets the interval of one workload.
pub(crate) fn of_workload(workload: &str, interval: &str) -> Value {
    json!({"workload": {"name": workload}, "interval": interval})
}
