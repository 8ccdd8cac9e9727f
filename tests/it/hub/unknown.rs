//! Agents whose keys the hub does not know: it was restored from a backup older than they are, or a cluster was copied.

use std::time::{Duration, Instant};

use linesman::agent::fault::Faults;
use linesman::agent::identity::{self, Identity};
use linesman::agent::link::LinkState;
use linesman::hub::git;
use linesman::keys::KeyPair;
use linesman::wire::api::EngineKind;
use linesman::wire::frame::Code;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::rotate::world::{PATIENCE, Running, World};
use super::support::{Agent, TestHub, token_of};
use super::{engine, slug};
use crate::wait::until_some;

const LIST: &str = "/v1/unknown-agents";
const ACCEPT: &str = "/v1/unknown-agents/accept";
/// H23
const ACCEPTED: Duration = Duration::from_secs(10);
/// What a backup from before the cluster has of it.
const FORGET: &str =
    "DELETE FROM line; DELETE FROM step; DELETE FROM fact; DELETE FROM condition; DELETE FROM heal;
    DELETE FROM outbox; DELETE FROM cluster_host_key; DELETE FROM join_token; DELETE FROM cluster_key; DELETE FROM cluster";

async fn line_is_up(agent: &Running, within: Duration) {
    let mut line = agent.line.clone();
    let up = line.wait_for(|l| matches!(l, LinkState::Up { .. }));
    timeout(within, up).await.expect("no line in time").unwrap();
}

async fn listed(hub: &TestHub) -> Vec<Value> {
    let (code, page) = hub.get(LIST).await;
    assert_eq!(code, 200, "{page}");
    page["items"].as_array().unwrap().clone()
}

/// All but address and times.
fn claims(agent: &Value) -> Value {
    json!([
        agent["fingerprint"],
        agent["cluster"],
        agent["reason"],
        agent["incarnation"]
    ])
}

async fn refused(hub: &TestHub, body: Value) -> (u16, String, String) {
    let (code, problem) = hub.post(ACCEPT, &body).await;
    let next = problem["next"].as_str().unwrap_or_default().to_owned();
    (code, slug(&problem).to_owned(), next)
}

/// `POST /v1/recover` of a cluster with these keys, one of which signs what it says only where it is `good`.
pub(super) async fn recover(
    hub: &TestHub,
    keys: &Identity,
    (name, incarnation, good): (&str, &str, bool),
) {
    let cluster = name.parse().unwrap();
    let proof = identity::recovery_proof(keys, &hub.hub.id, &cluster, incarnation);
    let body = json!({
        "cluster": name, "incarnation": incarnation,
        "newIdentityKey": keys.identity.public().to_base64(),
        "deployKey": keys.deploy.public().openssh("").unwrap(),
        "sig": proof,
    });
    let signer = if good {
        keys.identity.clone()
    } else {
        KeyPair::from_seed(&[99; 32])
    };
    let body = body.to_string();
    let (code, _) = hub
        .call("POST", "/v1/recover", &body)
        .signed_by(&signer, 0)
        .await;
    assert_eq!(code, 403);
}

/// Somebody else's claim does not displace an agent that is there, not even with an operator's word.
async fn displaced_by_nobody(hub: &TestHub) {
    let thief = Identity::from_seeds(&[70; 32], &[71; 32]);
    recover(hub, &thief, ("eu1", "guessed", true)).await;
    let print = thief.identity.public().fingerprint();
    let (code, kind, next) = refused(hub, json!({"fingerprint": print, "replace": true})).await;
    assert_eq!((code, kind.as_str()), (409, "line-live"));
    assert!(next.contains("linesman cluster revoke eu1"), "{next}");
}

/// H23: nothing is concluded from what they claim; an operator's word lets one in, within 10 s, and nothing is written to
/// the catalog.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_of_a_restored_hub_is_listed_and_let_in() {
    let world = World::new("unknown").await;
    let (hub, own) = (&world.hub, KeyPair::from_seed(&[1; 32]).public());
    let agent = world.agent(Faults::default()).await;
    line_is_up(&agent, PATIENCE).await;
    let catalog = async || {
        let head = git::head(&hub.hub.catalog.repo, &hub.hub.catalog.branch).await;
        head.unwrap()
    };
    let head = catalog().await;
    hub.execute(FORGET, FORGET).await;
    let name = "eu1".parse().unwrap();
    hub.hub.tunnels.close(&name, Code::None, "the hub stops");
    let found = until_some("it is listed", PATIENCE, async || {
        let found = listed(hub).await;
        found.into_iter().next().ok_or("nobody")
    })
    .await;
    let expected = json!([own.fingerprint(), "eu1", "unknown-identity", null]);
    assert_eq!(claims(&found), expected);
    assert!(found["address"].as_str().unwrap().starts_with("127.0.0.1"));
    // It is an agent to nobody yet.
    assert_eq!(hub.get("/v1/clusters/eu1").await.0, 404);

    let asked = json!({
        "fingerprint": own.fingerprint(), "reason": "the hub was restored", "labels": {"env": "prod"},
    });
    let since = Instant::now();
    let (code, accepted) = hub.post(ACCEPT, &asked).await;
    let expected = json!({
        "cluster": "eu1", "created": true, "already": false, "ended": [], "catalog": true,
    });
    assert_eq!((code, accepted), (200, expected));
    line_is_up(&agent, ACCEPTED).await;
    println!(
        "FIGURE an accepted agent had its line after {:?}",
        since.elapsed()
    );
    assert_eq!(listed(hub).await, Vec::<Value>::new());
    let deploy = KeyPair::from_seed(&[101; 32]).public().fingerprint();
    until_some("its deploy key is known", PATIENCE, async || {
        let known = world.in_force("deploy").await;
        if known == [deploy.clone()] {
            Ok(())
        } else {
            Err(known)
        }
    })
    .await;
    assert_eq!(world.in_force("identity").await, [own.fingerprint()]);
    assert_eq!(catalog().await, head, "the catalog was written to");
    let (_, view) = hub.get("/v1/clusters/eu1").await;
    assert_eq!(view["labels"], json!({"env": "prod"}));
    assert!(view["line"]["epoch"].as_u64().unwrap() > 1 << 40, "{view}");
    let (code, again) = hub.post(ACCEPT, &asked).await;
    let expected = json!({
        "cluster": "eu1", "created": false, "already": true, "ended": [], "catalog": true,
    });
    assert_eq!((code, again), (200, expected));
    let rows = hub.hub.store.audit_tail(Some("eu1"), 500).await.unwrap();
    let done = rows.iter().filter(|r| r.action == "cluster.accept");
    let done: Vec<_> = done.map(|r| (r.target.clone(), r.reason.clone())).collect();
    let why = Some("the hub was restored".to_owned());
    assert_eq!(done, [(own.fingerprint(), why)]);

    displaced_by_nobody(hub).await;
    world.hub.stop().await;
}

/// H23: an entry needs the signature of the very key that it names, and each refusal names what to do.
#[tokio::test]
async fn an_unknown_agent_is_listed_by_its_own_signature_and_let_in_by_an_operator() {
    let hub = TestHub::start("unknown-refused").await;
    let keys = Identity::from_seeds(&[40; 32], &[41; 32]);
    let print = keys.identity.public().fingerprint();
    recover(&hub, &keys, ("us9", "uid-9", false)).await;
    assert_eq!(listed(&hub).await, Vec::<Value>::new());
    let (code, kind, next) = refused(&hub, json!({"fingerprint": print})).await;
    assert_eq!((code, kind.as_str()), (404, "not-found"));
    assert!(next.contains("linesman cluster list --unknown"), "{next}");
    recover(&hub, &keys, ("us9", "uid-9\u{1b}[31m", true)).await;
    let all = listed(&hub).await;
    let expected = json!([print, "us9", "unknown-identity", "uid-9\u{fffd}[31m"]);
    assert_eq!(all.iter().map(claims).collect::<Vec<_>>(), [expected]);

    for (body, code, kind) in [
        (json!({"reason": "two\nlines"}), 400, "bad-request"),
        (json!({"why": "x"}), 400, "unknown-field"),
        (json!({"labels": {"linesman.x": "y"}}), 400, "bad-request"),
        (json!({"engine": "argocd"}), 409, "no-bundle"),
        (
            json!({"bundle": format!("sha256:{}", "0".repeat(64))}),
            404,
            "bundle-unknown",
        ),
    ] {
        let mut asked = json!({"fingerprint": print});
        asked
            .as_object_mut()
            .unwrap()
            .extend(body.as_object().unwrap().clone());
        let (found, slug, _) = refused(&hub, asked).await;
        assert_eq!((found, slug.as_str()), (code, kind), "{body}");
    }
    // What stood in the record as allowed was not made.
    let rows = hub.hub.store.audit_tail(Some("us9"), 100).await.unwrap();
    let told = rows.iter().filter(|r| r.action == "cluster.accept");
    let told: Vec<_> = told
        .map(|r| (r.verdict.as_str(), r.reason.as_deref()))
        .collect();
    assert_eq!(told, [("allow", None), ("deny", Some("no-bundle"))]);
    let viewer = hub.user("vera", &["viewer"], &[]).await;
    let asked = json!({"fingerprint": print});
    let (code, _) = hub.call_as(&viewer, ("POST", ACCEPT), &[], &asked).await;
    assert_eq!(code, 403);
    assert_eq!(hub.get("/v1/clusters/us9").await.0, 404);
    let (code, accepted) = hub.post(ACCEPT, &asked).await;
    let expected = json!({
        "cluster": "us9", "created": true, "already": false, "ended": [], "catalog": false,
    });
    assert_eq!((code, accepted), (200, expected));
    // A name that the path of a list could be mistaken for is one like any other.
    let (code, answer) = hub
        .post("/v1/clusters", &json!({"name": "unknown-agents"}))
        .await;
    assert_eq!(code, 201, "{answer}");
    hub.stop().await;
}

/// H23: its root follows what another engine was handed over at; a path that holds less would be named to whoever adopts it anew.
#[tokio::test]
async fn an_agent_that_is_let_in_follows_the_directory_of_its_engine_where_there_is_one() {
    let hub = TestHub::start("unknown-path").await;
    engine::import_of(&hub, EngineKind::Argocd, 3, "3.5.0").await;
    for name in ["us9", "us7"] {
        let file = format!("clusters/{name}.argocd/a.yaml");
        engine::commit(&hub, &file, engine::APPLICATION).await;
    }
    for (seed, name, kind, follows, there) in [
        (40, "us9", "argocd", "clusters/us9.argocd", true),
        (50, "us8", "flux", "clusters/us8", false),
        // What the other engine is to follow is nothing for this one.
        (60, "us7", "flux", "clusters/us7", false),
    ] {
        let keys = Identity::from_seeds(&[seed; 32], &[seed + 1; 32]);
        recover(&hub, &keys, (name, "uid-9", true)).await;
        let print = keys.identity.public().fingerprint();
        let asked = json!({"fingerprint": print, "engine": kind});
        let (code, accepted) = hub.post(ACCEPT, &asked).await;
        assert_eq!((code, &accepted["catalog"]), (200, &json!(there)));
        let (_, view) = hub.get(&format!("/v1/clusters/{name}")).await;
        assert_eq!(view["catalogPath"], json!(follows));
    }
    hub.stop().await;
}

/// H22: the same keys in two clusters, or a cluster that was built anew: nothing changes without an operator's word.
#[tokio::test]
async fn a_copied_cluster_is_listed_and_one_that_was_built_anew_may_take_its_place() {
    let hub = TestHub::start("unknown-copied").await;
    let token = hub.add("eu1").await;
    let first = Agent::new(1);
    assert_eq!(first.join(&hub, "eu1", &token).await.0, 200);
    let join = async |agent: &Agent, token: &str| {
        let body = agent.join_body(&hub, "eu1", token);
        let body = body.replace("uid-of-eu1", "uid-of-copy");
        let call = hub.call("POST", "/v1/join", &body);
        let (code, problem) = call.signed_by(&agent.identity, 0).await;
        (code, slug(&problem).to_owned())
    };
    let changed = || (409, "incarnation-changed".to_owned());
    assert_eq!(join(&first, &token).await, changed());
    let own = first.identity.public().fingerprint();
    let copied = json!([own, "eu1", "incarnation-changed", "uid-of-copy"]);
    let all = listed(&hub).await;
    assert_eq!(all.iter().map(claims).collect::<Vec<_>>(), [copied]);
    let asked = json!({"fingerprint": own, "replace": true});
    let (code, kind, next) = refused(&hub, asked).await;
    assert_eq!((code, kind.as_str()), (409, "key-known"));
    assert!(
        next.contains("linesman cluster readopt --new-cluster"),
        "{next}"
    );
    let path = "/v1/clusters/eu1/assignment";
    assert_eq!(first.call(&hub, "GET", path, "").await.0, 200);

    // Built anew, with keys of its own.
    let (_, answer) = hub.post("/v1/clusters/eu1/join-tokens", &json!({})).await;
    let anew = Agent::new(2);
    assert_eq!(join(&anew, &token_of(&answer)).await, changed());
    let print = anew.identity.public().fingerprint();
    let (code, kind, next) = refused(&hub, json!({"fingerprint": print})).await;
    assert_eq!((code, kind.as_str()), (409, "exists"));
    assert!(next.contains("--replace"), "{next}");
    let deploy = KeyPair::from_seed(&[101; 32]).public().fingerprint();
    let asked = json!({"fingerprint": print, "replace": true});
    let (code, accepted) = hub.post(ACCEPT, &asked).await;
    let expected = json!({
        "cluster": "eu1", "created": false, "already": false, "ended": [own, deploy], "catalog": true,
    });
    assert_eq!((code, accepted), (200, expected));
    assert_eq!(anew.call(&hub, "GET", path, "").await.0, 200);
    let (code, problem) = first.call(&hub, "GET", path, "").await;
    assert_eq!((code, slug(&problem)), (403, "revoked"));
    let name = "eu1".parse().unwrap();
    let cluster = hub.hub.store.cluster(&name).await.unwrap().unwrap();
    assert_eq!(cluster.incarnation.as_deref(), Some("uid-of-copy"));

    // What was revoked is not let in this way.
    assert_eq!(hub.post("/v1/clusters/eu1/revoke", &json!({})).await.0, 200);
    let keys = Identity::from_seeds(&[50; 32], &[51; 32]);
    recover(&hub, &keys, ("eu1", "uid-of-copy", true)).await;
    let print = keys.identity.public().fingerprint();
    let (code, kind, next) = refused(&hub, json!({"fingerprint": print, "replace": true})).await;
    assert_eq!((code, kind.as_str()), (409, "key-known"));
    assert!(next.contains("linesman cluster readopt eu1"), "{next}");
    hub.stop().await;
}
