//! Engine versions and image registries as the hub keeps them.

use linesman::clock;
use linesman::hub::git;
use linesman::hub::store::NewBundle;
use linesman::wire::api::EngineKind;
use linesman::wire::id::Digest;
use serde_json::{Value, json};

use super::slug;
use super::support::{Agent, TestHub};

async fn import(hub: &TestHub, n: u8, version: &str) {
    import_of(hub, EngineKind::Flux, n, version).await;
}

pub(super) const APPLICATION: &str =
    "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: a}\n";

const KUSTOMIZATION: &str =
    "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: a}\n";

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
async fn an_engine_takes_the_others_place_where_agent_and_catalog_have_what_it_takes() {
    let hub = TestHub::start("engine-replace").await;
    import_of(&hub, EngineKind::Argocd, 3, "3.5.0").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let set = async |body: Value| put(&hub, "/v1/clusters/eu1/engine", &body).await;
    let refused = async |body: Value, slug_of: &str, detail: &str| {
        let (_, problem) = set(body).await;
        assert_eq!(slug(&problem), slug_of, "{problem}");
        let said = problem["detail"].as_str().unwrap();
        assert!(said.contains(detail), "{problem}");
    };
    let argocd = json!({"engine": "argocd", "replace": true});
    // An agent of before would run both.
    refused(argocd.clone(), "other-engine", "has not said").await;
    let facts = json!({"facts": {"agent.replaces-engines": "true"}}).to_string();
    let path = "/v1/clusters/eu1/reports";
    assert_eq!(agent.call(&hub, "POST", path, &facts).await.0, 200);
    let nothing =
        "clusters/eu1.argocd holds no manifests; clusters/eu1/apps.yaml is written for flux";
    refused(argocd.clone(), "other-engine", nothing).await;
    let elsewhere = json!({"engine": "argocd", "replace": true, "path": "../etc"});
    refused(elsewhere, "bad-request", "is not a path").await;
    let without = json!({"engine": "flux", "path": "clusters/eu1"});
    refused(without, "bad-request", "a path is chosen").await;
    assert_eq!(told(&hub, &agent).await["kind"], json!("flux"));

    commit(&hub, "clusters/eu1.argocd/a.yaml", APPLICATION).await;
    for (body, engine, follows) in [
        (argocd, "argocd", "clusters/eu1.argocd"),
        (
            json!({"engine": "flux", "replace": true}),
            "flux",
            "clusters/eu1",
        ),
    ] {
        let before = told(&hub, &agent).await["change"].as_u64();
        let (code, answer) = set(body).await;
        assert_eq!(code, 200, "{answer}");
        assert_eq!(answer["path"], json!(follows));
        assert_eq!(answer["change"].as_u64(), before.map(|n| n + 1));
        let (_, told) = agent
            .call(&hub, "GET", "/v1/clusters/eu1/assignment", "")
            .await;
        assert_eq!(told["engine"]["kind"], json!(engine));
        assert_eq!(told["engine"]["change"], answer["change"]);
        assert_eq!(told["catalog"]["path"], json!(follows));
    }
    hub.stop().await;
}

/// `eu1` and `us1` of a new hub's catalog are written for Flux: with Argo CD the adoption never came to its end.
#[tokio::test]
async fn a_new_cluster_begins_with_what_its_engine_can_follow() {
    let hub = TestHub::start("engine-first").await;
    import_of(&hub, EngineKind::Argocd, 3, "3.5.0").await;
    let add = async |name: &str| {
        let new = json!({"name": name, "engine": "argocd"});
        hub.post("/v1/clusters", &new).await
    };
    let (repo, branch) = (&hub.hub.catalog.repo, &hub.hub.catalog.branch);
    let (code, added) = add("eu1").await;
    let path = &added["cluster"]["catalogPath"];
    assert_eq!((code, path), (201, &json!("clusters/eu1")));
    let files = git::files(repo, branch).await.unwrap();
    let below = files.range("clusters/eu1/".to_owned().."clusters/eu10".to_owned());
    for (file, content) in below {
        let text = std::str::from_utf8(content).unwrap();
        assert!(text.contains("kind: Application\n"), "{file}: {text}");
    }

    // Nothing of a person's gives way.
    commit(&hub, "clusters/us1/own.yaml", KUSTOMIZATION).await;
    let head = git::head(repo, branch).await.unwrap();
    let (code, problem) = add("us1").await;
    assert_eq!((code, slug(&problem)), (409, "other-engine"), "{problem}");
    let detail = "the catalog has nothing for argocd in cluster us1: clusters/us1/own.yaml is written for flux";
    assert_eq!(problem["detail"], json!(detail));
    let next = problem["next"].as_str().unwrap();
    assert!(next.contains("git rm -r clusters/us1"), "{next}");
    assert_eq!(hub.get("/v1/clusters/us1").await.0, 404);
    assert_eq!(git::head(repo, branch).await.unwrap(), head);
    commit(&hub, "clusters/us1.argocd/a.yaml", APPLICATION).await;
    let (code, added) = add("us1").await;
    let path = &added["cluster"]["catalogPath"];
    assert_eq!((code, path), (201, &json!("clusters/us1.argocd")));
    hub.stop().await;
}

/// What the agent of `eu1` says is in force, and which path of the catalog each engine follows or comes back to.
async fn says(hub: &TestHub, agent: &Agent, in_force: &str, paths: &str) {
    let mut facts = json!({"agent.replaces-engines": "true"});
    for (fact, value) in [("engine.in-force", in_force), ("engine.paths", paths)] {
        if !value.is_empty() {
            facts[fact] = json!(value);
        }
    }
    let report = json!({"facts": facts}).to_string();
    let path = "/v1/clusters/eu1/reports";
    assert_eq!(agent.call(hub, "POST", path, &report).await.0, 200);
}

/// Lets the engine take its place, or end the other one's attempt: the path that it is to follow, or why that is refused.
async fn replaced(hub: &TestHub, engine: &str, path: &str) -> (u16, String) {
    let mut asked = json!({"engine": engine, "replace": true});
    if !path.is_empty() {
        asked["path"] = json!(path);
    }
    let (code, answer) = put(hub, "/v1/clusters/eu1/engine", &asked).await;
    let said = if code == 200 { "path" } else { "detail" };
    (code, answer[said].as_str().unwrap().to_owned())
}

/// A repeat that named another path, or where the catalog had one that is looked for first, had the engine prune all that it
/// had brought.
#[tokio::test]
async fn the_engine_that_a_cluster_has_is_led_to_no_other_path() {
    let hub = TestHub::start("engine-stays").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    commit(&hub, "clusters/eu1.flux/a.yaml", KUSTOMIZATION).await;
    for (in_force, paths) in [("", ""), ("flux", ""), ("flux", "flux=clusters/eu1")] {
        says(&hub, &agent, in_force, paths).await;
        for path in ["", "clusters/eu1", "./clusters/eu1/"] {
            let stays = (200, "clusters/eu1".to_owned());
            assert_eq!(replaced(&hub, "flux", path).await, stays, "{path} {paths}");
        }
        for path in ["base", "clusters/eu1.flux"] {
            let refusal = format!(
                "flux follows clusters/eu1 in cluster eu1, and led to {path} it would prune what that lacks"
            );
            assert_eq!(replaced(&hub, "flux", path).await, (409, refusal));
        }
    }
    let assignment = "/v1/clusters/eu1/assignment";
    let (_, told) = agent.call(&hub, "GET", assignment, "").await;
    assert_eq!(told["catalog"]["path"], json!("clusters/eu1"));
    hub.stop().await;
}

#[tokio::test]
async fn an_attempt_ends_where_the_engine_was_and_is_repeated_where_it_is() {
    let hub = TestHub::start("engine-attempts").await;
    import_of(&hub, EngineKind::Argocd, 3, "3.5.0").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    commit(&hub, "clusters/eu1.argocd/a.yaml", APPLICATION).await;
    // Where one would look first.
    commit(&hub, "clusters/eu1.flux/a.yaml", KUSTOMIZATION).await;
    let (flux, both) = (
        ("flux", "flux=clusters/eu1"),
        ("argocd", "argocd=base,flux=clusters/eu1"),
    );
    let led = |path: &str| (200, path.to_owned());
    // Not begun yet, or taken back; and in force.
    for (in_force, paths) in [flux, both] {
        says(&hub, &agent, flux.0, flux.1).await;
        assert_eq!(replaced(&hub, "argocd", "base").await, led("base"));
        // It has not come so far: where to is chosen anew, or stays.
        assert_eq!(replaced(&hub, "argocd", "").await, led("base"));
        let own = "clusters/eu1.argocd";
        assert_eq!(replaced(&hub, "argocd", own).await, led(own));
        assert_eq!(replaced(&hub, "argocd", "base").await, led("base"));

        says(&hub, &agent, in_force, paths).await;
        if in_force == "argocd" {
            assert_eq!(replaced(&hub, "argocd", own).await.0, 409);
            assert_eq!(replaced(&hub, "argocd", "").await, led("base"));
        }
        assert_eq!(replaced(&hub, "flux", "clusters/eu1.flux").await.0, 409);
        assert_eq!(replaced(&hub, "flux", "").await, led("clusters/eu1"));
    }

    // Where it comes back to holds nothing for it any more: no other path helps.
    commit(&hub, "clusters/eu1/own.yaml", APPLICATION).await;
    let asked = json!({"engine": "flux", "replace": true});
    let (code, problem) = put(&hub, "/v1/clusters/eu1/engine", &asked).await;
    assert_eq!((code, slug(&problem)), (409, "other-engine"), "{problem}");
    let next = "commit what flux is to follow, with all that argocd brings now, to clusters/eu1";
    assert_eq!(problem["next"], json!(next));
    hub.stop().await;
}

/// What the hub writes of a cluster goes to the path that it follows: an agent that names one names it to people.
#[tokio::test]
async fn a_path_that_only_the_agent_names_takes_an_operators_word() {
    let hub = TestHub::start("engine-told").await;
    import_of(&hub, EngineKind::Argocd, 3, "3.5.0").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let unknown = "the agent of cluster eu1 says that flux follows clusters/us1 there, which the hub did not name";
    says(&hub, &agent, "flux", "flux=clusters/us1").await;
    let (code, detail) = replaced(&hub, "flux", "").await;
    assert_eq!((code, detail.as_str()), (409, unknown));
    assert_eq!(replaced(&hub, "flux", "clusters/eu1").await.0, 409);
    let led = |path: &str| (200, path.to_owned());
    let other = "clusters/us1";
    assert_eq!(replaced(&hub, "flux", other).await, led(other));

    // An agent of before does not name it: where its engine was nobody knows but people.
    says(&hub, &agent, "flux", "").await;
    assert_eq!(replaced(&hub, "argocd", "base").await, led("base"));
    let (code, detail) = replaced(&hub, "flux", "").await;
    assert_eq!(code, 409);
    assert!(
        detail.contains("does not say what flux follows"),
        "{detail}"
    );
    assert_eq!(replaced(&hub, "flux", other).await, led(other));
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
