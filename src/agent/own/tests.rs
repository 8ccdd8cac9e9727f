use std::convert::Infallible;

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::json;
use tokio::sync::mpsc;

use super::*;
use crate::agent::fault::Faults;
use crate::agent::lease::Candidate;
use crate::lifetime::hearts::{Hearts, STILL};
use crate::manifests::{EngineNamespaces, scope::Extent};
use crate::wire::api::AgentBuild;

#[test]
fn a_step_that_fails_again_and_again_is_written_down_once_with_the_way_out() {
    let id = ObjectId::new(Kind::ClusterRole, "", "linesman-agent");
    let finding = Finding::new(Class::AgentDrift, &id, "differs at /rules");
    let now = clock::parse_rfc3339("2026-01-01T00:00:00Z").unwrap();
    let mut record = opened(&finding, now);
    assert_eq!((record.number, record.result), (49, HealResult::Open));
    let refused = Kept::Forbidden("attempting to grant extra privileges".to_owned());
    let news = [&refused, &refused, &Kept::Applied, &refused, &Kept::Applied]
        .map(|kept| noted(&mut record, false, kept, now));
    assert_eq!(news, [true, false, true, false, false]);
    let steps: Vec<&str> = record.steps.iter().map(|s| s.outcome.as_str()).collect();
    assert_eq!(steps, ["attempting to grant extra privileges", "ok"]);
    assert!(
        record.next.contains("linesman cluster readopt"),
        "{record:?}"
    );
    assert_eq!(record.acted_at.as_deref(), Some("2026-01-01T00:00:00.000Z"));
}

/// The keeper of a cluster that has none of its objects and refuses to make them with this code and word; and what it tells.
fn keeping(code: u16, message: &'static str) -> (Keeping, mpsc::Receiver<News>) {
    let server = tower::service_fn(move |request: Request<Body>| {
        let read = *request.method() == Method::GET;
        let (code, reason) = if read { (404, "NotFound") } else { (code, "") };
        let said = json!({"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code});
        let answer = Response::builder().status(code);
        let answer = answer.body(Body::from(said.to_string().into_bytes()));
        async { Ok::<_, Infallible>(answer.unwrap()) }
    });
    keeping_with(kube::Client::new(server, "linesman"))
}

fn keeping_with(kube: kube::Client) -> (Keeping, mpsc::Receiver<News>) {
    let (news, told) = mpsc::channel(8);
    let context = enroll::Context {
        kube: kube.clone(),
        namespace: "linesman".to_owned(),
        engines: EngineNamespaces::default(),
        extent: Extent::Cluster,
        pod: "linesman-agent-0".to_owned(),
        cluster: "eu1".parse().unwrap(),
        build: AgentBuild::default(),
        faults: Faults::default(),
        news,
        heart: None,
    };
    let keeping = Keeping {
        context,
        joined: watch::channel(None).1,
        owner: watch::channel(None).1,
        heart: Hearts::default().heart("own objects", STILL),
        metrics: HealMetrics::default(),
        refused: Arc::default(),
        calls: Calls::default(),
        term: Candidate::new(kube, "linesman", "a".to_owned()).term(),
    };
    (keeping, told)
}

/// What was tried, and who can help, is told while the heal is open; and once, however often it is tried.
#[tokio::test]
async fn what_cannot_be_mended_is_told_with_the_reason_and_who_can_help() {
    let grant = "attempting to grant RBAC permissions not currently held";
    let webhook = "admission webhook \"no.example\" denied the request";
    let ask = format!(
        "ask whoever runs the cluster's API server, or the admission webhook that is named, why it is not taken: {webhook}"
    );
    let id = ObjectId::new(Kind::ClusterRole, "", "linesman-agent");
    let wanted = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": id.name}});
    for (code, message, next) in [(403, grant, READOPT), (400, webhook, ask.as_str())] {
        let (keeping, mut told) = keeping(code, message);
        let mut memory = Memory::default();
        for _ in 0..3 {
            keeping.keep(&id, &wanted, &mut memory).await.unwrap();
        }
        let mut records = Vec::new();
        while let Ok(News::Heal(record)) = told.try_recv() {
            let steps = record.steps.iter().map(|step| step.outcome.clone());
            records.push((steps.collect::<Vec<_>>(), record.next.clone()));
        }
        let tried = (vec![message.to_owned()], next.to_owned());
        assert_eq!(records, [(Vec::new(), String::new()), tried]);
    }
}

/// Generation and status of a Deployment: how far it is, and all Pods and those of its template.
fn deployment(generation: i64, (observed, all, updated): (i64, i32, i32)) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "linesman-agent", "generation": generation},
        "status": {"observedGeneration": observed, "replicas": all, "updatedReplicas": updated},
    })
}

#[test]
fn a_deployment_rolls_out_until_its_pods_are_of_its_template_or_its_time_is_over() {
    let rolls = |live: Value| rolls_out(&serde_json::from_value(live).unwrap());
    assert!(!rolls(deployment(2, (2, 1, 1))));
    assert!(rolls(deployment(3, (2, 1, 1))));
    assert!(rolls(deployment(3, (3, 2, 1))));
    let mut stuck = deployment(3, (3, 2, 1));
    stuck["status"]["conditions"] = json!([{"type": "Progressing", "status": "False"}]);
    assert!(!rolls(stuck));
    assert!(!rolls(json!({"metadata": {"generation": 1}})));
}

/// The former agent's last look meets roles of the YAML that is being applied: it would put its own in their place.
#[tokio::test]
async fn what_other_yaml_has_is_left_to_the_agent_that_it_brings() {
    let live = Arc::new(std::sync::Mutex::new(deployment(1, (1, 1, 1))));
    let shown = Arc::clone(&live);
    let server = tower::service_fn(move |request: Request<Body>| {
        let deployment = shown.lock().unwrap().clone();
        let said = if request
            .uri()
            .path()
            .ends_with("/deployments/linesman-agent")
        {
            deployment
        } else {
            json!({"metadata": {"name": "linesman-agent"}, "rules": []})
        };
        let answer = Response::new(Body::from(said.to_string().into_bytes()));
        async { Ok::<_, Infallible>(answer) }
    });
    let (keeping, _told) = keeping_with(kube::Client::new(server, "linesman"));
    let id = ObjectId::new(Kind::ClusterRole, "", "linesman-agent");
    let rule = json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]});
    let wanted = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": id.name}, "rules": [rule],
    });
    let mut memory = Memory::default();
    // The Deployment is applied last, then brings up its Pod, and is done. By then the former agent has ended, or it was not the YAML.
    let mut opened = Vec::new();
    for seen in [
        deployment(1, (1, 1, 1)),
        deployment(2, (1, 1, 1)),
        deployment(2, (2, 2, 1)),
        deployment(2, (2, 1, 1)),
    ] {
        *live.lock().unwrap() = seen;
        keeping.keep(&id, &wanted, &mut memory).await.unwrap();
        opened.push(memory.open.len());
    }
    assert_eq!(opened, [0, 0, 0, 1]);
}
