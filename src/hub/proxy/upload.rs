//! A user's request body on its way onto the line: the agent may say that nothing more of it is read.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// Stands still once the agent has refused the rest: what is not read is not sent, and an error would cost the answer.
pub(super) struct Upload {
    pub(super) body: Body,
    pub(super) muted: Box<dyn Fn() -> bool + Send + Sync>,
}

impl hyper::body::Body for Upload {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if (self.muted)() {
            // The exchange ends with its answer, and the body with the exchange.
            return Poll::Pending;
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
