//! The way back: the answer's head, and the protocol that an exchange was switched to.

use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use tracing::debug;

use super::{Exchange, Shared};
use crate::agent::forward::running::over;
use crate::agent::forward::upstream::{Body, full};
use crate::agent::gate::Running;
use crate::kubeapi::headers;
use crate::kubeapi::path::{RequestInfo, terminal};
use crate::kubeapi::status::{Hop, Refusal};
use crate::tunnel::switched::{self, Ahead, Dialect, Eager};

/// Of each way of a switched protocol, in bytes.
const BUFFER: usize = 16 << 10;

/// When what a session says is taken from the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// As soon as it is there: a command has ended long before a slow user has read what it said, and the API server's next ping
    /// to the kubelet, which is done with it, costs what lies between those two (kubernetes/kubernetes#60140).
    AtOnce,
    /// As the user takes it: a Ctrl-C at a terminal is not to be followed by what was read ahead.
    AsTaken,
}

impl Output {
    pub(super) fn of(info: &RequestInfo, query: Option<&str>) -> Self {
        let runs = matches!(info.subresource.as_str(), "exec" | "attach");
        if runs && !terminal(query) {
            Self::AtOnce
        } else {
            Self::AsTaken
        }
    }
}

/// The answer's head without what is of this connection; a switched protocol is copied from here on.
pub(super) fn finish(
    shared: &Shared,
    exchange: &Exchange,
    (runs, output): (&Running, Output),
    mut response: Response<Body>,
    user_side: &mut Option<OnUpgrade>,
) -> Response<Body> {
    let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let protocol = response.headers().get(header::UPGRADE).cloned();
    let proxied = runs.info.subresource == "proxy" || runs.info.verb == "proxy";
    let kept = headers::clean_response(response.headers(), proxied);
    *response.headers_mut() = kept;
    let server_side = response.extensions_mut().remove::<OnUpgrade>();
    if !switched {
        return response;
    }
    let (Some(server_side), Some(protocol), Some(user_side)) =
        (server_side, protocol, user_side.take())
    else {
        let what = "a switch of protocol that nobody asked for";
        return Refusal::new(Hop::ApiServer, StatusCode::BAD_GATEWAY, "BadAnswer", what)
            .next("check what stands between the agent and its API server")
            .response(&exchange.meta.id)
            .map(full);
    };
    let cancelled = exchange.cancelled.clone();
    let (over, ahead) = (over(runs.clone(), shared), shared.ahead.clone());
    let dialect = Dialect::of(protocol.as_bytes());
    response
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(header::UPGRADE, protocol);
    shared.switched.spawn(async move {
        tokio::select! {
            ended = copy((user_side, server_side), ahead, dialect, output) => match ended {
                Ok((to, from)) => debug!(to, from, "switched protocol ended"),
                Err(error) => debug!(error = format!("{error:#}"), "switched protocol broke"),
            },
            () = cancelled.cancelled() => debug!("switched protocol cancelled"),
            () = over => {}
        }
    });
    response
}

/// Says goodbye where no protocol was switched: hyper leaves the stream to whoever asked for the switch, and
/// one that is dropped as it is takes the answer with it.
pub(super) async fn end(user_side: OnUpgrade) {
    if let Ok(stream) = user_side.await
        && let Err(error) = TokioIo::new(stream).shutdown().await
    {
        debug!(%error, "end of a refused switch");
    }
}

async fn copy(
    (user, server): (OnUpgrade, OnUpgrade),
    ahead: Ahead,
    dialect: Dialect,
    output: Output,
) -> anyhow::Result<(u64, u64)> {
    let (user, server) = tokio::try_join!(user, server)?;
    let mut user = TokioIo::new(user);
    let mut server = Eager::new(TokioIo::new(server), ahead, dialect);
    Ok(match output {
        Output::AtOnce => switched::carry_ahead(&mut user, &mut server, BUFFER).await?,
        Output::AsTaken => switched::carry(&mut user, &mut server, BUFFER).await?,
    })
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::kubeapi::path::classify;

    /// A Ctrl-C at a terminal is not followed by megabytes.
    #[test]
    fn the_output_of_a_command_is_read_ahead_where_nobody_sits_at_a_terminal() {
        for (call, query, expected) in [
            ("exec", "command=cat&stdout=true", Output::AtOnce),
            (
                "exec",
                "command=sh&stdin=true&stdout=true&tty=false",
                Output::AtOnce,
            ),
            ("attach", "stdout=1", Output::AtOnce),
            (
                "exec",
                "command=sh&stdin=true&stdout=true&tty=true",
                Output::AsTaken,
            ),
            ("exec", "tty&stdout=true", Output::AsTaken),
            ("exec", "%74ty=1", Output::AsTaken),
            ("attach", "tty=true", Output::AsTaken),
            ("portforward", "ports=80", Output::AsTaken),
            ("proxy", "", Output::AsTaken),
        ] {
            let path = format!("/api/v1/namespaces/a/pods/b/{call}");
            let info = classify(&Method::GET, &path, Some(query)).unwrap();
            assert_eq!(Output::of(&info, Some(query)), expected, "{call}?{query}");
        }
    }
}
