//! Engine versions and image registries as the hub keeps them.

use linesman::clock;
use linesman::hub::git;
use linesman::hub::store::NewBundle;
use linesman::wire::api::EngineKind;
use linesman::wire::id::Digest;
use serde_json::{Value, json};

use super::slug;
use super::support::{Agent, TestHub};

mod paths;

async fn import(hub: &TestHub, n: u8, version: &str) {
    import_of(hub, EngineKind::Flux, n, version).await;
}

pub(super) const APPLICATION: &str =
    "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: a}\n";

/// A person's commit of one file.
pub(super) async fn commit(hub: &TestHub, file: &str, text: &str) {
    let change = git::Change {
        files: [(file.to_owned(), text.as_bytes().to_vec())].into(),
        only_missing: false,
        gone: std::collections::BTreeSet::new(),
        author: git::Author::hub(),
        message: format!("Add {file}"),
    };
    let catalog = &hub.hub.catalog;
    git::commit(&catalog.repo, &catalog.branch, change)
        .await
        .unwrap();
}

pub(super) async fn import_of(hub: &TestHub, engine: EngineKind, n: u8, version: &str) {
    let bundle = NewBundle {
        digest: Digest::from_bytes([n; 32]),
        engine,
        version: version.to_owned(),
        objects: 1,
        images: vec![],
        data: vec![n],
        imported_by: "admin".to_owned(),
        origin: None,
    };
    hub.hub
        .store
        .add_bundle(bundle, clock::now())
        .await
        .unwrap();
}

pub(super) async fn put(hub: &TestHub, path: &str, body: &Value) -> (u16, Value) {
    hub.call_as(&hub.admin, ("PUT", path), &[("if-match", "*")], body)
        .await
}

async fn told(hub: &TestHub, agent: &Agent) -> Value {
    let path = "/v1/clusters/eu1/assignment";
    let (code, assignment) = agent.call(hub, "GET", path, "").await;
    assert_eq!(code, 200, "{assignment}");
    assignment["engine"].clone()
}

#[tokio::test]
async fn another_version_reaches_the_assignment_with_a_number_of_its_own() {
    let hub = TestHub::start("engine").await;
    import(&hub, 2, "2.9.6").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let path = "/v1/clusters/eu1/engine";
    for (asked, digest, within) in [
        (json!({"engine": "flux", "version": "v2.9.5"}), 1, 300),
        (
            json!({"engine": "flux", "bundle": Digest::from_bytes([2; 32]), "within": 60}),
            2,
            60,
        ),
        (json!({"engine": "flux", "version": "2.9.5"}), 1, 300),
    ] {
        let before = told(&hub, &agent).await["change"].as_u64();
        let (code, set) = put(&hub, path, &asked).await;
        assert_eq!(code, 200, "{set}");
        let engine = told(&hub, &agent).await;
        assert_eq!(engine["bundle"], json!(Digest::from_bytes([digest; 32])));
        assert_eq!(engine["within"], json!(within));
        assert_eq!(engine["change"], set["change"]);
        assert_eq!(set["change"].as_u64(), before.map(|n| n + 1));
    }
    hub.stop().await;
}

/// What was imported last was the newest: an older version after a newer one.
#[tokio::test]
async fn without_a_word_of_it_a_cluster_gets_the_highest_version_that_is_imported() {
    let hub = TestHub::start("engine-newest").await;
    import(&hub, 2, "2.9.4").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let digest = |n: u8| json!(Digest::from_bytes([n; 32]));
    assert_eq!(told(&hub, &agent).await["bundle"], digest(1));
    let newest = async || {
        let (code, set) = put(&hub, "/v1/clusters/eu1/engine", &json!({"engine": "flux"})).await;
        assert_eq!(code, 200, "{set}");
        set["bundle"].clone()
    };
    assert_eq!(newest().await, digest(1));
    // Of one version, what came last: with other controllers, say.
    import(&hub, 3, "2.9.5").await;
    assert_eq!(newest().await, digest(3));
    hub.stop().await;
}

#[tokio::test]
async fn a_version_that_is_unknown_or_does_not_fit_is_refused_with_what_to_do() {
    let hub = TestHub::start("engine-refused").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let set = async |body: Value| {
        let (code, problem) = put(&hub, "/v1/clusters/eu1/engine", &body).await;
        (code, slug(&problem).to_owned(), problem)
    };
    let report = async |body: Value| {
        let path = "/v1/clusters/eu1/reports";
        let (code, ack) = agent.call(&hub, "POST", path, &body.to_string()).await;
        assert_eq!(code, 200, "{ack}");
    };
    let current = json!({"engine": "flux", "version": "2.9.5"});

    let (code, word, problem) = set(json!({"engine": "flux", "version": "2.99.0"})).await;
    assert_eq!((code, word.as_str()), (404, "bundle-unknown"));
    assert_eq!(
        problem["detail"],
        "flux 2.99.0 is not imported; imported are 2.9.5"
    );
    let (code, word, problem) = set(json!({"engine": "argocd"})).await;
    assert_eq!((code, word.as_str()), (409, "other-engine"), "{problem}");
    let (code, word, problem) = set(json!({"engine": "argocd", "replace": true})).await;
    assert_eq!((code, word.as_str()), (404, "bundle-unknown"), "{problem}");
    assert_eq!(
        (&problem["detail"], &problem["next"]),
        (
            &json!("no version of argocd is imported"),
            &json!("run: linesman engine import argocd VERSION")
        )
    );
    let (code, word, _) = set(json!({"engine": "flux", "within": 29})).await;
    assert_eq!((code, word.as_str()), (400, "bad-request"));

    report(json!({"facts": {"kubernetes.minor": "32"}})).await;
    let (code, word, problem) = set(current.clone()).await;
    assert_eq!((code, word.as_str()), (409, "kubernetes-too-old"));
    assert_eq!(
        problem["detail"],
        "flux 2.9.5 needs Kubernetes 1.33, and cluster eu1 has 1.32"
    );
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "FromGit", "message": "the catalog brings x",
               "since": "2026-01-02T03:04:05Z"})
    };
    let facts = json!({"kubernetes.minor": "33"});
    for kind in ["EngineFromGit", "ObserveOnly"] {
        report(json!({"facts": facts, "conditions": [condition(kind, "True")]})).await;
        let (code, word, problem) = set(current.clone()).await;
        assert_eq!((code, word.as_str()), (409, "engine-from-git"), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("brings x"));
    }
    report(json!({"conditions": [condition("EngineFromGit", "False")]})).await;
    let (code, set) = put(&hub, "/v1/clusters/eu1/engine", &current).await;
    assert_eq!(code, 200, "{set}");
    hub.stop().await;
}

#[tokio::test]
async fn a_cluster_has_its_own_registry_or_the_hubs_or_none() {
    let hub = TestHub::start("registry").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let (own, all) = ("/v1/clusters/eu1/image-registry", "/v1/hub/image-registry");
    let null = Value::Null;
    let steps = [
        (all, json!("hub.lan"), json!("hub.lan"), 300),
        (own, json!("edge.lan:5000/x"), json!("edge.lan:5000/x"), 300),
        // Nothing that this one has is changed.
        (all, json!("other.lan"), json!("edge.lan:5000/x"), 60),
        (own, json!(""), null.clone(), 300),
        (own, null.clone(), json!("other.lan"), 300),
        (all, null.clone(), null.clone(), 300),
    ];
    for (path, registry, expected, within) in steps {
        // The time that a version was given is not the registry's.
        let version = json!({"engine": "flux", "version": "v2.9.5", "within": 60});
        let (code, set) = put(&hub, "/v1/clusters/eu1/engine", &version).await;
        assert_eq!(code, 200, "{set}");
        let (code, answer) = put(&hub, path, &json!({"registry": registry})).await;
        assert_eq!(code, 200, "{answer}");
        let engine = told(&hub, &agent).await;
        assert_eq!(
            (&engine["registry"], &engine["within"]),
            (&expected, &json!(within)),
            "{path}"
        );
        // What was said can be read.
        let (code, shown) = hub.get(own).await;
        let in_force = expected.as_str().unwrap_or_default();
        assert_eq!(
            (code, &shown["registry"]),
            (200, &json!(in_force)),
            "{path}"
        );
    }
    for (path, registry) in [(own, "edge.lan"), (all, "hub.lan")] {
        let (_, said) = put(&hub, path, &json!({"registry": registry})).await;
        assert_eq!(hub.get(path).await, (200, said.clone()));
        assert_eq!(
            (&said["registry"], &said["own"]),
            (&json!(registry), &json!(true))
        );
    }
    let (code, problem) = put(&hub, own, &json!({"registry": "https://edge.lan"})).await;
    assert_eq!((code, slug(&problem)), (400, "bad-request"));
    hub.stop().await;
}

/// The Secret is named, and never seen; it goes with the registry that it was said with.
#[tokio::test]
async fn a_pull_secret_reaches_the_assignment_with_its_registry() {
    let hub = TestHub::start("pull-secret").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let (own, all) = ("/v1/clusters/eu1/image-registry", "/v1/hub/image-registry");
    let null = Value::Null;
    let mut changes = Vec::new();
    for (path, asked, registry, secret) in [
        (
            all,
            json!({"registry": "hub.lan", "pullSecret": "regcred"}),
            json!("hub.lan"),
            json!("regcred"),
        ),
        (
            own,
            json!({"registry": "edge.lan"}),
            json!("edge.lan"),
            null.clone(),
        ),
        (
            own,
            json!({"registry": "", "pullSecret": "own"}),
            null.clone(),
            json!("own"),
        ),
        (
            own,
            json!({"registry": null}),
            json!("hub.lan"),
            json!("regcred"),
        ),
        (
            all,
            json!({"registry": "hub.lan"}),
            json!("hub.lan"),
            null.clone(),
        ),
    ] {
        let before = hub.get(path).await.1;
        let (code, answer) = put(&hub, path, &asked).await;
        assert_eq!(code, 200, "{answer}");
        assert_ne!(before, answer);
        let told = told(&hub, &agent).await;
        let said = (&told["registry"], &told["pullSecret"]);
        assert_eq!(said, (&registry, &secret), "{asked}");
        let (_, shown) = hub.get(own).await;
        assert_eq!(shown["pullSecret"], secret, "{asked}");
        changes.push(told["change"].as_u64().unwrap());
    }
    let first = changes[0];
    let counted: Vec<u64> = changes.into_iter().map(|n| n - first).collect();
    assert_eq!(counted, [0, 1, 2, 3, 3]);
    hub.stop().await;
}

#[tokio::test]
async fn a_pull_secret_is_the_name_of_one_beside_a_registry() {
    let hub = TestHub::start("pull-secret-refused").await;
    hub.add("eu1").await;
    for (asked, said) in [
        (
            json!({"registry": null, "pullSecret": "regcred"}),
            "goes with a registry",
        ),
        (
            json!({"registry": "r.lan", "pullSecret": "A_B"}),
            "is not the name of a Secret",
        ),
    ] {
        for path in ["/v1/clusters/eu1/image-registry", "/v1/hub/image-registry"] {
            let (code, problem) = put(&hub, path, &asked).await;
            assert_eq!((code, slug(&problem)), (400, "bad-request"));
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains(said), "{problem}");
        }
    }
    hub.stop().await;
}

/// W32: where Argo CD lives is said once, with the cluster; each YAML after that says the same.
#[tokio::test]
async fn argo_cds_namespace_is_chosen_with_the_cluster_and_stays() {
    let hub = TestHub::start("engine-namespace").await;
    import_of(&hub, EngineKind::Argocd, 3, "3.5.0").await;
    let new = |engine: &str, namespace: &str| json!({"name": "eu1", "engine": engine, "adoption": {"engineNamespace": namespace}});
    for (engine, namespace, said) in [
        ("flux", "gitops", "is for Argo CD"),
        ("argocd", "kube-system", "not for an engine"),
        ("argocd", "Argo CD", "no name of a namespace"),
    ] {
        let (code, problem) = hub.post("/v1/clusters", &new(engine, namespace)).await;
        assert_eq!((code, slug(&problem)), (400, "bad-request"));
        assert!(
            problem["detail"].as_str().unwrap().contains(said),
            "{problem}"
        );
    }
    let (code, added) = hub.post("/v1/clusters", &new("argocd", "gitops")).await;
    assert_eq!(code, 201, "{added}");
    let path = "/v1/clusters/eu1/join-tokens";
    for again in [json!({}), json!({"adoption": {"access": "view"}})] {
        let (code, again) = hub.post(path, &again).await;
        assert_eq!(code, 201, "{again}");
        for answer in [&added, &again] {
            let yaml = answer["yaml"].as_str().unwrap();
            assert!(yaml.contains("value: gitops\n"), "{yaml}");
            assert!(!yaml.contains("- argocd\n"), "{yaml}");
        }
    }
    let other = json!({"adoption": {"engineNamespace": "argocd"}});
    let (code, problem) = hub.post(path, &other).await;
    assert_eq!((code, slug(&problem)), (400, "bad-request"));
    assert!(
        problem["detail"].as_str().unwrap().contains("cannot move"),
        "{problem}"
    );
    hub.stop().await;
}
