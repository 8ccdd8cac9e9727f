//! Which headers cross: the same rules at the hub and, once more, at the agent. What is not removed is
//! passed, repeats in order.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, StatusCode, Uri};
use hyper::body::Body;

use super::path::Upgrade;
use super::status::{Hop, Refusal};

/// Why a request's head is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error(
        "the request carries '{0}' (kubectl --as): acting as someone else needs a grant that maps it"
    )]
    Impersonation(String),
    #[error("{0}")]
    Framing(&'static str),
    #[error("a switch to the protocol '{0}' is not passed on")]
    Upgrade(String),
}

impl HeaderError {
    pub fn refusal(&self, hop: Hop) -> Refusal {
        match self {
            Self::Impersonation(_) => Refusal::new(
                hop,
                StatusCode::FORBIDDEN,
                "Impersonation",
                self.to_string(),
            )
            .next("leave out --as, --as-group and --as-uid"),
            Self::Framing(_) => {
                Refusal::new(hop, StatusCode::BAD_REQUEST, "Framing", self.to_string())
                    .next("send one well-formed HTTP request")
                    .close()
            }
            Self::Upgrade(_) => {
                Refusal::new(hop, StatusCode::BAD_REQUEST, "Upgrade", self.to_string())
                    .next("use WebSocket, or SPDY/3.1 for exec, attach, port-forward and proxy")
                    .close()
            }
        }
    }
}

/// Removed from a request: credentials, identities, origin, and what a proxy in front could have set.
/// Compared with `_` read as `-`, for servers that do the same.
const REQUEST: [&str; 9] = [
    "authorization",
    "cookie",
    "forwarded",
    "x-real-ip",
    "audit-id",
    "origin",
    "referer",
    "host",
    super::trace::TRACEPARENT,
];
const REQUEST_PREFIXES: [&str; 4] = ["impersonate-", "x-remote-", "x-forwarded-", "proxy-"];
/// How a subprotocol begins by which a browser gives the API server a bearer token, for want of `Authorization`
/// (k8s.io/apiserver/pkg/authentication/request/websocket/protocol.go). An API server that refuses the line's own token would ask it next.
const TOKEN_PROTOCOL: &[u8] = b"base64url.bearer.authorization.k8s.io.";

/// Of this connection only (RFC 9110 7.6.1), and `Expect`, which each hop answers itself.
const HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
    "proxy-connection",
];

/// Removed from a response: what would act on the hub's own origin, and what the agent alone says to the hub.
const RESPONSE: [&str; 11] = [
    super::status::REFUSED,
    "set-cookie",
    "set-cookie2",
    "clear-site-data",
    "strict-transport-security",
    "alt-svc",
    // Leads elsewhere as `Location` does, with any code.
    "refresh",
    "service-worker-allowed",
    "nel",
    "report-to",
    "reporting-endpoints",
];
const RESPONSE_PREFIXES: [&str; 1] = ["access-control-"];

fn plain(name: &HeaderName) -> String {
    name.as_str().replace('_', "-")
}

/// The headers that go on, where nobody may ask to act as someone else; ours are added after this.
pub fn clean_request(headers: &HeaderMap) -> Result<HeaderMap, HeaderError> {
    let mut names = headers.keys();
    if let Some(name) = names.find(|name| plain(name).starts_with("impersonate-")) {
        return Err(HeaderError::Impersonation(name.to_string()));
    }
    Ok(cleaned(headers))
}

/// The headers that go on; whom they ask to act as ([`super::acting::asked`]) does not.
pub fn cleaned(headers: &HeaderMap) -> HeaderMap {
    let named = named_by_connection(headers);
    let keep = |plain: &String| {
        !HOP.contains(&plain.as_str())
            && !REQUEST.contains(&plain.as_str())
            && !REQUEST_PREFIXES
                .iter()
                .any(|prefix| plain.starts_with(prefix))
            && !named.contains(plain)
    };
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let plain = plain(name);
        if !keep(&plain) {
            continue;
        }
        let value = match plain.as_str() {
            "sec-websocket-protocol" => without_tokens(value),
            _ => Some(value.clone()),
        };
        if let Some(value) = value {
            kept.append(name.clone(), value);
        }
    }
    kept
}

/// The subprotocols that are offered, but for tokens; as they were sent where none is one.
fn without_tokens(offered: &HeaderValue) -> Option<HeaderValue> {
    let is_token = |word: &[u8]| {
        let begins = word.trim_ascii().get(..TOKEN_PROTOCOL.len());
        begins.is_some_and(|begins| begins.eq_ignore_ascii_case(TOKEN_PROTOCOL))
    };
    let words = || offered.as_bytes().split(|byte| *byte == b',');
    if !words().any(is_token) {
        return Some(offered.clone());
    }
    let rest: Vec<&[u8]> = words().filter(|word| !is_token(word)).collect();
    let rest = HeaderValue::from_bytes(&rest.join(&b','));
    rest.ok().filter(|rest| !rest.is_empty())
}

/// The answer's headers that reach the user. `proxied` = whether it came from behind `/proxy/`: a page from there
/// must not act on the hub's origin.
pub fn clean_response(headers: &HeaderMap, proxied: bool) -> HeaderMap {
    let named = named_by_connection(headers);
    let keep = |name: &HeaderName| {
        let name = name.as_str();
        !HOP.contains(&name)
            && !RESPONSE.contains(&name)
            && !RESPONSE_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix))
            && !named.iter().any(|n| n == name)
    };
    let mut kept = filtered(headers, keep);
    kept.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    if proxied {
        // Whatever type it says: of several a browser takes one, and it runs the scripts of any XML. To what is no page it
        // means nothing.
        kept.insert(
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("sandbox"),
        );
    }
    kept
}

fn filtered(headers: &HeaderMap, keep: impl Fn(&HeaderName) -> bool) -> HeaderMap {
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        if keep(name) {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

/// The names that `Connection` lists: they belong to this hop too.
pub(super) fn named_by_connection(headers: &HeaderMap) -> Vec<String> {
    // A length is needed on the way even where someone lists it.
    let never = ["content-length", "content-type"];
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|token| token.trim().to_ascii_lowercase().replace('_', "-"))
        .filter(|token| !token.is_empty() && !never.contains(&token.as_str()))
        .collect()
}

/// The protocol that the request asks to switch to.
pub fn upgrade(headers: &HeaderMap) -> Result<Option<Upgrade>, HeaderError> {
    let mut values = headers.get_all(header::UPGRADE).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or("?").trim();
    let asked = named_by_connection(headers)
        .iter()
        .any(|token| token == "upgrade");
    let known = match text.to_ascii_lowercase().as_str() {
        "websocket" => Some(Upgrade::WebSocket),
        "spdy/3.1" => Some(Upgrade::Spdy),
        _ => None,
    };
    match known {
        Some(upgrade) if asked && values.next().is_none() => Ok(Some(upgrade)),
        _ => Err(HeaderError::Upgrade(text.chars().take(40).collect())),
    }
}

/// Adds what an allowed switch of protocol needs, after the cleaning.
pub fn set_upgrade(headers: &mut HeaderMap, upgrade: Upgrade) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(upgrade.as_str()));
}

/// Says that the body comes in chunks where nobody knows its length: hyper leaves such a body of a GET or HEAD out, and what
/// arrives would be another request.
pub fn set_chunked<B: Body>(request: &mut Request<B>) {
    let body = request.body();
    let unknown = !body.is_end_stream() && body.size_hint().exact().is_none();
    let headers = request.headers_mut();
    if unknown
        && !headers.contains_key(header::CONTENT_LENGTH)
        && !headers.contains_key(header::UPGRADE)
    {
        let chunked = HeaderValue::from_static("chunked");
        headers.insert(header::TRANSFER_ENCODING, chunked);
    }
}

/// Refuses heads of which two servers could see two different requests. What hyper refuses before (NUL,
/// folded lines, a space before the colon, lengths that differ) does not come here.
pub fn framing(uri: &Uri, headers: &HeaderMap) -> Result<(), HeaderError> {
    let count = |name: HeaderName| headers.get_all(name).iter().count();
    if count(header::CONTENT_LENGTH) > 1 {
        return Err(HeaderError::Framing("more than one Content-Length"));
    }
    if count(header::TRANSFER_ENCODING) > 0 {
        if count(header::CONTENT_LENGTH) > 0 {
            return Err(HeaderError::Framing(
                "both Content-Length and Transfer-Encoding",
            ));
        }
        let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
        let chunked = codings
            .next()
            .is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"chunked"));
        if !chunked || codings.next().is_some() {
            return Err(HeaderError::Framing(
                "a Transfer-Encoding other than chunked",
            ));
        }
    }
    if count(header::HOST) > 1 {
        return Err(HeaderError::Framing("more than one Host"));
    }
    if let (Some(authority), Some(host)) = (uri.authority(), headers.get(header::HOST))
        && !host
            .as_bytes()
            .eq_ignore_ascii_case(authority.as_str().as_bytes())
    {
        return Err(HeaderError::Framing("an authority unlike Host"));
    }
    Ok(())
}

/// `Location` of an answer under the cluster's prefix; `None` = off-site, unreadable, or one that a client could resolve to
/// somewhere above the prefix, which is another cluster: dropped.
pub fn location(value: &HeaderValue, prefix: &str) -> Option<HeaderValue> {
    let text = value.to_str().ok()?;
    let path = text.split(['?', '#']).next().unwrap_or_default();
    // Clients take out tabs, and read `%2e` as a dot and a backslash as a slash.
    let plain = path.to_ascii_lowercase().replace("%2e", ".");
    let odd = plain.starts_with("//") || plain.contains(['\\', '\t']);
    let dots = |segment: &str| segment == "." || segment == "..";
    if !plain.starts_with('/') || odd || plain.split('/').any(dots) {
        return None;
    }
    HeaderValue::from_str(&format!("{prefix}{text}")).ok()
}

#[cfg(test)]
mod tests;
