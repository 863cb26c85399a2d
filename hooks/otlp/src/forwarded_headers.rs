//! Client headers that are forwarded to the upstream: keys of accounts, tenants and the like.

use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};

/// Maximum bytes of one client's forwarded headers. With more, none is forwarded.
const MAX_BYTES: usize = 8 << 10;

/// Headers forwarded by default: those with which clients name accounts, tenants and data sets to vendors.
pub const DEFAULT_FORWARDED: [&str; 17] = [
    "authorization",
    "api-key",
    "x-api-key",
    "x-scope-orgid",
    "x-honeycomb-team",
    "x-honeycomb-dataset",
    "dd-api-key",
    "lightstep-access-token",
    "signoz-ingestion-key",
    "signoz-access-token",
    "uptrace-dsn",
    "x-axiom-dataset",
    "dash0-dataset",
    "x-sf-token",
    "x-sentry-auth",
    "x-oneuptime-token",
    "stream-name",
];

/// The names of the headers to forward.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ForwardedHeaderNames(Box<[HeaderName]>);

impl ForwardedHeaderNames {
    /// Takes `names` in any case. Fails with the first that is no valid header name, or that describes the message or
    /// its connection.
    pub(crate) fn new(names: &[String]) -> Result<Self, String> {
        let name = |name: &String| {
            let parsed = HeaderName::try_from(name.to_ascii_lowercase()).map_err(|_| name.clone())?;
            let of_message = parsed.as_str().starts_with("content-") || parsed.as_str().starts_with("grpc-");
            if of_message || HOP_BY_HOP.contains(&parsed.as_str()) { Err(name.clone()) } else { Ok(parsed) }
        };
        names.iter().map(name).collect::<Result<_, _>>().map(Self)
    }

    /// Selects from `headers` what is forwarded.
    pub(crate) fn of(&self, headers: &HeaderMap) -> ForwardedHeaders {
        let mut text = Vec::new();
        for name in &self.0 {
            for value in headers.get_all(name) {
                text.extend_from_slice(name.as_str().as_bytes());
                text.push(b':');
                text.extend_from_slice(value.as_bytes());
                text.push(b'\n');
            }
        }
        ForwardedHeaders((1..=MAX_BYTES).contains(&text.len()).then(|| text.into()))
    }
}

/// Hop-by-hop headers: never forwarded.
const HOP_BY_HOP: [&str; 7] = ["connection", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// Forwarded headers of one client, as lines `name:value`. No value contains a line feed. Clones share the bytes.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ForwardedHeaders(Option<Arc<[u8]>>);

// Values are secrets: only their length is shown.
impl core::fmt::Debug for ForwardedHeaders {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("ForwardedHeaders").field(&self.bytes().len()).finish()
    }
}

impl ForwardedHeaders {
    /// The encoded lines.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Restores what [`bytes`](Self::bytes) returned.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self((!bytes.is_empty()).then(|| bytes.into()))
    }

    /// Adds them to `headers`. A header that is there already stays: configured headers take precedence.
    pub(crate) fn apply(&self, headers: &mut HeaderMap) {
        let mut added = HeaderMap::new();
        for line in self.bytes().split(|byte| *byte == b'\n') {
            let Some(end) = line.iter().position(|byte| *byte == b':') else { continue };
            let (name, value) = (HeaderName::from_bytes(&line[..end]), HeaderValue::from_bytes(&line[end + 1..]));
            if let (Ok(name), Ok(mut value)) = (name, value)
                && !headers.contains_key(&name)
            {
                value.set_sensitive(true);
                added.append(name, value);
            }
        }
        headers.extend(added);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passing(names: &[&str]) -> Result<ForwardedHeaderNames, String> {
        ForwardedHeaderNames::new(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_listed_goes_on_and_what_is_configured_stands() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", HeaderValue::from_static("Bearer a: b"));
        headers.append("x-team", HeaderValue::from_static("1"));
        headers.append("x-team", HeaderValue::from_static("2"));
        headers.insert("x-other", HeaderValue::from_static("no"));
        let passed = passing(&["Authorization", "X-Team", "x-absent"]).unwrap().of(&headers);

        let mut all = HeaderMap::new();
        passed.apply(&mut all);
        let mut configured = HeaderMap::from_iter([("x-team".parse().unwrap(), HeaderValue::from_static("own"))]);
        ForwardedHeaders::from_bytes(passed.bytes()).apply(&mut configured);

        assert_eq!((all["authorization"].as_bytes(), all.len()), (&b"Bearer a: b"[..], 3));
        assert_eq!(all.get_all("x-team").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert!(all["authorization"].is_sensitive() && !format!("{passed:?}").contains("Bearer"));
        assert_eq!(configured.get_all("x-team").iter().collect::<Vec<_>>(), ["own"]);
        assert_eq!(configured["authorization"], "Bearer a: b");
    }

    #[test]
    fn what_is_long_does_not_go_on_and_what_is_the_protocols_cannot_be_listed() {
        let long = HeaderValue::from_bytes(&[b'x'; MAX_BYTES]).unwrap();
        let headers = HeaderMap::from_iter([("authorization".parse().unwrap(), long)]);

        assert_eq!(passing(&["authorization"]).unwrap().of(&headers), ForwardedHeaders::default());
        assert_eq!(passing(&["x-a", "Content-Type"]).unwrap_err(), "Content-Type");
        assert_eq!(passing(&["grpc-encoding"]).unwrap_err(), "grpc-encoding");
        assert_eq!(passing(&["a b"]).unwrap_err(), "a b");
        assert_eq!(passing(&["host"]).unwrap_err(), "host");
        assert!(passing(&DEFAULT_FORWARDED).is_ok());
    }
}
