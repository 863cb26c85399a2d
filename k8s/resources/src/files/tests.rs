use serde_json::json;

use super::*;
use crate::{plan, sampling_plan};

const HEAD: &str = "apiVersion: uview.dev/v1alpha1\n";

fn refused(text: &str) -> String {
    parse("a.yaml", text).unwrap_err().to_string()
}

/// A file with one Lmap about one service.
fn lmap(name: &str, service: &str, interval: &str) -> FileObjects {
    let text = format!(
        "{HEAD}kind: Lmap\nmetadata: {{name: {name}}}\nspec: {{workload: {{name: {service}}}, interval: {interval}}}\n"
    );
    parse("one.yaml", &text).unwrap()
}

fn files<const N: usize>(files: [(&str, FileObjects); N]) -> BTreeMap<String, FileObjects> {
    files.into_iter().map(|(name, objects)| (name.to_owned(), objects)).collect()
}

#[test]
fn a_file_has_objects_of_both_kinds_and_they_are_about_services() {
    let text = format!(
        "# Two documents.\n---\n{HEAD}kind: Lmap\nmetadata: {{name: fast, labels: {{a: b}}}}\nspec:\n  \
         workload: {{name: checkout}}\n  interval: 200ms\n  metrics: []\n---\n{HEAD}kind: SamplingPolicy\n\
         metadata: {{name: quiet}}\nspec: {{workload: {{name: checkout}}, share: 0.1, reasons: [error]}}\n"
    );

    let all = merge(&files([("a.yaml", parse("a.yaml", &text).unwrap())]));

    let (lmaps, policies) = (plan::of_services(&all.lmaps), sampling_plan::of_services(&all.policies));
    assert_eq!(all.errors, []);
    let settings = &lmaps.wanted["checkout"];
    assert_eq!((settings.by.as_str(), settings.interval), ("Lmap fast", Some(200_000)));
    let sampling = &policies.wanted["checkout"];
    assert_eq!((sampling.by.as_str(), sampling.share), ("SamplingPolicy quiet", Some(0.1)));
}

#[test]
fn words_that_were_booleans_once_are_words() {
    let text = format!(
        "{HEAD}kind: Lmap\nmetadata: {{name: on}}\nspec:\n  workload: {{name: y}}\n  interval: 1s\n  adaptive: off\n"
    );
    let all = merge(&files([("a.yaml", parse("a.yaml", &text).unwrap())]));

    let planned = plan::of_services(&all.lmaps);
    assert_eq!(planned.wanted["y"].by, "Lmap on");
    assert_eq!(planned.wanted["y"].adaptive, Some(plan::Adaptive::Off));
}

#[test]
fn several_services_have_one_lmap_over_all_of_them() {
    let text = format!(
        "{HEAD}kind: Lmap\nmetadata: {{name: flow}}\nspec:\n  together: [{{workload: {{name: a}}}}, {{workload: {{name: b}}}}]"
    );
    let all = merge(&files([("a.yaml", parse("a.yaml", &text).unwrap())]));

    let plan = plan::of_services(&all.lmaps);

    let members: Vec<_> = plan.wanted["lmap:flow"].members.keys().map(String::as_str).collect();
    assert_eq!(members, ["a", "b"]);
}

#[test]
fn of_two_about_one_service_the_one_of_the_first_file_has_the_say() {
    let all = merge(&files([("2.yaml", lmap("a", "checkout", "2s")), ("1.yaml", lmap("z", "checkout", "1s"))]));

    let plan = plan::of_services(&all.lmaps);

    assert_eq!(plan.wanted["checkout"].by, "Lmap z");
    assert_eq!(plan.selected[0].conflicts["checkout"], (String::new(), "z".to_owned()));
}

#[test]
fn what_is_misspelt_or_of_another_kind_is_refused_with_file_and_document() {
    let with = |kind: &str, metadata: &str, spec: &str| {
        refused(&format!("{HEAD}kind: {kind}\nmetadata: {metadata}\nspec: {spec}\n"))
    };

    assert!(refused("a: [b").starts_with("a.yaml: "), "{}", refused("a: [b"));
    let misspelt = with("Lmap", "{name: a}", "{workload: {name: a}, intervall: 1s}");
    assert_eq!(misspelt, "a.yaml, document 1: spec.intervall is no field that is known: is it misspelt?");
    let inner = with("Lmap", "{name: a}", "{workload: {name: a}, metrics: [{name: x}, {name: y, agregation: max}]}");
    assert!(inner.contains("spec.metrics[1].agregation is no field"), "{inner}");
    assert!(with("Lmap", "{name: a}", "{workload: {name: a}, interval: 5}").contains("spec: invalid type"));
    assert!(with("Policy", "{name: a}", "{}").contains("kind is Policy: write Lmap, SamplingPolicy or SynopsisPolicy"));
    let window = with("SynopsisPolicy", "{name: a}", "{workload: {name: a}, cardinality: {windw: 1m}}");
    assert!(window.contains("spec.cardinality.windw is no field"), "{window}");
    assert!(with("Lmap", "{name: a, namespace: shop}", "{}").contains("metadata.namespace is shop"));
    assert!(with("Lmap", "{name: ''}", "{}").contains("metadata.name must have"));
    let version = refused("apiVersion: v1\nkind: Lmap\nmetadata: {name: a}\nspec: {}\n");
    assert!(version.contains("apiVersion is v1: write uview.dev/v1alpha1"), "{version}");
}

#[test]
fn what_only_pods_have_is_told() {
    let invalid = |spec: Value| {
        let text = json!({"apiVersion": "uview.dev/v1alpha1", "kind": "Lmap", "metadata": {"name": "a"}, "spec": spec});
        let all = merge(&files([("a.yaml", parse("a.yaml", &text.to_string()).unwrap())]));
        plan::of_services(&all.lmaps).selected[0].invalid.clone().unwrap()
    };

    assert!(invalid(json!({"selector": {"matchLabels": {"app": "a"}}})).contains("selector is for pods"));
    assert!(invalid(json!({"workload": {"name": "a", "kind": "Job"}})).contains("workload.kind is Job"));
    assert!(invalid(json!({"workload": {"name": "a", "container": "b"}})).contains("workload.container is b"));
    assert!(invalid(json!({})).contains("name the service in workload.name"));
    assert!(invalid(json!({"workload": {"name": "a"}, "together": [{"workload": {"name": "b"}}]})).contains("either"));
}

#[test]
fn names_are_there_once_and_their_number_is_bounded() {
    let mut many = files([("1.yaml", lmap("same", "a", "1s")), ("2.yaml", lmap("same", "b", "1s"))]);
    let all = merge(&many);
    let twice = "2.yaml: there is Lmap same already: give one of the two another name";
    assert_eq!(all.errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [twice]);
    assert_eq!(all.lmaps.len(), 1);

    for number in 0..MAX_FILE_OBJECTS {
        many.insert(format!("3-{number}.yaml"), lmap(&format!("of-{number}"), "c", "1s"));
    }
    let all = merge(&many);
    assert_eq!((all.lmaps.len(), all.errors.len()), (MAX_FILE_OBJECTS, 2));
    assert!(all.errors[1].to_string().contains("256 objects of all files are the most"));
}
