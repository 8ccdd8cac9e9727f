//! The answer's way back to the user: its head cleaned, its body counted, a switched protocol copied.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use http::header::{self, HeaderValue};
use hyper::body::Body as _;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use tracing::debug;

use super::Case;
use super::exchange::Answer;
use super::exit::Exit;
use super::farewell::{self, Events};
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
/// How long a user whose session was cut may take to hear why, and to go.
const FAREWELL: Duration = Duration::from_millis(500);

/// A switched protocol on its way.
struct Session {
    /// The user's, and that of the line.
    sides: (OnUpgrade, OnUpgrade),
    dialect: Dialect,
    exit: Option<Exit>,
    code: u16,
}

impl Case {
    pub(super) fn answer(
        &self,
        response: http::Response<Answer>,
        outgoing: &Outgoing,
        running: Running,
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
            let watch = parts.status == StatusCode::OK;
            let events = Events::of(&outgoing.info, &parts.headers).filter(|_| watch);
            let body = Recorded::new(answer, running, code, events);
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
        let session = Session {
            sides: (user_side, line_side),
            dialect: Dialect::of(outgoing.upgrade.map_or("", Upgrade::as_str).as_bytes()),
            exit: Exit::of(&outgoing.info, &parts.headers),
            code,
        };
        // It goes on while the hub drains.
        self.hub.work.spawn(session.run(running));
        Ok(Response::from_parts(parts, Body::empty()))
    }
}

impl Session {
    /// Carries it to its end, or to that of the access that lets it run.
    async fn run(mut self, mut running: Running) {
        let bytes = Arc::new(AtomicU64::new(0));
        let said = self.exit.as_ref().and_then(Exit::beside);
        let mut user = None;
        let counted = (bytes.clone(), said);
        let exit = self.exit.as_mut();
        let copying = copy(self.sides, &mut user, self.dialect, counted, exit);
        let copied = tokio::select! {
            copied = copying => Some(copied),
            () = running.seat.over() => None,
        };
        let exit = self.exit.and_then(|exit| exit.code());
        running.opened.exited(exit);
        let (code, bytes) = (self.code, bytes.load(Ordering::Relaxed));
        let error = match copied {
            None => {
                let request_id = running.opened.request_id().to_owned();
                let why = running.cut(bytes);
                return part(user, &why, &request_id).await;
            }
            Some(Ok(())) => return running.close(code, bytes),
            Some(Err(error)) => error,
        };
        debug!(error = format!("{error:#}"), "switched protocol broke");
        let io = error.downcast_ref::<std::io::Error>();
        match io.and_then(refusal::session_broken) {
            Some(why) => running.broke(why, code, bytes),
            None => running.close(code, bytes),
        }
    }
}

type User = Counted<TokioIo<Upgraded>>;

/// Says to a user whose session was cut why, where that has a place. Whoever does not take it is left without it.
async fn part(user: Option<User>, why: &str, request_id: &str) {
    let takes = |user: &User| user.said.as_ref().is_some_and(Exit::takes_a_word);
    let Some(mut user) = user.filter(takes) else {
        return;
    };
    let status = refusal::cut_off(why).status(request_id);
    let parting = async {
        user.write_all(&farewell::frames(&status, why)).await?;
        user.shutdown().await?;
        // What lies unread at the end of a connection resets it, and takes what was said with it.
        switched::linger(&mut user).await;
        anyhow::Ok(())
    };
    // What does not arrive is not missed: the record has it.
    drop(tokio::time::timeout(FAREWELL, parting).await);
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

/// Leaves the user's side in `kept` for whoever ends it in its middle.
async fn copy(
    (user, line): (OnUpgrade, OnUpgrade),
    kept: &mut Option<User>,
    dialect: Dialect,
    (bytes, said): (Arc<AtomicU64>, Option<Exit>),
    exit: Option<&mut Exit>,
) -> anyhow::Result<()> {
    let (user, line) = tokio::try_join!(user, line)?;
    let user = kept.insert(Counted {
        io: TokioIo::new(user),
        bytes,
        said,
    });
    let line = Seen {
        io: TokioIo::new(line),
        exit,
    };
    let mut line = Beating::new(line, dialect);
    switched::carry(user, &mut line, COPY).await?;
    // Who stays longer has it, or is not there.
    tokio::time::timeout(REST, switched::linger(user))
        .await
        .ok();
    Ok(())
}
