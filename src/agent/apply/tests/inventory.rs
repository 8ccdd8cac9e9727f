//! The inventories of Kustomizations that are brought back.

use super::*;

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
    let mut bare = Value::clone(&saved[0].object);
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
