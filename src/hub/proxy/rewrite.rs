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
    /// `/clusters/<name>`, put before an answer's `Location`.
    pub prefix: String,
    /// No body will follow: the request can be sent again.
    pub bodyless: bool,
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

/// Refuses a head that two servers could read differently. Comes before authentication: the connection
/// itself is not to be trusted.
pub fn framing(parts: &Parts) -> Result<(), Refusal> {
    headers::framing(&parts.uri, &parts.headers).map_err(|e| e.refusal(Hop::Hub))
}

/// The request to send: rules of path, headers and protocol switch applied.
pub fn outgoing(parts: &Parts, target: &Target) -> Result<Outgoing, Refusal> {
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
    let bodyless = matches!(parts.method, Method::GET | Method::HEAD);
    kept.insert(header::HOST, HeaderValue::from_static("kubernetes"));
    Ok(Outgoing {
        method: parts.method.clone(),
        rest: target.rest.clone(),
        prefix: target.prefix.clone(),
        headers: kept,
        info,
        acting,
        upgrade,
        bodyless,
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

    /// Whether it may be sent once more on a new line: nothing it does can happen twice.
    pub fn repeatable(&self) -> bool {
        self.bodyless && self.upgrade.is_none()
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
mod tests {
    use super::*;

    fn parts(method: &str, uri: &str, rows: &[(&str, &str)]) -> Parts {
        let mut builder = Request::builder().method(method).uri(uri);
        for (name, value) in rows {
            builder = builder.header(*name, *value);
        }
        builder.body(()).unwrap().into_parts().0
    }

    fn plan(method: &str, uri: &str, rows: &[(&str, &str)]) -> Result<Outgoing, Refusal> {
        let parts = parts(method, uri, rows);
        outgoing(&parts, &target(&parts.uri).unwrap())
    }

    #[test]
    fn the_prefix_is_cut_by_bytes() {
        for (uri, name, rest) in [
            (
                "/clusters/eu1/api/v1/pods?limit=1",
                "eu1",
                "/api/v1/pods?limit=1",
            ),
            ("/clusters/eu1", "eu1", "/"),
            ("/clusters/eu1?x=1", "eu1", "/?x=1"),
            ("/clusters/eu1/", "eu1", "/"),
            ("https://hub:8443/clusters/eu1/api", "eu1", "/api"),
            (
                "/clusters/eu1/api/v1/namespaces/a/services/s/proxy/%2F;a+b?command=a&command=&q=%20",
                "eu1",
                "/api/v1/namespaces/a/services/s/proxy/%2F;a+b?command=a&command=&q=%20",
            ),
        ] {
            let target = target(&uri.parse().unwrap()).unwrap();
            assert_eq!(
                (target.cluster.unwrap().as_str(), target.rest.as_str()),
                (name, rest),
                "{uri}"
            );
            assert_eq!(target.prefix, format!("/clusters/{name}"));
        }
    }

    #[test]
    fn names_that_only_look_like_a_cluster_are_none() {
        for uri in [
            "/clusters/e%751/api",
            "/clusters/EU1/api",
            "/clusters//api",
            "/clusters/all/api",
            "/clusters/a..b/api",
        ] {
            assert_eq!(
                target(&uri.parse().unwrap()).unwrap().cluster,
                None,
                "{uri}"
            );
        }
        assert_eq!(target(&"/v1/clusters/eu1".parse().unwrap()), None);
    }

    #[test]
    fn ours_are_added_after_theirs_are_removed() {
        let out = plan(
            "GET",
            "/clusters/eu1/api",
            &[
                ("host", "hub"),
                ("authorization", "Bearer x"),
                ("accept", "a/b"),
            ],
        );
        let out = out.unwrap();
        let names: Vec<_> = out
            .headers
            .iter()
            .map(|(n, v)| format!("{n}: {}", v.to_str().unwrap()))
            .collect();
        assert_eq!(names, ["accept: a/b", "host: kubernetes"]);
        let request = out.request(());
        assert_eq!(request.uri().to_string(), "/api");
    }

    /// L10: whom the user asks for is judged, and never sent on as it came.
    #[test]
    fn whom_to_act_as_is_read_and_cut() {
        let rows = [("impersonate-user", "bob"), ("impersonate-group", "edit")];
        let out = plan("GET", "/clusters/eu1/api", &rows).unwrap();
        assert_eq!(out.acting.unwrap().to_string(), "bob in edit");
        let names: Vec<_> = out.headers.keys().map(ToString::to_string).collect();
        assert_eq!(names, ["host"]);
    }

    #[test]
    fn allowed_upgrades_are_rebuilt_and_others_refused() {
        let ask = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-key", "k"),
        ];
        let out = plan(
            "GET",
            "/clusters/eu1/api/v1/namespaces/a/pods/x/exec?command=sh",
            &ask,
        )
        .unwrap();
        assert_eq!(out.headers[header::CONNECTION], "Upgrade");
        assert_eq!(out.headers[header::UPGRADE], "websocket");
        assert_eq!(out.headers["sec-websocket-key"], "k");
        assert!(!out.repeatable());
        assert_eq!(
            plan("GET", "/clusters/eu1/api/v1/pods", &ask)
                .unwrap_err()
                .reason,
            "Upgrade"
        );
        let h2c = [
            ("connection", "Upgrade, HTTP2-Settings"),
            ("upgrade", "h2c"),
        ];
        assert_eq!(
            plan("GET", "/clusters/eu1/api/v1/pods", &h2c)
                .unwrap_err()
                .code,
            400
        );
    }

    #[test]
    fn refusals_carry_their_code() {
        for (method, uri, rows, code) in [
            (
                "GET",
                "/clusters/eu1/api",
                vec![("impersonate-uid", "0")],
                403,
            ),
            ("GET", "/clusters/eu1/debug/pprof", vec![], 404),
            ("GET", "/clusters/eu1/", vec![], 404),
            ("GET", "/clusters/eu1/api/../x", vec![], 400),
            ("GET", "/clusters/eu1//api", vec![], 400),
            ("TRACE", "/clusters/eu1/api", vec![], 405),
            ("PRI", "/clusters/eu1/api", vec![], 405),
        ] {
            assert_eq!(
                plan(method, uri, &rows).unwrap_err().code,
                code,
                "{method} {uri}"
            );
        }
    }

    #[test]
    fn only_gets_are_repeatable() {
        assert!(plan("GET", "/clusters/eu1/api", &[]).unwrap().repeatable());
        assert!(plan("HEAD", "/clusters/eu1/api", &[]).unwrap().repeatable());
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            assert!(
                !plan(method, "/clusters/eu1/api", &[]).unwrap().repeatable(),
                "{method}"
            );
        }
    }

    fn answered(
        status: u16,
        rows: &[(&str, &str)],
        outgoing: &Outgoing,
    ) -> Result<HeaderMap, Refusal> {
        let mut builder = http::Response::builder().status(status);
        for (name, value) in rows {
            builder = builder.header(*name, *value);
        }
        let mut parts = builder.body(()).unwrap().into_parts().0;
        answer(&mut parts, outgoing).map(|()| parts.headers)
    }

    #[test]
    fn answers_stay_on_the_clusters_prefix() {
        let get = plan(
            "GET",
            "/clusters/eu1/api/v1/namespaces/a/services/s/proxy/x",
            &[],
        )
        .unwrap();
        let headers = answered(
            302,
            &[("location", "/api/v1/y"), ("set-cookie", "a=b")],
            &get,
        )
        .unwrap();
        assert_eq!(headers[header::LOCATION], "/clusters/eu1/api/v1/y");
        assert!(!headers.contains_key(header::SET_COOKIE));
        let off = answered(302, &[("location", "https://evil/")], &get).unwrap();
        assert!(!off.contains_key(header::LOCATION));
        let html = answered(200, &[("content-type", "text/html")], &get).unwrap();
        assert_eq!(html[header::CONTENT_SECURITY_POLICY], "sandbox");
    }

    #[test]
    fn an_unasked_switch_of_protocol_is_a_bad_answer() {
        let get = plan("GET", "/clusters/eu1/api", &[]).unwrap();
        assert_eq!(
            answered(101, &[("upgrade", "websocket")], &get)
                .unwrap_err()
                .code,
            502
        );
        let ask = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
        let exec = plan(
            "POST",
            "/clusters/eu1/api/v1/namespaces/a/pods/x/exec",
            &ask,
        )
        .unwrap();
        assert_eq!(
            answered(101, &[("upgrade", "websocket")], &exec)
                .unwrap_err()
                .code,
            502
        );
        let headers = answered(
            101,
            &[("upgrade", "SPDY/3.1"), ("connection", "Upgrade")],
            &exec,
        )
        .unwrap();
        assert_eq!(headers[header::UPGRADE], "SPDY/3.1");
        assert_eq!(headers[header::CONNECTION], "Upgrade");
    }
}
