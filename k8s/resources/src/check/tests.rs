use super::*;
use crate::manifests::definitions;

const LMAP: &str = "apiVersion: uview.dev/v1alpha1\nkind: Lmap\n";

fn found<const N: usize>(files: [(&str, &str); N]) -> Vec<String> {
    let files = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
    problems(&BTreeMap::from(files)).iter().map(ToString::to_string).collect()
}

fn of_spec(kind: &str, spec: &str) -> Vec<String> {
    let text = format!("apiVersion: uview.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: a}}\nspec:\n{spec}");
    found([("a.yaml", &text)])
}

#[test]
fn what_is_right_has_no_problem() {
    let spec = "  workload: {name: cart}\n  interval: 200ms\n  adaptive: off\n  detector: {rank: 3, percentile: 99.5}\n  \
                metrics: [{name: requests, aggregation: sum}, {name: e, derived: errors / requests, unit: '1'}]\n";
    assert_eq!(of_spec("Lmap", spec), [""; 0]);
    assert_eq!(of_spec("SamplingPolicy", "  workload: {name: cart}\n  share: 1\n  reasons: [error]\n"), [""; 0]);
    let packets = "  workload: {name: front}\n  interface: eth0\n  port: 443\n  interval: 5s\n  delay: Handshake\n  reordering: {}\n  \
                   heavyHitters: {by: Flow}\n  cardinality: {window: 1m}\n";
    assert_eq!(of_spec("SynopsisPolicy", packets), [""; 0]);
    assert_eq!(found([("empty.yaml", "# nothing\n")]), [""; 0]);
}

#[test]
fn all_that_is_wrong_in_a_file_is_told_with_its_lines() {
    let spec = "  workload: {name: cart}\n  intervall: 1s\n  detector:\n    rank: 0\n    score: best\n    stride: 1.5\n  \
                metrics:\n  - {name: x, every: often}\n  - {unit: s}\n";

    assert_eq!(
        of_spec("Lmap", spec),
        [
            "a.yaml:6: spec.intervall is no field that is known: is it misspelt?",
            "a.yaml:8: spec.detector.rank is 0: 1 is the least",
            "a.yaml:9: spec.detector.score is best: write one of scaled, absolute, relative",
            "a.yaml:10: spec.detector.stride is 1.5: it has to be of the type integer",
            "a.yaml:12: spec.metrics[0].every is \"often\": it has to be of the type integer",
            "a.yaml:13: spec.metrics[1].name is missing",
            "a.yaml:13: spec.metrics[1]: unit is for derived columns: metrics have the unit that they are registered with",
        ]
    );
}

#[test]
fn the_rules_of_the_definitions_hold_for_files() {
    let share = "a.yaml:4: spec: share must be above 0, up to 1, such as 0.1 for a tenth of the traces";
    assert_eq!(of_spec("SamplingPolicy", "  workload: {name: cart}\n  share: 0\n"), [share]);
    let spec = "  workload: {name: cart}\n  detector: {rank: 5, sketchRows: 5}\n";
    let rows = "a.yaml:6: spec.detector: sketchRows must be more than rank: the sketch has a row to spare";
    assert_eq!(of_spec("Lmap", spec), [rows]);
    let interval = "a.yaml:4: spec: interval must be from 1ms to 1h, such as 200ms";
    assert_eq!(of_spec("Lmap", "  workload: {name: cart}\n  interval: 2h\n"), [interval]);
    let two_ended =
        of_spec("SynopsisPolicy", "  workload: {name: front}\n  interface: eth0\n  oneWay: Rda\n  delay: Dns\n");
    assert!(
        two_ended.len() == 1 && two_ended[0].contains("need the same stream at both ends at once"),
        "{two_ended:?}"
    );
    let window =
        of_spec("SynopsisPolicy", "  workload: {name: front}\n  interface: eth0\n  cardinality: {window: 2h}\n");
    assert_eq!(window, ["a.yaml:7: spec.cardinality: window must be from 100ms to 1h, such as 1m"]);
}

#[test]
fn each_rule_of_the_definitions_has_its_twin_in_rust() {
    fn walk(schema: &Value, without: &mut Vec<String>) {
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            let cel = rule["rule"].as_str().unwrap();
            if rules::of_cel(cel).is_none_or(|twin| rule["message"] != twin.message) {
                without.push(cel.to_owned());
            }
        }
        match schema {
            Value::Object(fields) => {
                for field in fields.values() {
                    walk(field, without);
                }
            }
            Value::Array(items) => {
                for item in items {
                    walk(item, without);
                }
            }
            _ => {}
        }
    }
    let mut without = Vec::new();
    for definition in definitions().unwrap() {
        walk(&definition, &mut without);
    }
    assert_eq!(without, [""; 0]);
}

#[test]
fn two_objects_about_one_service_and_two_with_one_name_are_found_with_both_places() {
    let lmap = |name: &str, service: &str| {
        format!("{LMAP}metadata: {{name: {name}}}\nspec: {{workload: {{name: {service}}}, interval: 1s}}\n")
    };
    let first = format!("{}---\n{}", lmap("a", "cart"), lmap("b", "cart"));

    assert_eq!(
        found([("one.yaml", &first), ("two.yaml", &lmap("a", "other"))]),
        [
            "one.yaml:6: cart is set by Lmap a already (one.yaml:1): delete one of the two, or name another service",
            "two.yaml:1: there is Lmap a already (one.yaml:1): give one of the two another name",
        ]
    );
}

#[test]
fn what_only_pods_have_and_what_is_no_object_is_told() {
    let selector = of_spec("Lmap", "  selector: {matchLabels: {app: cart}}\n");
    let why = "selector is for pods, and this node has none: name the service in workload.name";
    assert_eq!(selector, [format!("a.yaml:1: Lmap a: {why}")]);
    assert_eq!(
        of_spec("Lmaps", "  workload: {name: a}\n"),
        ["a.yaml:1: kind is Lmaps: write Lmap, SamplingPolicy or SynopsisPolicy"]
    );
    let broken = found([("a.yaml", "a: [1\n")]);
    assert!(broken.len() == 1 && broken[0].starts_with("a.yaml:"), "{broken:?}");
}

#[test]
fn the_examples_are_right() {
    let file = include_str!("../../../examples/resources/packets.yaml");
    assert_eq!(found([("packets.yaml", file)]), [""; 0]);

    // Those of a cluster have a namespace and pods: only the schema and its rules are about them.
    for document in read(include_str!("../../../examples/synopsis-policy.yaml")).unwrap() {
        let mut wrong = Vec::new();
        check(&schema_of(document["kind"].as_str().unwrap()).unwrap(), &document["spec"], "spec", &mut wrong);
        assert_eq!(wrong, []);
        assert!(serde_json::from_value::<crate::SynopsisPolicySpec>(document["spec"].clone()).is_ok());
    }
}
