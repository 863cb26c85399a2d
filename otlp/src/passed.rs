//! What clients say in headers that the upstream is to hear: whose account it is, and the like.

use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};

/// Bytes of one client's headers that go on; with more, none of them does.
const MOST: usize = 8 << 10;

/// Headers that clients use where they send to a vendor without anything between: keys and names of accounts, tenants and data sets.
pub const USUAL: [&str; 17] = [
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

/// Names of headers that go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passing(Box<[HeaderName]>);

impl Passing {
    /// `names`, in whichever case; else the first that is no header's name, or one that says how the message itself is sent.
    pub(crate) fn new(names: &[String]) -> Result<Self, String> {
        let name = |name: &String| {
            let parsed = HeaderName::try_from(name.to_ascii_lowercase()).map_err(|_| name.clone())?;
            let own = parsed.as_str().starts_with("content-") || parsed.as_str().starts_with("grpc-");
            if own || OF_CONNECTIONS.contains(&parsed.as_str()) { Err(name.clone()) } else { Ok(parsed) }
        };
        names.iter().map(name).collect::<Result<_, _>>().map(Self)
    }

    /// What of `headers` goes on.
    pub(crate) fn of(&self, headers: &HeaderMap) -> Passed {
        let mut text = Vec::new();
        for name in &self.0 {
            for value in headers.get_all(name) {
                text.extend_from_slice(name.as_str().as_bytes());
                text.push(b':');
                text.extend_from_slice(value.as_bytes());
                text.push(b'\n');
            }
        }
        Passed((1..=MOST).contains(&text.len()).then(|| text.into()))
    }
}

/// Headers that belong to one connection.
const OF_CONNECTIONS: [&str; 7] = ["connection", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// One client's headers that go on, as lines: no value has a line's end in it. Clones share them.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Passed(Option<Arc<[u8]>>);

// Without their values: who has them is whom they name.
impl core::fmt::Debug for Passed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Passed").field(&self.bytes().len()).finish()
    }
}

impl Passed {
    /// As they are kept.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }

    /// What [`bytes`](Self::bytes) gave.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self((!bytes.is_empty()).then(|| bytes.into()))
    }

    /// Puts them among `headers`, where those that are there already stand: what is configured is said to everybody.
    pub(crate) fn apply(&self, headers: &mut HeaderMap) {
        let mut said = HeaderMap::new();
        for line in self.bytes().split(|byte| *byte == b'\n') {
            let Some(end) = line.iter().position(|byte| *byte == b':') else { continue };
            let (name, value) = (HeaderName::from_bytes(&line[..end]), HeaderValue::from_bytes(&line[end + 1..]));
            if let (Ok(name), Ok(mut value)) = (name, value)
                && !headers.contains_key(&name)
            {
                value.set_sensitive(true);
                said.append(name, value);
            }
        }
        headers.extend(said);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passing(names: &[&str]) -> Result<Passing, String> {
        Passing::new(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
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
        Passed::from_bytes(passed.bytes()).apply(&mut configured);

        assert_eq!((all["authorization"].as_bytes(), all.len()), (&b"Bearer a: b"[..], 3));
        assert_eq!(all.get_all("x-team").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert!(all["authorization"].is_sensitive() && !format!("{passed:?}").contains("Bearer"));
        assert_eq!(configured.get_all("x-team").iter().collect::<Vec<_>>(), ["own"]);
        assert_eq!(configured["authorization"], "Bearer a: b");
    }

    #[test]
    fn what_is_long_does_not_go_on_and_what_is_the_protocols_cannot_be_listed() {
        let long = HeaderValue::from_bytes(&[b'x'; MOST]).unwrap();
        let headers = HeaderMap::from_iter([("authorization".parse().unwrap(), long)]);

        assert_eq!(passing(&["authorization"]).unwrap().of(&headers), Passed::default());
        assert_eq!(passing(&["x-a", "Content-Type"]).unwrap_err(), "Content-Type");
        assert_eq!(passing(&["grpc-encoding"]).unwrap_err(), "grpc-encoding");
        assert_eq!(passing(&["a b"]).unwrap_err(), "a b");
        assert_eq!(passing(&["host"]).unwrap_err(), "host");
        assert!(passing(&USUAL).is_ok());
    }
}
