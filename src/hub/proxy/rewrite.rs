//! A user's request becomes the one that leaves on a stream, and the agent's answer the one that the user
//! sees: headers, prefix, protocol switches. Pure. The path is cut by bytes; nothing is decoded and rebuilt.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request, StatusCode, Uri, response};

use crate::kubeapi::acting::{self, Acting};
use crate::kubeapi::headers;
use crate::kubeapi::path::{self, RequestInfo, Upgrade};
use crate::kubeapi::status::{Hop, Refusal};
use crate::kubeapi::trace::{self, TraceParent};
use crate::wire::id::ClusterName;

const ROOT: &str = "/clusters/";

/// Where a request goes: the cluster that its path names, and the rest of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `None` where no cluster can have that name.
    pub cluster: Option<ClusterName>,
    /// The name as written, for the record.
    pub name: String,
    /// `/clusters/<name>` as written.
    pub prefix: String,
    /// Path and query behind the prefix, the same bytes.
    pub rest: PathAndQuery,
}

/// What is sent on the stream, and what it means.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub method: Method,
    pub rest: PathAndQuery,
    pub headers: HeaderMap,
    pub info: RequestInfo,
    /// Whom the user asks to act as; a grant decides.
    pub acting: Option<Acting>,
    pub upgrade: Option<Upgrade>,
    /// `/clusters/<name>` below the path of the hub's URL, put before an answer's `Location`.
    pub prefix: String,
}

/// Cuts the literal prefix. The name is compared as bytes: an escaped name is no name.
pub fn target(uri: &Uri) -> Option<Target> {
    let whole = uri.path_and_query()?.as_str();
    let behind = whole.strip_prefix(ROOT)?;
    let end = behind.find(['/', '?']).unwrap_or(behind.len());
    let (name, rest) = behind.split_at(end);
    let rest = if rest.starts_with('/') {
        rest.to_owned()
    } else {
        format!("/{rest}")
    };
    Some(Target {
        cluster: name.parse().ok(),
        name: name.chars().take(60).collect(),
        prefix: format!("{ROOT}{name}"),
        rest: rest.parse().ok()?,
    })
}

/// The path of the hub's URL: what stands before a hub that is served below one takes it from a request's target, and no hub sees
/// it. Empty where there is none.
pub fn below(url: &str) -> &str {
    let behind = url.split_once("://").map_or("", |(_, behind)| behind);
    let path = behind.find('/').and_then(|at| behind.get(at..));
    path.unwrap_or_default().trim_end_matches('/')
}

/// Refuses a head that two servers could read differently. Comes before authentication: the connection
/// itself is not to be trusted.
pub fn framing(parts: &Parts) -> Result<(), Refusal> {
    headers::framing(&parts.uri, &parts.headers).map_err(|e| e.refusal(Hop::Hub))
}

/// The request to send to a cluster of a hub that is served [`below`] this path: rules of path, headers and protocol switch applied.
pub fn outgoing(parts: &Parts, target: &Target, below: &str) -> Result<Outgoing, Refusal> {
    let refused = |e: headers::HeaderError| e.refusal(Hop::Hub);
    let acting = acting::asked(&parts.headers).map_err(refused)?;
    let mut kept = headers::cleaned(&parts.headers);
    let info = path::classify(&parts.method, target.rest.path(), target.rest.query())
        .map_err(|e| e.refusal(Hop::Hub))?;
    path::method(&parts.method, Hop::Hub)?;
    let upgrade = headers::upgrade(&parts.headers).map_err(refused)?;
    if let Some(token) = upgrade {
        if !info.may_upgrade(token) {
            return Err(headers::HeaderError::Upgrade(token.as_str().to_owned()).refusal(Hop::Hub));
        }
        headers::set_upgrade(&mut kept, token);
    }
    if TraceParent::of(&parts.headers).is_none() {
        // The trace begins at the hub: what was said of another one is not of it (W3C Trace Context §4.3).
        kept.remove(trace::TRACESTATE);
    }
    kept.insert(header::HOST, HeaderValue::from_static("kubernetes"));
    Ok(Outgoing {
        method: parts.method.clone(),
        rest: target.rest.clone(),
        prefix: format!("{below}{}", target.prefix),
        headers: kept,
        info,
        acting,
        upgrade,
    })
}

impl Outgoing {
    /// The HTTP/1.1 request with this body.
    pub fn request<B>(&self, body: B) -> Request<B> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = Uri::from(self.rest.clone());
        *request.headers_mut() = self.headers.clone();
        request
    }

    /// Whether it may be sent once more: nothing it does can happen twice. Of a session that is not so: its command ran.
    pub fn repeatable(&self) -> bool {
        matches!(self.method, Method::GET | Method::HEAD) && self.upgrade.is_none()
    }

    /// Whether the answer comes from behind a `/proxy/` path, not from the API server itself.
    pub fn proxied(&self) -> bool {
        self.info.subresource == "proxy" || self.info.verb == "proxy"
    }
}

/// The answer's head for the user.
pub fn answer(parts: &mut response::Parts, outgoing: &Outgoing) -> Result<(), Refusal> {
    let switched = parts.status == StatusCode::SWITCHING_PROTOCOLS;
    if switched && outgoing.upgrade.is_none() {
        return Err(bad_answer("a switch of protocol that nobody asked for"));
    }
    if parts.status.is_informational() && !switched {
        return Err(bad_answer("an informational answer as the last one"));
    }
    let mut kept = headers::clean_response(&parts.headers, outgoing.proxied());
    if let Some(value) = kept.remove(header::LOCATION)
        && let Some(local) = headers::location(&value, &outgoing.prefix)
    {
        kept.insert(header::LOCATION, local);
    }
    if switched {
        let asked = outgoing.upgrade.map_or("", Upgrade::as_str);
        let given = parts
            .headers
            .get(header::UPGRADE)
            .map(HeaderValue::as_bytes)
            .unwrap_or_default();
        if !given.eq_ignore_ascii_case(asked.as_bytes()) {
            return Err(bad_answer(
                "a switch to another protocol than was asked for",
            ));
        }
        kept.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        kept.insert(
            header::UPGRADE,
            HeaderValue::from_static(outgoing.upgrade.map_or("", Upgrade::as_str)),
        );
    }
    parts.headers = kept;
    parts.extensions.clear();
    Ok(())
}

fn bad_answer(what: &str) -> Refusal {
    Refusal::new(
        Hop::Agent,
        StatusCode::BAD_GATEWAY,
        "BadAnswer",
        format!("the cluster's side sent {what}"),
    )
    .next("run 'linesman doctor'; the agent or its API server is not to be trusted as it is")
}

#[cfg(test)]
mod tests;
