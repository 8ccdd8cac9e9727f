//! Connections that are answered by hand: with what no server says, with a refusal half way, or with nothing yet.

use std::sync::atomic::Ordering;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{FORBIDDEN, NOT_ACTING, Open, State, released};
use crate::proxy::hostile::TRAILED;

/// Answers that no server gives.
pub(super) async fn raw(mut socket: TcpStream, what: &str, state: &State) {
    let mut request = [0; 4096];
    drop(socket.read(&mut request).await);
    if let Some(refusal) = REFUSALS
        .iter()
        .find(|refusal| what.starts_with(refusal.path))
    {
        return refuse(socket, refusal, what, state).await;
    }
    if DEAF.ends_with(what.split(' ').next().unwrap()) {
        return deaf(socket, &request, state).await;
    }
    let text = match what.split(' ').next().unwrap() {
        "early-switch" => {
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
                .to_owned()
        }
        "huge-head" => format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20)),
        "half-refusal" => {
            "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"kind\":\"Status\","
                .to_owned()
        }
        "trailers" => TRAILED.to_owned(),
        "bad-head" => "HTTP/1.1 200 OK\r\nX\r\nSet-Cookie : a\r\n\r\n".to_owned(),
        "endless-hints" => "HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n".repeat(10_000),
        other => panic!("{other}"),
    };
    // The agent leaves before all is written.
    drop(socket.write_all(text.as_bytes()).await);
    drop(socket.shutdown().await);
}

/// Where a command runs that reads nothing of its input until it is let go, and then all that there is.
pub(in crate::proxy) const DEAF: &str = "/api/v1/namespaces/raw/pods/x/exec?command=sh";

/// Counts what it reads as what is produced.
async fn deaf(mut socket: TcpStream, request: &[u8], state: &State) {
    let _open = Open::new(&state.open);
    let spdy = b"spdy/3.1";
    let asks = |name: &[u8]| name.eq_ignore_ascii_case(spdy);
    let protocol = if request.windows(spdy.len()).any(asks) {
        "SPDY/3.1"
    } else {
        "websocket"
    };
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    released(state).await;
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n @ 1..) = socket.read(&mut buffer).await {
        state.produced.fetch_add(n, Ordering::SeqCst);
    }
}

/// Behind the path of a [`Refused`].
pub(in crate::proxy) const HELD: &str = "?held=yes";

/// An upload that is refused before it is complete.
pub(in crate::proxy) struct Refused {
    /// Behind `/raw/`.
    pub(in crate::proxy) path: &'static str,
    /// So much of it is read before.
    pub(in crate::proxy) taken: usize,
    pub(in crate::proxy) status: &'static str,
    pub(in crate::proxy) kind: &'static str,
    pub(in crate::proxy) body: &'static str,
}

/// As an API server does it: a body is read up to its limit, and of what may not be done nothing is read but what a server
/// takes in to keep its connection.
pub(in crate::proxy) const REFUSALS: [Refused; 3] = [
    Refused {
        path: "too-large",
        taken: 3 << 20,
        status: "413 Request Entity Too Large",
        kind: "text/plain",
        body: "much",
    },
    Refused {
        path: "not-allowed",
        taken: 256 << 10,
        status: "403 Forbidden",
        kind: "application/json",
        body: FORBIDDEN,
    },
    Refused {
        path: "not-acting",
        taken: 256 << 10,
        status: "403 Forbidden",
        kind: "application/json",
        body: NOT_ACTING,
    },
];

/// Reads so much, refuses, and leaves the rest unread. Where [`HELD`] is asked for, it refuses when it is let go.
async fn refuse(mut socket: TcpStream, refusal: &Refused, what: &str, state: &State) {
    let Refused {
        path,
        taken,
        status,
        kind,
        body,
    } = refusal;
    drop(socket.read_exact(&mut vec![0; *taken]).await);
    if what[path.len()..].starts_with(HELD) {
        let mut released = state.released.subscribe();
        drop(released.wait_for(|released| *released).await);
    }
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    drop(socket.write_all(answer.as_bytes()).await);
    std::future::pending::<()>().await;
}
