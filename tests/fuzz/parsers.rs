//! One connection's bytes through the parsers that are really in use: the hub's towards users (its check of the framing, then hyper),
//! its client, and the agent's server, over memory. What the one forwards the other reads as exactly that request, or it is refused.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use linesman::agent::forward;
use linesman::hub::proxy::exchange;
use linesman::hub::proxy::rewrite::{self, Outgoing};
use linesman::hub::serve;
use linesman::kubeapi::message::{self, Framing, Scanner};
use linesman::kubeapi::{headers, path};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex, split};
use tokio::time::timeout;

/// Longer than any deadline of either end. No time passes: it is what a clock that stands still jumps over.
const QUIET: Duration = Duration::from_mins(5);
const ROOM: usize = 64 << 10;

/// The first byte says in which pieces the others come.
#[allow(dead_code, reason = "for the fuzz target and the corpus")]
pub(crate) fn parsers(data: &[u8]) {
    if let Some((piece, bytes)) = data.split_first() {
        forwarded(bytes, usize::from(*piece).max(1));
    }
}

/// A body as one end read it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) bytes: Vec<u8>,
    /// To its end.
    pub(crate) whole: bool,
}

/// One request that the hub forwarded, and what each end saw of it.
#[derive(Debug)]
pub(crate) struct Forwarded {
    pub(crate) outgoing: Outgoing,
    pub(crate) hubs: Seen,
    pub(crate) agents: Option<(Head, Seen)>,
    /// The agent's parser took nothing of it.
    refused: bool,
}

#[derive(Debug)]
pub(crate) struct Head {
    method: Method,
    uri: Uri,
    version: Version,
    headers: HeaderMap,
}

impl Head {
    fn of(parts: &Parts) -> Self {
        Self {
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            version: parts.version,
            headers: parts.headers.clone(),
        }
    }
}

/// What the hub did with one request of the connection.
#[derive(Debug, Default)]
struct Case {
    /// None = it stands in for one that was refused.
    head: Option<Head>,
    forwarded: Option<Forwarded>,
}

type Cases = Arc<Mutex<Vec<Case>>>;

/// Sends the bytes on one connection in such pieces; gives what was forwarded. Panics where two readers disagree.
pub(crate) fn forwarded(bytes: &[u8], piece: usize) -> Vec<Forwarded> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let cases = Cases::default();
    runtime.block_on(connection(bytes, piece, cases.clone()));
    drop(runtime);
    let cases = std::mem::take(&mut *cases.lock().unwrap());
    let scanned = scanned(bytes);
    let mut all = Vec::new();
    for (n, case) in cases.into_iter().enumerate() {
        let Some(head) = case.head else {
            assert!(case.forwarded.is_none());
            break;
        };
        let own = scanned.get(n);
        let own = own.expect("the hub's parser reads no request that its scanner did not pass");
        own.is_as(&head, case.forwarded.as_ref().map(|case| &case.hubs));
        if let Some(forwarded) = case.forwarded {
            read_alike(&forwarded);
            all.push(forwarded);
        }
    }
    all
}

async fn connection(bytes: &[u8], piece: usize, cases: Cases) {
    let (client, server) = duplex(ROOM);
    let serving = serve::requests(server, move |request, violation| {
        let nth = {
            let mut cases = cases.lock().unwrap();
            cases.push(Case::default());
            cases.len() - 1
        };
        let refused = violation.is_some();
        let cases = cases.clone();
        async move {
            if refused {
                return answer(StatusCode::BAD_REQUEST, true);
            }
            proxied(request, &cases, nth).await
        }
    });
    let asking = async {
        let (mut read, mut write) = split(client);
        let sends = async {
            for piece in bytes.chunks(piece) {
                if write.write_all(piece).await.is_err() {
                    return;
                }
                for _ in 0..4 {
                    tokio::task::yield_now().await;
                }
            }
        };
        let mut answers = Vec::new();
        let reads = timeout(QUIET, read.read_to_end(&mut answers));
        // The connection stays open to its end: a client that goes takes its requests with it.
        drop(tokio::join!(sends, reads));
    };
    tokio::join!(serving, asking);
}

fn answer(code: StatusCode, close: bool) -> Response<Body> {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = code;
    if close {
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(CONNECTION, close);
    }
    answer
}

/// As the hub's proxy has it, and the agent at the other end of the stream.
async fn proxied(request: Request<Incoming>, cases: &Cases, nth: usize) -> Response<Body> {
    let (parts, body) = request.into_parts();
    cases.lock().unwrap()[nth].head = Some(Head::of(&parts));
    // A switch that is not granted ends the connection.
    let close = parts.headers.contains_key(http::header::UPGRADE);
    let outgoing = rewrite::framing(&parts).ok().and_then(|()| {
        let target = rewrite::target(&parts.uri).filter(|target| target.cluster.is_some())?;
        rewrite::outgoing(&parts, &target, "").ok()
    });
    let Some(outgoing) = outgoing else {
        return answer(StatusCode::BAD_REQUEST, true);
    };
    let request = outgoing.request(());
    let known = move |change: &dyn Fn(&mut Forwarded)| {
        let mut cases = cases.lock().unwrap();
        change(cases[nth].forwarded.as_mut().unwrap());
    };
    cases.lock().unwrap()[nth].forwarded = Some(Forwarded {
        outgoing,
        hubs: Seen {
            whole: body.is_end_stream(),
            ..Seen::default()
        },
        agents: None,
        refused: false,
    });
    let (near, far) = duplex(ROOM);
    let told = cases.clone();
    let watched = Watched {
        body,
        saw: Box::new(move |seen| {
            let mut cases = told.lock().unwrap();
            saw(&mut cases[nth].forwarded.as_mut().unwrap().hubs, seen);
        }),
    };
    let sends = async {
        let sent = exchange::send(near, request.map(|()| Body::new(watched)), None).await;
        if let Ok(answered) = sent {
            drop(answered.into_body().collect().await);
        }
    };
    let reads = async {
        let told = cases.clone();
        let service = service_fn(move |request| agent(request, told.clone(), nth));
        let stream = forward::reader().serve_connection(TokioIo::new(far), service);
        if let Err(error) = stream.with_upgrades().await {
            known(&|forwarded| forwarded.refused = error.is_parse());
        }
    };
    tokio::join!(sends, reads);
    answer(StatusCode::OK, close)
}

async fn agent(
    request: Request<Incoming>,
    cases: Cases,
    nth: usize,
) -> Result<Response<Body>, hyper::Error> {
    let (parts, mut body) = request.into_parts();
    let known = |change: &dyn Fn(&mut Forwarded)| {
        let mut cases = cases.lock().unwrap();
        change(cases[nth].forwarded.as_mut().unwrap());
    };
    known(&|forwarded| {
        let again = forwarded
            .agents
            .replace((Head::of(&parts), Seen::default()));
        assert!(again.is_none(), "a second request on a stream");
    });
    loop {
        let frame = body.frame().await.transpose()?;
        let (end, ended) = (frame.is_none(), body.is_end_stream());
        let frame = frame.map(|frame| frame.into_data().expect("no trailers cross"));
        known(&|forwarded| {
            let (_, seen) = forwarded.agents.as_mut().unwrap();
            if let Some(data) = &frame {
                saw(seen, Some(data));
            }
            seen.whole |= end || ended;
        });
        if end || ended {
            return Ok(answer(StatusCode::OK, false));
        }
    }
}

fn saw(seen: &mut Seen, data: Option<&[u8]>) {
    match data {
        Some(data) => seen.bytes.extend(data),
        None => seen.whole = true,
    }
}

type Saw = Box<dyn FnMut(Option<&[u8]>) + Send>;

/// A body that is looked at as it passes.
struct Watched {
    body: Incoming,
    /// Given data, and nothing at the end.
    saw: Saw,
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            (this.saw)(Some(data));
        }
        // Nothing comes after trailers, and nobody asks.
        let trailers = matches!(&frame, Some(Ok(frame)) if frame.is_trailers());
        if frame.is_none() || trailers || this.body.is_end_stream() {
            (this.saw)(None);
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

/// What the hub sent is what the agent read: method, target, headers, and where the body ends.
fn read_alike(forwarded: &Forwarded) {
    let Forwarded {
        outgoing,
        hubs,
        agents,
        refused,
    } = forwarded;
    let Some((head, seen)) = agents else {
        assert!(*refused || !hubs.whole, "it was lost: {forwarded:?}");
        return;
    };
    assert_eq!(head.method, outgoing.method);
    assert_eq!(head.uri, Uri::from(outgoing.rest.clone()));
    assert_eq!(head.version, Version::HTTP_11);
    let mut read = head.headers.clone();
    // Framing is each hop's own, where the length is not said.
    let chunked = read.remove(TRANSFER_ENCODING);
    if let Some(length) = outgoing.headers.get(CONTENT_LENGTH) {
        assert_eq!((read.get(CONTENT_LENGTH), &chunked), (Some(length), &None));
    } else if let Some(length) = read.remove(CONTENT_LENGTH) {
        assert_eq!((length.as_bytes(), chunked), (&b"0"[..], None));
    }
    assert_eq!(read, outgoing.headers);
    assert_eq!(headers::framing(&head.uri, &head.headers), Ok(()));
    assert_eq!(headers::upgrade(&head.headers), Ok(outgoing.upgrade));
    let info = path::classify(&head.method, head.uri.path(), head.uri.query());
    assert_eq!(info.as_ref(), Ok(&outgoing.info));
    if hubs.whole {
        assert_eq!(seen, hubs);
    } else {
        assert!(!seen.whole, "a part is taken for the whole: {forwarded:?}");
        assert!(hubs.bytes.starts_with(&seen.bytes));
    }
}

/// A request as the hub's check of the framing passed it.
#[derive(Debug)]
struct Scanned {
    head: Vec<u8>,
    /// As it came.
    body: Vec<u8>,
}

/// By the byte, so that it shows where each ends.
fn scanned(bytes: &[u8]) -> Vec<Scanned> {
    let (mut scanner, mut all, mut out) = (Scanner::default(), Vec::<Scanned>::new(), Vec::new());
    for byte in bytes {
        let heads = scanner.heads();
        if scanner.is_asked() || scanner.push(&[*byte], &mut out).is_err() {
            break;
        }
        let passed = std::mem::take(&mut out);
        if scanner.heads() > heads {
            all.push(Scanned {
                head: passed,
                body: Vec::new(),
            });
        } else if let Some(last) = all.last_mut() {
            last.body.extend(passed);
        }
    }
    all
}

impl Scanned {
    /// Whether the parser behind read the same: line, fields, and what of the body it gave.
    fn is_as(&self, read: &Head, body: Option<&Seen>) {
        let text = self.head.strip_suffix(b"\r\n\r\n").unwrap();
        let mut lines = text
            .split(|byte| *byte == b'\n')
            .map(<[u8]>::trim_ascii_end);
        let line = std::str::from_utf8(lines.next().unwrap()).unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[0], read.method.as_str());
        assert_eq!(words[1].parse::<Uri>().unwrap(), read.uri);
        assert_eq!(words[2], format!("{:?}", read.version));
        let mut fields = HeaderMap::new();
        for line in lines {
            let colon = line.iter().position(|byte| *byte == b':').unwrap();
            let name = HeaderName::from_bytes(&line[..colon]).unwrap();
            let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).unwrap();
            fields.append(name, value);
        }
        assert_eq!(fields, read.headers);
        if let Some(seen) = body {
            let own = self.decoded();
            assert!(own.bytes.starts_with(&seen.bytes), "{self:?}: {seen:?}");
            assert!(!seen.whole || *seen == own, "{self:?}: {seen:?}");
        }
    }

    fn decoded(&self) -> Seen {
        match message::head(&self.head).unwrap().body {
            Framing::Length(length) => Seen {
                whole: self.body.len() as u64 == length,
                bytes: self.body.clone(),
            },
            Framing::Chunked => unchunked(&self.body),
        }
    }
}

/// RFC 9112 7.1.3
fn unchunked(mut raw: &[u8]) -> Seen {
    let mut seen = Seen::default();
    while let Some(end) = raw.windows(2).position(|two| two == b"\r\n") {
        let digits = raw[..end].split(|byte| *byte == b';').next().unwrap();
        let size = std::str::from_utf8(digits).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        raw = &raw[end + 2..];
        if size == 0 {
            seen.whole = raw == b"\r\n" || raw.ends_with(b"\r\n\r\n");
            return seen;
        }
        seen.bytes.extend(&raw[..size.min(raw.len())]);
        raw = raw.get(size + 2..).unwrap_or_default();
    }
    seen
}
