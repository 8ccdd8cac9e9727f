use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::json;
use tokio::task::JoinSet;
use tower_test::mock::Handle;

use super::*;
use crate::agent::lease::Candidate;
use crate::agent::plan::tests::{Cluster, install};
use crate::bundle::{Kind, ObjectId};

const CRD: &str = "kustomizations.kustomize.toolkit.fluxcd.io";

type Server = Handle<Request<Body>, Response<Body>>;

/// A cluster at work as it is seen, and a task that has the rights in its hands, with the API server it speaks to.
async fn at_work(
    server: &mut Server,
    kube: kube::Client,
) -> (View, Cutter, Blade<fn(Observed) -> Observed>) {
    let mut candidate = Candidate::new(kube.clone(), "linesman", "a".to_owned());
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "linesman-agent"},
    });
    let leads = async {
        for _ in 0..2 {
            answer(server, &lease).await;
        }
    };
    let (leading, ()) = tokio::join!(candidate.try_lead(), leads);
    assert_eq!(leading, Ok(()));
    let view = View::new(&install());
    let (tell, latest) = watch::channel(Followed {
        install: install(),
        adopted: true,
    });
    let (order, orders) = mpsc::channel(QUEUE);
    let (note, notes) = mpsc::channel(QUEUE);
    let cutter = Cutter {
        install: tell,
        orders: order,
        notes,
    };
    let blade = Blade {
        saves: Saves::new(&kube, "linesman"),
        kube,
        term: candidate.term(),
        around: std::convert::identity as fn(Observed) -> Observed,
        view: view.clone(),
        install: latest,
        orders,
        notes: note,
    };
    (view, cutter, blade)
}

/// Answers one request, and says what it was.
async fn answer(server: &mut Server, with: &serde_json::Value) -> (Method, String) {
    let (request, reply) = server.next_request().await.unwrap();
    let body = Body::from(with.to_string().into_bytes());
    reply.send_response(Response::new(body));
    (request.method().clone(), request.uri().path().to_owned())
}

fn bindings() -> Vec<(Method, String)> {
    let all = install().traits.rights.iter();
    let path = |name| format!("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}");
    all.map(|name| (Method::DELETE, path(name))).collect()
}

/// W11: the engine prunes in less time than a step of the watchdog may take.
#[tokio::test]
async fn rights_are_cut_while_the_watchdog_is_at_something_else() {
    let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let kube = kube::Client::new(service, "linesman");
    let (view, mut cutter, blade) = at_work(&mut server, kube).await;
    let mut working = Cluster::working().observed();
    for scope in working.scopes.values_mut() {
        scope.answered = Some(clock::now());
    }
    view.set(working.clone());
    let mut cutting = JoinSet::new();
    cutting.spawn(blade.run());
    let crd = ObjectId::new(Kind::CustomResourceDefinition, "", CRD);
    let mut dying = working.objects[&crd].as_ref().clone();
    dying.deleting = Some(clock::now());
    dying.version += 1;
    view.put(&crd, Some(dying));
    let done = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
    let mut asked = vec![
        answer(&mut server, &done).await,
        answer(&mut server, &done).await,
    ];
    asked.sort_by(|a, b| a.1.cmp(&b.1));
    assert_eq!(asked, bindings());
    let rights = |o: &Observed| {
        o.objects
            .keys()
            .filter(|id| id.kind == Kind::ClusterRoleBinding)
            .count()
    };
    view.subscribe()
        .wait_for(|seen| rights(seen) == 0)
        .await
        .unwrap();

    // The watchdog comes round, and orders the same: it is done, and noted once.
    let cut = |name: &&str| {
        let id = ObjectId::new(Kind::ClusterRoleBinding, "", name);
        let uid = working.objects[&id].uid.clone();
        (Action::CutRights { uid }, id)
    };
    let expected: Vec<(Action, ObjectId)> = install().traits.rights.iter().map(cut).collect();
    let again = expected.iter().map(|(action, target)| Step {
        action: action.clone(),
        target: target.clone(),
        cause: None,
    });
    cutter.cut(again.collect()).await;
    let mut noted = Vec::new();
    while let Ok((step, outcome)) = cutter.notes.try_recv() {
        assert_eq!(outcome, Outcome::Done);
        noted.push((step.action, step.target));
    }
    noted.sort_by(|a, b| a.1.cmp(&b.1));
    assert_eq!(noted, expected);
    drop(cutter);
    cutting.join_next().await.unwrap().unwrap().unwrap();
}
