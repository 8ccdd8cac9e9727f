//! Logging in with a browser on this machine: the outcome comes to a listener on the loopback address (RFC 8252),
//! and only who began it can use it (RFC 7636).

use std::convert::Infallible;
use std::env;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use subtle::ConstantTimeEq as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::cli::exit::{Code, Failure};
use crate::cli::output::progress_line;
use crate::client::Client;
use crate::wire::api::{SessionAnswer, TokenRequest};
use crate::{clock, keys};

/// How long a person has to log in; the hub has the same.
const DEADLINE: Duration = Duration::from_mins(10);
/// How long the browser has to read our last page.
const LINGER: Duration = Duration::from_secs(2);
/// Browsers open some connections on the chance that they need them.
const CONNECTIONS: usize = 16;
const PATH: &str = "/done";

/// Whether a browser could come up.
pub(super) fn has_display() -> bool {
    let set = |name: &str| env::var_os(name).is_some_and(|v| !v.is_empty());
    set("BROWSER")
        || set("DISPLAY")
        || set("WAYLAND_DISPLAY")
        || (cfg!(target_os = "macos") && !set("SSH_CONNECTION"))
}

pub(super) async fn log_in(client: &Client, open: bool) -> Result<SessionAnswer> {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.context("listen on 127.0.0.1 for the browser")?;
    let redirect = format!(
        "http://{}{PATH}",
        listener.local_addr().context("find our own port")?
    );
    let fresh = || keys::encode(&clock::random::<32>());
    let (verifier, state) = (fresh(), fresh());
    let challenge = keys::encode(&keys::sha256(verifier.as_bytes()));
    let url = client.login_url(&redirect, &challenge, &state);
    progress_line(&format!(
        "log in with your browser; if none comes up, open:\n  {url}"
    ));
    if open {
        show(&url);
    }
    let done = welcome(&client.hub());
    let came = timeout(DEADLINE, wait(listener, &state, &done))
        .await
        .map_err(|_| {
            Failure::new(
                Code::Timeout,
                "nobody logged in within 10 minutes",
                "run it again, or with --device for a browser on another machine",
            )
        })?;
    let code = came?.map_err(|(why, next)| Failure::new(Code::Denied, why, next))?;
    let asked = TokenRequest::Code { code, verifier };
    Ok(client.session_token("fetch the session", &asked).await?)
}

/// Opens the person's browser, if that can be; the address is printed in any case.
fn show(url: &str) {
    let named = env::var_os("BROWSER").filter(|b| !b.is_empty());
    let program = named.unwrap_or_else(|| {
        if cfg!(target_os = "macos") {
            "open"
        } else {
            "xdg-open"
        }
        .into()
    });
    let started = Command::new(program)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Err(error) = started {
        tracing::debug!(%error, "no browser could be opened");
    }
}

/// The login's code, or why there is none and what to do next.
type Came = Result<String, (String, String)>;

/// What the browser shows of a login that went well.
fn welcome(hub: &str) -> String {
    format!(
        "You are logged in to {hub}. Go back to your terminal, which goes on by itself; you can close this window. What there is to do \
         next: 'linesman cluster list' shows the clusters, 'linesman kubeconfig NAME --merge' brings one into kubectl."
    )
}

/// `done` is the page of a login that went well.
async fn wait(listener: TcpListener, state: &str, done: &str) -> Result<Came> {
    let (send, mut outcome) = mpsc::channel::<Came>(1);
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            Some(came) = outcome.recv() => {
                // The browser shows our page before we end.
                let _shown = timeout(LINGER, async { while open.join_next().await.is_some() {} }).await;
                return Ok(came);
            }
            Some(_) = open.join_next() => {}
            accepted = listener.accept(), if open.len() < CONNECTIONS => {
                let (socket, _) = accepted.context("listen for the browser")?;
                let (send, state, done) = (send.clone(), state.to_owned(), done.to_owned());
                open.spawn(async move {
                    let answer = service_fn(move |request| {
                        let response = answer(&request, &state, &done, &send);
                        async move { Ok::<_, Infallible>(response) }
                    });
                    let mut server = http1::Builder::new();
                    server.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(30)).keep_alive(false);
                    if let Err(error) = server.serve_connection(TokioIo::new(socket), answer).await {
                        tracing::debug!(%error, "a connection of the browser broke");
                    }
                });
            }
        }
    }
}

fn answer(
    request: &Request<Incoming>,
    state: &str,
    done: &str,
    send: &mpsc::Sender<Came>,
) -> Response<String> {
    if request.uri().path() != PATH {
        return page(StatusCode::NOT_FOUND, "There is nothing here.");
    }
    let Some(came) = read(request.uri(), state) else {
        let text = "This is not the login that your terminal waits for. Begin again there.";
        return page(StatusCode::BAD_REQUEST, text);
    };
    let response = match &came {
        Ok(_) => page(StatusCode::OK, done),
        Err((why, _)) => page(
            StatusCode::FORBIDDEN,
            &format!("The login failed: {why}. Your terminal says more."),
        ),
    };
    // A second answer changes nothing: the first is on its way.
    let _first = send.try_send(came);
    response
}

/// What the hub sends along, if it belongs to our login.
fn read(uri: &Uri, state: &str) -> Option<Came> {
    let query = crate::client::query_pairs(uri.query()?);
    let get = |name: &str| {
        query
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.clone())
    };
    let same: bool = get("state")?.as_bytes().ct_eq(state.as_bytes()).into();
    if !same {
        return None;
    }
    if let Some(code) = get("code") {
        return Some(Ok(code));
    }
    let why = get("error_description").or_else(|| get("error"))?;
    let next = get("next").unwrap_or_else(|| "run it again".to_owned());
    Some(Err((short(&why), short(&next))))
}

/// A text that came by way of the browser, as it may stand in a terminal.
fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(400).collect()
}

fn page(status: StatusCode, text: &str) -> Response<String> {
    let text = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let body = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Linesman</title></head><body><main><h1>Linesman</h1><p>{text}</p></main></body></html>"
    );
    let mut response = Response::new(body);
    *response.status_mut() = status;
    for (name, value) in [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONNECTION, "close"),
    ] {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_to_our_own_login_is_taken() {
        let read = |query: &str| read(&format!("/done?{query}").parse().unwrap(), "s1");
        assert_eq!(read("code=c&state=s1"), Some(Ok("c".to_owned())));
        let no = read("error=access_denied&error_description=she+said%0A+no&next=ask&state=s1");
        assert_eq!(no, Some(Err(("she said no".to_owned(), "ask".to_owned()))));
        for query in ["code=c&state=s2", "code=c", "state=s1", ""] {
            assert_eq!(read(query), None, "{query}");
        }
    }
}
