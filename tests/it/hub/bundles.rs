//! Engine bundles that are removed, and those that clusters need.

use linesman::clock;
use linesman::hub::store::NewBundle;
use linesman::wire::api::EngineKind;
use linesman::wire::id::Digest;
use serde_json::{Value, json};

use super::engine::{import_of, put};
use super::slug;
use super::support::{Agent, TestHub};

fn digest(n: u8) -> Digest {
    Digest::from_bytes([n; 32])
}

async fn remove(hub: &TestHub, token: &str, digest: &str) -> (u16, Value) {
    let path = format!("/v1/bundles/{digest}");
    let any = [("if-match", "*")];
    hub.call_as(token, ("DELETE", &path), &any, &Value::Null)
        .await
}

/// As an admin; gives the code with the slug and the detail of a refusal.
async fn removed(hub: &TestHub, n: u8) -> (u16, String) {
    let (code, problem) = remove(hub, &hub.admin, digest(n).as_str()).await;
    if code == 204 {
        return (code, String::new());
    }
    let detail = problem["detail"].as_str().unwrap();
    (code, format!("{}: {detail}", slug(&problem)))
}

async fn held(hub: &TestHub) -> Vec<String> {
    let all = hub.hub.store.bundles().await.unwrap();
    let mut versions: Vec<String> = all.into_iter().map(|b| b.version).collect();
    versions.sort();
    versions
}

/// What an agent says of its engine, in the words of the condition.
async fn says(hub: &TestHub, agent: &Agent, name: &str, (status, message): (&str, &str)) {
    let body = json!({"conditions": [{
        "type": "EngineCurrent", "status": status, "reason": "R", "message": message, "since": "2026-01-02T03:04:05Z",
    }]});
    report(hub, agent, name, &body).await;
}

async fn report(hub: &TestHub, agent: &Agent, name: &str, body: &Value) {
    let path = format!("/v1/clusters/{name}/reports");
    let (code, ack) = agent.call(hub, "POST", &path, &body.to_string()).await;
    assert_eq!(code, 200, "{ack}");
}

async fn set(hub: &TestHub, name: &str, version: &str) -> u16 {
    let path = format!("/v1/clusters/{name}/engine");
    let asked = json!({"engine": "flux", "version": version});
    put(hub, &path, &asked).await.0
}

#[tokio::test]
async fn a_bundle_that_no_cluster_needs_goes_once_and_on_record() {
    let hub = TestHub::start("bundles-removed").await;
    import_of(&hub, EngineKind::Flux, 2, "2.9.4").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let viewer = hub.user("vera", &["viewer", "access"], &[]).await;
    let operator = hub.user("olga", &["operator"], &[]).await;
    let old = digest(2);
    let (code, problem) = remove(&hub, &viewer, old.as_str()).await;
    assert_eq!((code, slug(&problem)), (403, "not-allowed"));
    assert_eq!(held(&hub).await, ["2.9.4", "2.9.5"]);
    for unknown in [digest(9).as_str(), "sha256:4f1c"] {
        let (code, problem) = remove(&hub, &operator, unknown).await;
        assert_eq!((code, slug(&problem)), (404, "bundle-unknown"));
    }

    assert_eq!(remove(&hub, &operator, old.as_str()).await.0, 204);
    assert_eq!(held(&hub).await, ["2.9.5"]);
    // Again there is nothing to remove: by its ETag, too.
    assert_eq!(remove(&hub, &operator, old.as_str()).await.0, 404);
    let path = format!("/v1/bundles/{old}");
    assert_eq!(hub.delete(&path, Some(&format!("\"{old}\""))).await, 404);
    let rows = hub.hub.store.audit(0, None, 500).await.unwrap();
    let told: Vec<(&str, &str, &str)> = rows
        .iter()
        .filter(|row| row.action == "bundle.remove")
        .map(|row| {
            (
                row.actor.as_str(),
                row.verdict.as_str(),
                row.target.as_str(),
            )
        })
        .collect();
    let target = format!("flux 2.9.4 {old}");
    assert_eq!(
        told,
        [
            ("user:vera", "deny", ""),
            ("user:olga", "allow", target.as_str())
        ]
    );

    // An agent that was told to fetch it a moment ago hears what became of it.
    let (code, problem) = agent.call(&hub, "GET", &path, "").await;
    assert_eq!((code, slug(&problem)), (404, "bundle-unknown"));
    assert_eq!(
        problem["detail"],
        json!(format!(
            "the bundle {old} of flux 2.9.4 was removed from the hub"
        ))
    );
    let next = problem["next"].as_str().unwrap();
    assert!(next.contains("linesman engine import flux 2.9.4"), "{next}");
    assert_eq!(set(&hub, "eu1", "2.9.4").await, 404);
    import_of(&hub, EngineKind::Flux, 2, "2.9.4").await;
    assert_eq!(set(&hub, "eu1", "2.9.4").await, 200);
    hub.stop().await;
}

#[tokio::test]
async fn a_bundle_stays_while_a_cluster_is_to_run_it_runs_it_or_may_go_back_to_it() {
    let hub = TestHub::start("bundles-needed").await;
    import_of(&hub, EngineKind::Flux, 2, "2.9.4").await;
    let token = hub.add("eu1").await;
    hub.add("eu2").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let stays = |why: &str| {
        let short = "sha256:010101010101";
        let text = format!("bundle-in-use: the bundle of flux 2.9.5 ({short}…) stays: {why}");
        (409, text)
    };
    assert_eq!(removed(&hub, 1).await, stays("eu1, eu2 shall run it"));
    for name in ["eu1", "eu2"] {
        assert_eq!(set(&hub, name, "2.9.4").await, 200);
    }
    let [before, after] = [
        "flux 2.9.5 (sha256:010101010101…)",
        "flux 2.9.4 (sha256:020202020202…)",
    ];
    let kept = stays("it is in force, or what was before a change, in eu1");
    let changing = format!("change 1: {before} to {after}: waits for the controllers");
    let undone = format!("change 1: {after} did not work within 300 s; back at {before}: why");
    for (status, said) in [
        ("True", format!("change 0: {before}")),
        ("False", changing),
        ("False", undone),
    ] {
        says(&hub, &agent, "eu1", (status, &said)).await;
        assert_eq!(removed(&hub, 1).await, kept, "{said}");
    }
    says(&hub, &agent, "eu1", ("True", &format!("change 2: {after}"))).await;
    assert_eq!(removed(&hub, 1).await, (204, String::new()));
    assert_eq!(held(&hub).await, ["2.9.4"]);
    // What is left of a cluster that was removed needs none.
    assert_eq!(removed(&hub, 2).await.0, 409);
    for name in ["eu1", "eu2"] {
        let path = format!("/v1/clusters/{name}");
        assert_eq!(hub.delete(&path, Some("*")).await, 204);
    }
    assert_eq!(removed(&hub, 2).await, (204, String::new()));
    hub.stop().await;
}

/// The first digits of a bundle in words for people are not all that the hub goes by.
#[tokio::test]
async fn an_agent_that_names_its_bundles_in_full_is_taken_by_that_word() {
    let hub = TestHub::start("bundles-named").await;
    import_of(&hub, EngineKind::Flux, 2, "2.9.4").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    assert_eq!(set(&hub, "eu1", "2.9.4").await, 200);
    let [before, after] = [digest(1), digest(2)];
    let names = async |bundles: &str| {
        let body = json!({"facts": {"engine.bundles": bundles}});
        report(&hub, &agent, "eu1", &body).await;
    };
    says(&hub, &agent, "eu1", ("False", "3 objects to go")).await;
    for bundles in [before.to_string(), format!("{after},{before}")] {
        names(&bundles).await;
        let (code, why) = removed(&hub, 1).await;
        assert_eq!(code, 409, "{bundles}: {why}");
        assert!(
            why.ends_with("stays: it is in force, or what was before a change, in eu1"),
            "{why}"
        );
    }
    let of_before = format!("it was {} once", before.short());
    says(&hub, &agent, "eu1", ("True", &of_before)).await;
    names(after.as_str()).await;
    assert_eq!(removed(&hub, 1).await, (204, String::new()));
    hub.stop().await;
}

/// `engine remove` looks up what it is to remove: with the scope that may remove it was refused.
#[tokio::test]
async fn whoever_may_import_and_remove_bundles_sees_which_there_are() {
    let hub = TestHub::start("bundles-listed").await;
    let list = async |token: &str| {
        let call = ("GET", "/v1/bundles");
        hub.call_as(token, call, &[], &Value::Null).await
    };
    let asked = json!({"title": "ci", "lasts": 3600, "scopes": ["operator"]});
    let (code, made) = hub.post("/v1/api-tokens", &asked).await;
    assert_eq!(code, 201, "{made}");
    let viewer = hub.user("vera", &["viewer"], &[]).await;
    let seen = list(&viewer).await;
    let version = &seen.1["items"][0]["version"];
    assert_eq!((seen.0, version), (200, &json!("2.9.5")));
    assert_eq!(list(made["token"].as_str().unwrap()).await, seen);
    let other = hub.user("ada", &["access", "auditor"], &[]).await;
    let (code, problem) = list(&other).await;
    assert_eq!((code, slug(&problem)), (403, "not-allowed"));
    assert_eq!(problem["detail"], "ada lacks the role viewer");
    hub.stop().await;
}

/// Those behind the 500 newest were neither listed nor found by their version.
#[tokio::test]
async fn all_bundles_are_listed_page_by_page_and_any_can_be_chosen() {
    let hub = TestHub::start("bundles-pages").await;
    hub.add("eu1").await;
    let later = clock::now() + time::Duration::hours(1);
    for n in 0..500_u16 {
        let mut bytes = [7; 32];
        bytes[..2].copy_from_slice(&n.to_be_bytes());
        let bundle = NewBundle {
            digest: Digest::from_bytes(bytes),
            engine: EngineKind::Flux,
            version: format!("2.9.{}", n + 10),
            objects: 1,
            images: vec![],
            data: vec![1],
            imported_by: "admin".to_owned(),
            origin: None,
        };
        let at = later + time::Duration::seconds(i64::from(n));
        hub.hub.store.add_bundle(bundle, at).await.unwrap();
    }
    let newest_first = (10..510).rev().map(|n| format!("2.9.{n}"));
    let mut expected: Vec<String> = newest_first.collect();
    expected.push("2.9.5".to_owned());
    for (asked, pages) in [("limit=500", 2), ("limit=200", 3)] {
        let (mut seen, mut cursor, mut count) = (Vec::new(), String::new(), 0);
        loop {
            let path = format!("/v1/bundles?{asked}{cursor}");
            let (code, page) = hub.get(&path).await;
            assert_eq!(code, 200, "{page}");
            let items = page["items"].as_array().unwrap();
            let versions = items.iter().map(|b| b["version"].as_str().unwrap());
            seen.extend(versions.map(str::to_owned));
            count += 1;
            let Some(next) = page["cursor"].as_str() else {
                break;
            };
            cursor = format!("&cursor={next}");
        }
        assert_eq!((seen, count), (expected.clone(), pages), "{asked}");
    }
    for version in ["2.9.10", "2.9.5"] {
        assert_eq!(set(&hub, "eu1", version).await, 200, "{version}");
    }
    hub.stop().await;
}

/// Whoever comes first: no cluster is told to run what is gone.
#[tokio::test]
async fn of_a_removal_and_a_wish_for_the_same_bundle_one_is_made() {
    let hub = TestHub::start("bundles-race").await;
    hub.add("eu1").await;
    for n in 10..20 {
        import_of(&hub, EngineKind::Flux, n, &format!("2.8.{n}")).await;
        let version = format!("2.8.{n}");
        let (gone, wished) = tokio::join!(removed(&hub, n), set(&hub, "eu1", &version));
        assert!(
            matches!((gone.0, wished), (204, 404) | (409, 200)),
            "{gone:?} {wished}"
        );
    }
    hub.stop().await;
}
