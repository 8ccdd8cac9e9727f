//! A request's body on its way to the API server, which may refuse it before it is complete (RFC 9112 §9.5): then
//! nothing more of it is read, here or at the hub.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, HeaderMap};
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::upstream::Body;
use crate::kubeapi::lasting::Lasting;
use crate::kubeapi::path::RequestInfo;

/// Bytes of a body that the API server's kernel takes whether anybody reads them or not.
const AT_ONCE: u64 = 16 << 10;

/// The body, and what the one who waits for the answer says of it.
pub(super) struct Upload {
    body: Incoming,
    done: CancellationToken,
    refused: CancellationToken,
    over: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// The other end of an [`Upload`].
pub(super) struct Answered {
    /// Fired at the body's end.
    done: CancellationToken,
    refused: CancellationToken,
    over: CancellationToken,
}

pub(super) fn upload(body: Incoming) -> (Upload, Answered) {
    let answered = Answered {
        done: CancellationToken::new(),
        refused: CancellationToken::new(),
        over: CancellationToken::new(),
    };
    if body.is_end_stream() {
        answered.done.cancel();
    }
    let upload = Upload {
        body,
        done: answered.done.clone(),
        refused: answered.refused.clone(),
        over: Box::pin(answered.over.clone().cancelled_owned()),
    };
    (upload, answered)
}

impl Answered {
    /// Looks at the answer's head. Where it refuses what is still on its way, `stop` is called, and the upload stands still
    /// until the answer is over: an error in it would cost the answer.
    pub(super) fn heed(self, response: Response<Body>, stop: &dyn Fn()) -> Response<Body> {
        let (done, status) = (self.done.is_cancelled(), response.status());
        if done || !refuses(status, response.headers()) {
            return response;
        }
        self.refused.cancel();
        stop();
        let over = self.over.drop_guard();
        response.map(|body| Lasting::new(body, over).boxed_unsync())
    }
}

/// Whether a body of at most so many bytes (None = nobody knows) may wait for long until it is taken: a Pod, a Service or a node
/// behind `…/proxy/` reads when it likes, and the API server no sooner.
pub(super) fn may_be_late(info: &RequestInfo, size: Option<u64>) -> bool {
    info.proxied() && size.is_none_or(|size| size > AT_ONCE)
}

/// A server that closes on an error reads no more.
fn refuses(status: StatusCode, headers: &HeaderMap) -> bool {
    let closes = headers.get_all(CONNECTION).iter().any(|value| {
        let words = value.as_bytes().split(|b| *b == b',');
        words
            .map(<[u8]>::trim_ascii)
            .any(|word| word.eq_ignore_ascii_case(b"close"))
    });
    closes && (status.is_client_error() || status.is_server_error())
}

impl hyper::body::Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        // The end, so that the connection does not wait for the rest; it is of no use any more.
        if self.over.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        if self.refused.is_cancelled() {
            return Poll::Pending;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.done.cancel();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L5: an upload to a Service that read nothing for half a minute was cut.
    #[test]
    fn what_stands_behind_the_api_server_may_read_a_large_body_late() {
        let of = |verb: &str, subresource: &str| RequestInfo {
            verb: verb.to_owned(),
            subresource: subresource.to_owned(),
            ..RequestInfo::default()
        };
        for (info, size, late) in [
            (of("create", "proxy"), None, true),
            (of("proxy", ""), Some(AT_ONCE + 1), true),
            (of("create", "proxy"), Some(AT_ONCE), false),
            (of("get", "proxy"), Some(0), false),
            (of("create", ""), None, false),
        ] {
            assert_eq!(may_be_late(&info, size), late, "{info:?} {size:?}");
        }
    }

    #[test]
    fn an_error_that_closes_refuses_the_rest() {
        let headers = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONNECTION, value.parse().unwrap());
            headers
        };
        let close = headers("close");
        for code in [400, 403, 413, 500] {
            assert!(refuses(StatusCode::from_u16(code).unwrap(), &close));
        }
        assert!(refuses(StatusCode::FORBIDDEN, &headers("x, Close")));
        assert!(!refuses(StatusCode::OK, &close));
        assert!(!refuses(StatusCode::FORBIDDEN, &headers("keep-alive")));
        assert!(!refuses(StatusCode::FORBIDDEN, &HeaderMap::new()));
    }
}
