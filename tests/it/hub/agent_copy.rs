//! W27: the catalog's copy of the agent, and how an agent that it brought back finds its way to the hub.

use linesman::agent::enroll::stored::{Join, Past};
use linesman::hub::adoption::copies::{self, Failed};
use linesman::hub::git;
use linesman::keys::{KeyPair, Public};
use serde_json::{Value, json};

use super::older::with_keys;
use super::rotate::world::{PATIENCE, Secrets};
use super::slug;
use super::support::{Agent, TestHub, token_of};
use crate::wait::{until, until_some};

mod changed;

const COPY: &str = "linesman/eu1/agent.yaml";
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

async fn copy(hub: &TestHub) -> String {
    let text = catalog(hub).await.remove(COPY).unwrap();
    String::from_utf8(text).unwrap()
}

async fn head(hub: &TestHub) -> Option<String> {
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

async fn add(hub: &TestHub, adoption: Value) -> (u16, Value) {
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
    assert_eq!(head(&hub).await, before);
    hub.stop().await;
}

/// The hub that the catalog's copy names, without a token.
fn known(hub: &TestHub) -> Join {
    Join {
        token: None,
        echoed: false,
        hub: hub.hub.config.url.clone(),
        hub_keys: vec![hub.hub.says().keys.pin()],
        ca: hub.hub.says().trust.ca.clone(),
        cluster: "eu1".parse().unwrap(),
        proxy: None,
    }
}

/// The next process of an agent whose namespace was deleted: its engine has the deploy key, and nothing else is left.
async fn returned(secrets: &Secrets) -> linesman::agent::identity::Identity {
    let deploy = KeyPair::from_seed(&[101; 32]);
    secrets.left(Some(deploy), Past::Forgotten).await
}

/// W27, H14: it names a new identity by the deploy key, waits until the former one is silent, and hears what it is to be.
#[tokio::test]
async fn an_agent_that_the_engine_brought_back_needs_no_token() {
    let hub = TestHub::start("agent-copy-back").await;
    let token = hub.add("eu1").await;
    let (_, before) = Agent::new(1).join(&hub, "eu1", &token).await;
    let secrets = Secrets::default();
    let keys = returned(&secrets).await;
    assert!(keys.lost && !keys.unsettled);
    let agent = with_keys(known(&hub), &secrets, keys.clone()).await;
    let assignment = until_some("the agent is told what it is", PATIENCE, async || {
        let joined = agent.joined.borrow().clone();
        joined.map(|joined| joined.assignment).ok_or(())
    })
    .await;
    let told = (
        assignment.cluster.id.as_str(),
        assignment.catalog.path.as_str(),
    );
    assert_eq!(
        told,
        (before["cluster"]["id"].as_str().unwrap(), "clusters/eu1")
    );
    // The same keys again, as after a kill before the answer was stored.
    let (_, view) = hub.get("/v1/clusters/eu1").await;
    let keys_of = view["keys"].as_array().unwrap();
    let valid = keys_of.iter().filter(|k| k["state"] != json!("revoked"));
    let mut prints: Vec<_> = valid.map(|k| k["fingerprint"].as_str().unwrap()).collect();
    prints.sort_unstable();
    let mut own = [keys.identity.public(), keys.deploy.public()].map(Public::fingerprint);
    own.sort_unstable();
    assert_eq!(prints, own);
    hub.stop().await;
}

/// W27: a cluster that never joined has no deploy key in its engine, and asks nobody.
#[tokio::test]
async fn an_agent_without_a_past_waits_for_a_token() {
    let keys = Secrets::default().left(None, Past::Forgotten).await;
    assert!(!keys.lost);
}

/// W27: a hub that wants a person to do it says so, to the agent's owner and to its own people.
#[tokio::test]
async fn a_hub_that_recovers_none_by_itself_says_so() {
    let hub = TestHub::manual("agent-copy-manual").await;
    let token = hub.add("eu1").await;
    assert_eq!(Agent::new(1).join(&hub, "eu1", &token).await.0, 200);
    let secrets = Secrets::default();
    let keys = returned(&secrets).await;
    let agent = with_keys(known(&hub), &secrets, keys).await;
    let said = until_some("the agent's owner is told", PATIENCE, async || {
        secrets.event("JoinRefused").ok_or(())
    })
    .await;
    assert!(said.contains("linesman cluster readopt"), "{said}");
    assert!(agent.joined.borrow().is_none());
    let (_, view) = hub.get("/v1/clusters/eu1").await;
    let conditions = view["conditions"].as_array().unwrap();
    let shown = conditions.iter().find(|c| c["type"] == "JoinConflict");
    let shown = shown.unwrap_or_else(|| panic!("{view}"));
    assert_eq!(shown["reason"], json!("RecoveryManual"));
    let next = shown["message"].as_str().unwrap();
    assert!(next.contains("linesman cluster readopt eu1"), "{next}");
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
    assert_eq!(head(&hub).await, before, "the hub cannot sign");
    assert_eq!(hub.get("/v1/clusters/eu1").await.0, 200);

    let print = json!({ "fingerprint": "A8E973778FA2D35F068A767EC3EE2C3325042763" });
    assert_eq!(hub.post("/v1/catalog/signers/drop", &print).await.0, 200);
    assert_eq!(remove(&hub).await.0, 204);
    assert_eq!(held(&hub).await, [] as [String; 0]);
    hub.stop().await;
}

/// What one look at the copies leaves behind: the catalog's head.
async fn looked(hub: &TestHub, failed: &mut Failed) -> Option<String> {
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

async fn wish(hub: &TestHub, image: &str) {
    let call = ("PUT", "/v1/clusters/eu1/agent-image");
    let any = [("if-match", "*")];
    let wish = json!({ "image": image });
    let (code, told) = hub.call_as(&hub.admin, call, &any, &wish).await;
    assert_eq!(code, 200, "{told}");
}

/// The agent says how it stands with this image.
async fn says(agent: &Agent, hub: &TestHub, status: &str, reason: &str, message: String) {
    let condition = json!({
        "type": "AgentCurrent", "status": status, "reason": reason, "message": message,
        "since": "2026-01-01T00:00:00Z",
    });
    let report = json!({ "conditions": [condition] }).to_string();
    let path = "/v1/clusters/eu1/reports";
    let (code, ack) = agent.call(hub, "POST", path, &report).await;
    assert_eq!(code, 200, "{ack}");
}

async fn commit(hub: &TestHub, files: &[(&str, &str)], gone: &[&str]) {
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

/// W27: an image counts when the agent stays with it; edits are lost; and who takes a part of the copy out wants none.
#[tokio::test]
async fn the_hub_renews_a_copy_when_what_it_is_made_of_has_changed() {
    let hub = TestHub::start("agent-copy-renewed").await;
    let (code, answer) = add(&hub, json!({})).await;
    assert_eq!(code, 201, "{answer}");
    let agent = Agent::new(1);
    assert_eq!(agent.join(&hub, "eu1", &token_of(&answer)).await.0, 200);
    let mut failed = Failed::default();
    let first = head(&hub).await;
    let current = json!({ "kept": true, "current": true });
    let old = json!({ "kept": true, "current": false });
    assert_eq!(looked(&hub, &mut failed).await, first);
    assert_eq!(shown(&hub).await, current);

    let image = format!("registry.example.org/linesman@sha256:{}", "a".repeat(64));
    wish(&hub, &image).await;
    assert_eq!(looked(&hub, &mut failed).await, first, "nobody knows yet");
    let trial = format!("{image}: on trial");
    says(&agent, &hub, "False", "Changing", trial).await;
    assert_eq!(
        looked(&hub, &mut failed).await,
        first,
        "it may be taken back"
    );
    says(
        &agent,
        &hub,
        "True",
        "InForce",
        format!("{image}: the agent runs it"),
    )
    .await;
    assert_eq!(shown(&hub).await, old);
    let second = looked(&hub, &mut failed).await;
    assert_ne!(second, first);
    assert!(copy(&hub).await.contains(&image));
    assert_eq!(shown(&hub).await, current);
    assert_eq!(
        looked(&hub, &mut failed).await,
        second,
        "nothing is left to do"
    );

    let written = copy(&hub).await;
    commit(&hub, &[(COPY, "kind: Nothing")], &[]).await;
    assert_eq!(shown(&hub).await, old);
    looked(&hub, &mut failed).await;
    assert_eq!(copy(&hub).await, written);

    commit(&hub, &[], &[SYNC]).await;
    let without = head(&hub).await;
    assert_eq!(
        looked(&hub, &mut failed).await,
        without,
        "it is not followed"
    );
    assert_eq!(
        shown(&hub).await,
        json!({ "kept": false, "current": false })
    );
    hub.stop().await;
}

/// W27: that it cannot be written is told, and tried again later and later; the next that can be written ends that.
#[tokio::test]
async fn a_copy_that_cannot_be_renewed_says_why_until_it_is() {
    let hub = TestHub::start("agent-copy-stuck").await;
    let (code, answer) = add(&hub, json!({})).await;
    assert_eq!(code, 201, "{answer}");
    commit(&hub, &[(COPY, "kind: Nothing")], &[]).await;
    let repo = &hub.hub.catalog.repo;
    let lock = repo.join("refs/heads/main.lock");
    std::fs::write(&lock, "").unwrap();
    let before = head(&hub).await;
    let mut failed = Failed::default();
    assert_eq!(looked(&hub, &mut failed).await, before);
    let told = shown(&hub).await;
    assert_eq!(
        (&told["kept"], &told["current"]),
        (&json!(true), &json!(false))
    );
    let trouble = told["trouble"].as_str().unwrap();
    assert!(trouble.contains("commit to the catalog"), "{trouble}");
    std::fs::remove_file(&lock).unwrap();
    assert_eq!(looked(&hub, &mut failed).await, before, "not at each look");
    assert_ne!(looked(&hub, &mut Failed::default()).await, before);
    assert_eq!(shown(&hub).await, json!({ "kept": true, "current": true }));
    hub.stop().await;
}

/// W27: when it is tried again is not forgotten where the database cannot be read meanwhile, and each replica says why.
#[tokio::test]
async fn what_is_known_of_a_stuck_copy_outlives_a_look_that_breaks_off() {
    let ([hub, other], _) = TestHub::replicas("agent-copy-broken").await;
    for name in ["eu1", "zz1"] {
        let new = json!({ "name": name, "agentCopy": true });
        let (code, answer) = hub.post("/v1/clusters", &new).await;
        assert_eq!(code, 201, "{answer}");
    }
    commit(&hub, &[(COPY, "kind: Nothing")], &[]).await;
    let lock = hub.hub.catalog.repo.join("refs/heads/main.lock");
    std::fs::write(&lock, "").unwrap();
    let (before, mut failed) = (head(&hub).await, Failed::default());
    assert_eq!(looked(&hub, &mut failed).await, before);
    let told = shown(&hub).await;
    let trouble = told["trouble"].as_str().unwrap();
    assert!(trouble.contains("commit to the catalog"), "{trouble}");
    assert_eq!(shown(&other).await, told);
    std::fs::remove_file(&lock).unwrap();

    let break_off = "UPDATE cluster SET labels = 'x' WHERE name = 'zz1'";
    hub.execute(break_off, break_off).await;
    copies::look(&hub.hub, &mut failed).await.unwrap_err();
    assert_eq!(head(&hub).await, before, "not at each look");
    let mend = "UPDATE cluster SET labels = '{}' WHERE name = 'zz1'";
    hub.execute(mend, mend).await;
    assert_eq!(looked(&hub, &mut failed).await, before, "not at each look");
    assert_ne!(looked(&hub, &mut Failed::default()).await, before);
    for hub in [&hub, &other] {
        assert_eq!(shown(hub).await, json!({ "kept": true, "current": true }));
    }
    hub.leave().await;
    other.stop().await;
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
