use super::*;

const READ_ONLY: [(&str, &str, &str); 29] = [
    ("GET", "/api", "pass"),
    ("GET", "/version", "pass"),
    ("GET", "/api/v1/pods", "pass"),
    ("GET", "/api/v1/pods?watch=1", "pass"),
    ("GET", "/api/v1/namespaces/a/pods/x", "pass"),
    ("HEAD", "/api/v1/namespaces/a/pods/x", "pass"),
    ("GET", "/api/v1/namespaces/a/pods/x/log?follow=1", "pass"),
    (
        "GET",
        "/apis/apps/v1/namespaces/a/deployments/x/scale",
        "pass",
    ),
    (
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "pass",
    ),
    (
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        "pass",
    ),
    (
        "POST",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        "pass",
    ),
    (
        "POST",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        "403 ReadOnly",
    ),
    (
        "GET",
        "/api/v1/namespaces/a/pods/x/exec?command=sh",
        "403 ReadOnly",
    ),
    ("GET", "/api/v1/namespaces/a/pods/x/attach", "403 ReadOnly"),
    (
        "GET",
        "/api/v1/namespaces/a/pods/x/portforward",
        "403 ReadOnly",
    ),
    ("GET", "/api/v1/namespaces/a/pods/x/proxy/", "403 ReadOnly"),
    ("GET", "/api/v1/proxy/namespaces/a/pods/x", "403 ReadOnly"),
    (
        "POST",
        "/api/v1/namespaces/a/pods/x/eviction",
        "403 ReadOnly",
    ),
    (
        "PATCH",
        "/api/v1/namespaces/a/pods/x/ephemeralcontainers",
        "403 ReadOnly",
    ),
    (
        "POST",
        "/api/v1/namespaces/a/serviceaccounts/x/token",
        "403 ReadOnly",
    ),
    (
        "GET",
        "/api/v1/namespaces/a/pods/x/ephemeralcontainers",
        "403 ReadOnly",
    ),
    (
        "GET",
        "/api/v1/namespaces/a/pods/x/eviction",
        "403 ReadOnly",
    ),
    (
        "GET",
        "/api/v1/namespaces/a/serviceaccounts/x/token",
        "403 ReadOnly",
    ),
    ("POST", "/api/v1/namespaces/a/pods", "403 ReadOnly"),
    ("PUT", "/api/v1/namespaces/a/pods/x", "403 ReadOnly"),
    ("PATCH", "/api/v1/namespaces/a/pods/x", "403 ReadOnly"),
    ("DELETE", "/api/v1/namespaces/a/pods/x", "403 ReadOnly"),
    ("OPTIONS", "/api/v1/namespaces/a/pods/x", "403 ReadOnly"),
    ("POST", "/healthz", "403 ReadOnly"),
];

/// L39
#[test]
fn read_only_is_told_by_resource_not_by_method() {
    for (method, target, verdict) in READ_ONLY {
        let by_hub = Case::new(method, target).claims(|c| c.mode = Mode::Read);
        assert_eq!(by_hub.verdict(), verdict, "{method} {target}");
        let by_owner = Case::new(method, target).policy("readOnly", "true");
        assert_eq!(by_owner.verdict(), verdict, "{method} {target}");
    }
}

/// L39: whatever it is asked for by, a way into a Pod is more than reading.
#[test]
fn read_only_opens_no_way_into_a_pod_by_any_method_or_protocol() {
    for part in ["exec?command=sh", "attach", "portforward", "proxy/x"] {
        let target = format!("/api/v1/namespaces/a/pods/x/{part}");
        for method in ["GET", "POST"] {
            for upgrade in [None, Some(Upgrade::WebSocket), Some(Upgrade::Spdy)] {
                let asked = || Case {
                    upgrade,
                    ..Case::new(method, &target)
                };
                let row = format!("{method} {target} {upgrade:?}");
                assert_eq!(asked().verdict(), "pass", "{row}");
                let by_hub = asked().claims(|c| c.mode = Mode::Read);
                assert_eq!(by_hub.verdict(), "403 ReadOnly", "{row}");
                let by_owner = asked().policy("readOnly", "true");
                assert_eq!(by_owner.verdict(), "403 ReadOnly", "{row}");
            }
        }
    }
}
