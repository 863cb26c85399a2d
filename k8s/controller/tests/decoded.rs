//! What an answer of the API server takes in memory once it is decoded: the factor that the budget has.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::DynamicObject;
use kube::core::{ObjectList, PartialObjectMeta};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Fields that a manager owns, as the API server writes them: many short keys with nothing in them.
fn fields(many: usize) -> Value {
    let owned: Map<_, _> = (0..many).map(|at| (format!("f:field-{at}"), json!({}))).collect();
    json!([{"apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": owned, "manager": "kubelet",
        "operation": "Update", "time": "2026-01-01T00:00:00Z"}])
}

/// Bytes that `text` takes as a list of `K`, per byte of it; most of them at a time.
fn factor<K: DeserializeOwned + Clone>(text: &str) -> f64 {
    let before = allocations::live();
    allocations::take_peak();
    let list: ObjectList<K> = serde_json::from_str(text).expect("the text is a list");
    assert!(!list.items.is_empty());
    (allocations::take_peak() - before) as f64 / text.len() as f64
}

#[test]
fn an_answer_takes_no_more_than_the_budget_says() {
    let object = |kind: &str, at: usize| {
        let metadata = json!({"name": format!("object-{at}"), "namespace": "shop", "resourceVersion": "7",
            "uid": format!("{at:032x}"), "labels": {"app": "cart"}, "managedFields": fields(60)});
        json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": {"containers": [{"name": "app",
            "image": "a", "env": [{"name": "A", "value": "b"}]}], "metrics": [{"name": "requests"}, {"name": "errors"}]}})
    };
    let text = |kind: &str| {
        let items: Vec<_> = (0..200).map(|at| object(kind, at)).collect();
        let metadata = json!({"resourceVersion": "7"});
        json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items}).to_string()
    };

    let factors = [
        factor::<DynamicObject>(&text("Lmap")),
        factor::<Pod>(&text("Pod")),
        factor::<PartialObjectMeta<Node>>(&text("PartialObjectMetadata")),
    ];

    let most = factors.into_iter().fold(0.0, f64::max);
    println!("{factors:?}");
    assert!(most <= controller::DECODED as f64, "{factors:?}");
    assert!(most >= controller::DECODED as f64 / 8.0, "the budget says too much: {factors:?}");
}
