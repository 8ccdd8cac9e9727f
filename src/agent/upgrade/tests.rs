//! A cluster whose admission writes the images of a mirror into Pods and Deployments.

use std::convert::Infallible;

use http::{Method, Request, Response};
use kube::client::Body;
use tower::service_fn;

use super::*;
use crate::lifetime::hearts::{Hearts, STILL};

/// Pod `led` was made by ReplicaSet `r`, and `bare` by nobody.
fn answer(request: &Request<Body>) -> Value {
    let of = |image: &str| json!({"containers": [{"name": CONTAINER, "image": image}]});
    let pods = "/api/v1/namespaces/linesman/pods";
    let apps = "/apis/apps/v1/namespaces/linesman";
    let path = request.uri().path();
    if *request.method() == Method::PATCH {
        assert_eq!(path, format!("{apps}/deployments/linesman-agent"));
        let query = request.uri().query().unwrap_or_default();
        assert!(query.contains("dryRun=All"), "{query}");
        let template = json!({"spec": of("mirror/a:2")});
        return json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "linesman-agent"},
            "spec": {"selector": {}, "template": template},
        });
    }
    if path == format!("{apps}/replicasets/r") {
        let template = json!({"spec": of("registry/a:1")});
        return json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r"},
            "spec": {"selector": {}, "template": template},
        });
    }
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true,
    });
    let owners = if path == format!("{pods}/led") {
        json!([owner])
    } else {
        json!([])
    };
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "ownerReferences": owners},
        "spec": of("mirror/a:1"),
    })
}

/// Before, an agent in a Pod with another image than its Deployment has waited for ever to be replaced, and took no image any more.
#[tokio::test]
async fn an_image_has_the_name_that_its_deployment_has_and_what_becomes_of_another_is_asked() {
    let service = service_fn(|request: Request<Body>| {
        let text = answer(&request).to_string();
        async move { Ok::<_, Infallible>(Response::new(Body::from(text.into_bytes()))) }
    });
    let kube = kube::Client::new(service, "linesman");
    let heart = Hearts::default().heart("lease", STILL);
    let stop = CancellationToken::new();
    let mut known = Vec::new();
    for pod in ["led", "bare"] {
        let place = ("linesman", pod);
        let upgrade = Upgrade::new(&kube, place, "built", (&heart, &stop)).await;
        let upgrade = upgrade.unwrap();
        let becomes = upgrade.becomes("7", "registry/a:2").await.unwrap();
        known.push((upgrade.0.own.clone(), becomes));
    }
    let of = |own: &str| (own.to_owned(), "mirror/a:2".to_owned());
    assert_eq!(known, [of("registry/a:1"), of("mirror/a:1")]);
}
