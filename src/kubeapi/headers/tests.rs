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

/// L34: what the API server would take for a bearer token ends here, in whatever place it is offered.
#[test]
fn tokens_among_subprotocols_are_removed() {
    const NAME: &str = "sec-websocket-protocol";
    let token = "base64url.bearer.authorization.k8s.io.c2VjcmV0";
    let shouted = token.to_ascii_uppercase();
    for (offered, rest) in [
        (vec![token.to_owned()], vec![]),
        (vec![format!(" {token} , {token}")], vec![]),
        (
            vec![format!("v5.channel.k8s.io, {token}")],
            vec!["v5.channel.k8s.io"],
        ),
        (
            vec![format!(
                "{token},v5.channel.k8s.io,{shouted}, v4.channel.k8s.io"
            )],
            vec!["v5.channel.k8s.io, v4.channel.k8s.io"],
        ),
        (
            vec![
                "v5.channel.k8s.io , x".to_owned(),
                token.to_owned(),
                "y".to_owned(),
            ],
            vec!["v5.channel.k8s.io , x", "y"],
        ),
        (
            vec!["xbase64url.bearer.authorization.k8s.io.c2VjcmV0".to_owned()],
            vec!["xbase64url.bearer.authorization.k8s.io.c2VjcmV0"],
        ),
    ] {
        for name in [NAME, "Sec_WebSocket_Protocol"] {
            let rows: Vec<(&str, &str)> = offered.iter().map(|v| (name, v.as_str())).collect();
            let name = name.to_ascii_lowercase();
            let expected: Vec<String> = rest.iter().map(|v| format!("{name}: {v}")).collect();
            assert_eq!(kept(&rows), expected, "{rows:?}");
        }
    }
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
        ("clear-site-data", "*"),
        ("refresh", "0; url=https://evil/"),
        ("service-worker-allowed", "/"),
        ("nel", "{}"),
        ("report-to", "{}"),
        ("reporting-endpoints", "a=b"),
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

/// Browsers take the last of several types, and show any XML as a page.
#[test]
fn what_comes_from_behind_proxy_is_sandboxed_whatever_type_it_says() {
    const NAME: &str = "content-type";
    const ALL: &str = "script-src *";
    for rows in [
        [(NAME, "text/plain"), (NAME, "text/html")].as_slice(),
        &[(NAME, "text/plain, text/html")],
        &[(NAME, "application/atom+xml")],
        &[(NAME, "text/plain"), ("content-security-policy", ALL)],
        &[],
    ] {
        let kept = clean_response(&map(rows), true);
        let policies: Vec<_> = kept
            .get_all(header::CONTENT_SECURITY_POLICY)
            .iter()
            .collect();
        assert_eq!(policies, ["sandbox"], "{rows:?}");
    }
}

#[test]
fn locations_stay_below_the_prefix() {
    let at = |text: &str| location(&HeaderValue::from_str(text).unwrap(), "/clusters/eu1");
    assert_eq!(at("/api/v1/x?y=1").unwrap(), "/clusters/eu1/api/v1/x?y=1");
    let query = "/api/v1/x?y=/../z#/..";
    assert_eq!(at(query).unwrap(), *format!("/clusters/eu1{query}"));
    for off in ["https://evil/x", "//evil/x", "/\\evil", "x", "javascript:1"] {
        assert_eq!(at(off), None, "{off}");
    }
    // L42: what a client makes another cluster of.
    for above in [
        "/../eu2/api",
        "/api/../../eu2/api",
        "/%2e%2E/eu2/api",
        "/.%2e/eu2/api",
        "/..",
        "/..\\eu2/api",
        "/.\t./eu2/api",
        "/./api",
    ] {
        assert_eq!(at(above), None, "{above}");
    }
}
