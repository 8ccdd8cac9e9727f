use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::{BoxError, service_fn};

use super::*;
use crate::clock;
use crate::manifests::EngineNamespaces;

const POD: &str = "pod-a";
const OLD: &str = "linesman:1";
const NEW: &str = "linesman:2";

/// An API server that has our Pod, the Deployment and the Lease.
struct Cluster {
    deployment: Value,
    lease: Value,
    /// Method and kind of the calls that break; each breaks one.
    broken: Vec<(Method, &'static str)>,
    /// Method and kind of all that arrived.
    asked: Vec<(Method, String)>,
}

type Shared = Arc<Mutex<Cluster>>;

impl Cluster {
    /// An image is on trial whose Pod asks for the Lease.
    fn on_trial() -> Shared {
        let deadline = clock::rfc3339(clock::now() + Duration::from_mins(2));
        let annotations = json!({
            "linesman.dev/previous-image": OLD,
            "linesman.dev/upgrade-image": NEW,
            "linesman.dev/upgrade-deadline": deadline,
            "linesman.dev/upgrade-asks": "pod-b",
        });
        let metadata = json!({
            "name": "linesman-agent", "resourceVersion": "1", "annotations": annotations,
        });
        Arc::new(Mutex::new(Self {
            deployment: json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
                "spec": {"selector": {}, "template": {"spec": containers(NEW)}},
            }),
            lease: json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": "linesman-agent", "resourceVersion": "1"},
                "spec": {"holderIdentity": "", "leaseDurationSeconds": 15},
            }),
            broken: Vec::new(),
            asked: Vec::new(),
        }))
    }

    fn answer(&mut self, (method, kind): (Method, String), body: &[u8]) -> Result<Value, BoxError> {
        self.asked.push((method.clone(), kind.clone()));
        let breaks = |(m, k): &(Method, &str)| *m == method && *k == kind;
        if let Some(at) = self.broken.iter().position(breaks) {
            self.broken.remove(at);
            return Err(BoxError::from("connection refused"));
        }
        Ok(match (method, kind.as_str()) {
            (Method::PUT, "leases") => {
                self.lease = serde_json::from_slice(body).unwrap();
                self.lease.clone()
            }
            (_, "leases") => self.lease.clone(),
            (Method::PATCH, "deployments") => {
                self.deployment["metadata"]["annotations"] = json!({});
                self.deployment["spec"]["template"]["spec"] = containers(OLD);
                self.deployment.clone()
            }
            (_, "deployments") => self.deployment.clone(),
            (_, _) => json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD}, "spec": containers(OLD),
            }),
        })
    }
}

fn containers(image: &str) -> Value {
    json!({"containers": [{"name": "agent", "image": image}]})
}

fn client(cluster: &Shared) -> kube::Client {
    let cluster = Arc::clone(cluster);
    let service = service_fn(move |request: Request<Body>| {
        let cluster = Arc::clone(&cluster);
        async move {
            let path = request.uri().path().to_owned();
            let kind = path.rsplit('/').nth(1).unwrap_or_default().to_owned();
            let call = (request.method().clone(), kind);
            let body = request.into_body().collect_bytes().await.unwrap();
            let said = cluster.lock().unwrap().answer(call, &body)?;
            Ok::<_, BoxError>(Response::new(Body::from(said.to_string().into_bytes())))
        }
    });
    kube::Client::new(service, "linesman")
}

fn arrived(cluster: &Shared, method: &Method, kind: &str) -> usize {
    let cluster = cluster.lock().unwrap();
    let all = cluster.asked.iter();
    all.filter(|(m, k)| m == method && k == kind).count()
}

async fn old(kube: &kube::Client, heart: &Heart) -> Upgrade {
    let never = CancellationToken::new();
    let upgrade = Upgrade::new(kube, ("linesman", POD), OLD, (heart, &never));
    upgrade.await.unwrap()
}

/// Leads until it is to end, and lets the Lease go while so many writes of it break: who is to have it, and who has it.
async fn term(
    cluster: &Shared,
    upgrade: &Upgrade,
    heart: &Heart,
    breaks: usize,
) -> (Option<String>, Value) {
    let kube = client(cluster);
    let mut candidate = lease::Candidate::new(kube.clone(), "linesman", POD.to_owned());
    let let_go = candidate.let_go();
    candidate.try_lead().await.unwrap();
    let heir = upgrade.heir();
    let (news, _told) = tokio::sync::mpsc::channel(8);
    let build = AgentBuild {
        version: "1".to_owned(),
        image: OLD.to_owned(),
        arch: "amd64".to_owned(),
        features: Vec::new(),
    };
    let context = enroll::Context {
        kube: kube.clone(),
        namespace: "linesman".to_owned(),
        engines: EngineNamespaces::default(),
        extent: Extent::Cluster,
        pod: POD.to_owned(),
        cluster: "eu1".parse().unwrap(),
        build,
        faults: Faults::default(),
        news,
        heart: None,
    };
    let (_joined, joined) = watch::channel(None);
    let (_owner, owner) = watch::channel(None);
    let (_acked, acked) = watch::channel(Some(Instant::now()));
    let (_line, line) = watch::channel(link::LinkState::Down {
        since: clock::now(),
        cause: String::new(),
        attempt: 0,
        strange: false,
    });
    let upgrading = upgrade::Upgrading {
        upgrade: upgrade.clone(),
        context,
        joined,
        owner,
        line,
        acked,
        heart: heart.clone(),
        term: candidate.term(),
    };
    let running = upgrading.run(CancellationToken::new());
    let _goes_on = timeout(Duration::from_mins(1), running).await;
    let given = heir.borrow().clone();
    let stop = CancellationToken::new();
    stop.cancel();
    cluster.lock().unwrap().broken = vec![(Method::PUT, "leases"); breaks];
    candidate.keep(heart.clone(), heir, stop).await.unwrap();
    cluster.lock().unwrap().broken.clear();
    upgrade.gave(*let_go.borrow());
    let cluster = cluster.lock().unwrap();
    (given, cluster.lease["spec"]["holderIdentity"].clone())
}

/// H50: the new image's Pod never led, so that nothing is known against it: it is given the Lease once more.
#[tokio::test(start_paused = true)]
async fn an_image_that_did_not_get_the_lease_is_not_to_blame() {
    let cluster = Cluster::on_trial();
    let hearts = Hearts::default();
    let heart = hearts.heart("lease", STILL);
    let upgrade = old(&client(&cluster), &heart).await;
    let mut said = Vec::new();
    for breaks in [100, 0] {
        said.push(term(&cluster, &upgrade, &heart, breaks).await);
    }
    let heir = || Some("pod-b".to_owned());
    assert_eq!(said, [(heir(), json!(POD)), (heir(), json!("pod-b"))]);
    assert_eq!(arrived(&cluster, &Method::PATCH, "deployments"), 0);
}

/// L51: with the label of the one that leads, it would get connections of the engine that it does not take.
#[tokio::test(start_paused = true)]
async fn one_that_stands_by_takes_its_label_away_as_often_as_it_takes() {
    let cluster = Cluster::on_trial();
    cluster.lock().unwrap().lease["spec"]["holderIdentity"] = json!("pod-b");
    let (kube, hearts) = (client(&cluster), Hearts::default());
    let heart = hearts.heart("lease", STILL);
    let upgrade = old(&kube, &heart).await;
    cluster.lock().unwrap().broken = vec![(Method::PATCH, "pods"); 3];
    let mut candidate = lease::Candidate::new(kube, "linesman", POD.to_owned());
    let (ready, _) = watch::channel(Readiness::NotReady("starting".to_owned()));
    let stop = CancellationToken::new();
    let standing = stand_by(&mut candidate, &upgrade, &heart, &ready, &stop);
    // Before it may take the Lease, which nobody renews here.
    let stood = timeout(lease::RETRY * 6, standing).await;
    assert!(stood.is_err(), "another one leads");
    assert_eq!(arrived(&cluster, &Method::PATCH, "pods"), 4);
}
