//! Says in a resource whose it is: adds attributes that are verified.

use crate::codec::export;
use crate::codec::fields::{Field, Fields, Value, string_of};

const RESOURCE: u32 = 1;
const ATTRIBUTES: u32 = 1;
/// Attributes with this beginning are facts of the cluster: who sends cannot say otherwise.
const VERIFIED: &str = "k8s.";
/// What a sender said otherwise stays, under this and its key.
pub const CLAIMED: &str = "uview.claimed.";

/// The `around` of spans (a `ResourceSpans` without its scopes) with `attributes`, keys and values, in its resource.
/// One that is there stays as it is; but if it is verified (`k8s.…`) and says something else, it is renamed to
/// `uview.claimed.k8s.…`. All else stays byte for byte. O(attributes²), once per origin and not per span.
#[must_use]
pub fn identify<V: AsRef<str>>(around: &[u8], attributes: &[(&str, V)]) -> Vec<u8> {
    let (mut resource, mut rest) = (Vec::new(), Vec::new());
    let mut missing: Vec<_> = attributes.iter().map(|(key, value)| (*key, value.as_ref())).collect();
    for field in Fields::of(around).map_while(Result::ok) {
        match field.message() {
            // Several are one, as Protocol Buffers has it.
            Ok(content) if field.number == RESOURCE => edit(content, &mut missing, attributes, &mut resource),
            _ => rest.extend_from_slice(field.record),
        }
    }
    for (key, value) in missing {
        put(key, value, &mut resource);
    }
    let mut into = Vec::with_capacity(resource.len() + rest.len() + 6);
    export::bytes(RESOURCE as u8, &resource, &mut into);
    into.extend_from_slice(&rest);
    into
}

/// Copies the fields of a resource. `missing` loses what is there.
fn edit<V: AsRef<str>>(resource: &[u8], missing: &mut Vec<(&str, &str)>, wanted: &[(&str, V)], into: &mut Vec<u8>) {
    for field in Fields::of(resource).map_while(Result::ok) {
        let pair = field.message().ok().filter(|_| field.number == ATTRIBUTES).map(|pair| (pair, read(pair)));
        let known = pair.and_then(|(pair, (key, text))| {
            let (key, value) = wanted.iter().find(|(wanted, _)| wanted.as_bytes() == key)?;
            Some((pair, *key, text == Some(value.as_ref())))
        });
        match known {
            Some((pair, key, false)) if key.starts_with(VERIFIED) => rename(pair, key, into),
            Some((_, key, _)) => {
                missing.retain(|(other, _)| *other != key);
                into.extend_from_slice(field.record);
            }
            None => into.extend_from_slice(field.record),
        }
    }
}

/// Key and text of a `KeyValue`.
fn read(pair: &[u8]) -> (&[u8], Option<&str>) {
    let (mut key, mut text) = (&b""[..], None);
    for field in Fields::of(pair).map_while(Result::ok) {
        match (field.number, field.value) {
            (1, Value::Bytes(bytes)) => key = bytes,
            (2, Value::Bytes(value)) => text = string_of(value),
            _ => {}
        }
    }
    (key, text)
}

/// Writes the attribute `pair` under another key.
fn rename(pair: &[u8], key: &str, into: &mut Vec<u8>) {
    let mut renamed = Vec::with_capacity(pair.len() + CLAIMED.len());
    export::bytes(1, format!("{CLAIMED}{key}").as_bytes(), &mut renamed);
    let others = Fields::of(pair).map_while(Result::ok).filter(|field: &Field<'_>| field.number != 1);
    others.for_each(|field| renamed.extend_from_slice(field.record));
    export::bytes(ATTRIBUTES as u8, &renamed, into);
}

fn put(key: &str, value: &str, into: &mut Vec<u8>) {
    let (mut text, mut pair) = (Vec::with_capacity(value.len() + 4), Vec::with_capacity(key.len() + value.len() + 10));
    export::bytes(1, value.as_bytes(), &mut text);
    export::bytes(1, key.as_bytes(), &mut pair);
    export::bytes(2, &text, &mut pair);
    export::bytes(ATTRIBUTES as u8, &pair, into);
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::any_value::Value as Text;
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use opentelemetry_proto::tonic::trace::v1::ResourceSpans;
    use proptest::prelude::*;
    use prost::Message as _;
    use support::otlp::attribute;

    use super::*;

    fn around(attributes: &[(&str, Text)]) -> Vec<u8> {
        let pair = |(key, value): &(&str, Text)| attribute(key, value.clone());
        let resource = Resource { attributes: attributes.iter().map(pair).collect(), ..Resource::default() };
        ResourceSpans { resource: Some(resource), schema_url: "url".to_owned(), ..ResourceSpans::default() }
            .encode_to_vec()
    }

    fn read_back(bytes: &[u8]) -> Vec<(String, Text)> {
        let spans = ResourceSpans::decode(bytes).unwrap();
        let all = spans.resource.unwrap().attributes.into_iter();
        all.map(|pair| (pair.key, pair.value.unwrap().value.unwrap())).collect()
    }

    fn text(text: &str) -> Text {
        Text::StringValue(text.to_owned())
    }

    #[test]
    fn what_is_missing_is_added_and_what_is_said_stays() {
        let said =
            around(&[("service.name", text("payment")), ("k8s.pod.name", text("p-1")), ("service.version", text("7"))]);

        let identified = identify(&said, &[("k8s.pod.name", "p-1"), ("k8s.node.name", "n"), ("service.version", "8")]);

        let expected =
            [("service.name", "payment"), ("k8s.pod.name", "p-1"), ("service.version", "7"), ("k8s.node.name", "n")];
        assert_eq!(read_back(&identified), expected.map(|(key, value)| (key.to_owned(), text(value))));
        assert_eq!(ResourceSpans::decode(&identified[..]).unwrap().schema_url, "url");
        assert_eq!(read_back(&identify(&[], &[("k8s.pod.name", "p")])), [("k8s.pod.name".to_owned(), text("p"))]);
    }

    #[test]
    fn another_pods_name_is_kept_as_a_claim() {
        let said = around(&[("k8s.pod.name", text("admin")), ("k8s.pod.uid", Text::IntValue(7))]);

        let identified = identify(&said, &[("k8s.pod.name", "p-1"), ("k8s.pod.uid", "u")]);

        let expected = [
            ("uview.claimed.k8s.pod.name", text("admin")),
            ("uview.claimed.k8s.pod.uid", Text::IntValue(7)),
            ("k8s.pod.name", text("p-1")),
            ("k8s.pod.uid", text("u")),
        ];
        assert_eq!(read_back(&identified), expected.map(|(key, value)| (key.to_owned(), value)));
    }

    proptest! {
        #[test]
        fn any_bytes_become_a_resource_that_names_the_pod(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let identified = identify(&bytes, &[("k8s.pod.name", "p")]);
            let first = Fields::of(&identified).next().unwrap().unwrap();
            let resource = Fields::of(first.message().unwrap()).map_while(Result::ok);
            let named = resource.filter_map(|field| Some(read(field.message().ok()?)));
            prop_assert!(named.into_iter().any(|pair| pair == (&b"k8s.pod.name"[..], Some("p"))));
        }
    }
}
