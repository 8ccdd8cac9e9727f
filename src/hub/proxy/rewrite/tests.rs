use super::*;

fn parts(method: &str, uri: &str, rows: &[(&str, &str)]) -> Parts {
    let mut builder = Request::builder().method(method).uri(uri);
    for (name, value) in rows {
        builder = builder.header(*name, *value);
    }
    builder.body(()).unwrap().into_parts().0
}

fn plan(method: &str, uri: &str, rows: &[(&str, &str)]) -> Result<Outgoing, Refusal> {
    plan_below("", method, uri, rows)
}

fn plan_below(
    path: &str,
    method: &str,
    uri: &str,
    rows: &[(&str, &str)],
) -> Result<Outgoing, Refusal> {
    let parts = parts(method, uri, rows);
    outgoing(&parts, &target(&parts.uri).unwrap(), path)
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

/// W3C Trace Context: the state of a trace goes on with it only.
#[test]
fn the_state_of_a_trace_that_is_not_taken_ends_here() {
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (traceparent, state) in [(trace, true), ("00-0-0-01", false)] {
        let rows = [("traceparent", traceparent), ("tracestate", "a=1")];
        let out = plan("GET", "/clusters/eu1/api", &rows).unwrap();
        let kept = ["traceparent", "tracestate"].map(|name| out.headers.contains_key(name));
        assert_eq!(kept, [false, state], "{traceparent}");
    }
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

fn answered(status: u16, rows: &[(&str, &str)], outgoing: &Outgoing) -> Result<HeaderMap, Refusal> {
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
fn the_path_of_the_hubs_url_is_what_stands_behind_its_host() {
    for (url, path) in [
        ("https://hub.example", ""),
        ("https://hub.example:8443", ""),
        ("https://hub.example/", ""),
        ("https://hub.example/linesman", "/linesman"),
        ("https://hub.example:8443/a/linesman/", "/a/linesman"),
        ("https://[2001:db8::1]:8443/linesman", "/linesman"),
        ("hub.example", ""),
    ] {
        assert_eq!(below(url), path, "{url}");
    }
}

/// L12: of a hub that is served below a path, an answer leads back below it.
#[test]
fn answers_stay_below_the_path_of_the_hubs_url() {
    let get = plan_below("/linesman", "GET", "/clusters/eu1/api", &[]).unwrap();
    assert_eq!(get.rest.as_str(), "/api");
    let headers = answered(301, &[("location", "/api/v1/y?z")], &get).unwrap();
    assert_eq!(
        headers[header::LOCATION],
        "/linesman/clusters/eu1/api/v1/y?z"
    );
    for off in ["https://evil/linesman/clusters/eu1/", "//evil", "/../x"] {
        let headers = answered(301, &[("location", off)], &get).unwrap();
        assert!(!headers.contains_key(header::LOCATION), "{off}");
    }
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
