//! A body, and what lasts as long as it does.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};

/// Passes everything through; what goes with it is dropped when nobody reads the body any more.
pub struct Lasting<B, T> {
    body: B,
    _kept: T,
}

impl<B, T> Lasting<B, T> {
    pub fn new(body: B, kept: T) -> Self {
        Self { body, _kept: kept }
    }
}

impl<B: Body + Unpin, T: Unpin> Body for Lasting<B, T> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
