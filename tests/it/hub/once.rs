//! H57: a call that comes twice with its Idempotency-Key has one effect, row by row of the table of the operations.

use futures_util::future::join_all;
use linesman::agent::identity::Identity;
use linesman::clock;
use linesman::hub::api::openapi::{Operation, Repeat, operations};
use linesman::hub::store::{Call, Called, calls};
use linesman::keys;
use serde_json::{Value, json};

use super::lost::silence;
use super::support::{Agent, TestHub, token_of};
use super::{slug, unknown};

const SIGNER: &str = "A8E973778FA2D35F068A767EC3EE2C3325042763";
const SIGNER_KEY: &str = include_str!("signers/ada.asc");

/// A call that is good, and another one.
struct Twice {
    call: (String, Value),
    other: (String, Value),
}

impl Twice {
    async fn of(operation: &Operation, hub: &TestHub, n: u8) -> Self {
        let name = format!("c{n}");
        let reason = |text: &str| json!({ "reason": text });
        let (body, other) = match operation.path {
            "/v1/clusters/{name}/rotate" => {
                joined(hub, &name, n).await;
                (json!({ "deployKey": true }), json!({ "identity": true }))
            }
            "/v1/clusters/{name}/revoke" => {
                joined(hub, &name, n).await;
                (reason("a"), reason("b"))
            }
            "/v1/clusters/{name}/lift" => {
                hub.add(&name).await;
                (reason("a"), reason("b"))
            }
            "/v1/clusters/{name}/pause" => {
                hub.add(&name).await;
                let pause = |seconds| json!({ "seconds": seconds, "reason": "a" });
                (pause(60), pause(61))
            }
            "/v1/clusters/{name}/join-tokens" => {
                hub.add(&name).await;
                (json!({}), json!({ "newCluster": true }))
            }
            "/v1/unknown-agents/accept" => {
                let stranger = Identity::from_seeds(&[n; 32], &[n + 1; 32]);
                unknown::recover(hub, &stranger, (&name, "uid", true)).await;
                let print = stranger.identity.public().fingerprint();
                let accept = |reason| json!({ "fingerprint": print, "reason": reason });
                (accept("a"), accept("b"))
            }
            "/v1/clusters" | "/v1/users" => (json!({ "name": name }), json!({ "name": "other" })),
            "/v1/heals/{id}/close" => return Self::of_heal(hub, &name).await,
            "/v1/grants" => {
                let to = |who| json!({ "subject": who, "clusters": "all", "groups": ["view"] });
                (to("user:ada"), to("user:bob"))
            }
            "/v1/users/{name}/login-codes" => return Self::of_code(hub, &name).await,
            "/v1/api-tokens" => {
                let token = |title| json!({ "title": title, "lasts": 3600 });
                (token("a"), token("b"))
            }
            "/v1/catalog/signers" => {
                let signer = |force| json!({ "publicKey": SIGNER_KEY, "force": force });
                (signer(true), signer(false))
            }
            "/v1/catalog/signers/drop" => {
                let drop = |force| json!({ "fingerprint": SIGNER, "force": force });
                (drop(true), drop(false))
            }
            path if path.starts_with("/v1/githosts/") => {
                let (body, other) = of_host(hub, path).await;
                let path = path.replace("{name}", "builtin");
                return Self {
                    call: (path.clone(), body),
                    other: (path, other),
                };
            }
            other => panic!("{other} takes a key and is not called here"),
        };
        let path = operation.path.replace("{name}", &name);
        Self {
            call: (path.clone(), body),
            other: (path, other),
        }
    }

    async fn of_heal(hub: &TestHub, name: &str) -> Self {
        const ID: &str = "01930000-0000-7000-8000-000000000002";
        hub.add(name).await;
        let cluster = hub.hub.store.cluster(&name.parse().unwrap()).await;
        let cluster = cluster.unwrap().unwrap();
        let noted = hub
            .hub
            .store
            .note_heal(&cluster.id, silence(ID), clock::now());
        noted.await.unwrap();
        let path = format!("/v1/heals/{ID}/close");
        Self {
            call: (path.clone(), json!({ "reason": "a" })),
            other: (path, json!({ "reason": "b" })),
        }
    }

    /// Nothing is said in the body.
    async fn of_code(hub: &TestHub, name: &str) -> Self {
        for user in [name, "ole"] {
            let (code, made) = hub.post("/v1/users", &json!({ "name": user })).await;
            assert_eq!(code, 201, "{made}");
        }
        let of = |user| (format!("/v1/users/{user}/login-codes"), Value::Null);
        Self {
            call: of(name),
            other: of("ole"),
        }
    }

    async fn run(&self, hub: &TestHub, key: &str) -> [(u16, Value); 3] {
        let key = [("idempotency-key", key)];
        let ask = async |(path, body): &(String, Value)| {
            hub.call_as(&hub.admin, ("POST", path), &key, body).await
        };
        let first = ask(&self.call).await;
        let records = recorded(hub).await;
        let second = ask(&self.call).await;
        let again = recorded(hub).await != records;
        let (code, problem) = ask(&self.other).await;
        let told = (code, json!({ "slug": slug(&problem), "recorded": again }));
        [first, second, told]
    }
}

async fn of_host(hub: &TestHub, path: &str) -> (Value, Value) {
    let served = hub.hub.git_keys.served().fingerprint;
    if path.ends_with("/rotate-host-key") {
        return (json!({}), json!({ "now": true }));
    }
    if path.ends_with("/host-keys") {
        let accept = |replace| json!({ "fingerprint": served, "replace": replace });
        return (accept(false), accept(true));
    }
    let rotate = "/v1/githosts/builtin/rotate-host-key";
    let (code, host) = hub.post(rotate, &json!({})).await;
    assert_eq!(code, 200, "{host}");
    let prints = host["keys"].as_array().unwrap().iter();
    let mut prints = prints.map(|key| key["fingerprint"].as_str().unwrap().to_owned());
    let next = prints.find(|print| *print != served).unwrap();
    let drop = |print: &str| json!({ "fingerprint": print });
    (drop(&next), drop("SHA256:other"))
}

async fn joined(hub: &TestHub, name: &str, n: u8) -> Agent {
    let token = hub.add(name).await;
    let agent = Agent::new(n);
    let (code, answer) = agent.join(hub, name, &token).await;
    assert_eq!(code, 200, "{answer}");
    agent
}

/// How long the record is.
async fn recorded(hub: &TestHub) -> i64 {
    hub.hub.store.audit_head().await.unwrap().unwrap().seq
}

#[tokio::test]
async fn each_post_is_carried_out_once_by_its_key_or_says_why_it_needs_none() {
    let hub = TestHub::start("once").await;
    let posts = operations().filter(|o| o.method == "post");
    for (n, operation) in (100..).zip(posts) {
        let repeat = operation.repeat();
        let repeat = repeat.unwrap_or_else(|| panic!("{operation:?} says nothing of this"));
        if let Repeat::Harmless(why) = repeat {
            assert!(!why.is_empty(), "{operation:?}");
            continue;
        }
        let twice = Twice::of(operation, &hub, n).await;
        let [first, second, other] = twice.run(&hub, &format!("key-{n}")).await;
        assert!((200..300).contains(&first.0), "{operation:?}: {first:?}");
        let (slug, recorded) = (&other.1["slug"], &other.1["recorded"]);
        assert_eq!(
            (other.0, slug),
            (422, &json!("idempotency-mismatch")),
            "{operation:?}"
        );
        if repeat == Repeat::Answered {
            assert_eq!((second, recorded), (first, &json!(false)), "{operation:?}");
        } else {
            assert_eq!(second.0, first.0, "{operation:?}: {second:?}");
        }
    }
    hub.stop().await;
}

/// Of several at the same moment one is carried out; the others have its answer, or are told to ask again.
#[tokio::test]
async fn the_same_call_at_the_same_moment_is_carried_out_once() {
    let hub = TestHub::start("once-together").await;
    hub.add("eu1").await;
    let call = ("POST", "/v1/clusters/eu1/pause");
    let body = json!({ "seconds": 60, "reason": "a" });
    let key = [("idempotency-key", "k")];
    let ask = || hub.call_as(&hub.admin, call, &key, &body);
    let mut told = join_all((0..8).map(|_| ask())).await;
    let last = ask().await;
    assert_eq!(last.0, 200, "{last:?}");
    told.retain(|(code, _)| *code != 429);
    assert!(
        !told.is_empty() && told.iter().all(|one| *one == last),
        "{told:?}"
    );
    let rows = hub.hub.store.audit_tail(Some("eu1"), 100).await.unwrap();
    let pauses = rows.iter().filter(|row| row.action == "cluster.pause");
    assert_eq!(pauses.count(), 1);
    // What was refused is no answer that is kept.
    let key = [("idempotency-key", "l")];
    let wrong = json!({ "seconds": 1 });
    let refused = hub.call_as(&hub.admin, call, &key, &wrong);
    assert_eq!(refused.await.0, 400);
    let (code, problem) = hub.call_as(&hub.admin, call, &key, &body).await;
    assert_eq!(code, 200, "{problem}");
    hub.stop().await;
}

/// What is kept of a call is told to who has the roles of then: one was taken since, or a token has less of them.
#[tokio::test]
async fn an_answer_that_is_kept_is_for_who_might_still_ask() {
    let hub = TestHub::start("once-roles").await;
    hub.add("eu1").await;
    let ada = hub.user("ada", &["operator"], &[]).await;
    let path = "/v1/clusters/eu1/pause";
    let body = json!({ "seconds": 60, "reason": "a" });
    let key = [("idempotency-key", "k")];
    let ask = async |token: &str| hub.call_as(token, ("POST", path), &key, &body).await;
    let first = ask(&ada).await;
    assert_eq!(first.0, 200, "{first:?}");
    let narrow = json!({ "title": "n", "lasts": 60, "scopes": ["viewer"] });
    let make = ("POST", "/v1/api-tokens");
    let (_, narrow) = hub.call_as(&ada, make, &[], &narrow).await;
    let narrow = narrow["token"].as_str().unwrap();
    let set = async |roles: Value| {
        let (any, body) = ([("if-match", "*")], json!({ "roles": roles }));
        let call = ("PATCH", "/v1/users/ada");
        let set = hub.call_as(&hub.admin, call, &any, &body);
        assert_eq!(set.await.0, 200);
    };
    let refused = async |token: &str| {
        let (code, problem) = ask(token).await;
        assert_eq!((code, slug(&problem)), (403, "not-allowed"), "{problem}");
        let rows = hub.hub.store.audit_tail(None, 1).await.unwrap();
        let (row, lacks) = (&rows[0], "ada lacks the role operator");
        let told = (row.action.as_str(), row.reason.as_deref());
        assert_eq!(told, ("call.repeat", Some(lacks)));
    };
    refused(narrow).await;
    set(json!(["viewer"])).await;
    refused(&ada).await;
    set(json!(["admin"])).await;
    assert_eq!(ask(&ada).await, first);
    hub.stop().await;
}

/// The answer to a lost call holds another token, and the lost one is good no more; one that was redeemed is not replaced.
#[tokio::test]
async fn of_the_join_tokens_of_one_call_one_is_in_force() {
    let hub = TestHub::start("once-tokens").await;
    hub.add("eu1").await;
    let call = ("POST", "/v1/clusters/eu1/join-tokens");
    let key = [("idempotency-key", "k")];
    let ask = async || hub.call_as(&hub.admin, call, &key, &json!({})).await;
    let [lost, token] = [ask().await, ask().await].map(|(code, answer)| {
        assert_eq!(code, 201, "{answer}");
        token_of(&answer)
    });
    let agent = Agent::new(1);
    assert_eq!(agent.join(&hub, "eu1", &lost).await.0, 401);
    assert_eq!(agent.join(&hub, "eu1", &token).await.0, 200);
    let (code, problem) = ask().await;
    assert_eq!((code, slug(&problem)), (409, "exists"));
    hub.stop().await;
}

/// H57: a call whose answer was lost when the hub was killed is not carried out anew by its key, and one that stored nothing is.
#[tokio::test]
async fn a_call_that_was_cut_off_is_known_by_what_it_changed() {
    let hub = TestHub::start("once-cut-off").await;
    hub.add("eu1").await;
    let (path, body) = (
        "/v1/clusters/eu1/pause",
        json!({ "seconds": 60, "reason": "a" }),
    );
    let admin = hub.hub.store.user("admin").await.unwrap().unwrap();
    let text = body.to_string();
    let asked = [path.as_bytes(), &[0], text.as_bytes()].concat();
    let call = |key: &str| Call {
        user_id: admin.id.clone(),
        key: key.to_owned(),
        digest: keys::sha256(&asked),
    };
    // Both began two minutes ago; of one a change was stored.
    let then = clock::now() - time::Duration::minutes(2);
    for key in ["some", "none"] {
        let begun = hub.hub.store.begin_call(&call(key), then).await.unwrap();
        assert_eq!(begun, Called::First);
    }
    let cluster = hub.hub.store.cluster(&"eu1".parse().unwrap()).await;
    let cluster = cluster.unwrap().unwrap();
    let change = hub.hub.store.claim_cluster(cluster.revision(), then);
    assert!(calls::within(call("some"), then, change).await.unwrap());
    let records = recorded(&hub).await;
    let ask = async |key: &str| {
        let key = [("idempotency-key", key)];
        hub.call_as(&hub.admin, ("POST", path), &key, &body).await
    };
    let (code, problem) = ask("some").await;
    assert_eq!((code, slug(&problem)), (409, "exists"), "{problem}");
    assert_eq!(recorded(&hub).await, records);
    let (code, paused) = ask("none").await;
    assert_eq!(code, 200, "{paused}");
    assert_eq!(ask("none").await, (200, paused));
    hub.stop().await;
}
