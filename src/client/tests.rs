use super::*;

fn provider() {
    // Another test may have been first.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
}

#[test]
fn a_hub_address_is_read_as_people_write_it() {
    for (text, url) in [
        ("hub.example.org", "https://hub.example.org/"),
        ("hub.example.org:8443", "https://hub.example.org:8443/"),
        ("https://hub.example.org/", "https://hub.example.org/"),
        (
            "https://example.org/linesman/",
            "https://example.org/linesman",
        ),
    ] {
        assert_eq!(address(text).unwrap().as_str(), url, "{text}");
    }
    for text in [
        "http://hub",
        "https://u:p@hub",
        "ssh://hub",
        "https://",
        "https://hub?x=1",
    ] {
        assert!(
            matches!(address(text), Err(Error::Address { .. })),
            "{text}"
        );
    }
}

#[test]
fn a_path_keeps_the_prefix_of_the_hub_and_escapes_its_parts() {
    provider();
    let client = Client::new(address("https://example.org/linesman").unwrap(), None, None).unwrap();
    let url = client.url(&["v1", "a/b"], &[("q", "x y".to_owned())]);
    assert_eq!(url.as_str(), "https://example.org/linesman/v1/a%2Fb?q=x+y");
    assert_eq!(client.hub(), "https://example.org/linesman");
}

#[test]
fn a_refusal_of_the_hub_keeps_its_next_action() {
    provider();
    let client = Client::new(address("hub").unwrap(), None, None).unwrap();
    let body = br#"{"type":"urn:linesman:problem:unauthenticated","title":"t","status":401,"detail":"no token",
        "hop":"hub","next":"log in","requestId":"r1"}"#;
    let error = client.refusal("list clusters", StatusCode::UNAUTHORIZED, body);
    assert_eq!(error.to_string(), "list clusters: no token");
    assert_eq!(error.next(), "log in");
    // What has to be filled in and is known is filled in.
    let ended = String::from_utf8_lossy(body).replace("log in", "run: linesman login HUB");
    let error = client.refusal("list clusters", StatusCode::UNAUTHORIZED, ended.as_bytes());
    assert_eq!(error.next(), "run: linesman login https://hub");
    let error = client.refusal(
        "list clusters",
        StatusCode::BAD_GATEWAY,
        b"<html>nope</html>",
    );
    assert!(error.is_passing());
    assert_eq!(
        error.to_string(),
        "list clusters: HTTP 502 Bad Gateway from https://hub, which is not the hub's own answer: <html>nope</html>"
    );
}

#[test]
fn a_debug_print_shows_no_token() {
    provider();
    let token = Some(Secret::new("lmt1.a.hunter2".to_owned()));
    let client = Client::new(address("hub").unwrap(), None, token).unwrap();
    assert!(!format!("{client:?}").contains("hunter2"));
}

#[test]
fn a_kubernetes_status_is_a_refusal_with_its_next_action() {
    provider();
    let client = Client::new(address("hub").unwrap(), None, None).unwrap();
    let body = br#"{"kind":"Status","code":502,"message":"agent: no token; create it (request r1)","reason":""}"#;
    let error = client.refusal("reach eu1", StatusCode::BAD_GATEWAY, body);
    assert_eq!(error.to_string(), "reach eu1: agent: no token");
    assert_eq!(error.next(), "create it (request r1)");
    assert_eq!(error.rule(), None);
    let body = br#"{"kind":"Status","code":403,"message":"hub: ada has no grant; ask (request r1)","reason":"Forbidden",
        "details":{"causes":[{"reason":"NoGrant","message":"ada has no grant","field":"hub"}]}}"#;
    let error = client.refusal("reach eu1", StatusCode::FORBIDDEN, body);
    assert_eq!(error.rule(), Some("NoGrant"));
    let Error::Refused { problem, .. } = error else {
        panic!("a refusal");
    };
    assert_eq!((&*problem.hop, &*problem.next), ("hub", "ask (request r1)"));
}

/// Of a grant that ended the hub tells groups, reason and giver.
#[test]
fn what_is_wrong_may_hold_the_mark_before_what_to_do() {
    provider();
    let client = Client::new(address("hub").unwrap(), None, None).unwrap();
    let what =
        "ada has no grant on cluster eu1 any more: grant g1 (edit; TICKET-1; by eve) ended at noon";
    let body = serde_json::json!({
        "kind": "Status", "code": 403, "reason": "Forbidden",
        "message": format!("hub: {what}; ask a hub admin for another one (request r1)"),
        "details": {"causes": [{"reason": "NoGrant", "message": what, "field": "hub"}]},
    });
    let body = body.to_string();
    let error = client.refusal("reach eu1", StatusCode::FORBIDDEN, body.as_bytes());
    assert_eq!(error.to_string(), format!("reach eu1: hub: {what}"));
    assert_eq!(error.next(), "ask a hub admin for another one (request r1)");
}

/// It was sent to itself.
#[test]
fn whoever_runs_doctor_is_not_told_to_run_it() {
    provider();
    let client = Client::new(address("hub").unwrap(), None, None).unwrap();
    let body = br#"{"kind":"Status","code":403,"message":"ada may not","reason":"Forbidden"}"#;
    let by_cluster = client.refusal("reach eu1", StatusCode::FORBIDDEN, body);
    let unreachable = |cause| Error::Unreachable {
        operation: "list clusters".to_owned(),
        hub: "https://hub".to_owned(),
        cause,
    };
    for error in [
        by_cluster,
        unreachable(Cause::Refused("no".to_owned())),
        unreachable(Cause::Timeout),
        unreachable(Cause::Lost("cut".to_owned())),
    ] {
        assert!(error.next().contains("linesman doctor"), "{error}");
        assert!(!error.mend().contains("doctor"), "{error}");
    }
    // By the hub that was asked: at the first login no other way leads to it.
    assert_eq!(
        unreachable(Cause::Refused("no".to_owned())).next(),
        "check that the hub runs and listens at https://hub; 'linesman doctor --hub https://hub' looks closer"
    );
    let unnamed =
        "check the way to the hub (firewall, HTTPS_PROXY); 'linesman doctor' looks closer";
    assert_eq!(Cause::Timeout.next("the hub"), unnamed);
    let dns = unreachable(Cause::Dns("no".to_owned()));
    assert_eq!(dns.next(), dns.mend());
}
