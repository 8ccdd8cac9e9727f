use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

use super::*;

fn object(pairs: &[(&str, &str)]) -> Object {
    let data = pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec()))
        .collect();
    super::object(JOIN_SECRET, &data)
}

#[test]
fn the_join_secret_of_the_manifests_is_read() {
    let mut object = object(&[
        ("token", "lmj1.a.b\n"),
        ("hub", "https://hub.example.com"),
        ("hub-key", "k1 AAAA\n"),
        ("ca.crt", ""),
        ("cluster", "eu1"),
        ("proxy", "http://user:p@ss@proxy:3128/"),
        ("no-proxy", ".svc,10.0.0.0/8"),
    ]);
    object.metadata.annotations = Some([(LAST_APPLIED.to_owned(), "{}".to_owned())].into());
    let join = Join::read(&object).unwrap();
    assert_eq!(join.token, Some(Secret::new("lmj1.a.b".to_owned())));
    assert!(join.echoed);
    assert_eq!(join.cluster.as_str(), "eu1");
    assert_eq!(join.hub_keys.len(), 1);
    let proxy = join.proxy.unwrap();
    assert_eq!(proxy.address, "proxy:3128");
    assert_eq!(proxy.credentials, Some(Secret::new("user:p@ss".to_owned())));
    assert_eq!(proxy.bypass, [".svc", "10.0.0.0/8"]);
}

#[test]
fn a_join_secret_without_hub_or_cluster_names_the_key() {
    let error = Join::read(&object(&[("cluster", "eu1")])).unwrap_err();
    assert!(error.to_string().contains("'hub'"), "{error}");
    let error = Join::read(&object(&[("hub", "https://h")])).unwrap_err();
    assert!(error.to_string().contains("'cluster'"), "{error}");
    let bad = [("hub", "https://h"), ("cluster", "eu1"), ("proxy", "proxy")];
    let error = Join::read(&object(&bad)).unwrap_err();
    assert!(error.to_string().contains("'proxy'"), "{error}");
}

#[test]
fn a_garbled_state_counts_as_missing() {
    assert_eq!(State::read(&SecretData::new()), None);
    let garbled = [("assignment.json".to_owned(), b"{".to_vec())].into();
    assert_eq!(State::read(&garbled), None);
}

/// An API server that answers in order; what it was asked.
async fn api_server(
    mut handle: tower_test::mock::Handle<Request<Body>, Response<Body>>,
    answers: Vec<(u16, Value)>,
) -> Vec<(Method, String, Value)> {
    let mut asked = Vec::new();
    for (status, answer) in answers {
        let (request, send) = handle.next_request().await.expect("one request an answer");
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        asked.push((head.method, head.uri.path().to_owned(), body));
        let answer = Body::from(serde_json::to_vec(&answer).unwrap());
        send.send_response(Response::builder().status(status).body(answer).unwrap());
    }
    asked
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason,
    });
    (code, status)
}

fn stored_keys(data: &SecretData) -> (u16, Value) {
    (
        200,
        serde_json::to_value(super::object(KEYS_SECRET, data)).unwrap(),
    )
}

async fn keys_from(answers: Vec<(u16, Value)>) -> (Result<Identity>, Vec<(Method, String, Value)>) {
    let (service, handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let api = secrets(&kube::Client::new(service, "default"), "linesman");
    let cluster = "eu1".parse().unwrap();
    tokio::join!(keys(&api, &cluster), api_server(handle, answers))
}

#[tokio::test]
async fn keys_are_created_not_applied() {
    let created = (
        201,
        serde_json::to_value(super::object(KEYS_SECRET, &SecretData::new())).unwrap(),
    );
    let (identity, asked) = keys_from(vec![failure(404, "NotFound"), created]).await;
    let (method, path, body) = &asked[1];
    assert_eq!(
        (method, path.as_str()),
        (&Method::POST, "/api/v1/namespaces/linesman/secrets")
    );
    let body: Object = serde_json::from_value(body.clone()).unwrap();
    assert!(identity.unwrap().same_as(&data(&body)));
}

#[tokio::test]
async fn the_replica_that_comes_second_uses_the_first_ones_keys() {
    let first = Identity::from_seeds(&[1; 32], &[2; 32]);
    let kept = first.to_data(&"eu1".parse().unwrap()).unwrap();
    let answers = vec![
        failure(404, "NotFound"),
        failure(409, "AlreadyExists"),
        stored_keys(&kept),
    ];
    let (identity, _) = keys_from(answers).await;
    assert!(identity.unwrap().same_as(&kept));
}

#[tokio::test]
async fn keys_that_cannot_be_read_are_replaced() {
    let garbled = [("identity".to_owned(), b"junk".to_vec())].into();
    let (identity, asked) = keys_from(vec![stored_keys(&garbled), stored_keys(&garbled)]).await;
    let (method, _, body) = &asked[1];
    assert_eq!(method, Method::PATCH);
    let body: Object = serde_json::from_value(body.clone()).unwrap();
    assert!(identity.unwrap().same_as(&data(&body)));
}

#[tokio::test]
async fn forgetting_drops_the_token_and_kubectls_copy_of_it() {
    let (service, handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let api = secrets(&kube::Client::new(service, "default"), "linesman");
    let answer = vec![(200, serde_json::to_value(object(&[])).unwrap())];
    let (done, asked) = tokio::join!(forget_token(&api), api_server(handle, answer));
    done.unwrap();
    let expected = json!({
        "data": {"token": null},
        "metadata": {"annotations": {LAST_APPLIED: null}},
    });
    assert_eq!(asked[0].2, expected);
}
