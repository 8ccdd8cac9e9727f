//! What dies with its CRD: kept, on record, and let go.

use super::*;

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
                json!({"metadata": {"name": "linesman-saved-kustomizations-old"}, "data": data})
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

/// W11: somebody else's finalizer holds an object on after a burst, until the engine has its rights again. kustomize-controller then prunes
/// for whatever is being deleted, also without a finalizer of its own, but for what is suspended.
#[tokio::test]
async fn what_others_hold_on_prunes_nothing_when_the_engine_is_back() {
    let crd = crd_of_kustomizations();
    let item = |name: &str, finalizers: Value| {
        json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {
                "name": name, "namespace": "teams", "uid": name, "deletionTimestamp": "2026-01-01T00:00:10Z",
                "finalizers": finalizers, "labels": {"kustomize.toolkit.fluxcd.io/name": "flux-system"},
            },
            "spec": {"prune": true},
        })
    };
    let items = [
        item("alone", json!(["finalizers.fluxcd.io"])),
        item(
            "held",
            json!(["finalizers.fluxcd.io", "foregroundDeletion"]),
        ),
    ];
    let answer = move |method: &Method| match *method {
        Method::GET => {
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
            (200, list)
        }
        _ => (200, json!({"metadata": {"name": "x"}})),
    };
    let step = Step {
        action: Action::Release,
        target: crd.clone(),
        cause: None,
    };
    // With its CRD it is gone before the engine is back.
    for (crd_goes, suspends) in [(false, true), (true, false)] {
        let mut of_crd = live(&crd);
        of_crd.deleting = crd_goes.then(clock::now);
        let observed = Observed {
            objects: [(crd.clone(), Arc::new(of_crd))].into(),
            ..Observed::default()
        };
        let (calls, released) = done(&step, &observed, &[], answer.clone()).await;
        assert_eq!(released.outcome, Outcome::Done);
        let patches = calls.into_iter().filter(|(m, _)| *m == Method::PATCH);
        let patches: Vec<Value> = patches.map(|(_, body)| body).collect();
        let mut held = json!({"metadata": {"finalizers": ["foregroundDeletion"], "uid": "held"}});
        if suspends {
            held["spec"] = json!({"suspend": true});
        }
        let alone = json!({"metadata": {"finalizers": [], "uid": "alone"}});
        assert_eq!(patches, [alone, held], "{crd_goes}");
    }
}

/// A policy that lets nobody suspend anything keeps no engine without its rights.
#[tokio::test]
async fn what_may_not_be_suspended_is_let_go_all_the_same() {
    let crd = crd_of_kustomizations();
    let others = json!(["foregroundDeletion"]);
    let item = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {
            "name": "held", "namespace": "teams", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:10Z",
            "finalizers": ["finalizers.fluxcd.io", "foregroundDeletion"],
            "labels": {"kustomize.toolkit.fluxcd.io/name": "flux-system"},
        },
        "spec": {"prune": true},
    });
    let free = json!({"metadata": {"finalizers": others, "uid": "u"}});
    let still = json!({"metadata": {"finalizers": others, "uid": "u"}, "spec": {"suspend": true}});
    let step = Step {
        action: Action::Release,
        target: crd.clone(),
        cause: None,
    };
    let observed = Observed {
        objects: [(crd.clone(), Arc::new(live(&crd)))].into(),
        ..Observed::default()
    };
    let trouble = Outcome::Unserved("release held: busy".to_owned());
    for (code, message, sent, outcome) in [
        (403, "denied by a webhook", 2, Outcome::Done),
        // That is tried again as it is.
        (500, "busy", 1, trouble),
    ] {
        let (item, patches) = (item.clone(), AtomicUsize::new(0));
        let answer = move |method: &Method| match *method {
            Method::GET => {
                let list =
                    json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [item]});
                (200, list)
            }
            _ if patches.fetch_add(1, Ordering::Relaxed) == 0 => status(code, message),
            _ => (200, json!({"metadata": {"name": "x"}})),
        };
        let (calls, released) = done(&step, &observed, &[], answer).await;
        let asked = calls.into_iter().filter(|(m, _)| *m == Method::PATCH);
        let asked: Vec<Value> = asked.map(|(_, body)| body).collect();
        let expected = [still.clone(), free.clone()];
        assert_eq!(asked, expected[..sent], "{code}");
        assert_eq!(released.outcome, outcome, "{code}");
    }
}
