use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::bundle::Kind;

/// What `trim` asks for where the API server answers so, and whether it is content.
async fn trimmed(answers: Vec<(u16, String)>) -> (Vec<String>, Result<(), String>) {
    let (asked, done) = told(answers).await;
    (asked.into_iter().map(|(line, _)| line).collect(), done)
}

/// The same with the bodies.
async fn told(answers: Vec<(u16, String)>) -> (Vec<(String, Value)>, Result<(), String>) {
    let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let answering = async move {
        let mut asked = Vec::new();
        for (code, body) in answers {
            let (request, reply) = server.next_request().await.unwrap();
            let line = format!("{} {}", request.method(), request.uri().path());
            let sent = request.into_body().collect_bytes().await.unwrap();
            asked.push((line, serde_json::from_slice(&sent).unwrap_or_default()));
            let body = Body::from(body.into_bytes());
            reply.send_response(Response::builder().status(code).body(body).unwrap());
        }
        asked
    };
    let kube = Client::new(service, "linesman");
    let canary = ObjectId::new(Kind::HelmRelease, "flux-system", "linesman-probe");
    let (asked, done) = tokio::join!(answering, trim(&kube, &canary));
    (asked, done.map_err(|error| error.to_string()))
}

/// A Flux without helm-controller never had the kind: there is nothing to remove, and the change ends.
#[tokio::test]
async fn what_is_left_over_is_removed_where_it_is_ours_and_its_kind_is_served() {
    let path = "/apis/helm.toolkit.fluxcd.io/v2/namespaces/flux-system/helmreleases/linesman-probe";
    let of = |manager: &str| {
        json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {
                "name": "linesman-probe", "namespace": "flux-system", "uid": "1",
                "managedFields": [{"manager": manager, "operation": "Apply"}],
            },
        })
        .to_string()
    };
    let status = |code: u16, reason: &str| {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason,
        });
        status.to_string()
    };
    let (get, delete) = (format!("GET {path}"), format!("DELETE {path}"));
    let read = vec![get.clone()];
    let both = vec![get, delete];
    let cases = [
        (vec![(404, "404 page not found\n".to_owned())], &read),
        (vec![(404, status(404, "NotFound"))], &read),
        (vec![(200, of("kubectl"))], &read),
        (vec![(200, of(MANAGER)), (200, status(200, ""))], &both),
        (
            vec![(200, of(MANAGER)), (404, status(404, "NotFound"))],
            &both,
        ),
    ];
    for (answers, asked) in cases {
        let shown = format!("{answers:?}");
        assert_eq!(trimmed(answers).await, (asked.clone(), Ok(())), "{shown}");
    }
    let refused = trimmed(vec![(403, status(403, "Forbidden"))]).await;
    let why = Err("read HelmRelease flux-system/linesman-probe".to_owned());
    assert_eq!(refused, (read, why));
}

/// W10: helm-controller pins also what is suspended. When it has gone nobody frees that, and its Namespace could never end.
#[tokio::test]
async fn what_is_left_over_goes_without_the_engines_finalizer() {
    let path = "/apis/helm.toolkit.fluxcd.io/v2/namespaces/flux-system/helmreleases/linesman-probe";
    let live = |version: &str, finalizers: &[&str]| {
        let live = json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {
                "name": "linesman-probe", "namespace": "flux-system", "uid": "1", "resourceVersion": version,
                "finalizers": finalizers,
                "managedFields": [{"manager": MANAGER, "operation": "Apply"}],
            },
        });
        live.to_string()
    };
    let status = |code: u16, reason: &str| {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason,
        });
        status.to_string()
    };
    let pinned = || {
        let finalizers = ["finalizers.fluxcd.io", "example.org/mine"];
        (200, live("7", &finalizers))
    };
    let sent = json!({"metadata": {"finalizers": ["example.org/mine"], "uid": "1", "resourceVersion": "7"}});
    let (get, frees) = (format!("GET {path}"), format!("PATCH {path}"));
    let (asked, done) = told(vec![
        pinned(),
        (200, live("8", &["example.org/mine"])),
        (200, status(200, "")),
    ])
    .await;
    let lines: Vec<&str> = asked.iter().map(|(line, _)| line.as_str()).collect();
    assert_eq!(lines, [&get, &frees, &format!("DELETE {path}")]);
    assert_eq!(asked[1].1, sent);
    // Not one that is pinned once more meanwhile.
    assert_eq!(
        asked[2].1["preconditions"],
        json!({"uid": "1", "resourceVersion": "8"})
    );
    assert_eq!(done, Ok(()));
    let changed = trimmed(vec![pinned(), (409, status(409, "Conflict"))]).await;
    let why = "free HelmRelease flux-system/linesman-probe".to_owned();
    assert_eq!(changed, (vec![get, frees], Err(why)));
}
