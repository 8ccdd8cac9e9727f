use super::*;

fn info(method: &str, target: &str) -> RequestInfo {
    let (path, query) = target
        .split_once('?')
        .map_or((target, None), |(p, q)| (p, Some(q)));
    classify(&method.parse().unwrap(), path, query).unwrap()
}

/// verb group namespace resource subresource name
fn row(method: &str, target: &str) -> String {
    let i = info(method, target);
    assert!(i.resource_request, "{target}");
    [
        i.verb,
        i.group,
        i.namespace,
        i.resource,
        i.subresource,
        i.name,
    ]
    .map(|part| {
        if part.is_empty() {
            "-".to_owned()
        } else {
            part
        }
    })
    .join(" ")
}

/// Method, target, and: verb group namespace resource subresource name.
const RESOURCES: [(&str, &str, &str); 30] = [
    ("GET", "/api/v1/namespaces", "list - - namespaces - -"),
    ("GET", "/api/v1/namespaces/a", "get - a namespaces - a"),
    (
        "PUT",
        "/api/v1/namespaces/a/finalize",
        "update - a namespaces finalize a",
    ),
    (
        "GET",
        "/api/v1/namespaces/a/status",
        "get - a namespaces status a",
    ),
    ("GET", "/api/v1/namespaces/a/pods", "list - a pods - -"),
    ("GET", "/api/v1/namespaces/a/pods/", "list - a pods - -"),
    ("GET", "/api/v1/namespaces/a/pods/x", "get - a pods - x"),
    ("HEAD", "/api/v1/namespaces/a/pods/x", "get - a pods - x"),
    (
        "GET",
        "/api/v1/namespaces/a/pods/x/log?follow=true",
        "get - a pods log x",
    ),
    (
        "POST",
        "/api/v1/namespaces/a/pods/x/exec?command=sh",
        "create - a pods exec x",
    ),
    (
        "GET",
        "/api/v1/namespaces/a/pods/x/exec?command=sh",
        "get - a pods exec x",
    ),
    ("GET", "/api/v1/pods?watch", "watch - - pods - -"),
    ("GET", "/api/v1/pods?watch=1", "watch - - pods - -"),
    ("GET", "/api/v1/pods?watch=0", "list - - pods - -"),
    ("GET", "/api/v1/pods?watch=False", "list - - pods - -"),
    ("GET", "/api/v1/pods?watch=0&watch=1", "list - - pods - -"),
    ("GET", "/api/v1/pods?w%61tch=true", "watch - - pods - -"),
    (
        "GET",
        "/api/v1/watch/namespaces/a/pods",
        "watch - a pods - -",
    ),
    (
        "GET",
        "/api/v1/watch/namespaces/a/pods/x",
        "watch - a pods - x",
    ),
    (
        "DELETE",
        "/api/v1/namespaces/a/pods",
        "deletecollection - a pods - -",
    ),
    (
        "DELETE",
        "/api/v1/namespaces/a/pods/x",
        "delete - a pods - x",
    ),
    (
        "PATCH",
        "/apis/apps/v1/namespaces/a/deployments/x",
        "patch apps a deployments - x",
    ),
    (
        "PUT",
        "/apis/apps/v1/namespaces/a/deployments/x/scale",
        "update apps a deployments scale x",
    ),
    (
        "GET",
        "/apis/apps/v1/deployments",
        "list apps - deployments - -",
    ),
    (
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "create authorization.k8s.io - selfsubjectaccessreviews - -",
    ),
    (
        "GET",
        "/api/v1/nodes/n/proxy/exec/a/b",
        "get - - nodes proxy n",
    ),
    ("GET", "/api/v1/proxy/nodes/n/x", "proxy - - nodes - n"),
    (
        "GET",
        "/api/v1/namespaces/a/services/s/proxy/x/../y",
        "get - a services proxy s",
    ),
    ("GET", "/api/v1/namespaces/%61/pods", "list - a pods - -"),
    (
        "GET",
        "/api/v1/n%61mespaces/a/pods/x/ex%65c",
        "get - a pods exec x",
    ),
];

#[test]
fn resource_requests_mean_what_the_api_server_says() {
    for (method, target, expected) in RESOURCES {
        assert_eq!(row(method, target), expected, "{method} {target}");
    }
}

#[test]
fn discovery_and_health_are_non_resource_requests() {
    for target in [
        "/api",
        "/api/v1",
        "/apis",
        "/apis/apps",
        "/apis/apps/v1",
        "/openapi/v2",
        "/openapi/v3/apis/apps/v1",
        "/version",
        "/version/",
        "/healthz",
        "/livez/ping",
        "/readyz?verbose",
        "/metrics",
        "/.well-known/openid-configuration",
        "/openid/v1/jwks",
        "/api/v1/watch",
    ] {
        let info = info("GET", target);
        assert!(!info.resource_request, "{target}");
        assert_eq!(info.verb, "get");
    }
}

#[test]
fn other_roots_are_not_served() {
    for path in [
        "/",
        "/debug/pprof/profile",
        "/logs",
        "/openapi",
        "/versions",
        "/API/v1",
        "/.well-known/x",
        "/swagger.json",
    ] {
        assert!(
            matches!(
                classify(&Method::GET, path, None),
                Err(PathError::Unknown(_))
            ),
            "{path}"
        );
    }
}

#[test]
fn paths_that_two_parsers_could_read_differently_are_refused() {
    for path in [
        "",
        "api",
        "//api/v1",
        "/api//v1",
        "/api/v1/pods//",
        "/api/./v1",
        "/api/../v1",
        "/api/%2e%2E/v1",
        "/api/.%2e/v1",
        "/api/v1\\pods",
        "/api/v1%5cpods",
        "/api%2Fv1",
        "/api/v1/namespaces/a%2fpods",
        "/api/v1/namespaces/a%252fpods",
        "/api/%252e%252e/v1",
        "/api/v1/namespaces/a/pods/%25",
        "/api/%00",
        "/api/%0a",
        "/api/%zz",
        "/api/%4",
        "/api/%ff",
        "/api/v1/namespaces/a/pods/../secrets/proxy/x",
        "/api/v1/namespaces/a/pods/x/log/../y",
    ] {
        assert!(
            matches!(
                classify(&Method::GET, path, None),
                Err(PathError::Malformed(_))
            ),
            "{path}"
        );
    }
}

#[test]
fn the_tail_behind_proxy_passes_as_bytes() {
    for path in [
        "/api/v1/namespaces/a/services/s/proxy/%2F/%00",
        "/api/v1/namespaces/a/pods/x/proxy//a/../%zz",
        "/api/v1/namespaces/a/pods/x/proxy",
        "/api/v1/namespaces/a/pods/x/proxy/",
    ] {
        assert_eq!(
            classify(&Method::GET, path, None).unwrap().subresource,
            "proxy",
            "{path}"
        );
    }
}

#[test]
fn interactive_and_long_running_are_told_by_resource_not_method() {
    let exec = info("GET", "/api/v1/namespaces/a/pods/x/exec");
    assert!(exec.interactive() && exec.long_running());
    assert!(exec.may_upgrade(Upgrade::WebSocket) && exec.may_upgrade(Upgrade::Spdy));
    let log = info("GET", "/api/v1/namespaces/a/pods/x/log");
    assert!(!log.interactive() && log.long_running());
    assert!(log.may_upgrade(Upgrade::WebSocket) && !log.may_upgrade(Upgrade::Spdy));
    let get = info("GET", "/api/v1/namespaces/a/pods/x");
    assert!(!get.interactive() && !get.long_running() && !get.may_upgrade(Upgrade::WebSocket));
    assert!(info("GET", "/api/v1/pods?watch=1").long_running());
    assert!(info("GET", "/api/v1/nodes/n/proxy/pods").node_proxy());
    assert!(info("GET", "/api/v1/proxy/nodes/n").node_proxy());
    let console = info(
        "GET",
        "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/x/console",
    );
    assert!(console.may_upgrade(Upgrade::WebSocket) && !console.may_upgrade(Upgrade::Spdy));
}

/// L40: each segment costs as much as any other, however many there are: hub and agent read the path of whoever has a grant, and what is
/// read takes its thread from all others. Nobody is timed here; what looks at all segments for each takes minutes.
#[test]
fn a_path_of_thousands_of_segments_is_read_in_one_go() {
    let began = std::time::Instant::now();
    for root in [
        "/api/v1/namespaces/a/pods/x/log",
        "/apis/g/v/watch/namespaces/a/r/x/s",
    ] {
        let deep = format!("{root}{}", "/y".repeat(256 << 10));
        assert_eq!(info("GET", &deep), info("GET", root));
    }
    let took = began.elapsed();
    assert!(took < std::time::Duration::from_mins(1), "{took:?}");
    // As deep as it can stand.
    let proxied = "/apis/g/v/watch/namespaces/a/r/x/proxy//../%zz";
    assert_eq!(row("GET", proxied), "watch g a r proxy x");
    let below = "/apis/g/v/watch/namespaces/a/r/x/y/proxy//z";
    assert_eq!(
        classify(&Method::GET, below, None),
        Err(PathError::Malformed("an empty segment"))
    );
}

#[test]
fn all_values_of_a_parameter_are_read_in_their_order() {
    let query = Some("command=sh&c%6Fmmand=-c&stdin=1&&command=a+b%26%zz%ff&command&commands=no");
    let read: Vec<String> = values(query, "command").collect();
    assert_eq!(read, ["sh", "-c", "a b&%zz\u{fffd}", ""]);
    assert_eq!(values(None, "command").next(), None);
}

#[test]
fn a_path_has_one_name_however_it_is_escaped() {
    for (path, one) in [
        (
            "/api/v1/namespaces/%70rod/pods/x/ex%65c",
            "/api/v1/namespaces/prod/pods/x/exec",
        ),
        ("/api/v1/pods/%2d%2E%5f%7e%41%39", "/api/v1/pods/-._~A9"),
        // What means something else without its escape, and what is none.
        (
            "/a%2Fb%252F%20%C3%A9%zz%+5%4",
            "/a%2Fb%252F%20%C3%A9%zz%+5%4",
        ),
        ("/a%é", "/a%é"),
        ("", ""),
    ] {
        assert_eq!(normal(path), one, "{path}");
    }
}

/// Only what an API server takes for one: what really writes must not pass for less on record.
#[test]
fn a_dry_run_is_one_where_the_query_alone_decides() {
    let pod = "/api/v1/namespaces/a/pods/x";
    let many = format!("{pod}?dryRun=All{}", "&a=b".repeat(100));
    for (method, target, dry) in [
        ("PATCH", format!("{pod}?dryRun=All&force=true"), true),
        (
            "PUT",
            format!("{pod}/status?fieldManager=x&dry%52un=%41ll"),
            true,
        ),
        (
            "POST",
            "/api/v1/namespaces/a/pods?dryRun=All".to_owned(),
            true,
        ),
        ("PATCH", pod.to_owned(), false),
        ("PATCH", format!("{pod}?dryRun="), false),
        ("PATCH", format!("{pod}?dryrun=All"), false),
        ("PATCH", format!("{pod}?dryRun=All;"), false),
        ("PATCH", format!("{pod}?a=;dryRun=All"), false),
        ("PATCH", many, false),
        // Its body counts, be there one.
        ("DELETE", format!("{pod}?dryRun=All"), false),
        (
            "DELETE",
            "/api/v1/namespaces/a/pods?dryRun=All".to_owned(),
            false,
        ),
        // Nothing there asks for it.
        ("GET", format!("{pod}?dryRun=All"), false),
        ("POST", format!("{pod}/exec?command=sh&dryRun=All"), false),
        // The query says nothing there: the token is a good one, and the machine stops.
        (
            "POST",
            "/api/v1/namespaces/a/serviceaccounts/x/token?dryRun=All".to_owned(),
            false,
        ),
        (
            "PUT",
            "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachines/x/stop?dryRun=All"
                .to_owned(),
            false,
        ),
        ("POST", format!("{pod}/proxy/x?dryRun=All"), false),
    ] {
        let (_, query) = target.split_once('?').unzip();
        assert_eq!(
            dry_run(&info(method, &target), query),
            dry,
            "{method} {target}"
        );
    }
}
