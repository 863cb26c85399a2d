//! What the API consists of, as OpenAPI. The API server merges version 2 into its own document; it hands on version 3,
//! of which kubectl asks for one document by group version. Both are made of the same parts, once.

use core::hash::{Hash as _, Hasher as _};
use std::hash::DefaultHasher;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde_json::{Map, Value, json};

use crate::metrics_api::{GROUP, VERSIONS};
use crate::objects::Kind;
use crate::scores::Metric;

/// The only form in which documents are served.
const JSON: &str = "application/json";

/// Which of the two the document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    /// OpenAPI 2.0, known as Swagger.
    Two,
    /// OpenAPI 3.0, by group version.
    Three,
}

/// A document, and what names its content.
#[derive(Clone, Debug)]
struct Document {
    body: Bytes,
    tag: String,
}

impl Document {
    fn new(content: &Value) -> Self {
        let body = Bytes::from(content.to_string());
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        Self { body, tag: format!("{:016X}", hasher.finish()) }
    }

    /// The answer to a request with `headers`.
    fn answer(&self, headers: &HeaderMap) -> Response {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let is_wanted = |kind: &str| {
            let kind = kind.split(';').next().unwrap_or_default().trim();
            [JSON, "application/*", "*/*"].contains(&kind)
        };
        if text(header::ACCEPT).is_some_and(|kinds| !kinds.split(',').any(is_wanted)) {
            return (StatusCode::NOT_ACCEPTABLE, format!("only {JSON} is served\n")).into_response();
        }
        let tag = format!("\"{}\"", self.tag);
        if text(header::IF_NONE_MATCH).is_some_and(|known| known.split(',').any(|known| known.trim() == tag)) {
            return (StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response();
        }
        ([(header::CONTENT_TYPE, JSON.to_owned()), (header::ETAG, tag)], self.body.clone()).into_response()
    }
}

/// All documents that are served.
struct Documents {
    two: Document,
    root: Document,
    three: [(&'static str, Document); VERSIONS.len()],
}

/// The routes of the documents.
pub(crate) fn router() -> Router {
    let three = VERSIONS.map(|version| (version, Document::new(&document(Dialect::Three, &[version]))));
    let two = Document::new(&document(Dialect::Two, &VERSIONS));
    let root = Document::new(&root(&three));
    let of_version = async |State(all): State<Arc<Documents>>, Path(version): Path<String>, headers: HeaderMap| {
        let found = all.three.iter().find(|(name, _)| *name == version);
        found.map_or_else(|| StatusCode::NOT_FOUND.into_response(), |(_, document)| document.answer(&headers))
    };
    Router::new()
        .route(
            "/openapi/v2",
            get(async |State(all): State<Arc<Documents>>, headers: HeaderMap| all.two.answer(&headers)),
        )
        .route(
            "/openapi/v3",
            get(async |State(all): State<Arc<Documents>>, headers: HeaderMap| all.root.answer(&headers)),
        )
        .route("/openapi/v3/apis/custom.metrics.k8s.io/{version}", get(of_version))
        .with_state(Arc::new(Documents { two, root, three }))
}

/// Which documents of version 3 there are.
fn root(three: &[(&'static str, Document)]) -> Value {
    let path = |(version, document): &(&'static str, Document)| {
        let path = format!("apis/{GROUP}/{version}");
        let url = json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={}", document.tag)});
        (path, url)
    };
    json!({"paths": three.iter().map(path).collect::<Map<_, _>>()})
}

/// The document of some versions.
fn document(dialect: Dialect, versions: &[&str]) -> Value {
    let info = json!({"title": "uview: custom metrics", "version": env!("CARGO_PKG_VERSION")});
    let paths: Map<_, _> = versions.iter().flat_map(|version| paths(dialect, version)).collect();
    let schemas: Map<_, _> = versions.iter().flat_map(|version| schemas(dialect, version)).collect();
    match dialect {
        Dialect::Two => json!({"swagger": "2.0", "info": info, "paths": paths, "definitions": schemas}),
        Dialect::Three => {
            json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}})
        }
    }
}

/// The name of a schema, as Kubernetes has it.
fn schema_name(version: &str, kind: &str) -> String {
    format!("io.k8s.metrics.pkg.apis.custom_metrics.{version}.{kind}")
}

fn reference(dialect: Dialect, name: &str) -> Value {
    let folder = match dialect {
        Dialect::Two => "definitions",
        Dialect::Three => "components/schemas",
    };
    json!({"$ref": format!("#/{folder}/{name}")})
}

/// The two paths of a version: one says which metrics there are, one has values.
fn paths(dialect: Dialect, version: &str) -> [(String, Value); 2] {
    let title = format!("{}{}", version[..1].to_uppercase(), &version[1..]);
    let value = "{namespace}/{resource}/{name}/{metric}";
    let resources: Vec<_> = Kind::ALL.map(Kind::resource).into();
    let metrics: Vec<_> = Metric::ALL.map(Metric::name).into();
    let text = json!({"type": "string"});
    let of_values = [
        parameter(dialect, ("namespace", "path"), "the objects' namespace", &text),
        parameter(dialect, ("resource", "path"), "what they are", &json!({"type": "string", "enum": resources})),
        parameter(dialect, ("name", "path"), "the object's name; * for all pods with the labels", &text),
        parameter(dialect, ("metric", "path"), "which metric", &json!({"type": "string", "enum": metrics})),
        parameter(dialect, ("labelSelector", "query"), "labels of the pods, with the name *", &text),
    ];
    let kind = json!({"group": GROUP, "version": version, "kind": "MetricValueList"});
    let mut values = operation(
        dialect,
        &format!("readCustomMetrics{title}NamespacedMetric"),
        "the values of a metric: score over the threshold, or 1 in alarm",
        &schema_name(version, "MetricValueList"),
    );
    values["parameters"] = json!(of_values);
    values["x-kubernetes-action"] = json!("get");
    values["x-kubernetes-group-version-kind"] = kind;
    let resources = operation(
        dialect,
        &format!("getCustomMetrics{title}APIResources"),
        "which metrics of which resources there are",
        &schema_name(version, "APIResourceList"),
    );
    [
        (format!("/apis/{GROUP}/{version}"), json!({"get": resources})),
        (format!("/apis/{GROUP}/{version}/namespaces/{value}"), json!({"get": values})),
    ]
}

fn parameter(dialect: Dialect, (name, place): (&str, &str), what: &str, schema: &Value) -> Value {
    let mut all = json!({"name": name, "in": place, "description": what, "required": place == "path"});
    match dialect {
        Dialect::Two => {
            for (key, value) in schema.as_object().into_iter().flatten() {
                all[key] = value.clone();
            }
        }
        Dialect::Three => all["schema"] = schema.clone(),
    }
    all
}

fn operation(dialect: Dialect, id: &str, what: &str, schema: &str) -> Value {
    let reference = reference(dialect, schema);
    let mut all = json!({"operationId": id, "description": what, "tags": [GROUP]});
    match dialect {
        Dialect::Two => {
            all["produces"] = json!([JSON]);
            all["schemes"] = json!(["https"]);
            all["responses"] = json!({"200": {"description": "OK", "schema": reference}});
        }
        Dialect::Three => {
            all["responses"] = json!({"200": {"description": "OK", "content": {JSON: {"schema": reference}}}});
        }
    }
    all
}

/// The schemas of a version. Types that other groups share are written out: of two of one name, the API server renames
/// one.
fn schemas(dialect: Dialect, version: &str) -> [(String, Value); 3] {
    let text = |what: &str| json!({"type": "string", "description": what});
    let object = json!({"type": "object", "description": "what the value is of", "properties": {
        "kind": text("its kind"), "apiVersion": text("its group and version"),
        "namespace": text("its namespace"), "name": text("its name")}});
    let mut values = json!({
        "describedObject": object,
        "timestamp": {"type": "string", "format": "date-time", "description": "when the oldest part was read"},
        "value": text("a quantity, in thousandths"),
    });
    let metric = if version == VERSIONS[0] {
        values["metricName"] = text("name of the metric");
        "metricName"
    } else {
        let name = json!({"name": text("name of the metric")});
        values["metric"] = json!({"type": "object", "required": ["name"], "properties": name});
        "metric"
    };
    let value = json!({"type": "object", "description": "the value of a metric of one object",
        "required": ["describedObject", metric, "timestamp", "value"], "properties": values});
    let items = json!({"type": "array", "items": reference(dialect, &schema_name(version, "MetricValue"))});
    let typed = |mut more: Value| {
        more["kind"] = text("the kind of this object");
        more["apiVersion"] = text("its group and version");
        more
    };
    let list = json!({"type": "object", "description": "the values of a metric", "required": ["items"],
        "properties": typed(json!({"metadata": {"type": "object"}, "items": items})),
        "x-kubernetes-group-version-kind": [{"group": GROUP, "version": version, "kind": "MetricValueList"}]});
    let resource = json!({"type": "object", "required": ["name", "singularName", "namespaced", "kind", "verbs"],
        "properties": {"name": text("resource and metric"), "singularName": text("none"),
            "namespaced": {"type": "boolean"}, "kind": text("what is answered"),
            "verbs": {"type": "array", "items": {"type": "string"}}}});
    let resources = json!({"type": "object", "description": "metrics of resources",
        "required": ["groupVersion", "resources"], "properties": typed(json!({"groupVersion": text("what this is of"),
            "resources": {"type": "array", "items": resource}}))});
    [
        (schema_name(version, "MetricValue"), value),
        (schema_name(version, "MetricValueList"), list),
        (schema_name(version, "APIResourceList"), resources),
    ]
}
