//! Heals that the hub does not have are written down in the cluster: by the real reporter, against the real hub.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, Request};
use kube::client::Body;
use linesman::agent::News;
use linesman::wire::report::HealRecord;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::older::{Front, applied, on};
use super::rotate::world::{PATIENCE, Secrets};
use super::support::TestHub;
use crate::wait::until_some;

const MAP: &str = "linesman-heals";
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
