//! Sends a body, once, and reads the beginning of what is replied.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};

use super::client::{Client, SendError};
use super::reply::excerpt;

/// Maximum bytes read of a response body; a longer one closes the connection.
const MAX_BODY: usize = 64 * 1024;

/// A response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// HTTP status code.
    pub status: u16,
    /// All of its headers.
    pub headers: HeaderMap,
    /// The first 64 KiB of its body.
    pub body: Vec<u8>,
}

impl Response {
    /// The header `name`, if it is there and text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// What its `Retry-After` says, for [`retry_after`](super::retry_after).
    #[must_use]
    pub fn retry_after(&self) -> Option<&str> {
        self.text(header::RETRY_AFTER.as_str())
    }

    /// What a refusal says, as [`excerpt`] shows it; empty on success.
    #[must_use]
    pub fn refusal(&self) -> String {
        if matches!(self.status, 200..=299) { String::new() } else { excerpt(&self.body, self.status) }
    }
}

impl Client {
    /// Sends `body` with `headers`, which come before those of the same name that are configured. After a failure the
    /// connection is closed; the next request makes a new one.
    ///
    /// # Errors
    ///
    /// [`SendError`] if there is no response within the time limit.
    pub async fn post(&mut self, headers: HeaderMap, body: Bytes) -> Result<Response, SendError> {
        let within = self.timeout;
        let sent = tokio::time::timeout(within, self.exchange(headers, body)).await;
        let sent = sent.unwrap_or(Err(SendError::Deadline(within)));
        if sent.is_err() {
            self.open = None;
        }
        sent
    }

    /// Sends JSON, like [`Client::post`].
    ///
    /// # Errors
    ///
    /// As for [`Client::post`].
    pub async fn post_json(&mut self, body: Vec<u8>) -> Result<Response, SendError> {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        self.post(headers, body.into()).await
    }

    async fn exchange(&mut self, headers: HeaderMap, body: Bytes) -> Result<Response, SendError> {
        let mut request = self.request(Method::POST, self.destination.target.clone(), body);
        request.headers_mut().extend(headers);
        let mut open = self.connection().await?;
        let response = open.send_request(request).await.map_err(SendError::Http)?;
        let (response, reusable) = read(response).await?;
        self.open = reusable.then_some(open);
        Ok(response)
    }
}

/// Reads a response; `false` if its body was too long to reuse the connection.
async fn read(response: hyper::Response<Incoming>) -> Result<(Response, bool), SendError> {
    let (parts, mut incoming) = response.into_parts();
    let mut body = Vec::new();
    let mut reusable = true;
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(SendError::Http)?;
        body.extend_from_slice(frame.data_ref().map_or(&[][..], |data| &data[..]));
        if body.len() > MAX_BODY {
            body.truncate(MAX_BODY);
            reusable = false;
            break;
        }
    }
    Ok((Response { status: parts.status.as_u16(), headers: parts.headers, body }, reusable))
}
