//! What the definitions of custom resources refuse, with what to do, and what they fill in.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::kit::Cluster;
use super::steps::Steps;

/// Objects that are refused: kind, spec, and what is said. A test finds a rule of the definitions that none breaks.
const REFUSED: [(&str, &str, &str); 27] = [
    (
        "Lmap",
        "{interval: 1s}",
        "set exactly one of workload (one workload), selector (pods by their labels) and together",
    ),
    (
        "Lmap",
        "{together: [{workload: {name: a}}, {workload: {name: b}}], metrics: [{name: x}]}",
        "name the metrics of each workload beside it",
    ),
    ("Lmap", "{together: [{workload: {name: a}}]}", "should have at least 2 items"),
    ("Lmap", "{workload: {name: a}, interval: 61m}", "interval must be from 1ms to 1h"),
    ("Lmap", "{workload: {name: a}, adaptive: 'on'}", "adaptive must be off, or from 1ms to 1h"),
    ("Lmap", "{selector: {matchExpressions: [{key: app, operator: In}]}}", "In and NotIn need values"),
    (
        "Lmap",
        "{workload: {name: a}, metrics: [{name: x, derived: a / b, aggregation: max}]}",
        "a derived column has no aggregation",
    ),
    ("Lmap", "{workload: {name: a}, metrics: [{name: x, unit: s}]}", "unit is for derived columns"),
    ("Lmap", "{workload: {name: a}, detector: {rank: 4, sketchRows: 4}}", "sketchRows must be more than rank"),
    ("Lmap", "{workload: {name: a}, detector: {rowsKept: 119}}", "rowsKept must be 0, or 120 to 10000"),
    ("Lmap", "{workload: {name: a}, detector: {percentile: 0}}", "percentile must be above 0"),
    ("Lmap", "{workload: {name: a}, detector: {rank: 0}}", "should be greater than or equal to 1"),
    ("SamplingPolicy", "{share: 0.1}", "set exactly one of workload (one workload) and selector"),
    ("SamplingPolicy", "{workload: {name: a, container: b}, share: 0.1}", "spans are of the whole pod"),
    ("SamplingPolicy", "{workload: {name: a}}", "set share, reasons, or both"),
    ("SamplingPolicy", "{workload: {name: a}, share: 0}", "share must be above 0"),
    ("SamplingPolicy", "{workload: {name: a}, share: 1.5}", "should be less than or equal to 1"),
    ("SamplingPolicy", "{workload: {name: a}, reasons: [error, error]}", "name each of the reasons once"),
    ("SamplingPolicy", "{workload: {name: a}, reasons: [slow]}", "Unsupported value"),
    (
        "SamplingPolicy",
        "{selector: {matchExpressions: [{key: app, operator: In}]}, share: 0.1}",
        "In and NotIn need values",
    ),
    (
        "SynopsisPolicy",
        "{selector: {matchExpressions: [{key: app, operator: Exists, values: [a]}]}, delay: Dns}",
        "In and NotIn need values",
    ),
    ("SynopsisPolicy", "{delay: Dns}", "set exactly one of workload (one workload) and selector"),
    ("SynopsisPolicy", "{workload: {name: a, container: b}, delay: Dns}", "packets are of the whole pod"),
    ("SynopsisPolicy", "{workload: {name: a}, delay: Dns, oneWay: Rda}", "the same stream at both ends at once"),
    ("SynopsisPolicy", "{workload: {name: a}}", "set at least one of delay, reordering"),
    ("SynopsisPolicy", "{workload: {name: a}, delay: Dns, interval: 61s}", "interval must be from 100ms to 1m"),
    ("SynopsisPolicy", "{workload: {name: a}, cardinality: {window: 2h}}", "window must be from 100ms to 1h"),
];
/// What a policy says that says little, and what it has then.
const FILLED: &str = "{workload: {name: gateway}, heavyHitters: {}}";
const DEFAULTS: [(&str, &str); 4] = [
    ("/spec/workload/kind", "Deployment"),
    ("/spec/direction", "Received"),
    ("/spec/heavyHitters/by", "Source"),
    ("/spec/heavyHitters/weight", "Bytes"),
];

/// Each object that makes no sense is refused with its message, and defaults are filled in. The definitions are
/// installed.
///
/// # Errors
///
/// One is taken, or refused in other words.
pub fn check(cluster: &Cluster, steps: &mut Steps) -> Result<()> {
    steps.run("objects that make no sense: each is refused with what to do; defaults are filled in", || {
        let all = REFUSED.iter().enumerate();
        let manifest: String =
            all.map(|(number, (kind, spec, _))| object(kind, &format!("bad-{number}"), spec)).collect();
        let file = cluster.file("refused.yaml", manifest.as_bytes())?;
        // What is taken all the same ends with it, and fails below.
        let said = cluster.sh(&format!("kubectl create --dry-run=server --validate=false -f {file} 2>&1 || true"))?;
        for (number, (kind, spec, message)) in REFUSED.iter().enumerate() {
            let about = about(&said, &format!("bad-{number}"));
            ensure!(
                about.contains(message),
                "{kind} {spec} is not refused with {message:?}, but {about:?}; all: {said}"
            );
        }
        println!("{} objects are refused, each with its message", REFUSED.len());
        let file = cluster.file("defaults.yaml", object("SynopsisPolicy", "filled", FILLED).as_bytes())?;
        let filled = cluster.sh(&format!("kubectl create --dry-run=server --validate=false -o json -f {file}"))?;
        let filled: Value = serde_json::from_str(&filled).with_context(|| filled.clone())?;
        for (path, value) in DEFAULTS {
            ensure!(filled.pointer(path).is_some_and(|there| there == value), "{path} is not {value}: {filled}");
        }
        Ok(())
    })
}

fn object(kind: &str, name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: uview.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}, namespace: shop}}\nspec: {spec}\n"
    )
}

/// What is said behind the name of an object, up to the next name.
fn about(said: &str, name: &str) -> String {
    let quoted = format!("\"{name}\"");
    let parts = said.split(&quoted).skip(1);
    parts.map(|part| part.split("\"bad-").next().unwrap_or_default()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use support::workspace;

    use super::*;

    /// The rules of a schema, with what they say.
    fn messages(schema: &Value, into: &mut Vec<String>) {
        match schema {
            Value::Object(fields) => {
                let rules = fields.get("x-kubernetes-validations").and_then(Value::as_array);
                let said = rules.into_iter().flatten().filter_map(|rule| rule["message"].as_str());
                into.extend(said.map(str::to_owned));
                fields.values().for_each(|inner| messages(inner, into));
            }
            Value::Array(items) => items.iter().for_each(|inner| messages(inner, into)),
            _ => {}
        }
    }

    #[test]
    fn each_rule_of_a_definition_is_broken_by_an_object_of_its_kind() {
        let text = std::fs::read_to_string(workspace().join("k8s/chart-crds/files/crds.yaml")).unwrap();
        let mut rules = 0;
        for definition in text.split("\n---\n") {
            let definition: Value = serde_saphyr::from_str(definition).unwrap();
            let kind = definition["spec"]["names"]["kind"].as_str().unwrap();
            let mut all = Vec::new();
            messages(&definition["spec"]["versions"][0]["schema"], &mut all);
            for message in all {
                rules += 1;
                let broken = REFUSED.iter().any(|(of, _, said)| *of == kind && message.contains(said));
                assert!(broken, "no {kind} breaks the rule: {message}");
            }
        }
        assert!(rules >= 20, "{rules}");
    }

    #[test]
    fn what_is_said_of_an_object_is_what_follows_its_name() {
        let said =
            "Error: Lmap.uview.dev \"bad-1\" is invalid: spec: one\nError: Lmap.uview.dev \"bad-12\" is invalid: two\n";

        assert_eq!(about(said, "bad-1"), " is invalid: spec: one\nError: Lmap.uview.dev ");
        assert!(about(said, "bad-12").contains("two") && about(said, "bad-2").is_empty());
    }
}
