//! Reads a page, bounded in bytes: what a monitored program exposes.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Uri};

use super::client::{Client, SendError};

/// What came with a page, whose status was 200.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// `Content-Type`, if it is text.
    pub content_type: Option<String>,
    /// `Content-Encoding`, if it is text; `None` for none.
    pub encoding: Option<String>,
}

/// Why a page was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GetError {
    /// There was no response.
    #[error(transparent)]
    Send(#[from] SendError),
    /// What is asked for cannot be part of an address.
    #[error("{0:?} cannot be part of an address")]
    Query(String),
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
            Self::Send(SendError::Connect { .. } | SendError::Tls(_)) => "connect",
            Self::Send(SendError::Http(_)) | Self::Query(_) => "http",
            Self::Send(SendError::Deadline(_)) => "deadline",
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
        self.page_at(self.destination.target.clone(), accept, (body, limit)).await
    }

    /// As [`get`](Self::get), of the URL's path with this `query`, which is encoded already.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get); [`GetError::Query`] if `query` cannot be part of an address.
    pub async fn get_for(
        &mut self,
        query: &str,
        accept: &'static str,
        body: &mut Vec<u8>,
        limit: usize,
    ) -> Result<Page, GetError> {
        let target = format!("{}?{query}", self.destination.target.path()).parse();
        let target = target.map_err(|_| GetError::Query(query.to_owned()))?;
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
        let read = read.unwrap_or(Err(GetError::Send(SendError::Deadline(within))));
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
        let mut open = self.connection().await?;
        let mut request = self.request(Method::GET, target, Bytes::new());
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        let response = open.send_request(request).await.map_err(SendError::Http)?;
        let (parts, mut incoming) = response.into_parts();
        if parts.status.as_u16() != 200 {
            return Err(GetError::Status(parts.status.as_u16()));
        }
        while let Some(frame) = incoming.frame().await {
            let frame = frame.map_err(SendError::Http)?;
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
        Ok(Page { content_type, encoding })
    }
}
