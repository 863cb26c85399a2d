//! A model that is trained on what a running service does, given to its agent, and taken back.

use lmap::Model;

use crate::operator_calls::{RunningService, trained};
use crate::restarts::Host;

#[test]
fn a_model_of_recorded_rows_judges_the_running_service_until_it_is_taken_back() {
    let mut host = Host::with("models_every_s: 1");
    let _nic = host.nic_agent(0);
    let _service = RunningService::start("shop", &host.services);
    let before = host.operators.armed("shop");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (rows, model, slow) = (path("rows"), path("shop.model"), path("slow.model"));

    let (code, text) = host.uview(&["record", "shop", "--for-s", "6", "--out", &rows]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = host.uview(&["train", &path("rows/shop.uvrec"), "--out", &model]);
    let applies = format!("`uview model set shop {model}` lets a running agent judge by it");
    assert!(code == Some(0) && text.contains(&applies), "{code:?}: {text}");
    let trained_model = Model::decode(&std::fs::read(&model).unwrap()).unwrap();
    assert_eq!(trained_model.interval_ms(), Some(20));

    let (code, text) = host.uview(&["model", "set", "shop", &model]);
    assert!(code == Some(0) && text.contains("shop: judged by this model from its next row on"), "{code:?}: {text}");
    let given = host.operators.when("shop", "judged by the model", |lmap| {
        lmap.judges() && lmap.gamma == trained_model.gamma() && lmap.unwatched == 0
    });
    assert!(given.samples > before.samples, "it went on: {before:?} {given:?}");
    assert!(!given.model_by.is_empty() && !given.model_unused, "{given:?}");
    let (_, text) = host.uview(&["lmap", "shop"]);
    assert!(text.contains("shop: judged by a model that "), "{text}");

    // What does not fit changes nothing.
    let of_a_second = Model::decode(&trained().0).unwrap().of_rows_every(1.0);
    std::fs::write(&slow, of_a_second.encode()).unwrap();
    let (code, text) = host.uview(&["model", "set", "shop", &slow]);
    assert!(code == Some(1) && text.contains("of rows every 1s, and shop has one every 20ms"), "{code:?}: {text}");
    let same = host.operators.when("shop", "judged as before", |lmap| lmap.samples > given.samples);
    assert_eq!((same.gamma, &same.model_by), (given.gamma, &given.model_by));

    let (code, text) = host.uview(&["model", "unset", "shop"]);
    assert!(code == Some(0) && text.contains("shop: learns by itself again"), "{code:?}: {text}");
    let back = host.operators.when("shop", "judged by what it had learnt", |lmap| {
        lmap.judges() && lmap.model_by.is_empty() && lmap.gamma != given.gamma
    });
    assert!(back.samples > same.samples, "{same:?} {back:?}");
}
