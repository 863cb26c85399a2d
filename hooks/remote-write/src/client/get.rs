//! Reads a page, bounded in bytes: what a monitored program exposes.

use http_body_util::{BodyExt as _, Full};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Request as HttpRequest, Uri};

use super::{Client, SendError};

/// What came with a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The status of the response, which is 200.
    pub status: u16,
    /// `Content-Type`, if it is text.
    pub content_type: Option<String>,
    /// `Content-Encoding`, if it is text; `None` for none.
    pub encoding: Option<String>,
}

/// Why a page was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GetError {
    /// Nobody listens there, or TLS fails.
    #[error("{0}")]
    Connect(String),
    /// The connection broke, or it is not HTTP.
    #[error("{0}")]
    Http(String),
    /// Not within the deadline.
    #[error("no answer within {} ms", .0.as_millis())]
    Deadline(core::time::Duration),
    /// Another status than 200.
    #[error("HTTP status {0}")]
    Status(u16),
    /// The body is longer than allowed.
    #[error("its body is longer than {0} bytes")]
    TooLong(usize),
}

impl GetError {
    /// Its kind, as a label of a metric.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Http(_) => "http",
            Self::Deadline(_) => "deadline",
            Self::Status(_) => "status",
            Self::TooLong(_) => "too_long",
        }
    }
}

impl Client {
    /// Reads the page at the URL into `body`, at most `limit` bytes. `accept` is sent as such, and that gzip is
    /// understood. The connection is kept for the next call; one that broke meanwhile is opened again.
    ///
    /// # Errors
    ///
    /// [`GetError`]; then `body` is not whole.
    pub async fn get(&mut self, accept: &'static str, body: &mut Vec<u8>, limit: usize) -> Result<Page, GetError> {
        self.page_at(self.target.clone(), accept, (body, limit)).await
    }

    /// As [`get`](Self::get), of the URL's path with this `query`, which is encoded already.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get); [`GetError::Http`] if `query` cannot be part of an address.
    pub async fn get_for(
        &mut self,
        query: &str,
        accept: &'static str,
        body: &mut Vec<u8>,
        limit: usize,
    ) -> Result<Page, GetError> {
        let target = format!("{}?{query}", self.target.path()).parse();
        let target = target.map_err(|_| GetError::Http(format!("{query:?} cannot be part of an address")))?;
        self.page_at(target, accept, (body, limit)).await
    }

    async fn page_at(
        &mut self,
        target: Uri,
        accept: &'static str,
        (body, limit): (&mut Vec<u8>, usize),
    ) -> Result<Page, GetError> {
        body.clear();
        let within = self.timeout;
        let read = tokio::time::timeout(within, self.read_page(target, accept, body, limit)).await;
        let read = read.unwrap_or(Err(GetError::Deadline(within)));
        if read.is_err() {
            self.open = None;
        }
        read
    }

    async fn read_page(
        &mut self,
        target: Uri,
        accept: &'static str,
        body: &mut Vec<u8>,
        limit: usize,
    ) -> Result<Page, GetError> {
        let http = |error: hyper::Error| GetError::Http(SendError::Http(error).to_string());
        let mut open = self.connection().await.map_err(|error| match error {
            SendError::Http(error) => http(error),
            other => GetError::Connect(other.to_string()),
        })?;
        let request = HttpRequest::get(target).body(Full::default());
        let mut request = request.map_err(|error| GetError::Http(error.to_string()))?;
        let headers = request.headers_mut();
        headers.extend(self.headers.clone());
        headers.insert(header::HOST, self.authority.clone());
        headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("uview/", env!("CARGO_PKG_VERSION"))));
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        let response = open.send_request(request).await.map_err(http)?;
        let (parts, mut incoming) = response.into_parts();
        if parts.status.as_u16() != 200 {
            return Err(GetError::Status(parts.status.as_u16()));
        }
        while let Some(frame) = incoming.frame().await {
            let frame = frame.map_err(http)?;
            let data = frame.data_ref().map_or(&[][..], |data| &data[..]);
            if body.len() + data.len() > limit {
                return Err(GetError::TooLong(limit));
            }
            body.extend_from_slice(data);
        }
        self.open = Some(open);
        let text = |headers: &HeaderMap, name| headers.get(name)?.to_str().ok().map(str::to_owned);
        let content_type = text(&parts.headers, header::CONTENT_TYPE);
        let encoding = text(&parts.headers, header::CONTENT_ENCODING).filter(|encoding| encoding != "identity");
        Ok(Page { status: parts.status.as_u16(), content_type, encoding })
    }
}
