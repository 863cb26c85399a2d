//! Bodies of HTTP messages, and the gRPC frame in them.

use core::convert::Infallible;
use core::pin::Pin;
use core::task::{Context, Poll};

use bytes::{BufMut as _, Bytes, BytesMut};
use hyper::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};

/// Length of a frame's header: a flag and four bytes of length.
const HEAD: usize = 5;

/// A complete body: data, then trailers.
#[derive(Debug, Default)]
pub(crate) struct FullBody {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl FullBody {
    /// A body of `data`.
    pub(crate) fn new(data: Bytes) -> Self {
        Self { data: Some(data).filter(|data| !data.is_empty()), trailers: None }
    }

    /// A gRPC response with `message` and status 0.
    pub(crate) fn grpc(message: &[u8]) -> Self {
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert("grpc-status", hyper::header::HeaderValue::from_static("0"));
        Self { data: Some(framed(message)), trailers: Some(trailers) }
    }
}

impl Body for FullBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = self.data.take().map(Frame::data);
        Poll::Ready(data.or_else(|| self.trailers.take().map(Frame::trailers)).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.as_ref().map_or(0, |data| data.len() as u64))
    }
}

fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEAD + message.len());
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.put_slice(message);
    frame.freeze()
}

/// Why a body is not exactly one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    /// Shorter than its header says, or without a header.
    #[error("the gRPC message is cut short after {0} bytes")]
    Short(usize),
    /// More than one message; a unary call has one.
    #[error("{0} bytes follow the gRPC message, expected one message")]
    Surplus(usize),
    /// The compression flag is neither 0 nor 1.
    #[error("the gRPC compression flag is {0}, expected 0 or 1")]
    Flag(u8),
}

/// The message in `body`, and whether it is compressed.
pub(crate) fn unframe(mut body: Bytes) -> Result<(Bytes, bool), FrameError> {
    let received = body.len();
    let Some((&[flag, a, b, c, d], _)) = body.split_first_chunk::<HEAD>() else {
        return Err(FrameError::Short(received));
    };
    if flag > 1 {
        return Err(FrameError::Flag(flag));
    }
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    let message = body.split_off(HEAD);
    match message.len().checked_sub(length) {
        None => Err(FrameError::Short(received)),
        Some(0) => Ok((message, flag == 1)),
        Some(surplus) => Err(FrameError::Surplus(surplus)),
    }
}

/// Length of the body that begins with `first`, if it is one frame of gRPC; `None` if the frame's header is not whole.
pub(crate) fn announced(first: &[u8]) -> Option<usize> {
    let (&[_, a, b, c, d], _) = first.split_first_chunk::<HEAD>()?;
    HEAD.checked_add(u32::from_be_bytes([a, b, c, d]) as usize)
}

/// The next HTTP frame of `body`.
pub(crate) async fn next<B: Body + Unpin>(body: &mut B) -> Option<Result<Frame<B::Data>, B::Error>> {
    core::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_frame_is_taken_apart_and_nothing_else() {
        assert_eq!(unframe(framed(b"abc")), Ok((Bytes::from_static(b"abc"), false)));
        assert_eq!(unframe(framed(b"")), Ok((Bytes::new(), false)));
        assert_eq!(unframe(Bytes::from_static(&[1, 0, 0, 0, 1, 7])), Ok((Bytes::from_static(&[7]), true)));

        assert_eq!((announced(&framed(b"abc")), announced(&framed(b"abc")[..5])), (Some(8), Some(8)));
        assert_eq!((announced(&[0, 0, 0]), announced(&[])), (None, None));
        assert_eq!(unframe(Bytes::from_static(&[0, 0, 0])), Err(FrameError::Short(3)));
        assert_eq!(unframe(Bytes::from_static(&[0, 0, 0, 0, 2, 7])), Err(FrameError::Short(6)));
        assert_eq!(unframe(Bytes::from_static(&[0, 255, 255, 255, 255, 7])), Err(FrameError::Short(6)));
        assert_eq!(unframe(Bytes::from_static(&[0, 0, 0, 0, 0, 7])), Err(FrameError::Surplus(1)));
        assert_eq!(unframe(Bytes::from_static(&[2, 0, 0, 0, 0])), Err(FrameError::Flag(2)));
    }
}
