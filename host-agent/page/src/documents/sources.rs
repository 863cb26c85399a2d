//! JSON of what is scraped and exported.

use serde_json::{Value, json};
use wire::proto::operators::{SourceFamily, SourceTarget};

use crate::shown;

/// Each source with its metrics, in the order of the configuration.
#[must_use]
pub fn sources(targets: &[SourceTarget]) -> String {
    shown::json(json!({ "sources": targets.iter().map(target).collect::<Vec<_>>() }))
}

fn target(of: &SourceTarget) -> Value {
    let family = |of: &SourceFamily| json!({ "name": of.name, "kind": of.kind, "exposed": of.exposed, "watched": of.watched, "why": of.why });
    json!({
        "service": of.service, "url": of.url, "state": of.state, "problem": of.problem, "format": of.format,
        "interval": of.interval_us, "took": of.took_us, "scrapes": of.scrapes, "failed": of.failed_scrapes,
        "learned": of.learned, "needed": of.needed, "samples": of.samples, "bytes": of.bytes,
        "refused": of.refused_samples, "exposed": of.exposed, "watched": of.watched, "summed": of.summed,
        "columns": of.columns, "restarts": of.restarts, "families": of.families.iter().map(family).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_comes_with_its_metrics_and_nothing_of_it_is_unprintable() {
        let hostile = "<img src=x onerror=alert(1)>\u{202e}\n";
        let family = SourceFamily { name: hostile.to_owned(), why: "constant".to_owned(), ..SourceFamily::default() };
        let target = SourceTarget {
            service: "redis".to_owned(),
            url: hostile.to_owned(),
            exposed: 7,
            families: vec![family],
            ..SourceTarget::default()
        };

        let text = sources(&[target]);

        assert!(!text.contains('\u{202e}') && !text.contains('\n'), "{text}");
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&value["sources"][0]["exposed"], &value["sources"][0]["families"][0]["why"]),
            (&json!(7), &json!("constant"))
        );
    }
}
