//! Which headers cross: the same rules at the hub and, once more, at the agent. What is not removed is
//! passed, repeats in order.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, Uri};

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
    "traceparent",
];
const REQUEST_PREFIXES: [&str; 4] = ["impersonate-", "x-remote-", "x-forwarded-", "proxy-"];

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
const RESPONSE: [&str; 5] = [
    super::status::REFUSED,
    "set-cookie",
    "set-cookie2",
    "strict-transport-security",
    "alt-svc",
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
    let keep = |name: &HeaderName| {
        let plain = plain(name);
        !HOP.contains(&plain.as_str())
            && !REQUEST.contains(&plain.as_str())
            && !REQUEST_PREFIXES
                .iter()
                .any(|prefix| plain.starts_with(prefix))
            && !named.contains(&plain)
    };
    filtered(headers, keep)
}

/// The answer's headers that reach the user. `html` = whether it came from behind `/proxy/`: such a page
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
    let html = kept.get(header::CONTENT_TYPE).is_some_and(|value| {
        let value = value.as_bytes().to_ascii_lowercase();
        [
            b"text/html".as_slice(),
            b"application/xhtml",
            b"image/svg",
            b"text/xml",
            b"application/xml",
        ]
        .iter()
        .any(|kind| value.starts_with(kind))
    });
    if proxied && (html || !kept.contains_key(header::CONTENT_TYPE)) {
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

/// `Location` of an answer under the cluster's prefix; `None` = off-site or unreadable, so dropped.
pub fn location(value: &HeaderValue, prefix: &str) -> Option<HeaderValue> {
    let text = value.to_str().ok()?;
    let local = text.starts_with('/') && !text.starts_with("//") && !text.starts_with("/\\");
    if !local {
        return None;
    }
    HeaderValue::from_str(&format!("{prefix}{text}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(rows: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in rows {
            map.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        map
    }

    fn kept(rows: &[(&str, &str)]) -> Vec<String> {
        clean_request(&map(rows))
            .unwrap()
            .iter()
            .map(|(n, v)| format!("{n}: {}", v.to_str().unwrap()))
            .collect()
    }

    #[test]
    fn what_identifies_or_frames_is_removed() {
        let gone = [
            ("Authorization", "Bearer x"),
            ("Cookie", "a=b"),
            ("X-Remote-User", "root"),
            ("X_Remote_Group", "system:masters"),
            ("X-Remote-Extra-Scopes", "a"),
            ("X-Forwarded-For", "1.2.3.4"),
            ("Forwarded", "for=1.2.3.4"),
            ("X-Real-Ip", "1.2.3.4"),
            ("Audit-ID", "mine"),
            ("Origin", "https://evil"),
            ("Referer", "https://evil"),
            ("Proxy-Authorization", "Basic x"),
            ("Proxy-Connection", "close"),
            ("Connection", "keep-alive, X-Drop"),
            ("X-Drop", "1"),
            ("Keep-Alive", "5"),
            ("TE", "trailers"),
            ("Trailer", "X-T"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "websocket"),
            ("Expect", "100-continue"),
            ("Host", "hub"),
            ("Traceparent", "00-x"),
        ];
        for row in gone.into_iter().filter(|row| row.0 != "X-Drop") {
            assert_eq!(kept(&[row]), Vec::<String>::new(), "{row:?}");
        }
        assert_eq!(kept(&gone), Vec::<String>::new());
    }

    #[test]
    fn the_rest_passes_with_repeats_in_order() {
        let rows = [
            ("accept", "application/json"),
            ("accept", "text/plain"),
            ("content-type", "application/apply-patch+yaml"),
            ("content-length", "5"),
            ("if-match", "x"),
            ("sec-websocket-protocol", "v5.channel.k8s.io"),
            ("x-stream-protocol-version", "v4"),
            ("user-agent", "kubectl"),
            ("kubectl-command", "kubectl get"),
        ];
        let expected: Vec<String> = rows.iter().map(|(n, v)| format!("{n}: {v}")).collect();
        assert_eq!(kept(&rows), expected);
    }

    #[test]
    fn content_headers_survive_being_named_in_connection() {
        assert_eq!(
            kept(&[("connection", "content-length"), ("content-length", "5")]),
            ["content-length: 5"]
        );
    }

    #[test]
    fn impersonation_in_any_spelling_is_refused() {
        for rows in [
            vec![("Impersonate-User", "root")],
            vec![("IMPERSONATE-GROUP", "system:masters")],
            vec![("impersonate_user", "root")],
            vec![("Impersonate-Uid", "1"), ("Impersonate-Uid", "2")],
            vec![("Impersonate-Extra-Scopes", "a")],
            vec![
                ("Connection", "Impersonate-User"),
                ("Impersonate-User", "root"),
            ],
        ] {
            let refused = clean_request(&map(&rows));
            assert!(
                matches!(refused, Err(HeaderError::Impersonation(_))),
                "{rows:?}"
            );
        }
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        let uri = Uri::from_static("/api");
        for rows in [
            vec![("content-length", "1"), ("content-length", "1")],
            vec![("content-length", "1"), ("transfer-encoding", "chunked")],
            vec![("transfer-encoding", "gzip, chunked")],
            vec![
                ("transfer-encoding", "chunked"),
                ("transfer-encoding", "chunked"),
            ],
            vec![("transfer-encoding", "identity")],
            vec![("host", "a"), ("host", "a")],
        ] {
            assert!(framing(&uri, &map(&rows)).is_err(), "{rows:?}");
        }
        assert_eq!(
            framing(
                &uri,
                &map(&[("host", "a"), ("transfer-encoding", "chunked")])
            ),
            Ok(())
        );
        let absolute = Uri::from_static("https://hub:443/api");
        assert!(framing(&absolute, &map(&[("host", "other")])).is_err());
        assert_eq!(framing(&absolute, &map(&[("host", "HUB:443")])), Ok(()));
    }

    #[test]
    fn upgrades_need_a_known_protocol_and_the_connection_header() {
        let asks = |rows: &[(&str, &str)]| upgrade(&map(rows));
        assert_eq!(asks(&[]), Ok(None));
        assert_eq!(
            asks(&[
                ("connection", "keep-alive, Upgrade"),
                ("upgrade", "WebSocket")
            ]),
            Ok(Some(Upgrade::WebSocket))
        );
        assert_eq!(
            asks(&[("connection", "Upgrade"), ("upgrade", "SPDY/3.1")]),
            Ok(Some(Upgrade::Spdy))
        );
        assert!(asks(&[("upgrade", "websocket")]).is_err());
        assert!(asks(&[("connection", "upgrade"), ("upgrade", "h2c")]).is_err());
        assert!(
            asks(&[
                ("connection", "upgrade"),
                ("upgrade", "websocket"),
                ("upgrade", "h2c")
            ])
            .is_err()
        );
    }

    #[test]
    fn answers_lose_what_acts_on_the_hubs_origin() {
        let answer = map(&[
            ("set-cookie", "a=b"),
            ("strict-transport-security", "max-age=1"),
            ("alt-svc", "h3"),
            ("access-control-allow-origin", "*"),
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("keep-alive", "1"),
            ("transfer-encoding", "chunked"),
            ("content-type", "text/html; charset=utf-8"),
            ("audit-id", "r1"),
            ("warning", "299 - a"),
            ("warning", "299 - b"),
        ]);
        let names = |map: &HeaderMap| map.iter().map(|(n, _)| n.to_string()).collect::<Vec<_>>();
        assert_eq!(
            names(&clean_response(&answer, false)),
            [
                "content-type",
                "audit-id",
                "warning",
                "warning",
                "x-content-type-options"
            ]
        );
        let proxied = clean_response(&answer, true);
        assert_eq!(proxied[header::CONTENT_SECURITY_POLICY], "sandbox");
    }

    #[test]
    fn locations_stay_below_the_prefix() {
        let at = |text: &str| location(&HeaderValue::from_str(text).unwrap(), "/clusters/eu1");
        assert_eq!(at("/api/v1/x?y=1").unwrap(), "/clusters/eu1/api/v1/x?y=1");
        for off in ["https://evil/x", "//evil/x", "/\\evil", "x", "javascript:1"] {
            assert_eq!(at(off), None, "{off}");
        }
    }
}
