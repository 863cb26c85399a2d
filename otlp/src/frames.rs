//! Bodies of HTTP messages, and gRPC's frame within them.

use core::convert::Infallible;
use core::pin::Pin;
use core::task::{Context, Poll};

use bytes::{BufMut as _, Bytes, BytesMut};
use hyper::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};

/// A frame's flag and length.
const HEAD: usize = 5;

/// A body that is there as a whole: bytes, then trailers.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Whole {
    /// A body of `data`.
    pub(crate) fn new(data: Bytes) -> Self {
        Self { data: Some(data).filter(|data| !data.is_empty()), trailers: None }
    }

    /// `message` as a gRPC answer that ended well.
    pub(crate) fn grpc(message: &[u8]) -> Self {
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert("grpc-status", hyper::header::HeaderValue::from_static("0"));
        Self { data: Some(framed(message)), trailers: Some(trailers) }
    }
}

impl Body for Whole {
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

/// What is no single frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    /// Shorter than a frame's head says, or without one.
    #[error("the gRPC message is cut short: {0} bytes came")]
    Short(usize),
    /// A unary call has one message.
    #[error("{0} bytes follow the gRPC message, a unary call has one")]
    Surplus(usize),
    /// Neither 0 nor 1.
    #[error("the gRPC message has the flag {0}")]
    Flag(u8),
}

/// The one message in `body`, and whether it is compressed.
pub(crate) fn unframe(mut body: Bytes) -> Result<(Bytes, bool), FrameError> {
    let came = body.len();
    let Some((&[flag, a, b, c, d], _)) = body.split_first_chunk::<HEAD>() else {
        return Err(FrameError::Short(came));
    };
    if flag > 1 {
        return Err(FrameError::Flag(flag));
    }
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    let message = body.split_off(HEAD);
    match message.len().checked_sub(length) {
        None => Err(FrameError::Short(came)),
        Some(0) => Ok((message, flag == 1)),
        Some(surplus) => Err(FrameError::Surplus(surplus)),
    }
}

/// The next frame of `body`.
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

        assert_eq!(unframe(Bytes::from_static(&[0, 0, 0])), Err(FrameError::Short(3)));
        assert_eq!(unframe(Bytes::from_static(&[0, 0, 0, 0, 2, 7])), Err(FrameError::Short(6)));
        assert_eq!(unframe(Bytes::from_static(&[0, 255, 255, 255, 255, 7])), Err(FrameError::Short(6)));
        assert_eq!(unframe(Bytes::from_static(&[0, 0, 0, 0, 0, 7])), Err(FrameError::Surplus(1)));
        assert_eq!(unframe(Bytes::from_static(&[2, 0, 0, 0, 0])), Err(FrameError::Flag(2)));
    }
}
