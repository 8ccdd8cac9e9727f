//! The pages of a login: the way to the provider and back, and the form for a device's code.

use std::sync::Arc;

use axum::Form;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest as _, Query, Request, State};
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use serde::Deserialize;

use super::page::{self, Page};
use super::provider;
use crate::clock;
use crate::hub::Hub;
use crate::hub::api::problem::{Problem, Slug};
use crate::hub::api::strangers::LITTLE;
use crate::hub::login::pending::{Goal, Wrong};
use crate::hub::login::{self, Answer, Came, From};
use crate::hub::store::patience;
use crate::keys;

const COOKIE: &str = "__Host-linesman-login";

#[derive(Deserialize)]
pub(super) struct Begin {
    redirect: String,
    challenge: String,
    state: String,
}

pub(super) async fn begin(
    State(hub): State<Arc<Hub>>,
    from: From,
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
    let begun = async {
        provider(&hub)?;
        login::may_begin(&hub, "browser", &from).await?;
        to_provider(&hub, (&headers, &from.remote), goal).await
    };
    begun
        .await
        .unwrap_or_else(|problem: Problem| page::of_problem(&problem))
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
pub(super) struct Returned {
    #[serde(default)]
    state: String,
    code: Option<String>,
    iss: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
}

pub(super) async fn callback(
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
            &format!(
                "The device goes on as {user} at {}. Go back to its terminal; you can close this window. What there is to do next there: \
                 'linesman cluster list' shows the clusters, 'linesman kubeconfig NAME --merge' brings one into kubectl.",
                hub.config.url
            ),
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
pub(super) struct Typed {
    #[serde(default)]
    code: String,
}

pub(super) async fn ask_code(State(hub): State<Arc<Hub>>, Query(typed): Query<Typed>) -> Response {
    if let Err(problem) = provider(&hub) {
        return page::of_problem(&problem);
    }
    page::device(&typed.code, "").response(StatusCode::OK)
}

/// What can be judged by the head is, before the form is waited for.
pub(super) async fn take_code(
    State(hub): State<Arc<Hub>>,
    from: From,
    request: Request,
) -> Response {
    let headers = request.headers().clone();
    if !is_own(&headers, &hub.config.url) {
        let why = "The form was not sent from this hub's own page.";
        return Page::refused(
            "The login failed",
            why,
            "open the address that your device shows",
        )
        .response(StatusCode::FORBIDDEN);
    }
    if let Err(error) = login::may_begin(&hub, "device", &from).await {
        return page::of_problem(&error.into());
    }
    let typed = match read_form(&hub, &from, request).await {
        Ok(typed) => typed,
        Err(problem) => return page::of_problem(&problem),
    };
    let found = login::pending(&hub)
        .by_user_code(&typed.code, &from.remote, clock::now())
        .await;
    let hash = match found {
        Err(error) => return page::of_problem(&error.into()),
        Ok(Ok((hash, _))) => hash,
        Ok(Err(Wrong::Unknown)) => {
            return page::device(
                "",
                "No device waits with this code. Compare it with your terminal.",
            )
            .response(StatusCode::NOT_FOUND);
        }
        Ok(Err(Wrong::TooMany)) => {
            return page::device(
                "",
                "Too many wrong codes were typed. Try again in a minute.",
            )
            .response(StatusCode::TOO_MANY_REQUESTS);
        }
    };
    match to_provider(&hub, (&headers, &from.remote), Goal::Device(hash)).await {
        Ok(response) => response,
        Err(problem) => page::of_problem(&problem),
    }
}

async fn read_form(hub: &Hub, from: &From, request: Request) -> Result<Typed, Problem> {
    let (parts, content) = request.into_parts();
    let (bytes, _place) = hub.strangers.read(&from.remote, content, LITTLE).await?;
    let whole = Request::from_parts(parts, bytes.into());
    let form = Form::<Typed>::from_request(whole, &()).await;
    form.map(|Form(typed)| typed).map_err(|_| {
        let text = "the form cannot be read";
        Problem::new(
            Slug::BadRequest,
            text,
            "open the address that your device shows",
        )
    })
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
async fn to_provider(
    hub: &Hub,
    (headers, remote): (&HeaderMap, &str),
    goal: Goal,
) -> Result<Response, Problem> {
    let provider = provider(hub)?;
    let (value, _) = browser(headers);
    let begun = login::begin(
        hub,
        provider,
        (keys::sha256(value.as_bytes()), remote),
        goal,
    )
    .await;
    let url = begun.map_err(Problem::from)?;
    let cookie = format!("{COOKIE}={value}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=600");
    let mut response = page::redirect(&url);
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
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
