//! The `/metrics` page: an agent's own metrics over HTTP, as OpenMetrics text.

use std::collections::BTreeMap;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use prometheus_client::encoding::text;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// Content type of OpenMetrics text.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A registry whose metric names begin with `prefix`. It already has `build_info`, the running release.
#[must_use]
pub fn registry(prefix: &str) -> Registry {
    let mut registry = Registry::with_prefix(prefix);
    let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "The release that runs", build);
    registry
}

/// The value of each metric of `registry` now, over all its labels. A counter has its name as documented, without
/// `_total`.
#[must_use]
pub fn values(registry: &Registry) -> BTreeMap<String, u64> {
    let mut page = String::new();
    // A text takes whatever is written to it.
    _ = text::encode_registry(&mut page, registry);
    values_of(&page)
}

fn values_of(page: &str) -> BTreeMap<String, u64> {
    let mut values = BTreeMap::<String, u64>::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let name = series.split('{').next().unwrap_or(series);
        let Ok(value) = value.parse::<f64>() else { continue };
        let sum = values.entry(name.strip_suffix("_total").unwrap_or(name).to_owned()).or_default();
        *sum = sum.saturating_add(value.max(0.0) as u64);
    }
    values
}

/// The HTTP response with all metrics of `registry`.
pub fn response(registry: &Registry) -> Response {
    response_with(registry, "")
}

/// The HTTP response with all metrics of `registry`, followed by `more`: metric families as OpenMetrics text.
pub fn response_with(registry: &Registry, more: &str) -> Response {
    let mut page = String::new();
    let encoded = text::encode_registry(&mut page, registry).and_then(|()| {
        page.push_str(more);
        text::encode_eof(&mut page)
    });
    match encoded {
        Ok(()) => of(page),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("cannot write the metrics: {error}\n")).into_response()
        }
    }
}

/// The HTTP response with `text`, a whole page of OpenMetrics text.
pub fn of(mut text: String) -> Response {
    // As long as it is not read, it counts with its length.
    text.shrink_to_fit();
    ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_summed_over_labels_whatever_is_in_them() {
        let page = "# HELP a 7\na_total{who=\"x} 9\"} 3\na_total{who=\"y\"} 4\nb 2\nc 0.5\nd NaN\n# EOF\n";

        let values = values_of(page);

        let found: Vec<_> = values.iter().map(|(name, value)| (&**name, *value)).collect();
        assert_eq!(found, [("a", 7), ("b", 2), ("c", 0), ("d", 0)]);
    }

    #[test]
    fn a_page_has_its_content_type_and_names_the_release() {
        let mut page = String::new();

        text::encode(&mut page, &registry("uview_example")).unwrap();

        let release = format!("uview_example_build_info{{version=\"{}\"}} 1\n", env!("CARGO_PKG_VERSION"));
        assert!(page.contains(&release) && page.ends_with("# EOF\n"), "{page}");
        let response = response(&registry("uview_example"));
        assert_eq!(response.headers()[header::CONTENT_TYPE], OPEN_METRICS);
        let body = axum::body::to_bytes(response_with(&registry("uview_example"), "more 1\n").into_body(), 1 << 20);
        let body = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(body).unwrap();
        assert!(body.ends_with(b"\"} 1\nmore 1\n# EOF\n"), "{body:?}");
    }
}
