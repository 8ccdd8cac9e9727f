//! One engine in another's place, and the paths of the catalog that each of them follows.

use linesman::hub::git;
use linesman::wire::api::EngineKind;
use serde_json::{Value, json};

use super::super::slug;
use super::super::support::{Agent, TestHub};
use super::{APPLICATION, commit, import_of, put, told};

const KUSTOMIZATION: &str =
    "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: a}\n";

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
    // A catalog may have more beside them than the hub reads at once.
    commit(&hub, "media/large.txt", &" ".repeat((64 << 20) + 1)).await;
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
