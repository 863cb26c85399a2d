//! Edits a request before it is stored: masks values of attributes, and renames services.
//!
//! Everything else stays byte for byte, unknown fields included.

use crate::codec::export;
use crate::codec::fields::{Fields, Value, WireError, string_of};

/// Replaces a masked value.
pub const MASK: &str = "****";

/// Where a message has attributes, and which of its fields are messages that may have some.
#[derive(Debug)]
struct Shape {
    attributes: u32,
    within: &'static [(u32, &'static Self)],
}

// As in opentelemetry/proto/{collector/trace,trace,resource,common}/v1. 0 means none.
const LINK: Shape = Shape { attributes: 4, within: &[] };
const EVENT: Shape = Shape { attributes: 3, within: &[] };
const SPAN: Shape = Shape { attributes: 9, within: &[(11, &EVENT), (13, &LINK)] };
const SCOPE: Shape = Shape { attributes: 3, within: &[] };
const SCOPE_SPANS: Shape = Shape { attributes: 0, within: &[(1, &SCOPE), (2, &SPAN)] };
const RESOURCE: Shape = Shape { attributes: 1, within: &[] };
const RESOURCE_SPANS: Shape = Shape { attributes: 0, within: &[(1, &RESOURCE), (2, &SCOPE_SPANS)] };
const SPANS: Shape = Shape { attributes: 0, within: &[(1, &RESOURCE_SPANS)] };
// As in opentelemetry/proto/logs/v1.
const LOG_RECORD: Shape = Shape { attributes: 6, within: &[] };
const SCOPE_LOGS: Shape = Shape { attributes: 0, within: &[(1, &SCOPE), (2, &LOG_RECORD)] };
const RESOURCE_LOGS: Shape = Shape { attributes: 0, within: &[(1, &RESOURCE), (2, &SCOPE_LOGS)] };
const LOGS: Shape = Shape { attributes: 0, within: &[(1, &RESOURCE_LOGS)] };
/// Only resources: they have the same field number in requests of every signal.
const ONLY_RESOURCE: Shape = Shape { attributes: 0, within: &[(1, &RESOURCE)] };
const RESOURCES: Shape = Shape { attributes: 0, within: &[(1, &ONLY_RESOURCE)] };

/// Masks the attributes with these `keys` in an `ExportTraceServiceRequest`: those of resources, scopes, spans, events
/// and links. Keys inside a value are not looked at. Returns `None` if nothing matches: the request can be used as it
/// is. O(bytes × depth).
///
/// # Errors
///
/// [`WireError`] if a part cannot be read, and so could not be masked.
pub fn mask(request: &[u8], keys: &[String]) -> Result<Option<Vec<u8>>, WireError> {
    edit(request, &SPANS, &|key, _| keys.iter().any(|masked| masked.as_bytes() == key).then(|| MASK.to_owned()))
}

/// As [`mask`], in an `ExportLogsServiceRequest`: attributes of resources, scopes and records. Bodies stay as they are.
///
/// # Errors
///
/// [`WireError`] if a part cannot be read, and so could not be masked.
pub fn mask_logs(request: &[u8], keys: &[String]) -> Result<Option<Vec<u8>>, WireError> {
    edit(request, &LOGS, &|key, _| keys.iter().any(|masked| masked.as_bytes() == key).then(|| MASK.to_owned()))
}

/// Renames services in a request of any signal: `name` maps each `service.name` to its replacement, if it has one.
/// Returns `None` if nothing changes.
///
/// # Errors
///
/// [`WireError`] if a message above the resources' values cannot be read.
pub fn rename(request: &[u8], name: &dyn Fn(&str) -> Option<String>) -> Result<Option<Vec<u8>>, WireError> {
    edit(request, &RESOURCES, &|key, text| if key == b"service.name" { name(text?) } else { None })
}

/// Maps a key, and its value if that is text, to the replacement.
type Edit<'e> = &'e dyn Fn(&[u8], Option<&str>) -> Option<String>;

fn edit(message: &[u8], shape: &Shape, change: Edit<'_>) -> Result<Option<Vec<u8>>, WireError> {
    let mut changed: Option<Vec<u8>> = None;
    let mut copied = 0;
    for field in Fields::of(message) {
        let field = field?;
        let end = copied + field.record.len();
        let new = if field.number == shape.attributes {
            attribute(field.message()?, change)
        } else if let Some((_, inner)) = shape.within.iter().find(|(number, _)| *number == field.number) {
            edit(field.message()?, inner, change)?
        } else {
            None
        };
        match (&mut changed, new) {
            (None, None) => {}
            (Some(into), None) => into.extend_from_slice(field.record),
            (into, Some(new)) => {
                let into = into.get_or_insert_with(|| message[..copied].to_vec());
                // All numbers in the table are below 16.
                export::bytes(field.number as u8, &new, into);
            }
        }
        copied = end;
    }
    Ok(changed)
}

/// A `KeyValue` with its value replaced, if `change` gives one. A value that cannot be read to its end counts as none.
fn attribute(pair: &[u8], change: Edit<'_>) -> Option<Vec<u8>> {
    let (mut key, mut text) = (&b""[..], None);
    for field in Fields::of(pair).map_while(Result::ok) {
        match (field.number, field.value) {
            (1, Value::Bytes(bytes)) => key = bytes,
            (2, Value::Bytes(value)) => text = string_of(value),
            _ => {}
        }
    }
    let new = change(key, text)?;
    let (mut value, mut into) = (Vec::with_capacity(new.len() + 4), Vec::with_capacity(key.len() + new.len() + 10));
    export::bytes(1, new.as_bytes(), &mut value);
    export::bytes(1, key, &mut into);
    export::bytes(2, &value, &mut into);
    Some(into)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut field = Vec::new();
        export::bytes(number, bytes, &mut field);
        field
    }

    fn pair(key: &str, value: &str) -> Vec<u8> {
        [bytes(1, key.as_bytes()), bytes(2, &bytes(1, value.as_bytes()))].concat()
    }

    /// One resource with a scope and a span, all with attributes, and an unknown field in each.
    fn request(secret: &str, service: &str) -> Vec<u8> {
        let unknown = bytes(15, b"?");
        let event = [bytes(3, &pair("user", secret)), bytes(2, b"event")].concat();
        let link = bytes(4, &pair("user", secret));
        let span = [
            bytes(9, &pair("a", "b")),
            bytes(9, &pair("user", secret)),
            bytes(11, &event),
            bytes(13, &link),
            unknown.clone(),
        ];
        let scope = [bytes(1, &bytes(3, &pair("user", secret))), bytes(2, &span.concat()), unknown.clone()].concat();
        let resource = [bytes(1, &pair("service.name", service)), bytes(1, &pair("user", secret))].concat();
        let inner = [bytes(1, &resource), bytes(2, &scope)].concat();
        [unknown, bytes(1, &inner)].concat()
    }

    #[test]
    fn masked_values_are_gone_wherever_they_stand_and_nothing_else_is() {
        let keys = ["user".to_owned(), "password".to_owned()];

        assert_eq!(mask(&request("ann", "shop"), &keys), Ok(Some(request(MASK, "shop"))));
        assert_eq!(mask(&request("ann", "shop"), &["nobody".to_owned()]), Ok(None));
        assert_eq!(mask(&[], &keys), Ok(None));
    }

    #[test]
    fn attributes_of_log_records_are_masked_and_bodies_are_not() {
        let request = |secret: &str| {
            let body = bytes(5, &bytes(1, b"user ann"));
            let record = [body, bytes(6, &pair("user", secret)), bytes(6, &pair("a", "b")), bytes(15, b"?")].concat();
            let scope = [bytes(1, &bytes(3, &pair("user", secret))), bytes(2, &record)].concat();
            bytes(1, &[bytes(1, &bytes(1, &pair("user", secret))), bytes(2, &scope)].concat())
        };
        let keys = ["user".to_owned()];

        assert_eq!(mask_logs(&request("ann"), &keys), Ok(Some(request(MASK))));
        assert_eq!(mask_logs(&request("ann"), &["a.b".to_owned()]), Ok(None));
        assert!(mask_logs(&bytes(1, &bytes(2, &bytes(2, &[6 << 3 | 2, 100, 1]))), &keys).is_err());
    }

    #[test]
    fn a_service_gets_another_name_and_nothing_else_changes() {
        let name = |name: &str| (name == "payment").then(|| "toys/payment".to_owned());

        assert_eq!(rename(&request("ann", "payment"), &name), Ok(Some(request("ann", "toys/payment"))));
        assert_eq!(rename(&request("ann", "shop"), &name), Ok(None));
    }

    #[test]
    fn what_cannot_be_read_cannot_be_masked() {
        let broken = bytes(1, &bytes(2, &bytes(2, &[9 << 3 | 2, 100, 1])));

        assert!(mask(&broken, &["user".to_owned()]).is_err());
        // Names are read above the broken field.
        assert_eq!(rename(&broken, &|_| None), Ok(None));
    }
}
