//! Headers of a client's requests, which are replaced while it runs: mostly credentials, in files that somebody renews.
//!
//! Requests that have begun keep what they began with; each later one has the current headers.

use std::sync::Arc;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use crate::reload::Reloadable;

/// A header that requests cannot have. Its value is not repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid header `{name}`: {why}")]
pub struct InvalidHeader {
    /// Name of the header, as configured.
    pub name: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// Headers of each request of a client. Clones share them. Values are marked as secret, so that nothing prints them.
#[derive(Clone, Debug)]
pub struct LiveHeaders {
    current: Reloadable<HeaderMap>,
    /// Whether a name, in lower case, is one that the protocol sets.
    is_reserved: fn(&str) -> bool,
}

/// Headers that were checked, and are not in use yet.
#[derive(Debug)]
#[must_use = "they are not in use before they are taken"]
pub struct HeaderRenewal {
    live: LiveHeaders,
    headers: HeaderMap,
}

impl LiveHeaders {
    /// Begins with `headers`, names and values. `is_reserved` is asked for names in lower case: those that the protocol
    /// sets, and nobody else.
    ///
    /// # Errors
    ///
    /// [`InvalidHeader`] if HTTP does not allow a name or a value, or a name is reserved.
    pub fn new(headers: &[(String, String)], is_reserved: fn(&str) -> bool) -> Result<Self, InvalidHeader> {
        Ok(Self { current: Reloadable::new(checked(headers, is_reserved)?), is_reserved })
    }

    /// The headers of a request that begins now.
    #[must_use]
    pub fn load(&self) -> Arc<HeaderMap> {
        self.current.load()
    }

    /// Checks `headers`, names and values, that are to take the place of these.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new). Nothing has changed.
    pub fn renewal(&self, headers: &[(String, String)]) -> Result<HeaderRenewal, InvalidHeader> {
        Ok(HeaderRenewal { headers: checked(headers, self.is_reserved)?, live: self.clone() })
    }
}

impl HeaderRenewal {
    /// Has requests that begin from now on take these headers. Returns whether they differ from those of before.
    pub fn take(self) -> bool {
        let differs = *self.live.load() != self.headers;
        if differs {
            self.live.current.replace(self.headers);
        }
        differs
    }
}

fn checked(headers: &[(String, String)], is_reserved: fn(&str) -> bool) -> Result<HeaderMap, InvalidHeader> {
    let mut checked = HeaderMap::new();
    for (name, value) in headers {
        let refused = |why| InvalidHeader { name: name.clone(), why };
        let key = HeaderName::try_from(name.as_str()).map_err(|_| refused("its name is not legal"))?;
        if is_reserved(key.as_str()) {
            return Err(refused("it belongs to the protocol"));
        }
        let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| refused("its value is not legal"))?;
        value.set_sensitive(true);
        checked.append(key, value);
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(name: &str, value: &str) -> [(String, String); 1] {
        [(name.to_owned(), value.to_owned())]
    }

    fn live() -> LiveHeaders {
        LiveHeaders::new(&pairs("Authorization", "first"), |name| name == "host").unwrap()
    }

    #[test]
    fn a_renewal_changes_nothing_before_it_is_taken_and_says_whether_it_did() {
        let live = live();
        let (clone, began) = (live.clone(), live.load());

        let renewal = live.renewal(&pairs("authorization", "second")).unwrap();
        assert_eq!(live.load()["authorization"], "first");
        assert!(renewal.take());
        assert!(!live.renewal(&pairs("Authorization", "second")).unwrap().take());

        assert_eq!(clone.load()["authorization"], "second");
        assert_eq!(began["authorization"], "first", "a request that has begun keeps what it began with");
    }

    #[test]
    fn what_requests_cannot_have_is_refused_by_name_and_the_headers_of_before_stay() {
        let live = live();

        for (name, value, why) in
            [("Host", "a", "belongs to the protocol"), ("a b", "s3cret", "not legal"), ("a", "s3cret\n", "its value")]
        {
            let error = live.renewal(&pairs(name, value)).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(why) && !error.contains("s3cret"), "{error}");
        }

        assert_eq!(live.load()["authorization"], "first");
        assert!(!format!("{live:?}").contains("first"));
    }
}
