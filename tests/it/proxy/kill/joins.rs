//! A hub that is killed while clusters join: what it answered is so, and the file is whole.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use linesman::wire::api::SIGNATURE_HEADER;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Hub;
use crate::hub::support::{Agent, signature, token_of};
use crate::proxy::world::{Left, PATIENCE, World};

/// Each of which somebody adopts over and over.
const CLUSTERS: [&str; 4] = ["c1", "c2", "c3", "c4"];

/// The API of a hub that may be gone at any moment.
struct Api {
    client: reqwest::Client,
    url: String,
    hub_id: String,
    admin: String,
    /// Of the agents' keys: each agent is a new one.
    numbers: Arc<AtomicU32>,
}

impl Api {
    fn of(left: &Left, hub: &Hub, numbers: &Arc<AtomicU32>) -> Self {
        let ca = left.reference.ca.as_bytes();
        let client = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(ca).unwrap()])
            .resolve("localhost", hub.at())
            .no_proxy()
            .build();
        let admin = std::fs::read_to_string(left.data.join("admin.token")).unwrap();
        Self {
            client: client.unwrap(),
            url: format!("https://localhost:{}", hub.at().port()),
            hub_id: left.reference.id.clone(),
            admin: admin.trim().to_owned(),
            numbers: numbers.clone(),
        }
    }

    fn number(&self) -> u32 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// A new join token of the cluster; `None` = there was no answer.
    async fn token(&self, cluster: &str) -> Option<String> {
        let url = format!("{}/v1/clusters/{cluster}/join-tokens", self.url);
        let asked = self.client.post(url).bearer_auth(&self.admin);
        let (code, answer) = answered(asked.json(&json!({}))).await?;
        assert_eq!(code, 201, "{answer}");
        Some(token_of(&answer))
    }

    /// Joins with the keys of this number; `None` = there was no answer.
    async fn join(&self, cluster: &str, token: &str, number: u32) -> Option<(u16, Value)> {
        const PATH: &str = "/v1/join";
        let agent = Agent::of(number);
        let body = agent.join_of(&self.hub_id, cluster, token);
        let call = ("POST", PATH, body.as_str());
        let signed = signature(&self.hub_id, &agent.identity, call, 0);
        let asked = self.client.post(format!("{}{PATH}", self.url));
        answered(asked.header(SIGNATURE_HEADER, signed).body(body)).await
    }

    /// The fingerprints of the cluster's identities that are in force.
    async fn identities(&self, cluster: &str) -> Vec<String> {
        let url = format!("{}/v1/clusters/{cluster}", self.url);
        let asked = self.client.get(url).bearer_auth(&self.admin);
        let (code, view) = answered(asked).await.unwrap();
        assert_eq!(code, 200, "{view}");
        let keys = view["keys"].as_array().unwrap().iter();
        let own = keys.filter(|k| k["kind"] == "identity" && k["state"] != "revoked");
        own.map(|k| k["fingerprint"].as_str().unwrap().to_owned())
            .collect()
    }

    /// What the hub before answered is so, and what it did not answer has happened or has not.
    async fn holds(&self, cluster: &str, got: &Got) {
        for (token, _) in &got.redeemed {
            let joined = self.join(cluster, token, self.number()).await;
            let (code, problem) = joined.unwrap();
            assert_eq!(
                (code, &problem["type"]),
                (409, &json!("urn:linesman:problem:token-redeemed"))
            );
        }
        // Who got no answer asks again.
        if let Some((token, number)) = &got.open {
            let (code, answer) = self.join(cluster, token, *number).await.unwrap();
            assert_eq!(code, 200, "{answer}");
        }
        if let Some((_, number)) = got.open.as_ref().or_else(|| got.redeemed.last()) {
            let own = Agent::of(*number).identity.public().fingerprint();
            assert_eq!(self.identities(cluster).await, [own]);
        }
    }
}

async fn answered(asked: reqwest::RequestBuilder) -> Option<(u16, Value)> {
    let answer = asked.send().await.ok()?;
    let code = answer.status().as_u16();
    Some((code, answer.json().await.ok()?))
}

/// What one cluster got of a hub: tokens, and the numbers of the keys.
#[derive(Default)]
struct Got {
    redeemed: Vec<(String, u32)>,
    /// The join without an answer.
    open: Option<(String, u32)>,
}

/// One adoption after the other, as long as the hub answers.
async fn adopts(api: Arc<Api>, cluster: &'static str, joins: watch::Sender<u32>) -> Got {
    let mut got = Got::default();
    while let Some(token) = api.token(cluster).await {
        let number = api.number();
        let joined = api.join(cluster, &token, number).await;
        let Some((code, answer)) = joined else {
            got.open = Some((token, number));
            break;
        };
        assert_eq!(code, 200, "{answer}");
        got.redeemed.push((token, number));
        joins.send_modify(|joins| *joins += 1);
    }
    got
}

/// What SQLite says of the file as it was left.
async fn quick_check(data: &Path) -> Vec<String> {
    let file = SqliteConnectOptions::new()
        .filename(data.join("hub.db"))
        .read_only(true);
    let mut connection = file.connect().await.unwrap();
    let said: Vec<String> = sqlx::query_scalar("PRAGMA quick_check")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    said
}

/// So many hubs on one data directory, one after the other, each of which is killed when some more clusters have joined.
async fn killed(times: u32) {
    let world = World::new().await;
    for cluster in CLUSTERS {
        world.another(cluster).await;
    }
    // The file is whole before the first kill, too.
    world.hub.stop.cancel();
    let over = timeout(PATIENCE, world.over.cancelled()).await;
    over.expect("the hub ends");
    let left = world.leave();
    let numbers = Arc::<AtomicU32>::default();
    let mut before = Vec::new();
    for time in 0..times {
        let hub = Hub::start(&left);
        let api = Arc::new(Api::of(&left, &hub, &numbers));
        for (cluster, got) in before.drain(..) {
            api.holds(cluster, &got).await;
        }
        let (joins, mut joined) = watch::channel(0);
        let mut clusters = JoinSet::new();
        for cluster in CLUSTERS {
            let (api, joins) = (api.clone(), joins.clone());
            clusters.spawn(async move { (cluster, adopts(api, cluster, joins).await) });
        }
        // Each time somewhere else in what they do.
        let some = joined.wait_for(|joins| *joins > time % 8);
        timeout(PATIENCE, some).await.expect("they join").unwrap();
        drop(hub);
        before = clusters.join_all().await;
        assert_eq!(quick_check(&left.data).await, ["ok"]);
    }
    let hub = Hub::start(&left);
    let api = Api::of(&left, &hub, &numbers);
    for (cluster, got) in &before {
        api.holds(cluster, got).await;
    }
    drop(hub);
    std::fs::remove_dir_all(&left.data).unwrap();
}

/// H55: the file is whole after each kill, a token that was redeemed is good for nobody else, and of a cluster's identities one
/// is in force.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_is_killed_among_joins_leaves_no_token_that_was_redeemed() {
    killed(8).await;
}

/// H55, as often as it says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a quarter of an hour: make large"]
async fn a_thousand_kills_leave_no_token_that_was_redeemed() {
    for _ in 0..20 {
        killed(50).await;
    }
}
