//! Adoption: W1, H1, H2 and what a used token is good for.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::api::path_of;
use crate::support::place::{output, run};
use crate::support::world::{self, CLUSTER};
use crate::support::{eventually, figure, seconds, shown, until};

/// W1, H1: YAML applied to the first catalog revision applied in ≤ 45 s, images present.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_cluster_is_adopted_to_its_first_revision() {
    let world = world::adopted();
    figure(
        "W1",
        "adoption YAML applied → first revision applied",
        "≤ 45 s",
        shown(world.adoption.unwrap()),
    );
    let view = world.hub.json(&["cluster", "show", CLUSTER]);
    let steps: Vec<_> = view["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| (&s["step"], &s["state"]))
        .collect();
    assert_eq!(steps.len(), 10, "{steps:?}");
    assert!(steps.iter().all(|(_, state)| *state == "done"), "{steps:?}");
    assert!(
        view["revision"]
            .as_str()
            .unwrap()
            .ends_with(&world.head().unwrap()),
        "{view}"
    );
    let deploy: Vec<_> = view["keys"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|k| k["kind"] == "deploy")
        .collect();
    assert_eq!(deploy.len(), 1, "{deploy:?}");
    // The example app runs, so content arrived and not only the root.
    until("deployment hello is available", seconds(120), || {
        let hello = world
            .api
            .try_get("/apis/apps/v1/namespaces/hello/deployments/hello")
            .ok()
            .flatten();
        hello.is_some_and(|d| world::condition(&d, "Available"))
    });
}

/// W1, H2: the same YAML again changes no object, and the token does not stay.
#[test]
#[ignore = "needs a real cluster: make test"]
fn applying_the_yaml_again_changes_nothing() {
    let world = world::adopted();
    let versions = || -> BTreeMap<String, (String, Value)> {
        let text = run(world
            .place
            .kubectl()
            .args(["get", "-o", "json", "-f"])
            .arg(&world.adopt));
        let list: Value = serde_json::from_str(&text).unwrap();
        let items = list["items"].as_array().unwrap();
        // A Deployment's status moves on its own; its spec is what the YAML is about.
        let version = |o: &Value| match o["kind"].as_str() {
            Some("Deployment") => o["metadata"]["generation"].clone(),
            _ => o["metadata"]["resourceVersion"].clone(),
        };
        items
            .iter()
            .filter(|o| o["metadata"]["name"] != "linesman-join")
            .map(|o| {
                (
                    path_of(o),
                    (o["kind"].as_str().unwrap().to_owned(), version(o)),
                )
            })
            .collect()
    };
    let join = "/api/v1/namespaces/linesman/secrets/linesman-join";
    until(
        "the token is forgotten after the adoption",
        seconds(30),
        || forgotten(&world.api.get(join).unwrap()),
    );
    let before = versions();
    assert!(before.len() >= 10, "{before:?}");
    world.apply(&world.adopt);
    let took = until("the token is forgotten again", seconds(30), || {
        forgotten(&world.api.get(join).unwrap())
    });
    figure(
        "H2",
        "YAML applied again, kubectl returned → token gone from Secret and annotation",
        "≤ 5 s",
        shown(took),
    );
    assert_eq!(versions(), before);
    assert_eq!(world.synced().map(|_| ()), Ok(()));
}

fn forgotten(secret: &Value) -> bool {
    let token = secret["data"]["token"].as_str().unwrap_or_default();
    let last =
        &secret["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    token.is_empty()
        && !last
            .as_str()
            .unwrap_or_default()
            .contains("token\":\"lmj1.")
        && last.is_null()
}

/// H3, H4: a token that was used is refused, in the one shape of all bad tokens.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_used_token_is_refused() {
    let world = world::adopted();
    let yaml = std::fs::read_to_string(&world.adopt).unwrap();
    let at = yaml.find("lmj1.").expect("the YAML holds the join token");
    let token: String = yaml[at..]
        .chars()
        .take_while(|c| c.is_ascii_alphanumeric() || "._-".contains(*c))
        .collect();
    let unknown = "lmj1.unknown.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let [used, unknown] = [token.as_str(), unknown].map(|token| {
        let path = format!("/adopt/{token}.yaml");
        let (code, body) = get(&world.hub.url(), &world.hub.ca(), &path);
        let mut body: Value = serde_json::from_str(&body).unwrap();
        body["requestId"] = Value::Null;
        (code, body)
    });
    assert_eq!(used, unknown);
    assert_eq!(used.0, 401, "{used:?}");
    println!("used token: {}", used.1);
}

/// Status and body.
fn get(url: &str, ca: &std::path::Path, path: &str) -> (u16, String) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let root = reqwest::Certificate::from_pem(&std::fs::read(ca).unwrap()).unwrap();
    runtime.block_on(async {
        let client = reqwest::Client::builder()
            .tls_certs_only([root])
            .build()
            .unwrap();
        let answer = client.get(format!("{url}{path}")).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    })
}

/// A cluster of the same name is refused, with the next action.
#[test]
#[ignore = "needs a real cluster: make test"]
fn adding_a_cluster_twice_is_a_conflict() {
    let world = world::adopted();
    let again = output(&mut world.hub.cli(&["cluster", "add", CLUSTER]));
    assert_eq!(again.status.code(), Some(5), "{again:?}");
    eventually(
        "the cluster is still healthy",
        seconds(60),
        || match world.phase().as_str() {
            "Healthy" => Ok(()),
            phase => Err(phase.to_owned()),
        },
    );
}
