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
use crate::kubeapi::status::{Hop, Refusal};
use crate::tunnel::switched::{self, Ahead, Dialect, Eager};

/// The answer's head without what is of this connection; a switched protocol is copied from here on.
pub(super) fn finish(
    shared: &Shared,
    exchange: &Exchange,
    runs: &Running,
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
            ended = copy(user_side, server_side, ahead, dialect) => match ended {
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
    user: OnUpgrade,
    server: OnUpgrade,
    ahead: Ahead,
    dialect: Dialect,
) -> anyhow::Result<(u64, u64)> {
    let (user, server) = tokio::try_join!(user, server)?;
    let mut user = TokioIo::new(user);
    let mut server = Eager::new(TokioIo::new(server), ahead, dialect);
    Ok(switched::carry(&mut user, &mut server, 16 << 10).await?)
}
