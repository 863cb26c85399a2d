//! `PodMonitor`s (monitoring.coreos.com): which pods of their own namespace are scraped, by port name. Pods of other
//! namespaces are not selected, whatever a namespace selector says.

use std::collections::BTreeMap;

use crate::names::short;
use crate::pod::Pod;
use crate::scraping::{Endpoint, is_path};

/// Most endpoints, and most conditions, of one object.
const MAX: usize = 16;

/// A `PodMonitor`, as far as it is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// The namespace that it is in, and selects in.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    labels: BTreeMap<String, String>,
    expressions: Vec<Expression>,
    endpoints: Vec<Port>,
    /// What of it is not done, for the log.
    pub left_out: Vec<&'static str>,
}

/// A port with its path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Port {
    name: String,
    path: String,
    is_https: bool,
}

/// A condition about the label `key`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Expression {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// What is read of a `PodMonitor`. Keys that are not listed are ignored, as the API server checks the object.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MonitorSpec {
    selector: Selector,
    namespace_selector: NamespaceSelector,
    pod_metrics_endpoints: Vec<MonitorEndpoint>,
}

#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Selector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<SelectorExpression>,
}

#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default)]
struct SelectorExpression {
    key: String,
    operator: String,
    values: Vec<String>,
}

#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NamespaceSelector {
    any: bool,
    match_names: Vec<String>,
}

#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default)]
struct MonitorEndpoint {
    port: Option<String>,
    path: Option<String>,
    scheme: Option<String>,
}

impl Monitor {
    /// The `PodMonitor` called `name`. `None` if none of its endpoints can be scraped, or if it selects by a condition
    /// that is not understood: to select more than it says would be wrong.
    #[must_use]
    pub fn new(namespace: &str, name: &str, spec: &MonitorSpec) -> Option<Self> {
        let mut left_out = Vec::new();
        let elsewhere = &spec.namespace_selector;
        if elsewhere.any || elsewhere.match_names.iter().any(|other| other != namespace) {
            left_out.push("namespaceSelector: pods of its own namespace only");
        }
        if spec.pod_metrics_endpoints.iter().any(|endpoint| endpoint.port.is_none()) {
            left_out.push("podMetricsEndpoints: endpoints with the name of a port only");
        }
        let endpoints: Vec<_> = spec.pod_metrics_endpoints.iter().filter_map(Port::new).take(MAX).collect();
        let expressions = &spec.selector.match_expressions;
        let expressions: Option<Vec<_>> = expressions.iter().map(Expression::new).collect();
        let expressions = expressions.filter(|all| all.len() <= MAX && spec.selector.match_labels.len() <= MAX)?;
        let labels = spec.selector.match_labels.iter().map(|(key, value)| (short(key), short(value))).collect();
        let (namespace, name) = (short(namespace), short(name));
        Some(Self { namespace, name, labels, expressions, endpoints, left_out }).filter(|it| !it.endpoints.is_empty())
    }

    /// Whether it selects `pod`.
    #[must_use]
    pub fn selects(&self, pod: &Pod) -> bool {
        let value = |key: &str| pod.label(key);
        self.namespace == pod.namespace
            && self.labels.iter().all(|(key, wanted)| value(key) == Some(wanted))
            && self.expressions.iter().all(|condition| condition.holds(value(&condition.key)))
    }

    /// Endpoints of `pod`, if it selects it: ports that have one of the names. None on the network of the node.
    pub fn endpoints(&self, pod: &Pod) -> impl Iterator<Item = Endpoint> {
        let is_selected = !pod.has_host_network && self.selects(pod);
        let ports = self.endpoints.iter().filter(move |_| is_selected);
        ports.filter_map(|wanted| {
            let (_, port) = pod.ports.iter().find(|(name, _)| *name == wanted.name)?;
            pod.endpoint(*port, &wanted.path, wanted.is_https)
        })
    }
}

impl Port {
    fn new(endpoint: &MonitorEndpoint) -> Option<Self> {
        let path = endpoint.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/metrics");
        let scheme = endpoint.scheme.as_deref().unwrap_or("http").to_ascii_lowercase();
        let is_known = is_path(path) && ["http", "https"].contains(&scheme.as_str());
        let name = short(endpoint.port.as_deref().filter(|_| is_known)?);
        Some(Self { name, path: short(path), is_https: scheme == "https" })
    }
}

impl Expression {
    fn new(said: &SelectorExpression) -> Option<Self> {
        let operator = match said.operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            _ => return None,
        };
        let values: Vec<_> = said.values.iter().take(MAX).map(|value| short(value)).collect();
        Some(Self { key: short(&said.key), operator, values }).filter(|_| said.values.len() <= MAX)
    }

    fn holds(&self, value: Option<&str>) -> bool {
        let is_listed = value.is_some_and(|value| self.values.iter().any(|listed| listed == value));
        match self.operator {
            Operator::In => is_listed,
            Operator::NotIn => !is_listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::pod;

    fn monitor(spec: Value) -> Option<Monitor> {
        Monitor::new("shop", "all", &serde_json::from_value(spec).unwrap())
    }

    fn labelled(labels: &[(&str, &str)]) -> Pod {
        let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        let labels = labels.concat().into();
        let ports = vec![("web".to_owned(), 80), ("metrics".to_owned(), 9102)];
        Pod { labels, ports, addresses: vec!["10.1.0.7".parse().unwrap()], ..pod(1) }
    }

    #[test]
    fn pods_are_selected_by_labels_and_conditions_of_their_own_namespace() {
        let endpoints = json!([{"port": "metrics"}]);
        let selects = |selector: Value, pod: &Pod| {
            let spec =
                json!({"selector": selector, "podMetricsEndpoints": endpoints, "namespaceSelector": {"any": true}});
            monitor(spec).unwrap().selects(pod)
        };
        let app = labelled(&[("app", "payment"), ("tier", "back")]);

        assert!(selects(json!({}), &app));
        assert!(selects(json!({"matchLabels": {"app": "payment"}}), &app));
        assert!(!selects(json!({"matchLabels": {"app": "payment", "tier": "front"}}), &app));
        for (operator, values, expected) in [
            ("In", json!(["back", "x"]), true),
            ("NotIn", json!(["back"]), false),
            ("Exists", json!([]), true),
            ("DoesNotExist", json!([]), false),
        ] {
            let said = json!({"matchExpressions": [{"key": "tier", "operator": operator, "values": values}]});
            assert_eq!(selects(said, &app), expected, "{operator}");
        }
        assert!(!selects(json!({}), &Pod { namespace: "bank".to_owned(), ..app }), "another namespace");
    }

    #[test]
    fn endpoints_are_ports_by_name() {
        let monitor = monitor(json!({"podMetricsEndpoints": [
            {"port": "metrics", "path": "/stats", "scheme": "HTTPS"}, {"port": "nowhere"}, {"targetPort": 80},
        ]}));
        let monitor = monitor.unwrap();
        let app = labelled(&[]);
        let urls = |pod: &Pod| monitor.endpoints(pod).map(|endpoint| endpoint.url).collect::<Vec<_>>();

        assert_eq!(urls(&app), ["https://10.1.0.7:9102/stats"]);
        assert_eq!(monitor.left_out, ["podMetricsEndpoints: endpoints with the name of a port only"]);
        assert!(urls(&Pod { has_host_network: true, ..app }).is_empty());
    }

    #[test]
    fn what_is_not_understood_selects_nothing() {
        let unknown = json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]});
        let endpoints = json!([{"port": "metrics"}]);
        assert_eq!(monitor(json!({"selector": unknown, "podMetricsEndpoints": endpoints})), None);
        assert_eq!(monitor(json!({})), None, "no endpoint");
        for wrong in [json!({"path": "stats"}), json!({"scheme": "gopher"})] {
            let mut endpoint = wrong;
            endpoint["port"] = json!("metrics");
            assert_eq!(monitor(json!({"podMetricsEndpoints": [endpoint]})), None);
        }
    }
}
