//! The answer's way back to the user: its head cleaned, its body counted, a switched protocol copied.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use http::header::{self, HeaderValue};
use hyper::body::Body as _;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use tracing::debug;

use super::Case;
use super::exchange::Answer;
use super::exit::Exit;
use super::record::{Counted, Recorded, Running, Seen};
use super::refusal;
use super::rewrite::{self, Outgoing};
use crate::kubeapi::path::Upgrade;
use crate::kubeapi::status::{Hop, Refusal};
use crate::tunnel::switched::{self, Beating, Dialect};

/// Buffer of a switched protocol, each way.
const COPY: usize = 16 << 10;
/// How long a refused user may take to go.
const LINGER: Duration = Duration::from_secs(2);
/// How long a user whose session has ended may take to read the rest of it: 4 MB, a kernel's worth, at half a megabit per second.
const REST: Duration = Duration::from_mins(1);

impl Case {
    pub(super) fn answer(
        &self,
        response: http::Response<Answer>,
        outgoing: &Outgoing,
        mut running: Running,
        user_side: &mut Option<OnUpgrade>,
    ) -> Result<Response, Refusal> {
        let (mut parts, answer) = response.into_parts();
        let line_side = parts.extensions.remove::<OnUpgrade>();
        if let Err(refusal) = rewrite::answer(&mut parts, outgoing) {
            running.close(refusal.code.as_u16(), 0);
            return Err(refusal);
        }
        let code = parts.status.as_u16();
        if parts.status != StatusCode::SWITCHING_PROTOCOLS {
            if outgoing.upgrade.is_some() {
                // Whatever was sent behind the request was meant for the other protocol.
                let close = HeaderValue::from_static("close");
                parts.headers.insert(header::CONNECTION, close);
            }
            let over = running.seat.over();
            let body = Recorded::new(answer, running, code);
            if !body.is_end_stream() {
                self.hub.work.spawn(body.cut_at(over, self.hangup.clone()));
            }
            return Ok(Response::from_parts(parts, Body::new(body)));
        }
        let (Some(line_side), Some(user_side)) = (line_side, user_side.take()) else {
            running.close(StatusCode::BAD_REQUEST.as_u16(), 0);
            return Err(Refusal::new(
                Hop::Hub,
                StatusCode::BAD_REQUEST,
                "Upgrade",
                "this connection cannot switch its protocol",
            )
            .next("use HTTP/1.1 for exec, attach and port-forward")
            .close());
        };
        let mut exit = Exit::of(&outgoing.info, &parts.headers);
        let dialect = Dialect::of(outgoing.upgrade.map_or("", Upgrade::as_str).as_bytes());
        // It goes on while the hub drains.
        self.hub.work.spawn(async move {
            let bytes = Arc::new(AtomicU64::new(0));
            let sides = (user_side, line_side);
            let copied = tokio::select! {
                copied = copy(sides, dialect, bytes.clone(), exit.as_mut()) => Some(copied),
                () = running.seat.over() => None,
            };
            running.opened.exited(exit.and_then(|exit| exit.code()));
            let bytes = bytes.load(Ordering::Relaxed);
            let error = match copied {
                None => return running.cut(bytes),
                Some(Ok(())) => return running.close(code, bytes),
                Some(Err(error)) => error,
            };
            debug!(error = format!("{error:#}"), "switched protocol broke");
            let io = error.downcast_ref::<std::io::Error>();
            match io.and_then(refusal::session_broken) {
                Some(why) => running.broke(why, code, bytes),
                None => running.close(code, bytes),
            }
        });
        Ok(Response::from_parts(parts, Body::empty()))
    }
}

/// Ends a connection whose switch of protocol was not granted, so that its answer arrives: hyper leaves it to
/// whoever asked for the switch. What the user sent behind it is not for anyone.
pub(super) async fn end(user_side: OnUpgrade) {
    let ending = async {
        let mut user = TokioIo::new(user_side.await?);
        user.shutdown().await?;
        tokio::io::copy(&mut user, &mut tokio::io::sink()).await?;
        anyhow::Ok(())
    };
    if let Ok(Err(error)) = tokio::time::timeout(LINGER, ending).await {
        debug!(%error, "end of a refused switch");
    }
}

async fn copy(
    (user, line): (OnUpgrade, OnUpgrade),
    dialect: Dialect,
    bytes: Arc<AtomicU64>,
    exit: Option<&mut Exit>,
) -> anyhow::Result<()> {
    let (user, line) = tokio::try_join!(user, line)?;
    let mut user = Counted {
        io: TokioIo::new(user),
        bytes,
    };
    let line = Seen {
        io: TokioIo::new(line),
        exit,
    };
    let mut line = Beating::new(line, dialect);
    switched::carry(&mut user, &mut line, COPY).await?;
    // Who stays longer has it, or is not there.
    tokio::time::timeout(REST, switched::linger(&mut user))
        .await
        .ok();
    Ok(())
}
