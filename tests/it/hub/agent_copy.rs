//! W27: the catalog's copy of the agent, and how an agent that it brought back finds its way to the hub.

use linesman::hub::adoption::copies::{self, Failed};
use linesman::hub::git;
use serde_json::{Value, json};

use super::rotate::world::PATIENCE;
use super::slug;
use super::support::{Agent, TestHub, token_of};
use crate::wait::until;

mod changed;
mod renewed;
mod returned;

pub(super) const COPY: &str = "linesman/eu1/agent.yaml";
const SYNC: &str = "clusters/eu1/linesman.yaml";

async fn catalog(hub: &TestHub) -> git::Files {
    let catalog = &hub.hub.catalog;
    git::files(&catalog.repo, &catalog.branch).await.unwrap()
}

/// Which of the copy's files there are.
async fn held(hub: &TestHub) -> Vec<String> {
    let files = catalog(hub).await;
    let all = files.into_keys();
    all.filter(|path| path.starts_with("linesman/") || path.ends_with("/linesman.yaml"))
        .collect()
}

pub(super) async fn copy(hub: &TestHub) -> String {
    let text = catalog(hub).await.remove(COPY).unwrap();
    String::from_utf8(text).unwrap()
}

pub(super) async fn head(hub: &TestHub) -> Option<String> {
    let catalog = &hub.hub.catalog;
    git::head(&catalog.repo, &catalog.branch).await.unwrap()
}

async fn choose(hub: &TestHub, kept: bool) -> (u16, Value) {
    let call = ("PUT", "/v1/clusters/eu1/agent-copy");
    let any = [("if-match", "*")];
    hub.call_as(&hub.admin, call, &any, &json!({ "kept": kept }))
        .await
}

async fn remove(hub: &TestHub) -> (u16, Value) {
    let call = ("DELETE", "/v1/clusters/eu1");
    hub.call_as(&hub.admin, call, &[("if-match", "*")], &Value::Null)
        .await
}

/// Why what was put on record last is not made.
async fn last_word(hub: &TestHub) -> Option<String> {
    let rows = hub.hub.store.audit_tail(Some("eu1"), 1).await.unwrap();
    rows[0].reason.clone()
}

pub(super) async fn add(hub: &TestHub, adoption: Value) -> (u16, Value) {
    let new = json!({ "name": "eu1", "agentCopy": true, "adoption": adoption });
    hub.post("/v1/clusters", &new).await
}

/// W27: written where it is asked for, with no secret in it; what the owner applies later is in it as soon as it is in
/// force, and not before; the removal takes it out.
#[tokio::test]
async fn the_copy_follows_what_the_owner_applied_and_goes_with_the_cluster() {
    let hub = TestHub::start("agent-copy").await;
    let (code, answer) = add(&hub, json!({ "access": "view" })).await;
    assert_eq!(code, 201, "{answer}");
    assert_eq!(held(&hub).await, [SYNC, COPY]);
    let (token, text) = (token_of(&answer), copy(&hub).await);
    assert!(
        !text.contains(&token) && !text.contains("kind: Secret"),
        "{text}"
    );
    for public in [hub.hub.config.url.as_str(), &hub.hub.says().keys.pin().key] {
        assert!(text.contains(public), "{public}");
    }
    let agent = Agent::new(1);
    assert_eq!(agent.join(&hub, "eu1", &token).await.0, 200);

    let asked = json!({ "adoption": { "image": "registry.example.org/linesman:2" } });
    let path = "/v1/clusters/eu1/join-tokens";
    let (code, again) = hub.post(path, &asked).await;
    assert_eq!(code, 201, "{again}");
    assert_eq!(copy(&hub).await, text, "nobody has applied it yet");
    assert_eq!(agent.join(&hub, "eu1", &token_of(&again)).await.0, 200);
    until("the copy has the new image", PATIENCE, async || {
        copy(&hub)
            .await
            .contains("image: registry.example.org/linesman:2")
    })
    .await;

    assert_eq!(remove(&hub).await.0, 204);
    assert_eq!(held(&hub).await, [] as [String; 0]);
    assert!(catalog(&hub).await.contains_key("clusters/eu1/apps.yaml"));
    hub.stop().await;
}

/// W27: for a cluster that is there already, and back again; asked for twice, nothing is committed.
#[tokio::test]
async fn a_copy_is_kept_and_taken_out_on_demand() {
    let hub = TestHub::start("agent-copy-later").await;
    let token = hub.add("eu1").await;
    assert_eq!(Agent::new(1).join(&hub, "eu1", &token).await.0, 200);
    assert_eq!(held(&hub).await, [] as [String; 0]);
    assert_eq!(choose(&hub, true).await, (200, json!({ "kept": true })));
    assert_eq!(held(&hub).await, [SYNC, COPY]);
    let before = head(&hub).await;
    assert_eq!(choose(&hub, true).await.0, 200);
    assert_eq!(head(&hub).await, before);

    let image =
        json!({ "image": format!("registry.example.org/linesman@sha256:{}", "a".repeat(64)) });
    let call = ("PUT", "/v1/clusters/eu1/agent-image");
    let any = [("if-match", "*")];
    let (code, told) = hub.call_as(&hub.admin, call, &any, &image).await;
    assert_eq!(code, 200, "{told}");
    assert_eq!(choose(&hub, true).await.0, 200);
    let wished = image["image"].as_str().unwrap();
    assert!(copy(&hub).await.contains(wished));

    assert_eq!(choose(&hub, false).await, (200, json!({ "kept": false })));
    assert_eq!(held(&hub).await, [] as [String; 0]);
    hub.stop().await;
}

/// `cluster agent-copy --wait` goes by that: the catalog has it at once, the engine when it has read the catalog again.
#[tokio::test]
async fn whether_the_engine_has_applied_the_copy_is_told() {
    let hub = TestHub::start("agent-copy-applied").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    assert_eq!(agent.join(&hub, "eu1", &token).await.0, 200);
    let synced = async |commit: &str| {
        let report = json!({ "revision": format!("main@sha1:{commit}") }).to_string();
        let path = "/v1/clusters/eu1/reports";
        assert_eq!(agent.call(&hub, "POST", path, &report).await.0, 200);
    };
    let none = |applied: bool| json!({ "kept": false, "current": false, "applied": applied });
    let kept = |applied: bool| json!({ "kept": true, "current": true, "applied": applied });
    assert_eq!(told(&hub).await, none(false), "nothing is known of it");
    synced(&"0".repeat(40)).await;
    assert_eq!(told(&hub).await, none(false), "no commit of this catalog");
    let before = head(&hub).await.unwrap();
    synced(&before).await;
    assert_eq!(told(&hub).await, none(true));

    assert_eq!(choose(&hub, true).await.0, 200);
    assert_eq!(told(&hub).await, kept(false));
    let with = head(&hub).await.unwrap();
    // Somebody pushes meanwhile: the engine may come to that commit at once.
    commit(&hub, &[("clusters/eu1/other.yaml", "a: 1")], &[]).await;
    for commit in [with, head(&hub).await.unwrap()] {
        synced(&commit).await;
        assert_eq!(told(&hub).await, kept(true));
    }
    assert_eq!(choose(&hub, false).await.0, 200);
    assert_eq!(told(&hub).await, none(false));
    synced(&head(&hub).await.unwrap()).await;
    assert_eq!(told(&hub).await, none(true));
    hub.stop().await;
}

/// W27, H12: a proxy's password is no matter for Git.
#[tokio::test]
async fn no_copy_is_kept_of_an_agent_whose_proxy_takes_a_password() {
    let hub = TestHub::start("agent-copy-proxy").await;
    let before = head(&hub).await;
    let proxy = json!({ "httpsProxy": "http://user:word@proxy:3128" });
    let (code, problem) = add(&hub, proxy).await;
    assert_eq!((code, slug(&problem)), (400, "bad-request"), "{problem}");
    assert!(!problem.to_string().contains("word@"), "{problem}");
    assert_eq!(hub.get("/v1/clusters/eu1").await.0, 404);
    assert_eq!(last_word(&hub).await.unwrap(), "not made: bad-request");
    assert_eq!(head(&hub).await, before);
    hub.stop().await;
}

/// W27: where the head has to be signed, the hub proposes, and lets no cluster go whose copy is still in force.
#[tokio::test]
async fn with_signers_a_copy_is_proposed_and_a_removal_waits_for_its_end() {
    let hub = TestHub::start("agent-copy-signed").await;
    let (code, answer) = add(&hub, json!({})).await;
    assert_eq!(code, 201, "{answer}");
    let signer = json!({ "publicKey": include_str!("signers/ada.asc"), "force": true });
    assert_eq!(hub.post("/v1/catalog/signers", &signer).await.0, 201);
    let before = head(&hub).await;
    let branch = json!("linesman-agent/eu1");
    let expected = json!({ "kept": false, "proposed": branch });
    assert_eq!(choose(&hub, false).await, (200, expected));
    let (code, problem) = remove(&hub).await;
    assert_eq!((code, slug(&problem)), (409, "head-unsigned"), "{problem}");
    assert_eq!(last_word(&hub).await.unwrap(), "not made: head-unsigned");
    assert_eq!(head(&hub).await, before, "the hub cannot sign");
    assert_eq!(hub.get("/v1/clusters/eu1").await.0, 200);

    let print = json!({ "fingerprint": "A8E973778FA2D35F068A767EC3EE2C3325042763" });
    assert_eq!(hub.post("/v1/catalog/signers/drop", &print).await.0, 200);
    assert_eq!(remove(&hub).await.0, 204);
    assert_eq!(held(&hub).await, [] as [String; 0]);
    hub.stop().await;
}

/// What one look at the copies leaves behind: the catalog's head.
pub(super) async fn looked(hub: &TestHub, failed: &mut Failed) -> Option<String> {
    copies::look(&hub.hub, failed).await.unwrap();
    head(hub).await
}

/// How the copy stands in the catalog.
async fn shown(hub: &TestHub) -> Value {
    let mut told = told(hub).await;
    told.as_object_mut().unwrap().remove("applied");
    told
}

async fn told(hub: &TestHub) -> Value {
    let (code, view) = hub.get("/v1/clusters/eu1").await;
    assert_eq!(code, 200, "{view}");
    view["agentCopy"].clone()
}

pub(super) async fn commit(hub: &TestHub, files: &[(&str, &str)], gone: &[&str]) {
    let change = git::Change {
        files: files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()))
            .collect(),
        only_missing: false,
        gone: gone.iter().map(|path| (*path).to_owned()).collect(),
        author: git::Author::hub(),
        message: "Somebody's change".to_owned(),
    };
    let catalog = &hub.hub.catalog;
    let made = git::commit(&catalog.repo, &catalog.branch, change).await;
    assert!(made.unwrap().is_some());
}

/// W27: proposed once, however often it is looked at, and not over what was asked for meanwhile.
#[tokio::test]
async fn with_signers_a_renewed_copy_is_proposed_once() {
    let hub = TestHub::start("agent-copy-proposed").await;
    let (code, answer) = add(&hub, json!({})).await;
    assert_eq!(code, 201, "{answer}");
    commit(&hub, &[(COPY, "kind: Nothing")], &[]).await;
    let signer = json!({ "publicKey": include_str!("signers/ada.asc"), "force": true });
    assert_eq!(hub.post("/v1/catalog/signers", &signer).await.0, 201);
    let before = head(&hub).await;
    let (repo, branch) = (&hub.hub.catalog.repo, "linesman-agent/eu1");
    let mut failed = Failed::default();
    assert_eq!(
        looked(&hub, &mut failed).await,
        before,
        "the hub cannot sign"
    );
    let proposed = git::head(repo, branch).await.unwrap();
    assert!(proposed.is_some());
    let expected = json!({ "kept": true, "current": false, "proposed": branch });
    assert_eq!(shown(&hub).await, expected);
    looked(&hub, &mut failed).await;
    assert_eq!(git::head(repo, branch).await.unwrap(), proposed);

    assert_eq!(choose(&hub, false).await.0, 200);
    let taken_out = git::head(repo, branch).await.unwrap();
    assert_ne!(taken_out, proposed);
    looked(&hub, &mut failed).await;
    assert_eq!(git::head(repo, branch).await.unwrap(), taken_out);
    hub.stop().await;
}

/// W27: who changes their mind, or merges the removal and uses the name again, finds nothing that holds a renewal back.
#[tokio::test]
async fn with_signers_a_removal_that_is_over_holds_no_renewal_back() {
    let hub = TestHub::start("agent-copy-over").await;
    let (code, answer) = add(&hub, json!({})).await;
    assert_eq!(code, 201, "{answer}");
    let signer = json!({ "publicKey": include_str!("signers/ada.asc"), "force": true });
    assert_eq!(hub.post("/v1/catalog/signers", &signer).await.0, 201);
    let (repo, branch) = (&hub.hub.catalog.repo, "linesman-agent/eu1");
    let waits = json!({ "kept": true, "current": false, "proposed": branch });
    let mut failed = Failed::default();

    assert_eq!(choose(&hub, false).await.0, 200);
    assert_eq!(choose(&hub, true).await, (200, json!({ "kept": true })));
    let left = git::head(repo, branch).await.unwrap();
    assert_eq!(left, None, "whoever merges it takes the copy out");
    commit(&hub, &[(COPY, "kind: Nothing")], &[]).await;
    looked(&hub, &mut failed).await;
    assert_eq!(shown(&hub).await, waits);

    assert_eq!(choose(&hub, false).await.0, 200);
    let taken_out = git::head(repo, branch).await.unwrap().unwrap();
    // It is merged.
    std::fs::write(repo.join("refs/heads/main"), format!("{taken_out}\n")).unwrap();
    assert_eq!(held(&hub).await, [] as [String; 0]);
    let again = [(COPY, "kind: Nothing"), (SYNC, "kind: Nothing")];
    commit(&hub, &again, &[]).await;
    looked(&hub, &mut failed).await;
    assert_eq!(shown(&hub).await, waits);

    // Somebody takes it out by a commit of their own.
    commit(&hub, &[], &[COPY, SYNC]).await;
    assert_eq!(choose(&hub, false).await, (200, json!({ "kept": false })));
    let left = git::head(repo, branch).await.unwrap();
    assert_eq!(left, None, "whoever merges it brings a copy back");
    hub.stop().await;
}

/// W27: what the owner applies meanwhile is no word against the removal that waits.
#[tokio::test]
async fn with_signers_a_join_writes_over_no_removal() {
    let hub = TestHub::start("agent-copy-ending").await;
    let (code, answer) = add(&hub, json!({})).await;
    assert_eq!(code, 201, "{answer}");
    let signer = json!({ "publicKey": include_str!("signers/ada.asc"), "force": true });
    assert_eq!(hub.post("/v1/catalog/signers", &signer).await.0, 201);
    assert_eq!(choose(&hub, false).await.0, 200);
    let (repo, branch) = (&hub.hub.catalog.repo, "linesman-agent/eu1");
    let taken_out = git::head(repo, branch).await.unwrap();
    assert!(taken_out.is_some());

    let asked = json!({ "adoption": { "image": "registry.example.org/linesman:2" } });
    let (code, answer) = hub.post("/v1/clusters/eu1/join-tokens", &asked).await;
    assert_eq!(code, 201, "{answer}");
    let agent = Agent::new(1);
    assert_eq!(agent.join(&hub, "eu1", &token_of(&answer)).await.0, 200);
    assert_eq!(
        shown(&hub).await,
        json!({ "kept": true, "current": false }),
        "it is made of something else now"
    );
    // The join does so by itself, in its own time.
    let id = answer["cluster"]["id"].as_str().unwrap();
    linesman::hub::adoption::copy::renew_joined(&hub.hub, id).await;
    assert_eq!(git::head(repo, branch).await.unwrap(), taken_out);
    hub.stop().await;
}
