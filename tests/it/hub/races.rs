//! H57: of changes by the same revision one is made, row by row of the table of the operations.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use linesman::hub::api::openapi::{Caller, Operation, operations};
use linesman::keys::KeyPair;
use linesman::wire::api::EngineKind;
use linesman::wire::id::Digest;
use serde_json::{Value, json};

use super::engine::import_of;
use super::support::TestHub;

/// Who changes the same thing at the same moment.
const CALLERS: usize = 8;

/// One operation on a record of its own.
struct Race {
    path: String,
    revision: String,
    /// What each caller wants, so that no two of them want the same.
    body: fn(usize) -> Value,
}

impl Race {
    async fn of(operation: &Operation, hub: &TestHub, name: &str) -> Self {
        let nothing: fn(usize) -> Value = |_| Value::Null;
        let cluster = |body| Self::on_cluster(operation, hub, name, body);
        match (operation.method, operation.path) {
            ("delete", "/v1/clusters/{name}" | "/v1/clusters/{name}/pause") => {
                cluster(nothing).await
            }
            (_, "/v1/clusters/{name}/git-route") => {
                cluster(|n| json!({ "route": (["line", "direct"][n % 2]) })).await
            }
            (_, "/v1/clusters/{name}/labels") => {
                cluster(|n| json!({ "set": { "n": n.to_string() }, "overwrite": true })).await
            }
            (_, "/v1/clusters/{name}/agent-image") => {
                cluster(|n| json!({ "image": format!("r.example.org/linesman@sha256:{n:064x}") }))
                    .await
            }
            (_, "/v1/clusters/{name}/agent-copy") => cluster(|_| json!({ "kept": true })).await,
            (_, "/v1/clusters/{name}/engine") => {
                cluster(|n| json!({ "engine": "flux", "within": 60 + n })).await
            }
            (_, "/v1/clusters/{name}/image-registry") => {
                cluster(|n| json!({ "registry": format!("r{n}.example.org") })).await
            }
            (_, path @ "/v1/hub/image-registry") => Self {
                revision: tag(hub, path).await,
                path: path.to_owned(),
                body: |n| json!({ "registry": format!("r{n}.example.org") }),
            },
            ("delete", "/v1/bundles/{digest}") => {
                let n: u8 = name.trim_start_matches('c').parse().unwrap();
                import_of(hub, EngineKind::Flux, 100 + n, &format!("2.8.{n}")).await;
                let digest = Digest::from_bytes([100 + n; 32]);
                Self {
                    path: format!("/v1/bundles/{digest}"),
                    // It never changes, and its name is its revision.
                    revision: format!("\"{digest}\""),
                    body: nothing,
                }
            }
            ("delete", "/v1/grants/{id}") => {
                let grant = json!({ "subject": "user:ada", "clusters": "all", "groups": ["view"] });
                let id = made(hub, "/v1/grants", &grant, "id").await;
                Self::on(hub, format!("/v1/grants/{id}"), nothing).await
            }
            (_, "/v1/users/{name}") => {
                made(hub, "/v1/users", &json!({ "name": name }), "name").await;
                let body: fn(usize) -> Value = if operation.method == "delete" {
                    nothing
                } else {
                    |n| json!({ "groups": [n.to_string()] })
                };
                Self::on(hub, format!("/v1/users/{name}"), body).await
            }
            ("delete", "/v1/api-tokens/{id}") => {
                let token = json!({ "title": name, "lasts": 3600 });
                let id = made(hub, "/v1/api-tokens", &token, "id").await;
                Self {
                    path: format!("/v1/api-tokens/{id}"),
                    // It is never changed.
                    revision: "\"1\"".to_owned(),
                    body: nothing,
                }
            }
            ("delete", "/v1/catalog/ssh-keys/{id}") => Self::on_key(hub, name).await,
            other => panic!("{other:?} has no race here: say what is changed, and how"),
        }
    }

    async fn on_key(hub: &TestHub, title: &str) -> Self {
        let public = KeyPair::from_seed(&[77; 32]).public().openssh("").unwrap();
        let key = json!({ "publicKey": public, "title": title });
        let (code, told) = hub.post("/v1/catalog/ssh-keys", &key).await;
        assert_eq!(code, 201, "{told}");
        let (_, page) = hub.get("/v1/catalog/ssh-keys").await;
        let id = page["items"][0]["id"].as_str().unwrap();
        Self {
            path: format!("/v1/catalog/ssh-keys/{id}"),
            // It never changes, and its name is its revision.
            revision: format!("\"{id}\""),
            body: |_| Value::Null,
        }
    }

    async fn on(hub: &TestHub, path: String, body: fn(usize) -> Value) -> Self {
        Self {
            revision: tag(hub, &path).await,
            path,
            body,
        }
    }

    async fn on_cluster(
        operation: &Operation,
        hub: &TestHub,
        name: &str,
        body: fn(usize) -> Value,
    ) -> Self {
        hub.add(name).await;
        Self {
            path: operation.path.replace("{name}", name),
            revision: tag(hub, &format!("/v1/clusters/{name}")).await,
            body,
        }
    }

    /// What each caller was told.
    async fn run(&self, hub: &TestHub, method: &str) -> Vec<u16> {
        let headers = [("if-match", self.revision.as_str())];
        let method = method.to_uppercase();
        let call = (method.as_str(), self.path.as_str());
        let bodies: Vec<Value> = (0..CALLERS).map(self.body).collect();
        let calls = bodies
            .iter()
            .map(|body| hub.call_as(&hub.admin, call, &headers, body));
        join_all(calls)
            .await
            .into_iter()
            .map(|(code, _)| code)
            .collect()
    }
}

async fn tag(hub: &TestHub, path: &str) -> String {
    let answer = hub.raw_as("GET", path).await;
    answer.headers()["etag"].to_str().unwrap().to_owned()
}

async fn made(hub: &TestHub, path: &str, body: &Value, key: &str) -> String {
    let (code, made) = hub.post(path, body).await;
    assert_eq!(code, 201, "{made}");
    made[key].as_str().unwrap().to_owned()
}

/// How many changes are on record as made, of those behind `seen`. One that was allowed and lost its race, or was refused after all,
/// is denied later.
pub(super) async fn made_by_the_record(hub: &TestHub, seen: &mut i64) -> usize {
    let rows = hub.hub.store.audit(*seen, None, 10_000).await.unwrap();
    *seen = rows.last().map_or(*seen, |row| row.seq);
    let mut by_call: BTreeMap<String, i64> = BTreeMap::new();
    for row in rows
        .into_iter()
        .filter(|row| row.actor.starts_with("user:"))
    {
        let made = if row.verdict == "allow" { 1 } else { -1 };
        *by_call.entry(row.request_id).or_default() += made;
    }
    by_call.values().filter(|made| **made > 0).count()
}

/// H57, and of those by another revision the record says that they were not made.
#[tokio::test]
async fn of_changes_by_the_same_revision_one_is_made() {
    let hub = TestHub::start("races").await;
    let changes = operations()
        .filter(|o| o.caller == Caller::User && ["put", "patch", "delete"].contains(&o.method));
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (n, operation) in changes.enumerate() {
        let race = Race::of(operation, &hub, &format!("c{n}")).await;
        made_by_the_record(&hub, &mut seen).await;
        let mut told = race.run(&hub, operation.method).await;
        told.sort_unstable();
        let (done, refused) = told.split_at(1);
        // What ended is not there any more, for who comes later.
        let late = |code: &u16| *code == 412 || (*code == 404 && operation.method == "delete");
        if !(200..300).contains(&done[0]) || !refused.iter().all(late) {
            wrong.push(format!("{} {}: {told:?}", operation.method, operation.path));
        }
        let made = made_by_the_record(&hub, &mut seen).await;
        if made != 1 {
            let Operation { method, path, .. } = operation;
            wrong.push(format!("{method} {path}: on record as made: {made}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    hub.stop().await;
}
