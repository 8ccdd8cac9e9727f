//! The answer to a call, which has to be there within a time: a server, or what is before it, may take a connection and never
//! say a word, or begin to answer and not go on.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tower::BoxError;

/// So long the API server itself works at a call that is no watch (`--request-timeout` of kube-apiserver); so long all tries of
/// a call together may take. Who cannot wait for
/// that has a shorter deadline of his own.
pub(in crate::agent) const LIMIT: Duration = Duration::from_mins(1);

#[derive(Debug, thiserror::Error)]
#[error("the API server did not answer in {} s", LIMIT.as_secs())]
pub(super) struct Late;

/// A body that fails at its end of time; none = it may last, as a watch does.
pub struct Timely<B> {
    inner: Pin<Box<B>>,
    end: Option<Pin<Box<Sleep>>>,
}

impl<B> Timely<B> {
    pub(super) fn new(inner: B, end: Option<Instant>) -> Self {
        Self {
            inner: Box::pin(inner),
            end: end.map(|end| Box::pin(sleep_until(end))),
        }
    }
}

impl<B: Body<Data = Bytes>> Body for Timely<B>
where
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = self.inner.as_mut().poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        match &mut self.end {
            Some(end) => end.as_mut().poll(cx).map(|()| Some(Err(Late.into()))),
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
