use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, Uri};
use kube::client::Body;

use super::*;
use crate::agent::plan::{self, Object};

#[test]
fn a_spec_is_replaced_as_a_whole_and_that_of_fluxs_roots_field_by_field() {
    let spec = json!({"url": "ssh://git@hub.test/c.git", "ref": {"branch": "main"}});
    for (kind, patch) in [
        (
            Kind::Application,
            json!([{"op": "replace", "path": "/spec", "value": spec}]),
        ),
        (
            Kind::GitRepository,
            json!([
                {"op": "add", "path": "/spec/ref", "value": {"branch": "main"}},
                {"op": "add", "path": "/spec/url", "value": "ssh://git@hub.test/c.git"},
            ]),
        ),
    ] {
        let astray = ["/spec/ref/tag".to_owned()];
        assert_eq!(replacement(kind, &spec, &astray), patch, "{kind}");
    }
    let astray = ["/spec/timeout".to_owned()];
    for kind in [Kind::GitRepository, Kind::Kustomization] {
        let patch = replacement(kind, &spec, &astray);
        assert_eq!(patch[2], json!({"op": "remove", "path": "/spec/timeout"}));
    }
}

/// What was sent, and what a step came to; the API server answers each method as given.
async fn sent(
    step: &Step,
    observed: &Observed,
    answer: impl Fn(&Method) -> (u16, Value) + Send + Sync + 'static,
) -> (Vec<(Method, Value)>, Outcome) {
    let (calls, done) = done(step, observed, &[], answer).await;
    (calls, done.outcome)
}

/// The same with what is saved, before and after.
async fn done(
    step: &Step,
    observed: &Observed,
    saved: &[Saved],
    answer: impl Fn(&Method) -> (u16, Value) + Send + Sync + 'static,
) -> (Vec<(Method, Value)>, Done) {
    done_at(step, observed, saved, move |method, _| answer(method)).await
}

/// The same with answers by path, too.
async fn done_at(
    step: &Step,
    observed: &Observed,
    saved: &[Saved],
    answer: impl Fn(&Method, &str) -> (u16, Value) + Send + Sync + 'static,
) -> (Vec<(Method, Value)>, Done) {
    let answer = move |method: &Method, uri: &Uri| Some(answer(method, uri.path()));
    done_by(step, observed, saved, answer).await
}

/// The same by an API server that never answers where there is no answer.
pub(super) async fn done_by(
    step: &Step,
    observed: &Observed,
    saved: &[Saved],
    answer: impl Fn(&Method, &Uri) -> Option<(u16, Value)> + Send + Sync + 'static,
) -> (Vec<(Method, Value)>, Done) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let answer = Arc::new(answer);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (calls, answer) = (Arc::clone(&calls), Arc::clone(&answer));
        async move {
            let (method, uri) = (request.method().clone(), request.uri().clone());
            let body = request.into_body().collect_bytes().await.unwrap();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let Some((code, said)) = answer(&method, &uri) else {
                return pending().await;
            };
            calls.lock().unwrap().push((method, body));
            let answer = Response::builder().status(code);
            let answer = answer.body(Body::from(said.to_string().into_bytes()));
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    let kube = Client::new(service, "default");
    let install = plan::tests::install();
    let hands = Hands {
        kube: &kube,
        install: &install,
        view: &View::new(&install),
        observed,
        saves: &Saves::new(&kube, "linesman"),
    };
    let done = hands.act(step, saved).await;
    let calls = seen.lock().unwrap().clone();
    (calls, done)
}

pub(super) fn status(code: u16, message: &str) -> (u16, Value) {
    let reason = if code == 404 { "NotFound" } else { "x" };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
        "message": message,
    });
    (code, status)
}

fn live(id: &ObjectId) -> Object {
    let live = json!({
        "apiVersion": id.kind.api_version(), "kind": id.kind.as_str(),
        "metadata": {
            "name": id.name, "namespace": id.namespace, "uid": "uid-1", "resourceVersion": "7",
            "finalizers": ["finalizers.fluxcd.io", "example.org/mine"],
        },
    });
    project::object(id.kind, serde_json::from_value(live).unwrap())
}

#[tokio::test]
async fn finalizers_are_taken_from_the_object_that_was_seen_and_from_no_other() {
    let id = ObjectId::new(Kind::Kustomization, "flux-system", "flux-system");
    let observed = Observed {
        objects: [(id.clone(), Arc::new(live(&id)))].into(),
        ..Observed::default()
    };
    let step = Step {
        action: Action::Unpin {
            keep: vec!["example.org/mine".to_owned()],
        },
        target: id.clone(),
        cause: None,
    };
    let meta = json!({"finalizers": ["example.org/mine"], "uid": "uid-1", "resourceVersion": "7"});
    for code in [409, 404] {
        let (calls, outcome) = sent(&step, &observed, move |_| status(code, "x")).await;
        assert_eq!(calls, [(Method::PATCH, json!({"metadata": meta}))]);
        assert_eq!(outcome, Outcome::Unserved("x".to_owned()), "{code}");
    }
    let (_, outcome) = sent(&step, &observed, |_| status(422, "x")).await;
    assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
}

#[tokio::test]
async fn what_is_made_anew_goes_with_all_that_hangs_on_it() {
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let step = |action| Step {
        action,
        target: id.clone(),
        cause: None,
    };
    let answer = |method: &Method| match *method {
        Method::GET => status(404, "gone"),
        _ => (200, json!({"metadata": {"name": "source-controller"}})),
    };
    let uid = || "uid-1".to_owned();
    for (action, how) in [
        (Action::Recreate { uid: uid() }, "Foreground"),
        (Action::CutRights { uid: uid() }, "Background"),
    ] {
        let (calls, outcome) = sent(&step(action), &Observed::default(), answer).await;
        let (method, body) = &calls[0];
        assert_eq!(*method, Method::DELETE);
        assert_eq!(body["propagationPolicy"], json!(how));
        assert_eq!(body["preconditions"], json!({"uid": "uid-1"}));
        assert_eq!(outcome, Outcome::Done);
    }
}

/// W44: what is to be brought back is put on record before the engine lets go of it, with more than one try; where that cannot be
/// done, the objects go all the same, or nothing would ever come back, and it is told.
#[tokio::test(start_paused = true)]
async fn nothing_is_let_go_before_its_record_was_tried_again() {
    let step = Step {
        action: Action::Release,
        target: crd_of_kustomizations(),
        cause: None,
    };
    for (refused, told) in [(0, false), (2, false), (usize::MAX, true)] {
        let writes = AtomicUsize::new(0);
        let answer = move |method: &Method| match *method {
            Method::GET => {
                let object = json!({
                    "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                    "metadata": {
                        "name": "held", "namespace": "teams", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:10Z",
                        "finalizers": ["finalizers.fluxcd.io"],
                    },
                    "spec": {},
                });
                let items = if writes.load(Ordering::Relaxed) == 0 {
                    vec![object]
                } else {
                    vec![]
                };
                (
                    200,
                    json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}),
                )
            }
            // The record comes first.
            _ if writes.fetch_add(1, Ordering::Relaxed) < refused.min(3) => status(500, "x"),
            _ => (200, json!({"metadata": {"name": "x"}})),
        };
        let (calls, done) = done(&step, &Observed::default(), &[], answer).await;
        assert_eq!(done.outcome, Outcome::Done, "{refused}");
        assert_eq!(done.told.unrecorded.is_some(), told, "{:?}", done.told);
        let patches = calls.iter().filter(|(method, _)| *method == Method::PATCH);
        let strips = |body: &Value| body.pointer("/metadata/finalizers").is_some();
        let sent: Vec<bool> = patches.map(|(_, body)| strips(body)).collect();
        let tries = if told { 3 } else { refused + 1 };
        let expected = [vec![false; tries], vec![true]].concat();
        assert_eq!(sent, expected, "{refused}");
    }
}

/// W44: what is on record is not told as lost where that of before cannot be deleted.
#[tokio::test(start_paused = true)]
async fn a_record_that_stays_beside_the_new_one_is_told_of_by_nobody() {
    let step = Step {
        action: Action::Release,
        target: crd_of_kustomizations(),
        cause: None,
    };
    let answer = |method: &Method, path: &str| match *method {
        Method::GET => {
            let item = if path.ends_with("/configmaps") {
                let data = json!({"crd": crd_of_kustomizations().name});
                json!({"metadata": {"name": "linesman-saved-old"}, "data": data})
            } else {
                json!({
                    "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                    "metadata": {
                        "name": "held", "namespace": "teams", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:10Z",
                        "finalizers": ["finalizers.fluxcd.io"],
                    },
                    "spec": {},
                })
            };
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [item]});
            (200, list)
        }
        Method::DELETE => status(403, "denied"),
        _ => (200, json!({"metadata": {"name": "x"}})),
    };
    let (calls, done) = done_at(&step, &Observed::default(), &[], answer).await;
    assert_eq!(done.outcome, Outcome::Done);
    assert_eq!(done.told.unrecorded, None);
    let methods = calls.iter().map(|(method, _)| method.clone());
    // The objects, the record of before, and then the object itself.
    assert_eq!(
        methods.collect::<Vec<_>>(),
        [
            Method::GET,
            Method::PATCH,
            Method::GET,
            Method::DELETE,
            Method::PATCH
        ]
    );
}

/// W44: the engine may have let go of an object before the agent sees it. Where something else still holds that, it is put
/// on record like the others; and one that somebody deleted before is not brought back.
#[tokio::test]
async fn what_dies_with_its_crd_is_kept_whoever_took_the_engines_finalizer() {
    let crd = ObjectId::new(
        Kind::CustomResourceDefinition,
        "",
        "kustomizations.kustomize.toolkit.fluxcd.io",
    );
    let mut dying = live(&crd);
    dying.deleting = clock::parse_rfc3339("2026-01-01T00:00:10Z");
    let observed = Observed {
        objects: [(crd.clone(), Arc::new(dying))].into(),
        ..Observed::default()
    };
    let step = Step {
        action: Action::Release,
        target: crd,
        cause: None,
    };
    let object = |name: &str, finalizer: &str, deleted: Value| {
        json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {
                "name": name, "namespace": "teams", "uid": name, "deletionTimestamp": deleted,
                "finalizers": [finalizer, "example.org/mine"],
            },
            "spec": {"path": format!("./{name}")},
        })
    };
    let (engines, others) = ("finalizers.fluxcd.io", "example.org/other");
    let at = |second: u8| json!(format!("2026-01-01T00:00:{second:02}Z"));
    let items = [
        object("held", engines, at(10)),
        object("let-go", others, at(10)),
        object("meant", others, at(9)),
        object("stays", engines, Value::Null),
    ];
    let answer = move |method: &Method| match *method {
        Method::GET => {
            let list = json!({
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "KustomizationList",
                "metadata": {"resourceVersion": "9"}, "items": items,
            });
            (200, list)
        }
        _ => (200, json!({"metadata": {"name": "x"}})),
    };
    let (calls, first) = done(&step, &observed, &[], answer.clone()).await;
    let names = |all: &[Saved]| -> Vec<String> {
        let names = all.iter().map(|o| o.object["metadata"]["name"].as_str());
        names.map(|name| name.unwrap().to_owned()).collect()
    };
    assert_eq!(first.outcome, Outcome::Done);
    assert_eq!(names(&first.saved), ["held", "let-go"]);
    assert_eq!(first.saved[1].object["spec"], json!({"path": "./let-go"}));
    let stripped = json!({"metadata": {"finalizers": ["example.org/mine"], "uid": "held"}});
    let patches = calls.iter().filter(|(method, _)| *method == Method::PATCH);
    let patches: Vec<&Value> = patches.map(|(_, body)| body).collect();
    let of_objects = |body: &&&Value| body.pointer("/metadata/finalizers").is_some();
    assert_eq!(
        patches.iter().filter(of_objects).collect::<Vec<_>>(),
        [&&stripped]
    );
    // Once they are on record they are not put there again.
    let (_, second) = done(&step, &observed, &first.saved, answer).await;
    assert_eq!(names(&second.saved), Vec::<String>::new());
}

/// A webhook, or a schema that an object no longer has: the others go all the same.
#[tokio::test(start_paused = true)]
async fn an_object_that_may_not_be_let_go_holds_no_other_one() {
    let names = ["a", "b", "c"];
    let items = names.map(|name| {
        json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {
                "name": name, "namespace": "teams", "uid": name, "deletionTimestamp": "2026-01-01T00:00:10Z",
                "finalizers": ["finalizers.fluxcd.io"],
            },
            "spec": {"path": "./"},
        })
    });
    let answer = move |method: &Method| match *method {
        Method::GET => {
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
            (200, list)
        }
        _ => status(403, "denied by a webhook"),
    };
    let step = Step {
        action: Action::Release,
        target: crd_of_kustomizations(),
        cause: None,
    };
    let (calls, released) = done(&step, &Observed::default(), &[], answer).await;
    let stripped = calls.iter().filter(|(method, body)| {
        *method == Method::PATCH && body.pointer("/metadata/finalizers").is_some()
    });
    let stripped: Vec<_> = stripped.map(|(_, body)| &body["metadata"]["uid"]).collect();
    assert_eq!(stripped, names);
    let why = "release a: denied by a webhook".to_owned();
    assert_eq!(released.outcome, Outcome::Failed(why));
}

/// W10: the CRD of a part that the engine has no more is in no bundle; what it serves it says itself.
#[tokio::test(start_paused = true)]
async fn objects_of_a_crd_that_no_bundle_has_are_let_go() {
    let id = ObjectId::new(
        Kind::CustomResourceDefinition,
        "",
        "helmreleases.helm.toolkit.fluxcd.io",
    );
    let mut crd = live(&id);
    crd.fields = json!({"spec": {
        "names": {"kind": "HelmRelease", "plural": "helmreleases"},
        "versions": [{"name": "v2beta2", "served": true}, {"name": "v2", "served": true, "storage": true}],
    }});
    let mut observed = Observed::default();
    observed.objects.insert(id.clone(), Arc::new(crd));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let release = json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
        "metadata": {
            "name": "a", "namespace": "flux-system", "uid": "a", "deletionTimestamp": "2026-01-01T00:00:10Z",
            "finalizers": ["finalizers.fluxcd.io"],
        },
        "spec": {"suspend": true},
    });
    let paths = Arc::clone(&asked);
    let answer = move |method: &Method, path: &str| {
        paths.lock().unwrap().push(format!("{method} {path}"));
        match *method {
            Method::GET => {
                let items = [release.clone()];
                let list =
                    json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
                (200, list)
            }
            _ => (200, release.clone()),
        }
    };
    let step = Step {
        action: Action::Release,
        target: id,
        cause: None,
    };
    let (_, released) = done_at(&step, &observed, &[], answer).await;
    assert_eq!(released.outcome, Outcome::Done);
    let saved: Vec<_> = released.saved.iter().map(|o| &o.object["kind"]).collect();
    assert_eq!(saved, ["HelmRelease"]);
    let asked = asked.lock().unwrap();
    let of = |line: &&String| line.contains("/helmreleases");
    assert_eq!(
        asked.iter().filter(of).collect::<Vec<_>>(),
        [
            "GET /apis/helm.toolkit.fluxcd.io/v2/helmreleases",
            "PATCH /apis/helm.toolkit.fluxcd.io/v2/namespaces/flux-system/helmreleases/a",
        ]
    );
}

pub(super) fn crd_of_kustomizations() -> ObjectId {
    ObjectId::new(
        Kind::CustomResourceDefinition,
        "",
        "kustomizations.kustomize.toolkit.fluxcd.io",
    )
}

/// What leaves the catalog while a Kustomization is away is pruned when that is back: it has the list of what it had brought.
#[tokio::test]
async fn a_kustomization_that_is_brought_back_knows_what_it_had_brought() {
    let inventory = json!({"entries": [{"id": "shop_settings__ConfigMap", "v": "v1"}]});
    let long = "x".repeat(300 << 10);
    let items: Vec<Value> = [
        ("small", inventory.clone()),
        ("large", json!({"entries": [{"id": long, "v": "v1"}]})),
        ("none", json!({"entries": []})),
    ]
    .into_iter()
    .map(|(name, inventory)| {
        json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {
                "name": name, "namespace": "teams", "uid": name, "deletionTimestamp": "2026-01-01T00:00:10Z",
                "finalizers": ["finalizers.fluxcd.io"],
            },
            "spec": {"path": "./"}, "status": {"inventory": inventory, "observedGeneration": 1},
        })
    })
    .collect();
    let step = |action| Step {
        action,
        target: crd_of_kustomizations(),
        cause: None,
    };
    let lists = AtomicUsize::new(0);
    let answer = move |method: &Method| match *method {
        Method::GET => {
            // What else is listed are records.
            let first = lists.fetch_add(1, Ordering::Relaxed) == 0;
            let items = if first { items.clone() } else { Vec::new() };
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
            (200, list)
        }
        _ => (200, json!({"metadata": {"name": "small"}})),
    };
    let seen = Observed::default();
    let (_, released) = done(&step(Action::Release), &seen, &[], answer).await;
    let kept = released.saved.iter().map(|o| o.object.get("status"));
    let kept: Vec<Option<&Value>> = kept.collect();
    let brought = json!({"inventory": inventory});
    assert_eq!(kept, [Some(&brought), None, None]);
    // All the same they are on record.
    assert_eq!(released.told.unrecorded, None);
    let told = released.told.bare.unwrap_or_default();
    assert!(told.starts_with("the inventories of 1 objects"), "{told}");

    let saved = &released.saved[..1];
    let mut bare = saved[0].object.clone();
    bare.as_object_mut().unwrap().remove("status");
    let (asked, applied) = ((Method::GET, Value::Null), (Method::PATCH, bare));
    let given = (Method::PATCH, json!({"status": brought}));
    let its_own = json!({"metadata": {"name": "small"}, "status": {"inventory": {"entries": []}}});
    for (live, expected) in [
        (
            json!({"metadata": {"name": "small"}}),
            vec![asked.clone(), applied.clone(), given],
        ),
        (its_own, vec![asked, applied]),
    ] {
        let answer = move |method: &Method| match *method {
            Method::GET => status(404, "gone"),
            _ => (200, live.clone()),
        };
        let (calls, restored) = done(&step(Action::Restore), &seen, saved, answer).await;
        assert_eq!(calls, expected);
        assert_eq!(
            (restored.outcome, restored.saved),
            (Outcome::Done, Vec::new())
        );
    }
}

/// Where the agent has no right to the status, as with the adoption YAML of before, the object is back all the same; else its
/// list is brought back with the next try.
#[tokio::test]
async fn an_inventory_that_is_refused_does_not_keep_its_object_away() {
    let step = Step {
        action: Action::Restore,
        target: crd_of_kustomizations(),
        cause: None,
    };
    let object = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "small", "namespace": "teams"}, "spec": {},
        "status": {"inventory": {"entries": [{"id": "shop_settings__ConfigMap", "v": "v1"}]}},
    });
    let saved = [Saved::new(object, clock::now())];
    let seen = Observed::default();
    let denied = "kustomizations \"small\" is forbidden: User \"x\" cannot patch resource \"kustomizations/status\"";
    for (code, text, outcome) in [
        (403, denied, Outcome::Done),
        (
            500,
            "etcdserver: request timed out",
            Outcome::Unserved(
                "restore teams/small: bring the inventory back: etcdserver: request timed out"
                    .to_owned(),
            ),
        ),
    ] {
        let writes = AtomicUsize::new(0);
        let answer = move |method: &Method| match *method {
            Method::GET => status(404, "gone"),
            _ if writes.fetch_add(1, Ordering::Relaxed) > 0 => status(code, text),
            _ => (200, json!({"metadata": {"name": "small"}})),
        };
        let (_, restored) = done(&step, &seen, &saved, answer).await;
        let left = usize::from(outcome != Outcome::Done);
        assert_eq!((restored.outcome, restored.saved.len()), (outcome, left));
    }
}

/// F17: what Git's version of a CRD left behind keeps the agent from its own roots as it keeps Flux from what it brings.
#[tokio::test]
async fn an_object_whose_field_managers_speak_of_a_gone_version_is_renewed_and_applied_again() {
    let id = ObjectId::new(Kind::Kustomization, "flux-system", "flux-system");
    let observed = Observed {
        objects: [(id.clone(), Arc::new(live(&id)))].into(),
        ..Observed::default()
    };
    let step = Step {
        action: Action::Apply,
        target: id,
        cause: None,
    };
    let of = |version: &str| format!("kustomize.toolkit.fluxcd.io/{version}");
    let text = format!(
        "request to convert CR to an invalid group/version: {}",
        of("v1beta2")
    );
    let old = json!({"metadata": {
        "name": "flux-system", "namespace": "flux-system", "resourceVersion": "8",
        "managedFields": [{"manager": "m", "apiVersion": of("v1beta2")}],
    }});
    let refuses = AtomicUsize::new(1);
    let answer = move |method: &Method| match *method {
        Method::GET => (200, old.clone()),
        _ if refuses.swap(0, Ordering::Relaxed) == 1 => status(500, &text),
        _ => (
            200,
            json!({"metadata": {"name": "flux-system", "resourceVersion": "9"}}),
        ),
    };
    let (calls, outcome) = sent(&step, &observed, answer).await;
    let renewed = json!({"metadata": {
        "managedFields": [{"manager": "m", "apiVersion": of("v1")}], "resourceVersion": "8",
    }});
    let applied = calls[0].clone();
    let expected = [
        applied.clone(),
        (Method::GET, Value::Null),
        (Method::PATCH, renewed),
        applied,
    ];
    assert_eq!(calls, expected);
    assert_eq!(outcome, Outcome::Done);
}
