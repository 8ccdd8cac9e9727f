use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use serde_json::json;
use tokio::task::JoinSet;

use super::*;
use crate::agent::observe::found::Found;
use crate::agent::observe::scopes_of;
use crate::agent::plan::state::Answer;
use crate::agent::plan::tests::install_of;
use crate::agent::plan::{Observed, Pod, project};
use crate::wire::api::EngineKind;

mod astray;
mod pages;
mod silent;
mod undone;

fn refusing() -> kube::Client {
    let service = tower::service_fn(|_: Request<kube::client::Body>| async {
        let status =
            json!({"kind": "Status", "apiVersion": "v1", "code": 403, "reason": "Forbidden"});
        let body = kube::client::Body::from(status.to_string().into_bytes());
        let answer = Response::builder().status(403).body(body);
        Ok::<_, Infallible>(answer.unwrap())
    });
    kube::Client::new(service, "default")
}

/// What is known of a kind, all of which was there, once its list is refused: the answer, and whether it is there.
async fn refused(kind: Kind, bound: bool) -> (Answer, bool) {
    let install = install_of(EngineKind::Flux);
    let view = View::new(&install);
    let whole = |kind: Kind, there: bool| {
        let ids = install.wanted.keys().filter(|id| id.kind == kind && there);
        let live = |id: &ObjectId| serde_json::from_value(install.body(id).unwrap()).unwrap();
        let all = ids.map(|id| (id.clone(), project::object(kind, live(id))));
        Found::Objects(kind, all.collect(), BTreeSet::new()).put(&view, Answer::Whole);
    };
    whole(kind, true);
    whole(Kind::RoleBinding, bound);
    let scopes = scopes_of(
        &refusing(),
        &install,
        crate::manifests::scope::Extent::Cluster,
    );
    let mut scopes = scopes.iter();
    let scope = scopes.find(|s| matches!(s.what, What::Objects(k) if k == kind));
    let listed = scope.unwrap().list(&view).await;
    assert!(matches!(listed, Listed::Unserved));
    let seen = view.0.borrow();
    let there = seen.objects.keys().any(|id| id.kind == kind);
    (seen.scopes[&kind].answer, there)
}

/// Of a Pod in a form that is not known, neither a list nor a watch says that there is none, or that there are others.
#[tokio::test]
async fn a_pod_that_cannot_be_read_is_there_all_the_same() {
    let install = install_of(EngineKind::Flux);
    let pod = |version: &str, containers: serde_json::Value| -> DynamicObject {
        let labels = json!({"app": "source-controller", "controller-revision-hash": "h"});
        let meta = json!({
            "name": "a", "namespace": "flux-system", "uid": "u", "labels": labels,
            "resourceVersion": version,
        });
        let live = json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers}});
        serde_json::from_value(live).unwrap()
    };
    let listed = |live: DynamicObject| {
        let view = View::new(&install);
        let mut found = Found::nothing(What::Pods);
        found.add(live, "flux-system", |_, _| None);
        found.put(&view, Answer::Whole);
        view
    };
    let known = |view: &View| {
        let seen = view.0.borrow();
        let all = seen.pods.iter();
        let all = all.map(|(name, pod)| (name.clone(), pod.as_ref().clone()));
        (all.collect::<Vec<_>>(), seen.pods_cut)
    };
    let there = |revision: &str| {
        let pod = Pod {
            uid: "u".to_owned(),
            app: "source-controller".to_owned(),
            revision: revision.to_owned(),
            ..Pod::default()
        };
        (vec![("a".to_owned(), pod)], false)
    };
    let view = listed(pod("1", json!([])));
    assert_eq!(known(&view), there("h"));
    assert_eq!(known(&listed(pod("1", json!("?")))), there(""));
    let extent = crate::manifests::scope::Extent::Cluster;
    let scopes = scopes_of(&refusing(), &install, extent);
    let scope = scopes.iter().find(|s| matches!(s.what, What::Pods));
    let resume = scope.unwrap().changed(&view, pod("2", json!("?")), 1);
    assert_eq!((resume.as_deref(), known(&view)), (Some("2"), there("")));
}

/// H35: before an install, and after its namespace was deleted, where the agent may list in some namespaces only.
#[tokio::test]
async fn a_refused_list_in_a_namespace_that_is_not_there_is_an_empty_one() {
    let install = install_of(EngineKind::Flux);
    for there in [false, true] {
        let view = View::new(&install);
        let ids = install
            .wanted
            .keys()
            .filter(|id| id.kind == Kind::Namespace && there);
        let live = |id: &ObjectId| serde_json::from_value(install.body(id).unwrap()).unwrap();
        let all = ids.map(|id| (id.clone(), project::object(Kind::Namespace, live(id))));
        Found::Objects(Kind::Namespace, all.collect(), BTreeSet::new()).put(&view, Answer::Whole);
        for scope in scopes_of(
            &refusing(),
            &install,
            crate::manifests::scope::Extent::Namespaces,
        ) {
            if matches!(
                scope.what,
                What::Objects(Kind::RoleBinding | Kind::Deployment) | What::Pods
            ) {
                assert!(matches!(scope.list(&view).await, Listed::Unserved));
            }
        }
        let seen = view.0.borrow();
        let told = if there {
            Answer::Refused
        } else {
            Answer::Nothing
        };
        assert_eq!(seen.scopes[&Kind::RoleBinding].answer, told);
        assert_eq!(seen.scopes[&Kind::Deployment].answer, told);
        assert_eq!(seen.pods_at.is_some(), !there);
    }
}

#[tokio::test]
async fn a_refused_list_tells_of_an_absence_only_where_the_rights_went_with_the_namespace() {
    for (kind, bound, told) in [
        (Kind::Secret, true, (Answer::Refused, true)),
        (Kind::Secret, false, (Answer::Nothing, false)),
        (Kind::Service, true, (Answer::Refused, true)),
        (Kind::ClusterRole, true, (Answer::Refused, true)),
        (Kind::ClusterRole, false, (Answer::Refused, true)),
        (
            Kind::ValidatingAdmissionPolicy,
            true,
            (Answer::Nothing, false),
        ),
    ] {
        assert_eq!(refused(kind, bound).await, told, "{kind}, bound: {bound}");
    }
}

/// An API server with nothing of any kind, whose watches say so every `bookmarks`, as long as they last; counts lists.
fn quiet(bookmarks: Option<Duration>, lists: Arc<AtomicUsize>) -> kube::Client {
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let watches = request.uri().query().unwrap_or_default().contains("watch=");
        let lists = Arc::clone(&lists);
        async move {
            let meta = json!({"resourceVersion": "7"});
            if !watches {
                lists.fetch_add(1, Ordering::Relaxed);
                let list = json!({"kind": "ServiceList", "apiVersion": "v1", "metadata": meta, "items": []});
                return Ok::<_, Infallible>(Response::new(Body::from(list.to_string())));
            }
            let mark = json!({"type": "BOOKMARK", "object": {"kind": "Service", "apiVersion": "v1", "metadata": meta}});
            let marks = futures_util::stream::unfold((), move |()| {
                let line = Bytes::from(format!("{mark}\n"));
                async move {
                    match bookmarks {
                        Some(every) => tokio::time::sleep(every).await,
                        None => std::future::pending().await,
                    }
                    Some((Ok::<_, Infallible>(line), ()))
                }
            });
            let end = tokio::time::sleep(Duration::from_secs(WATCH_SECONDS.into()));
            Ok(Response::new(Body::from_stream(marks.take_until(end))))
        }
    });
    kube::Client::new(service, "default")
}

/// How often Services are listed in an hour in which nothing happens.
async fn lists(bookmarks: Option<Duration>) -> usize {
    let install = install_of(EngineKind::Flux);
    let view = View::new(&install);
    let count = Arc::new(AtomicUsize::new(0));
    let kube = quiet(bookmarks, Arc::clone(&count));
    let scopes = scopes_of(&kube, &install, crate::manifests::scope::Extent::Cluster);
    let mut scopes = scopes.into_iter();
    let scope = scopes.find(|s| matches!(s.what, What::Objects(Kind::Service)));
    let hour = Duration::from_hours(1);
    drop(timeout(hour, scope.unwrap().observe(&view)).await);
    count.load(Ordering::Relaxed)
}

/// W41: where the API server says that a watch told all, nothing is listed for that; what is silent is not believed for long.
#[tokio::test(start_paused = true)]
async fn bookmarks_take_the_place_of_lists_for_five_minutes() {
    let minute = Some(Duration::from_mins(1));
    assert!((11..=13).contains(&lists(minute).await));
    assert!((51..=55).contains(&lists(None).await));
}

#[test]
fn a_bookmark_is_as_good_as_a_list_where_there_was_one() {
    let install = install_of(EngineKind::Flux);
    let view = View::new(&install);
    let kind = Kind::Service;
    let answered = || {
        let seen = view.0.borrow();
        let scope = seen.scopes.get(&kind).copied().unwrap_or_default();
        (scope.answered, scope.answer)
    };
    let confirm = || found::confirmed(What::Objects(kind), &view);
    confirm();
    assert_eq!(answered().0, None, "nothing was listed yet");
    let old = clock::now() - time::Duration::minutes(2);
    for (answer, renewed) in [
        (Answer::Whole, true),
        (Answer::Nothing, false),
        (Answer::Refused, false),
    ] {
        Found::nothing(What::Objects(kind)).put(&view, answer);
        view.0.send_modify(|seen| {
            seen.scopes.get_mut(&kind).unwrap().answered = Some(old);
        });
        confirm();
        assert_eq!(answered().0 != Some(old), renewed, "{answer:?}");
        assert_eq!(answered().1, answer);
    }
}

fn service_of(uid: &str, version: u64) -> DynamicObject {
    let kind = Kind::Service;
    serde_json::from_value(json!({
        "apiVersion": kind.api_version(), "kind": kind.as_str(), "spec": {},
        "metadata": {"namespace": "flux-system", "name": "source-controller", "uid": uid, "resourceVersion": version.to_string()},
    }))
    .unwrap()
}

/// W41: what somebody deletes as soon as it is back may be gone by the watch before the write that made it is answered.
#[tokio::test]
async fn an_answer_that_comes_after_the_end_of_its_object_brings_it_not_back() {
    let install = install_of(EngineKind::Flux);
    let kube = quiet(None, Arc::default());
    let scopes = scopes_of(&kube, &install, crate::manifests::scope::Extent::Cluster);
    let mut scopes = scopes.into_iter();
    let scope = scopes.find(|s| matches!(s.what, What::Objects(Kind::Service)));
    let scope = scope.unwrap();
    let id = ObjectId::new(Kind::Service, "flux-system", "source-controller");
    let view = View::new(&install);
    let answered = |uid: &str, version: u64| {
        let live = project::object(Kind::Service, service_of(uid, version));
        view.put(&id, Some(live));
        view.get(&id).map(|there| there.uid.clone())
    };
    scope.changed(&view, service_of("a", 11), 9);
    scope.deleted(&view, service_of("a", 12), 9);
    assert_eq!(answered("a", 11), None, "the watch told of its end");
    // A list began after that end: the watch says nothing of it any more.
    found::listed(&view, Kind::Service, 20);
    assert_eq!(answered("b", 15), None, "the list would have had it");
    assert_eq!(answered("c", 21).as_deref(), Some("c"));
    assert_eq!(answered("c", 22).as_deref(), Some("c"));
    // One that is older than the list is told late, and ends the object all the same.
    scope.deleted(&view, service_of("c", 23), 30);
    assert_eq!(answered("c", 22), None);
    // What a watch no longer selects it tells of as deleted; it can be back as it was.
    scope.changed(&view, service_of("c", 31), 30);
    assert_eq!(view.get(&id).map(|there| there.version), Some(31));
}

/// W10: CRDs are never removed, and their objects are let go when the Namespace is deleted.
#[tokio::test]
async fn the_crd_of_a_part_that_has_gone_is_known() {
    let install = install_of(EngineKind::Flux);
    let extent = crate::manifests::scope::Extent::Cluster;
    let scopes = scopes_of(&refusing(), &install, extent);
    let crds = |s: &&Scope| matches!(s.what, What::Objects(Kind::CustomResourceDefinition));
    let scope = scopes.iter().find(crds).unwrap();
    let known = |name: &str| {
        let id = ObjectId::new(Kind::CustomResourceDefinition, "", name);
        scope.wanted.contains(&id)
    };
    assert_eq!(
        [
            "kustomizations.kustomize.toolkit.fluxcd.io",
            "helmreleases.helm.toolkit.fluxcd.io",
            "receivers.notification.toolkit.fluxcd.io",
            "applications.argoproj.io",
        ]
        .map(known),
        [true, true, true, false]
    );
}

/// F33: what of Kubernetes' own could be in the way of the engine, as lists and watches tell.
#[tokio::test]
async fn policies_of_others_are_known_by_name() {
    let install = install_of(EngineKind::Flux);
    let view = View::new(&install);
    let live = |name: &str, version: &str| -> DynamicObject {
        let policy = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": name, "namespace": "flux-system", "uid": name, "resourceVersion": version},
        });
        serde_json::from_value(policy).unwrap()
    };
    let scopes = scopes_of(
        &refusing(),
        &install,
        crate::manifests::scope::Extent::Cluster,
    );
    let mut scopes = scopes.iter();
    let policies = |s: &&Scope| matches!(s.what, What::Objects(Kind::NetworkPolicy));
    let scope = scopes.find(policies).unwrap();
    let mut found = Found::nothing(scope.what);
    for name in ["allow-egress", "deny-all"] {
        found.add(live(name, "5"), "flux-system", |kind, live| {
            scope.id(kind, live)
        });
    }
    found.put(&view, Answer::Whole);
    let names = || Vec::from_iter(view.0.borrow().policies.clone());
    assert_eq!(names(), ["deny-all"]);
    for (name, there, expected) in [
        ("audit", true, &["audit", "deny-all"][..]),
        ("allow-egress", true, &["audit", "deny-all"]),
        ("deny-all", false, &["audit"]),
        ("audit", false, &[]),
    ] {
        let live = live(name, "9");
        let version = if there {
            scope.changed(&view, live, 5)
        } else {
            scope.deleted(&view, live, 5)
        };
        assert_eq!(version.as_deref(), Some("9"));
        assert_eq!(names(), expected, "{name}");
    }
}
