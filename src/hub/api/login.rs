//! Logging in: pages for the browser that goes to the identity provider, calls for the program that waits, and for one that has a
//! code from an admin.

use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use http::request::Parts;

use super::problem::{Problem, Slug};
use super::strangers::StrangersBody;
use crate::clock;
use crate::hub::Hub;
use crate::hub::login::pending::{self, Polled};
use crate::hub::login::{self, Attempt, From, LoginError, session};
use crate::hub::oidc::Provider;
use crate::hub::store::patience;
use crate::keys;
use crate::wire::api::{DeviceLogin, EndSession, SessionAnswer, TokenRequest};

mod browser;
mod page;

pub fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/login", get(browser::begin))
        .route("/login/callback", get(browser::callback))
        .route("/device", get(browser::ask_code).post(browser::take_code))
        .route("/v1/login/device", post(device))
        .route("/v1/login/token", post(token))
        .route("/v1/login/end", post(end))
}

impl FromRequestParts<Arc<Hub>> for From {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        _hub: &Arc<Hub>,
    ) -> Result<Self, Self::Rejection> {
        Ok(Self {
            remote: super::remote(parts),
            request_id: super::request_id(parts),
        })
    }
}

fn provider(hub: &Hub) -> Result<&Provider, Problem> {
    hub.oidc.as_ref().ok_or_else(|| {
        Problem::new(
            Slug::NotFound,
            "this hub has no identity provider",
            "log in with a token or a code that an admin made: linesman login HUB --token-file FILE, or --code-file FILE; or start the hub with --oidc-issuer",
        )
    })
}

impl std::convert::From<LoginError> for Problem {
    fn from(error: LoginError) -> Self {
        let (why, next) = error.words();
        match error {
            LoginError::Refused { .. } => Self::new(Slug::SessionEnded, why, next),
            LoginError::Code => Self::new(Slug::ExpiredToken, why, next),
            LoginError::TooMany(_, wait) => {
                Self::new(Slug::Busy, why, next).retry_after(login::seconds(wait))
            }
            LoginError::Stopping => Self::new(Slug::Unavailable, why, next).retry_after(1),
            LoginError::Provider(e) if e.is_final() => Self::new(Slug::SessionEnded, why, next),
            LoginError::NoProvider => Self::new(Slug::ProviderUnavailable, why, next),
            LoginError::Provider(_) => {
                tracing::warn!(why, "the identity provider could not be asked");
                Self::new(Slug::ProviderUnavailable, why, next)
            }
            LoginError::Store(error) => error.into(),
            LoginError::Audit(error) => error.into(),
        }
    }
}

async fn device(State(hub): State<Arc<Hub>>, from: From) -> Result<Json<DeviceLogin>, Problem> {
    provider(&hub)?;
    login::may_begin(&hub, "device", &from).await?;
    let code = keys::encode(&clock::random::<32>());
    let hash = keys::sha256(code.as_bytes());
    let user_code = login::pending(&hub)
        .device(hash, clock::random(), from.remote, clock::now())
        .await?;
    let verification_uri = format!("{}/device", hub.config.url);
    Ok(Json(DeviceLogin {
        verification_uri_complete: format!("{verification_uri}?code={user_code}"),
        device_code: code,
        user_code,
        verification_uri,
        expires_in: u32::try_from(pending::LOGIN.whole_seconds()).unwrap_or_default(),
        interval: u32::try_from(pending::INTERVAL).unwrap_or_default(),
    }))
}

async fn token(
    State(hub): State<Arc<Hub>>,
    from: From,
    StrangersBody(asked): StrangersBody<TokenRequest>,
) -> Result<Json<SessionAnswer>, Problem> {
    login::may_try(&hub, Attempt::Tokens, &from).await?;
    let own = hub.clone();
    // Tokens rotate at both ends: what was begun is finished, although the caller went away.
    let work = hub.work.spawn(patience::carried(async move {
        let given = give(&own, asked, &from).await;
        if !given.as_ref().is_err_and(counts) {
            login::went_well(&own, Attempt::Tokens, &from);
        }
        given
    }));
    work.await
        .map_err(|e| anyhow::Error::from(e).context("give a session's tokens"))?
        .map(Json)
}

/// Whether it is the caller's fault that there are no tokens.
fn counts(refused: &Problem) -> bool {
    matches!(
        refused.slug,
        Slug::SessionEnded
            | Slug::ExpiredToken
            | Slug::AccessDenied
            | Slug::SlowDown
            | Slug::NotFound
    )
}

async fn give(hub: &Hub, asked: TokenRequest, from: &From) -> Result<SessionAnswer, Problem> {
    let ready = match asked {
        TokenRequest::Refresh { refresh_token } => {
            return Ok(session::refresh(hub, &refresh_token, from).await?);
        }
        TokenRequest::LoginCode { login_code } => {
            return Ok(session::by_code(hub, &login_code, from).await?);
        }
        TokenRequest::Code { code, verifier } => {
            provider(hub)?;
            let found = login::pending(hub).fetch(&code, &verifier, clock::now());
            found.await?.ok_or_else(|| {
                expired("the login's code is unknown, was used or is older than a minute")
            })?
        }
        TokenRequest::Device { device_code } => {
            provider(hub)?;
            let polled = login::pending(hub).poll(&device_code, clock::now());
            match polled.await? {
                Polled::Ready(ready) => ready,
                Polled::Pending => {
                    let what = "nobody has typed the code yet";
                    return Err(Problem::new(Slug::AuthorizationPending, what, "ask again"));
                }
                Polled::SlowDown => {
                    let what = "that was too early";
                    return Err(Problem::new(
                        Slug::SlowDown,
                        what,
                        "wait five seconds longer each time",
                    ));
                }
                Polled::Denied(why) => {
                    return Err(Problem::new(Slug::AccessDenied, why, "log in again"));
                }
                Polled::Expired => {
                    return Err(expired(
                        "the device's code is unknown, was used or has expired",
                    ));
                }
            }
        }
    };
    Ok(session::open(hub, ready, from).await?)
}

fn expired(what: &str) -> Problem {
    Problem::new(
        Slug::ExpiredToken,
        what,
        "begin again, with: linesman login",
    )
}

/// Says nothing about whether the token was known.
async fn end(
    State(hub): State<Arc<Hub>>,
    from: From,
    StrangersBody(asked): StrangersBody<EndSession>,
) -> Result<StatusCode, Problem> {
    login::may_try(&hub, Attempt::End, &from).await?;
    let ended = session::log_out(&hub, &asked.refresh_token, &from).await;
    if !matches!(ended, Ok(false)) {
        login::went_well(&hub, Attempt::End, &from);
    }
    ended?;
    Ok(StatusCode::NO_CONTENT)
}
