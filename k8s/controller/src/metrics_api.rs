//! `custom.metrics.k8s.io`: metrics of pods, workloads and `Lmap`s, for the HorizontalPodAutoscaler.
//!
//! Who asks is the API server, which has authenticated and authorised the caller; its certificate is checked before
//! any request (`front_proxy`). Errors are objects of the kind `Status`, whose message people find in the conditions of
//! their HorizontalPodAutoscaler.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::agents::Reader;
use crate::counts::Counts;
use crate::objects::{Composition, Kind, ObjectError, Objects};
use crate::openapi;
use crate::scores::{Metric, Value, value};

/// The API group.
pub(crate) const GROUP: &str = "custom.metrics.k8s.io";
/// Its versions that are served.
pub(crate) const VERSIONS: [&str; 2] = ["v1beta1", "v1beta2"];
/// Requests at a time.
pub(crate) const AT_A_TIME: usize = 16;
/// Largest value that is told, so that its thousandths are a number of Kubernetes.
const MAX_VALUE: f64 = 1e12;

/// What a request needs.
pub(crate) struct MetricsApi {
    pub(crate) objects: Objects,
    pub(crate) reader: Reader,
    pub(crate) counts: Arc<Counts>,
}

/// The API, and how many requests are left.
struct Service {
    api: MetricsApi,
    slots: Semaphore,
}

/// The routes of the API.
pub(crate) fn router(api: MetricsApi) -> Router {
    Router::new()
        .route("/apis/custom.metrics.k8s.io/{version}", get(discovery))
        .route("/apis/custom.metrics.k8s.io/{version}/namespaces/{namespace}/{resource}/{name}/{metric}", get(metric))
        .fallback(async || refusal(StatusCode::NOT_FOUND, "there is no such path"))
        .with_state(Arc::new(Service { api, slots: Semaphore::new(AT_A_TIME) }))
        .merge(openapi::router())
}

/// Which metrics of which resources there are.
async fn discovery(Path(version): Path<String>) -> Response {
    if !VERSIONS.contains(&version.as_str()) {
        return refusal(StatusCode::NOT_FOUND, &format!("{version} is not served: v1beta1 and v1beta2 are"));
    }
    let resource = |kind: Kind, metric: Metric| {
        let name = format!("{}/{}", kind.resource(), metric.name());
        json!({"name": name, "singularName": "", "namespaced": true, "kind": "MetricValueList", "verbs": ["get"]})
    };
    let of_kind = |kind: Kind| Metric::ALL.map(|metric| resource(kind, metric));
    let resources: Vec<_> = Kind::ALL.into_iter().flat_map(of_kind).collect();
    let group_version = format!("{GROUP}/{version}");
    Json(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}))
        .into_response()
}

/// The parameters of a request.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Parameters {
    label_selector: String,
    metric_label_selector: String,
}

/// The parts of a request's path: version, namespace, resource, name, metric.
type Parts = (String, String, String, String, String);

async fn metric(
    State(service): State<Arc<Service>>,
    Path((version, namespace, resource, name, metric)): Path<Parts>,
    Query(parameters): Query<Parameters>,
) -> Response {
    let Ok(_slot) = service.slots.try_acquire() else {
        return refusal(StatusCode::TOO_MANY_REQUESTS, "too many requests at a time: ask again in a second");
    };
    let kind = Kind::of_resource(&resource).filter(|_| VERSIONS.contains(&version.as_str()));
    let (Some(kind), Some(metric)) = (kind, Metric::of_name(&metric)) else {
        let text = format!("{resource} has no metric {metric}: uview_score_ratio and uview_alarm are there");
        return refusal(StatusCode::NOT_FOUND, &text);
    };
    if !parameters.metric_label_selector.is_empty() {
        return refusal(StatusCode::NOT_FOUND, &format!("{} has no labels: leave the selector out", metric.name()));
    }
    let answered = service.api.answer(kind, &namespace, &name, metric, &parameters.label_selector).await;
    service.api.counts.answered.one_more();
    match answered {
        Ok(values) => {
            let items =
                values.iter().map(|(name, value)| item(&version, (kind, &namespace, name), metric, *value)).collect();
            let api_version = format!("{GROUP}/{version}");
            Json(MetricValueList { kind: "MetricValueList", api_version, metadata: Empty {}, items }).into_response()
        }
        Err((code, text)) => refusal(code, &text),
    }
}

/// Values by name of the object.
type Values = Vec<(String, Value)>;

impl MetricsApi {
    async fn answer(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        metric: Metric,
        labels: &str,
    ) -> Result<Values, (StatusCode, String)> {
        let unknown = |text: String| (StatusCode::SERVICE_UNAVAILABLE, text);
        let all = match (name, kind) {
            ("*", Kind::Pod) => self.objects.pods(namespace, labels).await,
            ("*", _) => {
                return Err((StatusCode::NOT_FOUND, "only pods can be selected by labels: name one".to_owned()));
            }
            _ => self.objects.named(kind, namespace, name).await.map(|one| vec![one]),
        };
        let all: Vec<Composition> = all.map_err(|error| match error {
            ObjectError::Missing(_) => (StatusCode::NOT_FOUND, error.to_string()),
            ObjectError::Unknown(text) => unknown(text),
        })?;
        let nodes: BTreeSet<&str> = all.iter().flat_map(|of| &of.parts).map(|(node, _)| node.as_str()).collect();
        let pages = self.reader.pages(&nodes).await.map_err(unknown)?;
        let values = all.iter().map(|of| (of.name.clone(), value(metric, &of.parts, &pages)));
        if name == "*" {
            // Those of which nothing is known are left out: the autoscaler counts them as missing.
            return Ok(values.filter_map(|(name, value)| Some((name, value.ok()?))).collect());
        }
        values
            .map(|(name, value)| value.map(|value| (name, value)).map_err(|why| (StatusCode::NOT_FOUND, why)))
            .collect()
    }
}

/// An answer. It is written as it is read, without a tree of it in between.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MetricValueList<'a> {
    kind: &'static str,
    api_version: String,
    metadata: Empty,
    items: Vec<MetricValue<'a>>,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MetricValue<'a> {
    described_object: DescribedObject<'a>,
    timestamp: Time,
    value: String,
    /// Of the older version.
    #[serde(skip_serializing_if = "Option::is_none")]
    metric_name: Option<&'static str>,
    /// Of the newer version.
    #[serde(skip_serializing_if = "Option::is_none")]
    metric: Option<Identifier>,
}

#[derive(Serialize)]
struct Identifier {
    name: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DescribedObject<'a> {
    kind: &'static str,
    api_version: &'static str,
    namespace: &'a str,
    name: &'a str,
}

/// One value, as `version` has it.
fn item<'a>(
    version: &str,
    (kind, namespace, name): (Kind, &'a str, &'a str),
    metric: Metric,
    value: Value,
) -> MetricValue<'a> {
    let [kind, api_version] = kind.kind();
    let (is_older, metric) = (version == VERSIONS[0], metric.name());
    MetricValue {
        described_object: DescribedObject { kind, api_version, namespace, name },
        timestamp: Time(value.at),
        value: quantity(value.value),
        metric_name: is_older.then_some(metric),
        metric: (!is_older).then_some(Identifier { name: metric }),
    }
}

/// `value` in thousandths.
fn quantity(value: f64) -> String {
    format!("{}m", (value.min(MAX_VALUE) * 1e3).round() as u64)
}

/// An error, as Kubernetes has it.
fn refusal(code: StatusCode, message: &str) -> Response {
    let reason = match code {
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        _ => "ServiceUnavailable",
    };
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason, "code": code.as_u16()});
    (code, Json(status)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_thousandths_and_bounded() {
        assert_eq!([0.0, 0.3604, 1.0, 1e300].map(quantity), ["0m", "360m", "1000m", "1000000000000000m"]);
    }
}
