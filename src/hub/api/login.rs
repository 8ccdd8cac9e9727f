//! Logging in with the identity provider: pages for the browser, calls for the program that waits.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query, State};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Form, Json, Router};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use serde::Deserialize;

use super::UserBody;
use super::problem::{Problem, Slug};
use crate::clock;
use crate::hub::Hub;
use crate::hub::login::pending::{self, Goal, Polled, Wrong};
use crate::hub::login::{self, Answer, Came, From, LoginError, session};
use crate::hub::oidc::Provider;
use crate::hub::store::patience;
use crate::keys;
use crate::wire::api::{DeviceLogin, EndSession, SessionAnswer, TokenRequest};

mod page;

use page::Page;

const COOKIE: &str = "__Host-linesman-login";

pub fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/login", get(begin))
        .route("/login/callback", get(callback))
        .route("/device", get(ask_code).post(take_code))
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
            "log in with a token: linesman login HUB --token-file FILE; or start the hub with --oidc-issuer",
        )
    })
}

impl std::convert::From<LoginError> for Problem {
    fn from(error: LoginError) -> Self {
        let (why, next) = error.words();
        match error {
            LoginError::Refused { .. } => Self::new(Slug::SessionEnded, why, next),
            LoginError::Provider(e) if e.is_final() => Self::new(Slug::SessionEnded, why, next),
            LoginError::Provider(_) => {
                tracing::warn!(why, "the identity provider could not be asked");
                Self::new(Slug::ProviderUnavailable, why, next)
            }
            LoginError::Store(error) => error.into(),
            LoginError::Audit(error) => error.into(),
        }
    }
}

/// The value of the cookie by which a browser is known again; a new one where there is none.
fn browser(headers: &HeaderMap) -> (String, bool) {
    let cookies = headers.get_all(header::COOKIE);
    let known = cookies
        .iter()
        .filter_map(|v| v.to_str().ok())
        .find_map(|line| {
            let value = line
                .split(';')
                .find_map(|c| c.trim().strip_prefix(COOKIE)?.strip_prefix('='))?;
            (value.len() == 43 && keys::decode(value).is_some()).then(|| value.to_owned())
        });
    match known {
        Some(value) => (value, true),
        None => (keys::encode(&clock::random::<32>()), false),
    }
}

/// Sends the browser to the provider, and marks it.
async fn to_provider(hub: &Hub, headers: &HeaderMap, goal: Goal) -> Result<Response, Problem> {
    let provider = provider(hub)?;
    let (value, _) = browser(headers);
    let begun = login::begin(hub, provider, keys::sha256(value.as_bytes()), goal).await;
    let url = begun.map_err(|e| Problem::from(LoginError::from(e)))?;
    let cookie = format!("{COOKIE}={value}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=600");
    let mut response = page::redirect(&url);
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

#[derive(Deserialize)]
struct Begin {
    redirect: String,
    challenge: String,
    state: String,
}

async fn begin(
    State(hub): State<Arc<Hub>>,
    headers: HeaderMap,
    query: Result<Query<Begin>, QueryRejection>,
) -> Response {
    let goal = query.ok().and_then(|Query(asked)| {
        let plain = |text: &str, least| {
            text.len() >= least && text.len() <= 128 && keys::decode(text).is_some()
        };
        let fits =
            is_loopback(&asked.redirect) && plain(&asked.challenge, 43) && plain(&asked.state, 16);
        fits.then_some(Goal::Loopback {
            redirect: asked.redirect,
            challenge: asked.challenge,
            state: asked.state,
        })
    });
    let Some(goal) = goal else {
        return Page::refused(
            "This address is opened by a program",
            "Logging in begins in a terminal.",
            "run: linesman login HUB",
        )
        .response(StatusCode::BAD_REQUEST);
    };
    match to_provider(&hub, &headers, goal).await {
        Ok(response) => response,
        Err(problem) => page::of_problem(&problem),
    }
}

/// A listener of the program that asks, on the person's own machine (RFC 8252 §7.3): anything else would carry the
/// session away.
fn is_loopback(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else {
        return false;
    };
    let authority = uri
        .authority()
        .map(http::uri::Authority::as_str)
        .unwrap_or_default();
    uri.scheme_str() == Some("http")
        && matches!(uri.host(), Some("127.0.0.1" | "[::1]"))
        && uri.port_u16().is_some_and(|p| p > 0)
        && !authority.contains('@')
        && uri.query().is_none()
        && url.len() <= 200
}

#[derive(Deserialize)]
struct Returned {
    #[serde(default)]
    state: String,
    code: Option<String>,
    iss: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
}

async fn callback(
    State(hub): State<Arc<Hub>>,
    headers: HeaderMap,
    from: From,
    Query(returned): Query<Returned>,
) -> Response {
    if let Err(problem) = provider(&hub) {
        return page::of_problem(&problem);
    }
    let (value, _) = browser(&headers);
    let answer = Answer {
        state: returned.state,
        code: returned.code,
        issuer: returned.iss,
        error: returned.error.map(|error| {
            let more = returned.error_description.unwrap_or_default();
            format!("{error} {more}")
        }),
    };
    // A browser that goes away must not leave the code spent and nothing on record.
    let own = hub.clone();
    let work = hub.work.spawn(patience::carried(async move {
        let Some(provider) = &own.oidc else {
            return None;
        };
        Some(
            login::come_back(
                &own,
                provider,
                answer,
                keys::sha256(value.as_bytes()),
                &from,
            )
            .await,
        )
    }));
    match work.await {
        Ok(Some(Came::Loopback(url))) => page::redirect(&url),
        Ok(Some(Came::Device { user })) => Page::new(
            "You are logged in",
            &format!("The device goes on as {user}. You can close this window."),
        )
        .response(StatusCode::OK),
        Ok(Some(Came::Refused { why, next })) => {
            Page::refused("The login failed", &why, &next).response(StatusCode::FORBIDDEN)
        }
        Ok(None) | Err(_) => Page::refused(
            "The login failed",
            "The hub failed.",
            "look at the hub's log",
        )
        .response(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

#[derive(Default, Deserialize)]
struct Typed {
    #[serde(default)]
    code: String,
}

async fn ask_code(State(hub): State<Arc<Hub>>, Query(typed): Query<Typed>) -> Response {
    if let Err(problem) = provider(&hub) {
        return page::of_problem(&problem);
    }
    page::device(&typed.code, "").response(StatusCode::OK)
}

async fn take_code(
    State(hub): State<Arc<Hub>>,
    headers: HeaderMap,
    Form(typed): Form<Typed>,
) -> Response {
    if !is_own(&headers, &hub.config.url) {
        let why = "The form was not sent from this hub's own page.";
        return Page::refused(
            "The login failed",
            why,
            "open the address that your device shows",
        )
        .response(StatusCode::FORBIDDEN);
    }
    let found = hub.logins.pending().by_user_code(&typed.code, clock::now());
    let hash = match found {
        Ok((hash, _)) => hash,
        Err(Wrong::Unknown) => {
            return page::device(
                "",
                "No device waits with this code. Compare it with your terminal.",
            )
            .response(StatusCode::NOT_FOUND);
        }
        Err(Wrong::TooMany) => {
            return page::device(
                "",
                "Too many wrong codes were typed. Try again in a minute.",
            )
            .response(StatusCode::TOO_MANY_REQUESTS);
        }
    };
    match to_provider(&hub, &headers, Goal::Device(hash)).await {
        Ok(response) => response,
        Err(problem) => page::of_problem(&problem),
    }
}

/// Whether a form comes from our own page, by what browsers add and pages cannot change.
fn is_own(headers: &HeaderMap, url: &str) -> bool {
    let text = |name: header::HeaderName| headers.get(name).and_then(|v| v.to_str().ok());
    let site = text(header::HeaderName::from_static("sec-fetch-site"));
    if site.is_some_and(|site| site != "same-origin") {
        return false;
    }
    let Ok(own) = url.parse::<Uri>() else {
        return false;
    };
    let own = format!("https://{}", own.authority().map_or("", |a| a.as_str()));
    match text(header::ORIGIN) {
        Some(origin) => origin == own,
        None => site.is_some(),
    }
}

async fn device(State(hub): State<Arc<Hub>>, from: From) -> Result<Json<DeviceLogin>, Problem> {
    provider(&hub)?;
    let code = keys::encode(&clock::random::<32>());
    let hash = keys::sha256(code.as_bytes());
    let user_code = hub
        .logins
        .pending()
        .device(hash, clock::random(), from.remote, clock::now());
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
    UserBody(asked): UserBody<TokenRequest>,
) -> Result<Json<SessionAnswer>, Problem> {
    provider(&hub)?;
    let own = hub.clone();
    // Tokens rotate at both ends: what was begun is finished, although the caller went away.
    let work = hub.work.spawn(patience::carried(
        async move { give(&own, asked, &from).await },
    ));
    work.await
        .map_err(|e| anyhow::Error::from(e).context("give a session's tokens"))?
        .map(Json)
}

async fn give(hub: &Hub, asked: TokenRequest, from: &From) -> Result<SessionAnswer, Problem> {
    let provider = provider(hub)?;
    let ready = match asked {
        TokenRequest::Refresh { refresh_token } => {
            return Ok(session::refresh(hub, provider, &refresh_token, from).await?);
        }
        TokenRequest::Code { code, verifier } => {
            let found = hub.logins.pending().fetch(&code, &verifier, clock::now());
            found.ok_or_else(|| {
                expired("the login's code is unknown, was used or is older than a minute")
            })?
        }
        TokenRequest::Device { device_code } => {
            let polled = hub.logins.pending().poll(&device_code, clock::now());
            match polled {
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
    Ok(session::open(hub, provider.config.sessions, ready, from).await?)
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
    UserBody(asked): UserBody<EndSession>,
) -> Result<StatusCode, Problem> {
    let provider = provider(&hub)?;
    session::log_out(&hub, provider, &asked.refresh_token, &from).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_goes_to_a_listener_on_the_same_machine_only() {
        for (url, fits) in [
            ("http://127.0.0.1:4000/done", true),
            ("http://[::1]:4000/", true),
            ("http://127.0.0.1/", false),
            ("http://127.0.0.1:0/", false),
            ("https://127.0.0.1:4000/", false),
            ("http://localhost:4000/", false),
            ("http://127.0.0.1:4000@evil.example/", false),
            ("http://x@127.0.0.1:4000/", false),
            ("http://127.0.0.1.evil.example:4000/", false),
            ("http://evil.example:4000/", false),
            ("http://127.0.0.1:4000/?x=1", false),
            ("//127.0.0.1:4000/", false),
        ] {
            assert_eq!(is_loopback(url), fits, "{url}");
        }
    }

    #[test]
    fn the_device_form_is_taken_from_our_own_page_only() {
        let own = "https://hub.example:8443/prefix";
        for (origin, site, fits) in [
            (Some("https://hub.example:8443"), None, true),
            (Some("https://hub.example:8443"), Some("same-origin"), true),
            (None, Some("same-origin"), true),
            (None, None, false),
            (Some("https://evil.example"), None, false),
            (Some("null"), None, false),
            (Some("https://hub.example:8443"), Some("cross-site"), false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(origin) = origin {
                headers.insert("origin", HeaderValue::from_static(origin));
            }
            if let Some(site) = site {
                headers.insert("sec-fetch-site", HeaderValue::from_static(site));
            }
            assert_eq!(is_own(&headers, own), fits, "{origin:?} {site:?}");
        }
    }

    #[test]
    fn a_browser_is_known_by_its_cookie() {
        let mut headers = HeaderMap::new();
        let value = keys::encode(&[7; 32]);
        let cookie = format!("a=b; {COOKIE}={value}; c=d");
        headers.insert("cookie", cookie.parse().unwrap());
        assert_eq!(browser(&headers), (value, true));
        headers.insert("cookie", format!("{COOKIE}=short").parse().unwrap());
        assert!(!browser(&headers).1);
    }
}
