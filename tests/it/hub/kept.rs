//! What the agent writes down in the cluster: its real reporter and its real part that joins, against the real hub.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Request};
use kube::client::Body;
use linesman::agent::News;
use linesman::wire::report::HealRecord;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::older::{Front, applied, on};
use super::rotate::world::{PATIENCE, Secrets};
use super::support::{TestHub, token_of};
use crate::wait::until_some;

const MAP: &str = "linesman-heals";
const JOIN: &str = "linesman-join";
const STATE: &str = "linesman-state";
/// For how long a write that is held up waits for another one beside it.
const COMPANY: Duration = Duration::from_millis(500);

fn heal() -> HealRecord {
    let heal = json!({
        "id": "01900000-0000-7000-8000-000000000001", "class": "ObjectMissing", "object": "x", "evidence": "is missing",
        "writer": "", "revision": "", "steps": [], "faultAt": null, "detectedAt": "2026-01-01T00:00:00Z",
        "actedAt": null, "restoredAt": "2026-01-01T00:00:01Z", "result": "healed", "next": "",
    });
    serde_json::from_value(heal).unwrap()
}

/// Writes of the map that are under way, the most at once, and those that are over.
#[derive(Default)]
struct Writes {
    now: AtomicUsize,
    most: AtomicUsize,
    over: AtomicUsize,
}

impl Writes {
    /// An API server that is slow with a heal until the hub has it, and then until another write has passed it.
    fn slow(self: Arc<Self>, secrets: &Secrets, there: watch::Receiver<bool>) -> kube::Client {
        let secrets = secrets.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (writes, secrets, mut there) = (self.clone(), secrets.clone(), there.clone());
            async move {
                let of_map = request.uri().path().ends_with(MAP);
                if request.method() != Method::PATCH || !of_map {
                    return Ok::<_, Infallible>(secrets.serve(request).await);
                }
                let now = writes.now.fetch_add(1, Ordering::SeqCst) + 1;
                writes.most.fetch_max(now, Ordering::SeqCst);
                let (parts, body) = request.into_parts();
                let body = http_body_util::BodyExt::collect(body).await.unwrap();
                let body = body.to_bytes();
                let sent: Value = serde_json::from_slice(&body).unwrap();
                if sent["data"]["heals.json"] != json!("[]") {
                    there.wait_for(|there| *there).await.unwrap();
                    let over = writes.over.load(Ordering::SeqCst);
                    let passed = async {
                        while writes.over.load(Ordering::SeqCst) == over {
                            tokio::task::yield_now().await;
                        }
                    };
                    let _alone = timeout(COMPANY, passed).await;
                }
                let body = Body::from(body.to_vec());
                let answer = secrets.serve(Request::from_parts(parts, body)).await;
                writes.over.fetch_add(1, Ordering::SeqCst);
                writes.now.fetch_sub(1, Ordering::SeqCst);
                Ok(answer)
            }
        });
        kube::Client::new(service, "linesman")
    }
}

/// W46: what the hub has is not left in the cluster by a write that began before, however slow that is.
#[tokio::test]
async fn a_heal_that_the_hub_has_does_not_stay_in_the_cluster() {
    let hub = TestHub::start("kept").await;
    let token = hub.add("eu1").await;
    let front = Front::start(&hub, |_, _| {}).await;
    let (secrets, writes) = (Secrets::default(), Arc::new(Writes::default()));
    let (there_out, there) = watch::channel(false);
    let kube = writes.clone().slow(&secrets, there);
    let agent = on(Some(applied(&front, Vec::new(), &token)), kube).await;
    agent.news.send(News::Heal(Box::new(heal()))).await.unwrap();
    until_some("the hub has it", PATIENCE, async || {
        let (_, heals) = hub.get("/v1/heals?cluster=eu1").await;
        (heals["items"][0]["id"] == json!(heal().id))
            .then_some(())
            .ok_or(heals)
    })
    .await;
    there_out.send_replace(true);
    until_some(
        "nothing of it is left in the cluster",
        PATIENCE,
        async || {
            let all = secrets.0.lock().unwrap();
            let data = all.get(MAP).map_or(Value::Null, |map| map["data"].clone());
            let quiet =
                writes.now.load(Ordering::SeqCst) == 0 && writes.over.load(Ordering::SeqCst) > 1;
            let empty = data == json!({"heals.json": "[]", "dropped": "0"});
            (quiet && empty).then_some(()).ok_or(data)
        },
    )
    .await;
    assert_eq!(writes.most.load(Ordering::SeqCst), 1, "one write at a time");
    hub.stop().await;
}

/// H6: a token is dropped once what it brought is stored; a process that starts between the two joins again.
#[tokio::test]
async fn a_token_stays_until_what_it_brought_is_stored() {
    let hub = TestHub::start("token").await;
    let token = hub.add("eu1").await;
    let front = Front::start(&hub, |_, _| {}).await;
    let secrets = Secrets::default();
    let first = on(Some(applied(&front, Vec::new(), &token)), secrets.client()).await;
    until_some("it joined", PATIENCE, async || {
        let all = secrets.0.lock().unwrap();
        all.get(STATE).map(drop).ok_or("it did not")
    })
    .await;
    drop(first);

    let path = "/v1/clusters/eu1/join-tokens";
    let (code, again) = hub.post(path, &json!({})).await;
    assert_eq!(code, 201, "{again}");
    let token = token_of(&again);
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": JOIN},
        "data": {"token": STANDARD.encode(&token)},
    });
    secrets.0.lock().unwrap().insert(JOIN.to_owned(), object);
    let (refused, open) = (Arc::new(AtomicUsize::new(0)), watch::Sender::new(false));
    let kube = without_state(&secrets, &refused, open.subscribe());
    let token_there = || secrets.0.lock().unwrap()[JOIN]["data"]["token"] != Value::Null;
    let _agent = on(Some(applied(&front, Vec::new(), &token)), kube).await;
    until_some("it was tried again", PATIENCE, async || {
        let tries = refused.load(Ordering::SeqCst);
        (tries > 1).then_some(()).ok_or(tries)
    })
    .await;
    assert!(token_there());
    open.send_replace(true);
    until_some("the token is dropped", PATIENCE, async || {
        (!token_there()).then_some(()).ok_or("it is there")
    })
    .await;
    hub.stop().await;
}

/// An API server that refuses to write the state until it is told otherwise.
fn without_state(
    secrets: &Secrets,
    refused: &Arc<AtomicUsize>,
    open: watch::Receiver<bool>,
) -> kube::Client {
    let (secrets, refused) = (secrets.clone(), refused.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (secrets, refused, open) = (secrets.clone(), refused.clone(), *open.borrow());
        async move {
            let of_state = request.uri().path().ends_with(STATE);
            if request.method() == Method::PATCH && of_state && !open {
                refused.fetch_add(1, Ordering::SeqCst);
                let said = json!({"kind": "Status", "code": 500, "reason": "InternalError"});
                let answer = http::Response::builder().status(500);
                let answer = answer.body(Body::from(said.to_string().into_bytes()));
                return Ok::<_, Infallible>(answer.unwrap());
            }
            Ok(secrets.serve(request).await)
        }
    });
    kube::Client::new(service, "linesman")
}
